//! A rank that waits for room sleeps until there is some; the rank that makes room wakes it.

mod common;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use common::Numbers;
use common::files::GUARD;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::{Adi, Device, Engine, ProcId, SendArgs};
use portolan_shm::{Config, Shm, in_process_with};

type Rank = Engine<Shm, Single>;

/// Two ranks that go to sleep at once when there is nothing to do.
fn ranks(config: &Config) -> (Rank, Rank) {
    let (settings, wrong) = Settings::inspect([("PORTOLAN_WAIT", "park")]);
    assert!(wrong.is_empty(), "{wrong:?}");
    let ranks = in_process_with(2, config).unwrap();
    let mut ranks = ranks
        .into_iter()
        .map(|transport| Engine::new(transport, &settings).expect("an engine"));
    (ranks.next().unwrap(), ranks.next().unwrap())
}

fn send(rank: &Rank, tag: u32, len: usize) {
    let args = SendArgs::new(ProcId::new(1), 0, 0, tag);
    rank.send_contig(&args, &vec![tag as u8; len])
        .expect("sent");
}

fn receive(rank: &Rank, tag: u32, len: usize) {
    let pattern = Pattern {
        context: 0,
        source: Some(0),
        tag: Some(tag),
    };
    let mut bytes = vec![0; len];
    let status = rank.recv_contig(&pattern, &mut bytes).expect("received");
    assert_eq!(status.bytes, len as u64, "message {tag}");
    assert!(bytes.iter().all(|&byte| byte == tag as u8), "message {tag}");
}

/// Whether a thread of this process sleeps, and how often it has given up its core voluntarily:
/// once for each sleep.
fn state(thread: i32) -> (bool, u64) {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let asleep = field("State:").unwrap().trim().starts_with('S');
    let sleeps = field("voluntary_ctxt_switches:").unwrap();
    (asleep, sleeps.trim().parse().unwrap())
}

/// Readings of a thread that sleeps, in one sleep, that show that it goes on: some 20 ms. It may
/// wake four times a second, to look whether its peer has left, and may not every 200 µs.
const STILL: u32 = 1000;

/// Whether a thread falls asleep for so long that its state can be read that many times meanwhile.
fn falls_asleep(thread: i32) -> bool {
    let (start, mut before, mut still) = (Instant::now(), 0, 0);
    while still < STILL && start.elapsed() < GUARD {
        let (asleep, sleeps) = state(thread);
        // One that spins does not sleep, and one that yields its core never gives it up.
        still = if asleep && sleeps == before {
            still + 1
        } else {
            0
        };
        before = sleeps;
    }
    still == STILL
}

#[test]
fn a_thread_that_spins_is_not_taken_for_one_that_sleeps() {
    let (tell, told) = mpsc::channel();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the call only asks for a value.
            tell.send(unsafe { libc::gettid() }).unwrap();
            while !over.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        let spins = told.recv().unwrap();
        let asleep = (0..3 * STILL).filter(|_| state(spins).0).count();
        over.store(true, Ordering::Relaxed);
        assert!(asleep < STILL as usize, "asleep in {asleep} readings");
    });
}

#[test]
fn who_waits_for_room_sleeps_until_there_is_some() {
    const MESSAGES: u32 = 3000;
    for len in [8, 1000] {
        let (sender, receiver) = ranks(&Config::default());
        let (tell, told) = mpsc::channel();
        let asleep = thread::scope(|scope| {
            scope.spawn(move || {
                // SAFETY: the call only asks for a value.
                tell.send(unsafe { libc::gettid() }).unwrap();
                (0..MESSAGES).for_each(|tag| send(&sender, tag, len));
                sender.end().expect("ended");
            });
            // "Computes" while no rank makes room.
            let asleep = falls_asleep(told.recv().unwrap());
            (0..MESSAGES).for_each(|tag| receive(&receiver, tag, len));
            receiver.end().expect("ended");
            asleep
        });
        assert!(asleep, "{len} bytes: it looks again and again");
    }
}

/// Both ranks fall asleep all the time, one waiting for room and the other for messages. A lost
/// wake-up would hang here.
#[test]
fn no_wake_up_is_lost_where_ranks_wait_for_room_and_for_messages() {
    let cramped = Config {
        ring: 4096,
        bulk: 32 << 10,
        ..Config::default()
    };
    for fenced in [false, true] {
        let config = Config {
            fenced,
            ..cramped.clone()
        };
        for take in [false, true] {
            let (sender, receiver) = ranks(&Config {
                take,
                ..config.clone()
            });
            let lengths = |seed| {
                let mut numbers = Numbers(seed);
                (0..40_000).map(move |tag| (tag, numbers.size(4000)))
            };
            thread::scope(|scope| {
                scope.spawn(move || {
                    lengths(7).for_each(|(tag, len)| send(&sender, tag, len));
                    sender.end().expect("ended");
                });
                lengths(7).for_each(|(tag, len)| receive(&receiver, tag, len));
                receiver.end().expect("ended");
            });
        }
    }
}
