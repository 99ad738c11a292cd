//! The shortest operations of two ranks, in few instructions.
//!
//! Two ranks that each have a processor need the transfer of one cache line for a barrier, or for a
//! broadcast or an allreduce of a few bytes. What can be saved besides are instructions. Here
//! everything is known that is decided at run time elsewhere: one step, one cell, one other rank,
//! items side by side, an operator that is a loop over elements. (Two ranks near each other on an
//! EPYC of family 26, 8 bytes, one operation right behind the other: allreduce 62 ns in place of
//! 105, broadcast 26 in place of 44; a barrier takes 45 in place of 57.)
//!
//! This is the same protocol as that of [`bcast`] and [`exchange`], and the other rank may be
//! there. An operation of which anything is unusual is left to them before this rank has shown
//! anything. If the other rank does not show what is expected within a few looks, the operation is
//! [left](Begun::leave) to them in the middle of its step.
//!
//! All functions are inlined: an operation that has begun would otherwise go through memory, and
//! would be read in larger parts than it was written in, for which a processor waits.

use portolan_core::buffer::TypedBuf;
use portolan_core::comm::Communicator;
use portolan_core::{Device, Result};
use portolan_datatype::{Elementwise, Op};

use std::sync::atomic::Ordering;

use crate::args::Operation;
use crate::counters::Counters;
use crate::direct::agree::sort::{Sort, Sorts};
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::blocking::{bcast, exchange};
use crate::direct::boards::board::{CELLS, CHUNKS, Header, IN_CELL, Kind};
use crate::direct::boards::view::Boards;
use crate::direct::data::{Items, Stream, copy_bytes};
use crate::state::State;

/// How often a rank looks at the other before it leaves the rest to [`Steps`]: for about as long as
/// that rank needs to show its part if it arrives at the same time.
const LOOKS: u32 = 32;

/// Performs an operation; `None` if it is not one for this way. Then nothing has been done.
///
/// # Safety
/// As [`crate::run()`].
#[inline(always)]
pub(in crate::direct) unsafe fn run<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    boards: &Boards,
    operation: &Operation<'_>,
) -> Option<Result<()>> {
    let begin = |items| Begun::new(comm, state, boards, items);
    match operation {
        Operation::Barrier => Some(begin(None)?.and_then(Begun::barrier)),
        Operation::Bcast { data, root } if *root < 2 => {
            let len = len_of(data)?;
            let begun = begin(Some(data))?;
            // SAFETY: from the caller.
            Some(begun.and_then(|begun| unsafe {
                match *root == boards.rank {
                    true => begun.send(data, len),
                    false => begun.receive(data, len),
                }
            }))
        }
        Operation::Allreduce { send, recv, op } => {
            let len = len_of(recv)?;
            let from = match send {
                None => recv.ptr,
                Some(send) if is_alike(send, recv) => send.ptr,
                Some(_) => return None,
            };
            let reduced = Reduced {
                combine: op.elementwise(recv.layout)?,
                op,
                from,
                to: recv,
                len,
            };
            let begun = begin(Some(recv))?;
            // SAFETY: from the caller.
            Some(begun.and_then(|begun| unsafe { begun.allreduce(&reduced) }))
        }
        _ => None,
    }
}

/// Bytes of valid items that lie side by side and fit in a cell.
#[inline(always)]
fn len_of(items: &TypedBuf<'_>) -> Option<usize> {
    let len = items.count.checked_mul(items.layout.size())?;
    let is_quick = len <= IN_CELL && len > 0 && items.layout.is_contiguous();
    (is_quick && !items.ptr.is_null()).then_some(len)
}

/// Whether the contribution to a reduction has the form of its result.
#[inline(always)]
fn is_alike(send: &TypedBuf<'_>, recv: &TypedBuf<'_>) -> bool {
    send.count == recv.count && !send.ptr.is_null() && std::ptr::eq(send.layout, recv.layout)
}

/// The arguments of an allreduce, which is in place if `from` is where `to` is.
struct Reduced<'a> {
    combine: Elementwise,
    op: &'a Op,
    from: *const u8,
    to: &'a TypedBuf<'a>,
    /// Bytes of the contribution.
    len: usize,
}

/// An operation in its one step.
struct Begun<'a, D: Device> {
    comm: &'a Communicator<D>,
    state: &'a State,
    boards: &'a Boards,
    step: u32,
    sort: Sort,
}

impl<'a, D: Device> Begun<'a, D> {
    /// Enters the boards; `None` if this rank must wait before it may show anything, or if the
    /// ranks take turns on a processor.
    #[inline(always)]
    fn new(
        comm: &'a Communicator<D>,
        state: &'a State,
        boards: &'a Boards,
        items: Option<&TypedBuf<'_>>,
    ) -> Option<Result<Self>> {
        let step = boards.step.load(Ordering::Relaxed);
        let proved = boards.proved.load(Ordering::Relaxed);
        if step.wrapping_sub(proved) >= CELLS || comm.device().processor().is_some() {
            return None;
        }
        if let Err(error) = comm.check_members().and_then(|()| boards.enter(comm)) {
            return Some(Err(error));
        }
        state.begin();
        let sort = match items {
            Some(items) if boards.types => Sort::of_layout(items.layout),
            _ => Sort::ANY,
        };
        Some(Ok(Self {
            comm,
            state,
            boards,
            step,
            sort,
        }))
    }

    #[inline(always)]
    fn other(&self) -> u32 {
        1 - self.boards.rank
    }

    /// The data of a rank's cell.
    #[inline(always)]
    fn data_of(&self, rank: u32) -> *mut u8 {
        self.boards.map.data(self.boards.board(rank), self.step)
    }

    #[inline(always)]
    fn show(&self, kind: Kind, len: usize) {
        self.boards
            .show(Header::new(self.step, kind, self.sort, len));
        self.state.count(Counters::Signals, 1);
    }

    #[inline(always)]
    fn wake_other(&self) {
        let other = self.boards.processes[self.other() as usize];
        self.comm.device().notify(other);
    }

    /// Whether the other rank shows this within a few looks.
    #[inline(always)]
    fn sees(&self, kind: Kind, len: usize) -> bool {
        let expected = Some(Header::new(self.step, kind, self.sort, len));
        (0..LOOKS).any(|_| self.boards.seen_of(self.other(), self.step) == expected)
    }

    #[inline(always)]
    fn barrier(self) -> Result<()> {
        self.show(Kind::Barrier, 0);
        self.wake_other();
        self.boards.settle(false);
        match self.sees(Kind::Barrier, 0) {
            true => self.end(true),
            false => self.leave(exchange::end_begun_barrier),
        }
    }

    /// The root of a broadcast.
    ///
    /// # Safety
    /// `len` bytes of `data` are readable.
    #[inline(always)]
    unsafe fn send(self, data: &TypedBuf<'_>, len: usize) -> Result<()> {
        // SAFETY: from the caller; this rank's cell is free, as `new` has seen.
        unsafe { copy_bytes(data.ptr, self.data_of(self.boards.rank), len) };
        self.show(Kind::Bcast, len);
        self.wake_other();
        self.end(false)
    }

    /// The rank that receives a broadcast.
    ///
    /// # Safety
    /// `len` bytes of `data` are writable.
    #[inline(always)]
    unsafe fn receive(self, data: &TypedBuf<'_>, len: usize) -> Result<()> {
        self.show(Kind::BcastAwaited, len);
        if !self.sees(Kind::Bcast, len) {
            let root = self.other();
            // SAFETY: from the caller.
            return self.leave(|steps| unsafe { bcast::end_begun(steps, &Stream::of(data), root) });
        }
        // SAFETY: from the caller; the root has posted as many bytes.
        unsafe { copy_bytes(self.data_of(self.other()), data.ptr, len) };
        self.end(true)
    }

    /// An allreduce. The pause is right as in a barrier: the ranks arrive at about the same time.
    ///
    /// # Safety
    /// `len` bytes are readable at `from` and writable at `to`, and hold values that are valid for
    /// the operator.
    #[inline(always)]
    unsafe fn allreduce(self, reduced: &Reduced<'_>) -> Result<()> {
        let (from, to, len) = (reduced.from, reduced.to.ptr, reduced.len);
        // SAFETY: from the caller; this rank's cell is free, as `new` has seen.
        unsafe { copy_bytes(from, self.data_of(self.boards.rank), len) };
        self.show(Kind::Allreduce, len);
        self.wake_other();
        self.boards.settle(false);
        if !self.sees(Kind::Allreduce, len) {
            let items = Items::new(reduced.op, reduced.to.layout, reduced.to.count);
            // SAFETY: from the caller.
            return self.leave(|steps| unsafe {
                exchange::end_begun(steps, &items, Kind::Allreduce, from, to)
            });
        }
        // SAFETY: from the caller; the other rank has posted as many bytes.
        unsafe { self.combine(reduced) };
        self.end(true)
    }

    /// Combines this rank's contribution with the other's, rank 0's on the left. This rank's is not
    /// read from its cell: the other rank has just taken the cache line, and it would have to come
    /// back.
    ///
    /// # Safety
    /// As [`allreduce`](Self::allreduce), and the other rank has shown its contribution.
    #[inline(always)]
    unsafe fn combine(&self, reduced: &Reduced<'_>) {
        let (from, to, len) = (reduced.from, reduced.to.ptr, reduced.len);
        let theirs = self.data_of(self.other());
        let in_place = std::ptr::eq(from, to);
        // SAFETY: from the caller; `aside` has room for as much as a cell.
        unsafe {
            if self.boards.rank == 1 {
                if !in_place {
                    copy_bytes(from, to, len);
                }
                reduced.combine.apply(theirs, to, len);
            } else if in_place {
                let mut aside = [0u8; IN_CELL];
                copy_bytes(from, aside.as_mut_ptr(), len);
                copy_bytes(theirs, to, len);
                reduced.combine.apply(aside.as_ptr(), to, len);
            } else {
                copy_bytes(theirs, to, len);
                reduced.combine.apply(from, to, len);
            }
        }
    }

    /// Ends the operation. `looked` says whether it has seen the other rank's cell of this step.
    #[inline(always)]
    fn end(self, looked: bool) -> Result<()> {
        let (boards, state) = (self.boards, self.state);
        if looked {
            state.count(Counters::Looks, 1);
            boards.proved.store(self.step, Ordering::Relaxed);
        }
        let next = self.step.wrapping_add(1);
        boards.step.store(next, Ordering::Relaxed);
        boards.ahead.store(!looked, Ordering::Relaxed);
        if next.is_multiple_of(CHUNKS) {
            boards.publish(self.comm.device(), next);
        }
        boards.leave();
        state.count(Counters::Operations, 1);
        Ok(())
    }

    /// Leaves the rest of the operation to `rest`. This rank's cell has been posted.
    #[cold]
    #[inline(never)]
    fn leave(self, rest: impl FnOnce(Steps<'_, D>) -> Result<Way>) -> Result<()> {
        let sorts = Sorts {
            shown: self.sort,
            taken: self.sort,
        };
        let outcome = rest(Steps::new(self.comm, self.state, self.boards, sorts));
        self.boards.leave();
        self.state.count(Counters::Operations, 1);
        outcome.map(drop)
    }
}
