//! Messages of middle length that a blocking call sends: announced, or eagerly?
//!
//! One call waits for the other, so a message that the receiver reads where it is, in one copy, is
//! there sooner than one that both copy, one after the other; if reading it costs little more than a
//! copy. That is so on one machine and not on the next, and the receiver finds out ([`super::ways`]). What
//! it finds the sender sees: a receiver that takes announced messages as streams, one after the other, has
//! found that reading is the worse way, and then there is no point in asking it first.

use std::collections::BTreeMap;

/// Announced messages in a row that were taken as streams until the next ones go eagerly: more than a
/// receiver takes that way only to try it.
const STREAMED: u32 = 24;
/// Messages that go eagerly until some are announced again, because things change.
const EAGER: u32 = 4096;

/// What was seen of receivers of such messages.
#[derive(Debug, Default)]
pub(super) struct Waited {
    peers: BTreeMap<u32, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Streams in a row.
    streamed: u32,
    /// Messages that still go eagerly.
    eager: u32,
}

impl Waited {
    /// Whether the next message to `peer` goes eagerly.
    pub(super) fn is_eager(&mut self, peer: u32) -> bool {
        let Some(seen) = self.peers.get_mut(&peer) else {
            return false;
        };
        let eager = seen.eager > 0;
        seen.eager = seen.eager.saturating_sub(1);
        eager
    }

    /// `peer` has taken an announced message, as a stream or by reading it.
    pub(super) fn taken(&mut self, peer: u32, as_stream: bool) {
        if !as_stream {
            if let Some(seen) = self.peers.get_mut(&peer) {
                seen.streamed = 0;
            }
            return;
        }
        let seen = self.peers.entry(peer).or_default();
        seen.streamed += 1;
        if seen.streamed >= STREAMED {
            *seen = Seen {
                streamed: 0,
                eager: EAGER,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_streamed_goes_eagerly_after_a_while_and_not_for_ever() {
        let mut waited = Waited::default();
        for _ in 0..STREAMED {
            assert!(!waited.is_eager(3));
            waited.taken(3, true);
        }
        let eager = (0..2 * EAGER).filter(|_| waited.is_eager(3)).count();
        assert_eq!(eager, EAGER as usize);
        assert!(!waited.is_eager(4), "that says nothing of another receiver");
    }

    #[test]
    fn what_is_read_now_and_then_is_announced() {
        let mut waited = Waited::default();
        for turn in 0..10 * STREAMED {
            assert!(!waited.is_eager(0));
            waited.taken(0, turn % (STREAMED - 1) != 0);
        }
    }
}
