//! How many packets ranks of different nodes have sent each other, as heartbeats tell.
//!
//! A rank publishes here how many packets it has sent to each other rank, whenever the watching
//! thread calls for it (once per period, [`Deaths::call`](crate::deaths::Deaths::call)), and when
//! it leaves. So sending a packet costs nothing more than before. The watching thread sends the
//! numbers along with heartbeats, and keeps those that it receives. The receiving rank compares
//! them with what has arrived:
//!
//! - A rank that has left is gone once its last packet has been delivered
//!   (`Transport::has_left`). Its announcement goes by UDP, and may overtake packets whose segments
//!   TCP has to send again.
//! - Over TCP, a packet that does not arrive for long is lost ([`gap`](crate::packets::gap)). If it
//!   was the last one of its sender, nothing that arrives shows that it is missing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The turn of a count that is the last one: the sender has left.
const LAST: u32 = u32::MAX;

/// After this long without a packet that was sent, it is lost. TCP doubles the time between two
/// attempts to send a segment, so an attempt may follow a disturbance of the network by as long as
/// that lasted. Longer disturbances than half of this are deaths, with the usual period.
const LIMIT: Duration = Duration::from_secs(60);
/// The fewest looks that this may take.
const LOOKS: u32 = 12;

/// A count of packets, with the turn in which its sender published it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) packets: u32,
    /// Turns are numbered from 1, and grow by one whenever the sender publishes.
    pub(crate) turn: u32,
}

/// The counts that the rank of this process has published, and those that others have told it.
#[derive(Debug)]
pub(crate) struct Counts {
    /// By receiver: the packets that this rank has sent.
    sent: Box<[AtomicU32]>,
    turn: AtomicU32,
    /// By sender: the packets that it says it has sent to this rank; the turn in the upper half.
    told: Box<[AtomicU64]>,
    period: OnceLock<Duration>,
}

impl Counts {
    pub(crate) fn new(ranks: u32) -> Self {
        Self {
            sent: (0..ranks).map(|_| AtomicU32::new(0)).collect(),
            turn: AtomicU32::new(0),
            told: (0..ranks).map(|_| AtomicU64::new(0)).collect(),
            period: OnceLock::new(),
        }
    }

    /// Sets the time between two turns.
    pub(crate) fn set_period(&self, period: Duration) {
        let _ = self.period.set(period);
    }

    /// Publishes how many packets this rank has sent: for each receiver a number, unless that is
    /// to stay.
    pub(crate) fn publish(&self, sent: impl Iterator<Item = Option<u32>>) {
        for (count, packets) in self.sent.iter().zip(sent) {
            if let Some(packets) = packets {
                count.store(packets, Ordering::Relaxed);
            }
        }
        // Release: pairs with the Acquire in `published`: the packets of a turn are there with it.
        self.turn.fetch_add(1, Ordering::Release);
    }

    /// What this rank has published for a receiver.
    pub(crate) fn published(&self, receiver: u32) -> Count {
        // Acquire: pairs with the Release in `publish`.
        let turn = self.turn.load(Ordering::Acquire);
        let packets = self.sent[receiver as usize].load(Ordering::Relaxed);
        Count { packets, turn }
    }

    /// Keeps what another rank has published for this one. Datagrams may overtake each other: an
    /// older turn is ignored. Relaxed, here and below: the value is complete in itself.
    pub(crate) fn hear(&self, sender: u32, count: Count) {
        let value = u64::from(count.turn) << 32 | u64::from(count.packets);
        self.told[sender as usize].fetch_max(value, Ordering::Relaxed);
    }

    /// Keeps how many packets another rank has sent to this one in all: it has left.
    pub(crate) fn hear_last(&self, sender: u32, packets: u32) {
        let turn = LAST;
        self.hear(sender, Count { packets, turn });
    }

    fn told(&self, sender: u32) -> Count {
        let value = self.told[sender as usize].load(Ordering::Relaxed);
        Count {
            packets: value as u32,
            turn: (value >> 32) as u32,
        }
    }

    /// What another rank has published last for this one, if it has done so and has not left.
    pub(crate) fn latest(&self, sender: u32) -> Option<Count> {
        Some(self.told(sender)).filter(|count| count.turn != 0 && count.turn != LAST)
    }

    /// How many packets another rank has sent to this one in all, if it has left and has said so.
    pub(crate) fn last(&self, sender: u32) -> Option<u32> {
        let count = self.told(sender);
        (count.turn == LAST).then_some(count.packets)
    }

    /// For how many turns of its sender, and how many looks of its receiver, a packet may be
    /// missing.
    pub(crate) fn patience(&self) -> u32 {
        let turns = |period: &Duration| LIMIT.as_secs_f64() / period.as_secs_f64();
        let turns = self.period.get().map_or(0.0, turns);
        (turns.ceil() as u32).max(LOOKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_told_and_the_last_word_stays() {
        let (here, there) = (Counts::new(2), Counts::new(2));
        assert_eq!(here.published(1).turn, 0);
        here.publish([None, Some(7)].into_iter());
        let first = here.published(1);
        here.publish([None, None].into_iter());
        let second = here.published(1);
        assert_eq!((first.packets, second.packets), (7, 7));
        assert_eq!(there.latest(0), None);
        there.hear(0, second);
        there.hear(0, first);
        assert_eq!(there.latest(0), Some(second), "it was overtaken");
        assert_eq!(there.last(0), None);
        there.hear_last(0, 9);
        there.hear(0, second);
        assert_eq!((there.last(0), there.latest(0)), (Some(9), None));
    }

    #[test]
    fn short_periods_do_not_shorten_the_patience() {
        for (period, turns) in [(10, 6000), (5000, LOOKS), (60_000, LOOKS)] {
            let counts = Counts::new(1);
            counts.set_period(Duration::from_millis(period));
            assert_eq!(counts.patience(), turns);
        }
    }
}
