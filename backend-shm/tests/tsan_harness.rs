//! Ring, inbox, bulk area and bell under traffic between threads, and nothing else. This is for the
//! thread sanitizer, which then watches this crate's own accesses.
//!
//! ```text
//! RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!     cargo +nightly test -p portolan-shm --test tsan_harness --target x86_64-unknown-linux-gnu
//! ```
//!
//! The standard library is not instrumented in such a build, and the sanitizer does not understand
//! fences, so the work of std's threads and of the last drop of an `Arc` looks like races to it. So
//! this test has no harness, starts its threads with `pthread_create`, which the sanitizer does
//! know, and leaks the transports. It also runs as an ordinary test. The sanitizer does not know
//! `membarrier` either, but both accesses of every pair that relies on it are atomic.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use portolan_core::transport::{Destination, Header, Payload, Room, Sent, Sink, Transport};
use portolan_shm::{Config, Shm, in_process_with};

const RANKS: u32 = 3;
const MESSAGES: u32 = 400;
/// Time limit: nothing here takes long unless a wake-up is lost.
const GUARD: Duration = Duration::from_secs(60);

/// Adds up the bytes of everything that arrives, and so reads every byte.
struct Sum {
    next: [u32; RANKS as usize],
    arrived: u32,
}

impl Sink for Sum {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let next = &mut self.next[peer as usize];
        assert_eq!(header.tag, *next, "order of {peer}");
        for at in 0..payload.len() {
            // SAFETY: below the payload's length; read once.
            let byte = unsafe { payload.as_ptr().add(at).read() };
            assert_eq!(byte, (*next as usize + at) as u8);
        }
        *next += 1;
        self.arrived += 1;
    }
}

fn size(number: u32) -> usize {
    [0, 8, 32, 33, 200, 1024, 3000, 20_000][number as usize % 8]
}

fn send(shm: &mut Shm, to: u32, number: u32) -> bool {
    let header = Header {
        tag: number,
        ..Header::default()
    };
    let len = size(number);
    // SAFETY: `to` is another rank; exactly `len` bytes are written.
    let sent = unsafe {
        shm.send_bulk(to, &header, len, |place| {
            for at in 0..len {
                place.add(at).write((number as usize + at) as u8);
            }
        })
    };
    assert_ne!(sent, Sent::Gone);
    sent == Sent::Done
}

fn send_small(shm: &mut Shm, to: u32, number: u32) -> bool {
    let header = Header {
        tag: number,
        ..Header::default()
    };
    let mut bytes = [0_u8; 32];
    let len = size(number);
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (number as usize + at) as u8;
    }
    // SAFETY: `to` is another rank; `len` is at most 32 here.
    let sent = unsafe { shm.send_short(to, &header, bytes.as_ptr(), len) };
    assert_ne!(sent, Sent::Gone);
    sent == Sent::Done
}

/// All to all, asleep where there is nothing to do.
fn run(shm: &mut Shm) {
    let own = shm.rank();
    let bell = shm.bell();
    let mut sink = Sum {
        next: [0; RANKS as usize],
        arrived: 0,
    };
    let mut sent = [0; RANKS as usize];
    sent[own as usize] = MESSAGES;
    while sink.arrived < MESSAGES * (RANKS - 1) || sent.iter().any(|&sent| sent < MESSAGES) {
        let mut moved = shm.poll(&mut sink) > 0;
        for to in 0..RANKS {
            let number = &mut sent[to as usize];
            if *number < MESSAGES {
                let small = size(*number) <= 32;
                let went = if small {
                    send_small(shm, to, *number)
                } else {
                    send(shm, to, *number)
                };
                *number += u32::from(went);
                moved |= went;
            }
        }
        if !moved {
            let seen = bell.seen();
            shm.arm();
            if shm.poll(&mut sink) == 0 {
                bell.sleep(seen, Some(GUARD));
            }
            shm.disarm();
        }
    }
}

/// Takes packets behind their senders, in each of the ways in which that can be.
struct Follow {
    buffer: Vec<u8>,
    rounds: u32,
    arrived: bool,
}

impl Sink for Follow {
    fn accepts(&mut self, _peer: u32) -> bool {
        !self.arrived
    }

    fn packet(&mut self, _peer: u32, _header: &Header, payload: Payload<'_>) {
        // SAFETY: no packet is longer than the buffer.
        unsafe { payload.copy_to(self.buffer.as_mut_ptr(), payload.len()) };
        self.arrived = true;
    }

    fn grows(&mut self, _peer: u32, _header: &Header, _len: usize) -> Destination {
        match self.rounds % 3 {
            0 => Destination::Parts,
            // SAFETY: the buffer is as long as the longest packet, and used by nobody else.
            1 => Destination::Here(unsafe { Room::new(self.buffer.as_mut_ptr()) }),
            _ => Destination::Whole,
        }
    }

    fn placed(&mut self, _peer: u32, _header: &Header, len: usize, here: usize) {
        self.arrived = here == len;
    }

    fn part(&mut self, _peer: u32, _header: &Header, len: usize, at: usize, payload: Payload<'_>) {
        // SAFETY: as above.
        unsafe { payload.copy_to(self.buffer.as_mut_ptr().add(at), payload.len()) };
        self.arrived = at + payload.len() == len;
    }
}

/// Ranks 0 and 1 answer each other's packets, which therefore grow.
fn in_turns(shm: &mut Shm) {
    let own = shm.rank();
    let mut sink = Follow {
        buffer: vec![0; 32 << 10],
        rounds: 0,
        arrived: false,
    };
    while sink.rounds < 2 * MESSAGES {
        let len = [3000, 9000, 25_000, 32 << 10][sink.rounds as usize / 2 % 4];
        let seed = sink.rounds as usize;
        let pattern = |at: usize| (seed + at / 5) as u8;
        if own == sink.rounds % 2 {
            let bytes: Vec<u8> = (0..len).map(pattern).collect();
            // SAFETY: another rank, and a vector of `len` bytes.
            while unsafe { shm.send_growing(1 - own, &Header::default(), bytes.as_ptr(), len) }
                == Sent::Full
            {
                std::thread::yield_now();
            }
        } else {
            sink.arrived = false;
            while !sink.arrived {
                if shm.poll(&mut sink) == 0 {
                    std::thread::yield_now();
                }
            }
            assert!((0..len).all(|at| sink.buffer[at] == pattern(at)), "{len}");
        }
        sink.rounds += 1;
    }
}

/// How often ranks have begun to wait for the others.
static MET: AtomicU32 = AtomicU32::new(0);

extern "C" fn rank(shm: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `all` gives each thread a transport of its own, which it has leaked.
    let shm = unsafe { &mut *shm.cast::<Shm>() };
    run(shm);
    // Nobody leaves, or goes on, while others may still wait for room.
    meet();
    if shm.rank() < 2 {
        in_turns(shm);
    }
    meet();
    std::ptr::null_mut()
}

/// Waits until all ranks are here, which are as many as threads.
fn meet() {
    let before = MET.fetch_add(1, Ordering::AcqRel);
    let all = (before / RANKS + 1) * RANKS;
    while MET.load(Ordering::Acquire) < all {
        std::thread::yield_now();
    }
}

fn all(config: &Config) {
    let ranks: &'static mut [Shm] = in_process_with(RANKS, config).unwrap().leak();
    let threads: Vec<libc::pthread_t> = ranks
        .iter_mut()
        .map(|shm| {
            let mut thread = 0;
            // SAFETY: a function with the right signature, and an argument that lives for ever.
            let started = unsafe {
                let shm = std::ptr::from_mut(shm).cast();
                libc::pthread_create(&raw mut thread, std::ptr::null(), rank, shm)
            };
            assert_eq!(started, 0);
            thread
        })
        .collect();
    for thread in threads {
        // SAFETY: a thread that was started and not joined yet.
        let joined = unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        assert_eq!(joined, 0);
    }
}

fn main() {
    let config = Config {
        ring: 4096,
        bulk: 64 << 10,
        take: false,
        ..Config::default()
    };
    all(&config);
    passed("with membarrier");
    all(&Config {
        fenced: true,
        take: true,
        ..config
    });
    passed("with fences, and lines that are taken");
}

/// Prints a line for scripts that count tests; the exit code says the same.
fn passed(what: &str) {
    // If standard output is closed, nothing can be done about it.
    let _ = writeln!(
        std::io::stdout(),
        "passed: rings, inbox, bulk area, packets that grow and bell {what}"
    );
}
