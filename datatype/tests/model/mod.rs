//! A naive model of layouts: a type map as a plain list, after the definitions of MPI-4, 5.1.

#![allow(dead_code, reason = "each test uses a part of the model")]

use portolan_datatype::{ByteOrder, Layout, MsgRep, Order, Primitive};
use proptest::prelude::*;

/// A constructor tree.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Primitive(Primitive),
    Dup(Box<Tree>),
    Contiguous(usize, Box<Tree>),
    Vector(usize, usize, isize, Box<Tree>),
    Hvector(usize, usize, isize, Box<Tree>),
    Indexed(Vec<(usize, isize)>, Box<Tree>),
    Hindexed(Vec<(usize, isize)>, Box<Tree>),
    IndexedBlock(usize, Vec<isize>, Box<Tree>),
    HindexedBlock(usize, Vec<isize>, Box<Tree>),
    Struct(Vec<(usize, isize, Tree)>),
    Subarray(Vec<(usize, usize, usize)>, Order, Box<Tree>),
    Resized(isize, isize, Box<Tree>),
}

/// A type map with the bounds that `resized` set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) map: Vec<(isize, Primitive)>,
    pub(crate) marks: Option<(isize, isize)>,
}

impl Model {
    pub(crate) fn size(&self) -> usize {
        self.map.iter().map(|(_, p)| p.size()).sum()
    }

    pub(crate) fn true_lb(&self) -> isize {
        self.map.iter().map(|(d, _)| *d).min().unwrap_or(0)
    }

    pub(crate) fn true_ub(&self) -> isize {
        self.map
            .iter()
            .map(|(d, p)| d + p.size() as isize)
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn lb(&self) -> isize {
        self.marks.map_or(self.true_lb(), |(lb, _)| lb)
    }

    pub(crate) fn extent(&self) -> isize {
        if let Some((lb, ub)) = self.marks {
            return ub - lb;
        }
        let align = self
            .map
            .iter()
            .map(|(_, p)| p.align() as isize)
            .max()
            .unwrap_or(1);
        let mut extent = self.true_ub() - self.true_lb();
        while extent % align != 0 {
            extent += 1;
        }
        extent
    }

    fn place(&mut self, old: &Model, at: isize) {
        self.map.extend(old.map.iter().map(|(d, p)| (d + at, *p)));
        if let Some((lb, ub)) = old.marks {
            let (low, high) = self.marks.unwrap_or((lb + at, ub + at));
            self.marks = Some((low.min(lb + at), high.max(ub + at)));
        }
    }

    fn block(&mut self, old: &Model, at: isize, count: usize) {
        for i in 0..count as isize {
            self.place(old, at + i * old.extent());
        }
    }

    /// Type map of `count` items.
    pub(crate) fn items(&self, count: usize) -> Vec<(isize, Primitive)> {
        let mut all = Model::default();
        all.block(self, 0, count);
        all.map
    }

    /// For each byte of the packed stream of `count` items, its displacement in memory.
    pub(crate) fn stream(&self, count: usize, rep: MsgRep) -> Vec<isize> {
        let reversed = match rep {
            MsgRep::Native => false,
            MsgRep::Swapped => true,
            MsgRep::External32 => ByteOrder::NATIVE == ByteOrder::Little,
        };
        let mut bytes = Vec::new();
        for (disp, primitive) in self.items(count) {
            let width = match primitive {
                Primitive::C32 => 4,
                Primitive::C64 => 8,
                other => other.size(),
            };
            for k in 0..primitive.size() {
                let (half, byte) = (k / width, k % width);
                let byte = if reversed { width - 1 - byte } else { byte };
                bytes.push(disp + (half * width + byte) as isize);
            }
        }
        bytes
    }
}

impl Tree {
    pub(crate) fn layout(&self) -> Layout {
        let built = match self {
            Tree::Primitive(p) => Ok(Layout::primitive(*p)),
            Tree::Dup(old) => old.layout().dup(),
            Tree::Contiguous(n, old) => Layout::contiguous(*n, &old.layout()),
            Tree::Vector(n, b, s, old) => Layout::vector(*n, *b, *s, &old.layout()),
            Tree::Hvector(n, b, s, old) => Layout::hvector(*n, *b, *s, &old.layout()),
            Tree::Indexed(blocks, old) => {
                let (b, d): (Vec<_>, Vec<_>) = blocks.iter().copied().unzip();
                Layout::indexed(&b, &d, &old.layout())
            }
            Tree::Hindexed(blocks, old) => {
                let (b, d): (Vec<_>, Vec<_>) = blocks.iter().copied().unzip();
                Layout::hindexed(&b, &d, &old.layout())
            }
            Tree::IndexedBlock(b, d, old) => Layout::indexed_block(*b, d, &old.layout()),
            Tree::HindexedBlock(b, d, old) => Layout::hindexed_block(*b, d, &old.layout()),
            Tree::Struct(fields) => {
                let b: Vec<_> = fields.iter().map(|f| f.0).collect();
                let d: Vec<_> = fields.iter().map(|f| f.1).collect();
                let t: Vec<_> = fields.iter().map(|f| f.2.layout()).collect();
                Layout::structure(&b, &d, &t)
            }
            Tree::Subarray(dims, order, old) => {
                let sizes: Vec<_> = dims.iter().map(|d| d.0).collect();
                let subsizes: Vec<_> = dims.iter().map(|d| d.1).collect();
                let starts: Vec<_> = dims.iter().map(|d| d.2).collect();
                Layout::subarray(&sizes, &subsizes, &starts, *order, &old.layout())
            }
            Tree::Resized(lb, extent, old) => Layout::resized(&old.layout(), *lb, *extent),
        };
        built.expect("small arguments")
    }

    pub(crate) fn model(&self) -> Model {
        let mut new = Model::default();
        match self {
            Tree::Primitive(p) => new.map.push((0, *p)),
            Tree::Dup(old) => new = old.model(),
            Tree::Contiguous(n, old) => new.block(&old.model(), 0, *n),
            Tree::Vector(n, b, s, old) => {
                let old = old.model();
                (0..*n as isize).for_each(|i| new.block(&old, i * s * old.extent(), *b));
            }
            Tree::Hvector(n, b, s, old) => {
                let old = old.model();
                (0..*n as isize).for_each(|i| new.block(&old, i * s, *b));
            }
            Tree::Indexed(blocks, old) => {
                let old = old.model();
                blocks
                    .iter()
                    .for_each(|(b, d)| new.block(&old, d * old.extent(), *b));
            }
            Tree::Hindexed(blocks, old) => {
                let old = old.model();
                blocks.iter().for_each(|(b, d)| new.block(&old, *d, *b));
            }
            Tree::IndexedBlock(b, displacements, old) => {
                let old = old.model();
                displacements
                    .iter()
                    .for_each(|d| new.block(&old, d * old.extent(), *b));
            }
            Tree::HindexedBlock(b, displacements, old) => {
                let old = old.model();
                displacements.iter().for_each(|d| new.block(&old, *d, *b));
            }
            Tree::Struct(fields) => {
                fields
                    .iter()
                    .for_each(|(b, d, t)| new.block(&t.model(), *d, *b));
            }
            Tree::Subarray(dims, order, old) => {
                let old = old.model();
                let extent = old.extent();
                for index in indices(dims, *order) {
                    new.place(&old, linear(dims, *order, &index) as isize * extent);
                }
                let whole: usize = dims.iter().map(|d| d.0).product();
                new.marks = Some((0, whole as isize * extent));
            }
            Tree::Resized(lb, extent, old) => {
                new = old.model();
                new.marks = Some((*lb, lb + extent));
            }
        }
        new
    }
}

/// The indices of a subarray's elements within the array, in the order of the array.
fn indices(dims: &[(usize, usize, usize)], order: Order) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for (_, subsize, start) in dims {
        all = all
            .iter()
            .flat_map(|head: &Vec<usize>| {
                (*start..start + subsize).map(move |i| [&head[..], &[i]].concat())
            })
            .collect();
    }
    all.sort_by_key(|index| linear(dims, order, index));
    all
}

fn linear(dims: &[(usize, usize, usize)], order: Order, index: &[usize]) -> usize {
    let mut pairs: Vec<_> = dims
        .iter()
        .map(|d| d.0)
        .zip(index.iter().copied())
        .collect();
    if order == Order::Fortran {
        pairs.reverse();
    }
    pairs.iter().fold(0, |sum, (size, i)| sum * size + i)
}

fn primitive() -> impl Strategy<Value = Tree> {
    proptest::sample::select(&Primitive::ALL[..]).prop_map(Tree::Primitive)
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::C), Just(Order::Fortran)]
}

/// Random trees, with displacements of both signs, blocks of no items, gaps and overlaps.
pub(crate) fn trees() -> impl Strategy<Value = Tree> {
    let n = || prop_oneof![1 => Just(0usize), 12 => 1usize..5];
    let d = || -6isize..7;
    let bytes = || -40isize..41;
    let tree = primitive().prop_recursive(4, 64, 8, move |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        let list = |d: std::ops::Range<isize>| prop::collection::vec((n(), d), 1..6);
        let dim = (1usize..4).prop_flat_map(|size| {
            (size.min(1)..=size).prop_flat_map(move |sub| (Just(size), Just(sub), 0..=size - sub))
        });
        prop_oneof![
            boxed().prop_map(Tree::Dup),
            (n(), boxed()).prop_map(|(n, t)| Tree::Contiguous(n, t)),
            (n(), n(), d(), boxed()).prop_map(|(n, b, s, t)| Tree::Vector(n, b, s, t)),
            (n(), n(), bytes(), boxed()).prop_map(|(n, b, s, t)| Tree::Hvector(n, b, s, t)),
            (list(d()), boxed()).prop_map(|(l, t)| Tree::Indexed(l, t)),
            (list(bytes()), boxed()).prop_map(|(l, t)| Tree::Hindexed(l, t)),
            (n(), prop::collection::vec(d(), 0..12), boxed())
                .prop_map(|(b, l, t)| Tree::IndexedBlock(b, l, t)),
            (n(), prop::collection::vec(bytes(), 0..20), boxed())
                .prop_map(|(b, l, t)| Tree::HindexedBlock(b, l, t)),
            prop::collection::vec((n(), bytes(), inner.clone()), 0..6).prop_map(Tree::Struct),
            // Fields side by side, as in most structures.
            prop::collection::vec((1usize..3, inner.clone()), 1..20).prop_map(|fields| {
                let mut end = 0;
                Tree::Struct(
                    fields
                        .into_iter()
                        .map(|(b, t)| {
                            let at = end;
                            end += b as isize * t.model().extent().max(0);
                            (b, at, t)
                        })
                        .collect(),
                )
            }),
            (prop::collection::vec(dim, 0..4), order(), boxed())
                .prop_map(|(dims, o, t)| Tree::Subarray(dims, o, t)),
            (bytes(), bytes(), boxed()).prop_map(|(lb, e, t)| Tree::Resized(lb, e, t)),
        ]
    });
    tree.prop_filter("too large for the model", |tree| {
        tree.layout().size() < 20_000
    })
}

pub(crate) fn reps() -> impl Strategy<Value = MsgRep> {
    prop_oneof![
        Just(MsgRep::Native),
        Just(MsgRep::Swapped),
        Just(MsgRep::External32)
    ]
}

/// Memory around a buffer, filled with distinct bytes, large enough for every displacement in the
/// stream of some items.
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) origin: isize,
}

impl Memory {
    pub(crate) fn around(stream: &[isize]) -> Memory {
        let low = stream.iter().copied().min().unwrap_or(0).min(0);
        let high = stream.iter().copied().max().unwrap_or(0).max(0) + 1;
        let bytes = (low..high)
            .map(|i| (i.wrapping_mul(167) ^ (i >> 8)) as u8)
            .collect();
        Memory {
            bytes,
            origin: -low,
        }
    }

    pub(crate) fn base(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().wrapping_offset(self.origin)
    }

    pub(crate) fn at(&mut self, disp: isize) -> &mut u8 {
        &mut self.bytes[(disp + self.origin) as usize]
    }
}
