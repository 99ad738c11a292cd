//! Ranks on threads that send each other messages of all kinds: tests of order and content, awake
//! and asleep.

mod common;

use std::time::Duration;

use common::{Checker, Numbers, send};
use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};
use portolan_shm::{Config, Shm, in_process_with};

/// Guard against hangs; no test comes near it.
const GUARD: Duration = Duration::from_secs(30);

/// The messages that one rank still has to send.
struct Outbox {
    numbers: Numbers,
    count: u32,
    sent: Vec<u32>,
    /// The size of the next message to each rank.
    size: Vec<usize>,
    bulk: usize,
}

impl Outbox {
    fn new(shm: &Shm, count: u32, seed: u64) -> Self {
        let ranks = shm.size() as usize;
        let mut sent = vec![0; ranks];
        sent[shm.rank() as usize] = count;
        let numbers = Numbers(seed + u64::from(shm.rank()));
        Self {
            numbers,
            count,
            sent,
            size: vec![0; ranks],
            bulk: shm.limits().bulk,
        }
    }

    fn done(&self) -> bool {
        self.sent.iter().all(|&sent| sent == self.count)
    }

    /// Tries to send one message to each rank. Returns whether any was sent.
    fn step(&mut self, shm: &mut Shm) -> bool {
        let mut moved = false;
        for to in 0..shm.size() {
            let at = to as usize;
            if self.sent[at] == self.count {
                continue;
            }
            match send(shm, to, self.sent[at], self.size[at]) {
                Sent::Done => {
                    self.sent[at] += 1;
                    self.size[at] = self.numbers.size(self.bulk);
                    moved = true;
                }
                Sent::Full => {}
                Sent::Gone => panic!("{:?}", shm.failure_of(to)),
            }
        }
        moved
    }
}

/// Sends `count` messages from this rank to each other rank and receives as many from each.
fn exchange(shm: &mut Shm, count: u32, seed: u64, asleep: bool) {
    let mut sink = Checker::new(shm.rank(), shm.size());
    let mut outbox = Outbox::new(shm, count, seed);
    let all = u64::from(count) * u64::from(shm.size() - 1);
    let bell = shm.bell();
    while !outbox.done() || sink.arrived < all {
        let moved = outbox.step(shm) | (shm.poll(&mut sink) > 0);
        if moved {
            continue;
        }
        if asleep {
            let seen = bell.seen();
            shm.arm();
            if shm.poll(&mut sink) == 0 {
                bell.sleep(seen, Some(GUARD));
            }
            shm.disarm();
        } else {
            std::thread::yield_now();
        }
    }
}

/// With lines that are taken and with lines that are not.
fn run(ranks: u32, count: u32, seed: u64, asleep: bool, config: &Config) {
    for take in [false, true] {
        let config = Config {
            take,
            ..config.clone()
        };
        run_with(ranks, count, seed, asleep, &config);
    }
}

fn run_with(ranks: u32, count: u32, seed: u64, asleep: bool, config: &Config) {
    let start = std::time::Instant::now();
    let all = in_process_with(ranks, config).unwrap();
    let barrier = std::sync::Barrier::new(ranks as usize);
    std::thread::scope(|scope| {
        for mut shm in all {
            let barrier = &barrier;
            scope.spawn(move || {
                exchange(&mut shm, count, seed, asleep);
                // No rank leaves while others may still wait for room.
                barrier.wait();
            });
        }
    });
    assert!(start.elapsed() < GUARD, "a sleeper was woken by the guard");
}

#[test]
fn two_ranks() {
    run(2, 3000, 1, false, &Config::default());
}

#[test]
fn five_ranks() {
    run(5, 400, 2, false, &Config::default());
}

#[test]
fn eight_ranks() {
    run(8, 150, 3, false, &Config::default());
}

#[test]
fn small_rings_and_areas() {
    let config = Config {
        ring: 4096,
        bulk: 32 << 10,
        ..Config::default()
    };
    run(3, 1000, 4, false, &config);
}

#[test]
fn two_ranks_that_sleep() {
    run(2, 1500, 5, true, &Config::default());
}

#[test]
fn four_ranks_that_sleep_with_little_room() {
    let config = Config {
        ring: 4096,
        bulk: 32 << 10,
        ..Config::default()
    };
    run(4, 300, 6, true, &config);
}

#[test]
fn without_membarrier() {
    let config = Config {
        fenced: true,
        ..Config::default()
    };
    run(3, 500, 7, true, &config);
}

#[test]
fn more_ranks_than_slots_in_an_inbox() {
    run(
        70,
        3,
        8,
        true,
        &Config {
            bulk: 32 << 10,
            ..Config::default()
        },
    );
}

/// A sink that copies payloads out, as the engine does.
#[derive(Default)]
struct Copies(Vec<Vec<u8>>);

impl Sink for Copies {
    fn accepts(&mut self, _: u32) -> bool {
        true
    }

    fn packet(&mut self, _: u32, _: &Header, payload: Payload<'_>) {
        let mut copy = vec![0; payload.len()];
        // SAFETY: a vector of as many bytes.
        unsafe { payload.copy_to(copy.as_mut_ptr(), copy.len()) };
        self.0.push(copy);
    }
}

/// Ranks that answer each message with one, and ranks that send windows, with messages of any
/// length, and however their payloads are copied.
#[test]
fn answers_and_windows_are_copied_whole() {
    const LENGTHS: [usize; 9] = [200, 2047, 2048, 2049, 2560, 2561, 4096, 4097, 8192];
    for by_words in [false, true] {
        let config = Config {
            by_words,
            take: false,
            ..Config::default()
        };
        let mut ranks = in_process_with(2, &config).unwrap();
        for (round, len) in (0..90).zip(LENGTHS.iter().copied().cycle()) {
            let window = if round < 45 { 1 } else { 1 + round % 4 };
            for from in [0, 1] {
                let message = |number: usize| -> Vec<u8> {
                    let byte = |at: usize| (at / 5 + 10 * round + 3 * number + from) as u8;
                    (0..len).map(byte).collect()
                };
                let (to, header) = (1 - from, Header::default());
                let (mut sink, mut sent) = (Copies::default(), 0);
                while sent < window {
                    let bytes = message(sent);
                    // SAFETY: the other rank, and a vector of `len` bytes.
                    match unsafe {
                        ranks[from].send_bulk_from(to as u32, &header, bytes.as_ptr(), len)
                    } {
                        Sent::Done => sent += 1,
                        // The first packets wait until those before them are delivered.
                        Sent::Full => _ = ranks[to].poll(&mut sink),
                        Sent::Gone => panic!("nobody leaves"),
                    }
                }
                while sink.0.len() < window {
                    ranks[to].poll(&mut sink);
                }
                let expected: Vec<_> = (0..window).map(message).collect();
                assert!(sink.0 == expected, "{window} of {len} bytes, {by_words}");
            }
        }
    }
}
