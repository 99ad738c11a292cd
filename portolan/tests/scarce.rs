//! The debug mode (`COLL_CHECK`) over a device that has few requests left: a duplicate that is
//! refused was not compared either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use portolan::{Comm, ErrorKind, RemoteLeader, Result, Single, World};
use portolan_core::config::Settings;
use portolan_core::device::{Upper, delegate_device};
use portolan_core::transport::decorate::{Count, Decorated};
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{Device, Engine, Error, Request};

/// A device that makes only so many more requests for the crates above.
struct Scarce {
    engine: Engine<Decorated<InMemory, Count>, Single>,
    left: Arc<AtomicU32>,
}

macro_rules! engine {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = &$self.engine;
        $call
    }};
}

// SAFETY: every call goes to a device that keeps the contract.
unsafe impl Device for Scarce {
    fn upper_request(&self, upper: Box<dyn Upper>) -> Result<Request> {
        let one_less = |left: u32| left.checked_sub(1);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .map_err(|_| Error::new(ErrorKind::Exhausted, "no request is left"))?;
        self.engine.upper_request(upper)
    }

    delegate_device! { engine:
        lifecycle, leaving, contiguous, datatypes, driven, persistent, queues, requests, packing,
        active_messages, register_hook, wake_hook, has_request_room, complete_upper, fail_upper,
        one_sided, stores,
    }
}

/// A rank's world, its packets, and how many requests its device has left.
struct Rank {
    comm: Comm<Single, Scarce>,
    packets: Count,
    left: Arc<AtomicU32>,
}

impl Rank {
    /// Asserts that a call is refused if less than `needed` requests are left, and that it sends
    /// nothing.
    fn refuses<T>(&self, needed: u32, call: impl Fn() -> Result<T>) {
        for left in 0..needed {
            self.left.store(left, Ordering::Relaxed);
            let before = self.packets.total().sent;
            let error = call().map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
            for _ in 0..3 {
                assert!(self.comm.iprobe(0, 9).unwrap().is_none());
            }
            assert_eq!(self.packets.total().sent, before, "{left} were left");
        }
        self.left.store(u32::MAX, Ordering::Relaxed);
    }
}

/// Runs `body` on two ranks that compare their calls.
fn on_both(body: impl Fn(&Rank) + Sync) {
    let settings = Settings::from_variables([("PORTOLAN_COLL_CHECK", "on")]).unwrap();
    std::thread::scope(|scope| {
        for transport in memory::network(2) {
            let (body, settings) = (&body, &settings);
            scope.spawn(move || {
                let (packets, left) = (Count::new(), Arc::new(AtomicU32::new(u32::MAX)));
                let transport = Decorated::new(transport, packets.clone());
                let device = Scarce {
                    engine: Engine::new(transport, settings).unwrap(),
                    left: Arc::clone(&left),
                };
                // SAFETY: no other code uses the device, and the level is `Single`.
                let world = unsafe { World::<Single, _>::from_device(device, settings) }.unwrap();
                let comm = world.comm();
                body(&Rank {
                    comm,
                    packets,
                    left,
                });
                world.finalize().unwrap();
            });
        }
    });
}

#[test]
fn a_duplicate_that_is_refused_was_not_compared() {
    on_both(|rank| {
        let comm = &rank.comm;
        comm.barrier().unwrap();
        // Rank 1 sends first in a comparison.
        if comm.rank() == 1 {
            rank.refuses(2, || comm.idup());
        }
        comm.idup().unwrap().wait().unwrap().barrier().unwrap();
        comm.barrier().unwrap();
    });
}

#[test]
fn a_duplicate_of_two_groups_that_is_refused_was_not_compared() {
    on_both(|rank| {
        let comm = &rank.comm;
        let half = comm.split(comm.rank(), 0).unwrap().unwrap();
        let remote = RemoteLeader {
            peer: comm,
            rank: 1 - comm.rank(),
            tag: 1.into(),
        };
        let inter = half.intercomm_create(0, Some(remote)).unwrap();
        comm.barrier().unwrap();
        if comm.rank() == 1 {
            rank.refuses(3, || inter.idup());
        }
        let new = inter.idup().unwrap().wait().unwrap();
        assert_eq!(new.remote_size(), 1);
        new.barrier().unwrap();
    });
}
