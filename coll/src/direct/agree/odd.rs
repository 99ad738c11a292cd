//! Ranks that do not agree about an operation, in words.

use portolan_core::comm::Communicator;
use portolan_core::{Device, Error, ErrorKind};

use crate::args::Name;
use crate::direct::agree::sort::Sort;
use crate::direct::boards::board::{Header, Kind};
use crate::run::{SAME_ENDS, wrong_edge};

/// What a rank does that this one does not expect.
#[derive(Clone, Copy)]
pub(in crate::direct) struct Odd {
    pub(in crate::direct) rank: u32,
    pub(in crate::direct) header: Header,
    /// Its length, of which the header may have a part only.
    pub(in crate::direct) len: u64,
    /// Of what this rank's own items are.
    pub(in crate::direct) sort: Sort,
    /// Whether it names another root.
    pub(in crate::direct) other_root: bool,
    /// Whether it awaits that length of this rank.
    pub(in crate::direct) awaits: bool,
}

impl Odd {
    /// Whether the rank has seen others that name other roots.
    pub(in crate::direct) fn hears_of_roots(&self) -> bool {
        self.header.kind() == Some(Kind::Disagree) && self.header.len() == 1
    }
}

/// The error for a rank that takes part with the length `len` in `kind`, and has seen another do
/// otherwise.
#[cold]
pub(in crate::direct) fn disagreement<D: Device>(
    comm: &Communicator<D>,
    said: (Kind, usize),
    odd: Odd,
) -> Error {
    let attributes = comm.device().attributes();
    described(comm.rank(), said, odd)
        .on_rank(attributes.world_rank)
        .on_device(attributes.name)
}

/// The error for a rank that has taken another's data, of another sort than its own.
#[cold]
pub(in crate::direct) fn mismatch<D: Device>(
    comm: &Communicator<D>,
    kind: Kind,
    odd: Odd,
) -> Error {
    let attributes = comm.device().attributes();
    other_type(kind, odd)
        .on_rank(attributes.world_rank)
        .on_device(attributes.name)
}

fn other_type(kind: Kind, odd: Odd) -> Error {
    let (rank, name, theirs, mine) = (odd.rank, kind.text(), odd.header.sort(), odd.sort);
    let what =
        format!("rank {rank} took part in {name} with data of {theirs} where this rank has {mine}");
    Error::new(ErrorKind::TypeMismatch, what).remedy(
        "give data of the same type on every rank, or bytes, which match any; PORTOLAN_CHECK_SIGNATURE=off does \
         without the comparison",
    )
}

/// Both wait for the other: of a rank that waits nobody expects anything who agrees about the root.
fn other_root(me: u32, rank: u32, name: &str) -> Error {
    of_roots(format!(
        "rank {rank} took part in {name} with another root than rank {me}"
    ))
}

fn of_roots(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).remedy(
        "name the same root on every rank; PORTOLAN_COLL_CHECK=on compares them before data moves",
    )
}

/// The error of [`disagreement`], where there is no communicator at hand, of the rank `me`.
#[cold]
pub(in crate::direct) fn described(me: u32, (kind, len): (Kind, usize), odd: Odd) -> Error {
    let (rank, name) = (odd.rank, kind.text());
    if odd.other_root {
        return other_root(me, rank, name);
    }
    if odd.hears_of_roots() {
        return of_roots(format!(
            "rank {rank} has seen ranks that take part in {name} with another root than others"
        ));
    }
    let (theirs, mine) = (odd.header.sort(), odd.sort);
    let edges = match kind {
        Kind::NeighbourAllgather => Some(Name::NeighbourAllgather),
        Kind::NeighbourAlltoall => Some(Name::NeighbourAlltoall),
        _ => None,
    };
    if let Some(edges) = edges
        && odd.header.kind() == Some(kind)
        && odd.len != len as u64
    {
        if odd.awaits {
            let awaited = odd.len;
            let what = format!(
                "{edges}: neighbour {rank} awaits {awaited} bytes where this rank's counts make {len}"
            );
            return Error::new(ErrorKind::InvalidCount, what).remedy(SAME_ENDS);
        }
        // As where they are messages, of which one that is too long is cut.
        let (what, remedy) = wrong_edge(edges.text(), rank, odd.len, len);
        let class = match odd.len > len as u64 {
            true => ErrorKind::Truncated,
            false => ErrorKind::InvalidCount,
        };
        return Error::new(class, what).remedy(remedy);
    }
    let (class, what) = match odd.header.kind() {
        Some(known @ (Kind::BcastPassing | Kind::GatherSent)) if known.text() == name => {
            return other_root(me, rank, name);
        }
        Some(Kind::BcastMore) => (
            ErrorKind::InvalidArgument,
            format!(
                "rank {rank} is at an earlier bcast, in which this rank took no part, where this one calls {name}"
            ),
        ),
        // Of a rank that gives nobody expects anything but who collects.
        Some(Kind::Gather) if kind == Kind::Gather => return other_root(me, rank, name),
        Some(known) if known.text() == name && known.waits() && odd.len == len as u64 => {
            return other_root(me, rank, name);
        }
        Some(known) if known.text() == name && odd.len == len as u64 && !mine.matches(theirs) => {
            return other_type(kind, odd);
        }
        Some(known) if known.text() == name && odd.len == len as u64 => (
            ErrorKind::InvalidCount,
            format!("rank {rank} took part in {name} with other lengths than this rank"),
        ),
        Some(known) if known.text() == name && odd.awaits => (
            ErrorKind::InvalidCount,
            format!(
                "rank {rank} took part in {name} and awaits {} bytes where this rank gives {len}",
                odd.len
            ),
        ),
        Some(known) if known.text() == name => (
            ErrorKind::InvalidCount,
            format!(
                "rank {rank} took part in {name} with {} bytes where this rank expects {len}",
                odd.len
            ),
        ),
        Some(Kind::Disagree) => (
            ErrorKind::InvalidCount,
            format!(
                "rank {rank} has seen ranks that take part in {name} with other lengths than the {len} bytes here"
            ),
        ),
        Some(other) => (
            ErrorKind::InvalidArgument,
            format!(
                "rank {rank} called {} where rank {me} called {name}",
                other.text()
            ),
        ),
        None => (
            ErrorKind::PeerMisbehaved,
            format!("rank {rank} has written nonsense to its board"),
        ),
    };
    Error::new(class, what).remedy(
        "call collectives in the same order with equal lengths on every rank; PORTOLAN_COLL_CHECK=on \
         compares them before data moves",
    )
}
