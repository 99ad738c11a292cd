//! Messages of middle length: announced, or sent without asking, in pieces?
//!
//! A message that the receiver reads where it is, in one copy, is there sooner than one that both copy; if
//! reading it costs little more than a copy. That is so on one machine and not on the next, and the receiver
//! finds out ([`super::ways`]). What it finds the sender sees: a receiver that takes announced messages as
//! streams, one after the other, has found that reading is the worse way, and then there is no point in
//! asking it first: they are sent eagerly, or in [`super::pieces`].

use std::collections::BTreeMap;

/// Announced messages in a row that were taken as streams until the next ones go unasked: more than a
/// receiver takes that way only to try it.
const STREAMED: u32 = 40;
/// Messages that go unasked until some are announced again, because things change.
const UNASKED: u32 = 4096;
/// Lengths that are told apart: up to the eager limit, and up to twice, four and eight times that.
pub(super) const CLASSES: usize = 4;

/// What was seen of receivers of such messages.
#[derive(Debug, Default)]
pub(super) struct Unasked {
    peers: BTreeMap<u32, [Seen; CLASSES]>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Streams in a row.
    streamed: u32,
    /// Messages that still go unasked.
    unasked: u32,
}

impl Unasked {
    /// Whether the next message of this class to `peer` goes unasked.
    pub(super) fn next(&mut self, peer: u32, class: usize) -> bool {
        let Some(seen) = self.peers.get_mut(&peer) else {
            return false;
        };
        let seen = &mut seen[class];
        let unasked = seen.unasked > 0;
        seen.unasked = seen.unasked.saturating_sub(1);
        unasked
    }

    /// `peer` has taken an announced message, as a stream or by reading it.
    pub(super) fn taken(&mut self, peer: u32, class: usize, as_stream: bool) {
        if !as_stream {
            if let Some(seen) = self.peers.get_mut(&peer) {
                seen[class].streamed = 0;
            }
            return;
        }
        let seen = &mut self.peers.entry(peer).or_default()[class];
        seen.streamed += 1;
        if seen.streamed >= STREAMED {
            *seen = Seen {
                streamed: 0,
                unasked: UNASKED,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_streamed_goes_unasked_after_a_while_and_not_for_ever() {
        let mut known = Unasked::default();
        for _ in 0..STREAMED {
            assert!(!known.next(3, 1));
            known.taken(3, 1, true);
        }
        let unasked = (0..2 * UNASKED).filter(|_| known.next(3, 1)).count();
        assert_eq!(unasked, UNASKED as usize);
    }

    #[test]
    fn that_says_nothing_of_others() {
        let mut known = Unasked::default();
        for _ in 0..STREAMED {
            known.taken(3, 1, true);
        }
        assert!(!known.next(4, 1), "of another receiver");
        assert!(!known.next(3, 2), "of longer messages");
        assert!(known.next(3, 1));
    }

    #[test]
    fn what_is_read_now_and_then_is_announced() {
        let mut known = Unasked::default();
        for turn in 0..10 * STREAMED {
            assert!(!known.next(0, 0));
            known.taken(0, 0, turn % (STREAMED - 1) != 0);
        }
    }
}
