//! Running a program over a range of the packed stream.
//!
//! Budget: no allocation, no lock, no system call. A whole step is one call of a kernel; only the
//! first and the last piece of a range are looked for.

use super::kernels::{Absolute, Blocks, Copier, Kernel, Place, Relative};
use super::{Program, Step};

/// Repetitions moved together when a body is a tile: few enough that the lines of memory they
/// touch stay in the first-level cache until the last block of the body has been moved.
const TILE: usize = 128;

/// Which way bytes go between memory and the packed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From memory to the stream.
    Pack,
    /// From the stream to memory.
    Unpack,
}

/// Moves bytes `position..position + len` of the packed stream of `count` items between `memory`
/// and `stream`, and returns how many there were. If `swap`, the program's blocks are reversed
/// number by number.
///
/// # Safety
/// Every byte that the range touches of the `count` items at `memory` is valid for reads (`Pack`)
/// or writes (`Unpack`); `stream` is valid for `len` bytes the other way; the two do not overlap.
/// A null `memory` means that displacements are absolute addresses of exposed provenance.
pub(crate) unsafe fn transfer(
    program: &Program,
    direction: Direction,
    swap: bool,
    memory: *mut u8,
    count: usize,
    position: usize,
    stream: *mut u8,
    len: usize,
) -> usize {
    let total = program.size.saturating_mul(count);
    let len = len.min(total.saturating_sub(position));
    if len == 0 {
        return 0;
    }
    let span = Span {
        program,
        memory,
        count,
        position,
        stream,
        len,
    };
    // SAFETY: passed on from the caller.
    unsafe {
        match (direction, swap) {
            (Direction::Pack, false) => span.run(Copier::<true, false>),
            (Direction::Pack, true) => span.run(Copier::<true, true>),
            (Direction::Unpack, false) => span.run(Copier::<false, false>),
            (Direction::Unpack, true) => span.run(Copier::<false, true>),
        }
    }
    len
}

/// Runs `kernel` over bytes `position..position + len` of the packed stream of `count` items at
/// `memory`, with the bytes at `stream`.
///
/// # Safety
/// As [`transfer`], with memory and stream used as the kernel says. The range lies within the
/// packed stream and is not empty.
pub(crate) unsafe fn run_kernel<K: Kernel>(
    program: &Program,
    kernel: K,
    memory: *mut u8,
    count: usize,
    position: usize,
    stream: *mut u8,
    len: usize,
) {
    let span = Span {
        program,
        memory,
        count,
        position,
        stream,
        len,
    };
    // SAFETY: passed on from the caller.
    unsafe { span.run(kernel) };
}

/// What was asked for, cut to what there is.
struct Span<'a> {
    program: &'a Program,
    memory: *mut u8,
    count: usize,
    position: usize,
    stream: *mut u8,
    len: usize,
}

impl Span<'_> {
    /// The same walk, compiled for each kernel and each kind of displacements.
    ///
    /// # Safety
    /// As [`run_kernel`].
    unsafe fn run<K: Kernel>(self, kernel: K) {
        // SAFETY: from the caller.
        unsafe {
            if self.memory.is_null() {
                self.walk(kernel, Absolute);
            } else {
                let place = Relative(self.memory);
                self.walk(kernel, place);
            }
        }
    }

    /// # Safety
    /// As [`run_kernel`].
    unsafe fn walk<K: Kernel, P: Place>(self, kernel: K, place: P) {
        let (program, stream, left) = (self.program, self.stream, self.len);
        let mut walk = Walk {
            program,
            kernel,
            place,
            stream,
            left,
        };
        // SAFETY: from the caller.
        unsafe {
            match program.body(&program.root) {
                [only] if self.count == 1 => walk.step(only, 0, self.position),
                _ => walk.step(&program.items(self.count), 0, self.position),
            }
        }
        debug_assert_eq!(walk.left, 0);
    }
}

struct Walk<'a, K, P> {
    program: &'a Program,
    kernel: K,
    place: P,
    /// Where the next byte of the stream is.
    stream: *mut u8,
    /// Bytes still to be moved.
    left: usize,
}

// Displacements are added with wrapping arithmetic: those of the bytes that are moved are valid by
// the caller's promise, and others are never turned into accesses.
impl<K: Kernel, P: Place> Walk<'_, K, P> {
    /// Moves a step placed at `base`, from byte `position` of its stream on, until the step or
    /// the range ends.
    ///
    /// # Safety
    /// As [`transfer`]; so for all methods.
    unsafe fn step(&mut self, step: &Step, base: isize, position: usize) {
        let base = base.wrapping_add(step.disp);
        let at = |index: usize| base.wrapping_add((index as isize).wrapping_mul(step.stride));
        let (mut index, inside) = match position {
            0 => (0, 0),
            _ => (position / step.bytes, position % step.bytes),
        };
        // SAFETY: the pieces below are disjoint, in order, and within the range.
        unsafe {
            if inside != 0 {
                self.piece(step, at(index), inside);
                index += 1;
            }
            let rest = step.count - index;
            let whole = if self.left >= rest.saturating_mul(step.bytes) {
                rest
            } else {
                self.left / step.bytes
            };
            if whole > 0 {
                self.whole(step, at(index), whole);
                index += whole;
            }
            if self.left > 0 && index < step.count {
                self.piece(step, at(index), 0);
            }
        }
    }

    /// Moves `count` whole repetitions, the first of them placed at `base`.
    unsafe fn whole(&mut self, step: &Step, base: isize, count: usize) {
        let bytes = count * step.bytes;
        // SAFETY: `bytes` is at most `left`, because the caller counted them.
        unsafe {
            if step.is_block() {
                let blocks = Blocks {
                    disp: base,
                    stride: step.stride,
                    count,
                    bytes: step.bytes,
                };
                self.kernel
                    .blocks(self.place, blocks, self.stream, step.bytes, step.width);
                self.advance(bytes);
            } else if step.tile {
                self.tiles(step, base, count);
            } else {
                for index in 0..count as isize {
                    self.body(step, base.wrapping_add(index.wrapping_mul(step.stride)), 0);
                }
            }
        }
    }

    /// Moves `count` whole repetitions of a body of few blocks: block by block for a whole tile,
    /// which makes one long strided loop of many short ones.
    unsafe fn tiles(&mut self, step: &Step, base: isize, count: usize) {
        let mut done = 0;
        while done < count {
            let now = TILE.min(count - done);
            let base = base.wrapping_add((done as isize).wrapping_mul(step.stride));
            for block in self.program.body(&step.body) {
                for index in 0..block.count {
                    let disp = (index as isize).wrapping_mul(block.stride);
                    let disp = base.wrapping_add(block.disp).wrapping_add(disp);
                    let (stride, bytes) = (step.stride, block.bytes);
                    let blocks = Blocks {
                        disp,
                        stride,
                        count: now,
                        bytes,
                    };
                    // SAFETY: in the stream of one repetition this block begins at
                    // `start + index * bytes`; repetitions are `step.bytes` apart.
                    unsafe {
                        let stream = self.stream.add(block.start + index * bytes);
                        self.kernel
                            .blocks(self.place, blocks, stream, step.bytes, block.width);
                    }
                }
            }
            // SAFETY: the tile was within the range.
            unsafe { self.advance(now * step.bytes) };
            done += now;
        }
    }

    /// Moves part of one repetition, from byte `inside` of its stream on.
    unsafe fn piece(&mut self, step: &Step, base: isize, inside: usize) {
        // SAFETY: the piece ends with the repetition or with the range.
        unsafe {
            if step.is_block() {
                let bytes = self.left.min(step.bytes - inside);
                self.kernel
                    .piece(self.place, base, inside, bytes, self.stream, step.width);
                self.advance(bytes);
            } else {
                self.body(step, base, inside);
            }
        }
    }

    /// Runs the body of a step placed at `base`, from byte `position` of its stream on.
    unsafe fn body(&mut self, step: &Step, base: isize, mut position: usize) {
        let steps = self.program.body(&step.body);
        let first = match position {
            0 => 0,
            _ => steps.partition_point(|s| s.start <= position) - 1,
        };
        position -= steps[first].start;
        for step in &steps[first..] {
            if self.left == 0 {
                return;
            }
            // SAFETY: from the caller.
            unsafe { self.step(step, base, position) };
            position = 0;
        }
    }

    unsafe fn advance(&mut self, bytes: usize) {
        // SAFETY: `bytes` is at most `left`, and the stream has `left` bytes more.
        self.stream = unsafe { self.stream.add(bytes) };
        self.left -= bytes;
    }
}
