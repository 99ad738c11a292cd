//! The cost of a match while many entries that do not match are waiting.
//!
//! `depth-posted` and `depth-unexpected`: one way of an 8-byte message while that many receives, or
//! messages, wait on both sides, over every transport. `matching`: the queues alone, without a
//! device.

mod common;

use std::hint::black_box;
use std::time::Duration;

use common::between_two;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portolan::{Comm, Result};
use portolan_benches::{Buffers, Pattern, Steps, threads};
use portolan_core::matching::{Envelope, Pattern as Wanted, PostedQueue, UnexpectedQueue};

const DEPTHS: [u32; 4] = [0, 10, 1000, 100_000];

/// First tag of the waiting entries, far from the tags of the pattern.
const WAITING: u32 = 1000;

/// A ping-pong while `depth` entries wait. `fill` adds the entries and `clear` removes them.
fn past<W>(
    transport: &str,
    rounds: u64,
    fill: impl Fn(&Comm, u32) -> Result<W> + Sync,
    clear: impl Fn(&Comm, u32, W) -> Result<()> + Sync,
) -> Duration {
    let timed = threads::timed(transport, 2, |comm| {
        let peer = 1 - comm.rank();
        let mut buffers = Buffers::new(8, 1)?;
        let waiting = fill(comm, peer)?;
        comm.barrier()?;
        let steps = Steps::new(Pattern::Latency, 8, 1);
        steps.run(comm, 100, &mut buffers)?;
        let begun = comm.wtime();
        steps.run(comm, rounds, &mut buffers)?;
        let seconds = comm.wtime() - begun;
        comm.barrier()?;
        clear(comm, peer, waiting)?;
        Ok(seconds / 2.0)
    });
    timed.unwrap_or_else(|error| panic!("{transport}: {error}"))
}

fn posted(c: &mut Criterion) {
    let mut group = c.benchmark_group("depth-posted");
    for transport in common::transports() {
        for depth in DEPTHS {
            let fill = |comm: &Comm, peer| {
                let post = |i| Ok(comm.irecv_owned(vec![0_u8; 8], peer, WAITING + i)?);
                (0..depth).map(post).collect::<Result<Vec<_>>>()
            };
            let clear = |_: &Comm, _, waiting: Vec<portolan::RecvRequest<Vec<u8>>>| {
                for receive in waiting {
                    receive.cancel()?;
                    receive.wait()?;
                }
                Ok(())
            };
            group.bench_function(BenchmarkId::new(transport, depth), |bencher| {
                bencher.iter_custom(|rounds| past(transport, rounds, fill, clear));
            });
        }
    }
    group.finish();
}

fn unexpected(c: &mut Criterion) {
    let mut group = c.benchmark_group("depth-unexpected");
    for transport in common::transports() {
        for depth in DEPTHS {
            let fill = |comm: &Comm, peer| {
                let mut sends = Vec::new();
                for i in 0..depth {
                    sends.push(comm.isend_owned(vec![0_u8; 8], peer, WAITING + i)?);
                }
                Ok(sends)
            };
            let clear = |comm: &Comm, peer, sends: Vec<portolan::SendRequest<Vec<u8>>>| {
                let mut buffer = [0_u8; 8];
                for i in 0..depth {
                    comm.recv_into(&mut buffer, peer, WAITING + i)?;
                }
                for send in sends {
                    send.wait()?;
                }
                Ok(())
            };
            group.bench_function(BenchmarkId::new(transport, depth), |bencher| {
                bencher.iter_custom(|rounds| past(transport, rounds, fill, clear));
            });
        }
    }
    group.finish();
}

fn envelope(tag: u32) -> Envelope {
    Envelope {
        context: 0,
        source: tag % 7,
        tag,
    }
}

/// The posted queue: a receive is posted and its message arrives, past `depth` other receives.
fn matching_posted(c: &mut Criterion) {
    let mut group = c.benchmark_group("matching-posted");
    for depth in DEPTHS {
        let mut queue = PostedQueue::new();
        for i in 0..depth {
            queue.post(Wanted::exact(&envelope(WAITING + i)), i);
        }
        for (kind, wanted) in [
            ("exact", Wanted::exact(&envelope(1))),
            ("any", Wanted::any(0)),
        ] {
            group.bench_function(BenchmarkId::new(kind, depth), |bencher| {
                bencher.iter(|| {
                    queue.post(black_box(wanted), u32::MAX);
                    let found = queue.match_arrival(black_box(&envelope(1)));
                    assert_eq!(found, Some(u32::MAX));
                });
            });
        }
    }
    group.finish();
}

/// The unexpected queue: a message arrives and is received, past `depth` other messages.
fn matching_unexpected(c: &mut Criterion) {
    let mut group = c.benchmark_group("matching-unexpected");
    for depth in DEPTHS {
        let mut queue = UnexpectedQueue::new();
        for i in 0..depth {
            queue.push(envelope(WAITING + i), i);
        }
        let wanted = Wanted::exact(&envelope(1));
        group.bench_function(BenchmarkId::new("exact", depth), |bencher| {
            bencher.iter(|| {
                queue.push(black_box(envelope(1)), u32::MAX);
                let found = queue.take_match(black_box(&wanted));
                assert_eq!(found.map(|found| found.1), Some(u32::MAX));
            });
        });
    }
    group.finish();
}

/// All receives are posted, and their messages arrive in the opposite order. The time is per match.
fn matching_drain(c: &mut Criterion) {
    let mut group = c.benchmark_group("matching-drain-reverse");
    for depth in [1000, 100_000] {
        group.throughput(criterion::Throughput::Elements(depth.into()));
        group.bench_function(BenchmarkId::new("posted", depth), |bencher| {
            bencher.iter(|| {
                let mut queue = PostedQueue::new();
                for i in 0..depth {
                    queue.post(Wanted::exact(&envelope(i)), i);
                }
                for i in (0..depth).rev() {
                    assert_eq!(queue.match_arrival(&envelope(i)), Some(i));
                }
            });
        });
    }
    group.finish();
}

/// The baseline for the others: no entries wait, and none are added before.
fn bare(c: &mut Criterion) {
    let mut group = c.benchmark_group("depth-none");
    for transport in common::transports() {
        group.bench_function(BenchmarkId::new(transport, 0), |bencher| {
            bencher.iter_custom(|rounds| {
                let time = between_two(transport, rounds, |comm, rounds| {
                    let steps = Steps::new(Pattern::Latency, 8, 1);
                    steps.run(comm, rounds, &mut Buffers::new(8, 1)?)
                });
                time / 2
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = bare, posted, unexpected, matching_posted, matching_unexpected, matching_drain
}
criterion_main!(benches);
