//! Latency and bandwidth of the bare transport between two pinned threads, next to what the machine
//! can do: `cargo run --release -p portolan-shm --example raw_pingpong`.
//!
//! The hand-over of one cache line by load and store is measured before and after, because hosts
//! move virtual processors about and everything here is a multiple of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};
use portolan_shm::{Config, Shm, in_process_with};

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

#[inline(always)]
fn send(shm: &mut Shm, bytes: &[u8], sink: &mut Last) {
    let peer = 1 - shm.rank();
    loop {
        // SAFETY: the peer exists; the slice is readable and filled into as many bytes.
        let sent = unsafe {
            if bytes.len() <= shm.limits().short {
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
                std::hint::spin_loop();
            }
            Sent::Gone => panic!("{:?}", shm.failure_of(peer)),
        }
    }
}

fn wait(shm: &mut Shm, sink: &mut Last, count: u64) {
    while sink.count < count {
        shm.poll(sink);
    }
}

/// Nanoseconds, one way.
fn ping_pong(len: usize, rounds: u64) -> f64 {
    both(len, move |shm, sink, bytes, first| {
        for round in 1..=rounds {
            if first {
                send(shm, bytes, sink);
                wait(shm, sink, round);
            } else {
                wait(shm, sink, round);
                send(shm, bytes, sink);
            }
        }
    }) / (2 * rounds) as f64
}

/// Nanoseconds per packet in one direction.
fn stream(len: usize, packets: u64) -> f64 {
    both(len, move |shm, sink, bytes, first| {
        if first {
            for _ in 0..packets {
                send(shm, bytes, sink);
            }
            wait(shm, sink, 1);
        } else {
            wait(shm, sink, packets);
            send(shm, &bytes[..0], sink);
        }
    }) / packets as f64
}

/// Runs `work` on both ranks, twice, and gives the nanoseconds of the second time.
fn both(len: usize, work: impl Fn(&mut Shm, &mut Last, &[u8], bool) + Sync) -> f64 {
    let mut ranks = in_process_with(2, &Config::default()).expect("shared memory");
    let (one, two) = ranks.split_at_mut(1);
    let run = |shm: &mut Shm, first: bool| {
        pin(usize::from(!first));
        let bytes = vec![7; len];
        let mut sink = Last {
            count: 0,
            buffer: vec![0; 1 << 16],
        };
        work(shm, &mut sink, &bytes, first);
        sink.count = 0;
        let start = Instant::now();
        work(shm, &mut sink, &bytes, first);
        start.elapsed().as_nanos() as f64
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(&mut two[0], false));
        let time = run(&mut one[0], true);
        other.join().expect("the other rank");
        time
    })
}

/// One way, in nanoseconds: a line handed over by load and store.
fn line() -> f64 {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let lines = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let rounds = 200_000;
    let play = |core: usize| {
        pin(core);
        let start = Instant::now();
        for round in 1..=rounds {
            if core == 0 {
                lines[0].0.store(round, Ordering::Release);
            }
            while lines[1 - core].0.load(Ordering::Acquire) != round {}
            if core == 1 {
                lines[1].0.store(round, Ordering::Release);
            }
        }
        start.elapsed().as_nanos() as f64
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(1));
        play(0)
    }) / (2 * rounds) as f64
}

#[allow(clippy::print_stdout)]
fn main() {
    println!("line {:.1} ns", line());
    for len in [0, 8, 32, 64, 200, 512, 1024, 2048, 4096, 8192, 16384, 32768] {
        let rounds = (200_000_000 / (1000 + len as u64)).min(200_000);
        let latency = ping_pong(len, rounds);
        let each = stream(len, rounds);
        println!(
            "{len:>6} bytes: {latency:8.1} ns one way, {each:8.1} ns per packet, {:6.2} GB/s",
            len as f64 / each
        );
    }
    println!("line {:.1} ns", line());
}
