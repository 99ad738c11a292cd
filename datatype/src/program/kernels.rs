//! The loops that take nearly all of the time: blocks of bytes at strides, copied or reversed.

use super::blocks::{Blocks, Place, Strided};

/// An operation on the blocks of a program.
pub(crate) trait Kernel: Copy {
    /// Processes blocks that lie `apart` bytes apart in the stream.
    ///
    /// # Safety
    /// All blocks are valid in memory, and their places in the stream, for what the kernel does
    /// to either; the two do not overlap. A block's size is a multiple of `width`.
    unsafe fn blocks<P: Place, B: Blocks>(
        self,
        place: P,
        blocks: B,
        stream: *mut u8,
        apart: usize,
        width: usize,
    );

    /// Processes bytes `inside..inside + bytes` of the stream of one block at `disp`.
    ///
    /// # Safety
    /// As [`copy_blocks`](Self::blocks), for these bytes.
    unsafe fn piece<P: Place>(
        self,
        place: P,
        disp: isize,
        inside: usize,
        bytes: usize,
        stream: *mut u8,
        width: usize,
    );
}

/// Copies from memory to the stream if `PACK`, else back; reverses each number if `SWAP`.
#[derive(Clone, Copy)]
pub(super) struct Copier<const PACK: bool, const SWAP: bool>;

impl<const PACK: bool, const SWAP: bool> Kernel for Copier<PACK, SWAP> {
    unsafe fn blocks<P: Place, B: Blocks>(
        self,
        place: P,
        blocks: B,
        stream: *mut u8,
        apart: usize,
        width: usize,
    ) {
        // SAFETY: from the caller.
        unsafe { copy_blocks::<P, B, PACK, SWAP>(place, blocks, stream, apart, width) }
    }

    unsafe fn piece<P: Place>(
        self,
        place: P,
        disp: isize,
        inside: usize,
        bytes: usize,
        stream: *mut u8,
        width: usize,
    ) {
        // SAFETY: from the caller.
        unsafe { copy_piece::<P, PACK, SWAP>(place, disp, inside, bytes, stream, width) }
    }
}

/// Combines elements of the stream into elements in memory. It handles whole elements only; ranges
/// that split one have been refused before.
#[derive(Clone, Copy)]
pub(crate) struct Reducer {
    /// Combines that many elements: `(input, inout, elements)`, at any alignment.
    pub(crate) combine: unsafe fn(*const u8, *mut u8, usize),
    /// Size of an element in bytes.
    pub(crate) element: usize,
}

impl Kernel for Reducer {
    unsafe fn blocks<P: Place, B: Blocks>(
        self,
        place: P,
        blocks: B,
        stream: *mut u8,
        apart: usize,
        _: usize,
    ) {
        let elements = blocks.bytes() / self.element;
        blocks.each(apart, |disp, offset| {
            // SAFETY: from the caller.
            unsafe { (self.combine)(stream.wrapping_add(offset), place.at(disp), elements) };
        });
    }

    unsafe fn piece<P: Place>(
        self,
        place: P,
        disp: isize,
        inside: usize,
        bytes: usize,
        stream: *mut u8,
        _: usize,
    ) {
        let memory = place.at(disp.wrapping_add(inside as isize));
        // SAFETY: from the caller.
        unsafe { (self.combine)(stream, memory, bytes / self.element) };
    }
}

/// Moves blocks between memory and the stream, where they are `apart` bytes apart.
///
/// # Safety
/// All blocks are valid for reads if `PACK`, else for writes, and their places in the stream for
/// the opposite; the two do not overlap. If `SWAP`, a block's size is a multiple of `width`.
unsafe fn copy_blocks<P: Place, B: Blocks, const PACK: bool, const SWAP: bool>(
    place: P,
    blocks: B,
    stream: *mut u8,
    apart: usize,
    width: usize,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        if SWAP && width > 1 {
            match width {
                2 => swap_all::<P, B, u16, PACK>(place, blocks, stream, apart),
                4 => swap_all::<P, B, u32, PACK>(place, blocks, stream, apart),
                8 => swap_all::<P, B, u64, PACK>(place, blocks, stream, apart),
                16 => swap_all::<P, B, u128, PACK>(place, blocks, stream, apart),
                _ => unreachable!("numbers are 1, 2, 4, 8 or 16 bytes wide, not {width}"),
            }
            return;
        }
        if let Some(disp) = blocks.only() {
            copy::<PACK>(place.at(disp), stream, blocks.bytes());
            return;
        }
        match blocks.bytes() {
            1 => copy_all::<P, B, 1, PACK>(place, blocks, stream, apart),
            2 => copy_all::<P, B, 2, PACK>(place, blocks, stream, apart),
            4 => copy_all::<P, B, 4, PACK>(place, blocks, stream, apart),
            8 => copy_all::<P, B, 8, PACK>(place, blocks, stream, apart),
            12 => copy_all::<P, B, 12, PACK>(place, blocks, stream, apart),
            16 => copy_all::<P, B, 16, PACK>(place, blocks, stream, apart),
            24 => copy_all::<P, B, 24, PACK>(place, blocks, stream, apart),
            32 => copy_all::<P, B, 32, PACK>(place, blocks, stream, apart),
            64 => copy_all::<P, B, 64, PACK>(place, blocks, stream, apart),
            3 => copy_ends::<P, B, 2, PACK>(place, blocks, stream, apart),
            5..8 => copy_ends::<P, B, 4, PACK>(place, blocks, stream, apart),
            9..16 => copy_ends::<P, B, 8, PACK>(place, blocks, stream, apart),
            17..32 => copy_ends::<P, B, 16, PACK>(place, blocks, stream, apart),
            33..64 => copy_ends::<P, B, 32, PACK>(place, blocks, stream, apart),
            bytes => copy_any::<P, B, PACK>(place, blocks, stream, apart, bytes),
        }
    }
}

/// # Safety
/// As [`copy_blocks`], for blocks of `N` bytes.
unsafe fn copy_all<P: Place, B: Blocks, const N: usize, const PACK: bool>(
    place: P,
    blocks: B,
    stream: *mut u8,
    apart: usize,
) {
    blocks.each(apart, |disp, offset| {
        // SAFETY: from the caller.
        unsafe { copy::<PACK>(place.at(disp), stream.wrapping_add(offset), N) };
    });
}

/// Blocks of `N` to `2 N` bytes: copies the first and the last `N` bytes of each, which may
/// overlap. Two copies of a size that the compiler knows cost less than one call with a size that
/// it does not.
///
/// # Safety
/// As [`copy_blocks`], for blocks of `N` to `2 N` bytes.
unsafe fn copy_ends<P: Place, B: Blocks, const N: usize, const PACK: bool>(
    place: P,
    blocks: B,
    stream: *mut u8,
    apart: usize,
) {
    let last = blocks.bytes() - N;
    blocks.each(apart, |disp, offset| {
        // SAFETY: from the caller; both ends lie within the block.
        unsafe {
            let end = place.at(disp.wrapping_add(last as isize));
            copy::<PACK>(place.at(disp), stream.wrapping_add(offset), N);
            copy::<PACK>(end, stream.wrapping_add(offset + last), N);
        }
    });
}

/// # Safety
/// As [`copy_blocks`].
unsafe fn copy_any<P: Place, B: Blocks, const PACK: bool>(
    place: P,
    blocks: B,
    stream: *mut u8,
    apart: usize,
    bytes: usize,
) {
    blocks.each(apart, |disp, offset| {
        // SAFETY: from the caller.
        unsafe { copy::<PACK>(place.at(disp), stream.wrapping_add(offset), bytes) };
    });
}

/// # Safety
/// Both are valid for `bytes` bytes and do not overlap.
#[inline(always)]
unsafe fn copy<const PACK: bool>(memory: *mut u8, stream: *mut u8, bytes: usize) {
    // SAFETY: from the caller.
    unsafe {
        if PACK {
            crate::bytes::copy(memory, stream, bytes);
        } else {
            crate::bytes::copy(stream, memory, bytes);
        }
    }
}

/// A number whose bytes can be reversed.
trait Number: Copy {
    fn reversed(self) -> Self;
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn reversed(self) -> $t {
                self.swap_bytes()
            }
        }
    )*};
}
numbers!(u16, u32, u64, u128);

/// # Safety
/// As [`copy_blocks`], for numbers of type `T`.
unsafe fn swap_all<P: Place, B: Blocks, T: Number, const PACK: bool>(
    place: P,
    blocks: B,
    stream: *mut u8,
    apart: usize,
) {
    let numbers = blocks.bytes() / size_of::<T>();
    // Blocks of a single number are frequent enough for a loop without an inner loop.
    if numbers == 1 {
        blocks.each(apart, |disp, offset| {
            // SAFETY: from the caller.
            unsafe { swap_run::<T, PACK>(place.at(disp), stream.wrapping_add(offset), 1) };
        });
        return;
    }
    blocks.each(apart, |disp, offset| {
        // SAFETY: from the caller.
        unsafe { swap_run::<T, PACK>(place.at(disp), stream.wrapping_add(offset), numbers) };
    });
}

/// # Safety
/// Both are valid for `count` numbers, at any alignment, and do not overlap.
#[inline(always)]
unsafe fn swap_run<T: Number, const PACK: bool>(memory: *mut u8, stream: *mut u8, count: usize) {
    let (from, to) = if PACK {
        (memory, stream)
    } else {
        (stream, memory)
    };
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for index in 0..count {
        // SAFETY: from the caller.
        unsafe {
            to.add(index)
                .write_unaligned(from.add(index).read_unaligned().reversed());
        };
    }
}

/// Moves bytes `inside..inside + bytes` of the stream of one block at `disp`.
///
/// # Safety
/// As [`copy_blocks`], for the bytes moved.
unsafe fn copy_piece<P: Place, const PACK: bool, const SWAP: bool>(
    place: P,
    disp: isize,
    inside: usize,
    bytes: usize,
    stream: *mut u8,
    width: usize,
) {
    let byte = |index: usize| place.at(disp.wrapping_add(index as isize));
    // SAFETY: from the caller; the three ranges below make up the piece, and within a number
    // reversing permutes bytes.
    unsafe {
        if !SWAP || width == 1 {
            copy::<PACK>(byte(inside), stream, bytes);
            return;
        }
        let end = inside + bytes;
        let first_whole = inside.next_multiple_of(width).min(end);
        let last_whole = (end - end % width).max(first_whole);
        let mirrored = |index: usize| index - index % width + (width - 1 - index % width);
        for index in (inside..first_whole).chain(last_whole..end) {
            copy::<PACK>(
                byte(mirrored(index)),
                stream.wrapping_add(index - inside),
                1,
            );
        }
        if first_whole < last_whole {
            let (disp, bytes) = (
                disp.wrapping_add(first_whole as isize),
                last_whole - first_whole,
            );
            let run = Strided {
                disp,
                stride: 0,
                count: 1,
                bytes,
            };
            let stream = stream.wrapping_add(first_whole - inside);
            copy_blocks::<P, Strided, PACK, true>(place, run, stream, bytes, width);
        }
    }
}
