//! Runs the schedules of all ranks against each other without any device, for tests of algorithms.
//!
//! This does whatever a device may do, in an order drawn from a seed. Messages of one lane between
//! two ranks match in the order of starting. Their bytes are read as early as the send starts or as
//! late as the sender waits, and are written at any time before the receiver's wait ends. No send
//! completes before its receive has started. A schedule that passes under many seeds relies only on
//! what [`crate::schedule`] promises.

use std::collections::BTreeMap;

use portolan_datatype::{Layout, MsgRep, Op};

use crate::algorithms::{Algorithm, Ask};
use crate::exact::{Convert, convert};
use crate::schedule::{Base, Builder, Schedule, Span, Step};
use crate::team::Team;

/// Numbers of ranks with which algorithms are tested.
pub(crate) const SIZES: [u32; 10] = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16];

/// Layouts and counts with which data movement is tested: nothing, one item, fewer and more items
/// than ranks, contiguous, with gaps, with an extent smaller than the reach of the data, with a
/// lower bound below 0.
pub(crate) fn layouts() -> Vec<(Layout, usize)> {
    let int = Layout::of::<u32>();
    let column = Layout::vector(3, 1, 4, &int).expect("a legal vector");
    let woven = Layout::resized(&column, 0, 4).expect("a legal extent");
    let below = Layout::hindexed(&[1, 1], &[-8, 4], &int).expect("legal displacements");
    let below = Layout::resized(&below, -8, 16).expect("a legal extent");
    let backwards = Layout::resized(&int, 0, -8).expect("a legal extent");
    let above = Layout::hindexed_block(1, &[8], &int).expect("legal displacements");
    let above = Layout::resized(&above, 8, 12).expect("a legal extent");
    let counts = [0, 1, 2, 3, 5, 16, 37, 400];
    let mut all: Vec<_> = counts.iter().map(|&n| (int.clone(), n)).collect();
    all.extend([(Layout::byte(), 70_001), (column.clone(), 1), (column, 23)]);
    all.extend([(woven, 4), (below.clone(), 1), (below, 19)]);
    all.extend([(backwards.clone(), 1), (backwards, 17), (above, 18)]);
    all
}

/// All ranks of one operation.
pub(crate) struct Simulation {
    ranks: Vec<Rank>,
    random: Random,
    channels: BTreeMap<(u32, u32, u8), Channel>,
}

#[derive(Default)]
struct Rank {
    schedule: Schedule,
    memory: [Vec<u8>; 3],
    /// The position of offset 0 in each memory.
    origins: [isize; 3],
    next: usize,
    /// Number of started messages that are not over.
    pending: usize,
    sent: usize,
}

/// Messages from one rank to another in one lane.
#[derive(Default)]
struct Channel {
    sends: Vec<Sending>,
    recvs: Vec<Span>,
    matched: usize,
}

struct Sending {
    span: Span,
    /// The bytes, if they were read at the start.
    early: Option<Vec<u8>>,
}

/// A small random number generator: the same seed gives the same numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end
    }
}

impl Simulation {
    /// `size` ranks without memory.
    pub(crate) fn new(size: u32, seed: u64) -> Self {
        Self {
            ranks: (0..size).map(|_| Rank::default()).collect(),
            random: Random::new(seed),
            channels: BTreeMap::new(),
        }
    }

    pub(crate) fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Gives every rank room for `count` items in a memory, filled with bytes that differ between
    /// ranks, and returns the offset of the first item.
    pub(crate) fn fill(&mut self, base: Base, layout: &Layout, count: usize) -> isize {
        self.fill_with(base, layout, count, |random, _, _| random.next() as u8)
    }

    /// The same with bytes that the caller chooses by rank and position in the memory.
    pub(crate) fn fill_with(
        &mut self,
        base: Base,
        layout: &Layout,
        count: usize,
        mut byte: impl FnMut(&mut Random, u32, usize) -> u8,
    ) -> isize {
        let reach = layout.span(count).expect("a small reach");
        let len = (reach.end - reach.start) as usize;
        for (rank, state) in (0..).zip(&mut self.ranks) {
            let memory = (0..len).map(|at| byte(&mut self.random, rank, at));
            state.memory[base as usize] = memory.collect();
        }
        -reach.start
    }

    /// Gives a rank a memory with these bytes; offset 0 of its spans is at index `origin`.
    pub(crate) fn set_memory(&mut self, rank: u32, base: Base, bytes: Vec<u8>, origin: isize) {
        let state = &mut self.ranks[rank as usize];
        state.memory[base as usize] = bytes;
        state.origins[base as usize] = origin;
    }

    /// A rank's memory.
    pub(crate) fn memory(&self, rank: u32, base: Base) -> &[u8] {
        &self.ranks[rank as usize].memory[base as usize]
    }

    /// The packed data of `count` items for which [`fill`](Self::fill) has made room.
    pub(crate) fn packed(&self, rank: u32, base: Base, layout: &Layout, count: usize) -> Vec<u8> {
        let reach = layout.span(count).expect("a small reach");
        let memory = &self.ranks[rank as usize].memory[base as usize];
        let mut packed = vec![0; layout.size() * count];
        let at = memory.as_ptr().wrapping_offset(-reach.start);
        // SAFETY: the memory has the reach of `count` items.
        let len = unsafe {
            let to = packed.as_mut_ptr();
            layout.pack_range(at, count, 0, to, packed.len(), MsgRep::Native)
        };
        assert_eq!(len, packed.len());
        packed
    }

    /// Writes every rank's schedule.
    pub(crate) fn schedule_all(&mut self, mut write: impl FnMut(&mut Builder)) {
        let size = self.size();
        // Only used by trees that have a choice of radix.
        let radix = [4, 2, 3, 5, 8][self.random.below(5)];
        for (rank, state) in (0..).zip(&mut self.ranks) {
            let mut builder = Builder::new(Team::all(rank, size));
            builder.set_radix(radix);
            write(&mut builder);
            state.schedule = builder.finish();
            // Scratch memory may contain anything.
            let garbage = (0..state.schedule.scratch).map(|at| (at * 37 + 11) as u8);
            state.memory[Base::Scratch as usize] = garbage.collect();
            (state.next, state.pending, state.sent) = (0, 0, 0);
        }
        self.channels.clear();
    }

    /// Writes every rank's schedule by an algorithm, if it fits the problem; returns whether it
    /// does.
    pub(crate) fn schedule_fitting<P>(
        &mut self,
        algorithm: &Algorithm<P>,
        items: usize,
        layout: &Layout,
        mut problem: impl FnMut(&mut Builder) -> P,
    ) -> bool {
        let ask = Ask {
            ranks: self.size(),
            bytes: items * layout.size(),
            items,
        };
        let mut fitting = Vec::new();
        self.schedule_all(|b| {
            let problem = problem(b);
            fitting.push((algorithm.fits)(&problem, &ask));
            if fitting.last() == Some(&true) {
                (algorithm.build)(b, &problem);
            }
        });
        let all = fitting.iter().all(|&fits| fits);
        let none = fitting.iter().all(|&fits| !fits);
        assert!(all || none, "{} fits on some ranks only", algorithm.name);
        all
    }

    /// A rank's schedule.
    pub(crate) fn schedule(&self, rank: u32) -> &Schedule {
        &self.ranks[rank as usize].schedule
    }

    /// Messages that a rank has sent.
    #[allow(dead_code)]
    pub(crate) fn sent(&self, rank: u32) -> usize {
        self.ranks[rank as usize].sent
    }

    /// Times that a rank's schedule waits.
    pub(crate) fn waits(&self, rank: u32) -> usize {
        self.ranks[rank as usize].schedule.waits()
    }

    /// Runs all schedules to their end.
    ///
    /// # Panics
    /// If ranks wait for each other for ever, if lengths differ, if a send buffer is written, or if
    /// a message is left over.
    pub(crate) fn run(&mut self, name: &str) {
        self.run_without(None);
        for (rank, state) in self.ranks.iter().enumerate() {
            let (next, steps) = (state.next, &state.schedule.steps);
            assert_eq!(
                next,
                steps.len(),
                "{name}: rank {rank} is stuck in {steps:?}"
            );
        }
        for (channel, messages) in &self.channels {
            let (sends, recvs) = (messages.sends.len(), messages.recvs.len());
            assert_eq!(
                (sends, recvs),
                (messages.matched, messages.matched),
                "{name}: {channel:?}"
            );
        }
    }

    /// Runs the schedules several times, each time with a different rank that does not begin, and
    /// checks that no rank ends.
    pub(crate) fn assert_synchronises(&mut self, name: &str) {
        for absent in 0..self.size() {
            for state in &mut self.ranks {
                (state.next, state.pending, state.sent) = (0, 0, 0);
            }
            self.channels.clear();
            self.run_without(Some(absent));
            for (rank, state) in (0..).zip(&self.ranks) {
                let over = state.next == state.schedule.steps.len();
                assert!(
                    !over || (rank == absent && self.size() == 1),
                    "{name}: rank {rank} of {} leaves before rank {absent} has come",
                    self.size()
                );
            }
            self.run_without(None);
            let over = |state: &Rank| state.next == state.schedule.steps.len();
            assert!(self.ranks.iter().all(over), "{name}: ranks are stuck");
        }
    }

    /// Lets ranks take steps and messages travel, in any order, until nothing is left to do.
    fn run_without(&mut self, absent: Option<u32>) {
        loop {
            let ranks: Vec<u32> = (0..self.size())
                .filter(|&rank| Some(rank) != absent && self.can_step(rank))
                .collect();
            let deliverable = |c: &Channel| c.matched < c.sends.len().min(c.recvs.len());
            let travelling = self.channels.iter();
            let ready: Vec<_> = travelling
                .filter(|(_, channel)| deliverable(channel))
                .map(|(&key, _)| key)
                .collect();
            let choices = ranks.len() + ready.len();
            if choices == 0 {
                return;
            }
            let choice = self.random.below(choices);
            match ranks.get(choice) {
                Some(&rank) => self.step(rank),
                None => self.deliver(ready[choice - ranks.len()]),
            }
        }
    }

    fn can_step(&self, rank: u32) -> bool {
        let state = &self.ranks[rank as usize];
        match state.schedule.steps.get(state.next) {
            None => false,
            Some(Step::Wait) => state.pending == 0,
            Some(_) => true,
        }
    }

    fn step(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        let step = state.schedule.steps[state.next];
        state.next += 1;
        match step {
            Step::Send { to, lane, data } => {
                state.pending += 1;
                state.sent += 1;
                let early = self.random.next().is_multiple_of(2);
                let early = early.then(|| state.read(data));
                let channel = self.channels.entry((rank, to, lane)).or_default();
                channel.sends.push(Sending { span: data, early });
            }
            Step::Recv { from, lane, data } => {
                state.pending += 1;
                let channel = self.channels.entry((from, rank, lane)).or_default();
                channel.recvs.push(data);
            }
            Step::Wait => {}
            Step::Copy { from, to } => {
                let bytes = state.read(from);
                state.write(to, &bytes);
            }
            Step::Combine { left, right } => state.combine(left, right),
            Step::Convert { how, from, to } => state.convert(how, from, to),
            Step::Compare(_) => unreachable!("algorithms do not compare"),
        }
    }

    fn deliver(&mut self, (from, to, lane): (u32, u32, u8)) {
        let channel = self
            .channels
            .get_mut(&(from, to, lane))
            .expect("it is there");
        let (index, target) = (channel.matched, channel.recvs[channel.matched]);
        channel.matched += 1;
        let early = channel.sends[index].early.take();
        let bytes =
            early.unwrap_or_else(|| self.ranks[from as usize].read(channel.sends[index].span));
        assert_eq!(bytes.len(), target.len(), "a message from {from} to {to}");
        self.ranks[to as usize].write(target, &bytes);
        self.ranks[from as usize].pending -= 1;
        self.ranks[to as usize].pending -= 1;
    }
}

impl Rank {
    fn at(&mut self, mut span: Span) -> *mut u8 {
        span.offset += self.origins[span.base as usize];
        let memory = &mut self.memory[span.base as usize];
        let reach = self
            .schedule
            .layout(span.layout)
            .span(span.count)
            .expect("a small reach");
        let (low, high) = (span.offset + reach.start, span.offset + reach.end);
        assert!(
            span.is_empty() || (low >= 0 && high <= memory.len() as isize),
            "{span:?} leaves its memory of {} bytes",
            memory.len()
        );
        memory.as_mut_ptr().wrapping_offset(span.offset)
    }

    fn read(&mut self, span: Span) -> Vec<u8> {
        let mut bytes = vec![0; span.len()];
        let at = self.at(span);
        let layout = self.schedule.layout(span.layout);
        // SAFETY: `at` has checked the reach; `bytes` has room for the packed data.
        unsafe {
            layout.pack_range(
                at,
                span.count,
                0,
                bytes.as_mut_ptr(),
                bytes.len(),
                MsgRep::Native,
            );
        }
        bytes
    }

    fn write(&mut self, span: Span, bytes: &[u8]) {
        assert_ne!(span.base, Base::Send, "a send buffer is written");
        assert_eq!(span.len(), bytes.len(), "{span:?}");
        let at = self.at(span);
        let layout = self.schedule.layout(span.layout);
        // SAFETY: `at` has checked the reach; the bytes are of another memory.
        unsafe {
            layout.unpack_range(
                at,
                span.count,
                0,
                bytes.as_ptr(),
                bytes.len(),
                MsgRep::Native,
            );
        }
    }

    fn convert(&mut self, how: Convert, from: Span, to: Span) {
        assert_ne!(to.base, Base::Send, "a send buffer is written");
        assert_eq!(from.count, to.count, "{from:?} is converted to {to:?}");
        let (source, target) = (self.at(from), self.at(to));
        let numbers = match how {
            Convert::Widen(_) => from.layout,
            Convert::Round(_) => to.layout,
        };
        let numbers = self.schedule.layout(numbers);
        // SAFETY: `at` has checked both reaches.
        unsafe { convert(how, numbers, to.count, source, target) };
    }

    fn combine(&mut self, left: Span, right: Span) {
        assert_ne!(right.base, Base::Send, "a send buffer is written");
        let (input, inout) = (self.at(left), self.at(right));
        let op: Op = self
            .schedule
            .op
            .clone()
            .expect("the schedule has an operator");
        let layout = self.schedule.layout(right.layout);
        // SAFETY: `at` has checked both reaches; tests fill them with valid values. Overlapping
        // spans would be a mistake that the comparison of results reveals.
        let done = unsafe { op.apply(layout, right.count, input, inout) };
        done.expect("the operator fits the layout");
    }
}
