//! Where the time of an 8-byte message goes: the same path from one rank to another, with one more
//! layer in each bench.
//!
//! `budget-apart/…` is one way between two threads on two cores. `line` is what the machine needs,
//! `transport` adds cells and polling, `device` matching and the engine, `facade` the checks.
//! `budget-code/…` is a send and its receive on one thread, where nothing has to travel: the cost
//! of the code alone. All are criterion's means, so that they can be compared with each other.
//! docs/budget.md has the figures, and explains them.

mod common;

use std::hint::{black_box, spin_loop};
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::between_two;
use criterion::{Criterion, criterion_group, criterion_main};
use portolan::{Builder, Comm, Device, Result, Source, Tag, Tags};
use portolan_benches::{allowed_processors, pin};
use portolan_core::config::Settings;
use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};
use portolan_core::{ContigBuf, SendMode};
use portolan_shm::Shm;

/// A handler that takes packets and counts them.
#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, header: &Header, _payload: Payload<'_>) {
        black_box(header);
        self.0 += 1;
    }
}

/// Sends a packet of 8 bytes to the only other rank.
fn hand_over(shm: &mut Shm) {
    let data = [0_u8; 8];
    let header = Header::default();
    let peer = 1 - shm.rank();
    // SAFETY: the data is readable, the peer is there and not this rank, and 8 bytes are short.
    while unsafe { shm.send_short(peer, &header, data.as_ptr(), data.len()) } == Sent::Full {
        shm.poll(&mut Count::default());
    }
}

fn take(shm: &mut Shm, sink: &mut Count) {
    let before = sink.0;
    while sink.0 == before {
        shm.poll(sink);
    }
}

fn transports() -> [Shm; 2] {
    let both = portolan_shm::in_process(2, &Settings::default()).expect("there is memory");
    let Ok(both) = both.try_into() else {
        unreachable!("two were asked for")
    };
    both
}

/// The time of `rounds` rounds between two pinned threads, after a warm-up. `first` and `second`
/// are told how many rounds they have.
fn ping_pongs(
    rounds: u64,
    mut first: impl FnMut(u64) + Send,
    mut second: impl FnMut(u64) + Send,
) -> Duration {
    let processors = allowed_processors();
    let begin = Barrier::new(2);
    let place = |rank: usize| {
        if let Some(&processor) = processors.get(rank) {
            // If pinning fails, the figure is less reliable, but still a figure.
            let _ = pin(processor);
        }
        begin.wait();
    };
    let warm_up = 100;
    thread::scope(|scope| {
        scope.spawn(|| {
            place(1);
            second(warm_up + rounds);
        });
        // On a thread of its own, because the pinning would outlast the bench on this one.
        let first = scope.spawn(|| {
            place(0);
            first(warm_up);
            let begun = Instant::now();
            first(rounds);
            begun.elapsed()
        });
        first.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// A number that is alone in its cache line, and in the pair of lines that the processor fetches
/// together.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    fn now(&self) -> u64 {
        // Relaxed: only the thread that stores into this line asks for it.
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, turn: u64) {
        // Release: partner of the load in `await_turn`.
        self.0.store(turn, Ordering::Release);
    }

    fn await_turn(&self, turn: u64) {
        // Acquire: partner of the store in `set`.
        while self.0.load(Ordering::Acquire) != turn {
            spin_loop();
        }
    }
}

/// Ping-pongs of a cache line: one for each direction, stored here and loaded there.
fn lines(rounds: u64) -> Duration {
    let (there, back) = (Line::default(), Line::default());
    let first = |rounds: u64| {
        let before = there.now();
        for turn in before + 1..=before + rounds {
            there.set(turn);
            back.await_turn(turn);
        }
    };
    let second = |rounds: u64| {
        let before = back.now();
        for turn in before + 1..=before + rounds {
            there.await_turn(turn);
            back.set(turn);
        }
    };
    ping_pongs(rounds, first, second)
}

/// Ping-pongs of packets.
fn packets(rounds: u64) -> Duration {
    let [mut zero, mut one] = transports();
    let first = |rounds: u64| {
        let mut sink = Count::default();
        for _ in 0..rounds {
            hand_over(&mut zero);
            take(&mut zero, &mut sink);
        }
    };
    let second = |rounds: u64| {
        let mut sink = Count::default();
        for _ in 0..rounds {
            take(&mut one, &mut sink);
            hand_over(&mut one);
        }
    };
    ping_pongs(rounds, first, second)
}

/// Sends a message through the communicator's device, without the facade's checks.
fn send_unchecked(comm: &Comm, data: &[u8; 8], dest: u32) -> Result<()> {
    // SAFETY: only messages that are sent here are touched.
    let inner = unsafe { comm.communicator() };
    let args = inner.send_args(SendMode::Standard, dest, Tag::from(0))?;
    // SAFETY: the arguments are the communicator's, and the data is borrowed until it has gone.
    unsafe {
        inner
            .device()
            .send_contig_unchecked(&args, ContigBuf::from_bytes(data))
    }
}

fn recv_unchecked(comm: &Comm, data: &mut [u8; 8], source: u32) -> Result<()> {
    // SAFETY: only messages that are received here are touched.
    let inner = unsafe { comm.communicator() };
    let pattern = inner.pattern(Source::from(source), Tags::from(Tag::from(0)))?;
    // SAFETY: the pattern is the communicator's, and the data is borrowed until it has come.
    let status = unsafe {
        inner
            .device()
            .recv_contig_unchecked(&pattern, ContigBuf::from_bytes_mut(data))
    };
    status.map(drop)
}

/// One way to send and one way to receive.
type Ways = (
    fn(&Comm, &[u8; 8], u32) -> Result<()>,
    fn(&Comm, &mut [u8; 8], u32) -> Result<()>,
);

const DEVICE: Ways = (send_unchecked, recv_unchecked);
const FACADE: Ways = (
    |comm, data, dest| comm.send(data, dest, 0),
    |comm, data, source| comm.recv_into(data, source, 0).map(drop),
);

fn ping_pong(comm: &Comm, rounds: u64, (send, recv): Ways) -> Result<()> {
    let (mut data, peer) = ([0_u8; 8], 1 - comm.rank());
    for _ in 0..rounds {
        if comm.rank() == 0 {
            send(comm, &data, peer)?;
            recv(comm, &mut data, peer)?;
        } else {
            recv(comm, &mut data, peer)?;
            send(comm, &data, peer)?;
        }
    }
    Ok(())
}

fn apart(c: &mut Criterion) {
    let mut group = c.benchmark_group("budget-apart");
    // Two threads on one processor have no line between them.
    if allowed_processors().len() > 1 {
        group.bench_function("line", |bencher| {
            bencher.iter_custom(|rounds| lines(rounds) / 2);
        });
    }
    group.bench_function("transport", |bencher| {
        bencher.iter_custom(|rounds| packets(rounds) / 2);
    });
    for (name, ways) in [("device", DEVICE), ("facade", FACADE)] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                between_two("shm", rounds, |comm, rounds| ping_pong(comm, rounds, ways)) / 2
            });
        });
    }
    group.finish();
}

fn code(c: &mut Criterion) {
    let mut group = c.benchmark_group("budget-code");
    let [mut zero, mut one] = transports();
    let mut sink = Count::default();
    group.bench_function("transport", |bencher| {
        bencher.iter(|| {
            hand_over(&mut zero);
            take(&mut one, &mut sink);
        });
    });
    let worlds = Builder::new()
        .transport("shm")
        .in_process(2)
        .expect("there is memory");
    let (zero, one) = (worlds[0].comm(), worlds[1].comm());
    let mut data = [0_u8; 8];
    for (name, (send, recv)) in [("device", DEVICE), ("facade", FACADE)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                send(&zero, &data, 1)
                    .and_then(|()| recv(&one, &mut data, 0))
                    .expect("it arrives");
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = apart, code
}
criterion_main!(benches);
