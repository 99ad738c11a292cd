//! How algorithms write schedules.

use std::sync::Arc;

use portolan_datatype::{Layout, Op};

use super::{Base, Compare, LANES, Lane, LayoutId, Schedule, Span, Step};
use crate::algorithms::knomial;
use crate::args::Name;
use crate::compare::STAMP;
use crate::exact::Convert;
use crate::levels::Levels;
use crate::team::Team;

/// Writes the schedule of one rank, in terms of the ranks of a [`Team`].
///
/// Empty messages are not sent if both sides know that they are empty: a send or receive of no
/// bytes writes no step, except by [`signal`](Self::signal) and
/// [`await_signal`](Self::await_signal), or after [`keep_empty`](Self::keep_empty). A `wait` with
/// nothing to wait for writes no step either.
#[derive(Debug)]
pub struct Builder {
    team: Team,
    schedule: Schedule,
    /// Whether something was started since the last wait.
    started: bool,
    lane: Lane,
    /// Bytes of scratch memory in use.
    taken: usize,
    levels: Option<Arc<Levels>>,
    /// Whether empty messages are sent as well.
    empty: bool,
    /// Whether the schedule is only polled now and then.
    unattended: bool,
    radix: u32,
}

/// Bytes that travel at a time if data goes in segments.
const SEGMENT: usize = 64 << 10;
/// Segments of a schedule that is only polled now and then: each segment costs one poll of every
/// rank on its way.
const FEW: usize = 4;

/// Scratch memory is aligned to this many bytes.
pub(crate) const ALIGN: usize = 64;

impl Builder {
    /// An empty schedule for the caller's place in `team`.
    #[must_use]
    pub fn new(team: Team) -> Self {
        Self::reusing(team, Schedule::default())
    }

    /// The same, in the memory of a schedule that is not used any more.
    #[must_use]
    pub fn reusing(team: Team, mut schedule: Schedule) -> Self {
        schedule.steps.clear();
        schedule.layouts.truncate(1);
        if schedule.layouts.is_empty() {
            schedule.layouts.push(Layout::byte());
        }
        schedule.scratch = 0;
        schedule.op = None;
        schedule.name = None;
        schedule.stamp = None;
        Self {
            team,
            schedule,
            started: false,
            lane: 0,
            taken: 0,
            levels: None,
            empty: false,
            unattended: false,
            radix: knomial::RADIX,
        }
    }

    /// The schedule.
    #[must_use]
    pub fn finish(mut self) -> Schedule {
        self.wait();
        self.schedule
    }

    /// The team for which the schedule is written: the ranks in the methods below are places in
    /// this team.
    #[inline]
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// This rank's place in the team.
    #[inline]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.team.rank()
    }

    /// Number of ranks in the team.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.team.size()
    }

    /// Lets `write` use the places of another team, a part of this one: for algorithms over levels.
    pub fn within<R>(&mut self, team: Team, write: impl FnOnce(&mut Self) -> R) -> R {
        let outer = std::mem::replace(&mut self.team, team);
        let levels = self.levels.take();
        let result = write(self);
        (self.team, self.levels) = (outer, levels);
        result
    }

    /// The levels of the team, if they make a difference; `None` [within](Self::within) another
    /// team.
    #[inline]
    #[must_use]
    pub fn levels(&self) -> Option<&Arc<Levels>> {
        self.levels.as_ref()
    }

    /// Sets which members of the team share a node; `None` if all of them do, or none.
    pub fn set_levels(&mut self, levels: Option<Arc<Levels>>) {
        self.levels = levels.filter(|levels| levels.are_useful());
    }

    /// The radix for trees that have a choice.
    #[inline]
    #[must_use]
    pub fn radix(&self) -> u32 {
        self.radix
    }

    /// Sets the radix for trees that have a choice: at least 2, and the same on all ranks.
    pub fn set_radix(&mut self, radix: u32) {
        self.radix = radix;
    }

    /// Declares that the schedule will run beside a computation that polls only now and then, as
    /// the schedules of nonblocking operations do. A round then lasts until the next poll, so long
    /// data goes in few segments. Either all ranks call this, or none.
    pub fn leave_unattended(&mut self) {
        self.unattended = true;
    }

    /// The segment length for `len` bytes that travel in segments: the same on all ranks for the
    /// same length.
    #[must_use]
    pub fn segment_of(&self, len: usize) -> usize {
        if !self.unattended {
            return SEGMENT;
        }
        // At least one segment per rank, so that every link of a chain can have one at the same
        // time.
        let few = FEW.max(self.size() as usize);
        len.div_ceil(few).next_multiple_of(SEGMENT).max(SEGMENT)
    }

    /// Lets `write` use another lane.
    ///
    /// # Panics
    /// In debug builds, if there is no such lane.
    pub fn in_lane<R>(&mut self, lane: Lane, write: impl FnOnce(&mut Self) -> R) -> R {
        debug_assert!(u32::from(lane) < LANES);
        let outer = std::mem::replace(&mut self.lane, lane);
        let result = write(self);
        self.lane = outer;
        result
    }

    // ---- Memory --------------------------------------------------------------------------------

    /// Adds a layout to the schedule's table, unless it was the last one added: blocks that are
    /// given with a layout each often share one.
    ///
    /// # Panics
    /// If there are more layouts than 32 bits can number.
    pub fn layout(&mut self, layout: &Layout) -> LayoutId {
        let known = &mut self.schedule.layouts;
        if known.last().is_none_or(|last| !last.same_as(layout)) {
            known.push(layout.clone());
        }
        let id = u32::try_from(known.len() - 1);
        LayoutId(id.expect("a layout takes more than a byte, so that memory ends before"))
    }

    /// The layout of a span's items.
    #[must_use]
    pub fn layout_of(&self, span: Span) -> &Layout {
        self.schedule.layout(span.layout)
    }

    /// `count` items of a layout, at an offset in a memory.
    pub fn span(&mut self, base: Base, offset: isize, count: usize, layout: &Layout) -> Span {
        Span {
            base,
            offset,
            count,
            layout: self.layout(layout),
            size: layout.size(),
            extent: layout.extent(),
        }
    }

    /// Scratch memory for `len` bytes of packed data.
    pub fn scratch(&mut self, len: usize) -> Span {
        let offset = self.take(len);
        Span::bytes(Base::Scratch, offset, len)
    }

    /// Scratch memory for `count` items like those of `span`, to be combined with them.
    ///
    /// # Panics
    /// If the items' extent overflows; arguments have been validated before.
    pub fn scratch_like(&mut self, span: Span, count: usize) -> Span {
        let layout = self.schedule.layout(span.layout);
        let reach = layout.span(count).expect("the reach was validated");
        let first = self.take((reach.end - reach.start) as usize);
        let offset = (first as isize).wrapping_sub(reach.start);
        Span {
            base: Base::Scratch,
            offset,
            count,
            ..span
        }
    }

    /// How much scratch memory is in use, to be passed to [`release`](Self::release).
    #[must_use]
    pub fn mark(&self) -> usize {
        self.taken
    }

    /// Waits for everything that was started, and frees the scratch memory taken since
    /// [`mark`](Self::mark), so that the next part of the work uses the same memory.
    pub fn release(&mut self, mark: usize) {
        self.wait();
        self.taken = mark;
    }

    fn take(&mut self, len: usize) -> usize {
        let first = self.taken;
        // If the size exceeds the address space it stays too large, so that the later allocation
        // fails.
        let end = first.checked_add(len);
        let end = end.and_then(|end| end.checked_next_multiple_of(ALIGN));
        self.taken = end.unwrap_or(usize::MAX);
        self.schedule.scratch = self.schedule.scratch.max(self.taken);
        first
    }

    /// Sets the operator of [`combine`](Self::combine).
    pub fn set_op(&mut self, op: &Op) {
        self.schedule.op = Some(op.clone());
    }

    /// Sets the name of the operation, for errors.
    pub(crate) fn set_name(&mut self, name: Name) {
        self.schedule.name = Some(name);
    }

    /// Sets the rank's description of its call.
    pub(crate) fn set_stamp(&mut self, stamp: [u8; STAMP]) {
        self.schedule.stamp = Some(Box::new(stamp));
    }

    // ---- Steps ---------------------------------------------------------------------------------

    /// From now on, empty messages are sent and received like others. Either all ranks call this,
    /// or none. Two ranks that do not agree that there is nothing to send then notice it.
    pub fn keep_empty(&mut self) {
        self.empty = true;
    }

    /// Starts a send to the rank in place `to`.
    pub fn send(&mut self, to: u32, data: Span) {
        if self.empty || !data.is_empty() {
            self.start_send(to, data);
        }
    }

    /// Starts a receive from the rank in place `from`.
    pub fn recv(&mut self, from: u32, data: Span) {
        if self.empty || !data.is_empty() {
            self.start_recv(from, data);
        }
    }

    /// Starts a send of no bytes.
    pub fn signal(&mut self, to: u32) {
        self.start_send(to, Span::bytes(Base::Scratch, 0, 0));
    }

    /// Starts the receive of a [`signal`](Self::signal).
    pub fn await_signal(&mut self, from: u32) {
        self.start_recv(from, Span::bytes(Base::Scratch, 0, 0));
    }

    /// Waits for everything that was started.
    pub fn wait(&mut self) {
        if std::mem::take(&mut self.started) {
            self.schedule.steps.push(Step::Wait);
        }
    }

    /// Copies, unless both spans are the same.
    ///
    /// # Panics
    /// In debug builds, if the two have different lengths.
    pub fn copy(&mut self, from: Span, to: Span) {
        debug_assert_eq!(from.len(), to.len(), "a copy of {from:?} to {to:?}");
        if !from.is_empty() && (from.base, from.offset) != (to.base, to.offset) {
            self.schedule.steps.push(Step::Copy { from, to });
        }
    }

    /// `right = left op right`. `left` holds the operands that come first in the order of the
    /// ranks.
    ///
    /// # Panics
    /// In debug builds, if the two have different numbers of items.
    pub fn combine(&mut self, left: Span, right: Span) {
        debug_assert_eq!(
            left.count, right.count,
            "{left:?} is combined with {right:?}"
        );
        if !left.is_empty() {
            self.schedule.steps.push(Step::Combine { left, right });
        }
    }

    /// Adds a step of the debug mode's comparison.
    pub(crate) fn compare(&mut self, step: Compare) {
        self.schedule.steps.push(Step::Compare(step));
    }

    /// Converts numbers to exact sums, or back.
    ///
    /// # Panics
    /// In debug builds, if the two have different numbers of items.
    pub fn convert(&mut self, how: Convert, from: Span, to: Span) {
        debug_assert_eq!(from.count, to.count, "{from:?} is converted to {to:?}");
        if !from.is_empty() {
            self.schedule.steps.push(Step::Convert { how, from, to });
        }
    }

    fn start_send(&mut self, to: u32, data: Span) {
        let (to, lane) = (self.team.member(to), self.lane);
        self.schedule.steps.push(Step::Send { to, lane, data });
        self.started = true;
    }

    fn start_recv(&mut self, from: u32, data: Span) {
        let (from, lane) = (self.team.member(from), self.lane);
        self.schedule.steps.push(Step::Recv { from, lane, data });
        self.started = true;
    }
}
