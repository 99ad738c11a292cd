//! Descriptions of ranks that do not agree about an operation.

use portolan_core::comm::Communicator;
use portolan_core::{Device, Error, ErrorKind};

use crate::args::Name;
use crate::direct::agree::sort::Sort;
use crate::direct::blocking::exchange::ASIDE;
use crate::direct::boards::board::{Header, Kind};
use crate::run::{SAME_ENDS, wrong_edge};

/// What another rank does that this rank did not expect.
#[derive(Clone, Copy)]
pub(in crate::direct) struct Odd {
    pub(in crate::direct) rank: u32,
    pub(in crate::direct) header: Header,
    /// The other rank's length, of which the header may hold a part only.
    pub(in crate::direct) len: u64,
    /// The sort of this rank's own items.
    pub(in crate::direct) sort: Sort,
    /// Whether the other rank names another root.
    pub(in crate::direct) other_root: bool,
    /// Whether the other rank awaits that many bytes from this one.
    pub(in crate::direct) awaits: bool,
}

impl Odd {
    /// Whether the other rank has seen ranks that name different roots.
    pub(in crate::direct) fn hears_of_roots(&self) -> bool {
        self.header.kind() == Some(Kind::Disagree) && self.header.len() == 1
    }
}

/// The error for a rank that takes part in `kind` with the length `len`, and has seen another rank
/// do something else.
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

/// The error for a rank that has taken another's data of another sort than its own.
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

/// The error for two ranks that wait for each other. A rank that agrees about the root expects
/// nothing of a rank that waits.
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

/// The error of [`disagreement`] for rank `me`, for use where there is no communicator at hand.
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
        // The same error as with messages, which are truncated if they are too long.
        let (what, remedy) = wrong_edge(edges.text(), rank, odd.len, len);
        let class = match odd.len > len as u64 {
            true => ErrorKind::Truncated,
            false => ErrorKind::InvalidCount,
        };
        return Error::new(class, what).remedy(remedy);
    }
    let is_mark = |len: u64| usize::try_from(len).is_ok_and(|len| Header::GAPS.contains(&len));
    let in_rounds = odd.header.kind() == Some(Kind::ReduceInRounds);
    let has_gaps = is_mark(odd.len) || is_mark(len as u64) || in_rounds && odd.len > ASIDE as u64;
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
        // This rank contributes, and looks at the other because it takes it for the root. A rank
        // that contributes, too, names another root.
        Some(Kind::Gather) if kind == Kind::Gather => return other_root(me, rank, name),
        Some(known) if known.text() == name && known.waits() && odd.len == len as u64 => {
            return other_root(me, rank, name);
        }
        Some(known) if known.text() == name && odd.len == len as u64 && !mine.matches(theirs) => {
            return other_type(kind, odd);
        }
        Some(known @ (Kind::Allreduce | Kind::AllreduceHalved))
            if known != kind && known.text() == name && odd.len == len as u64 =>
        {
            let sorts = ["a predefined operator", "an operator of the program"];
            let of = |kind| sorts[usize::from(kind == Kind::AllreduceHalved)];
            let (theirs, mine) = (of(known), of(kind));
            (
                ErrorKind::InvalidArgument,
                format!("rank {rank} took part in {name} with {theirs} where this rank has {mine}"),
            )
        }
        Some(known) if known.text() == name && odd.len == len as u64 => (
            ErrorKind::InvalidCount,
            format!("rank {rank} took part in {name} with other lengths than this rank"),
        ),
        Some(known) if known.text() == name && kind.is_reduction() && has_gaps => (
            ErrorKind::InvalidCount,
            format!(
                "rank {rank} took part in {name} with values that lie in memory otherwise than this rank's, or with \
                 another number of them"
            ),
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
