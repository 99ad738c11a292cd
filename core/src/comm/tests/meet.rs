//! Ranks that make different calls to make a communicator, and all get an error.

use super::create::group;
use super::*;

type Call = fn(&World<Single>) -> Result<()>;

fn refused(outcome: Result<()>, what: &str) {
    let error = outcome.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains(what), "{error} // {what}");
}

const CALLS: [(&str, Call); 9] = [
    ("dup", |world| world.dup().map(drop)),
    ("create", |world| world.create(world.group()).map(drop)),
    ("split", |world| world.split(Some(0), 0).map(drop)),
    ("split_by with Node", |world| {
        world.split_by(SplitBy::Node, 0).map(drop)
    }),
    ("split_by with SharedMemory", |world| {
        world.split_by(SplitBy::SharedMemory, 0).map(drop)
    }),
    ("cart_create with dimensions [2 periodic, 1]", |world| {
        let dims = [Dimension::periodic(2), Dimension::open(1)];
        world.cart_create(&dims, false).map(drop)
    }),
    ("graph_create with neighbours [[1, 0], []]", |world| {
        let graph = Graph::new(vec![vec![1, 0], vec![]])?;
        world.graph_create(graph, false).map(drop)
    }),
    ("dist_graph_create_adjacent", |world| {
        let new = world.dist_graph_create_adjacent(Edges::none(), Edges::none(), false);
        new.map(drop)
    }),
    ("dist_graph_create", |world| {
        world.dist_graph_create(&[], false).map(drop)
    }),
];

#[test]
fn who_makes_another_communicator_is_named_on_every_rank() {
    for n in [2, 3, 5] {
        on_all(n, |world| {
            for (last, (others, other)) in CALLS.iter().enumerate() {
                for (zeros, zero) in CALLS.iter().filter(|(zeros, _)| zeros != others) {
                    // The last rank or, alternating with it, all ranks but the first.
                    let odd = if last % 2 == 0 { n - 1 } else { 1 };
                    let call = if world.rank() < odd { zero } else { other };
                    let what =
                        format!("world rank {odd} calls {others}, world rank 0 calls {zeros}");
                    refused(call(&world), &what);
                }
            }
            CALLS.iter().for_each(|(_, call)| call(&world).unwrap());
            assert_eq!(world.live(), 1);
        });
    }
}

#[test]
fn other_topologies_are_named_with_both() {
    on_all(4, |world| {
        let first = world.rank() < 2;
        let line = |dim| world.cart_create(&[dim, Dimension::open(2)], false);
        let mine = if first {
            Dimension::open(2)
        } else {
            Dimension::periodic(2)
        };
        let what = "world rank 2 calls cart_create with dimensions [2 periodic, 2], \
                    world rank 0 calls cart_create with dimensions [2, 2]";
        refused(line(mine).map(drop), what);
        let grid = line(Dimension::open(2)).unwrap().unwrap();
        let what = "world rank 2 calls sub of a grid with dimensions to keep [true, true], \
                    world rank 0 calls sub of a grid with dimensions to keep [true, false]";
        refused(grid.cart_sub(&[true, !first]).map(drop), what);
        // Lists that are too long for the text still count as different.
        let long = |last| {
            let mut lists = vec![vec![1; 300]; 4];
            lists[3] = vec![last];
            world
                .graph_create(Graph::new(lists).unwrap(), false)
                .map(drop)
        };
        refused(long(u32::from(first)), "…, further on");
        long(3).unwrap();
    });
}

/// The members get an error if they pass different orders, although each finds the next member by
/// its own order. Ranks outside of the group get none.
#[test]
fn groups_in_another_order_are_named_among_their_members() {
    for n in [2, 3, 5] {
        on_all(n + 1, |world| {
            let ordered: Vec<u32> = (1..=n).collect();
            let mut turned = ordered.clone();
            turned.rotate_left(1);
            let mine = if world.rank() == n { &turned } else { &ordered };
            let outcome = world.create_group(&group(mine), Tag(3));
            if world.rank() == 0 {
                assert!(outcome.unwrap().is_none());
            } else {
                let what = format!(
                    "world rank {n} calls create_group with world ranks {turned:?}, \
                     world rank 1 calls create_group with world ranks {ordered:?}"
                );
                refused(outcome.map(drop), &what);
            }
            if let Some(part) = world.create_group(&group(&turned), Tag(3)).unwrap() {
                assert_eq!(part.group(), &group(&turned));
                part.barrier().unwrap();
            }
        });
    }
}

/// An intercommunicator of the halves of `world`; `half` is this rank's.
fn create_across<D: Device>(
    world: &Communicator<D>,
    half: &Communicator<D>,
    tag: u32,
) -> Result<InterCommunicator<D>> {
    let cut = world.size() / 2;
    // (A rank that is not the leader need not name the other leader, but may.)
    let remote = RemoteLeader {
        peer: world,
        rank: if world.rank() < cut { cut } else { 0 },
        tag: Tag(tag),
    };
    InterCommunicator::create(half, 0, Some(remote))
}

/// A rank that creates something else is named to its group, and the other group hears of it from
/// its leader.
#[test]
fn who_does_not_make_an_intercommunicator_is_named_and_the_other_group_told() {
    // The ranks of the first half that call it. The first rank is the leader; it may be among them
    // or not.
    for (n, callers) in [(4, 0..1), (5, 0..1), (6, 0..2), (7, 1..3)] {
        on_all(n, |world| {
            let (me, cut) = (world.rank(), n / 2);
            let half = world.split(Some(u32::from(me < cut)), 0).unwrap().unwrap();
            let create = |tag| create_across(&world, &half, tag);
            if me < cut {
                let outcome = match callers.contains(&me) {
                    true => create(7).map(drop),
                    false => half.dup().map(drop),
                };
                let (odd, what) = match callers.start {
                    0 => (callers.end, ["dup", "intercomm_create with leader 0"]),
                    first => (first, ["intercomm_create with leader 0", "dup"]),
                };
                let [others, zeros] = what;
                let what = format!("world rank {odd} calls {others}, world rank 0 calls {zeros}");
                refused(outcome, &what);
            } else if callers.start == 0 {
                refused(create(7).map(drop), "a leader says");
            }
            // If a half's leader has called something else, the other half would wait for it until
            // its next call.
            if callers.start == 0 || me < cut {
                half.barrier().unwrap();
            }
            // The message that the other leader sent before is still there.
            let inter = create(8).unwrap();
            assert_eq!(inter.merge(me >= cut).unwrap().size(), n);
        });
    }
}

/// Each of the leaders that a group names would wait for the other's messages. Here one of them
/// does not know the other group at all.
#[test]
fn ranks_that_name_different_leaders_are_told_and_so_is_the_other_group() {
    on_all(4, |world| {
        let me = world.rank();
        let half = world.split(Some(u32::from(me == 3)), 0).unwrap().unwrap();
        let remote = || RemoteLeader {
            peer: &world,
            rank: if me == 3 { 0 } else { 3 },
            tag: Tag(7),
        };
        let outcome = match me {
            1 => InterCommunicator::create(&half, 1, None),
            _ => InterCommunicator::create(&half, 0, Some(remote())),
        };
        let what = match me {
            3 => "a leader says",
            _ => {
                "world rank 1 calls intercomm_create with leader 1, \
                 world rank 0 calls intercomm_create with leader 0"
            }
        };
        refused(outcome.map(drop), what);
        let inter = InterCommunicator::create(&half, 0, Some(remote())).unwrap();
        assert_eq!(inter.merge(me == 3).unwrap().size(), 4);
    });
}

/// Messages from failed attempts do not disturb the leaders' next attempt.
#[test]
fn intercommunicators_are_made_after_attempts_that_failed() {
    for (n, tags) in [(4, [7, 7, 7]), (5, [7, 8, 7])] {
        on_all(n, |world| {
            let (me, cut) = (world.rank(), n / 2);
            let half = world.split(Some(u32::from(me < cut)), 0).unwrap().unwrap();
            let create = |tag| create_across(&world, &half, tag);
            // First one side fails, then the other, then both.
            for (turn, tag) in tags.into_iter().enumerate() {
                let fails = [turn != 1, turn != 0][usize::from(me < cut)];
                let outcome = match fails && half.rank() == 1 {
                    true => half.dup().map(drop),
                    false => create(tag).map(drop),
                };
                let what = if fails { "calls dup" } else { "a leader says" };
                refused(outcome, what);
                if turn != 1 {
                    continue;
                }
                let inter = create(tag).unwrap();
                assert_eq!(inter.merge(me >= cut).unwrap().size(), n);
            }
            for tag in tags {
                let inter = create(tag).unwrap();
                assert_eq!(inter.merge(me >= cut).unwrap().size(), n);
            }
        });
    }
}
