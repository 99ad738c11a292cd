//! The edges of a distributed graph of which each rank gives its own. An edge that only one of its
//! ends gives would keep neighbour collectives waiting, and no rank by itself can know of it.

use portolan_core::comm::{Communicator, Edges};
use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::Layout;

use crate::args::{Many, Operation};
use crate::blocking::run;

/// Edges from one rank to another that the two ends do not give alike: where they begin, where they
/// end, how many are given there as destinations, and how many here as sources.
type Torn = [u32; 4];

/// In place of a rank in a [`Torn`]: there are no such edges.
const WHOLE: u32 = u32::MAX;

/// Compares the edges of all ranks: each tells every other how many edges it sends along.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if two ranks do not give the same number of
/// edges from one to the other, with the same text on all ranks.
pub(super) fn compare<D: Device>(
    comm: &Communicator<D>,
    sources: &Edges,
    destinations: &Edges,
) -> Result<()> {
    let begin = exchanged(comm, counted(comm, destinations))?;
    let end = counted(comm, sources);
    let mut numbers = (0..).zip(begin.into_iter().zip(end));
    let torn = numbers.find(|(_, (begin, end))| begin != end);
    let mine = match torn {
        Some((from, (begin, end))) => [from, comm.rank(), begin, end],
        None => [WHOLE; 4],
    };
    let all = gathered(comm, mine)?;
    match all.iter().find(|torn| torn[0] != WHOLE) {
        Some(torn) => Err(one_ended(comm, *torn)),
        None => Ok(()),
    }
}

/// How many edges there are to each rank. (Ranks that do not exist are for the creation to refuse.)
fn counted<D: Device>(comm: &Communicator<D>, edges: &Edges) -> Vec<u32> {
    let mut counts = vec![0; comm.size() as usize];
    for &rank in edges.ranks() {
        if let Some(count) = counts.get_mut(rank as usize) {
            *count += 1;
        }
    }
    counts
}

/// What the ranks have for this one, each one number.
fn exchanged<D: Device>(comm: &Communicator<D>, mut to: Vec<u32>) -> Result<Vec<u32>> {
    let layout = Layout::of::<u32>();
    let mut from = vec![0; to.len()];
    let alltoall = Operation::Alltoall {
        send: Some(Many::Equal(each(to.as_mut_ptr(), 1, &layout))),
        recv: Many::Equal(each(from.as_mut_ptr(), 1, &layout)),
    };
    // SAFETY: both have a number for each rank, and outlive the call.
    unsafe { run(comm, &alltoall) }?;
    Ok(from)
}

/// What each rank has.
fn gathered<D: Device>(comm: &Communicator<D>, mut mine: Torn) -> Result<Vec<Torn>> {
    let layout = Layout::of::<u32>();
    let mut all = vec![[0; 4]; comm.size() as usize];
    let allgather = Operation::Allgather {
        send: Some(each(mine.as_mut_ptr(), 4, &layout)),
        recv: Many::Equal(each(all.as_mut_ptr().cast(), 4, &layout)),
    };
    // SAFETY: there is room for the numbers of each rank, and both outlive the call.
    unsafe { run(comm, &allgather) }?;
    Ok(all)
}

/// Blocks of `count` numbers.
fn each(ptr: *mut u32, count: usize, layout: &Layout) -> TypedBuf<'_> {
    TypedBuf {
        ptr: ptr.cast(),
        count,
        layout,
        memory: MemoryKind::Host,
    }
}

#[cold]
fn one_ended<D: Device>(comm: &Communicator<D>, torn: Torn) -> portolan_core::Error {
    let [from, to, begin, end] = torn;
    comm.error(
        ErrorKind::InvalidArgument,
        format!(
            "dist_graph_create_adjacent: rank {from} gives {begin} edge(s) to rank {to}, which \
             gives {end} from rank {from}"
        ),
        "give each edge twice: where it begins as a destination, and where it ends as a source",
    )
}
