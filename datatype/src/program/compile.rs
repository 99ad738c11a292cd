//! From the tree of constructors to the flat program.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::{Kind, Program, Step};
use crate::Layout;
use crate::layout::{Contents, Part};

/// Bodies of at most this many steps are copied into each place where they occur, so that blocks
/// can merge across their ends; longer ones are shared. This limits the size of a program to a
/// multiple of the arguments it was made from.
const INLINE_STEPS: usize = 8;

/// From this many equal blocks at unequal distances on, a list of displacements is worth its cost.
const LIST_BLOCKS: usize = 4;

/// From this many equal blocks at equal distances on, a step with a stride is better than a part of
/// a list.
const REGULAR_RUN: usize = 16;

/// A body of at most this many blocks is moved tile by tile, see [`Kind::Body`].
const TILE_BLOCKS: usize = 16;

impl Program {
    /// Compiles a layout. If `by_width`, blocks are merged only with blocks of numbers of the
    /// same width, so that each can have its bytes reversed.
    pub(crate) fn compile(layout: &Layout, by_width: bool) -> Program {
        let mut compiler = Compiler {
            by_width,
            steps: Vec::new(),
            lists: Vec::new(),
            bodies: HashMap::new(),
        };
        let body = compiler.body_of(layout);
        let root = compiler.publish(&body.steps);
        let (size, extent) = (layout.size(), layout.extent());
        let contiguous = match &*body.steps {
            [] => true,
            [one] => one.is_block() && one.count == 1 && one.disp == 0 && extent == size as isize,
            _ => false,
        };
        Program {
            steps: compiler.steps.into(),
            lists: compiler.lists.into(),
            root,
            size,
            extent,
            contiguous,
        }
    }
}

struct Compiler {
    by_width: bool,
    /// Published bodies, one after the other.
    steps: Vec<Step>,
    lists: Vec<isize>,
    /// Bodies of the layouts met so far: a layout used in many places is compiled once.
    bodies: HashMap<usize, Rc<Body>>,
}

/// The steps of one item.
struct Body {
    steps: Vec<Step>,
    /// Where they are in the program, once some step has needed them there.
    published: std::cell::OnceCell<Range<u32>>,
}

impl Compiler {
    fn body_of(&mut self, layout: &Layout) -> Rc<Body> {
        if let Some(body) = self.bodies.get(&layout.identity()) {
            return Rc::clone(body);
        }
        let mut out = Vec::new();
        if let Contents::Named(primitive) = layout.contents() {
            let width = if self.by_width {
                primitive.swap_width()
            } else {
                1
            };
            out.push(Step::block(primitive.size(), width));
        }
        for part in layout.parts() {
            self.place(&part, &mut out);
        }
        let body = Rc::new(Body {
            steps: fold(out, &mut self.lists),
            published: std::cell::OnceCell::new(),
        });
        self.bodies.insert(layout.identity(), Rc::clone(&body));
        body
    }

    /// Appends the steps of all copies that `part` places.
    fn place(&mut self, part: &Part<'_>, out: &mut Vec<Step>) {
        let (outer, inner) = (part.outer, part.inner);
        if outer.0 == 0 || inner.0 == 0 || part.old.size() == 0 {
            return;
        }
        let body = self.body_of(part.old);
        let once = outer.0 == 1 && inner.0 == 1;
        if once && body.steps.len() <= INLINE_STEPS {
            for step in &body.steps {
                append(out, step.clone(), part.disp);
            }
            return;
        }
        let mut step = match &*body.steps {
            [one] => one.clone(),
            _ => self.run(&body, part.old.size()),
        };
        for (count, stride) in [inner, outer] {
            step = match step.repeated(count, stride) {
                Some(step) => step,
                None => {
                    let bytes = step.total();
                    let steps = [Step { start: 0, ..step }];
                    let tile = is_tile(&steps);
                    let steps = self.publish(&steps);
                    let kind = Kind::Body { steps, tile };
                    Step {
                        count,
                        stride,
                        kind,
                        ..Step::block(bytes, 1)
                    }
                }
            };
        }
        append(out, step, part.disp);
    }

    /// A step that runs `body` once, at displacement 0.
    fn run(&mut self, body: &Rc<Body>, bytes: usize) -> Step {
        let range = match body.published.get() {
            Some(range) => range.clone(),
            None => {
                let range = self.publish(&body.steps);
                body.published.get_or_init(|| range).clone()
            }
        };
        let (steps, tile) = (range, is_tile(&body.steps));
        let kind = Kind::Body { steps, tile };
        Step {
            kind,
            ..Step::block(bytes, 1)
        }
    }

    fn publish(&mut self, body: &[Step]) -> Range<u32> {
        let first = index(self.steps.len());
        self.steps.extend_from_slice(body);
        first..index(self.steps.len())
    }
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("a layout of 2^32 blocks needs more memory than there is")
}

/// Whether a body is best moved tile by tile.
pub(super) fn is_tile(body: &[Step]) -> bool {
    body.iter().all(Step::is_block)
        && body
            .iter()
            .map(|step| step.count)
            .fold(0, usize::saturating_add)
            <= TILE_BLOCKS
}

/// Appends a step at a displacement, merged into the last step if it continues that one.
fn append(out: &mut Vec<Step>, mut step: Step, disp: isize) {
    step.disp = step.disp.wrapping_add(disp);
    if let Some(last) = out.last_mut() {
        let adjacent = last.is_block()
            && step.is_block()
            && last.count == 1
            && step.count == 1
            && last.width == step.width
            && last.disp.wrapping_add(last.bytes as isize) == step.disp;
        if adjacent {
            last.bytes += step.bytes;
            return;
        }
        step.start = last.start + last.total();
    } else {
        step.start = 0;
    }
    out.push(step);
}

/// Turns consecutive equal blocks into one step: with a stride if they are at equal distances, else
/// with a list of their displacements.
fn fold(steps: Vec<Step>, lists: &mut Vec<isize>) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    let mut rest = &*steps;
    while let [first, ..] = rest {
        let (run, stride) = regular(rest);
        let listed = if run < REGULAR_RUN {
            irregular(rest)
        } else {
            0
        };
        if listed >= LIST_BLOCKS && listed > run {
            let start = index(lists.len());
            lists.extend(rest[..listed].iter().map(|step| step.disp));
            let kind = Kind::Listed(start..index(lists.len()));
            out.push(Step {
                disp: 0,
                count: listed,
                kind,
                ..first.clone()
            });
            rest = &rest[listed..];
        } else if run >= 3 {
            out.push(Step {
                count: run,
                stride,
                ..first.clone()
            });
            rest = &rest[run..];
        } else {
            out.push(first.clone());
            rest = &rest[1..];
        }
    }
    out
}

/// Whether two steps are single blocks of the same size and kind.
fn alike(a: &Step, b: &Step) -> bool {
    let single = |s: &Step| s.is_block() && s.count == 1;
    single(a) && single(b) && a.bytes == b.bytes && a.width == b.width
}

/// How many steps at the beginning are equal blocks at equal distances, and their distance.
fn regular(steps: &[Step]) -> (usize, isize) {
    let [first, second, ..] = steps else {
        return (1, 0);
    };
    if !alike(first, second) {
        return (1, 0);
    }
    let distance = |pair: &[Step]| pair[1].disp.wrapping_sub(pair[0].disp);
    let stride = distance(&steps[..2]);
    let more = steps[1..]
        .windows(2)
        .take_while(|pair| alike(&pair[0], &pair[1]) && distance(pair) == stride)
        .count();
    (2 + more, stride)
}

/// How many steps at the beginning are equal blocks, up to a long run at equal distances.
fn irregular(steps: &[Step]) -> usize {
    let mut found = 0;
    while let Some(step) = steps.get(found).filter(|step| alike(step, &steps[0])) {
        debug_assert!(step.is_block());
        let (run, _) = regular(&steps[found..]);
        if run >= REGULAR_RUN {
            break;
        }
        // The last block of a run may begin the next run.
        found += (run - 1).max(1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LayoutError, Order};

    fn root(layout: &Layout) -> Vec<Step> {
        let program = layout.commit();
        program.body(&program.root).to_vec()
    }

    #[test]
    fn contiguous_data_is_one_block_however_described() -> Result<(), LayoutError> {
        let double = Layout::of::<f64>();
        let rows = Layout::contiguous(4, &Layout::vector(2, 3, 3, &double)?)?;
        let fields = Layout::structure(&[1, 2], &[0, 8], &[double.clone(), double.clone()])?;
        let blocks = Layout::hindexed(&[1, 1, 2], &[0, 8, 16], &double)?;
        for layout in [rows, fields, blocks] {
            let steps = root(&layout);
            assert_eq!(steps.len(), 1, "{steps:?}");
            assert_eq!((steps[0].count, steps[0].bytes), (1, layout.size()));
            assert!(layout.is_contiguous());
        }
        Ok(())
    }

    #[test]
    fn a_vector_and_a_regular_index_are_the_same_step() -> Result<(), LayoutError> {
        let int = Layout::of::<i32>();
        let vector = root(&Layout::vector(5, 2, 7, &int)?);
        let indexed = root(&Layout::indexed_block(2, &[0, 7, 14, 21, 28], &int)?);
        assert_eq!(vector, indexed);
        assert_eq!(
            (vector[0].count, vector[0].stride, vector[0].bytes),
            (5, 28, 8)
        );
        Ok(())
    }

    /// The picture in `docs/datatypes.md`.
    #[test]
    fn a_column_of_structures_is_a_body_and_a_stride() -> Result<(), LayoutError> {
        let fields = [Layout::of::<i32>(), Layout::of::<f64>()];
        let item = Layout::structure(&[1, 1], &[0, 8], &fields)?;
        let column = Layout::subarray(&[3, 4], &[3, 1], &[0, 1], Order::C, &item)?;
        let program = column.commit();
        let block = |start, disp, bytes| Step {
            start,
            disp,
            ..Step::block(bytes, 1)
        };
        let kind = Kind::Body {
            steps: 0..2,
            tile: true,
        };
        let root = Step {
            count: 3,
            stride: 64,
            kind,
            ..Step::block(12, 1)
        };
        assert_eq!(*program.steps, [block(0, 16, 4), block(4, 24, 8), root]);
        assert_eq!(program.root, 2..3);
        Ok(())
    }

    #[test]
    fn an_irregular_index_is_one_step_with_a_list() -> Result<(), LayoutError> {
        let places: Vec<isize> = (0..1000).map(|i| i * i % 1009 * 2).collect();
        let layout = Layout::indexed_block(1, &places, &Layout::of::<f64>())?;
        let steps = root(&layout);
        assert_eq!((steps.len(), steps[0].count, steps[0].bytes), (1, 1000, 8));
        // A long regular part in between has a step of its own.
        let places: Vec<isize> = [0, 3, 4, 9, 20]
            .into_iter()
            .chain((0..50).map(|i| 40 + 3 * i))
            .collect();
        let layout = Layout::indexed_block(1, &places, &Layout::of::<f64>())?;
        let counts: Vec<_> = root(&layout).iter().map(|step| step.count).collect();
        assert_eq!(
            counts.iter().sum::<usize>(),
            54,
            "3 and 4 are one block: {counts:?}"
        );
        assert!(counts.contains(&50) || counts.contains(&51), "{counts:?}");
        Ok(())
    }

    #[test]
    fn nested_strides_that_continue_each_other_are_one() -> Result<(), LayoutError> {
        let column = Layout::vector(4, 1, 10, &Layout::of::<f32>())?;
        let steps = root(&Layout::hvector(3, 1, 160, &column)?);
        assert_eq!((steps[0].count, steps[0].stride, steps.len()), (12, 40, 1));
        Ok(())
    }

    #[test]
    fn large_repetitions_and_shared_parts_stay_small() -> Result<(), LayoutError> {
        let pair = Layout::structure(
            &[1, 1],
            &[0, 8],
            &[Layout::of::<i32>(), Layout::of::<f64>()],
        )?;
        assert!(Layout::contiguous(1 << 40, &pair)?.commit().len() < 8);
        let mut tree = pair;
        for _ in 0..30 {
            tree = Layout::structure(&[1, 1], &[0, tree.extent() + 24], &[tree.clone(), tree])?;
        }
        assert!(tree.commit().len() < 1000, "{}", tree.commit().len());
        Ok(())
    }
}
