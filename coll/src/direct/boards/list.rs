//! A list of parts of any length, in a cell or in a longer place.

use crate::direct::boards::board::IN_CELL;
use crate::direct::data::Stream;

/// Bytes of a length field that is wider than one byte.
pub(in crate::direct) const WORD: usize = size_of::<u64>();

/// Parts on a rank's board: first the lengths of all ranks' parts (0 for the board's own rank),
/// then, in order, the parts that lie on the board.
pub(in crate::direct) struct List {
    at: *mut u8,
    size: usize,
    /// Bytes of a length field; parts begin at multiples of this.
    word: usize,
}

const _: () = assert!(IN_CELL <= u8::MAX as usize);

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
        let mut at = self.size * self.word;
        // SAFETY: from the caller, for all of it.
        unsafe {
            self.set_len(own as usize, 0);
            for (rank, part) in parts {
                self.set_len(rank as usize, part.len());
                if part.len() <= longest {
                    part.read(0, self.at.add(at), part.len());
                    at += self.taken(part.len());
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
        // SAFETY: from the caller.
        let before = (0..rank).map(|rank| unsafe { self.len(rank) });
        let before = before.filter(|&len| len <= longest);
        let before = before.map(|len| self.taken(len));
        let at = self.size * self.word + before.sum::<usize>();
        self.at.wrapping_add(at)
    }
}
