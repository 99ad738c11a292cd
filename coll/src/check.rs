//! Validation: all errors that can be found before any message is sent.
//!
//! The checks are the same for every form of a call. Errors that only the other ranks can know
//! about (another operation, another count) are for [`crate::compare`].

mod blocks;
mod inter;
mod overlaps;

use std::fmt::Display;

use portolan_core::buffer::TypedBuf;
use portolan_core::comm::{Communicator, Neighbours, OneWay};
use portolan_core::{Device, Error, ErrorKind, Result};
use portolan_datatype::{Layout, Op};

pub use self::inter::check_inter;

use self::blocks::Places;
use crate::args::{Name, Operation};
use crate::state::{self, Unfit};

/// Checks the arguments of an operation on a communicator.
///
/// # Errors
/// [`InvalidRank`](ErrorKind::InvalidRank) for the root, [`InvalidCount`](ErrorKind::InvalidCount)
/// for counts and displacements, [`InvalidBuffer`](ErrorKind::InvalidBuffer) for buffers that are
/// missing, [`InvalidLayout`](ErrorKind::InvalidLayout) for layouts that the operator does not
/// know; [`PeerFailed`](ErrorKind::PeerFailed) if a member is known to be dead.
#[inline(always)]
pub fn check<D: Device>(comm: &Communicator<D>, operation: &Operation<'_>) -> Result<()> {
    comm.check_members()?;
    match operation {
        Operation::Barrier => Ok(()),
        Operation::Bcast { data, root }
            if *root < comm.size() && are_right(data.ptr, data.count, data.layout) =>
        {
            Ok(())
        }
        Operation::Allreduce { send, recv, op } if is_plain(send.as_ref(), recv, op) => Ok(()),
        _ => check_arguments(comm, operation),
    }
}

fn check_arguments<D: Device>(comm: &Communicator<D>, operation: &Operation<'_>) -> Result<()> {
    let check = Check {
        comm,
        name: operation.name(),
    };
    // By reference: an operation that is copied as soon as it was made is read in larger parts than
    // it was written in, for which a processor waits.
    match operation {
        Operation::Barrier => Ok(()),
        Operation::Bcast { data, root } => {
            check.root(*root)?;
            check.data("the data", data)
        }
        Operation::Gather {
            send,
            recv,
            root,
            uneven,
        } => {
            check.root(*root)?;
            check.rooted(*root, "receive", recv.is_some(), send.is_some())?;
            check.optional("the contribution", send.as_ref())?;
            check.parcel("the contribution", send.as_ref(), *uneven)?;
            let Some(recv) = recv.as_ref().filter(|_| comm.rank() == *root) else {
                return Ok(());
            };
            check.form(recv, *uneven)?;
            check.target("the receive buffer", recv, check.ranks())?;
            check.own_block(send.as_ref(), recv, "the contribution")
        }
        Operation::Scatter {
            send,
            recv,
            root,
            uneven,
        } => {
            check.root(*root)?;
            check.rooted(*root, "send", send.is_some(), recv.is_some())?;
            check.optional("the receive buffer", recv.as_ref())?;
            check.parcel("the receive buffer", recv.as_ref(), *uneven)?;
            let Some(send) = send.as_ref().filter(|_| comm.rank() == *root) else {
                return Ok(());
            };
            check.form(send, *uneven)?;
            check.many("the send buffer", send, check.ranks())?;
            check.own_block(recv.as_ref(), send, "the receive buffer")
        }
        Operation::Allgather { send, recv } => {
            check.optional("the contribution", send.as_ref())?;
            check.form(recv, true)?;
            check.target("the receive buffer", recv, check.ranks())?;
            check.own_block(send.as_ref(), recv, "the contribution")
        }
        Operation::Alltoall { send, recv } => {
            if let Some(send) = send {
                check.many("the send buffer", send, check.ranks())?;
                check.same_form(send, recv)?;
            }
            check.target("the receive buffer", recv, check.ranks())?;
            let send = send.as_ref();
            send.map_or(Ok(()), |send| check.to_itself(send, recv))
        }
        Operation::NeighbourAllgather { send, recv } => {
            let (sources, _) = check.neighbours()?;
            check.data("the contribution", send)?;
            check.form(recv, true)?;
            check.target("the receive buffer", recv, sources)
        }
        Operation::NeighbourAlltoall { send, recv } => {
            let (sources, destinations) = check.neighbours()?;
            check.many("the send buffer", send, destinations)?;
            check.target("the receive buffer", recv, sources)
        }
        Operation::Reduce { .. }
        | Operation::Allreduce { .. }
        | Operation::Scan { .. }
        | Operation::ReduceScatter { .. }
        | Operation::ReduceScatterBlock { .. } => check_reduction(&check, operation),
    }
}

/// The same for reductions; other operations are not looked at.
fn check_reduction<D: Device>(check: &Check<'_, D>, operation: &Operation<'_>) -> Result<()> {
    let comm = check.comm;
    match operation {
        Operation::Reduce {
            send,
            recv,
            op,
            root,
        } => {
            check.root(*root)?;
            check.rooted(*root, "receive", recv.is_some(), send.is_some())?;
            let recv = recv.as_ref().filter(|_| comm.rank() == *root);
            check.optional("the contribution", send.as_ref())?;
            check.optional("the receive buffer", recv)?;
            check.alike(send.as_ref(), recv, 1)?;
            let data = send.as_ref().or(recv);
            data.map_or(Ok(()), |data| check.operator(op, data.layout))
        }
        Operation::Allreduce { send, recv, op } | Operation::Scan { send, recv, op, .. } => {
            check.reduction(send.as_ref(), recv, op)?;
            check.alike(send.as_ref(), Some(recv), 1)
        }
        Operation::ReduceScatter {
            send,
            recv,
            counts,
            op,
        } => {
            check.reduction(send.as_ref(), recv, op)?;
            let (size, rank) = (comm.size() as usize, comm.rank() as usize);
            check.scattered(send.as_ref(), recv, counts, size, rank)
        }
        Operation::ReduceScatterBlock { send, recv, op } => {
            check.reduction(send.as_ref(), recv, op)?;
            check.all_blocks(recv, comm.size() as usize)?;
            check.alike(send.as_ref(), Some(recv), 1)
        }
        _ => Ok(()),
    }
}

/// Whether the items are valid, in the common case that is quick to check.
#[inline]
fn are_right(ptr: *mut u8, count: usize, layout: &Layout) -> bool {
    fit(count, layout.size()) && !ptr.is_null() && layout.is_contiguous()
}

/// Whether `count` things of `each` bytes fit in the address space, so that sums of their parts do
/// not overflow.
#[inline]
fn fit(count: usize, each: usize) -> bool {
    let bytes = each.checked_mul(count);
    bytes.is_some_and(|bytes| bytes <= isize::MAX as usize)
}

/// The same for the items of a reduction whose result every rank gets.
#[inline]
fn is_plain(send: Option<&TypedBuf<'_>>, recv: &TypedBuf<'_>, op: &Op) -> bool {
    let alike = |send: &TypedBuf<'_>| {
        send.count == recv.count && !send.ptr.is_null() && std::ptr::eq(send.layout, recv.layout)
    };
    send.is_none_or(alike)
        && are_right(recv.ptr, recv.count, recv.layout)
        && !op.is_one_sided()
        && op.check(recv.layout).is_ok()
}

struct Check<'a, D: Device> {
    comm: &'a Communicator<D>,
    name: Name,
}

impl<D: Device> Check<'_, D> {
    #[cold]
    fn error(&self, kind: ErrorKind, what: &str, remedy: &str) -> Error {
        let what = format!("{}: {what}", self.name);
        self.comm.error(kind, what, remedy)
    }

    #[cold]
    fn wrong(&self, what: &str, remedy: &str) -> Error {
        self.error(ErrorKind::InvalidCount, what, remedy)
    }

    /// The numbers of the rank's sources and destinations.
    fn neighbours(&self) -> Result<(Places, Places)> {
        let neighbours = state::of(self.comm).neighbours(self.comm);
        let Neighbours {
            sources,
            destinations,
        } = neighbours.map_err(|unfit| self.unfit(unfit))?;
        let places = |all: usize, one| Places { count: all, one };
        Ok((
            places(sources.len(), "source"),
            places(destinations.len(), "destination"),
        ))
    }

    #[cold]
    fn unfit(&self, unfit: Unfit) -> Error {
        let name = self.comm.name();
        let (what, remedy) = match unfit {
            Unfit::NoTopology => (
                format!("communicator {name} has no topology"),
                "use one that was created as a grid or a graph, or a copy of it",
            ),
            Unfit::OneWay(OneWay {
                from,
                to,
                there,
                back,
            }) => (
                format!(
                    "in the graph of communicator {name}, {there} edge(s) lead from rank {from} \
                     to rank {to} and {back} back"
                ),
                "add the edges that lead back, or make a distributed graph",
            ),
        };
        self.error(ErrorKind::InvalidCommunicator, &what, remedy)
    }

    #[inline]
    fn root(&self, root: u32) -> Result<()> {
        match root < self.comm.size() {
            true => Ok(()),
            false => self.no_such_root(root),
        }
    }

    #[cold]
    fn no_such_root(&self, root: u32) -> Result<()> {
        let what = format!("{}: root", self.name);
        self.comm.check_rank(&what, root)
    }

    /// The root must have a buffer for the whole; every other rank must have one for its own part.
    fn rooted(&self, root: u32, whole: &str, has_whole: bool, has_own: bool) -> Result<()> {
        let rank = self.comm.rank();
        let what = if rank == root && !has_whole {
            format!("rank {rank} is the root and has no {whole} buffer")
        } else if rank != root && !has_own {
            format!(
                "rank {rank} is not the root {root} and has no buffer of its own: only the root can work in place"
            )
        } else {
            return Ok(());
        };
        Err(self.error(ErrorKind::InvalidBuffer, &what, "pass the buffer"))
    }

    #[inline]
    fn optional(&self, which: &str, data: Option<&TypedBuf<'_>>) -> Result<()> {
        data.map_or(Ok(()), |data| self.data(which, data))
    }

    #[inline]
    fn data(&self, which: &str, data: &TypedBuf<'_>) -> Result<()> {
        self.items(which, data.ptr, data.count, data.layout)
    }

    #[inline(always)]
    fn items(
        &self,
        which: impl Display,
        ptr: *mut u8,
        count: usize,
        layout: &Layout,
    ) -> Result<()> {
        match are_right(ptr, count, layout) {
            true => Ok(()),
            false => self.any_items(which, ptr, count, layout),
        }
    }

    /// The same for items with gaps, and for invalid ones.
    #[inline(never)]
    fn any_items(
        &self,
        which: impl Display,
        ptr: *mut u8,
        count: usize,
        layout: &Layout,
    ) -> Result<()> {
        let reach = layout.span(count).map_err(Error::from)?;
        if !fit(count, layout.size()) {
            let what = format!("{which} of {count} items is longer than the address space");
            return Err(self.wrong(&what, "use fewer items"));
        }
        if ptr.is_null() && !reach.is_empty() {
            let what = format!("{which} is null, with {count} items");
            let remedy =
                "collective operations take no absolute displacements: pass the buffer's address";
            return Err(self.error(ErrorKind::InvalidBuffer, &what, remedy));
        }
        Ok(())
    }

    #[inline(always)]
    fn reduction(&self, send: Option<&TypedBuf<'_>>, recv: &TypedBuf<'_>, op: &Op) -> Result<()> {
        self.optional("the contribution", send)?;
        self.data("the receive buffer", recv)?;
        self.operator(op, recv.layout)
    }

    #[inline(always)]
    fn operator(&self, op: &Op, layout: &Layout) -> Result<()> {
        if op.is_one_sided() {
            return Err(self.one_sided(op));
        }
        op.check(layout).map_err(|error| {
            // Most of these texts have a remedy already.
            let text = error.to_string();
            let any = "use an operator that knows the type, or one of your own (Op::new)";
            let (what, remedy) = text.split_once("; ").unwrap_or((&text, any));
            self.error(ErrorKind::InvalidLayout, what, remedy)
        })
    }

    #[cold]
    fn one_sided(&self, op: &Op) -> Error {
        let what = format!("`{}` is for one-sided communication only", op.name());
        let remedy = "use another operator, or one of your own (Op::new)";
        self.error(ErrorKind::InvalidArgument, &what, remedy)
    }

    /// Contribution and result must have the same layout and the same count.
    #[inline(always)]
    fn alike(
        &self,
        send: Option<&TypedBuf<'_>>,
        recv: Option<&TypedBuf<'_>>,
        blocks: usize,
    ) -> Result<()> {
        let (Some(send), Some(recv)) = (send, recv) else {
            return Ok(());
        };
        if send.count != recv.count * blocks {
            let what = format!(
                "the contribution has {} items, the receive buffer {}",
                send.count, recv.count
            );
            return Err(self.wrong(&what, "use the same count for both"));
        }
        self.one_layout(send, recv)
    }

    #[inline]
    fn one_layout(&self, send: &TypedBuf<'_>, recv: &TypedBuf<'_>) -> Result<()> {
        if std::ptr::eq(send.layout, recv.layout) {
            return Ok(());
        }
        // From here on one layout serves for both, so they have to be the same byte for byte:
        // either they are equal, or both consist only of the same number of values of one primitive
        // side by side.
        let plain = |layout: &Layout| {
            let primitive = layout.homogeneous().filter(|_| layout.is_contiguous());
            primitive.map(|primitive| (primitive, layout.size(), layout.extent()))
        };
        let (a, b) = (plain(send.layout), plain(recv.layout));
        if (a.is_some() && a == b) || send.layout == recv.layout {
            return Ok(());
        }
        let what = "the contribution and the receive buffer have different layouts";
        Err(self.error(
            ErrorKind::InvalidLayout,
            what,
            "use the same layout for both",
        ))
    }

    /// `blocks` such blocks must fit in memory.
    fn all_blocks(&self, block: &TypedBuf<'_>, blocks: usize) -> Result<()> {
        let all = block.count.checked_mul(blocks);
        // Items that overlap have more bytes of data than the range they reach over.
        let fits = |&all: &usize| block.layout.span(all).is_ok() && fit(all, block.layout.size());
        match all.filter(fits) {
            Some(_) => Ok(()),
            None => Err(self.wrong("the blocks overflow the address space", "use fewer items")),
        }
    }

    /// As many blocks as there are ranks, each as long as this rank's own, must fit in memory: a
    /// rank in a tree may have to pass on that much.
    #[inline]
    fn parcel(&self, which: &str, own: Option<&TypedBuf<'_>>, uneven: bool) -> Result<()> {
        let Some(own) = own else { return Ok(()) };
        let (each, ranks) = (own.count * own.layout.size(), self.comm.size());
        if uneven || fit(ranks as usize, each) {
            return Ok(());
        }
        self.too_long(which, each, ranks)
    }

    #[cold]
    fn too_long(&self, which: &str, each: usize, ranks: u32) -> Result<()> {
        let what = format!(
            "{which} of {each} bytes on each of {ranks} rank(s) is longer than the address space"
        );
        Err(self.wrong(&what, "use fewer items"))
    }

    /// Arguments of a reduce-scatter: every rank gets a block of what all ranks contribute. `rank`
    /// of `size` is the caller.
    fn scattered(
        &self,
        send: Option<&TypedBuf<'_>>,
        recv: &TypedBuf<'_>,
        counts: &[usize],
        size: usize,
        rank: usize,
    ) -> Result<()> {
        if counts.len() != size {
            let what = format!("{} count(s) for {size} rank(s)", counts.len());
            return Err(self.wrong(&what, "give one count for every rank"));
        }
        let total = counts
            .iter()
            .try_fold(0usize, |sum, &count| sum.checked_add(count));
        let (has, wants) = match send {
            Some(send) => (Some(send.count), total),
            None => (Some(recv.count), total),
        };
        if has != wants {
            let what = format!(
                "the contribution has {} items, the counts sum up to {}",
                has.unwrap_or_default(),
                wants.map_or("more than the address space".to_owned(), |sum| sum
                    .to_string())
            );
            return Err(self.wrong(&what, "contribute as many items as all ranks get"));
        }
        match send {
            Some(send) => {
                if recv.count < counts[rank] {
                    let what = format!(
                        "the receive buffer has {} items, the block of rank {rank} {}",
                        recv.count, counts[rank]
                    );
                    return Err(self.wrong(&what, "make room for the own block"));
                }
                self.one_layout(send, recv)
            }
            None => Ok(()),
        }
    }
}
