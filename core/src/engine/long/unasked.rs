//! Whether messages of middle length are announced, or sent unasked (without an offer), in pieces.
//!
//! A message that the receiver reads in place, in one copy, arrives sooner than one that both sides
//! copy, provided that reading costs little more than a copy. That holds on some machines and not
//! on others, and the receiver finds out ([`crate::engine::long::ways`]). The sender sees the
//! result: a receiver that takes announced messages as streams, one after the other, has found that
//! reading is slower. Asking it first is then pointless, and the messages are sent eagerly, or in
//! [`crate::engine::long::pieces`].
//!
//! Messages that no call waits for are tracked separately, and go unasked only in windows: up to
//! the longest class if long messages go one way (ADR 29), up to half of that if they go both ways
//! (ADR 31).

use std::collections::BTreeMap;

/// Announced messages in a row that the receiver must take as streams before the next ones go
/// unasked. Normally more than a receiver takes as streams just to try that way, for messages one
/// way and then for messages both ways (three times eight each, see
/// [`ways`](crate::engine::long::ways)).
pub(in crate::engine) const STREAMED: u32 = 64;
/// Streams that a read message cancels out if its sender did not wait for it: now and then the
/// receiver finds such a sender absent, or tries another way.
const READ: u32 = 8;
/// Messages that go unasked before some are announced again, because conditions change.
const UNASKED: u32 = 4096;
/// Sends one after the other, without a poll between them, that count as a window. A rank that
/// starts fewer and then computes wants its data to be read meanwhile; a rank that sends a window
/// comes back to do the rest anyway.
const WINDOW: u32 = 4;
/// After a long message has arrived, long messages are assumed to go both ways for this many sends.
const BOTH: u32 = 128;
/// The longest class that goes unasked where long messages go both ways, too: the memory between
/// two ranks has room for several of this class.
const BOTH_WAYS: usize = 2;
/// Number of length classes: up to the eager limit, and up to twice, four and eight times that.
pub(in crate::engine) const CLASSES: usize = 4;

/// What this rank has observed of the receivers of such messages.
#[derive(Debug, Default)]
pub(in crate::engine) struct Unasked {
    peers: BTreeMap<u32, Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// First for messages that no call of the sender waits for, then for those that one waits for.
    seen: [[Seen; CLASSES]; 2],
    /// Sends for which long messages are still assumed to go both ways.
    both: u32,
    /// This rank's poll count when it last sent a message that no call waits for; how many it has
    /// sent since that poll (`run`), and in the run before (`before`).
    polls: u64,
    run: u32,
    before: u32,
}

#[derive(Debug, Default)]
struct Seen {
    /// Messages taken as streams in a row.
    streamed: u32,
    /// Messages that may still go unasked.
    unasked: u32,
}

impl Unasked {
    /// Whether the next message of this class to `peer` goes unasked, if there is room. `waited`:
    /// whether a call waits for it.
    pub(in crate::engine) fn next(&self, peer: u32, class: usize, waited: bool) -> bool {
        let known = self.peers.get(&peer);
        known.is_some_and(|known| known.seen[usize::from(waited)][class].unasked > 0)
    }

    /// Notes that such a message has gone, or has begun to.
    pub(in crate::engine) fn went(&mut self, peer: u32, class: usize, waited: bool) {
        if let Some(known) = self.peers.get_mut(&peer) {
            let seen = &mut known.seen[usize::from(waited)][class];
            seen.unasked = seen.unasked.saturating_sub(1);
        }
    }

    /// Notes that a long message comes from `peer`.
    pub(in crate::engine) fn comes(&mut self, peer: u32) {
        self.peers.entry(peer).or_default().both = BOTH;
    }

    /// Whether long messages have come from `peer` lately.
    pub(in crate::engine) fn goes_both_ways(&self, peer: u32) -> bool {
        self.peers.get(&peer).is_some_and(|known| known.both > 0)
    }

    /// Whether a message of this class to `peer` that no call waits for, sent at poll count
    /// `polls`, is part of a window that may go unasked. If many messages of the longest class went
    /// unasked both ways at once, each rank would first fill the other's memory, and then both
    /// would wait.
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

    /// Notes that `peer` has taken an announced message, either as a stream or by reading it.
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
