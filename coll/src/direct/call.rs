//! What an operation on a track shows and takes: all of it is one step.
//!
//! Each rank shows its contribution as a whole; whoever wants a result makes it from what the others show.
//! Operators get operands in the order of the ranks, from the last to the first.

use std::ops::Range;

use portolan_core::Result;

use super::along::Along;
use super::board::{Header, Kind, Place, small};
use super::counts;
use super::data::{Items, Stream};
use super::edges::Edges;
use super::exchange::{combine, combine_and_take, combine_pair};
use super::listed::{Form, Listed, longest_part};
use super::messages::Messages;
use super::moves::index_of;
use super::scan;
use super::sort::Sorts;
use super::verdict::Verdict;
use crate::args::{Many, Name, Operation};

/// Bytes that the call that starts an operation takes from boards at once: a few microseconds. More is left to the next poll.
const AT_ONCE: usize = 32 << 10;

/// One rank's part in an operation.
pub(crate) struct Call<'a> {
    pub(super) kind: Kind,
    /// Bytes that ranks compare.
    pub(super) len: usize,
    /// What they are of.
    pub(super) sorts: Sorts,
    /// Where the contribution is shown; `None` if the operation goes by messages.
    pub(super) place: Option<Place>,
    /// A checksum of counts that stands in the cell ([`counts`]).
    pub(super) sum: Option<u64>,
    /// The ranks that this one looks at, and those that it wakes: who look at it, and who might by mistake.
    pub(super) looks: u32,
    pub(super) wakes: u32,
    what: What<'a>,
    root: u32,
    rank: u32,
    size: u32,
}

enum What<'a> {
    /// No data, or none that is shown.
    Nothing,
    Bcast {
        data: Stream<'a>,
        root: u32,
    },
    Reduce {
        /// What each rank shows.
        items: Items<'a>,
        from: *mut u8,
        /// What of it is combined, and where that goes.
        part: Range<usize>,
        to: Option<*mut u8>,
    },
    Allgather {
        send: Option<Stream<'a>>,
        recv: &'a Many<'a>,
    },
    Alltoall {
        send: Option<&'a Many<'a>>,
        recv: &'a Many<'a>,
    },
    Along(Along<'a>),
    Listed(Listed<'a>),
}

impl<'a> Call<'a> {
    /// A place for a rank's part, for [`describe`](Self::describe).
    #[inline]
    pub(super) fn new((rank, size): (u32, u32), sorts: Sorts) -> Self {
        Self {
            kind: Kind::Barrier,
            len: 0,
            sorts,
            place: None,
            sum: None,
            looks: 0,
            wakes: 0,
            what: What::Nothing,
            root: 0,
            rank,
            size,
        }
    }

    /// Makes what [`new`](Self::new) gave a rank's part in an operation; `false` for one that is never done on a track: a question to which all ranks
    /// have the same answer. `edges` are those of the communicator's topology, and the track tells how long contributions may be.
    ///
    /// In place, because it is large: a move right behind the stores that made it stalls the processor for longer than what is
    /// in it takes to find out.
    #[inline]
    pub(super) fn describe(
        &mut self,
        operation: &'a Operation<'a>,
        edges: Option<&'a Edges>,
        track: usize,
    ) -> bool {
        let (limit, rank, size) = (small(track), self.rank, self.size);
        debug_assert!(
            self.place.is_none() && self.sum.is_none(),
            "described already"
        );
        let all = self.all();
        match *operation {
            Operation::Barrier => self.is(Kind::Barrier, 0, 0, What::Nothing),
            Operation::Bcast { data, root } => {
                let data = Stream::of(&data);
                self.is(Kind::Bcast, data.len(), limit, What::Bcast { data, root });
                self.root = root;
                (self.looks, self.wakes) = match rank == root {
                    true => (0, all),
                    false => (1 << root, 0),
                };
            }
            Operation::Allreduce { send, recv, op } => {
                let from = send.map_or(recv.ptr, |send| send.ptr);
                let items = Items::new(op, recv.layout, recv.count);
                let part = 0..items.count;
                self.reduces(Kind::Allreduce, limit, items, from, part, Some(recv.ptr));
            }
            Operation::Reduce {
                send,
                recv,
                op,
                root,
            } => {
                let recv = recv.filter(|_| rank == root);
                let Some(any) = send.or(recv) else {
                    return false;
                };
                let items = Items::new(op, any.layout, any.count);
                let (part, to) = (0..items.count, recv.map(|recv| recv.ptr));
                self.reduces(Kind::Reduce, limit, items, any.ptr, part, to);
                self.root = root;
                (self.looks, self.wakes) = match rank == root {
                    true => (all, 0),
                    false => (0, 1 << root),
                };
            }
            Operation::ReduceScatter {
                send,
                recv,
                counts,
                op,
            } => {
                let from = send.map_or(recv.ptr, |send| send.ptr);
                let items = Items::new(op, recv.layout, counts.iter().sum());
                let first = counts[..rank as usize].iter().sum();
                let part = first..first + counts[rank as usize];
                let (kind, sum) = counts::kind(counts);
                let room = items.room() + sum.map_or(0, |_| counts::TAKEN);
                let fits = items.room() <= limit;
                self.reduces(kind, limit, items, from, part, Some(recv.ptr));
                self.place = fits.then(|| Place::of(room));
                self.sum = sum;
            }
            Operation::ReduceScatterBlock { send, recv, op } => {
                let from = send.map_or(recv.ptr, |send| send.ptr);
                let items = Items::new(op, recv.layout, recv.count * size as usize);
                let first = recv.count * rank as usize;
                let part = first..first + recv.count;
                self.reduces(
                    Kind::ReduceScatter,
                    limit,
                    items,
                    from,
                    part,
                    Some(recv.ptr),
                );
            }
            Operation::Scan {
                send,
                recv,
                op,
                exclusive,
            } => {
                let kind = if exclusive { Kind::Exscan } else { Kind::Scan };
                let from = send.map_or(recv.ptr, |send| send.ptr);
                let items = Items::new(op, recv.layout, recv.count);
                let part = 0..items.count;
                self.reduces(kind, limit, items, from, part, Some(recv.ptr));
                self.looks = (1 << rank) - 1;
                self.wakes = all & !self.looks;
            }
            Operation::Allgather { send, ref recv } => {
                let own = Stream::block(recv, rank);
                let send = send.as_ref().map(Stream::of);
                let len = send.unwrap_or(own).len();
                let lens = || (0..size).map(|rank| Stream::block(recv, rank).len());
                let longest = lens().fold(len, usize::max);
                let place = (longest <= limit).then(|| Place::of(len));
                self.is(Kind::Allgather, len, limit, What::Allgather { send, recv });
                self.place = place;
                self.sum = place.is_none().then(|| counts::sum_of(lens()));
            }
            Operation::Gather {
                send,
                ref recv,
                root,
                uneven,
            } => {
                let recv = recv.as_ref().filter(|_| rank == root);
                let send = send.as_ref().map(Stream::of);
                let form = match (recv, send) {
                    (Some(recv), send) => Form::Collect { send, recv, uneven },
                    (None, Some(block)) => Form::Give { block, root },
                    (None, None) => return false,
                };
                let part = Listed::new(form, (rank, size), limit);
                let len = part.len();
                match uneven || len <= limit {
                    true => self.lists(part),
                    false => self.goes_by_messages(Kind::Gather, len, root),
                }
            }
            Operation::Scatter {
                ref send,
                recv,
                root,
                uneven,
            } => {
                let send = send.as_ref().filter(|_| rank == root);
                let recv = recv.as_ref().map(Stream::of);
                let (form, len) = match (send, recv) {
                    (Some(send), recv) => {
                        let len = Stream::block(send, rank).len();
                        (Form::Distribute { send, recv }, len)
                    }
                    (None, Some(block)) => (Form::Take { block, root }, block.len()),
                    (None, None) => return false,
                };
                match uneven || len <= longest_part(size, limit) {
                    true => self.lists(Listed::new(form, (rank, size), limit)),
                    false => self.goes_by_messages(Kind::Scatter, len, root),
                }
            }
            Operation::Alltoall {
                ref send,
                recv: ref recv @ (Many::Blocks(_) | Many::Layouts(_)),
            } => {
                let send = send.as_ref();
                let form = Form::Exchange { send, recv };
                self.lists(Listed::new(form, (rank, size), limit));
            }
            Operation::Alltoall {
                ref send,
                recv: ref recv @ Many::Equal(_),
            } => {
                let send = send.as_ref();
                let len = Stream::block(recv, rank).len();
                let room = len.saturating_mul(size as usize - 1);
                self.is(Kind::Alltoall, len, limit, What::Alltoall { send, recv });
                self.place = (room <= limit).then(|| Place::of(room));
            }
            Operation::NeighbourAllgather { .. } | Operation::NeighbourAlltoall { .. } => {
                let Some(edges) = edges else { return false };
                match Along::of(operation, rank, edges, track) {
                    Some(along) => {
                        (self.kind, self.len) = (along.kind(), along.len());
                        [self.looks, self.wakes] = along.looks_and_wakes();
                        self.place = Some(along.place());
                        self.what = What::Along(along);
                    }
                    // Only the ends of an edge know its length, so none is compared.
                    None => {
                        let kind = match operation {
                            Operation::NeighbourAllgather { .. } => Kind::NeighbourAllgather,
                            _ => Kind::NeighbourAlltoall,
                        };
                        self.goes_by_messages(kind, 0, 0);
                    }
                }
            }
        }
        self.settle();
        true
    }

    /// The other ranks.
    #[inline]
    fn all(&self) -> u32 {
        ((1u32 << self.size) - 1) & !(1 << self.rank)
    }

    /// One with contributions of so many bytes, in which all look at all if nothing else is said.
    #[inline(always)]
    fn is(&mut self, kind: Kind, len: usize, limit: usize, what: What<'a>) {
        (self.kind, self.len) = (kind, len);
        self.place = (len <= limit).then(|| Place::of(len));
        (self.looks, self.wakes) = (self.all(), self.all());
        self.what = what;
    }

    /// The same for a reduction: of what each rank shows, `part` is combined and goes `to` where it is wanted.
    #[inline(always)]
    fn reduces(
        &mut self,
        kind: Kind,
        limit: usize,
        items: Items<'a>,
        from: *mut u8,
        part: Range<usize>,
        to: Option<*mut u8>,
    ) {
        let (len, room) = (items.len(), items.room());
        let what = What::Reduce {
            items,
            from,
            part,
            to,
        };
        self.is(kind, len, limit, what);
        self.place = (room <= limit).then(|| Place::of(room));
    }

    fn goes_by_messages(&mut self, kind: Kind, len: usize, root: u32) {
        (self.kind, self.len, self.root) = (kind, len, root);
    }

    #[inline]
    fn lists(&mut self, part: Listed<'a>) {
        [self.looks, self.wakes] = part.looks_and_wakes();
        // Of who gives a block the kind tells what it does with it.
        self.kind = match part.kind() {
            Kind::GatherSent => Kind::Gather,
            kind => kind,
        };
        (self.len, self.root) = (part.len(), part.root());
        self.place = Some(part.place());
        self.what = What::Listed(part);
    }

    /// Of which ranks the items of a reduction are combined.
    #[inline]
    fn operands(&self) -> Range<u32> {
        match self.kind {
            Kind::Scan => 0..self.rank + 1,
            Kind::Exscan => 0..self.rank,
            _ => 0..self.size,
        }
    }

    /// One that goes by messages is watched by all, and watches all: somebody might not. Of any two ranks one looks at the other or wakes
    /// it: who does not agree may sleep for one that never sees it.
    #[inline]
    fn settle(&mut self) {
        let all = self.all();
        match self.place {
            None => (self.looks, self.wakes) = (all, all),
            Some(_) => self.wakes |= all & !self.looks,
        }
    }

    /// What this rank shows that it does.
    #[inline]
    pub(super) fn shown_kind(&self) -> Kind {
        match &self.what {
            What::Bcast { root, .. } if self.rank != *root && self.place.is_some() => {
                Kind::BcastAwaited
            }
            What::Reduce { to: Some(_), .. }
                if self.kind == Kind::Reduce && self.place.is_some() =>
            {
                Kind::ReduceAwaited
            }
            What::Listed(part) => part.kind(),
            _ => self.kind,
        }
    }

    /// Whether all of its data, some of it or none goes by messages.
    #[inline]
    pub(super) fn has_messages(&self) -> bool {
        match &self.what {
            What::Listed(part) => part.has_messages(),
            What::Along(along) => along.has_messages(),
            _ => self.place.is_none(),
        }
    }

    /// Whether its header is marked, and so its cell begins with the length and the root.
    #[inline]
    pub(super) fn is_marked(&self) -> bool {
        match &self.what {
            What::Listed(part) => part.is_marked(),
            What::Along(along) => along.has_messages(),
            _ => self.place.is_none(),
        }
    }

    /// What this rank thinks of another's part; `None` where its header alone says whether it agrees. `told` is the length that
    /// it tells, and `at` says where its places are.
    ///
    /// # Safety
    /// The rank has shown its part, with this header.
    #[inline]
    pub(super) unsafe fn judge(
        &self,
        rank: u32,
        header: Header,
        told: impl Fn() -> u64,
        at: impl Fn(Place) -> *mut u8,
    ) -> Option<Verdict> {
        let taken = self.sorts.taken;
        // SAFETY: from the caller, for both.
        unsafe {
            match &self.what {
                What::Listed(part) => match part.agrees(rank, header, taken, &at) {
                    true => Some(Verdict::default()),
                    false => Some(part.judge(rank, header, taken, at)),
                },
                What::Along(along) => Some(along.judge(rank, header, told(), taken, at)),
                _ => None,
            }
        }
    }

    /// Whether taking what others show is so little that one call may do all of it.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        match self.what {
            // A rank's own part may be short and those of the others not.
            What::Listed(_) | What::Along(_) => self.work() <= AT_ONCE,
            _ => self.place == Some(Place::Cell) || self.work() <= AT_ONCE,
        }
    }

    /// Bytes that this rank copies or combines when it takes what others show, about.
    fn work(&self) -> usize {
        let others = self.looks.count_ones() as usize;
        match &self.what {
            What::Reduce { items, part, .. } if items.count > 0 => {
                others * (self.len / items.count * part.len())
            }
            What::Bcast { .. } | What::Allgather { .. } | What::Alltoall { .. } => {
                others * self.len
            }
            What::Along(along) => along.work(),
            What::Listed(part) => part.work(),
            What::Nothing | What::Reduce { .. } => 0,
        }
    }

    /// The messages of one that goes over boards but for them.
    pub(super) fn messages(&self, name: Name) -> Option<Messages> {
        match &self.what {
            What::Listed(part) if part.has_messages() => Some(part.messages(name)),
            What::Along(along) if along.has_messages() => Some(along.messages(self.size, name)),
            _ => None,
        }
    }

    /// Whether this rank waits for others that do not wait for it.
    #[inline]
    pub(super) fn waits_alone(&self) -> bool {
        self.looks != 0 && self.looks & self.wakes == 0
    }

    /// The rank that all have to name; 0 where none is named.
    pub(super) fn root(&self) -> u32 {
        self.root
    }

    /// The header that each rank has to show that this one looks at, where it is the same for all and there is nothing but the
    /// header to look at.
    #[inline]
    pub(super) fn wants(&self, step: u32) -> Option<Header> {
        let plain = matches!(
            self.what,
            What::Nothing | What::Bcast { .. } | What::Reduce { .. } | What::Alltoall { .. }
        );
        (plain && self.place.is_some() && self.sum.is_none())
            .then(|| Header::new(step, self.kind, self.sorts.taken, self.len))
    }

    /// The length that a rank has to show.
    #[inline]
    pub(super) fn len_of(&self, rank: u32) -> usize {
        match &self.what {
            What::Allgather { recv, .. } => Stream::block(recv, rank).len(),
            _ => self.len,
        }
    }

    /// Bytes of the place in front of the data.
    #[inline]
    fn skip(&self) -> usize {
        match self.place {
            Some(Place::Cell) if self.sum.is_some() => counts::TAKEN,
            _ => 0,
        }
    }

    /// Writes the contribution.
    ///
    /// # Safety
    /// The buffers are the operation's; `to` is this rank's place of the step, and free.
    #[inline]
    pub(super) unsafe fn show(&self, to: *mut u8) {
        // SAFETY: from the caller, for all of them; places have the room, by which they were chosen.
        unsafe {
            match &self.what {
                What::Nothing => {}
                What::Bcast { data, root } => {
                    if self.rank == *root {
                        data.read(0, to, self.len);
                    }
                }
                What::Reduce { items, from, .. } => {
                    items.copy(*from, items.on_board(to.wrapping_add(self.skip())));
                }
                What::Allgather { send, recv } => {
                    let own = Stream::block(recv, self.rank);
                    send.unwrap_or(own).read(0, to, self.len);
                    if let Some(send) = send {
                        send.copy_to(&own);
                    }
                }
                What::Alltoall { send, recv } => {
                    let from = send.unwrap_or(recv);
                    for rank in (0..self.size).filter(|&rank| rank != self.rank) {
                        let to = to.wrapping_add(index_of(self.rank, rank) * self.len);
                        Stream::block(from, rank).read(0, to, self.len);
                    }
                    if send.is_some() {
                        let own = Stream::block(recv, self.rank);
                        Stream::block(from, self.rank).copy_to(&own);
                    }
                }
                What::Along(along) => along.show(to),
                What::Listed(part) => part.show(to),
            }
        }
    }

    /// Takes what this rank wants of what the others show; `at` says where a rank has shown so many bytes, and `header` with
    /// which header. `takes` says whether it takes the lines, too, of what it alone reads.
    ///
    /// # Errors
    /// If the operator does not know the layout, which has been checked.
    ///
    /// # Safety
    /// All that this rank looks at have shown contributions of the lengths that they have to have, and leave them
    /// there; the buffers are the operation's, and values valid for the operator.
    #[inline]
    pub(super) unsafe fn take(
        &self,
        at: impl Fn(u32, Place) -> *mut u8,
        header: impl Fn(u32) -> Header,
        takes: bool,
    ) -> Result<()> {
        let takes_from_all = takes && self.size == 2;
        match &self.what {
            What::Nothing => {}
            What::Bcast { data, root } => {
                if self.rank != *root {
                    // SAFETY: from the caller.
                    unsafe {
                        data.take(0, at(*root, Place::of(self.len)), self.len, takes_from_all);
                    }
                }
            }
            What::Reduce {
                items,
                from,
                part,
                to,
            } => {
                if let Some(to) = *to {
                    let (place, skip) = (self.place.unwrap_or(Place::Chunk), self.skip());
                    let shown = |rank| {
                        let all = items.on_board(at(rank, place).wrapping_add(skip));
                        items.nth(all, part.start)
                    };
                    let now = items.with(part.len());
                    // SAFETY: from the caller.
                    unsafe {
                        if takes && place == Place::Chunk {
                            self.combine_and_take(&now, *from, shown, to)?;
                        } else {
                            combine(self.operands(), &now, shown, to)?;
                        }
                    }
                }
            }
            What::Allgather { recv, .. } => {
                for rank in (0..self.size).filter(|&rank| rank != self.rank) {
                    let block = Stream::block(recv, rank);
                    let len = block.len();
                    // SAFETY: from the caller.
                    unsafe { block.take(0, at(rank, Place::of(len)), len, takes_from_all) };
                }
            }
            What::Alltoall { recv, .. } => {
                let place = self.place.unwrap_or(Place::Chunk);
                for rank in (0..self.size).filter(|&rank| rank != self.rank) {
                    let from = at(rank, place).wrapping_add(index_of(rank, self.rank) * self.len);
                    // SAFETY: from the caller.
                    unsafe { Stream::block(recv, rank).take(0, from, self.len, takes) };
                }
            }
            // SAFETY: from the caller.
            What::Along(along) => unsafe { along.take(at, header, takes)? },
            // SAFETY: as above.
            What::Listed(part) => unsafe { part.take(at, header, takes) },
        }
        Ok(())
    }

    /// A reduction from chunks of which lines are taken.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Safety
    /// As [`take`](Self::take).
    #[inline(never)]
    unsafe fn combine_and_take(
        &self,
        items: &Items<'_>,
        from: *mut u8,
        shown: impl Fn(u32) -> *mut u8,
        to: *mut u8,
    ) -> Result<()> {
        let (me, ranks) = (self.rank, self.operands());
        // SAFETY: from the caller; what two ranks both read neither takes but of the other, and neither reads its own part there.
        unsafe {
            match self.kind {
                Kind::Allreduce if self.size == 2 => {
                    combine_pair(me, items, from, shown(1 - me), to)
                }
                Kind::Scan | Kind::Exscan if self.size == 2 => {
                    scan::pair(me, items, from, shown(0), to, self.kind == Kind::Exscan)
                }
                Kind::Allreduce | Kind::Scan | Kind::Exscan => combine(ranks, items, shown, to),
                // Of a reduction, or of a part of it, one rank alone reads.
                _ => combine_and_take(ranks, items, shown, |rank| rank != me, to),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::buffer::{MemoryKind, TypedBuf};
    use portolan_datatype::Layout;

    use super::*;

    #[test]
    fn what_a_start_takes_at_once_is_short_at_every_rank() {
        let byte = Layout::byte();
        // Never looked at.
        let buf = |count| TypedBuf {
            ptr: std::ptr::null_mut(),
            count,
            layout: &byte,
            memory: MemoryKind::Host,
        };
        let is_short = |operation: &Operation<'_>, rank| {
            let mut call = Call::new((rank, 5), Sorts::ANY);
            assert!(call.describe(operation, None, 0), "done on a track");
            call.is_short()
        };
        for (block, short) in [(AT_ONCE / 4, true), (AT_ONCE / 4 + 1, false)] {
            let gather = |rank| Operation::Gather {
                send: (rank != 0).then(|| buf(block)),
                recv: (rank == 0).then(|| Many::Equal(buf(block))),
                root: 0,
                uneven: false,
            };
            assert!(is_short(&gather(1), 1), "it takes nothing");
            assert_eq!(is_short(&gather(0), 0), short);
            let send = None;
            let recv = Many::Equal(buf(block));
            for rank in [0, 1] {
                assert_eq!(is_short(&Operation::Allgather { send, recv }, rank), short);
            }
        }
    }
}
