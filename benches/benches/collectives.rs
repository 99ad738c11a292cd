//! Collective operations between threads as ranks: `OPERATION/TRANSPORT-RANKS/BYTES`. A name with
//! an `i` before it stands for the nonblocking form, started and waited for.
//!
//! These benches are for a comparison before and after a change. For figures beside other
//! implementations, between processes, use `portolan bench coll`. The root rotates, so that no rank
//! runs ahead.

mod common;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portolan::coll::{Allgather, Allreduce, Alltoall, Bcast, ReduceScatterBlock};
use portolan::{Comm, Op, Result};
use portolan_benches::threads;

/// Sizes as in `portolan bench`: of the whole message if there is one, else of one rank's block.
const SIZES: [usize; 2] = [8, 64 << 10];

/// One call on two buffers: one of a block, and one with a block per rank. The last argument is the
/// root.
type Call = fn(&Comm, &mut [f64], &mut [f64], u32) -> Result<()>;

/// The operation started in a scope, which waits for it.
macro_rules! started {
    ($comm:ident, $call:expr) => {
        $comm.scope(|scope| scope.start($call).map(drop))
    };
}

const CALLS: [(&str, Call); 10] = [
    ("bcast", |comm, one, _, root| comm.bcast(one, root)),
    ("ibcast", |comm, one, _, root| {
        started!(comm, Bcast::new(&mut *one, root))
    }),
    ("allreduce", |comm, one, _, _| {
        comm.allreduce_in_place(one, &Op::MAX)
    }),
    ("iallreduce", |comm, one, _, _| {
        started!(comm, Allreduce::in_place(&mut *one, Op::MAX))
    }),
    ("allgather", |comm, one, all, _| comm.allgather(one, all)),
    ("iallgather", |comm, one, all, _| {
        started!(comm, Allgather::new(&*one, &mut *all))
    }),
    ("alltoall", |comm, _, all, _| {
        comm.run(Alltoall::in_place(all)).map(drop)
    }),
    ("ialltoall", |comm, _, all, _| {
        started!(comm, Alltoall::in_place(&mut *all))
    }),
    ("reduce-scatter", |comm, one, all, _| {
        comm.reduce_scatter_block(all, one, &Op::MAX)
    }),
    ("ireduce-scatter", |comm, one, all, _| {
        started!(comm, ReduceScatterBlock::new(&*all, &mut *one, Op::MAX))
    }),
];

/// Repeats a call on all ranks and measures it.
fn measure(transport: &str, ranks: u32, rounds: u64, bytes: usize, call: Call) -> Duration {
    let timed = threads::timed(transport, ranks, |comm| {
        let items = bytes / size_of::<f64>();
        let (mut one, mut all) = (vec![1.0; items], vec![1.0; items * ranks as usize]);
        let mut run = |rounds: u64| {
            let mut roots = (0..ranks).cycle();
            let mut next = || roots.next().unwrap_or(0);
            (0..rounds).try_for_each(|_| call(comm, &mut one, &mut all, next()))
        };
        run(common::warm_up(rounds))?;
        comm.barrier()?;
        let begun = comm.wtime();
        run(rounds)?;
        Ok(comm.wtime() - begun)
    });
    timed.unwrap_or_else(|error| panic!("{transport}: {error}"))
}

fn collectives(c: &mut Criterion) {
    let barrier: (&str, Call) = ("barrier", |comm, _, _, _| comm.barrier());
    let sized = CALLS
        .iter()
        .flat_map(|&(name, call)| SIZES.map(|bytes| (name, call, bytes)));
    let all: Vec<_> = [(barrier.0, barrier.1, 0)]
        .into_iter()
        .chain(sized)
        .collect();
    for transport in common::transports() {
        for &(name, call, bytes) in &all {
            let mut group = c.benchmark_group(name);
            for ranks in [2, 4] {
                let id = BenchmarkId::new(format!("{transport}-{ranks}"), bytes);
                group.bench_function(id, |bencher| {
                    bencher.iter_custom(|rounds| measure(transport, ranks, rounds, bytes, call));
                });
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = collectives
}
criterion_main!(benches);
