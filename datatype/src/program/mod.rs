//! The flat form of a layout, which packing and unpacking execute.
//!
//! A program is one array of steps. A step without a body moves blocks of bytes at a stride; a step
//! with a body runs a range of other steps at a stride. Within a body, steps are in the order of
//! the packed stream, and each knows where in the stream it starts. So any byte is found by one
//! binary search per level. Adjacent blocks are merged. Equal blocks become one step, with a stride
//! if their distances are equal and else with a list of displacements. Nested strides that continue
//! each other become one stride. Contiguous data, however it was described, is therefore a single
//! step with a single block.

mod blocks;
mod compile;
mod kernels;
mod walk;

use std::ops::Range;

pub(crate) use kernels::Reducer;
pub(crate) use walk::{Direction, run_kernel, transfer};

/// The flat form of one item of a [`Layout`](crate::Layout), made by
/// [`Layout::commit`](crate::Layout::commit).
#[derive(Debug)]
pub struct Program {
    steps: Box<[Step]>,
    /// Displacements of the blocks of steps with a list.
    lists: Box<[isize]>,
    root: Range<u32>,
    size: usize,
    extent: isize,
    contiguous: bool,
}

/// One instruction: moves `count` times `bytes` bytes of the packed stream, `stride` bytes apart in
/// memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The first byte in the packed stream, relative to the start of the enclosing body.
    pub(crate) start: usize,
    /// Displacement of the first block, relative to the place of the enclosing body.
    pub(crate) disp: isize,
    pub(crate) count: usize,
    pub(crate) stride: isize,
    /// Bytes of the packed stream in one repetition.
    pub(crate) bytes: usize,
    /// Width of the numbers in a block; 1 if it does not matter.
    pub(crate) width: usize,
    pub(crate) kind: Kind,
}

/// What one repetition of a step is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A block of bytes.
    Block,
    /// A block of bytes per repetition, each at a displacement of its own (the stride is not used).
    /// The range selects the displacements in the program's lists.
    Listed(Range<u32>),
    /// A body of other steps.
    Body {
        steps: Range<u32>,
        /// Whether the body has only a few blocks. It is then faster to move each block for many
        /// repetitions at a time.
        tile: bool,
    },
}

impl Step {
    fn block(bytes: usize, width: usize) -> Step {
        let (start, disp, count, stride) = (0, 0, 1, 0);
        Step {
            start,
            disp,
            count,
            stride,
            bytes,
            width,
            kind: Kind::Block,
        }
    }

    fn is_block(&self) -> bool {
        matches!(self.kind, Kind::Block)
    }

    /// Bytes of the packed stream in all repetitions.
    fn total(&self) -> usize {
        self.bytes.saturating_mul(self.count)
    }

    /// This step repeated `count` times, `stride` apart, if that is again one step without a new
    /// body.
    fn repeated(&self, count: usize, stride: isize) -> Option<Step> {
        let mut step = self.clone();
        if count == 1 {
            return Some(step);
        }
        if self.count == 1 {
            if self.is_block() && stride == self.bytes as isize {
                step.bytes = self.bytes.checked_mul(count)?;
            } else {
                (step.count, step.stride) = (count, stride);
            }
            return Some(step);
        }
        if matches!(self.kind, Kind::Listed(_)) {
            return None;
        }
        let span = isize::try_from(self.count).ok()?.checked_mul(self.stride)?;
        if stride != span {
            return None;
        }
        step.count = self.count.checked_mul(count)?;
        Some(step)
    }
}

impl Program {
    /// Whether items that are one extent apart form one run of bytes from displacement 0 on.
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Number of steps, bodies included: a measure of the program's size, not of its work.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there is nothing to move.
    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// Bytes of memory that the program occupies.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.steps) + size_of_val(&*self.lists)
    }

    fn body(&self, range: &Range<u32>) -> &[Step] {
        &self.steps[range.start as usize..range.end as usize]
    }

    fn list(&self, range: &Range<u32>) -> &[isize] {
        &self.lists[range.start as usize..range.end as usize]
    }

    /// The step that moves `count` items that are one extent apart.
    fn items(&self, count: usize) -> Step {
        if let [only] = self.body(&self.root)
            && let Some(step) = only.repeated(count, self.extent)
        {
            return step;
        }
        let steps = self.root.clone();
        let tile = compile::is_tile(self.body(&steps));
        Step {
            count,
            stride: self.extent,
            kind: Kind::Body { steps, tile },
            ..Step::block(self.size, 1)
        }
    }
}
