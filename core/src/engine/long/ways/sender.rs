//! What is known of one sender: its classes, and its current period.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::engine::long::ways::class::{Class, TRIALS};
use crate::engine::long::ways::{ALL, Way};

/// Transfers of a normal period (`PERIOD`), and of one that tries another way (`PROBE`). The latter
/// are few, because one rank's trial slows the other rank down, which may then take its own way for
/// a bad one.
pub(super) const PERIOD: u32 = 64;
pub(super) const PROBE: u32 = 8;
/// Transfers of a period that retries a far worse way: enough to see whether something has changed.
pub(super) const FEW: u32 = 2;
/// Periods of the best way that go unmeasured after a measured one.
pub(super) const RESTS: u32 = 3;
/// Transfers for which the peer's most recent way is assumed to be its way still.
pub(super) const LED: u32 = 2 * PERIOD;
/// Bytes of a period that tries another way, if they make fewer transfers than `PROBE`: a process
/// may have few messages that are so long, and a trial of few of them is a long time, too.
pub(super) const PROBE_BYTES: u32 = 2 << 20;
/// A transfer follows the one before it closely if the pause between them is at most this part of
/// the period so far.
pub(super) const GAP: u32 = 4;
/// Binary logarithm of the shortest length whose streams, if the peer leads, get a whole period.
pub(super) const LONG_STREAMS: u32 = 17;
/// Binary logarithms of the shortest and the longest lengths that have classes of their own.
pub(super) const SHORTEST: u32 = 12;
pub(super) const LONGEST: u32 = 24;
pub(super) const LENGTHS: usize = (LONGEST - SHORTEST + 1) as usize;
/// Each length has two classes: one while this rank only receives, and one while its own messages
/// are being taken, too.
pub(super) const CLASSES: usize = 2 * LENGTHS;
/// Transfers after the latest one that began while this rank's own messages were being taken, for
/// which that is assumed still. Of two ranks that exchange messages, one may match the other's
/// before it offers its own.
pub(super) const EXCHANGES: u32 = 16;
/// Transfers after the latest message of a window that this rank sent unasked, for which it is
/// assumed to send more of them.
pub(super) const SENDS: u32 = 128;

/// What this rank knows of one sender, and that sender's current period.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) classes: [Class; CLASSES],
    /// Transfers under way, and transfers begun in this period.
    pub(super) active: u32,
    pub(super) begun: u32,
    /// How many transfers may begin in this period.
    pub(super) room: u32,
    pub(super) way: Way,
    pub(super) class: usize,
    /// Whether the period is measured.
    pub(super) timed: bool,
    /// Whether the period is a trial of its way.
    pub(super) trial: bool,
    pub(super) bytes: u64,
    /// Bytes of this rank's messages that the peer has taken since the period began (`given`), and
    /// until the end of the period's latest transfer (`counted`).
    pub(super) given: u64,
    pub(super) counted: u64,
    /// When the period began, and when its latest transfer ended.
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// Receives whose transfers wait for the end of the period.
    pub(super) waiting: VecDeque<u32>,
    /// The way by which the peer takes this rank's messages, if it leads, and for how many more
    /// transfers that is assumed.
    pub(super) theirs: Option<(Way, u32)>,
    /// Whether the period goes that way.
    pub(super) led: bool,
    /// For how many more transfers it is assumed that messages go both ways at the same time (and
    /// not to and fro in turn); and whether it was when the period began.
    pub(super) exchanges: u32,
    pub(super) exchanging: bool,
    /// For how many more transfers it is assumed that this rank sends windows to the peer unasked.
    pub(super) sends: u32,
    /// How long this rank has copied for the period's transfers.
    pub(super) copied: Duration,
}

impl Sender {
    pub(super) fn new() -> Self {
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
            sends: 0,
            copied: Duration::ZERO,
        }
    }

    /// Whether a transfer that begins now follows the others closely enough, and there is room for
    /// it.
    pub(super) fn follows(&self) -> bool {
        if self.begun >= self.room || !self.timed {
            return self.begun < self.room;
        }
        let busy = self.until.saturating_duration_since(self.since);
        self.until.elapsed() <= busy / GAP
    }

    /// The class of a transfer that begins now. `both` alone does not tell: between two windows
    /// that go both ways, nothing is exposed for a moment.
    pub(super) fn class_now(&self, len: usize, both: bool) -> usize {
        class_of(len, both || self.given > 0 || self.sends > 0)
    }

    /// Whether a transfer that begins now, with none under way, belongs to the current period.
    pub(super) fn goes_on(&self, class: usize, allowed: &impl Fn(Way) -> bool) -> bool {
        let same = class == self.class && allowed(self.way);
        same && self.led_by(class, allowed) == self.led.then_some(self.way) && self.follows()
    }

    /// The peer's way, if messages go both ways, the peer leads and its way is known.
    pub(super) fn led_by(&self, class: usize, allowed: &impl Fn(Way) -> bool) -> Option<Way> {
        let (way, more) = self.theirs.filter(|_| class >= LENGTHS)?;
        (more > 0 && allowed(way)).then_some(way)
    }

    /// Begins a period that goes the peer's way. It is short, so that this rank follows soon: the
    /// peer's trials are short, too. (Streams of long messages, which begin all at once, get a
    /// whole period. On a Xeon, with whole periods for all streams, half of the processes never
    /// pulled windows of 32 and 48 KiB both ways: the trials of pulls were over while this rank
    /// streamed.)
    pub(super) fn begin_led(&mut self, class: usize, way: Way) {
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
    pub(super) fn given_meanwhile(&self) -> u64 {
        match self.exchanging && self.begun == 1 {
            true => self.given.min(self.bytes).max(self.counted),
            false => self.counted,
        }
    }

    /// What the period that is over has cost, in picoseconds per byte of both directions.
    pub(super) fn cost(&self) -> u64 {
        let picoseconds = |time: Duration| (time.as_nanos() as u64).saturating_mul(1000);
        let both = self.class >= LENGTHS;
        let per_byte = if both && self.begun > 1 && !self.copied.is_zero() {
            // For each byte that this rank gets it makes one copy, or one for each direction.
            let copies = if self.way == Way::Pull { 1 } else { 2 };
            picoseconds(self.copied).saturating_mul(copies) / (2 * self.bytes).max(1)
        } else {
            let bytes = self.bytes + if both { self.given_meanwhile() } else { 0 };
            picoseconds(self.until.saturating_duration_since(self.since)) / bytes.max(1)
        };
        per_byte.max(1)
    }

    /// Records the result of the period that is over.
    pub(super) fn end_period(&mut self) {
        let learns = self.begun > 0 && !self.led;
        if learns && !self.timed {
            self.classes[self.class].rested(self.begun);
        } else if learns {
            let cost = self.cost();
            let (way, begun, enough) = (self.way, self.begun, self.probe());
            let class = &mut self.classes[self.class];
            match self.trial {
                true => class.tried(way, cost, begun, enough),
                false => class.learn(way, cost, begun),
            }
        }
        (self.begun, self.bytes, self.led) = (0, 0, false);
        (self.given, self.counted) = (0, 0);
        self.copied = Duration::ZERO;
        self.exchanging = self.exchanges > 0;
    }

    /// Records the result of the period that is over, and begins another one.
    pub(super) fn begin_period(&mut self, class: usize, allowed: impl Fn(Way) -> bool) {
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
    pub(super) fn choose(&mut self, allowed: impl Fn(Way) -> bool) -> (Way, u32, bool) {
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
    pub(super) fn probe(&self) -> u32 {
        let most = match self.classes[self.class].is_far_worse(self.way) {
            true => FEW,
            false => PROBE,
        };
        (PROBE_BYTES >> ((self.class % LENGTHS) as u32 + SHORTEST)).clamp(FEW, most)
    }
}

pub(super) fn class_of(len: usize, both: bool) -> usize {
    let log = len.max(1).ilog2().clamp(SHORTEST, LONGEST);
    (log - SHORTEST) as usize + if both { LENGTHS } else { 0 }
}
