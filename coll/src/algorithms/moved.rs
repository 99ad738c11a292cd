//! Tests of algorithms that move a block per rank, or one to all. For each operation this says once
//! what every rank gives and expects.

use std::sync::Arc;

use super::Algorithm;
use super::moving::{Buffer, Form, LAYOUTS, Side, run_lowered};
use crate::args::Operation;
use crate::levels::Levels;
use crate::lower::{Lowered, Problem, lower};
use crate::problem::{Allgather, Alltoall, Bcast, Gather, Scatter};
use crate::schedule::Builder;
use crate::simulate::{Random, Simulation};

/// The ranks of one operation: how blocks are given, and which ranks share a node.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    pub(crate) layout: usize,
    /// The length of each rank's block, in units.
    pub(crate) units: Vec<usize>,
    pub(crate) levels: Option<Arc<Levels>>,
    /// Whether every other rank lists equal blocks one by one.
    pub(crate) mixed: bool,
}

impl Shape {
    pub(crate) fn new(form: Form, layout: usize, units: Vec<usize>) -> Self {
        Self {
            form,
            layout,
            units,
            levels: None,
            mixed: false,
        }
    }

    fn ranks(&self) -> std::ops::Range<u32> {
        0..self.units.len() as u32
    }

    /// One block of a rank, in a layout of the rank's own.
    fn one(&self, rank: u32) -> Buffer {
        Buffer::one(self.units[rank as usize], self.layout_of(rank))
    }

    fn layout_of(&self, rank: u32) -> usize {
        (self.layout + rank as usize) % LAYOUTS
    }

    fn all(&self, random: &mut Random) -> Buffer {
        Buffer::new(self.form, &self.units, self.layout, random)
    }

    /// All blocks, as given at a rank.
    fn all_at(&self, rank: u32, random: &mut Random) -> Buffer {
        let form = match self.mixed && rank % 2 == 1 {
            true => Form::Blocks,
            false => self.form,
        };
        Buffer::new(form, &self.units, self.layout, random)
    }

    fn lower(&self, b: &mut Builder, operation: &Operation<'_>) -> Lowered {
        b.set_levels(self.levels.clone());
        lower(b, operation)
    }
}

/// Runs a broadcast of as much as the shape's first block. Each rank has a layout of its own.
pub(crate) fn broadcast(
    algorithm: &Algorithm<Bcast>,
    root: u32,
    shape: &Shape,
    random: &mut Random,
) -> Option<Simulation> {
    let units = shape.units[0];
    let what = vec![(0, (root, 0, units))];
    let side = |rank: u32| {
        let recv = Some(Buffer::one(units, shape.layout_of(rank)));
        let (kept, expected) = match rank == root {
            true => (what.clone(), Vec::new()),
            false => (Vec::new(), what.clone()),
        };
        Side {
            recv,
            kept,
            expected,
            ..Side::default()
        }
    };
    let sides: Vec<_> = shape.ranks().map(side).collect();
    let seed = random.next();
    let lowering = |b: &mut Builder, side: &Side| {
        let data = side.recv.as_ref().expect("everybody has some").typed();
        shape.lower(b, &Operation::Bcast { data, root })
    };
    run_lowered(algorithm, &sides, seed, lowering, |problem| match problem {
        Problem::Bcast(problem) => problem,
        other => panic!("{other:?}"),
    })
}

/// Runs a gather; `None` if the algorithm does not fit.
pub(crate) fn gathered(
    algorithm: &Algorithm<Gather>,
    root: u32,
    in_place: bool,
    shape: &Shape,
    random: &mut Random,
) -> Option<Simulation> {
    let what = |rank: u32| (rank, root, shape.units[rank as usize]);
    let all: Vec<_> = shape
        .ranks()
        .map(|rank| (rank as usize, what(rank)))
        .collect();
    let side = |rank: u32| {
        let aside = rank == root && in_place;
        let mut side = Side::default();
        if !aside {
            side.send = Some(shape.one(rank));
            side.sent = vec![what(rank)];
        }
        if rank == root {
            side.recv = Some(shape.all(random));
            side.expected = all.clone();
        }
        if aside {
            side.kept = vec![all[rank as usize]];
        }
        side
    };
    let sides: Vec<_> = shape.ranks().map(side).collect();
    let seed = random.next();
    let lowering = |b: &mut Builder, side: &Side| {
        let operation = Operation::Gather {
            send: side.send.as_ref().map(Buffer::typed),
            recv: side.recv.as_ref().map(Buffer::many),
            root,
            uneven: shape.form != Form::Equal,
        };
        shape.lower(b, &operation)
    };
    run_lowered(algorithm, &sides, seed, lowering, |problem| match problem {
        Problem::Gather(problem) => problem,
        other => panic!("{other:?}"),
    })
}

/// Runs a scatter.
pub(crate) fn scattered(
    algorithm: &Algorithm<Scatter>,
    root: u32,
    in_place: bool,
    shape: &Shape,
    random: &mut Random,
) -> Option<Simulation> {
    let what = |rank: u32| (root, rank, shape.units[rank as usize]);
    let side = |rank: u32| {
        let mut side = Side::default();
        if rank == root {
            side.send = Some(shape.all(random));
            side.sent = shape.ranks().map(what).collect();
        }
        if rank != root || !in_place {
            side.recv = Some(shape.one(rank));
            side.expected = vec![(0, what(rank))];
        }
        side
    };
    let sides: Vec<_> = shape.ranks().map(side).collect();
    let seed = random.next();
    let lowering = |b: &mut Builder, side: &Side| {
        let operation = Operation::Scatter {
            send: side.send.as_ref().map(Buffer::many),
            recv: side.recv.as_ref().map(Buffer::typed),
            root,
            uneven: shape.form != Form::Equal,
        };
        shape.lower(b, &operation)
    };
    run_lowered(algorithm, &sides, seed, lowering, |problem| match problem {
        Problem::Scatter(problem) => problem,
        other => panic!("{other:?}"),
    })
}

/// Runs an allgather.
pub(crate) fn allgathered(
    algorithm: &Algorithm<Allgather>,
    in_place: bool,
    shape: &Shape,
    random: &mut Random,
) -> Option<Simulation> {
    let what = |rank: u32| (rank, 0, shape.units[rank as usize]);
    let all: Vec<_> = shape
        .ranks()
        .map(|rank| (rank as usize, what(rank)))
        .collect();
    let side = |rank: u32| {
        let mut side = Side {
            recv: Some(shape.all_at(rank, random)),
            expected: all.clone(),
            ..Side::default()
        };
        if in_place {
            side.kept = vec![all[rank as usize]];
        } else {
            side.send = Some(shape.one(rank));
            side.sent = vec![what(rank)];
        }
        side
    };
    let sides: Vec<_> = shape.ranks().map(side).collect();
    let seed = random.next();
    let lowering = |b: &mut Builder, side: &Side| {
        let operation = Operation::Allgather {
            send: side.send.as_ref().map(Buffer::typed),
            recv: side.recv.as_ref().expect("everybody receives").many(),
        };
        shape.lower(b, &operation)
    };
    run_lowered(algorithm, &sides, seed, lowering, |problem| match problem {
        Problem::Allgather(problem) => problem,
        other => panic!("{other:?}"),
    })
}

/// Runs an all-to-all with `units(from, to)` in each message; the shape's own `units` are not used.
pub(crate) fn exchanged(
    algorithm: &Algorithm<Alltoall>,
    in_place: bool,
    shape: &Shape,
    units: impl Fn(u32, u32) -> usize,
    random: &mut Random,
) -> Option<Simulation> {
    let side = |rank: u32| {
        let to: Vec<_> = shape
            .ranks()
            .map(|to| (rank, to, units(rank, to)))
            .collect();
        let from: Vec<_> = shape
            .ranks()
            .map(|from| (from, rank, units(from, rank)))
            .collect();
        let lengths = |of: &[(u32, u32, usize)]| of.iter().map(|m| m.2).collect::<Vec<_>>();
        let mut side = Side {
            recv: Some(Buffer::new(
                shape.form,
                &lengths(&from),
                shape.layout,
                random,
            )),
            expected: from.into_iter().enumerate().collect(),
            ..Side::default()
        };
        if in_place {
            side.kept = to.into_iter().enumerate().collect();
        } else {
            let layout = shape.layout_of(rank);
            side.send = Some(Buffer::new(shape.form, &lengths(&to), layout, random));
            side.sent = to;
        }
        side
    };
    let sides: Vec<_> = shape.ranks().map(side).collect();
    let seed = random.next();
    let lowering = |b: &mut Builder, side: &Side| {
        let operation = Operation::Alltoall {
            send: side.send.as_ref().map(Buffer::many),
            recv: side.recv.as_ref().expect("everybody receives").many(),
        };
        shape.lower(b, &operation)
    };
    run_lowered(algorithm, &sides, seed, lowering, |problem| match problem {
        Problem::Alltoall(problem) => problem,
        other => panic!("{other:?}"),
    })
}

/// The ways in which blocks may be given to `size` ranks: equal blocks, and uneven ones with zeros.
pub(crate) fn shapes(size: u32, random: &mut Random) -> Vec<Shape> {
    let equal = |(at, units)| Shape::new(Form::Equal, at % LAYOUTS, vec![units; size as usize]);
    let mut all: Vec<_> = [0, 1, 5, 2, 3, 3]
        .into_iter()
        .enumerate()
        .map(equal)
        .collect();
    for layout in 0..LAYOUTS {
        let units = |_| [0, 1, 2, 7][random.below(4)];
        all.push(Shape::new(
            Form::Blocks,
            layout,
            (0..size).map(units).collect(),
        ));
    }
    all
}
