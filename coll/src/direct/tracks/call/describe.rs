//! How each operation is done on a track.

use std::ops::Range;

use portolan_core::buffer::TypedBuf;
use portolan_datatype::Op;

use super::{Call, What};
use crate::args::{Many, Operation};
use crate::direct::agree::counts;
use crate::direct::agree::sort::Sorts;
use crate::direct::boards::board::{Header, Kind, Place, small};
use crate::direct::boards::edges::Edges;
use crate::direct::data::{Items, Stream};
use crate::direct::tracks::along::Along;
use crate::direct::tracks::lending::{LEAST, are_lendable, is_lendable};
use crate::direct::tracks::listed::{Form, Listed, longest_part};

impl<'a> Call<'a> {
    /// An empty record for a rank's part, to be filled in by [`describe`](Self::describe).
    #[inline]
    pub(in crate::direct) fn new((rank, size): (u32, u32), sorts: Sorts) -> Self {
        Self {
            kind: Kind::Barrier,
            len: 0,
            sorts,
            place: None,
            sum: None,
            looks: 0,
            wakes: 0,
            shown: Header(0),
            wanted: None,
            has_messages: false,
            may_lend: false,
            what: What::Nothing,
            root: 0,
            rank,
            size,
        }
    }

    /// Fills in a rank's part in an operation; `self` comes from [`new`](Self::new). Returns
    /// `false` for an operation that is never done on a track; all ranks come to the same answer.
    /// `edges` are those of the communicator's topology, and the track determines how long
    /// contributions may be.
    ///
    /// The record is filled in place because it is large: moving it right after the stores that
    /// made it stalls the processor for longer than it takes to compute the contents.
    #[inline]
    pub(in crate::direct) fn describe(
        &mut self,
        operation: &'a Operation<'a>,
        edges: Option<&'a Edges>,
        track: usize,
    ) -> bool {
        debug_assert!(
            self.place.is_none() && self.sum.is_none(),
            "described already"
        );
        let limit = small(track);
        match *operation {
            Operation::Barrier => {
                self.is(Kind::Barrier, 0, 0, What::Nothing);
                self.announce_as(Kind::Barrier, false, true);
                return true;
            }
            Operation::Bcast { data, root } => {
                self.spreads(Stream::of(&data), root, limit);
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
                if !self.reduces_to_root(op, (send, recv), root, limit) {
                    return false;
                }
            }
            Operation::ReduceScatter {
                send,
                recv,
                counts,
                op,
            } => {
                self.reduces_to_parts(op, (send, recv), counts, limit);
            }
            Operation::ReduceScatterBlock { send, recv, op } => {
                let from = send.map_or(recv.ptr, |send| send.ptr);
                let items = Items::new(op, recv.layout, recv.count * self.size as usize);
                let first = recv.count * self.rank as usize;
                let (part, to) = (first..first + recv.count, Some(recv.ptr));
                self.reduces(Kind::ReduceScatter, limit, items, from, part, to);
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
                self.looks = (1 << self.rank) - 1;
                self.wakes = self.all() & !self.looks;
            }
            Operation::Allgather { send, ref recv } => {
                self.gathers_everywhere(send.as_ref().map(Stream::of), recv, limit);
            }
            Operation::Gather {
                send,
                ref recv,
                root,
                uneven,
            } => {
                let block = send.as_ref().map(Stream::of);
                if !self.gathers(block, recv.as_ref(), (root, uneven), limit) {
                    return false;
                }
            }
            Operation::Scatter {
                ref send,
                recv,
                root,
                uneven,
            } => {
                let part = recv.as_ref().map(Stream::of);
                if !self.scatters(send.as_ref(), part, (root, uneven), limit) {
                    return false;
                }
            }
            Operation::Alltoall { ref send, ref recv } => {
                self.exchanges(send.as_ref(), recv, limit);
            }
            Operation::NeighbourAllgather { .. } | Operation::NeighbourAlltoall { .. } => {
                let Some(edges) = edges else { return false };
                self.goes_along(operation, edges, track);
            }
        }
        self.settle();
        true
    }

    #[inline(always)]
    fn spreads(&mut self, data: Stream<'a>, root: u32, limit: usize) {
        self.is(Kind::Bcast, data.len(), limit, What::Bcast { data, root });
        self.root = root;
        (self.looks, self.wakes) = match self.rank == root {
            true => (0, self.all()),
            false => (1 << root, 0),
        };
    }

    #[inline(always)]
    fn reduces_to_root(
        &mut self,
        op: &'a Op,
        (send, recv): (Option<TypedBuf<'a>>, Option<TypedBuf<'a>>),
        root: u32,
        limit: usize,
    ) -> bool {
        let recv = recv.filter(|_| self.rank == root);
        let Some(any) = send.or(recv) else {
            return false;
        };
        let items = Items::new(op, any.layout, any.count);
        let (part, to) = (0..items.count, recv.map(|recv| recv.ptr));
        self.reduces(Kind::Reduce, limit, items, any.ptr, part, to);
        self.root = root;
        (self.looks, self.wakes) = match self.rank == root {
            true => (self.all(), 0),
            false => (0, 1 << root),
        };
        true
    }

    /// Parts of several lengths.
    #[inline(always)]
    fn reduces_to_parts(
        &mut self,
        op: &'a Op,
        (send, recv): (Option<TypedBuf<'a>>, TypedBuf<'a>),
        counts: &[usize],
        limit: usize,
    ) {
        let rank = self.rank as usize;
        let from = send.map_or(recv.ptr, |send| send.ptr);
        let items = Items::new(op, recv.layout, counts.iter().sum());
        let first = counts[..rank].iter().sum();
        let part = first..first + counts[rank];
        let (kind, sum) = counts::kind(counts);
        let room = items.room() + sum.map_or(0, |_| counts::TAKEN);
        let fits = items.room() <= limit;
        self.reduces(kind, limit, items, from, part, Some(recv.ptr));
        self.place = fits.then(|| Place::of(room));
        self.sum = sum;
    }

    #[inline(always)]
    fn gathers_everywhere(&mut self, send: Option<Stream<'a>>, recv: &'a Many<'a>, limit: usize) {
        let len = send.unwrap_or(Stream::block(recv, self.rank)).len();
        let size = self.size;
        let lens = || (0..size).map(|rank| Stream::block(recv, rank).len());
        let bounds = |(a, b): (usize, usize), len| (a.min(len), b.max(len));
        let (shortest, longest) = match recv {
            Many::Equal(_) => bounds((len, len), Stream::block_len(recv, 0)),
            _ => lens().fold((len, len), bounds),
        };
        let place = (longest <= limit).then(|| Place::of(len));
        let kind = match are_lendable(size, shortest, longest) && place.is_some() {
            true => Kind::AllgatherChosen,
            false => Kind::Allgather,
        };
        let even = shortest == longest;
        self.is(kind, len, limit, What::Allgather { send, recv, even });
        self.place = place;
        self.sum = place.is_none().then(|| counts::sum_of(lens()));
    }

    #[inline(always)]
    fn gathers(
        &mut self,
        send: Option<Stream<'a>>,
        recv: Option<&'a Many<'a>>,
        (root, uneven): (u32, bool),
        limit: usize,
    ) -> bool {
        let recv = recv.filter(|_| self.rank == root);
        let form = match (recv, send) {
            (Some(recv), send) => Form::Collect { send, recv, uneven },
            (None, Some(block)) => Form::Give { block, root },
            (None, None) => return false,
        };
        let part = Listed::new(form, (self.rank, self.size), limit);
        let len = part.len();
        match uneven || len <= limit {
            true => self.lists(part),
            false => self.goes_by_messages(Kind::Gather, len, root),
        }
        true
    }

    #[inline(always)]
    fn scatters(
        &mut self,
        send: Option<&'a Many<'a>>,
        recv: Option<Stream<'a>>,
        (root, uneven): (u32, bool),
        limit: usize,
    ) -> bool {
        let send = send.filter(|_| self.rank == root);
        let (form, len) = match (send, recv) {
            (Some(send), recv) => {
                let len = Stream::block(send, self.rank).len();
                (Form::Distribute { send, recv }, len)
            }
            (None, Some(block)) => (Form::Take { block, root }, block.len()),
            (None, None) => return false,
        };
        match uneven || len <= longest_part(self.size, limit) {
            true => self.lists(Listed::new(form, (self.rank, self.size), limit)),
            false => self.goes_by_messages(Kind::Scatter, len, root),
        }
        true
    }

    #[inline(always)]
    fn exchanges(&mut self, send: Option<&'a Many<'a>>, recv: &'a Many<'a>, limit: usize) {
        let Many::Equal(_) = recv else {
            let form = Form::Exchange { send, recv };
            return self.lists(Listed::new(form, (self.rank, self.size), limit));
        };
        let len = Stream::block(recv, self.rank).len();
        let room = len.saturating_mul(self.size as usize - 1);
        self.is(Kind::Alltoall, len, limit, What::Alltoall { send, recv });
        self.place = (room <= limit).then(|| Place::of(room));
    }

    #[inline(always)]
    fn goes_along(&mut self, operation: &'a Operation<'a>, edges: &'a Edges, track: usize) {
        if let Some(along) = Along::of(operation, self.rank, edges, track) {
            (self.kind, self.len) = (along.kind(), along.len());
            [self.looks, self.wakes] = along.looks_and_wakes();
            self.place = Some(along.place());
            self.what = What::Along(along);
            return;
        }
        // Only the ends of an edge know its length, so none is compared.
        let kind = match operation {
            Operation::NeighbourAllgather { .. } => Kind::NeighbourAllgather,
            _ => Kind::NeighbourAlltoall,
        };
        self.goes_by_messages(kind, 0, 0);
    }

    /// An operation with contributions of `len` bytes, in which all ranks look at all others unless
    /// something else is set later.
    #[inline(always)]
    fn is(&mut self, kind: Kind, len: usize, limit: usize, what: What<'a>) {
        (self.kind, self.len) = (kind, len);
        self.place = (len <= limit).then(|| Place::of(len));
        (self.looks, self.wakes) = (self.all(), self.all());
        self.what = what;
    }

    /// The same for a reduction: of what each rank shows, `part` is combined and goes to `to` at
    /// ranks that want it.
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
        let (len, room) = (items.shown_len(), items.room());
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
        // A rank that gives a block says in its kind whether the block goes as a message; this is
        // the kind for comparisons.
        self.kind = match part.kind() {
            Kind::GatherSent => Kind::Gather,
            kind => kind,
        };
        (self.len, self.root) = (part.len(), part.root());
        self.place = Some(part.place());
        self.what = What::Listed(part);
    }

    /// If the operation goes by messages, all ranks watch all others, because a rank might not take
    /// part. Otherwise, of any two ranks one looks at the other or wakes it: a rank that does not
    /// agree may be asleep, waiting for one that would never look at it.
    #[inline]
    fn settle(&mut self) {
        let all = self.all();
        match self.place {
            None => (self.looks, self.wakes) = (all, all),
            Some(_) => self.wakes |= all & !self.looks,
        }
        self.announce();
    }

    /// Determines the header to show, and the header that counts as agreement.
    #[inline]
    fn announce(&mut self) {
        let by_messages = self.place.is_none();
        let mut kind = self.kind;
        let (mut has_messages, mut is_marked) = (by_messages, by_messages);
        let mut is_plain = true;
        match &self.what {
            What::Nothing | What::Alltoall { .. } => {}
            What::Bcast { root, .. } => {
                if self.rank != *root && !by_messages {
                    kind = Kind::BcastAwaited;
                }
            }
            What::Reduce { to, .. } => {
                if kind == Kind::Reduce && to.is_some() && !by_messages {
                    kind = Kind::ReduceAwaited;
                }
            }
            What::Allgather { even, .. } => is_plain = *even,
            What::Along(along) => {
                has_messages = along.has_messages();
                (is_marked, is_plain) = (has_messages, false);
            }
            What::Listed(part) => {
                kind = part.kind();
                (has_messages, is_marked) = (part.has_messages(), part.is_marked());
                is_plain = false;
            }
        }
        self.has_messages = has_messages;
        self.announce_as(kind, is_marked, is_plain && !by_messages);
    }

    #[inline(always)]
    fn announce_as(&mut self, kind: Kind, is_marked: bool, is_plain: bool) {
        let shown = Header::new(0, kind, self.sorts.shown, self.len);
        self.shown = if is_marked {
            shown.by_messages()
        } else {
            shown
        };
        self.may_lend = self.size == 2 && self.len >= LEAST && is_lendable(self.shown);
        let wanted = || Header::new(0, self.kind, self.sorts.taken, self.len);
        self.wanted = (is_plain && self.sum.is_none()).then(wanted);
    }
}
