//! Memory for an operation's own data, kept from one operation for the next: fresh memory costs a
//! page fault per page.
//!
//! Short memory stays with its communicator, where the next call finds it at once. Long memory
//! belongs to the rank, so that what is kept does not grow with the number of communicators.

use std::mem::take;
use std::sync::Mutex;

use portolan_core::{Error, ErrorKind, Result};

use crate::state::lock;

/// Longest memory that stays where it was used, in bytes.
const SHORT: usize = 16 << 10;
/// The most bytes that one operation's memory may have to be kept, and all that is kept together.
const LONGEST: usize = 8 << 20;
const TOGETHER: usize = 2 * LONGEST;

/// Initialised memory, aligned as [`crate::schedule::Builder`] requires.
#[derive(Default)]
pub(crate) struct Scratch(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

const _: () = assert!(align_of::<Line>() == crate::schedule::ALIGN);

impl Scratch {
    /// At least `len` bytes, with unspecified contents.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no memory.
    pub(crate) fn at_least(&mut self, len: usize) -> Result<*mut u8> {
        let lines = len.div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            // The old contents need not be copied.
            self.0 = Vec::new();
            let room = self.0.try_reserve_exact(lines);
            room.map_err(|_| no_memory(len))?;
            self.0.resize(lines, Line([0; 64]));
        }
        Ok(self.0.as_mut_ptr().cast())
    }

    fn len(&self) -> usize {
        self.0.len() * size_of::<Line>()
    }
}

#[cold]
fn no_memory(len: usize) -> Error {
    let what = format!("there is no memory for {len} bytes of a collective operation's own");
    Error::new(ErrorKind::Exhausted, what).remedy("take a vector in parts, or with fewer ranks")
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scratch({} bytes)", self.len())
    }
}

/// Long memory of a rank that no operation uses, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Scratches(Mutex<Vec<Scratch>>);

impl Scratches {
    /// Replaces memory that is too short for `len` bytes by some that is kept here and long enough,
    /// if there is any.
    #[inline]
    pub(crate) fn lend(&self, scratch: &mut Scratch, len: usize) {
        if len > SHORT && scratch.len() < len {
            self.lend_long(scratch, len);
        }
    }

    #[cold]
    fn lend_long(&self, scratch: &mut Scratch, len: usize) {
        let mut kept = lock(&self.0);
        let fits = |(_, kept): &(usize, &Scratch)| kept.len() >= len;
        let fit = kept.iter().enumerate().filter(fits);
        if let Some((index, _)) = fit.min_by_key(|(_, kept)| kept.len()) {
            *scratch = kept.remove(index);
        }
    }

    /// Takes long memory, for [`lend`](Self::lend), in place of what was kept longest.
    #[inline]
    pub(crate) fn keep(&self, scratch: &mut Scratch) {
        if scratch.len() > SHORT {
            self.keep_long(take(scratch));
        }
    }

    #[cold]
    fn keep_long(&self, scratch: Scratch) {
        if scratch.len() > LONGEST {
            return;
        }
        let mut kept = lock(&self.0);
        kept.push(scratch);
        let mut all = kept.iter().map(Scratch::len).sum::<usize>();
        while all > TOGETHER {
            all -= kept.remove(0).len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: usize) -> Scratch {
        let mut scratch = Scratch::default();
        scratch.at_least(len).unwrap();
        scratch
    }

    fn lens(scratches: &Scratches) -> Vec<usize> {
        lock(&scratches.0).iter().map(Scratch::len).collect()
    }

    #[test]
    fn short_memory_stays_and_long_memory_is_lent_where_it_fits() {
        let scratches = Scratches::default();
        let mut short = of(SHORT);
        scratches.keep(&mut short);
        assert_eq!(short.len(), SHORT);
        for len in [64 << 10, 20 << 10, 32 << 10] {
            let mut long = of(len);
            scratches.keep(&mut long);
            assert_eq!(long.len(), 0, "{len}");
        }
        scratches.lend(&mut short, SHORT);
        assert_eq!(short.len(), SHORT, "it is long enough");
        scratches.lend(&mut short, 24 << 10);
        assert_eq!(short.len(), 32 << 10, "the shortest that is long enough");
        scratches.lend(&mut short, 1 << 20);
        assert_eq!(short.len(), 32 << 10, "there is nothing longer");
        assert_eq!(lens(&scratches), [64 << 10, 20 << 10]);
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let scratches = Scratches::default();
        scratches.keep(&mut of(LONGEST + 1));
        assert!(lens(&scratches).is_empty());
        scratches.keep(&mut of(20 << 10));
        for _ in 0..9 {
            scratches.keep(&mut of(LONGEST));
        }
        assert_eq!(lens(&scratches), [LONGEST; 2]);
        scratches.keep(&mut of(1 << 20));
        assert_eq!(lens(&scratches), [LONGEST, 1 << 20]);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let mut scratch = Scratch::default();
        assert!(!scratch.at_least(100).unwrap().is_null());
        for len in [1 << 62, usize::MAX] {
            let error = scratch.at_least(len).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        }
        scratch.at_least(100).unwrap();
        assert_eq!(scratch.len(), 128);
    }
}
