//! Creation: of all ranks, of some, in several threads at once, with ranks that die.

use proptest::prelude::*;

use super::*;
use crate::buffer::ContigBuf;

pub(super) fn group(members: &[u32]) -> Group {
    Group::new(members.iter().copied().map(ProcId::new).collect::<Vec<_>>())
}

/// Every rank receives from every other rank of its communicator, and from no rank outside.
fn meet(comm: &World) {
    let mine = [u64::from(comm.device().attributes().world_rank)];
    let met = comm.allgather_words(&mine).unwrap();
    let members: Vec<u64> = comm.group().iter().map(|p| u64::from(p.index())).collect();
    assert_eq!(met, members);
    assert_eq!(met[comm.rank() as usize], mine[0]);
}

#[test]
fn words_are_gathered_at_every_size() {
    for n in 1..=9 {
        on_all(n, |world| {
            let me = u64::from(world.rank());
            let all = world.allgather_words(&[me, me * me]).unwrap();
            let expected: Vec<u64> = (0..u64::from(n)).flat_map(|r| [r, r * r]).collect();
            assert_eq!(all, expected);
            assert_eq!(world.allgather_words(&[]).unwrap(), []);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_split_is_by_color_and_then_by_key(
        choices in prop::collection::vec((prop::option::of(0..3_u32), -2..3_i64), 1..9),
    ) {
        on_all(choices.len() as u32, |world| {
            let (color, key) = choices[world.rank() as usize];
            let part = world.split(color, key).unwrap();
            assert_eq!(part.is_some(), color.is_some());
            let Some(part) = part else { return };
            let mut expected: Vec<(i64, u32)> = (0..)
                .zip(&choices)
                .filter(|(_, (theirs, _))| *theirs == color)
                .map(|(rank, (_, key))| (*key, rank))
                .collect();
            expected.sort_unstable();
            let members: Vec<u32> = expected.into_iter().map(|(_, rank)| rank).collect();
            assert_eq!(*part.group(), group(&members));
            meet(&part);
            // Parts agree on ids by themselves, at the same time.
            meet(&part.dup().unwrap());
        });
    }
}

#[test]
fn a_large_color_is_not_mistaken_for_none() {
    on_all(2, |world| {
        let color = (world.rank() == 0).then_some(u32::MAX);
        let part = world.split(color, i64::MIN).unwrap();
        assert_eq!(part.map(|part| part.size()), color.map(|_| 1));
    });
}

#[test]
fn one_node_is_one_part() {
    on_all(5, |world| {
        let node = world
            .split_by(SplitBy::Node, -i64::from(world.rank()))
            .unwrap();
        assert_eq!(*node.group(), group(&[4, 3, 2, 1, 0]));
        meet(&node);
        let caps = world.device().attributes().caps;
        // The ranks that stay out call it too, in one form or the other.
        let odd = !world.rank().is_multiple_of(2);
        let some = match odd {
            true => world.split_by(SplitBy::Node, 0).map(Some),
            false => world.split_some_by(SplitBy::Node, false, 0),
        };
        let some = some.unwrap().map(|some| (some.rank(), some.size()));
        assert_eq!(some, odd.then_some((world.rank() / 2, world.size() / 2)));
        let shared = world.split_by(SplitBy::SharedMemory, 0).unwrap();
        let together = caps.contains(crate::device::Caps::DIRECT);
        assert_eq!(shared.size(), if together { 5 } else { 1 });
        meet(&shared);
    });
}

#[test]
fn several_nodes_are_several_parts() {
    let options = memory::Options {
        ranks_per_node: 2,
        ..memory::Options::default()
    };
    std::thread::scope(|scope| {
        for transport in memory::network_with(5, options) {
            scope.spawn(move || {
                let engine = Engine::<_, Single>::new(transport, &Settings::default()).unwrap();
                let world = Communicator::world(Arc::new(engine)).unwrap();
                let node = world.split_by(SplitBy::Node, 0).unwrap();
                let members: &[u32] = [&[0, 1][..], &[2, 3], &[4]][world.rank() as usize / 2];
                assert_eq!(*node.group(), group(members));
                assert_eq!(node.rank(), world.rank() % 2);
                world.device().end().unwrap();
            });
        }
    });
}

#[test]
fn communicators_are_compared() {
    on_all(3, |world| {
        let (copy, backwards) = (world.dup().unwrap(), group(&[2, 1, 0]));
        let backwards = world.create(&backwards).unwrap().unwrap();
        let own = world.split(Some(world.rank()), 0).unwrap().unwrap();
        assert_eq!(world.compare(&world.clone()), Comparison::Identical);
        assert_eq!(world.compare(&copy), Comparison::Congruent);
        assert_eq!(world.compare(&backwards), Comparison::Similar);
        assert_eq!(world.compare(&own), Comparison::Unequal);
    });
}

#[test]
fn disjoint_groups_are_created_at_once() {
    on_all(5, |world| {
        let groups = [group(&[4, 0]), group(&[1, 3, 2])];
        let mine = &groups[usize::from(!groups[0].contains(ProcId::new(world.rank())))];
        let part = world.create(mine).unwrap().unwrap();
        assert_eq!(part.group(), mine);
        meet(&part);
        let error = world.create(&group(&[0, 7])).unwrap_err();
        assert!(
            error.to_string().contains("process 7 of the new group"),
            "{error}"
        );
        assert!(world.create(&Group::empty()).unwrap().is_none());
        assert_eq!(world.live(), 2);
    });
}

#[test]
fn a_group_is_enough() {
    for n in [1, 2, 3, 4, 5, 8] {
        on_all(n, |world| {
            // The upper half of the ranks, backwards; the others do not take part.
            let members: Vec<u32> = (n / 2..n).rev().collect();
            let wanted = group(&members);
            if world.rank() < n / 2 {
                if world.rank() == 0 {
                    assert!(world.create_group(&wanted, Tag(7)).unwrap().is_none());
                }
                return;
            }
            let part = world.create_group(&wanted, Tag(7)).unwrap().unwrap();
            assert_eq!(*part.group(), wanted);
            meet(&part);
            let again = part.create_group(&wanted, Tag(7)).unwrap().unwrap();
            meet(&again);
            let no_tag = world.create_group(&wanted, Tag(u32::MAX)).unwrap_err();
            assert_eq!(no_tag.kind(), ErrorKind::InvalidTag);
            let alien = world.create_group(&group(&[n]), Tag(0)).unwrap_err();
            assert_eq!(alien.kind(), ErrorKind::InvalidArgument);
        });
    }
}

#[test]
fn errors_and_names_are_inherited_and_attributes_by_dup_only() {
    on_all(2, |world| {
        let key = Key::<u32>::new().on_copy(|n| Some(n + 1));
        world.set_attribute(&key, 1);
        world.set_errors(Errors::Abort);
        let (copy, part) = (
            world.dup().unwrap(),
            world.split(Some(0), 0).unwrap().unwrap(),
        );
        world.set_errors(Errors::Return);
        assert_eq!(
            (copy.errors(), part.errors()),
            (Errors::Abort, Errors::Abort)
        );
        assert_eq!(copy.attribute(&key).as_deref(), Some(&2));
        assert_eq!(part.attribute(&key), None);
        assert_eq!(copy.name(), "world+");
    });
}

/// The ranks whose hooks succeed have a duplicate; the other has none, and nothing is left behind.
#[test]
fn a_copy_hook_that_fails_fails_the_call_on_its_rank() {
    on_all(3, |world| {
        let broken = world.rank() == 1;
        let key = Key::<u32>::new().try_on_copy(move |n| match broken {
            true => Err(Error::new(ErrorKind::Exhausted, "no room for a copy")),
            false => Ok(Some(n + 1)),
        });
        world.set_attribute(&key, 1);
        let live = world.live();
        match world.dup() {
            Ok(copy) => assert_eq!(copy.attribute(&key).as_deref(), Some(&2)),
            Err(error) => {
                assert!(broken && error.kind() == ErrorKind::Exhausted, "{error}");
                assert_eq!(error.rank(), Some(1));
            }
        }
        assert_eq!(world.live(), live);
        world.delete_attribute(&key);
        world.dup().unwrap().barrier().unwrap();
    });
}

#[test]
fn a_copy_hook_may_use_the_communicator() {
    on_some::<Multiple>(1, |world| {
        let (parent, name) = (world.clone(), Key::<String>::new());
        world.set_attribute(&name, "seen".to_owned());
        let read = name.clone();
        let key = Key::<usize>::new().on_copy(move |_| Some(parent.attribute(&read)?.len()));
        world.set_attribute(&key, 3);
        assert_eq!(world.dup().unwrap().attribute(&key).as_deref(), Some(&4));
        world.delete_attribute(&key);
        world.device().end().unwrap();
    });
}

/// The panic must not leave the contexts in use, because their id is free then.
#[test]
fn a_delete_hook_that_panics_frees_the_contexts() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    on_all(1, |world| {
        let key = Key::<u32>::new().on_delete(|n| assert_eq!(*n, 0, "on purpose"));
        let first = world.dup().unwrap();
        let context = first.context();
        first.set_attribute(&key, 1);
        catch_unwind(AssertUnwindSafe(|| drop(first))).unwrap_err();
        assert_eq!(world.live(), 1);
        let second = world.dup().unwrap();
        assert_eq!(second.context(), context);
        second.barrier().unwrap();
    });
}

/// Operations that are pending when their communicator is freed still complete.
#[test]
fn freeing_leaves_pending_operations_alone() {
    on_all(2, |world| {
        let child = world.dup().unwrap();
        let other = 1 - world.rank();
        let pattern = child.pattern(Source::Rank(other), Tags::Any).unwrap();
        let args = child
            .send_args(SendMode::Synchronous, other, Tag(9))
            .unwrap();
        let (sent, mut received) = ([world.rank() as u8; 3], [9; 3]);
        let device = world.device();
        // SAFETY: the buffers are left alone until both requests are over.
        let requests = unsafe {
            let buf = ContigBuf::from_bytes_mut(&mut received);
            let receive = device.irecv_contig_unchecked(&pattern, buf).unwrap();
            let send = device
                .isend_contig_unchecked(&args, ContigBuf::from_bytes(&sent))
                .unwrap();
            [receive, send]
        };
        drop(child);
        assert_eq!(world.live(), 1);
        let [status, _] = requests.map(|request| device.wait(request).unwrap());
        assert_eq!((status.source, status.tag, status.bytes), (other, 9, 3));
        assert_eq!(received, [other as u8; 3]);
        world.barrier().unwrap();
    });
}

/// Ranks create in different orders, each thread in its own. A thread that waits for a rank busy
/// with another creation must not keep that creation from finishing.
#[test]
fn threads_may_create_in_any_order() {
    on_some::<Multiple>(3, |world| {
        let parents: Vec<_> = (0..4).map(|_| world.dup().unwrap()).collect();
        let create = |parent: &World<Multiple>, times: u32| {
            for _ in 0..times {
                let copy = parent.dup().unwrap();
                copy.barrier().unwrap();
                let part = copy.split(Some(copy.rank() % 2), 0).unwrap().unwrap();
                part.barrier().unwrap();
            }
        };
        for round in 0..10 {
            // Rank 0 has one thread per parent; every other rank has one thread, with a changing
            // order.
            if world.rank() == 0 {
                std::thread::scope(|scope| {
                    for parent in &parents {
                        scope.spawn(move || create(parent, 1));
                    }
                });
            } else {
                let mut order: Vec<_> = parents.iter().collect();
                order.rotate_left(round % 4);
                order.into_iter().for_each(|parent| create(parent, 1));
            }
        }
        world.barrier().unwrap();
        // And one thread per parent on every rank.
        std::thread::scope(|scope| {
            for parent in &parents {
                scope.spawn(move || create(parent, 5));
            }
        });
        assert_eq!(world.live(), 5);
        world.device().end().unwrap();
    });
}

#[test]
fn threads_may_create_groups_of_one_parent() {
    on_some::<Multiple>(4, |world| {
        let me = ProcId::new(world.rank());
        let groups = [
            group(&[0, 1, 2]),
            group(&[3, 2, 1]),
            group(&[2, 0]),
            group(&[1, 3]),
        ];
        std::thread::scope(|scope| {
            for (wanted, tag) in groups.iter().zip(0..) {
                let world = &world;
                scope.spawn(move || {
                    for _ in 0..5 {
                        let part = world.create_group(wanted, Tag(tag)).unwrap();
                        assert_eq!(part.is_some(), wanted.contains(me));
                        if let Some(part) = part {
                            assert_eq!(part.group(), wanted);
                            part.barrier().unwrap();
                        }
                    }
                });
            }
            // The parent itself stays usable.
            for _ in 0..5 {
                world.dup().unwrap().barrier().unwrap();
            }
        });
        assert_eq!(world.live(), 1);
        world.device().end().unwrap();
    });
}

#[test]
fn a_death_ends_the_creation_of_its_groups_only() {
    for n in [2, 3, 5, 8] {
        on_some::<Single>(n, |world| {
            let everybody = world.group().clone();
            let dead = n - 1;
            if world.rank() == dead {
                return world
                    .device()
                    .declare_self_failed("it is what this test is about");
            }
            let error = world.create_group(&everybody, Tag(1)).unwrap_err();
            assert_eq!(
                (error.kind(), error.peer()),
                (ErrorKind::PeerFailed, Some(dead)),
                "{error}"
            );
            // The living ranks go on with the same tag: leftovers of the failed attempt do no harm.
            let living = Group::world(dead);
            let part = world.create_group(&living, Tag(1)).unwrap().unwrap();
            part.barrier().unwrap();
            let error = world.split(Some(0), 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerFailed);
        });
    }
}

#[test]
fn ids_run_out_on_every_rank_alike() {
    on_all(2, |world| {
        // Rank 0 keeps all copies, rank 1 drops them.
        let mut kept = Vec::new();
        let error = loop {
            match world.dup() {
                Ok(copy) if world.rank() == 0 => kept.push(copy),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        assert!(error.to_string().contains("drop communicators"), "{error}");
        drop(kept);
        world.dup().unwrap().barrier().unwrap();
    });
}
