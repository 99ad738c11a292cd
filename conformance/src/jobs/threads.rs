//! Several threads on one device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use portolan_core::Device;
use portolan_core::comm::Communicator;
use portolan_core::device::Caps;

use crate::bytes::{check, content};
use crate::case::{Skip, Verdict};
use crate::plain::Lent;
use crate::rank::Rank;
use crate::rings::{Plan, Player};
use crate::sut::{Job, Sut};

/// Threads that exchange messages.
const TRAFFIC: u32 = 4;
/// Messages that each of them exchanges.
const MESSAGES: u32 = 400;
/// Processor time of the calling thread, in seconds, over which another thread is observed.
const LOOK: f64 = 0.04;
/// How long to wait until the thread is seen asleep; only a failure takes that long.
const GUARD: Duration = Duration::from_secs(10);

/// Skips the test on a device that several threads cannot use.
fn shared<S: Sut>() -> Verdict {
    S::NO_SHARED.map_or(Ok(()), |why| Err(Skip(why.to_owned())))
}

/// The clock of the calling thread's processor time, which other threads may read while it lives.
fn own_clock() -> libc::clockid_t {
    let mut clock = 0;
    // SAFETY: the thread is the calling one, and `clock` is a valid place for the answer.
    let outcome = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    assert_eq!(outcome, 0, "this system cannot say what a thread uses");
    clock
}

/// What a clock of processor time shows, in seconds.
fn time_of(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer.
    let outcome = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(outcome, 0, "this system cannot say what a thread has used");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Messages around the ring, with the tag of one thread.
fn traffic<D: Device>(rank: &Rank<'_, D>, thread: u32) {
    for round in 0..MESSAGES {
        let len = if round % 40 == 39 {
            rank.long()
        } else {
            round as usize
        };
        let seed = u64::from(thread) << 32 | u64::from(round);
        let received = rank.irecv(&rank.from(rank.previous(), thread), len);
        let sent = rank.isend(&rank.to(rank.next(), thread), content(seed, len));
        check(
            &rank.done(received).1,
            seed,
            &format!("thread {thread}, message {round}"),
        );
        rank.done(sent);
    }
}

/// Whether a thread falls asleep before the guard ends: it is seen to use less than a quarter of
/// the processor time that the calling thread uses meanwhile. The calling thread yields its core
/// all the time, so a thread that spins would use as much. If the calling thread gets next to no
/// time, among many that never yield, the other thread's occasional looks for a poller take a good
/// part of that. Such observations do not show that it spins, and if there are no others, the
/// answer is yes.
fn falls_asleep(clock: libc::clockid_t) -> bool {
    let own = own_clock();
    let (began, mut spins) = (Instant::now(), false);
    while began.elapsed() < GUARD {
        let (mine, before, looked) = (time_of(own), time_of(clock), Instant::now());
        while time_of(own) - mine < LOOK {
            thread::yield_now();
        }
        if time_of(clock) - before < LOOK / 4.0 {
            return true;
        }
        spins |= LOOK > looked.elapsed().as_secs_f64() / 100.0;
    }
    !spins
}

/// One thread is blocked in a wait, one only tests, and four exchange messages. The blocked thread
/// sleeps until a thread that makes progress wakes it.
pub fn blocked_testing_and_traffic<S: Sut>(ranks: u32) -> Verdict {
    const BLOCKED: u32 = 100;
    const TESTED: u32 = 101;
    shared::<S>()?;
    S::run_shared(&Job::new(ranks), |device| {
        let rank = &Rank::new(device, 0);
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let blocked = scope.spawn(move || {
                tell.send(own_clock()).expect("somebody listens");
                let (_, bytes) = rank.take(&rank.from(rank.previous(), BLOCKED), 5);
                assert_eq!(bytes, b"awake");
            });
            let clock = told.recv().expect("the clock of the blocked thread");
            let tested = scope.spawn(move || {
                let pending = rank.irecv(&rank.from(rank.previous(), TESTED), 6);
                while device.test(pending.request).expect("test").is_none() {
                    thread::yield_now();
                }
                assert_eq!(rank.reclaim(pending), b"tested");
            });
            let threads: Vec<_> = (0..TRAFFIC)
                .map(|n| scope.spawn(move || traffic(rank, n)))
                .collect();
            for thread in threads {
                thread.join().expect("traffic");
            }
            let asleep = !device.attributes().caps.contains(Caps::SLEEP) || falls_asleep(clock);
            // The neighbour still looks at the thread that this rank wakes.
            rank.barrier();
            rank.send(&rank.to(rank.next(), TESTED), b"tested")
                .expect("a small send");
            rank.send(&rank.to(rank.next(), BLOCKED), b"awake")
                .expect("a small send");
            tested.join().expect("the testing thread");
            blocked.join().expect("the blocked thread");
            assert!(asleep, "a thread that was blocked used a processor");
        });
    });
    Ok(())
}

/// A thread that sleeps in a probe is woken by another thread's send to their own rank, although no
/// packet announces it.
pub fn probed_oneself<S: Sut>(ranks: u32) -> Verdict {
    shared::<S>()?;
    S::run_shared(&Job::new(ranks), |device| {
        let rank = &Rank::new(device, 0);
        let me = rank.me();
        let (tell, told) = mpsc::channel();
        let (say, woken) = mpsc::channel();
        thread::scope(|scope| {
            let blocked = scope.spawn(move || {
                tell.send(own_clock()).expect("somebody listens");
                let status = device
                    .probe_unchecked(&rank.from(me, 7))
                    .expect("a message");
                assert_eq!(status.bytes, 5);
                let _ = say.send(());
            });
            let clock = told.recv().expect("the clock of the blocked thread");
            let sleeps = device.attributes().caps.contains(Caps::SLEEP);
            assert!(!sleeps || falls_asleep(clock), "it does not sleep");
            let sent = rank.isend(&rank.to(me, 7), b"awake".to_vec());
            // A thread that waits for anything else polls, and so would find the message.
            let woken = woken.recv_timeout(GUARD);
            blocked.join().expect("the blocked thread");
            let (_, bytes) = rank.take(&rank.from(me, 7), 5);
            assert_eq!(bytes, b"awake");
            rank.done(sent);
            assert!(
                woken.is_ok(),
                "it slept on until it looked whether it was stuck"
            );
        });
        rank.barrier();
    });
    Ok(())
}

/// Every thread waits for its own messages, which other threads' progress may bring. One thread
/// completes a request that another thread started.
pub fn one_queue_each<S: Sut>(ranks: u32) -> Verdict {
    shared::<S>()?;
    S::run_shared(&Job::new(ranks), |device| {
        let rank = &Rank::new(device, 0);
        let started = AtomicBool::new(false);
        let early = rank.irecv(&rank.from(rank.previous(), 50), 4);
        let request = early.request;
        thread::scope(|scope| {
            for thread in 0..TRAFFIC {
                scope.spawn(move || traffic(rank, thread));
            }
            let started = &started;
            // Completes a request that the main thread started.
            scope.spawn(move || {
                started.store(true, Ordering::Relaxed);
                assert_eq!(device.wait(request).expect("wait").bytes, 4);
            });
            while !started.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            rank.send(&rank.to(rank.next(), 50), b"four")
                .expect("a small send");
        });
        assert_eq!(rank.reclaim(early), b"four");
    });
    Ok(())
}

/// Some threads wait for rings that hooks drive, while others start more of them. The thread that
/// polls advances all rings, and wakes the threads whose rings are complete.
pub fn rings<S: Sut>(ranks: u32) -> Verdict {
    const THREADS: u32 = 3;
    const TIMES: u32 = 40;
    shared::<S>()?;
    S::run_shared(&Job::new(ranks), |device| {
        let rank = &Rank::new(device, 0);
        let player = &Player::new(device);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for time in 0..TIMES {
                        let long = if time == TIMES / 2 { rank.long() } else { 64 };
                        let plan = Plan::new(rank, thread, &[8, 0, long, 8]);
                        let request = player.start(rank, plan);
                        let status = device.wait(request).expect("a ring");
                        assert_eq!(status.tag, thread);
                    }
                });
            }
        });
    });
    Ok(())
}

/// Threads make communicators out of different ones at once, on rank 0 in another order than on the
/// others. A thread that waits for a rank that is busy with another creation does not keep that
/// creation from completing.
pub fn communicators<S: Sut>(ranks: u32) -> Verdict {
    const PARENTS: usize = 3;
    shared::<S>()?;
    S::run_shared(&Job::new(ranks), |device| {
        let world = Communicator::world(Arc::new(Lent(device))).expect("the world");
        let parents: Vec<_> = (0..PARENTS).map(|_| world.dup().expect("a copy")).collect();
        let create = |parent: &Communicator<_>| {
            let copy = parent.dup().expect("a copy");
            let color = (copy.rank() > 0).then_some(1);
            let part = copy.split(color, 0).expect("a split");
            part.map_or(Ok(()), |part| part.barrier())
                .expect("a barrier");
            copy.barrier().expect("a barrier");
        };
        for round in 0..2 * PARENTS {
            let mut order: Vec<_> = parents.iter().collect();
            order.rotate_left(round % PARENTS);
            if world.rank() == 0 || round >= PARENTS {
                thread::scope(|scope| {
                    for parent in order {
                        scope.spawn(move || create(parent));
                    }
                });
            } else {
                order.into_iter().for_each(create);
            }
        }
        assert_eq!(world.live(), 1 + PARENTS as u32);
        drop(parents);
        Rank::new(device, 0).barrier();
    });
    Ok(())
}

/// The capability `THREAD_MULTIPLE` is set at the level at which all threads may call, and only
/// there.
pub fn capability<S: Sut>(ranks: u32) -> Verdict {
    if S::NO_SHARED.is_some() {
        S::run(&Job::new(ranks), |device| {
            assert!(!device.attributes().caps.contains(Caps::THREAD_MULTIPLE));
        });
        return Ok(());
    }
    S::run_shared(&Job::new(ranks), |device| {
        assert!(device.attributes().caps.contains(Caps::THREAD_MULTIPLE));
    });
    S::run(&Job::new(ranks), |device| {
        let shared = std::any::type_name::<S::Device>() == std::any::type_name::<S::Shared>();
        assert_eq!(
            device.attributes().caps.contains(Caps::THREAD_MULTIPLE),
            shared
        );
    });
    Ok(())
}
