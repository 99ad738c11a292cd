//! Messages of middle length: announced, or sent without asking, in pieces?
//!
//! A message that the receiver reads where it is, in one copy, is there sooner than one that both
//! copy; if reading it costs little more than a copy. That is so on one machine and not on the
//! next, and the receiver finds out ([`crate::engine::long::ways`]). What it finds the sender sees:
//! a receiver that takes announced messages as streams, one after the other, has found that reading
//! is the worse way, and then there is no point in asking it first: they are sent eagerly, or in
//! [`crate::engine::long::pieces`].
//!
//! Messages that no call waits for are known apart, and go unasked in windows only: one way up to
//! the longest (ADR 29), both ways up to half of that (ADR 31).

use std::collections::BTreeMap;

/// Announced messages in a row that were taken as streams until the next ones go unasked: more than
/// a receiver takes that way only to try it.
const STREAMED: u32 = 40;
/// So many streams a message counts for that was read, of a sender that does not wait for it: now
/// and then the receiver finds such a sender absent, or tries another way.
const READ: u32 = 8;
/// Messages that go unasked until some are announced again, because things change.
const UNASKED: u32 = 4096;
/// Sends one after the other, without a look at what comes, that make a window. Whoever starts
/// fewer and computes wants its data to be read meanwhile; of a window there will be more to do
/// anyway.
const WINDOW: u32 = 4;
/// Messages for which long ones are believed to go both ways after one has come.
const BOTH: u32 = 128;
/// The longest class that goes unasked where long messages go both ways, too: the memory of a pair
/// has room for several such.
const BOTH_WAYS: usize = 2;
/// Lengths that are told apart: up to the eager limit, and up to twice, four and eight times that.
pub(in crate::engine) const CLASSES: usize = 4;

/// What was seen of receivers of such messages.
#[derive(Debug, Default)]
pub(in crate::engine) struct Unasked {
    peers: BTreeMap<u32, Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Of messages that no call of the sender waits for, and of those that one does.
    seen: [[Seen; CLASSES]; 2],
    /// Messages for which long ones are believed to go both ways.
    both: u32,
    /// Polls of this rank when it last sent one for which it does not wait, and how many it has
    /// sent since the poll before that, and in the run before.
    polls: u64,
    run: u32,
    before: u32,
}

#[derive(Debug, Default)]
struct Seen {
    /// Streams in a row.
    streamed: u32,
    /// Messages that still go unasked.
    unasked: u32,
}

impl Unasked {
    /// Whether the next message of this class to `peer` goes unasked, if it finds room. `waited` if
    /// a call waits for it.
    pub(in crate::engine) fn next(&self, peer: u32, class: usize, waited: bool) -> bool {
        let known = self.peers.get(&peer);
        known.is_some_and(|known| known.seen[usize::from(waited)][class].unasked > 0)
    }

    /// It has gone, or begun.
    pub(in crate::engine) fn went(&mut self, peer: u32, class: usize, waited: bool) {
        if let Some(known) = self.peers.get_mut(&peer) {
            let seen = &mut known.seen[usize::from(waited)][class];
            seen.unasked = seen.unasked.saturating_sub(1);
        }
    }

    /// A long message comes from `peer`.
    pub(in crate::engine) fn comes(&mut self, peer: u32) {
        self.peers.entry(peer).or_default().both = BOTH;
    }

    /// Whether a long message comes from `peer` now and then, of late.
    pub(in crate::engine) fn goes_both_ways(&self, peer: u32) -> bool {
        self.peers.get(&peer).is_some_and(|known| known.both > 0)
    }

    /// Whether a message of this class to `peer` for which nobody waits, sent after so many polls,
    /// is one of a window that may go unasked. Where many of the longest go both ways at a time,
    /// each rank would fill the other's memory first, and then both wait.
    pub(in crate::engine) fn in_window(&mut self, peer: u32, class: usize, polls: u64) -> bool {
        let known = self.peers.entry(peer).or_default();
        if known.polls != polls {
            (known.before, known.run, known.polls) = (known.run, 0, polls);
        }
        known.run += 1;
        let both = known.both > 0;
        known.both = known.both.saturating_sub(1);
        (!both || class <= BOTH_WAYS) && (known.run >= WINDOW || known.before >= WINDOW)
    }

    /// `peer` has taken an announced message, as a stream or by reading it.
    pub(in crate::engine) fn taken(
        &mut self,
        peer: u32,
        class: usize,
        waited: bool,
        as_stream: bool,
    ) {
        if !as_stream {
            if let Some(known) = self.peers.get_mut(&peer) {
                let streamed = &mut known.seen[usize::from(waited)][class].streamed;
                *streamed = streamed.saturating_sub(if waited { STREAMED } else { READ });
            }
            return;
        }
        let known = self.peers.entry(peer).or_default();
        let seen = &mut known.seen[usize::from(waited)][class];
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
            assert!(!known.next(3, 1, true));
            known.taken(3, 1, true, true);
        }
        for _ in 0..UNASKED {
            assert!(
                known.next(3, 1, true),
                "asked twice, as where there is no room"
            );
            assert!(known.next(3, 1, true));
            known.went(3, 1, true);
        }
        assert!(!known.next(3, 1, true));
    }

    #[test]
    fn of_those_that_nobody_waits_for_a_few_may_be_read() {
        for (each, unasked) in [(2 * READ, true), (READ, false)] {
            let mut known = Unasked::default();
            for turn in 0..10 * STREAMED {
                known.taken(0, 0, false, turn % each != 0);
            }
            assert_eq!(known.next(0, 0, false), unasked, "one read of {each}");
            assert!(!known.next(0, 0, true), "what a call waits for");
        }
    }

    #[test]
    fn windows_one_way_are_told_from_others() {
        let mut known = Unasked::default();
        let mut window = |polls, count| -> Vec<bool> {
            (0..count).map(|_| known.in_window(2, 3, polls)).collect()
        };
        assert_eq!(window(5, 5), [false, false, false, true, true]);
        assert_eq!(window(9, 1), [true], "another window begins");
        assert_eq!(window(13, 1), [false], "it was none");
        window(17, WINDOW);
        known.comes(2);
        for polls in 0..BOTH {
            assert!(!known.in_window(2, 3, 20 + u64::from(polls / WINDOW)));
        }
        let polls = 20 + u64::from(BOTH / WINDOW);
        assert!(known.in_window(2, 3, polls), "nothing has come since then");
    }

    #[test]
    fn shorter_ones_go_unasked_both_ways_too() {
        let mut known = Unasked::default();
        known.comes(2);
        let mut in_window = |class| (0..WINDOW).map(|_| known.in_window(2, class, 7)).last();
        assert_eq!(in_window(BOTH_WAYS), Some(true));
        assert_eq!(in_window(BOTH_WAYS + 1), Some(false));
    }

    #[test]
    fn that_says_nothing_of_others() {
        let mut known = Unasked::default();
        for _ in 0..STREAMED {
            known.taken(3, 1, true, true);
        }
        assert!(!known.next(4, 1, true), "of another receiver");
        assert!(!known.next(3, 2, true), "of longer messages");
        assert!(known.next(3, 1, true));
    }

    #[test]
    fn what_is_read_now_and_then_is_announced() {
        let mut known = Unasked::default();
        for turn in 0..10 * STREAMED {
            assert!(!known.next(0, 0, true));
            known.taken(0, 0, true, turn % (STREAMED - 1) != 0);
        }
    }
}
