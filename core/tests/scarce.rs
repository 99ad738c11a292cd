//! Duplicates in the background over a device that has few requests left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use portolan_core::comm::{Communicator, InterCommunicator, RemoteLeader, Tag};
use portolan_core::config::Settings;
use portolan_core::device::{Check, Upper, delegate_device};
use portolan_core::level::Single;
use portolan_core::transport::decorate::{Count, Decorated};
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{Device, Engine, Error, ErrorKind, Request, Result};

/// A device that makes only so many more requests for the crates above.
struct Scarce {
    engine: Engine<Decorated<InMemory, Count>, Single>,
    packets: Count,
    left: AtomicU32,
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

type World = Communicator<Scarce>;

/// Runs `body` on two ranks, which are threads.
fn on_both(body: impl Fn(&World) + Sync) {
    std::thread::scope(|scope| {
        for transport in memory::network(2) {
            let body = &body;
            scope.spawn(move || {
                let packets = Count::new();
                let transport = Decorated::new(transport, packets.clone());
                let device = Arc::new(Scarce {
                    engine: Engine::new(transport, &Settings::default()).unwrap(),
                    packets,
                    left: AtomicU32::new(u32::MAX),
                });
                let world = Communicator::world(Arc::clone(&device)).unwrap();
                body(&world);
                device.end().unwrap();
            });
        }
    });
}

/// Asserts that a call fails for want of a request if only `left` are left, and that it sends
/// nothing.
fn refused<T>(world: &World, left: u32, call: impl FnOnce() -> Result<T>) {
    let device = world.device();
    device.left.store(left, Ordering::Relaxed);
    let before = device.packets.total().sent;
    let error = call().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    for _ in 0..3 {
        device.device_check(Check::NonBlocking).unwrap();
    }
    assert_eq!(device.packets.total().sent, before);
    device.left.store(u32::MAX, Ordering::Relaxed);
}

/// A duplicate of an intercommunicator takes two agreements. If one of them had begun in a call
/// that failed, the other rank would take it for the first one of the next call.
#[test]
fn a_duplicate_of_two_groups_that_is_refused_has_not_begun() {
    on_both(|world| {
        let half = world.split(Some(world.rank()), 0).unwrap().unwrap();
        let remote = RemoteLeader {
            peer: world,
            rank: 1 - world.rank(),
            tag: Tag(1),
        };
        let inter = InterCommunicator::create(&half, 0, Some(remote)).unwrap();
        let live = world.live();
        world.barrier().unwrap();
        if world.rank() == 0 {
            (0..2).for_each(|left| refused(world, left, || inter.idup()));
        }
        let new = inter.idup().unwrap().wait().unwrap();
        let contexts = [new.merged().context(), new.messages().context()].map(u64::from);
        let all = new.merged().allgather_words(&contexts).unwrap();
        assert_eq!(all, [contexts, contexts].concat());
        drop(new);
        assert_eq!(world.live(), live);
    });
}
