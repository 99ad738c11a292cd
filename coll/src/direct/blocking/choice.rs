//! Boards or messages: measurements decide where neither is always better.
//!
//! Over boards data is copied twice, by all ranks at the same time. A long message may be copied
//! once, by a rank that may access the other's memory. Which way wins depends on the cost of moving
//! a line from one core to another, and on the system's cost of accessing another address space: a
//! factor of 1.7 in either direction was seen, on two machines, for the same length.
//!
//! So one of the ranks, the *judge*, times both ways for each kind of operation and each power of
//! two of the length. In the step in which ranks compare lengths it says which way to take. (In a
//! scatter there is no such step, because the root waits for nobody. There the judge is a rank that
//! receives; it says on its board what it wishes, and the root does so once it sees it. Operations
//! that go the other way do not count.) It compares the first quartile of the times, because most
//! disturbances make a measurement longer. It does not use the minimum, which is a matter of luck
//! where ranks take turns on processors: the rank that comes last to an operation finds everything
//! there. First come [`TRIALS`] operations each way, fewer over boards if they are [long](TRIED).
//! (For an alltoall of more than two ranks, boards are used first for as many operations as move
//! [`LATE`] bytes, and at least [`FEWEST`].)
//! Those by messages count once the device has had the messages that it needs to learn how to move
//! them ([`settling`]): until then it tries slow ways, too. Then the better way is used for
//! [`FIRST`] operations, the other for [`PROBE`], the better for twice as many as before, and so on
//! up to [`LAST`]. A trial of a way that is far worse ends early ([`HOPELESS`], and
//! [`HOPELESS_AT_FIRST`] until the device has learned). The clock is read only in trials and in the
//! same number of operations right before one; those are compared with each other.
//!
//! In an allgather, an alltoall and a short broadcast the other way is, where every rank can do it,
//! to copy from the other ranks' buffers ([`pulled`](crate::direct::blocking::pulled)): a device
//! needs not learn how. Messages remain for what does not lie in one piece, and where the system
//! forbids such copies.
//!
//! Only operations that move data are chosen this way. A reduction has to give the same bits from
//! run to run.

use std::sync::Mutex;

use portolan_core::Device;

use crate::direct::blocking::steps::Way;
use crate::direct::boards::board::Kind;
use crate::state::lock;

/// Operations that try boards, and messages, at first. They are many because those that use new
/// memory are not the fastest.
const TRIALS: [u32; 2] = [8, 12];
/// Long operations try boards in as many as move so many bytes, and at least [`LEAST_TRIALS`]: a
/// program may not have many of them, and the memory of boards is long known.
const TRIED: usize = 4 << 20;
const LEAST_TRIALS: u32 = 3;
/// Operations that try the other way later on, and operations that are timed before such a trial.
const PROBE: u32 = 4;
const MEASURED: u32 = 16;
/// A trial of the other way ends after three operations if even the fastest of them took more than
/// this many times as long as the better way.
const HOPELESS: f64 = 1.5;
/// The same for the first operations by messages, while the device learns: after how many of them,
/// and how many times as long.
const HOPELESS_AT_FIRST: (usize, f64) = (6, 4.0);
/// A device tries up to three ways up to three times each, with as many messages at a time as make
/// so many bytes, within these bounds (`TRIALS`, `PROBE_BYTES`, `FEW` and `PROBE` of the core's
/// `ways.rs`).
const LEARNS: usize = 2 << 20;
const LEARNS_WITH: (usize, usize) = (2, 8);
/// Operations between such trials, at first and in the long run.
const FIRST: u32 = 512;
const LAST: u32 = 4096;
/// Bytes that a rank receives from others before the first trial of messages, for operations in
/// which messages have little to gain: what takes a tenth of a second or more.
const LATE: usize = if cfg!(test) { 0 } else { 1 << 30 };
/// The fewest operations before that trial, however long they are. The trial of messages has a
/// third as many at most.
const FEWEST: u32 = if cfg!(test) { 8 } else { 256 };
/// Binary logarithms of the shortest and the longest lengths that are distinguished.
const SHORTEST: u32 = 14;
const LONGEST: u32 = 24;
const LENGTHS: usize = (LONGEST - SHORTEST + 1) as usize;
const KINDS: [Kind; 4] = [
    Kind::Bcast,
    Kind::AllgatherChosen,
    Kind::Alltoall,
    Kind::ScatterListed,
];

/// What the judge of a communicator knows.
#[derive(Debug)]
pub(in crate::direct) struct Choice(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// By kind, by whether the judge's data is where peers load it ([`Device::shares`]), and by
    /// length.
    classes: [[[Class; LENGTHS]; 2]; KINDS.len()],
    /// The operation under way: its class, when it began if it is measured, and whether ranks copy
    /// from each other's buffers.
    under_way: Option<([usize; 3], Option<f64>, bool)>,
}

impl Choice {
    /// For a communicator of `ranks` ranks, which copy from each other's buffers or not.
    pub(in crate::direct) fn new(ranks: u32, pull: bool) -> Self {
        Self::with(LATE, ranks, pull)
    }

    /// Ranks may not copy from each other's buffers after all. What has not been tried yet is tried
    /// as late as where they never could.
    pub(in crate::direct) fn pull_no_more(&self, ranks: u32) {
        let fresh = Self::new(ranks, false);
        let (known, fresh) = (&mut *lock(&self.0), lock(&fresh.0));
        for (kind, fresh) in known.classes.iter_mut().zip(&fresh.classes) {
            for (class, fresh) in kind.iter_mut().flatten().zip(fresh.iter().flatten()) {
                if class.cost[1].is_infinite() && !fresh.trial {
                    *class = *fresh;
                }
            }
        }
    }

    /// `bytes` bytes are received before the first trial of messages in operations in which
    /// messages have little to gain.
    fn with(bytes: usize, ranks: u32, pull: bool) -> Self {
        let class = |kind, shared, index| {
            let length = SHORTEST + index as u32;
            let left = match (kind, shared, ranks) {
                (Kind::Bcast | Kind::ScatterListed, ..) | (_, true, _) | (.., 2) => None,
                (Kind::Alltoall, ..) if pull => None,
                _ => Some(late(bytes, length, ranks)),
            };
            Class {
                // Data that is loaded where it is has one way only.
                settling: if shared { 0 } else { settling(length) },
                ..left.map_or(Class::first(length), Class::later)
            }
        };
        let of = |kind| {
            [false, true].map(|shared| std::array::from_fn(|index| class(kind, shared, index)))
        };
        Self(Mutex::new(Known {
            classes: KINDS.map(of),
            under_way: None,
        }))
    }

    /// An operation begins at the judge, whose data is `shared` or not. Returns the way it takes.
    pub(in crate::direct) fn begin(
        &self,
        (kind, len): (Kind, usize),
        shared: bool,
        now: impl FnOnce() -> f64,
    ) -> Way {
        let known = &mut *lock(&self.0);
        let kind = KINDS.iter().position(|&known| known == kind).unwrap_or(0);
        let at = [kind, usize::from(shared), index_of(len)];
        let class = known.class(at);
        let (way, is_measured) = (class.way(), class.is_measured());
        known.under_way = Some((at, is_measured.then(now), false));
        way
    }

    /// The operation that began, if any, has ended.
    fn end(&self, now: impl FnOnce() -> f64) {
        let known = &mut *lock(&self.0);
        if let Some((at, since, pulled)) = known.under_way.take() {
            let class = known.class(at);
            if pulled {
                class.is_learned();
            }
            class.ended(since.map(|since| now() - since));
        }
    }

    /// In the operation that began, ranks copy from each other's buffers.
    pub(in crate::direct) fn pulls(&self) {
        if let Some((.., pulled)) = &mut lock(&self.0).under_way {
            *pulled = true;
        }
    }

    /// As [`begin`](Self::begin), for the judge's part in a scatter: `len` bytes.
    pub(in crate::direct) fn begin_part(&self, len: usize, now: impl FnOnce() -> f64) {
        self.begin((Kind::ScatterListed, len), false, now);
    }

    /// Ends what [`begin_part`](Self::begin_part) began. The root has taken `way`, or has not sent
    /// the part.
    pub(in crate::direct) fn end_part(&self, way: Option<Way>, now: impl FnOnce() -> f64) {
        let wanted = {
            let known = &mut *lock(&self.0);
            let at = known.under_way.map(|(at, ..)| at);
            at.map(|at| known.class(at).way())
        };
        if way.is_some() && way == wanted {
            self.end(now);
        } else {
            self.forget();
        }
    }

    /// The lengths of parts that the judge of scatters wants as messages: a bit for each power of
    /// two ([`is_wished`]).
    pub(in crate::direct) fn wishes(&self) -> u32 {
        let classes = &lock(&self.0).classes;
        let scatters = KINDS.iter().position(|&kind| kind == Kind::ScatterListed);
        let of = scatters.map_or(&[][..], |kind| &classes[kind][0]);
        let bits = of.iter().enumerate();
        bits.fold(0, |bits, (at, class)| bits | (class.way as u32) << at)
    }

    /// The operation that began did not take place, or not as it was said.
    pub(in crate::direct) fn forget(&self) {
        lock(&self.0).under_way = None;
    }
}

impl Known {
    fn class(&mut self, [kind, shared, length]: [usize; 3]) -> &mut Class {
        &mut self.classes[kind][shared][length]
    }
}

/// The index of the class of a length.
fn index_of(len: usize) -> usize {
    (len.max(1).ilog2().clamp(SHORTEST, LONGEST) - SHORTEST) as usize
}

/// Whether a part of `len` bytes is among those of [`Choice::wishes`].
pub(in crate::direct) fn is_wished(wishes: u32, len: usize) -> bool {
    wishes & (1 << index_of(len)) != 0
}

/// How many operations come before the first trial of messages: as many as bring a rank `bytes`
/// bytes from others, in blocks of 2 to the power of `length` bytes.
fn late(bytes: usize, length: u32, ranks: u32) -> u32 {
    let others = ranks.saturating_sub(1).max(1) as usize;
    let operations = (bytes >> length) / others;
    FEWEST.max(operations as u32)
}

/// How many operations of 2 to the power of `length` bytes try boards at first.
pub(in crate::direct) fn trials(length: u32) -> u32 {
    ((TRIED >> length) as u32).clamp(LEAST_TRIALS, TRIALS[0])
}

/// How many messages of 2 to the power of `length` bytes a device needs to learn how to move them.
fn settling(length: u32) -> u32 {
    let (least, most) = LEARNS_WITH;
    9 * (LEARNS >> length).clamp(least, most) as u32
}

/// What is known about operations of one kind and of similar length.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) struct Class {
    /// Seconds over boards and by messages; infinite if not known.
    cost: [f64; 2],
    /// The way that is taken now, and for how many more operations.
    way: usize,
    left: u32,
    /// Whether these operations are a trial.
    trial: bool,
    times: Times,
    /// Operations until the next trial.
    pause: u32,
    /// Operations by messages that come before those that try them first.
    settling: u32,
}

impl Class {
    pub(in crate::direct) const NEW: Self = Self {
        cost: [f64::INFINITY; 2],
        way: 0,
        left: TRIALS[0],
        trial: true,
        times: Times::NONE,
        pause: FIRST,
        settling: 0,
    };

    /// For operations of 2 to the power of `length` bytes, which begin with the trial of boards.
    fn first(length: u32) -> Self {
        Self {
            left: trials(length),
            ..Self::NEW
        }
    }

    /// The first trial of the other way comes at once where it may copy once instead of twice: for
    /// a broadcast, a scatter, data that its readers load where it is, and where ranks copy from
    /// each other's buffers. So it does for two ranks, because on some machines their exchange
    /// takes half as long by messages. Other operations have little to gain, because all ranks copy
    /// at the same time anyway; they go over boards until a rank has received [`LATE`] bytes by
    /// them, in as many operations as `late` says. The reason is that the first long messages
    /// between many ranks take longer than later ones (eight ranks' first alltoalls of 64 KiB 0.77
    /// ms, later ones 0.44, boards 0.33).
    const fn later(late: u32) -> Self {
        Self {
            left: late,
            trial: false,
            ..Self::NEW
        }
    }

    /// There is nothing that a device would have to learn.
    fn is_learned(&mut self) {
        if self.way == 1 && self.trial {
            self.left = self.left.min(TRIALS[1]);
        }
    }

    fn way(&self) -> Way {
        [Way::Done, Way::Messages][self.way]
    }

    /// Whether the next operation goes the other way, not over boards. (For contributions on tracks
    /// it is that they are lent: [`lending`](crate::direct::tracks::lending).)
    pub(in crate::direct) fn wishes_other(&self) -> bool {
        self.way != 0
    }

    /// Whether the next operation is timed.
    pub(in crate::direct) fn is_measured(&self) -> bool {
        self.trial || self.left <= MEASURED
    }

    /// The other way is not possible. It is tried again as late as a worse one.
    pub(in crate::direct) fn leave_other(&mut self) {
        if !self.wishes_other() {
            return;
        }
        self.cost[self.way] = f64::INFINITY;
        (self.left, self.times) = (1, Times::NONE);
        self.ended(None);
    }

    /// An operation has ended, which has taken so many seconds if it was timed.
    pub(in crate::direct) fn ended(&mut self, seconds: Option<f64>) {
        let other = 1 - self.way;
        if let Some(seconds) = seconds {
            self.times.add(seconds);
        }
        self.left -= 1;
        // No other trial is as long as the first one by messages.
        let settles = self.trial && self.left >= TRIALS[1];
        let (enough, far) = if settles {
            HOPELESS_AT_FIRST
        } else {
            (3, HOPELESS)
        };
        let hopeless =
            self.trial && self.times.count >= enough && self.times.least() > far * self.cost[other];
        if settles && self.left == TRIALS[1] && !hopeless {
            self.times = Times::NONE;
        }
        if self.left > 0 && !hopeless {
            return;
        }
        let best = |cost: &[f64; 2]| usize::from(cost[1] < cost[0]);
        let before = best(&self.cost);
        if self.times.count > 0 {
            self.cost[self.way] = self.times.quarter();
        }
        self.times = Times::NONE;
        (self.way, self.left, self.trial) = if self.cost[other].is_infinite() {
            let settling = if other == 1 { self.settling } else { 0 };
            (other, settling + TRIALS[other], true)
        } else if self.trial {
            let best = best(&self.cost);
            self.pause = if best == before {
                (self.pause * 2).min(LAST)
            } else {
                FIRST
            };
            (best, self.pause, false)
        } else {
            (other, PROBE, true)
        };
    }
}

/// The shortest of a number of times, in ascending order.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// How many times were added.
    count: usize,
    least: [f64; Self::KEPT],
}

impl Times {
    /// A quarter of all times that are added, and one more.
    const KEPT: usize = MEASURED as usize / 4 + 1;
    const NONE: Self = Self {
        count: 0,
        least: [f64::INFINITY; Self::KEPT],
    };

    fn add(&mut self, seconds: f64) {
        let mut seconds = seconds;
        for kept in &mut self.least {
            if seconds < *kept {
                std::mem::swap(kept, &mut seconds);
            }
        }
        self.count += 1;
    }

    fn least(&self) -> f64 {
        self.least[0]
    }

    /// The first quartile: a quarter of all times are shorter.
    fn quarter(&self) -> f64 {
        self.least[(self.count / 4).min(Self::KEPT - 1)]
    }
}

const _: () = assert!(TRIALS[0] <= MEASURED && TRIALS[1] <= MEASURED && PROBE <= MEASURED);

/// An operation about which ranks agreed has ended.
pub(in crate::direct) fn over<D: Device>(choice: &Choice, device: &D) {
    choice.end(|| device.wtime());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs operations that take `cost` over boards and by messages. Returns how many went by
    /// messages.
    fn go(class: &mut Class, operations: u32, cost: [f64; 2]) -> u32 {
        let by_messages = |_: &u32| {
            let (way, measured) = (class.way, class.is_measured());
            class.ended(measured.then_some(cost[way]));
            way == 1
        };
        (0..operations).filter(by_messages).count() as u32
    }

    #[test]
    fn both_ways_are_tried_and_then_the_better_one_is_taken() {
        let trials = TRIALS[0] + TRIALS[1];
        for cost in [[1.0, 1.2], [1.2, 1.0]] {
            let mut class = Class::NEW;
            assert_eq!(go(&mut class, trials, cost), TRIALS[1]);
            let best = usize::from(cost[1] < cost[0]);
            let by_messages = go(&mut class, 10_000, cost);
            let other = if best == 1 {
                10_000 - by_messages
            } else {
                by_messages
            };
            assert!(other > 0 && other <= 5 * PROBE, "{other}");
        }
    }

    #[test]
    fn blocks_are_not_tried_by_messages_before_they_are_many() {
        for (first, mut class) in [(TRIALS[0], Class::NEW), (FEWEST, Class::later(FEWEST))] {
            assert_eq!(go(&mut class, first, [1.0, 0.5]), 0);
            assert_eq!(go(&mut class, 100, [1.0, 0.5]), 100, "{first}");
        }
    }

    #[test]
    fn the_longer_the_blocks_the_fewer_come_before_the_first_trial() {
        assert_eq!(late(1 << 30, 16, 2), 16 << 10);
        assert_eq!(late(1 << 30, 20, 2), 1 << 10);
        assert_eq!(late(1 << 30, 20, 8), 146);
        assert_eq!(late(1 << 30, LONGEST, 200), FEWEST);
    }

    #[test]
    fn each_kind_and_length_begins_with_as_many_operations_as_move_so_many_bytes() {
        for ranks in [2, 3, 8] {
            let choice = Choice::with(1 << 30, ranks, false);
            let classes = lock(&choice.0).classes;
            for length in [16, 20] {
                let left = |kind, shared: bool| {
                    let kind = KINDS.iter().position(|&known| known == kind).unwrap();
                    classes[kind][usize::from(shared)][(length - SHORTEST) as usize].left
                };
                let operations = match ranks {
                    2 => trials(length),
                    _ => (1 << (30 - length)) / (ranks - 1),
                };
                for kind in [Kind::AllgatherChosen, Kind::Alltoall] {
                    assert_eq!(left(kind, false), operations);
                    assert_eq!(left(kind, true), trials(length), "copied once");
                    let trial = classes[0][0][(length - SHORTEST) as usize].trial;
                    assert!(trial, "a broadcast tries at once");
                }
                assert_eq!(left(Kind::Bcast, false), trials(length));
                assert_eq!(left(Kind::ScatterListed, false), trials(length));
                let pulls = lock(&Choice::with(1 << 30, ranks, true).0).classes;
                let alltoall = KINDS.iter().position(|&known| known == Kind::Alltoall);
                let class = pulls[alltoall.unwrap()][0][(length - SHORTEST) as usize];
                assert_eq!(class.left, trials(length), "there is nothing to learn");
            }
        }
    }

    #[test]
    fn the_longer_the_operations_the_fewer_try_boards() {
        let all = [14, 19, 20, 21, LONGEST].map(trials);
        assert_eq!(all, [8, 8, 4, 3, 3]);
    }

    #[test]
    fn a_way_that_becomes_slow_is_left() {
        let mut class = Class::NEW;
        go(&mut class, 5000, [1.0, 2.0]);
        assert_eq!(class.way, 0);
        go(&mut class, 2 * LAST, [3.0, 2.0]);
        assert!(go(&mut class, 2000, [3.0, 2.0]) > 1900);
    }

    #[test]
    fn one_disturbed_operation_changes_nothing() {
        let mut class = Class::NEW;
        go(&mut class, 1, [90.0, 90.0]);
        go(&mut class, TRIALS[0] + TRIALS[1], [1.0, 2.0]);
        assert_eq!(class.way, 0);
    }

    #[test]
    fn one_lucky_operation_changes_nothing() {
        let mut class = Class::NEW;
        go(&mut class, TRIALS[0], [1.0, 2.0]);
        go(&mut class, 1, [1.0, 0.1]);
        go(&mut class, TRIALS[1] - 1, [1.0, 2.0]);
        assert_eq!((class.way, class.trial), (0, false));
    }

    #[test]
    fn a_hopeless_trial_ends_early() {
        let mut class = Class::NEW;
        assert_eq!(go(&mut class, 100, [1.0, 2.0]), 3);
        // But not because the operations were slow at first.
        let mut class = Class::NEW;
        go(&mut class, TRIALS[0], [1.0, 0.5]);
        go(&mut class, 2, [1.0, 5.0]);
        assert_eq!(go(&mut class, 100, [1.0, 0.5]), 100);
    }

    #[test]
    fn messages_are_judged_by_what_the_device_has_learned() {
        let (boards, settling) = (TRIALS[0], settling(18));
        assert_eq!(settling, 72);
        for (first, then, wins) in [(3.0, 0.5, true), (3.9, 1.1, false), (0.5, 1.1, false)] {
            let mut class = Class {
                settling,
                ..Class::NEW
            };
            assert_eq!(go(&mut class, boards, [1.0, then]), 0);
            assert_eq!(go(&mut class, settling, [1.0, first]), settling, "{first}");
            assert_eq!(go(&mut class, TRIALS[1], [1.0, then]), TRIALS[1]);
            let later = go(&mut class, 500, [1.0, then]);
            assert_eq!(later, if wins { 500 } else { 0 }, "{first}, then {then}");
        }
        // What is out of the question ends at once.
        let mut class = Class {
            settling,
            ..Class::NEW
        };
        go(&mut class, boards, [1.0, 15.0]);
        let few = HOPELESS_AT_FIRST.0 as u32;
        assert_eq!(go(&mut class, 500, [1.0, 15.0]), few);
    }

    #[test]
    fn the_longer_the_messages_the_fewer_a_device_learns_with() {
        let all = [14, 18, 19, 20, LONGEST].map(settling);
        assert_eq!(all, [72, 72, 36, 18, 18]);
    }

    #[test]
    fn a_quarter_is_shorter_than_that() {
        for count in 1..=MEASURED {
            let mut times = Times::NONE;
            // In a scrambled order that contains each time once, because 7 and 17 have no common
            // divisor.
            let all: Vec<u32> = (0..17).map(|turn| turn * 7 % 17).collect();
            (all.iter().filter(|&&time| time < count)).for_each(|&time| times.add(time.into()));
            assert_eq!(times.least(), 0.0);
            assert_eq!(times.quarter(), f64::from(count / 4));
        }
    }

    #[test]
    fn what_has_come_to_nothing_does_not_count() {
        let choice = Choice::new(2, false);
        for _ in 0..100 {
            assert_eq!(
                choice.begin((Kind::Bcast, 1 << 16), false, || 0.0),
                Way::Done
            );
            choice.forget();
            choice.end(|| 1.0);
        }
        // Other lengths and kinds are counted separately.
        for _ in 0..TRIALS[0] {
            assert_eq!(
                choice.begin((Kind::Bcast, 1 << 16), false, || 0.0),
                Way::Done
            );
            choice.end(|| 1.0);
        }
        let way = |kind, len| choice.begin((kind, len), false, || 0.0);
        assert_eq!(way(Kind::Bcast, 1 << 16), Way::Messages);
        assert_eq!(way(Kind::Bcast, 1 << 17), Way::Done);
        assert_eq!(way(Kind::Alltoall, 1 << 16), Way::Done);
        assert_eq!(way(Kind::Bcast, usize::MAX), Way::Done);
    }

    #[test]
    fn parts_that_come_another_way_than_wished_do_not_count() {
        let choice = Choice::new(2, false);
        let len = 1 << 16;
        let part = |way| {
            choice.begin_part(len, || 0.0);
            choice.end_part(way, || if way == Some(Way::Done) { 2.0 } else { 1.0 });
            is_wished(choice.wishes(), len)
        };
        for _ in 1..TRIALS[0] {
            assert!(!part(Some(Way::Done)));
            assert!(!part(Some(Way::Messages)), "the root has no memory");
            assert!(!part(None), "the root has done something else");
        }
        assert!(part(Some(Way::Done)), "now the other way is tried");
        for _ in 0..100 {
            assert!(part(Some(Way::Done)), "the root has not seen it");
        }
        // Messages are better.
        for _ in 0..settling(16) + TRIALS[1] + FIRST - MEASURED {
            assert!(part(Some(Way::Messages)));
        }
        for other in [len / 2, 2 * len] {
            assert!(!is_wished(choice.wishes(), other), "a length of its own");
        }
    }
}
