//! Paces the polls of a rank that receives a stream of packets.
//!
//! libfabric's shm provider of 1.x has one spin lock in each rank's queue. Every send takes the
//! receiver's lock. Every poll takes it too, even one that finds nothing, and holds it while it
//! takes packets out. A receiver that is faster than its sender polls all the time and finds
//! nothing, or a packet or two, and the sender spends more time waiting for the lock than sending.
//! So between two polls, the receiver of a stream leaves the queue alone for a moment, during which
//! the sender fills it, unless the last poll found many packets. A stream is what has arrived since
//! this rank last sent anything or accessed another rank's memory. A rank that answers each message
//! pauses only for two hints to the processor.

use crate::caps;
use crate::start::info::Info;

/// The first version known to have no such lock. There, a pause after each poll made the latency of
/// 8 bytes 1.06 times as long.
const WITHOUT_LOCK: (u32, u32) = (2, 0);

/// Packets in a row that make a stream.
const STREAM: u32 = 4;
/// Most empty polls after which a stream is over.
const PATIENCE: u32 = 8;
/// After a poll that found this many packets, the next one follows at once.
const MANY: usize = 16;
/// Hints to the processor between a poll of a stream that found something and the next: the sender
/// sends some more packets meanwhile.
const HINTS: u32 = 64;
/// The same, after a poll that found nothing.
const HINTS_EMPTY: u32 = 32;
/// The same, where there is no stream. One more hint than the lock needs, because a wait gives none
/// itself while the answer to a short message may be on its way.
const HINT: u32 = 2;

/// Counts what has arrived since this rank last sent anything.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    packets: u32,
    /// Hints to the processor before the next poll.
    due: u32,
}

impl Stream {
    /// For an endpoint of a library of this version; `None` where polling keeps nobody from
    /// sending.
    pub(crate) fn of(version: (u32, u32), info: &Info) -> Option<Self> {
        (version < WITHOUT_LOCK && caps::over(info, "shm")).then(Self::default)
    }

    /// Notes that this rank sends, or reads or writes another rank's memory.
    #[inline]
    pub(crate) fn turned(&mut self) {
        *self = Self::default();
    }

    /// Starts a poll. Returns how many hints to give the processor before it. They are given here
    /// and not at the end of the last poll, so that its packets are seen at once.
    #[inline]
    pub(crate) fn polls(&mut self) -> u32 {
        std::mem::take(&mut self.due)
    }

    /// Notes how many packets a poll delivered.
    #[inline]
    pub(crate) fn polled(&mut self, delivered: usize) {
        if delivered > 0 {
            self.packets = self.packets.saturating_add(delivered as u32);
            let alone = self.packets >= STREAM && delivered < MANY;
            self.due = if alone { HINTS } else { 0 };
        } else if self.packets < STREAM {
            self.due = HINT;
        } else {
            self.packets = self.packets.min(STREAM + PATIENCE) - 1;
            self.due = HINTS_EMPTY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hints between a poll that found this many packets and the next.
    fn between(stream: &mut Stream, delivered: usize) -> u32 {
        stream.polled(delivered);
        stream.polls()
    }

    #[test]
    fn who_is_sent_a_stream_pauses_when_it_finds_little() {
        let mut stream = Stream::default();
        assert_eq!(between(&mut stream, 1), 0, "there may be more");
        assert_eq!(between(&mut stream, STREAM as usize - 1), HINTS);
        assert_eq!(between(&mut stream, 0), HINTS_EMPTY);
        assert_eq!(between(&mut stream, 0), HINT, "it was a short one");
        assert_eq!(between(&mut stream, 1), HINTS);
        assert_eq!(between(&mut stream, 0), HINTS_EMPTY, "it goes on");
        assert_eq!(between(&mut stream, MANY), 0);
        assert_eq!(stream.polls(), 0, "a pause is made once");
    }

    #[test]
    fn who_answers_each_message_hardly_pauses() {
        let mut stream = Stream::default();
        for _ in 0..2 * STREAM {
            assert_eq!(between(&mut stream, 0), HINT);
            assert_eq!(between(&mut stream, 1), 0);
            stream.turned();
        }
        stream.polled(STREAM as usize);
        stream.turned();
        assert_eq!(stream.polls(), 0, "nor who answers several");
    }

    #[test]
    fn the_end_of_a_stream_shows_in_empty_polls() {
        let mut stream = Stream::default();
        stream.polled(1000);
        let pauses = (0..100).filter(|_| between(&mut stream, 0) == HINTS_EMPTY);
        assert_eq!(pauses.count() as u32, PATIENCE + 1);
    }
}
