//! Creations of communicators, which are collective, too. `core` makes communicators with messages
//! of its own, which are in no schedule, so the ranks compare their calls in an operation before
//! the creation.

use portolan_core::comm::{Communicator, Dimension, Edges, Graph, InterCommunicator, SplitBy};
use portolan_core::{Device, Request, Result};

use super::data::Data;
use super::reduced::Reduced;
use super::{BlocksAs, Form, Side, Stamp, agree, edges, mark, start_agreeing};
use crate::state;

/// How a communicator is made, as far as the debug mode compares it.
///
/// Arguments that may differ between ranks (a group, a color, a key) are not included. Edges may
/// differ, but both ends of an edge have to give it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Creation<'a> {
    /// MPI-4 section 7.4.2, `MPI_Comm_dup`.
    Dup,
    /// MPI-4 section 7.4.2, `MPI_Comm_create`.
    Create,
    /// MPI-4 section 7.4.2, `MPI_Comm_split`.
    Split,
    /// MPI-4 section 7.4.2, `MPI_Comm_split_type`, with the property that the ranks of a part
    /// share.
    SplitBy(SplitBy),
    /// MPI-4 section 8.5.1, with the grid.
    CartCreate(&'a [Dimension]),
    /// MPI-4 section 8.5.7, with the dimensions that are kept.
    CartSub(&'a [bool]),
    /// MPI-4 section 8.5.3, with the graph.
    GraphCreate(&'a Graph),
    /// MPI-4 section 8.5.4, `MPI_Dist_graph_create_adjacent`, with the rank's own edges.
    DistGraphCreateAdjacent {
        /// Edges that end at this rank.
        sources: &'a Edges,
        /// Edges that begin at this rank.
        destinations: &'a Edges,
    },
    /// MPI-4 section 8.5.4, `MPI_Dist_graph_create`.
    DistGraphCreate,
    /// MPI-4 section 7.6.2, with the rank of the leader.
    IntercommCreate(u32),
    /// MPI-4 section 7.6.2, `MPI_Intercomm_merge`.
    Merge,
}

/// The number of the first creation in a stamp; operations have lower numbers.
const FIRST: u8 = 0x80;
/// Names, in the order of the numbers.
const TEXTS: [&str; 11] = [
    "dup",
    "create",
    "split",
    "split_by",
    "cart_create",
    "sub of a grid",
    "graph_create",
    "dist_graph_create_adjacent",
    "dist_graph_create",
    "intercomm_create",
    "merge",
];

impl Creation<'_> {
    fn number(self) -> u8 {
        let place = match self {
            Self::Dup => 0,
            Self::Create => 1,
            Self::Split => 2,
            Self::SplitBy(_) => 3,
            Self::CartCreate(_) => 4,
            Self::CartSub(_) => 5,
            Self::GraphCreate(_) => 6,
            Self::DistGraphCreateAdjacent { .. } => 7,
            Self::DistGraphCreate => 8,
            Self::IntercommCreate(_) => 9,
            Self::Merge => 10,
        };
        FIRST + place
    }

    /// A hash of the arguments that all ranks have to pass alike; 0 if there are none.
    fn mark(self) -> u64 {
        match self {
            Self::SplitBy(by) => mark([by as usize].into_iter()),
            Self::CartCreate(dims) => mark(
                dims.iter()
                    .flat_map(|dim| [dim.size as usize, usize::from(dim.periodic)]),
            ),
            Self::CartSub(keep) => mark(keep.iter().map(|&keep| usize::from(keep))),
            Self::GraphCreate(graph) => mark((0..graph.size()).flat_map(|rank| {
                let neighbours = graph.neighbours(rank);
                let edges = neighbours.iter().map(|&rank| rank as usize);
                std::iter::once(neighbours.len()).chain(edges)
            })),
            _ => 0,
        }
    }

    fn stamp(self, form: Form, side: Option<Side>) -> Stamp {
        let leader = match self {
            Self::IntercommCreate(leader) => Some(leader),
            _ => None,
        };
        Stamp {
            name: self.number(),
            form,
            blocks_as: BlocksAs::Equal,
            has_root: leader.is_some(),
            root: leader.unwrap_or_default(),
            data: Data::NONE,
            sent: Data::NONE,
            reduced: Reduced::default(),
            blocks: self.mark(),
            side,
        }
    }
}

/// The name of the creation with this number.
pub(super) fn text(number: u8) -> Option<&'static str> {
    let place = number.checked_sub(FIRST)?;
    TEXTS.get(usize::from(place)).copied()
}

/// What the hash of the creation with this number covers: the word for a rank's value, and the word
/// for a different value.
pub(super) fn marked(number: u8) -> Option<(&'static str, &'static str)> {
    text(number).map(|text| match text {
        "cart_create" | "sub of a grid" => ("its dimensions", "other dimensions"),
        "graph_create" => ("its graph", "another graph"),
        _ => ("its kind of parts", "another kind of parts"),
    })
}

/// The word for the rank that all have to name.
pub(super) fn root_noun(number: u8) -> &'static str {
    text(number).map_or("root", |_| "leader")
}

/// Compares what the ranks are about to do before a creation over this communicator, if the
/// settings ask for it. In that case it takes numbers among the communicator's operations.
///
/// # Errors
/// [`InvalidArgument`](portolan_core::ErrorKind::InvalidArgument) if the ranks do not agree, with
/// the same text on all of them. Those of [`check_members`](Communicator::check_members).
pub fn compare_creation<D: Device>(comm: &Communicator<D>, creation: Creation<'_>) -> Result<()> {
    if !state::of_job(comm).options.compare {
        return Ok(());
    }
    comm.check_members()?;
    agree(comm, || creation.stamp(Form::Blocking, None))?;
    match creation {
        Creation::DistGraphCreateAdjacent {
            sources,
            destinations,
        } => edges::compare(comm, sources, destinations),
        _ => Ok(()),
    }
}

/// Starts to compare before a creation in the background; `None` if the settings do not ask for it.
/// Otherwise it takes a number among the communicator's operations.
///
/// # Errors
/// [`Exhausted`](portolan_core::ErrorKind::Exhausted) if there are no more request slots; those of
/// [`check_members`](Communicator::check_members). The request ends with those of
/// [`compare_creation`].
pub fn start_comparing<D: Device>(
    comm: &Communicator<D>,
    creation: Creation<'_>,
) -> Result<Option<Request>> {
    if !state::of_job(comm).options.compare {
        return Ok(None);
    }
    comm.check_members()?;
    start_agreeing(comm, || creation.stamp(Form::Nonblocking, None))
}

/// Compares before a creation over both groups of an intercommunicator.
///
/// # Errors
/// As [`compare_creation`].
pub fn compare_inter_creation<D: Device>(
    comm: &InterCommunicator<D>,
    creation: Creation<'_>,
) -> Result<()> {
    let both = comm.merged();
    if !state::of_job(both).options.compare {
        return Ok(());
    }
    both.check_members()?;
    agree(both, || creation.stamp(Form::Blocking, Some(side(comm))))
}

/// Starts to compare before a creation over both groups of an intercommunicator, in the background.
///
/// # Errors
/// As [`start_comparing`].
pub fn start_comparing_inter<D: Device>(
    comm: &InterCommunicator<D>,
    creation: Creation<'_>,
) -> Result<Option<Request>> {
    let both = comm.merged();
    if !state::of_job(both).options.compare {
        return Ok(None);
    }
    both.check_members()?;
    start_agreeing(both, || creation.stamp(Form::Nonblocking, Some(side(comm))))
}

/// The caller's place among both groups.
fn side<D: Device>(comm: &InterCommunicator<D>) -> Side {
    Side {
        low: comm.local_offset() == 0,
        roots: false,
        world_rank: comm.merged().device().attributes().world_rank,
    }
}
