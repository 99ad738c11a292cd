//! How a rank looks for more when packets come one after another.
//!
//! libfabric's shm provider of 1.x has a spin lock in each rank's queue: every packet is sent under the receiver's, and every poll
//! takes it, the one that finds nothing, too. A receiver that is faster than its sender looks into an empty queue without an end, and
//! its sender waits for the lock more than it sends. So a receiver of a stream leaves the queue alone for a moment when it
//! finds nothing there: the sender fills it meanwhile, and the next poll takes several packets at once. A stream is what has
//! come since this rank has sent anything. Who answers each message leaves the queue alone for one hint to the processor.

use crate::caps;
use crate::info::Info;

/// The first version that is known to have no such lock: there a pause after each poll cost 1.06 of the latency of 8 bytes.
const WITHOUT_LOCK: (u32, u32) = (2, 0);

/// Packets in a row that are a stream.
const STREAM: u32 = 4;
/// Empty polls, at most, after which it is over.
const PATIENCE: u32 = 8;
/// Hints to the processor after an empty poll of a stream: the sender sends a few packets meanwhile.
const HINTS: u32 = 32;
/// The same where there is no stream.
const HINT: u32 = 1;

/// What has come since this rank has sent anything.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    packets: u32,
}

impl Stream {
    /// For an endpoint of a library of this version; `None` where who looks keeps nobody from sending.
    pub(crate) fn of(version: (u32, u32), info: &Info) -> Option<Self> {
        (version < WITHOUT_LOCK && caps::over(info, "shm")).then(Self::default)
    }

    /// This rank sends.
    #[inline]
    pub(crate) fn turned(&mut self) {
        self.packets = 0;
    }

    /// Notes a poll. Returns how many hints to give the processor before the next one.
    #[inline]
    pub(crate) fn polled(&mut self, delivered: usize) -> u32 {
        if delivered > 0 {
            self.packets = self.packets.saturating_add(delivered as u32);
            return 0;
        }
        if self.packets < STREAM {
            return HINT;
        }
        self.packets = self.packets.min(STREAM + PATIENCE) - 1;
        HINTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_sent_a_stream_pauses_when_it_finds_nothing() {
        let mut stream = Stream::default();
        assert_eq!(stream.polled(1), 0, "there may be more");
        assert_eq!(stream.polled(STREAM as usize - 1), 0);
        assert_eq!(stream.polled(0), HINTS);
        assert_eq!(stream.polled(0), HINT, "it was a short one");
        assert_eq!(stream.polled(1), 0);
        assert_eq!(stream.polled(0), HINTS, "it goes on");
    }

    #[test]
    fn who_answers_each_message_hardly_pauses() {
        let mut stream = Stream::default();
        for _ in 0..2 * STREAM {
            assert_eq!(stream.polled(0), HINT);
            assert_eq!(stream.polled(1), 0);
            stream.turned();
        }
    }

    #[test]
    fn the_end_of_a_stream_shows_in_empty_polls() {
        let mut stream = Stream::default();
        stream.polled(1000);
        let pauses = (0..100).filter(|_| stream.polled(0) == HINTS).count();
        assert_eq!(pauses as u32, PATIENCE + 1);
    }
}
