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
//! 1. The first periods try every way [`TRIALS`] times, unless the ways are known for another
//!    length; those costs are then believed at first. A way that is [`FAR_WORSE`] than the best
//!    after two trials is known well enough; later trials of it take [`FEW`] transfers.
//! 2. After that each period takes the way with the least cost. A way's cost per byte follows its
//!    measurements by a quarter of the difference (by half if it is not the best way). No
//!    measurement counts for more than [`WORST`] times what was known, so that an interrupted
//!    transfer changes little, and a real change is noticed after some ten measurements.
//! 3. After [`FIRST_RETRY`] transfers another way is tried again, after twice as many the next
//!    time, up to [`LAST_RETRY`], and sooner again when the best way has changed. In the long run
//!    trying costs less than one part in a hundred.
//!
//! What is measured is a period: transfers of one sender that take the same way and follow each
//! other closely, from the beginning of the first to the end of the last. So a window of many
//! messages is measured as one, whether its transfers overlap (streams) or not (pulls). Transfers
//! beyond the period's length wait until none is under way. This keeps them out of the measurement,
//! and a slow way is not kept merely because there is always something under way. Where transfers
//! do not follow each other closely, a period is a single transfer; a way is then tried for several
//! periods, and the best of them counts.
//!
//! Where long messages go both ways between two ranks at the same time, each rank by itself would
//! learn something wrong. A stream is slow while its sender pulls. So two ranks that pull, at half
//! the speed of two that stream, would keep pulling, because each finds the other way slower by
//! itself. And a rank that splits takes the other's processor for its own messages. (Both are
//! busy anyway, so only messages of [`SPLIT_BOTH`] and more are split at such a time.) So the lower
//! rank leads: the other rank takes the way by which its own messages are taken, and the bytes of
//! both directions are measured. Messages that go to and fro in turn are treated as such, too, but
//! for splits: one of the processors has nothing else to do then.
//!
//! Once a message of middle length has been streamed for a while, it goes unasked, in pieces
//! (`unasked.rs`). So where a call waits for such a message, its stream is priced as what it will
//! become: two copies and no question. The receiver measures its own copy, which takes most of the
//! time.
//!
//! Reading the clock twice takes as long as moving a line of memory from one core to another. So
//! while one way is known to be the best, only one period in [`RESTS`] + 1 is measured.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

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
/// Periods that try a way before its cost is believed. More than one, because the first may have to
/// allocate the memory that it goes through.
const TRIALS: u8 = 3;
/// Among the first this many measured copies, the shortest counts.
const COLD: u8 = 8;
/// The most that one measurement counts for, as a multiple of the known cost.
const WORST: u64 = 4;
/// Transfers after which another way is tried again, the first time.
const FIRST_RETRY: u32 = 512;
/// The same, once it has doubled as often as it may.
const LAST_RETRY: u32 = 4096;
/// Transfers of a normal period (`PERIOD`), and of one that tries another way (`PROBE`). The latter
/// are few, because one rank's trial slows the other rank down, which may then take its own way for
/// a bad one.
const PERIOD: u32 = 64;
const PROBE: u32 = 8;
/// A way that costs this many times as much as the best one is far worse.
const FAR_WORSE: u64 = 2;
/// Shortest message that is split while this rank's own messages are being taken. Both processors
/// copy then anyway: two halves take as long as one pull, and two more packets. (On a Xeon, without
/// splits, an exchange of 64 to 256 KiB takes 0.75 of the time, and windows of 1 and 4 MiB from one
/// buffer move 0.75 of the bytes.)
pub(in crate::engine) const SPLIT_BOTH: usize = 1 << 20;
/// Transfers after the latest one that began while this rank's own messages were being taken, for
/// which that is assumed still. Of two ranks that exchange messages, one may match the other's
/// before it offers its own.
const EXCHANGES: u32 = 16;
/// Transfers of a period that retries a far worse way: enough to see whether something has changed.
const FEW: u32 = 2;
/// Periods of the best way that go unmeasured after a measured one.
const RESTS: u32 = 3;
/// Transfers for which the peer's most recent way is assumed to be its way still.
const LED: u32 = 2 * PERIOD;
/// Bytes of a period that tries another way, if they make fewer transfers than `PROBE`.
const PROBE_BYTES: u32 = 16 << 20;
/// A transfer follows the one before it closely if the pause between them is at most this part of
/// the period so far.
const GAP: u32 = 4;
/// Binary logarithm of the shortest length whose streams, if the peer leads, get a whole period.
const LONG_STREAMS: u32 = 17;
/// Binary logarithms of the shortest and the longest lengths that have classes of their own.
const SHORTEST: u32 = 12;
const LONGEST: u32 = 24;
const LENGTHS: usize = (LONGEST - SHORTEST + 1) as usize;
/// Each length has two classes: one while this rank only receives, and one while its own messages
/// are being taken, too.
const CLASSES: usize = 2 * LENGTHS;

/// What this rank knows of all senders.
#[derive(Debug, Default)]
pub(in crate::engine) struct Ways {
    senders: BTreeMap<u32, Box<Sender>>,
}

/// What this rank knows of one sender, and that sender's current period.
#[derive(Debug)]
struct Sender {
    classes: [Class; CLASSES],
    /// Transfers under way, and transfers begun in this period.
    active: u32,
    begun: u32,
    /// How many transfers may begin in this period.
    room: u32,
    way: Way,
    class: usize,
    /// Whether the period is measured.
    timed: bool,
    /// Whether the period is a trial of its way.
    trial: bool,
    bytes: u64,
    /// Bytes of this rank's messages that the peer has taken since the period began (`given`), and
    /// until the end of the period's latest transfer (`counted`).
    given: u64,
    counted: u64,
    /// When the period began, and when its latest transfer ended.
    since: Instant,
    until: Instant,
    /// Receives whose transfers wait for the end of the period.
    waiting: VecDeque<u32>,
    /// The way by which the peer takes this rank's messages, if it leads, and for how many more
    /// transfers that is assumed.
    theirs: Option<(Way, u32)>,
    /// Whether the period goes that way.
    led: bool,
    /// For how many more transfers it is assumed that messages go both ways at the same time (and
    /// not to and fro in turn); and whether it was when the period began.
    exchanges: u32,
    exchanging: bool,
}

/// What is known of messages of similar length.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// Picoseconds per byte.
    cost: [u64; ALL.len()],
    trials: [u8; ALL.len()],
    /// Whether the cost was taken over from another length.
    believed: [bool; ALL.len()],
    /// Picoseconds per byte of the unasked message that a stream stands for; and the number of
    /// copies that were measured.
    unasked: Option<u64>,
    copies: u8,
    /// A way being tried: the way, its transfers so far, and its least cost.
    trying: Option<(Way, u32, u64)>,
    /// Transfers until another way is tried; and how many there were at the last reset.
    left: u32,
    retry: u32,
    /// Which of the other ways is tried next.
    turn: usize,
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

impl Sender {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            classes: [Class::NEW; CLASSES],
            active: 0,
            begun: 0,
            room: 0,
            way: Way::Stream,
            class: 0,
            timed: true,
            trial: false,
            bytes: 0,
            given: 0,
            counted: 0,
            since: now,
            until: now,
            waiting: VecDeque::new(),
            theirs: None,
            led: false,
            exchanges: 0,
            exchanging: false,
        }
    }

    /// Whether a transfer that begins now follows the others closely enough, and there is room for
    /// it.
    fn follows(&self) -> bool {
        if self.begun >= self.room || !self.timed {
            return self.begun < self.room;
        }
        let busy = self.until.saturating_duration_since(self.since);
        self.until.elapsed() <= busy / GAP
    }

    /// The class of a transfer that begins now. `both` alone does not tell: between two windows
    /// that go both ways, nothing is exposed for a moment.
    fn class_now(&self, len: usize, both: bool) -> usize {
        class_of(len, both || self.given > 0)
    }

    /// Whether a transfer that begins now, with none under way, belongs to the current period.
    fn goes_on(&self, class: usize, allowed: &impl Fn(Way) -> bool) -> bool {
        let same = class == self.class && allowed(self.way);
        same && self.led_by(class, allowed) == self.led.then_some(self.way) && self.follows()
    }

    /// The peer's way, if messages go both ways, the peer leads and its way is known.
    fn led_by(&self, class: usize, allowed: &impl Fn(Way) -> bool) -> Option<Way> {
        let (way, more) = self.theirs.filter(|_| class >= LENGTHS)?;
        (more > 0 && allowed(way)).then_some(way)
    }

    /// Begins a period that goes the peer's way. It is short, so that this rank follows soon: the
    /// peer's trials are short, too. (Streams of long messages, which begin all at once, get a
    /// whole period. On a Xeon, with whole periods for all streams, half of the processes never
    /// pulled windows of 32 and 48 KiB both ways: the trials of pulls were over while this rank
    /// streamed.)
    fn begin_led(&mut self, class: usize, way: Way) {
        self.end_period();
        (self.class, self.way, self.led) = (class, way, true);
        let is_long = (class % LENGTHS) as u32 + SHORTEST >= LONG_STREAMS;
        self.room = match way {
            Way::Stream if is_long => PERIOD,
            _ => PROBE,
        };
        (self.timed, self.trial) = (false, false);
    }

    /// Bytes of this rank's messages that the peer has taken in the time of this period. Where the
    /// two ranks exchange one message at a time, a peer that pulls does so at the same time as this
    /// rank, but says so a moment later. (Of a window it has said all but the last.)
    fn given_meanwhile(&self) -> u64 {
        match self.exchanging && self.begun == 1 {
            true => self.given.min(self.bytes).max(self.counted),
            false => self.counted,
        }
    }

    /// Records the result of the period that is over.
    fn end_period(&mut self) {
        let learns = self.begun > 0 && !self.led;
        if learns && !self.timed {
            self.classes[self.class].rested(self.begun);
        } else if learns {
            let busy = self.until.saturating_duration_since(self.since);
            let time = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
            let both = self.class >= LENGTHS;
            let bytes = self.bytes + if both { self.given_meanwhile() } else { 0 };
            let cost = (time.saturating_mul(1000) / bytes.max(1)).max(1);
            let (way, begun, enough) = (self.way, self.begun, self.probe());
            let class = &mut self.classes[self.class];
            match self.trial {
                true => class.tried(way, cost, begun, enough),
                false => class.learn(way, cost, begun),
            }
        }
        (self.begun, self.bytes, self.led) = (0, 0, false);
        (self.given, self.counted) = (0, 0);
        self.exchanging = self.exchanges > 0;
    }

    /// Records the result of the period that is over, and begins another one.
    fn begin_period(&mut self, class: usize, allowed: impl Fn(Way) -> bool) {
        let (same, rested) = (class == self.class, !self.timed);
        self.end_period();
        self.class = class;
        (self.way, self.room, self.trial) = self.choose(allowed);
        self.timed = self.trial || rested || !same;
        if !self.timed {
            self.room = RESTS * PERIOD;
        }
        if self.timed {
            self.since = Instant::now();
        }
    }

    /// The way of a period, how many transfers it may have, and whether it is a trial. A new class
    /// takes over at first what is known of the nearest length.
    fn choose(&mut self, allowed: impl Fn(Way) -> bool) -> (Way, u32, bool) {
        let class = self.class;
        // Splits are not always possible.
        let known = |at: &usize| {
            let class = &self.classes[*at];
            class.is_tried(Way::Stream) && class.is_tried(Way::Pull)
        };
        if self.classes[class].is_new() {
            // Only lengths of the same case, one-way or both ways.
            let first = class / LENGTHS * LENGTHS;
            let nearest = (first..first + LENGTHS).filter(known);
            if let Some(nearest) = nearest.min_by_key(|at| at.abs_diff(class)) {
                let Class { cost, trials, .. } = self.classes[nearest];
                self.classes[class] = Class {
                    cost,
                    // What has been tried once is not known.
                    trials: trials.map(|trials| if trials < TRIALS { 0 } else { trials }),
                    believed: [true; ALL.len()],
                    ..Class::NEW
                };
            }
        }
        let (way, trial) = self.classes[class].choose(allowed);
        self.way = way;
        (way, if trial { self.probe() } else { PERIOD }, trial)
    }

    /// How many transfers a trial of this period's way has.
    fn probe(&self) -> u32 {
        let most = match self.classes[self.class].is_far_worse(self.way) {
            true => FEW,
            false => PROBE,
        };
        (PROBE_BYTES >> ((self.class % LENGTHS) as u32 + SHORTEST)).clamp(FEW, most)
    }
}

impl Class {
    const NEW: Self = Self {
        cost: [0; ALL.len()],
        trials: [0; ALL.len()],
        believed: [false; ALL.len()],
        unasked: None,
        copies: 0,
        trying: None,
        left: FIRST_RETRY,
        retry: FIRST_RETRY,
        turn: 0,
    };

    fn is_new(&self) -> bool {
        self.trials == Self::NEW.trials
    }

    fn is_tried(&self, way: Way) -> bool {
        self.trials[way as usize] >= TRIALS
    }

    /// The best of the ways that have been tried at all.
    fn best(&self) -> Option<Way> {
        let tried = ALL.into_iter().filter(|&way| self.trials[way as usize] > 0);
        tried.min_by_key(|&way| self.price(way))
    }

    /// Whether a way is known to cost a multiple of the best way's cost. One trial does not tell:
    /// the first of all may make a system call, or use memory, for the first time in a process.
    fn is_far_worse(&self, way: Way) -> bool {
        let best = self.best().filter(|&best| self.is_tried(best));
        let far = |best| self.price(way) >= FAR_WORSE * self.price(best);
        self.trials[way as usize] > 1 && !self.believed[way as usize] && best.is_some_and(far)
    }

    /// The way of a period, and whether the period is a trial.
    fn choose(&mut self, allowed: impl Fn(Way) -> bool) -> (Way, bool) {
        let ways = || ALL.into_iter().filter(|&way| allowed(way));
        if let Some((way, ..)) = self.trying.filter(|&(way, ..)| allowed(way)) {
            return (way, true);
        }
        if let Some(way) = ways().find(|&way| !self.is_tried(way)) {
            return (way, true);
        }
        let best = ways().min_by_key(|&way| self.price(way));
        let best = best.unwrap_or(Way::Stream);
        if self.believed[best as usize] {
            // The first transfers of this length find cold memory, so the cost is measured again.
            return (best, true);
        }
        if self.left > 0 {
            return (best, false);
        }
        self.retry = (2 * self.retry).min(LAST_RETRY);
        self.left = self.retry;
        self.turn += 1;
        let others = ways().filter(|&way| way != best).count();
        let nth = self.turn % others.max(1);
        let other = ways().filter(|&way| way != best).nth(nth);
        (other.unwrap_or(best), true)
    }

    /// The cost at which a way is compared with the others.
    fn price(&self, way: Way) -> u64 {
        let cost = self.cost[way as usize];
        let unasked = self.unasked.filter(|_| way == Way::Stream);
        unasked.map_or(cost, |unasked| cost.min(unasked))
    }

    /// Notes what a message would have cost unasked. The first copies find page tables and caches
    /// cold; an interrupted copy counts for little.
    fn would_cost(&mut self, cost: u64) {
        let known = self.unasked.unwrap_or(cost);
        let cost = match self.copies {
            ..COLD => cost.min(known),
            _ => (3 * known + cost.min(2 * known)).div_ceil(4),
        };
        self.unasked = Some(cost.max(1));
        self.copies = self.copies.saturating_add(1);
    }

    /// Notes that so many transfers have taken the best way without being measured.
    fn rested(&mut self, transfers: u32) {
        self.left = self.left.saturating_sub(transfers);
    }

    /// Notes the result of a period that has tried a way. Where transfers are far apart, a period
    /// is one transfer, and the best of several periods counts, because the first finds the caches
    /// as the previous way has left them.
    fn tried(&mut self, way: Way, cost: u64, transfers: u32, enough: u32) {
        let so_far = self.trying.take().filter(|&(trying, ..)| trying == way);
        let (_, before, least) = so_far.unwrap_or((way, 0, u64::MAX));
        let (transfers, least) = (before + transfers, least.min(cost));
        if transfers < enough {
            self.trying = Some((way, transfers, least));
        } else {
            self.learn(way, least, transfers);
        }
    }

    fn learn(&mut self, way: Way, cost: u64, transfers: u32) {
        let before = self.best();
        let believed = std::mem::replace(&mut self.believed[way as usize], false);
        let (known, trials) = (&mut self.cost[way as usize], &mut self.trials[way as usize]);
        *known = match *trials {
            _ if believed => cost,
            0 => cost,
            // The first ones find caches and page tables cold.
            1..TRIALS => cost.min(*known),
            // The known cost of the best way is recent; those of the others are old.
            _ if before != Some(way) => (*known + cost.min(WORST * *known)).div_ceil(2),
            _ => (3 * *known + cost.min(WORST * *known)).div_ceil(4),
        };
        *trials = trials.saturating_add(1);
        if self.is_far_worse(way) {
            // Another trial cannot make up for that.
            self.trials[way as usize] = TRIALS.max(self.trials[way as usize]);
        }
        self.left = self.left.saturating_sub(transfers);
        if self.best() != before {
            self.retry = (self.retry / 2).max(FIRST_RETRY);
            self.left = self.left.min(self.retry);
        }
    }
}

fn class_of(len: usize, both: bool) -> usize {
    let log = len.max(1).ilog2().clamp(SHORTEST, LONGEST);
    (log - SHORTEST) as usize + if both { LENGTHS } else { 0 }
}

#[cfg(test)]
mod tests;
