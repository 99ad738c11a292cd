//! Communicators over the engine on the reference transport, with threads as ranks.

use std::sync::Arc;

use super::*;
use crate::config::Settings;
use crate::device::ProcId;
use crate::engine::Engine;
use crate::level::Single;
use crate::transport::memory::{self, Memory};

type World = Communicator<Engine<Memory, Single>>;

fn on_all(n: u32, body: impl Fn(World) + Sync) {
    std::thread::scope(|scope| {
        for transport in memory::network(n) {
            let body = &body;
            scope.spawn(move || {
                let engine = Engine::new(transport, &Settings::default()).unwrap();
                let world = Communicator::world(Arc::new(engine)).unwrap();
                body(world.clone());
                world.device().end().unwrap();
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
        // The odd ranks, backwards.
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
        assert_eq!((first.context(), second.context()), (2, 4));
        // Rank 0 lets go of the first, rank 1 of both: only what is free on both comes back.
        drop(first);
        let kept = (world.rank() == 0).then_some(second);
        let third = world.dup().unwrap();
        let fourth = world.dup().unwrap();
        assert_eq!((third.context(), fourth.context()), (2, 6));
        drop(kept);
        assert_eq!(world.dup().unwrap().context(), 4);
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
