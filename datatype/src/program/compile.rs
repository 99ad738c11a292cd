//! From the tree of constructors to the flat program.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::{Program, Step};
use crate::Layout;
use crate::layout::{Contents, Part};

/// Bodies of at most this many steps are copied into each place where they occur, so that blocks
/// can merge across their ends; longer ones are shared. It bounds the size of a program by a
/// multiple of the arguments it was made from.
const INLINE_STEPS: usize = 8;

/// Blocks in a body that are moved tile by tile, see [`Step::tile`].
const TILE_BLOCKS: usize = 16;

impl Program {
    /// Compiles a layout. If `by_width`, blocks are merged only with blocks of numbers of the
    /// same width, so that each can have its bytes reversed.
    pub(crate) fn compile(layout: &Layout, by_width: bool) -> Program {
        let mut compiler = Compiler {
            by_width,
            steps: Vec::new(),
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
    /// Bodies of the layouts met so far: a layout used in many places is compiled once.
    bodies: HashMap<usize, Rc<Body>>,
}

/// The steps of one item.
struct Body {
    steps: Vec<Step>,
    /// Where they are in the program, once something needed them there.
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
            steps: fold(out),
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
                    let body = self.publish(&steps);
                    let tile = is_tile(&steps);
                    Step {
                        count,
                        stride,
                        body,
                        tile,
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
        Step {
            body: range,
            tile: is_tile(&body.steps),
            ..Step::block(bytes, 1)
        }
    }

    fn publish(&mut self, body: &[Step]) -> Range<u32> {
        let index = |i: usize| u32::try_from(i).expect("a layout of 2^32 blocks needs 300 GiB");
        let first = index(self.steps.len());
        self.steps.extend_from_slice(body);
        first..index(self.steps.len())
    }
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

/// Appends a step at a displacement, as part of the last one if it continues that.
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

/// Turns three or more equal blocks at equal distances into one step.
fn fold(steps: Vec<Step>) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    let mut rest = &*steps;
    while let [first, ..] = rest {
        let (run, stride) = regular(rest);
        if run >= 3 {
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

/// How many steps from the first on are equal single blocks at equal distances.
fn regular(steps: &[Step]) -> (usize, isize) {
    let [first, second, ..] = steps else {
        return (1, 0);
    };
    let same =
        |s: &Step| s.is_block() && s.count == 1 && s.bytes == first.bytes && s.width == first.width;
    let stride = second.disp.wrapping_sub(first.disp);
    if !same(first) || !same(second) {
        return (1, 0);
    }
    let more = steps
        .windows(2)
        .skip(1)
        .take_while(|w| same(&w[1]) && w[1].disp.wrapping_sub(w[0].disp) == stride)
        .count();
    (2 + more, stride)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LayoutError;

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
