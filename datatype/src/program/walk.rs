//! Running a program over a range of the packed stream.
//!
//! Budget: no allocation, no lock, no system call. A whole step is one kernel call; only the first
//! and the last piece of a range need a search.

use super::blocks::{Absolute, Listed, Place, Relative, Strided};
use super::kernels::{Copier, Kernel};
use super::{Kind, Program, Step};

/// Repetitions moved together when a body is a tile: few enough that the cache lines they touch
/// stay in the first-level cache until the last block of the body has been moved.
const TILE: usize = 128;

/// The direction in which bytes are moved between memory and the packed stream.
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

/// The range to move, cut to the bytes that exist.
struct Span<'a> {
    program: &'a Program,
    memory: *mut u8,
    count: usize,
    position: usize,
    stream: *mut u8,
    len: usize,
}

impl Span<'_> {
    /// The walk, compiled separately for each kernel and each kind of displacements.
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

// Displacements are added with wrapping arithmetic. Those of the bytes that are moved are valid by
// the caller's promise; others are never dereferenced.
impl<K: Kernel, P: Place> Walk<'_, K, P> {
    /// Moves a step placed at `base`, from byte `position` of its stream on, until the step or
    /// the range ends.
    ///
    /// # Safety
    /// As [`transfer`]. The same goes for all methods.
    unsafe fn step(&mut self, step: &Step, base: isize, position: usize) {
        let base = base.wrapping_add(step.disp);
        let (mut index, inside) = match position {
            0 => (0, 0),
            _ => (position / step.bytes, position % step.bytes),
        };
        // SAFETY: the pieces below are disjoint, in order, and within the range.
        unsafe {
            if inside != 0 {
                self.piece(step, base, index, inside);
                index += 1;
            }
            let rest = step.count - index;
            let whole = if self.left >= rest.saturating_mul(step.bytes) {
                rest
            } else {
                self.left / step.bytes
            };
            if whole > 0 {
                self.whole(step, base, index, whole);
                index += whole;
            }
            if self.left > 0 && index < step.count {
                self.piece(step, base, index, 0);
            }
        }
    }

    /// Moves `count` whole repetitions of a step, beginning with repetition `first`; repetition 0
    /// lies at `base`.
    unsafe fn whole(&mut self, step: &Step, base: isize, first: usize, count: usize) {
        let (program, stride, bytes) = (self.program, step.stride, step.bytes);
        let disp = strided(base, first, stride);
        // SAFETY: the repetitions' bytes are at most `left`, because the caller counted them.
        unsafe {
            match &step.kind {
                Kind::Block => {
                    let blocks = Strided {
                        disp,
                        stride,
                        count,
                        bytes,
                    };
                    self.kernel
                        .blocks(self.place, blocks, self.stream, bytes, step.width);
                    self.advance(count * bytes);
                }
                Kind::Listed(range) => {
                    let list = &program.list(range)[first..first + count];
                    let blocks = Listed { base, list, bytes };
                    self.kernel
                        .blocks(self.place, blocks, self.stream, bytes, step.width);
                    self.advance(count * bytes);
                }
                Kind::Body { steps, tile: true } => {
                    self.tiles(program.body(steps), disp, stride, count, bytes);
                }
                Kind::Body { steps, tile: false } => {
                    for index in 0..count {
                        self.body(program.body(steps), strided(disp, index, stride), 0);
                    }
                }
            }
        }
    }

    /// Moves `count` whole repetitions of a body of few blocks. It moves each block for a whole
    /// tile, which replaces many short loops by one long strided loop.
    unsafe fn tiles(
        &mut self,
        body: &[Step],
        base: isize,
        stride: isize,
        count: usize,
        apart: usize,
    ) {
        let mut done = 0;
        while done < count {
            let now = TILE.min(count - done);
            let base = strided(base, done, stride);
            for step in body {
                for index in 0..step.count {
                    let disp = strided(base.wrapping_add(step.disp), index, step.stride);
                    let blocks = Strided {
                        disp,
                        stride,
                        count: now,
                        bytes: step.bytes,
                    };
                    // SAFETY: in the stream of one repetition this block begins at
                    // `start + index * bytes`; repetitions are `apart` bytes apart.
                    unsafe {
                        let stream = self.stream.add(step.start + index * step.bytes);
                        self.kernel
                            .blocks(self.place, blocks, stream, apart, step.width);
                    }
                }
            }
            // SAFETY: the tile was within the range.
            unsafe { self.advance(now * apart) };
            done += now;
        }
    }

    /// Moves part of repetition `index` of a step whose repetition 0 lies at `base`, from byte
    /// `inside` of the repetition's stream on.
    unsafe fn piece(&mut self, step: &Step, base: isize, index: usize, inside: usize) {
        let program = self.program;
        let disp = match &step.kind {
            Kind::Listed(range) => base.wrapping_add(program.list(range)[index]),
            Kind::Block | Kind::Body { .. } => strided(base, index, step.stride),
        };
        // SAFETY: the piece ends with the repetition or with the range.
        unsafe {
            if let Kind::Body { steps, .. } = &step.kind {
                self.body(program.body(steps), disp, inside);
                return;
            }
            let bytes = self.left.min(step.bytes - inside);
            self.kernel
                .piece(self.place, disp, inside, bytes, self.stream, step.width);
            self.advance(bytes);
        }
    }

    /// Runs a body placed at `base`, from byte `position` of its stream on.
    unsafe fn body(&mut self, steps: &[Step], base: isize, mut position: usize) {
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

/// Where repetition `index` lies.
#[inline(always)]
fn strided(base: isize, index: usize, stride: isize) -> isize {
    base.wrapping_add((index as isize).wrapping_mul(stride))
}
