//! Intercommunicators of parts of others' groups, and the communicator of a process alone.

use proptest::prelude::*;

use super::inter::{Inter, halves, talk};
use super::*;

fn members(group: &Group) -> Vec<u32> {
    group.iter().map(ProcId::index).collect()
}

/// Checks both groups and this rank's place, then exchanges messages.
fn meet(part: &Inter, local: &[u32], remote: &[u32], me: u32) {
    assert_eq!(members(part.local_group()), local);
    assert_eq!(members(part.remote_group()), remote);
    assert_eq!(local[part.rank() as usize], me);
    let merged = part.merged();
    let all = merged.allgather_words(&[u64::from(me)]).unwrap();
    let of = |offset: u32, side: &[u32]| {
        (0..side.len()).all(|at| all[offset as usize + at] == u64::from(side[at]))
    };
    assert!(of(part.local_offset(), local) && of(part.remote_offset(), remote));
    talk(part);
}

/// The color and key that a rank of a split passes.
type Said = (Option<u32>, i64);

/// World ranks of `range` that pass `color`, in their new order.
fn expected(said: &[Said], range: std::ops::Range<usize>, color: Option<u32>) -> Vec<u32> {
    let mut part: Vec<(i64, usize)> = range
        .filter(|&rank| said[rank].0 == color)
        .map(|rank| (said[rank].1, rank))
        .collect();
    part.sort_unstable();
    part.into_iter().map(|(_, rank)| rank as u32).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_split_is_by_color_on_both_sides(
        said in prop::collection::vec((prop::option::of(0..3_u32), -2..3_i64), 2..9),
        cut in any::<prop::sample::Index>(),
    ) {
        let n = said.len();
        let cut = 1 + cut.index(n - 1);
        on_all(n as u32, |world| {
            let me = world.rank();
            let inter = halves(&world, cut as u32, false, 3).unwrap();
            let before = world.live();
            let (color, key) = said[me as usize];
            let part = inter.split(color, key).unwrap();
            let (low, high) = (expected(&said, 0..cut, color), expected(&said, cut..n, color));
            let (local, remote) = if (me as usize) < cut { (low, high) } else { (high, low) };
            let there = color.is_some() && !remote.is_empty();
            assert_eq!(part.is_some(), there);
            if let Some(part) = part {
                meet(&part, &local, &remote, me);
                // The parts agree on ids independently and at the same time, and the results are
                // complete communicators.
                talk(&part.dup().unwrap());
                assert_eq!(part.merge(part.local_offset() != 0).unwrap().size() as usize, local.len() + remote.len());
                let again = part.split(Some(7), -i64::from(part.rank())).unwrap().expect("all of both sides");
                let turned = |side: &[u32]| side.iter().rev().copied().collect::<Vec<_>>();
                meet(&again, &turned(&local), &turned(&remote), me);
            }
            world.barrier().unwrap();
            assert_eq!(world.live(), before);
            talk(&inter);
        });
    }
}

fn group(members: &[u32]) -> Group {
    Group::new(members.iter().copied().map(ProcId::new).collect::<Vec<_>>())
}

#[test]
fn groups_say_who_of_them_takes_part() {
    // Low side 0 and 1, high side 2, 3 and 4.
    let cases: [(&[u32], &[u32]); 6] = [
        (&[1, 0], &[4, 2]),
        (&[1], &[2, 3, 4]),
        (&[0], &[3]),
        (&[], &[3]),
        (&[0, 1], &[]),
        (&[], &[]),
    ];
    on_all(5, |world| {
        let me = world.rank();
        let inter = halves(&world, 2, true, 3).unwrap();
        let key = Key::<u8>::new().on_copy(|n| Some(*n));
        inter.messages().set_attribute(&key, 1);
        inter.set_errors(Errors::Abort);
        let before = world.live();
        for (low, high) in cases {
            let (local, remote) = if me < 2 { (low, high) } else { (high, low) };
            let part = inter.create_part(&group(local)).unwrap();
            let there = local.contains(&me) && !remote.is_empty();
            assert_eq!(part.is_some(), there, "{low:?} {high:?}");
            if let Some(part) = part {
                meet(&part, local, remote, me);
                assert_eq!(part.merged().errors(), Errors::Abort);
                assert_eq!(
                    part.messages().attribute(&key),
                    None,
                    "only duplicates inherit"
                );
            }
        }
        world.barrier().unwrap();
        assert_eq!(world.live(), before);
    });
}

#[test]
fn wrong_parts_are_refused() {
    on_all(4, |world| {
        let me = world.rank();
        let inter = halves(&world, 2, false, 3).unwrap();
        let before = world.live();
        // Rank 1 names a member of the other group: all ranks get the error, and none waits for it.
        let own = if me < 2 { [0, 1] } else { [2, 3] };
        let wrong = if me == 1 { [1, 2] } else { own };
        let error = inter.create_part(&group(&wrong)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let told = if me == 1 {
            "not in the communicator"
        } else {
            "rank 1 of the two groups together gave members"
        };
        assert!(error.to_string().contains(told), "{error}");
        // The ranks of one group disagree: both groups get the error.
        let own = if me == 3 { &own[1..] } else { &own[..] };
        let error = inter.create_part(&group(own)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("disagree about who"), "{error}");
        world.barrier().unwrap();
        assert_eq!(world.live(), before);
        talk(&inter);
    });
}

#[test]
fn a_death_ends_the_making_of_parts_on_both_sides() {
    for dead in [0, 3] {
        let made = std::sync::Barrier::new(4);
        on_some::<Single>(4, |world| {
            let inter = halves(&world, 2, false, 3).unwrap();
            made.wait();
            if world.rank() == dead {
                return world
                    .device()
                    .declare_self_failed("it is what this test is about");
            }
            for error in [
                inter.split(Some(0), 0).unwrap_err(),
                inter.create_part(inter.local_group()).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
            }
        });
    }
}

#[test]
fn a_process_alone_needs_nobody() {
    // One rank of three makes its own and uses it, while the others do other things.
    on_all(3, |world| {
        if world.rank() == 1 {
            let own = world.alone().unwrap();
            assert_eq!(
                (own.rank(), own.size(), own.name()),
                (0, 1, "self".to_owned())
            );
            assert_eq!(members(own.group()), [1]);
            assert_eq!(world.live(), 2);
            let again = world.alone().unwrap_err();
            assert_eq!(again.kind(), ErrorKind::InvalidCommunicator);
            own.barrier().unwrap();
            // A duplicate of it is like any other: it takes an id that is free on this rank.
            let copy = own.dup().unwrap();
            assert_eq!(copy.compare(&own), Comparison::Congruent);
            drop((own, copy));
            assert_eq!(world.live(), 1);
            world.alone().unwrap().barrier().unwrap();
        }
        // The other ranks do not know about it.
        let copy = world.dup().unwrap();
        assert_eq!(copy.context(), 4);
        copy.barrier().unwrap();
        // All ranks have one at once; the contexts of other communicators stay apart from it.
        let own = world.alone().unwrap();
        assert_eq!(own.split(Some(world.rank()), 0).unwrap().unwrap().size(), 1);
        world.barrier().unwrap();
    });
}

#[test]
fn attributes_go_in_the_opposite_order_of_their_setting() {
    on_all(1, |world| {
        let gone = Arc::new(std::sync::Mutex::new(Vec::new()));
        let key = || {
            let gone = Arc::clone(&gone);
            Key::<u32>::new().on_delete(move |n| gone.lock().unwrap().push(*n))
        };
        let keys = [key(), key(), key()];
        let own = world.alone().unwrap();
        let set = |comm: &World| {
            for (key, n) in keys.iter().zip(1..) {
                comm.set_attribute(key, n);
            }
        };
        set(&own);
        own.delete_attributes();
        assert_eq!(std::mem::take(&mut *gone.lock().unwrap()), [3, 2, 1]);
        assert_eq!(own.attribute(&keys[0]), None);
        set(&own);
        drop(own);
        assert_eq!(*gone.lock().unwrap(), [3, 2, 1]);
    });
}
