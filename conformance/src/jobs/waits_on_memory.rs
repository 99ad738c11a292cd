//! Waiting on memory: asleep, on several threads, and for ranks that die.

use std::thread;

use portolan_core::{Device, ErrorKind, Group, ProcId};

use crate::case::{Skip, Verdict};
use crate::rank::Rank;
use crate::subjects::memory::{Flags, around};
use crate::sut::{Job, Sut};

/// A job whose ranks fall asleep at once, and without a limit: a lost wake-up makes the test hang.
fn sleepy(ranks: u32) -> Job {
    Job::new(ranks)
        .set("WAIT", "park")
        .set("SPIN", "0")
        .set("STUCK_AFTER", "0")
}

/// Ranks that fall asleep at once are woken by the rank that stores.
pub fn asleep<S: Sut>(ranks: u32) -> Verdict {
    S::run(&sleepy(ranks), |device| {
        let rank = &Rank::new(device, 0);
        let flags = Flags::new(rank, 1);
        around(&flags, 300);
        flags.free();
    });
    Ok(())
}

/// The same by spinning and by yielding alone.
pub fn awake<S: Sut>(ranks: u32) -> Verdict {
    // Spinning ranks that share a core cost each other ticks of the scheduler.
    let waits = if ranks <= 2 {
        &["yield", "spin"]
    } else {
        &["yield"][..]
    };
    for wait in waits {
        S::run(&Job::new(ranks).set("WAIT", wait), |device| {
            let rank = &Rank::new(device, 0);
            let flags = Flags::new(rank, 1);
            around(&flags, 20);
            flags.free();
        });
    }
    Ok(())
}

/// Several threads of each rank wait, each for its own flag, and sleep on one bell.
pub fn threads<S: Sut>(ranks: u32) -> Verdict {
    const THREADS: usize = 3;
    if let Some(why) = S::NO_SHARED {
        return Err(Skip(why.to_owned()));
    }
    S::run_shared(&sleepy(ranks), |device| {
        let rank = &Rank::new(device, 0);
        let flags = &Flags::new(rank, THREADS);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for lap in 1..=100 {
                        if rank.me() == 0 {
                            flags.set(rank.next(), thread, lap);
                        }
                        flags.reached(thread, lap).expect("nobody dies");
                        if rank.me() != 0 {
                            flags.set(rank.next(), thread, lap);
                        }
                    }
                });
            }
        });
        rank.barrier();
    });
    Ok(())
}

/// A death ends the waits of the ranks in the dead rank's group, awake or asleep, and no other
/// waits. What the dead rank stored before still counts.
pub fn death<S: Sut>(ranks: u32) -> Verdict {
    for job in [Job::new(ranks), sleepy(ranks)] {
        S::run(&job, |device| {
            let rank = &Rank::new(device, 0);
            let flags = Flags::new(rank, 3);
            let dead = rank.last();
            if rank.me() == dead {
                // It lives until all other ranks have met.
                for peer in 0..dead {
                    rank.take(&rank.from(peer, 77), 0);
                    flags.set(peer, 0, 1);
                }
                device.declare_self_failed("it is what this test is about");
                return;
            }
            rank.send(&rank.to(dead, 77), &[])
                .expect("telling that one has met everybody");
            let error = flags.reached(1, 1).expect_err("nobody stores that");
            assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
            assert_eq!(error.peer(), Some(dead), "{error}");
            assert!(
                error.to_string().contains("what this test is about"),
                "{error}"
            );
            flags.reached(0, 1).expect("the dead rank has stored that");
            let living = Group::new((0..dead).map(ProcId::new).collect::<Vec<_>>());
            flags.set((rank.me() + 1) % dead, 2, 1);
            device
                .wait_for(&living, || flags.get(2) == 1)
                .expect("they live");
        });
    }
    Ok(())
}
