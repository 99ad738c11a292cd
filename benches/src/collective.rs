//! Collective operations, timed one by one.
//!
//! As the OSU suite does: each operation is timed by every rank between two barriers, which are not
//! timed, and the figure is the mean over operations and ranks. A loop without barriers would time how
//! far the root of a broadcast can run ahead.

use std::hint::black_box;

use portolan::coll::{
    Allgather, Allreduce, Alltoall, Alltoallw, Barrier, Bcast, Exscan, Gather, Reduce,
    ReduceScatter, ReduceScatterBlock, Scan, Scatter, Shapes,
};
use portolan::level::Level;
use portolan::{Comm, Device, Error, ErrorKind, Layout, Op, Result};

use crate::measure::timed;
use crate::pattern::{Collective, Form};
use crate::{Plan, Setup};

/// Rank of the root, where there is one.
const ROOT: u32 = 0;
/// Looks at a nonblocking operation in a computation of its length.
const LOOKS: u64 = 20;

/// The figure of a rank in microseconds, or in percent hidden, and the rounds.
pub(crate) fn figure<L: Level, D: Device + 'static>(
    comm: &Comm<L, D>,
    collective: Collective,
    form: Form,
    setup: &Setup,
    plan: &Plan,
) -> Result<(f64, u64)> {
    let mut data = Floats::new(collective, plan.bytes, comm.size())?;
    let mut seen = Seen::default();
    let (_, rounds) = timed(comm, setup, plan, |rounds| {
        let rounds_of = |seen: &mut Seen, data: &mut Floats| match form {
            Form::Blocking => blocking(comm, collective, rounds, data, seen),
            Form::Nonblocking | Form::Hidden => started(comm, collective, rounds, 0, data, seen),
        };
        seen = Seen::default();
        rounds_of(&mut seen, &mut data)
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
    // What the operation takes longer than the computation was not hidden behind it.
    let open = (seen.operation - seen.compute) / (alone * rounds as f64);
    Ok((100.0 * (1.0 - open).clamp(0.0, 1.0), rounds))
}

/// What a rank has seen, in seconds, over all rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// In operations, from their beginning to their end.
    operation: f64,
    /// In between, in computations.
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
        // The call takes them away; whoever calls it has made them before.
        let both = (collective == Collective::Alltoallw).then(|| (shapes.clone(), shapes.clone()));
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
        }
        seen.operation += comm.wtime() - begun;
        comm.barrier()?;
    }
    Ok(())
}

/// Starts each operation, computes for some turns in which it looks at it now and then, and waits.
fn started<L: Level, D: Device + 'static>(
    comm: &Comm<L, D>,
    collective: Collective,
    rounds: u64,
    turns: u64,
    data: &mut Floats,
    seen: &mut Seen,
) -> Result<()> {
    let root = comm.rank() == ROOT;
    let (counts, blocks, shapes) = data.lists();
    for _ in 0..rounds {
        let (send, recv) = data.both();
        let both = (collective == Collective::Alltoallw).then(|| (shapes.clone(), shapes.clone()));
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
            match collective {
                Collective::Bcast => start!(Bcast::new(recv, ROOT)),
                Collective::Gather if root => start!(Gather::new(send, recv, ROOT)),
                Collective::Gather => start!(Gather::contribute(send, ROOT)),
                Collective::Scatter if root => start!(Scatter::new(send, recv, ROOT)),
                Collective::Scatter => start!(Scatter::receive(recv, ROOT)),
                Collective::Allgather => start!(Allgather::new(send, recv)),
                Collective::Alltoall => start!(Alltoall::new(send, recv)),
                Collective::Reduce if root => start!(Reduce::new(send, recv, Op::SUM, ROOT)),
                Collective::Reduce => start!(Reduce::contribute(send, Op::SUM, ROOT)),
                Collective::Allreduce => start!(Allreduce::new(send, recv, Op::SUM)),
                Collective::ReduceScatter => {
                    start!(ReduceScatter::new(send, recv, &counts, Op::SUM));
                }
                Collective::Scan => start!(Scan::new(send, recv, Op::SUM)),
                Collective::Exscan => start!(Exscan::new(send, recv, Op::SUM)),
                Collective::Barrier => start!(Barrier::new()),
                Collective::Gatherv if root => {
                    start!(Gather::new(send, recv, ROOT).counts(&blocks));
                }
                Collective::Gatherv => start!(Gather::contribute(send, ROOT).uneven()),
                Collective::Scatterv if root => {
                    start!(Scatter::new(send, recv, ROOT).counts(&blocks));
                }
                Collective::Scatterv => start!(Scatter::receive(recv, ROOT).uneven()),
                Collective::Allgatherv => start!(Allgather::new(send, recv).counts(&blocks)),
                Collective::Alltoallv => {
                    let call = Alltoall::new(send, recv);
                    start!(call.send_counts(&blocks).recv_counts(&blocks));
                }
                Collective::Alltoallw => {
                    let (sent, received) = both.unwrap_or_default();
                    start!(Alltoallw::new(send, sent, recv, received));
                }
                Collective::ReduceScatterBlock => {
                    start!(ReduceScatterBlock::new(send, recv, Op::SUM));
                }
            }
            Ok(())
        })?;
        seen.operation += comm.wtime() - begun;
        comm.barrier()?;
    }
    Ok(())
}

fn compute(turns: u64) {
    let mut value = 1_u64;
    for turn in 0..turns {
        value = black_box(value.wrapping_mul(turn | 1));
    }
}

fn seconds_of_a_turn() -> f64 {
    const TURNS: u64 = 100_000;
    compute(TURNS);
    let begun = std::time::Instant::now();
    compute(TURNS);
    begun.elapsed().as_secs_f64() / TURNS as f64
}

/// What is contributed and where results go: single-precision numbers at the beginnings of pages.
#[derive(Debug)]
struct Floats {
    memory: Vec<f32>,
    send: std::ops::Range<usize>,
    recv: std::ops::Range<usize>,
    /// Items of each rank's block of a reduce-scatter.
    counts: Vec<usize>,
    /// Items of the block of one rank, of operations with a block for each.
    block: usize,
}

impl Floats {
    /// Room for an operation on `bytes` bytes: of the whole message where there is one, else of the block
    /// of one rank.
    fn new(collective: Collective, bytes: usize, ranks: u32) -> Result<Self> {
        const PAGE: usize = 4096 / size_of::<f32>();
        let (items, ranks) = (bytes / size_of::<f32>(), ranks as usize);
        let counts: Vec<_> = (0..ranks)
            .map(|rank| items / ranks + usize::from(rank < items % ranks))
            .collect();
        let all = items.checked_mul(ranks);
        // Equal blocks of a vector that is at least as long.
        let part = items.div_ceil(ranks);
        let (send, recv) = match collective {
            Collective::Gather | Collective::Allgather => (Some(items), all),
            Collective::Gatherv | Collective::Allgatherv => (Some(items), all),
            Collective::Scatter | Collective::Scatterv => (all, Some(items)),
            Collective::Alltoall | Collective::Alltoallv | Collective::Alltoallw => (all, all),
            Collective::ReduceScatterBlock => (part.checked_mul(ranks), Some(part)),
            _ => (Some(items), Some(items)),
        };
        let mut memory = Vec::new();
        let pages = |len: usize| len.checked_next_multiple_of(PAGE);
        let mut total = || {
            let both = pages(send?)?.checked_add(pages(recv?)?)?;
            let total = both.checked_add(PAGE)?;
            memory.try_reserve_exact(total).ok()?;
            Some((total, send?, recv?))
        };
        let Some((total, send, recv)) = total() else {
            let what =
                format!("no memory for a collective operation of {bytes} bytes on {ranks} ranks");
            return Err(Error::new(ErrorKind::Exhausted, what).remedy("measure smaller messages"));
        };
        memory.resize(total, 1.0);
        let first = memory.as_ptr().align_offset(4096).min(PAGE);
        let second = first + send.next_multiple_of(PAGE);
        Ok(Self {
            memory,
            send: first..first + send,
            recv: second..second + recv,
            counts,
            block: items,
        })
    }

    /// Counts of a reduce-scatter; equal counts; and the same as layouts.
    fn lists(&self) -> (Vec<usize>, Vec<usize>, Shapes) {
        let (ranks, block) = (self.counts.len(), self.block);
        let float = Layout::of::<f32>();
        let shape = |rank| (rank * block * size_of::<f32>(), block, float.clone());
        let shapes = (0..ranks).map(shape).collect();
        (self.counts.clone(), vec![block; ranks], shapes)
    }

    fn both(&mut self) -> (&[f32], &mut [f32]) {
        let (front, back) = self.memory.split_at_mut(self.recv.start);
        (&front[self.send.clone()], &mut back[..self.recv.len()])
    }
}
