//! What is known of messages of similar length: what each way costs, and which one is next.

use crate::engine::long::ways::sender::PERIOD;
use crate::engine::long::ways::{ALL, Way};

/// Periods that try a way before its cost is believed. More than one, because the first may have to
/// allocate the memory that it goes through.
pub(super) const TRIALS: u8 = 3;
/// Of a way that is not the best, the least cost of this many periods counts: nearly all memory
/// that they find may be new to it.
pub(super) const WARM: u8 = 8;
/// Among the first this many measured copies, the shortest counts.
pub(super) const COLD: u8 = 8;
/// The most that one measurement counts for, as a multiple of the known cost. (With 4, one period
/// that the host interrupted made a way look 1.75 times as expensive, and another one was taken for
/// the next 512 transfers.)
pub(super) const WORST: u64 = 2;
/// Transfers, the first trials among them, after which another way is tried again for the first
/// time. Soon, because the first trials may all have found memory that nobody had touched before.
pub(super) const EARLY_RETRY: u32 = 128;
/// The same, at the least, once the best way has changed.
pub(super) const FIRST_RETRY: u32 = 512;
/// The same, once it has doubled as often as it may.
pub(super) const LAST_RETRY: u32 = 4096;
/// A way that costs this many times as much as the best one is far worse. (At most 2, for what a
/// pull tells about a split: `is_left_out`.)
pub(super) const FAR_WORSE: u64 = 2;

/// What is known of messages of similar length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    /// Picoseconds per byte.
    pub(super) cost: [u64; ALL.len()],
    pub(super) trials: [u8; ALL.len()],
    /// Whether the cost was taken over from another length.
    pub(super) believed: [bool; ALL.len()],
    /// Picoseconds per byte of the unasked message that a stream stands for; and the number of
    /// copies that were measured.
    pub(super) unasked: Option<u64>,
    pub(super) copies: u8,
    /// A way being tried: the way, its transfers so far, and its least cost.
    pub(super) trying: Option<(Way, u32, u64)>,
    /// Transfers until another way is tried; and how many there were at the last reset.
    pub(super) left: u32,
    pub(super) retry: u32,
    /// Which of the other ways is tried next.
    pub(super) turn: usize,
}

impl Class {
    pub(super) const NEW: Self = Self {
        cost: [0; ALL.len()],
        trials: [0; ALL.len()],
        believed: [false; ALL.len()],
        unasked: None,
        copies: 0,
        trying: None,
        left: EARLY_RETRY,
        retry: EARLY_RETRY,
        turn: 0,
    };

    pub(super) fn is_new(&self) -> bool {
        self.trials == Self::NEW.trials
    }

    pub(super) fn is_tried(&self, way: Way) -> bool {
        self.trials[way as usize] >= TRIALS
    }

    /// The best of the ways that have been tried at all.
    pub(super) fn best(&self) -> Option<Way> {
        let tried = ALL.into_iter().filter(|&way| self.trials[way as usize] > 0);
        tried.min_by_key(|&way| self.price(way))
    }

    /// Whether a way is known to cost a multiple of the best way's cost. One trial does not tell:
    /// the first of all may make a system call, or use memory, for the first time in a process.
    pub(super) fn is_far_worse(&self, way: Way) -> bool {
        let best = self.best().filter(|&best| self.is_tried(best));
        let far = |best| self.price(way) >= FAR_WORSE * self.price(best);
        self.trials[way as usize] > 1 && !self.believed[way as usize] && best.is_some_and(far)
    }

    /// Whether a way is left out of the first trials: splits are, if pulls are far worse than the
    /// best way. A split takes at least half of a pull, which is no less than the best way then.
    fn is_left_out(&self, way: Way) -> bool {
        let half = self.price(Way::Pull) / FAR_WORSE;
        let best = self.best().filter(|&best| self.is_tried(best));
        let is_worse = best.is_some_and(|best| half >= self.price(best));
        let never_tried = way == Way::Split && self.trials[way as usize] == 0;
        never_tried && self.is_tried(Way::Pull) && is_worse
    }

    /// The way of a period, and whether the period is a trial.
    pub(super) fn choose(&mut self, allowed: impl Fn(Way) -> bool) -> (Way, bool) {
        let ways = || ALL.into_iter().filter(|&way| allowed(way));
        if let Some((way, ..)) = self.trying.filter(|&(way, ..)| allowed(way)) {
            return (way, true);
        }
        let untried = |&way: &Way| !self.is_tried(way) && !self.is_left_out(way);
        if let Some(way) = ways().find(untried) {
            return (way, true);
        }
        let known = ways().filter(|&way| self.is_tried(way));
        let best = known.min_by_key(|&way| self.price(way));
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
    pub(super) fn price(&self, way: Way) -> u64 {
        let cost = self.cost[way as usize];
        let unasked = self.unasked.filter(|_| way == Way::Stream);
        unasked.map_or(cost, |unasked| cost.min(unasked))
    }

    /// Notes what a message would have cost unasked. The first copies find page tables and caches
    /// cold; an interrupted copy counts for little.
    pub(super) fn would_cost(&mut self, cost: u64) {
        let known = self.unasked.unwrap_or(cost);
        let cost = match self.copies {
            ..COLD => cost.min(known),
            _ => (3 * known + cost.min(2 * known)).div_ceil(4),
        };
        self.unasked = Some(cost.max(1));
        self.copies = self.copies.saturating_add(1);
    }

    /// Notes that so many transfers have taken the best way without being measured.
    pub(super) fn rested(&mut self, transfers: u32) {
        self.left = self.left.saturating_sub(transfers);
    }

    /// Notes the result of a period that has tried a way. Where transfers are far apart, a period
    /// is one transfer, and the best of several periods counts, because the first finds the caches
    /// as the previous way has left them.
    pub(super) fn tried(&mut self, way: Way, cost: u64, transfers: u32, enough: u32) {
        let so_far = self.trying.take().filter(|&(trying, ..)| trying == way);
        let (_, before, least) = so_far.unwrap_or((way, 0, u64::MAX));
        let goes_on = !self.is_far_worse(way) && self.is_promising(way, cost, so_far);
        let (transfers, least) = (before + transfers, least.min(cost));
        if transfers < enough || goes_on && transfers < 2 * PERIOD {
            self.trying = Some((way, transfers, least));
        } else {
            self.learn(way, least, transfers);
        }
    }

    /// Whether a trial of a way should go on, after a period that cost this much: the way may be
    /// the best, and gets better. Its first periods find the memory of a window's first messages as
    /// another way has left it.
    fn is_promising(&self, way: Way, cost: u64, so_far: Option<(Way, u32, u64)>) -> bool {
        let others = ALL
            .into_iter()
            .filter(|&other| other != way && self.trials[other as usize] > 0);
        let best = others.map(|other| self.price(other)).min();
        let better = so_far.is_none_or(|(.., least)| cost < least - least / 16);
        better && best.is_some_and(|best| 2 * cost < 3 * best)
    }

    pub(super) fn learn(&mut self, way: Way, cost: u64, transfers: u32) {
        let before = self.best();
        let believed = std::mem::replace(&mut self.believed[way as usize], false);
        let (known, trials) = (&mut self.cost[way as usize], &mut self.trials[way as usize]);
        *known = match *trials {
            _ if believed => cost,
            0 => cost,
            // The first ones find caches and page tables cold.
            1..TRIALS => cost.min(*known),
            TRIALS..WARM if before != Some(way) => cost.min(*known),
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
