//! A list of parts of any length, in a cell or in a longer place.

use crate::direct::boards::board::{IN_CELL, LINE};
use crate::direct::data::Stream;

/// Bytes of a length field that is wider than one byte.
pub(in crate::direct) const WORD: usize = size_of::<u64>();

/// Blocks of so many bytes and more begin at a cache line. Copies to and from an address that is a
/// word behind one take up to 2.4 times as long (an alltoallv of 64 KiB of four ranks on two
/// cores).
const ALIGNED: usize = 256;

/// Where a block of `len` bytes begins: at `at`, or up to [`before`] bytes behind it.
#[inline]
pub(in crate::direct) fn begin(at: *mut u8, len: usize) -> *mut u8 {
    match before(len) {
        0 => at,
        _ => at.wrapping_add(at.align_offset(LINE)),
    }
}

/// The most bytes that stay free before a block of `len` bytes, behind a multiple of a word.
#[inline]
pub(in crate::direct) const fn before(len: usize) -> usize {
    if len < ALIGNED { 0 } else { LINE - WORD }
}

/// Parts on a rank's board: first the lengths of all ranks' parts (0 for the board's own rank),
/// then, in order, the parts that lie on the board.
pub(in crate::direct) struct List {
    at: *mut u8,
    size: usize,
    /// Bytes of a length field; parts begin at multiples of this.
    word: usize,
}

const _: () = assert!(IN_CELL <= u8::MAX as usize && IN_CELL < ALIGNED);

impl List {
    /// A list with lengths of one byte, in a cell.
    #[inline]
    pub(in crate::direct) fn in_cell(at: *mut u8, size: u32) -> Self {
        let (size, word) = (size as usize, 1);
        Self { at, size, word }
    }

    #[inline]
    pub(in crate::direct) fn in_words(at: *mut u8, size: u32) -> Self {
        let (size, word) = (size as usize, WORD);
        Self { at, size, word }
    }

    /// Writes the parts for the other ranks: the lengths of all parts, then the parts of at most
    /// `longest` bytes.
    ///
    /// # Safety
    /// The place has room for this and is free. The parts are readable, and no longer than a length
    /// field can express.
    #[inline]
    pub(in crate::direct) unsafe fn write<'a>(
        &self,
        own: u32,
        parts: impl Iterator<Item = (u32, Stream<'a>)>,
        longest: usize,
    ) {
        // SAFETY: from the caller, for all of it.
        unsafe {
            let mut at = self.at.add(self.size * self.word);
            self.set_len(own as usize, 0);
            for (rank, part) in parts {
                self.set_len(rank as usize, part.len());
                if part.len() <= longest {
                    let to = begin(at, part.len());
                    part.read(0, to, part.len());
                    at = to.add(self.taken(part.len()));
                }
            }
        }
    }

    /// Bytes that a part of `len` bytes takes.
    #[inline]
    fn taken(&self, len: usize) -> usize {
        match self.word {
            1 => len,
            _ => len.next_multiple_of(WORD),
        }
    }

    /// # Safety
    /// The place is this rank's and free.
    #[inline]
    unsafe fn set_len(&self, rank: usize, len: usize) {
        // SAFETY: from the caller.
        unsafe {
            match self.word {
                1 => self.at.add(rank).write(len as u8),
                _ => self.at.cast::<u64>().add(rank).write(len as u64),
            }
        }
    }

    /// Bytes of a rank's part.
    ///
    /// # Safety
    /// The list has been posted.
    #[inline]
    pub(in crate::direct) unsafe fn len(&self, rank: usize) -> usize {
        // SAFETY: from the caller.
        unsafe {
            match self.word {
                1 => self.at.add(rank).read().into(),
                _ => self.at.cast::<u64>().add(rank).read() as usize,
            }
        }
    }

    /// The address of a rank's part, which has at most `longest` bytes.
    ///
    /// # Safety
    /// As [`len`](Self::len).
    #[inline]
    pub(in crate::direct) unsafe fn part(&self, rank: usize, longest: usize) -> *mut u8 {
        let mut at = self.at.wrapping_add(self.size * self.word);
        for before in 0..rank {
            // SAFETY: from the caller.
            let len = unsafe { self.len(before) };
            if len > 0 && len <= longest {
                at = begin(at, len).wrapping_add(self.taken(len));
            }
        }
        // SAFETY: from the caller.
        begin(at, unsafe { self.len(rank) })
    }
}
