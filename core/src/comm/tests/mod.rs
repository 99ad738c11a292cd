//! Communicators over the engine on the reference transport, with threads as ranks.

mod create;
mod inter;
mod later;
mod leftovers;
mod meet;
mod parts;
mod topology;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::config::Settings;
use crate::device::{ProcId, SendMode};
use crate::engine::Engine;
use crate::level::{Level, Multiple, Single};
use crate::transport::memory::{self, InMemory};

type World<L = Single> = Communicator<Engine<InMemory, L>>;

fn on_all(n: u32, body: impl Fn(World) + Sync) {
    on_some::<Single>(n, |world| {
        body(world.clone());
        world.device().end().unwrap();
    });
}

/// Like `on_all`, for jobs in which some ranks end early, or that have several threads.
fn on_some<L: Level>(n: u32, body: impl Fn(World<L>) + Sync) {
    on_some_with(n, &Settings::default(), body);
}

fn on_some_with<L: Level>(n: u32, settings: &Settings, body: impl Fn(World<L>) + Sync) {
    std::thread::scope(|scope| {
        for transport in memory::network(n) {
            let body = &body;
            scope.spawn(move || {
                let engine = Engine::new(transport, settings).unwrap();
                body(Communicator::world(Arc::new(engine)).unwrap());
            });
        }
    });
}

#[test]
fn a_device_has_one_world() {
    on_all(1, |world| {
        let again = Communicator::world(Arc::clone(&world.0.device)).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::InvalidCommunicator);
        world.barrier().unwrap();
    });
}

#[test]
fn groups_become_communicators_with_ranks_of_their_own() {
    on_all(5, |world| {
        let me = world.rank();
        // The odd ranks, in reverse.
        let odd = Group::new(vec![ProcId::new(3), ProcId::new(1)]);
        let part = world.create(&odd).unwrap();
        assert_eq!(part.is_some(), me == 1 || me == 3);
        if let Some(part) = part {
            assert_eq!((part.size(), part.rank()), (2, if me == 3 { 0 } else { 1 }));
            let mut data = [me as u8; 4];
            part.bcast(&mut data, 0).unwrap();
            assert_eq!(data, [3; 4]);
            let error = part.send_args(SendMode::Standard, 2, Tag(0)).unwrap_err();
            assert!(error.to_string().contains("use ranks 0 to 1"), "{error}");
            // A communicator of the part agrees on an id that is free on both ranks.
            part.dup().unwrap().barrier().unwrap();
        }
        let alien = Group::new(vec![ProcId::new(9)]);
        assert_eq!(
            world.create(&alien).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        assert_eq!(world.live(), 1);
    });
}

#[test]
fn ids_are_free_again_when_every_rank_has_dropped_them() {
    on_all(2, |world| {
        let first = world.dup().unwrap();
        let second = world.dup().unwrap();
        assert_eq!((first.context(), second.context()), (4, 8));
        // Rank 0 drops the first, rank 1 both: only the id that both have freed comes back.
        drop(first);
        let kept = (world.rank() == 0).then_some(second);
        let contexts = || (0..200).map(|_| world.dup().unwrap().context());
        let all: Vec<u32> = contexts().collect();
        assert!(all.contains(&4) && !all.contains(&8), "{all:?}");
        drop(kept);
        assert!(contexts().any(|context| context == 8));
        assert_eq!(world.live(), 1);
    });
}

/// Repeats an operation of all ranks until it fails.
fn until_it_fails(world: &World, what: &str, round: &mut u32) -> crate::Error {
    let mut large = vec![0_u8; 1 << 20];
    loop {
        let outcome = match what {
            "barrier" => world.barrier(),
            "and" => world.and_words(&mut [u64::MAX; 3]),
            "small" => world.bcast(&mut large[..9], *round % world.size()),
            "large" => world.bcast(&mut large, *round % world.size()),
            _ => world.bcast(&mut large[..9], 0),
        };
        *round += 1;
        if let Err(error) = outcome {
            return error;
        }
    }
}

#[test]
fn a_death_ends_collectives_on_every_rank() {
    for n in [3, 5, 8] {
        for what in ["barrier", "and", "small", "large", "from 0"] {
            // The dead rank is in the middle; it dies after an even or an odd number of operations.
            let dead = n / 2;
            on_some::<Single>(n, |world| {
                let mut round = 0;
                if world.rank() == dead {
                    let mut small = [0; 9];
                    match what {
                        "barrier" => world.barrier().unwrap(),
                        "and" => world.and_words(&mut [0; 3]).unwrap(),
                        "large" => world.bcast(&mut vec![0; 1 << 20], 0).unwrap(),
                        _ => world.bcast(&mut small, 0).unwrap(),
                    }
                    return world
                        .device()
                        .declare_self_failed("it is what this test is about");
                }
                for _ in 0..2 {
                    let error = until_it_fails(&world, what, &mut round);
                    assert_eq!(error.kind(), ErrorKind::PeerFailed, "{what}: {error}");
                    assert_eq!(error.peer(), Some(dead), "{what}: {error}");
                }
            });
        }
    }
}

#[test]
fn a_death_does_not_concern_communicators_of_the_living() {
    // The part exists before any rank dies.
    let created = std::sync::Barrier::new(4);
    on_some::<Single>(4, |world| {
        let odd = Group::new(vec![ProcId::new(1), ProcId::new(3)]);
        let part = world.create(&odd).unwrap();
        created.wait();
        if world.rank() == 2 {
            return world
                .device()
                .declare_self_failed("it is what this test is about");
        }
        while world.check_members().is_ok() {
            std::thread::yield_now();
        }
        if let Some(part) = part {
            part.check_members().unwrap();
            part.barrier().unwrap();
            part.dup().unwrap().bcast(&mut [1; 1 << 20], 0).unwrap();
        }
    });
}

#[test]
fn the_bitwise_and_is_right_at_every_size() {
    for n in [1, 2, 3, 4, 5, 8] {
        on_all(n, |world| {
            let mut words = [
                u64::MAX ^ 1 << world.rank(),
                u64::MAX,
                u64::from(world.rank()),
            ];
            world.and_words(&mut words).unwrap();
            assert_eq!(words, [u64::MAX << n, u64::MAX, 0]);
        });
    }
}

/// Adds to a count when it is dropped.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn extensions_live_as_long_as_what_they_belong_to() {
    let (own, shared) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counted = |n: &Arc<AtomicU32>| Counted(Arc::clone(n));
    let gone = |n: &Arc<AtomicU32>| n.load(Ordering::Relaxed);
    on_all(1, |world| {
        let child = world.dup().unwrap();
        let first: *const Counted = child.extension(Slot::Coll, || counted(&own));
        let again: *const Counted = child.extension(Slot::Coll, || unreachable!("it is there"));
        assert_eq!(first, again);
        // A duplicate has no value of its own yet, but shares the job's.
        let copy = child.dup().unwrap();
        assert_eq!(copy.extension(Slot::Coll, || 7_u8), &7);
        let total = Arc::clone(&own);
        copy.extension_with(
            Slot::Rma,
            || 5_u32,
            move |n, device: &Engine<InMemory, Single>| {
                assert_eq!(device.attributes().world_size, 1);
                total.fetch_add(n, Ordering::Relaxed);
            },
        );
        child.job_extension(Slot::Coll, || counted(&shared));
        world.job_extension::<Counted>(Slot::Coll, || unreachable!("it is there"));
        drop(child);
        assert_eq!((gone(&own), gone(&shared)), (1, 0));
        drop(copy);
        assert_eq!((gone(&own), gone(&shared)), (6, 0));
    });
    assert_eq!(gone(&shared), 1);
}

#[test]
#[should_panic(expected = "the extension Coll was made with another type")]
fn a_slot_has_one_type() {
    let transport = memory::network(1).pop().unwrap();
    let engine = Engine::<_, Single>::new(transport, &Settings::default()).unwrap();
    let world = Communicator::world(Arc::new(engine)).unwrap();
    world.extension(Slot::Coll, || 1_u8);
    world.extension(Slot::Coll, || 1_u16);
}
