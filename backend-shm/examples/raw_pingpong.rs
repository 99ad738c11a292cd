//! Latency and bandwidth of the bare transport between two pinned threads, next to the machine's
//! own limits: `cargo run --release -p portolan-shm --example raw_pingpong [SAMPLES]`.
//!
//! Each figure comes from many short samples, as their minimum, which is the cost of the code while
//! nothing disturbs it, and their median. The hand-over of one cache line by load and store is
//! measured in the same run, because hosts move virtual processors around and everything here is a
//! multiple of it. `PORTOLAN_SHM_…` settings are honoured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use portolan_core::config::Settings;
use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};
use portolan_shm::{Shm, in_process};

/// Counts packets, and copies them to the place of a user's buffer.
struct Last {
    count: u64,
    buffer: Vec<u8>,
}

impl Sink for Last {
    #[inline(always)]
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    #[inline(always)]
    fn packet(&mut self, _peer: u32, _header: &Header, payload: Payload<'_>) {
        // SAFETY: the buffer has room for the largest packet.
        unsafe {
            std::ptr::copy_nonoverlapping(
                payload.as_ptr(),
                self.buffer.as_mut_ptr(),
                payload.len(),
            );
        }
        self.count += 1;
    }
}

fn pin(core: usize) {
    // SAFETY: a zeroed set with one bit, for this thread.
    unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Sends a message of any size, in pieces if it is long.
#[inline(always)]
fn send(shm: &mut Shm, bytes: &[u8], sink: &mut Last) -> u64 {
    let limits = shm.limits();
    if bytes.len() <= limits.short {
        send_piece(shm, bytes, true, sink);
        return 1;
    }
    let pieces = bytes.chunks(limits.bulk);
    let count = pieces.len() as u64;
    pieces.for_each(|piece| send_piece(shm, piece, false, sink));
    count
}

#[inline(always)]
fn send_piece(shm: &mut Shm, bytes: &[u8], short: bool, sink: &mut Last) {
    let peer = 1 - shm.rank();
    loop {
        // SAFETY: the peer exists; the slice is readable, and is copied into as many bytes.
        let sent = unsafe {
            if short {
                shm.send_short(peer, &Header::default(), bytes.as_ptr(), bytes.len())
            } else {
                shm.send_bulk(peer, &Header::default(), bytes.len(), |to| {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                })
            }
        };
        match sent {
            Sent::Done => return,
            Sent::Full => {
                shm.poll(sink);
            }
            Sent::Gone => panic!("{:?}", shm.failure_of(peer)),
        }
    }
}

#[inline(always)]
fn wait(shm: &mut Shm, sink: &mut Last, count: u64) {
    while sink.count < count {
        shm.poll(sink);
    }
}

/// Minimum and median of the samples of one measurement, in nanoseconds.
#[derive(Clone, Copy)]
struct Figure {
    least: f64,
    median: f64,
}

fn figure(mut samples: Vec<f64>) -> Figure {
    samples.sort_by(f64::total_cmp);
    Figure {
        least: samples[0],
        median: samples[samples.len() / 2],
    }
}

/// Runs `sample` on both ranks, `samples` times. `sample` returns the number by which its time is
/// to be divided.
fn both(
    len: usize,
    samples: usize,
    divisor: f64,
    sample: impl Fn(&mut Shm, &mut Last, &[u8], bool) + Sync,
) -> Figure {
    let settings = Settings::from_env().expect("settings");
    let mut ranks = in_process(2, &settings).expect("shared memory");
    let (one, two) = ranks.split_at_mut(1);
    let run = |shm: &mut Shm, first: bool| {
        pin(usize::from(!first));
        let bytes = vec![7; len];
        let mut sink = Last {
            count: 0,
            buffer: vec![0; 1 << 17],
        };
        let times = (0..samples + samples / 8).map(|_| {
            sink.count = 0;
            let start = Instant::now();
            sample(shm, &mut sink, &bytes, first);
            start.elapsed().as_nanos() as f64 / divisor
        });
        figure(times.skip(samples / 8).collect())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(&mut two[0], false));
        let figure = run(&mut one[0], true);
        other.join().expect("the other rank");
        figure
    })
}

/// The time of one way.
fn ping_pong(len: usize, samples: usize) -> Figure {
    const ROUNDS: u64 = 50;
    both(
        len,
        samples,
        2.0 * ROUNDS as f64,
        |shm, sink, bytes, first| {
            let mut expected = 0;
            for _ in 0..ROUNDS {
                if first {
                    expected += send(shm, bytes, sink);
                    wait(shm, sink, expected);
                } else {
                    expected += bytes.len().div_ceil(shm.limits().bulk).max(1) as u64;
                    wait(shm, sink, expected);
                    send(shm, bytes, sink);
                }
            }
        },
    )
}

/// The time per message in one direction.
fn stream(len: usize, samples: usize) -> Figure {
    let count = (2_000_000 / (len + 100)).clamp(20, 4000) as u64;
    both(len, samples, count as f64, |shm, sink, bytes, first| {
        if first {
            for _ in 0..count {
                send(shm, bytes, sink);
            }
            wait(shm, sink, 1);
        } else {
            let pieces = bytes.len().div_ceil(shm.limits().bulk).max(1) as u64;
            wait(shm, sink, count * pieces);
            send(shm, &bytes[..0], sink);
        }
    })
}

/// The time of one way of a line that is handed over by load and store.
fn line(samples: usize) -> Figure {
    #[repr(align(128))]
    struct Line(AtomicU64);
    const ROUNDS: u64 = 100;
    let lines = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let play = |core: usize| {
        pin(core);
        let mut round = 0;
        let times = (0..samples).map(|_| {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                round += 1;
                if core == 0 {
                    lines[0].0.store(round, Ordering::Release);
                }
                while lines[1 - core].0.load(Ordering::Acquire) != round {}
                if core == 1 {
                    lines[1].0.store(round, Ordering::Release);
                }
            }
            start.elapsed().as_nanos() as f64 / (2 * ROUNDS) as f64
        });
        figure(times.collect())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(1));
        play(0)
    })
}

#[allow(clippy::print_stdout)]
fn main() {
    let samples = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(400);
    let show =
        |name: &str, f: Figure| println!("{name}: {:.1} ns (median {:.1})", f.least, f.median);
    show("cache line, one way", line(samples));
    println!(
        "{:>9} {:>10} {:>10} {:>10} {:>10} {:>8}",
        "bytes", "one way", "median", "each", "median", "GB/s"
    );
    for len in [
        0,
        8,
        32,
        64,
        200,
        512,
        1024,
        2048,
        4096,
        8192,
        16384,
        65536,
        1 << 20,
        4 << 20,
    ] {
        let samples = (samples * 10_000 / (10_000 + len)).max(20);
        let (way, each) = (ping_pong(len, samples), stream(len, samples));
        println!(
            "{len:>9} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>8.2}",
            way.least,
            way.median,
            each.least,
            each.median,
            len as f64 / each.least
        );
    }
    show("cache line, one way", line(samples));
}
