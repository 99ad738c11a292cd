//! Collective operations, timed one by one.
//!
//! As in the OSU suite, every rank times each operation between two barriers, which are not timed,
//! and the figure is the mean over operations and ranks. A loop without barriers would measure how
//! far the root of a broadcast can run ahead. Neighbour collectives use a ring, in which each rank
//! has one neighbour before it and one after it.

mod data;
mod described;
mod persistent;

use std::hint::black_box;

use portolan::Level;
use portolan::coll::{Alltoallw, NeighbourAllgather, NeighbourAlltoall, NeighbourAlltoallw};
use portolan::topology::Dimension;
use portolan::{Comm, Device, Op, Result};

use crate::hidden::{compute, hidden_share, seconds_of_a_turn};
use crate::measure::timed;
use crate::pattern::{Collective, Form};
use crate::{Plan, Setup};
use data::Floats;
use described::described;

/// Rank of the root, for operations that have one.
const ROOT: u32 = 0;
/// How often the computation checks the nonblocking operation that it hides.
const LOOKS: u64 = 20;

/// The figure of this rank in microseconds, or the hidden share in percent, and the number of
/// rounds.
pub(crate) fn figure<L: Level, D: Device + 'static>(
    comm: &Comm<L, D>,
    collective: Collective,
    form: Form,
    setup: &Setup,
    plan: &Plan,
) -> Result<(f64, u64)> {
    // A ring needs a communicator of its own. So does a persistent operation: the boards of a
    // communicator have room for only some persistent operations.
    let apart = match (collective.is_of_neighbours(), form) {
        (true, _) => Some(ring(comm)?),
        (false, Form::Persistent) => Some(comm.dup()?),
        (false, _) => None,
    };
    let comm = apart.as_ref().unwrap_or(comm);
    let mut data = Floats::new(collective, plan.bytes, comm.size())?;
    let mut again = match form {
        Form::Persistent => Some(persistent::again(comm, collective, &mut data)?),
        _ => None,
    };
    let mut seen = Seen::default();
    let (_, rounds) = timed(comm, setup, plan, |rounds| {
        seen = Seen::default();
        match (form, &mut again) {
            (Form::Blocking, _) => blocking(comm, collective, rounds, &mut data, &mut seen),
            (_, Some(again)) => restarted(comm, &mut **again, rounds, &mut seen),
            (_, None) => started(comm, collective, rounds, 0, &mut data, &mut seen),
        }
    })?;
    let alone = seen.operation / rounds as f64;
    if form != Form::Hidden {
        return Ok((alone * 1e6, rounds));
    }
    let turns = (alone / seconds_of_a_turn()) as u64;
    seen = Seen::default();
    started(
        comm,
        collective,
        rounds,
        turns.max(LOOKS),
        &mut data,
        &mut seen,
    )?;
    let share = hidden_share(alone * rounds as f64, seen.operation, seen.compute);
    Ok((share, rounds))
}

/// A communicator of the same ranks as a ring.
fn ring<L: Level, D: Device>(comm: &Comm<L, D>) -> Result<Comm<L, D>> {
    let around = [Dimension::periodic(comm.size())];
    let ring = comm.cart_create(&around, false)?;
    Ok(ring.map_or_else(|| comm.clone(), |ring| Comm::clone(&ring)))
}

/// What a rank has measured, in seconds, over all rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Time in operations, from their beginning to their end.
    operation: f64,
    /// Time in computations within the operations.
    compute: f64,
}

fn blocking<L: Level, D: Device>(
    comm: &Comm<L, D>,
    collective: Collective,
    rounds: u64,
    data: &mut Floats,
    seen: &mut Seen,
) -> Result<()> {
    let root = comm.rank() == ROOT;
    let (counts, blocks, shapes) = data.lists();
    for _ in 0..rounds {
        let (send, recv) = data.both();
        // The call consumes the layouts, so they are made outside of the timed part.
        let both = collective
            .has_shapes()
            .then(|| (shapes.clone(), shapes.clone()));
        let begun = comm.wtime();
        match collective {
            Collective::Barrier => comm.barrier()?,
            Collective::Gatherv => {
                comm.gatherv(send, if root { recv } else { &mut [] }, &blocks, ROOT)?;
            }
            Collective::Scatterv => {
                comm.scatterv(if root { send } else { &[] }, &blocks, recv, ROOT)?;
            }
            Collective::Allgatherv => comm.allgatherv(send, recv, &blocks)?,
            Collective::Alltoallv => comm.alltoallv(send, &blocks, recv, &blocks)?,
            Collective::Alltoallw => {
                let (sent, received) = both.unwrap_or_default();
                comm.run(Alltoallw::new(send, sent, recv, received))?;
            }
            Collective::ReduceScatterBlock => comm.reduce_scatter_block(send, recv, &Op::SUM)?,
            Collective::Bcast => comm.bcast(recv, ROOT)?,
            Collective::Gather => comm.gather(send, if root { recv } else { &mut [] }, ROOT)?,
            Collective::Scatter => comm.scatter(if root { send } else { &[] }, recv, ROOT)?,
            Collective::Allgather => comm.allgather(send, recv)?,
            Collective::Alltoall => comm.alltoall(send, recv)?,
            Collective::Reduce => {
                comm.reduce(send, if root { recv } else { &mut [] }, &Op::SUM, ROOT)?;
            }
            Collective::Allreduce => comm.allreduce(send, recv, &Op::SUM)?,
            Collective::ReduceScatter => comm.reduce_scatter(send, recv, &counts, &Op::SUM)?,
            Collective::Scan => comm.scan(send, recv, &Op::SUM)?,
            Collective::Exscan => comm.exscan(send, recv, &Op::SUM)?,
            Collective::NeighbourAllgather => comm.neighbour_allgather(send, recv)?,
            Collective::NeighbourAllgatherv => {
                comm.run(NeighbourAllgather::new(send, recv).counts(&blocks))?;
            }
            Collective::NeighbourAlltoall => comm.neighbour_alltoall(send, recv)?,
            Collective::NeighbourAlltoallv => {
                let call = NeighbourAlltoall::new(send, recv);
                comm.run(call.send_counts(&blocks).recv_counts(&blocks))?;
            }
            Collective::NeighbourAlltoallw => {
                let (sent, received) = both.unwrap_or_default();
                comm.run(NeighbourAlltoallw::new(send, sent, recv, received))?;
            }
        }
        seen.operation += comm.wtime() - begun;
        comm.barrier()?;
    }
    Ok(())
}

/// Starts each operation, computes for some turns while it checks the operation now and then, and
/// waits.
fn started<L: Level, D: Device + 'static>(
    comm: &Comm<L, D>,
    collective: Collective,
    rounds: u64,
    turns: u64,
    data: &mut Floats,
    seen: &mut Seen,
) -> Result<()> {
    let root = comm.rank() == ROOT;
    let lists = data.lists();
    for _ in 0..rounds {
        let (send, recv) = data.both();
        let both = collective
            .has_shapes()
            .then(|| (lists.2.clone(), lists.2.clone()));
        let begun = comm.wtime();
        comm.scope(|scope| {
            macro_rules! start {
                ($call:expr) => {{
                    let operation = scope.start($call)?;
                    // Without a computation the clock is read as often as for a blocking call.
                    if turns > 0 {
                        let started = comm.wtime();
                        for _ in 0..LOOKS {
                            compute(turns / LOOKS);
                            black_box(operation.is_complete());
                        }
                        seen.compute += comm.wtime() - started;
                    }
                    operation.wait()?;
                }};
            }
            described!(collective, root, (send, recv), (&lists, both), start);
            Ok(())
        })?;
        seen.operation += comm.wtime() - begun;
        comm.barrier()?;
    }
    Ok(())
}

/// Starts a persistent operation again and again, and waits for it each time.
fn restarted<L: Level, D: Device>(
    comm: &Comm<L, D>,
    again: &mut dyn persistent::Again,
    rounds: u64,
    seen: &mut Seen,
) -> Result<()> {
    for _ in 0..rounds {
        let begun = comm.wtime();
        again.start_and_wait()?;
        seen.operation += comm.wtime() - begun;
        comm.barrier()?;
    }
    Ok(())
}
