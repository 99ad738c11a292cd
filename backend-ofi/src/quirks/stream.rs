//! How a rank looks for more when packets come one after another.
//!
//! libfabric's shm provider of 1.x has a spin lock in each rank's queue: every packet is sent under
//! the receiver's, and every poll takes it, the one that finds nothing, too, and holds it for as
//! long as it takes packets out. A receiver that is faster than its sender looks without an end
//! into a queue with nothing in it, or a packet or two, and its sender waits for the lock more than
//! it sends. So before a receiver of a stream looks again, it leaves the queue alone for a moment,
//! unless the last look has found many packets: the sender fills it meanwhile. A stream is what has
//! come since this rank has sent anything, or asked for other memory. Who answers each message
//! leaves the queue alone for two hints to the processor.

use crate::caps;
use crate::start::info::Info;

/// The first version that is known to have no such lock: there a pause after each poll cost 1.06 of
/// the latency of 8 bytes.
const WITHOUT_LOCK: (u32, u32) = (2, 0);

/// Packets in a row that are a stream.
const STREAM: u32 = 4;
/// Empty polls, at most, after which it is over.
const PATIENCE: u32 = 8;
/// Packets of one poll behind which the next comes at once.
const MANY: usize = 16;
/// Hints to the processor before the next poll of a stream, behind one that has found something:
/// the sender sends some more packets meanwhile.
const HINTS: u32 = 64;
/// The same behind an empty one.
const HINTS_EMPTY: u32 = 32;
/// The same where there is no stream. One more than a lock needs, because a wait gives none itself
/// while the answer to a short message may be on its way.
const HINT: u32 = 2;

/// What has come since this rank has sent anything.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    packets: u32,
    /// Hints to the processor before the next poll.
    due: u32,
}

impl Stream {
    /// For an endpoint of a library of this version; `None` where who looks keeps nobody from
    /// sending.
    pub(crate) fn of(version: (u32, u32), info: &Info) -> Option<Self> {
        (version < WITHOUT_LOCK && caps::over(info, "shm")).then(Self::default)
    }

    /// This rank sends, or reads or writes memory of another.
    #[inline]
    pub(crate) fn turned(&mut self) {
        *self = Self::default();
    }

    /// A poll begins. Returns how many hints to give the processor before it: not at the end of the
    /// one before, because what has come is to be seen at once.
    #[inline]
    pub(crate) fn polls(&mut self) -> u32 {
        std::mem::take(&mut self.due)
    }

    /// Notes what a poll has found.
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

    /// Hints between a poll that has found so many and the next.
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
