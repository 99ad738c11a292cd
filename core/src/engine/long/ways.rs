//! Which way the data of long messages takes. Measurements decide.
//!
//! Three ways lead from a sender's buffer to a receiver's: a stream through the transport's memory,
//! two copies by two processors; a pull by the receiver, one copy by one processor; or a split, in
//! which the receiver pulls one half while the sender pushes the other. Which is the fastest
//! depends on the distance between the two processors, on what the system charges for access to
//! another address space, on the length, and on whether the sender has rewritten the data since it
//! last sent it. Factors of four in either direction were seen. So the receiver measures.
//!
//! It keeps separate records for each sender and each power of two of the length, and for two
//! cases: in one this rank only receives, in the other its own messages are being taken, too. (In
//! the second case both ranks copy, and what one of them tries costs the other.) For each record:
//! 1. The first periods try every way [`TRIALS`](class::TRIALS) times, unless the ways are known
//!    for another length; those costs are then believed at first. A way that is
//!    [`FAR_WORSE`](class::FAR_WORSE) than the best after two trials is known well enough; later
//!    trials of it take [`FEW`](sender::FEW) transfers. If pulls are far worse, splits are left out
//!    at first. A trial of a way that is nearly as good as the best one, and gets better, goes on
//!    for longer.
//! 2. After that each period takes the way with the least cost. A way's cost per byte follows its
//!    measurements by a quarter of the difference (by half if it is not the best way). No
//!    measurement counts for more than [`WORST`](class::WORST) times what was known, so that an
//!    interrupted transfer changes little, and a real change is noticed after some ten
//!    measurements.
//! 3. After [`EARLY_RETRY`](class::EARLY_RETRY) transfers another way is tried again, after twice
//!    as many the next time, up to [`LAST_RETRY`](class::LAST_RETRY), and sooner again when the
//!    best way has changed. In the long run trying costs less than one part in a hundred.
//!
//! What is measured is a period: transfers of one sender that take the same way and follow each
//! other closely, from the beginning of the first to the end of the last. So a window of many
//! messages is measured as one, whether its transfers overlap (streams) or not (pulls). Transfers
//! beyond the period's length wait until none is under way. This keeps them out of the measurement,
//! and a slow way is not kept merely because there is always something under way. Where transfers
//! do not follow each other closely, a period is a single transfer; a way is then tried for several
//! periods, and the best of them counts.
//!
//! Where long messages go both ways between two ranks at the same time, the time that passes would
//! teach each rank something wrong. A stream is slow while its sender pulls, so two ranks that
//! pull, at half the speed of two that stream, would keep pulling, because each finds the other way
//! slower by itself. And a rank that splits takes the other's processor for its own messages. Both
//! processors are busy all the time then, so what counts is how long a rank copies, and that is
//! what is measured: a byte that it pulls costs it one copy; one that is streamed or split costs it
//! one more in the other direction, which is taken to be as long. (Only messages of [`SPLIT_BOTH`]
//! and more are split at such a time.) The lower rank leads: the other rank takes the way by which
//! its own messages are taken. What this rank sends unasked (see below) counts as taken meanwhile,
//! and it sends no windows unasked if it has found that pulls, or splits, are better both ways.
//!
//! Where two ranks exchange one message at a time, the time that passes is what they wait for. Then
//! it counts, for the bytes of both directions. Messages that go to and fro in turn are treated as
//! such, too, but for splits: one of the processors has nothing else to do then.
//!
//! Once a message of middle length has been streamed for a while, it goes unasked, in pieces
//! (`unasked.rs`). So where a call waits for such a message, its stream is priced as what it will
//! become: two copies and no question. The receiver measures its own copy, which takes most of the
//! time.
//!
//! Reading the clock twice takes as long as moving a line of memory from one core to another. So
//! while one way is known to be the best, only one period in [`RESTS`](sender::RESTS) + 1 is
//! measured.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use self::sender::{EXCHANGES, LED, LENGTHS, SENDS, SHORTEST, Sender, class_of};

mod class;
mod sender;

/// How the data of a long message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Way {
    /// Through the transport's memory.
    Stream = 0,
    /// The receiver pulls all of it.
    Pull = 1,
    /// The receiver pulls the first half, and the sender pushes the second.
    Split = 2,
}

const ALL: [Way; 3] = [Way::Stream, Way::Pull, Way::Split];
/// Shortest message that is split while this rank's own messages are being taken. Both processors
/// copy then anyway: two halves take as long as one pull, and two more packets. (On a Xeon, without
/// splits, an exchange of 64 to 256 KiB takes 0.75 of the time, and windows of 1 and 4 MiB from one
/// buffer move 0.75 of the bytes.)
pub(in crate::engine) const SPLIT_BOTH: usize = 1 << 20;

/// What this rank knows of all senders.
#[derive(Debug, Default)]
pub(in crate::engine) struct Ways {
    senders: BTreeMap<u32, Box<Sender>>,
}

impl Ways {
    /// Whether a transfer that begins now is sure to be streamed, because those before it were.
    pub(in crate::engine) fn go_on_streaming(&self, peer: u32, len: usize, both: bool) -> bool {
        self.senders.get(&peer).is_some_and(|sender| {
            let same = sender.active > 0 || sender.goes_on(sender.class_now(len, both), &|_| true);
            same && sender.begun > 0 && sender.way == Way::Stream
        })
    }

    /// Whether a transfer that begins now, with none under way, is sure to be a pull, because those
    /// before it were: then [`begin`](Self::begin) says so. Whether it belongs to a period that is
    /// measured depends on the time, so that a moment later the answer may differ: not sure.
    #[inline]
    pub(in crate::engine) fn go_on_pulling(&self, peer: u32, len: usize, both: bool) -> bool {
        self.senders.get(&peer).is_some_and(|sender| {
            sender.way == Way::Pull
                && !sender.timed
                && sender.active == 0
                && sender.begun > 0
                && sender.goes_on(sender.class_now(len, both), &|_| true)
        })
    }

    /// Whether a stream is the best known way for messages of `len` bytes from `peer`.
    pub(in crate::engine) fn streams(&self, peer: u32, len: usize, both: bool) -> bool {
        self.senders.get(&peer).is_some_and(|sender| {
            let class = &sender.classes[sender.class_now(len, both)];
            class.is_tried(Way::Stream) && class.best() == Some(Way::Stream)
        })
    }

    /// Whether streams are not the best known way for messages of `len` bytes from `peer` where
    /// messages go both ways.
    pub(in crate::engine) fn pulls_both_ways(&self, peer: u32, len: usize) -> bool {
        self.senders.get(&peer).is_some_and(|sender| {
            let class = &sender.classes[class_of(len, true)];
            class.is_tried(Way::Pull) && class.best() != Some(Way::Stream)
        })
    }

    /// The way of a transfer of `len` bytes from `peer` for `receive` that begins now; `None` if it
    /// has to wait for the end of the period. `both`: whether this rank's own messages are being
    /// taken meanwhile. `allowed`: which ways are possible.
    pub(in crate::engine) fn begin(
        &mut self,
        peer: u32,
        len: usize,
        both: bool,
        receive: u32,
        allowed: impl Fn(Way) -> bool,
    ) -> Option<Way> {
        let sender = self
            .senders
            .entry(peer)
            .or_insert_with(|| Box::new(Sender::new()));
        let exchanges = match both {
            true => EXCHANGES + 1,
            false => sender.exchanges,
        };
        sender.exchanges = exchanges.saturating_sub(1);
        let splits = exchanges == 0 || len >= SPLIT_BOTH;
        let allowed = |way| allowed(way) && (splits || way != Way::Split);
        if sender.active == 0 {
            let class = sender.class_now(len, both);
            match sender.led_by(class, &allowed) {
                _ if sender.goes_on(class, &allowed) => {}
                Some(way) => sender.begin_led(class, way),
                None => sender.begin_period(class, allowed),
            }
        } else if sender.begun >= sender.room || !allowed(sender.way) {
            sender.waiting.push_back(receive);
            return None;
        }
        if sender.led
            && let Some((_, more)) = &mut sender.theirs
        {
            *more = more.saturating_sub(1);
        }
        sender.sends = sender.sends.saturating_sub(1);
        sender.active += 1;
        sender.begun += 1;
        sender.bytes += len as u64;
        Some(sender.way)
    }

    /// Notes the way by which `peer`, which leads where messages go both ways, has taken a message
    /// of this rank.
    pub(in crate::engine) fn led(&mut self, peer: u32, way: Way) {
        let sender = self
            .senders
            .entry(peer)
            .or_insert_with(|| Box::new(Sender::new()));
        sender.theirs = Some((way, LED));
    }

    /// Notes that `peer` has taken `len` bytes of a message of this rank.
    pub(in crate::engine) fn given(&mut self, peer: u32, len: usize) {
        let long = len >= 1 << SHORTEST;
        if let Some(sender) = self.senders.get_mut(&peer).filter(|_| long) {
            sender.given += len as u64;
        }
    }

    /// Notes that a message of a window has gone to `peer` unasked.
    pub(in crate::engine) fn went_unasked(&mut self, peer: u32) {
        if let Some(sender) = self.senders.get_mut(&peer) {
            sender.sends = SENDS;
        }
    }

    /// Whether the copies of transfers from `peer` are to be measured: what counts where both ranks
    /// copy all the time is how long they do.
    pub(in crate::engine) fn times(&self, peer: u32) -> bool {
        let sender = self.senders.get(&peer);
        sender.is_some_and(|sender| sender.timed && sender.active > 0 && sender.class >= LENGTHS)
    }

    /// Notes how long such a copy took.
    pub(in crate::engine) fn copied(&mut self, peer: u32, time: Duration) {
        if let Some(sender) = self.senders.get_mut(&peer) {
            sender.copied += time;
        }
    }

    /// Notes that a transfer from `peer` is over. Returns the receives whose transfers may begin
    /// now.
    pub(in crate::engine) fn end(&mut self, peer: u32) -> VecDeque<u32> {
        let Some(sender) = self.senders.get_mut(&peer) else {
            return VecDeque::new();
        };
        sender.active = sender.active.saturating_sub(1);
        if sender.active > 0 {
            return VecDeque::new();
        }
        if sender.timed {
            sender.until = Instant::now();
            sender.counted = sender.given;
        }
        std::mem::take(&mut sender.waiting)
    }

    /// Whether copies of streamed data from `peer` are to be measured.
    pub(in crate::engine) fn times_copies(&self, peer: u32) -> bool {
        let sender = self.senders.get(&peer);
        sender.is_some_and(|sender| sender.timed && sender.active > 0)
    }

    /// Notes how long a part of a message would have taken if it had come unasked, estimated from
    /// the copy out of the transport's memory.
    pub(in crate::engine) fn would_take(&mut self, peer: u32, len: usize, time: Duration) {
        let Some(sender) = self.senders.get_mut(&peer) else {
            return;
        };
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cost = time.saturating_mul(1000) / len.max(1) as u64;
        sender.classes[sender.class].would_cost(cost);
    }

    /// Forgets a sender that has died.
    pub(in crate::engine) fn forget(&mut self, peer: u32) {
        self.senders.remove(&peer);
    }
}

#[cfg(test)]
mod tests;
