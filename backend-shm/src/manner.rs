//! How messages of middle length that travel alone are copied: by words or by the C library.
//!
//! Which is faster depends on how far apart the two processors are. On Zen 5, half a round trip of
//! 4 KiB takes 0.8 of the time by words where a line takes 50 ns from one to the other, and 1.25
//! where it takes 240: the library's `rep movsb` begins slowly, but takes lines for writing without
//! fetching them. The distance changes while a program runs, where a host moves its guests. So a
//! sender times a few of its copies, and copies the rest, and what comes from its peer, in the way
//! that was faster.

use std::time::Duration;

use bytemuck::Zeroable;

/// One copy of so many is timed, and one of [`TRIED`] is done the other way. Reading the clock
/// twice takes as long as copying half a kibibyte.
const TIMED: u8 = 32;
const TRIED: u8 = 128;
/// The most that one measurement counts for, as a multiple of the known cost: a copy may have been
/// interrupted.
const WORST: u16 = 4;

/// What a rank knows of copies for one peer. All zeros know nothing.
#[derive(Clone, Copy, Debug, Default, Zeroable)]
pub(crate) struct Manner {
    /// Picoseconds per byte by words, and by the library; 0 if unknown.
    words: u16,
    library: u16,
    count: u8,
}

/// What to do with the next copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) by_words: bool,
    /// Whether the copy is to be timed, for [`Manner::learn`].
    pub(crate) timed: bool,
}

impl Manner {
    /// Whether copies by words are the faster ones, as far as is known.
    #[inline(always)]
    pub(crate) fn prefers_words(self) -> bool {
        self.words <= self.library || self.library == 0
    }

    /// How to copy the next message.
    #[inline]
    pub(crate) fn next(&mut self) -> Next {
        let by_words = self.prefers_words();
        self.count = self.count.wrapping_add(1);
        let unknown = if by_words { self.words } else { self.library } == 0;
        let untried = self.words == 0 || self.library == 0;
        match self.count {
            _ if unknown => Next {
                by_words,
                timed: true,
            },
            count if untried || count % TRIED == 0 => Next {
                by_words: !by_words,
                timed: true,
            },
            count => Next {
                by_words,
                timed: count % TIMED == 0,
            },
        }
    }

    /// Notes how long a copy took.
    #[cold]
    pub(crate) fn learn(&mut self, by_words: bool, len: usize, took: Duration) {
        let picoseconds = took.as_nanos().saturating_mul(1000);
        let cost = u16::try_from(picoseconds / len.max(1) as u128).unwrap_or(u16::MAX);
        let known = match by_words {
            true => &mut self.words,
            false => &mut self.library,
        };
        *known = match *known {
            0 => cost.max(1),
            old => {
                let cost = cost.min(old.saturating_mul(WORST));
                (old - old / 4 + cost / 4).max(1)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies `messages` messages of 4 KiB, which take so many nanoseconds by words and by the
    /// library. Returns how many went by words.
    fn copy(manner: &mut Manner, messages: u32, words: u64, library: u64) -> u32 {
        let mut by_words = 0;
        for _ in 0..messages {
            let next = manner.next();
            by_words += u32::from(next.by_words);
            if next.timed {
                let took = if next.by_words { words } else { library };
                manner.learn(next.by_words, 4096, Duration::from_nanos(took));
            }
        }
        by_words
    }

    #[test]
    fn the_faster_way_is_found_and_found_again() {
        let mut manner = Manner::default();
        assert!(manner.prefers_words());
        let most = copy(&mut manner, 1000, 100, 150);
        assert!(most > 980, "{most}");
        // The processors are further apart now.
        copy(&mut manner, 1500, 300, 200);
        let few = copy(&mut manner, 1000, 300, 200);
        assert!(few < 20, "{few}");
        copy(&mut manner, 1500, 100, 150);
        assert!(manner.prefers_words());
    }

    #[test]
    fn an_interrupted_copy_changes_little() {
        let mut manner = Manner::default();
        copy(&mut manner, 1000, 100, 200);
        manner.learn(true, 4096, Duration::from_millis(5));
        let most = copy(&mut manner, 1000, 100, 200);
        assert!(most > 900, "{most}");
    }
}
