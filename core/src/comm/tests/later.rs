//! Duplicates in the background.

use super::create::group;
use super::inter::Inter;
use super::*;
use crate::buffer::ContigBuf;
use crate::device::{Adi, Check};

#[test]
fn duplicates_in_the_background_are_like_others() {
    for n in [1, 2, 3, 5, 8] {
        on_all(n, |world| {
            let key = Key::<u32>::new().on_copy(|n| Some(n + 1));
            world.set_attribute(&key, 1);
            world.set_errors(Errors::Abort);
            let first = world.idup().unwrap();
            // The duplicate does not inherit changes from now on.
            world.set_attribute(&key, 70);
            world.set_errors(Errors::Return);
            let second = world.idup().unwrap();
            let blocking = world.dup().unwrap();
            let third = blocking.idup().unwrap();
            let third = third.wait().unwrap();
            let (second, first) = (second.wait().unwrap(), first.wait().unwrap());
            assert_eq!(
                (first.attribute(&key).as_deref(), first.errors()),
                (Some(&2), Errors::Abort)
            );
            assert_eq!(second.attribute(&key).as_deref(), Some(&71));
            assert_eq!(third.compare(&world), Comparison::Congruent);
            let mut contexts = vec![];
            for comm in [&world, &blocking, &first, &second, &third] {
                comm.barrier().unwrap();
                contexts.push(u64::from(comm.context()));
            }
            let all = world.allgather_words(&contexts).unwrap();
            assert!(all.chunks(5).all(|theirs| theirs == contexts), "{all:?}");
            contexts.sort_unstable();
            contexts.dedup();
            assert_eq!((contexts.len(), world.live()), (5, 5));
            drop((first, second, third, blocking));
            assert_eq!(world.live(), 1);
            world.barrier().unwrap();
        });
    }
}

/// One rank goes on to a blocking creation while the other waits for the one in the background, and
/// the other way round. The creation that holds the mask first must not wait for a rank that does
/// not arrive.
#[test]
fn ranks_may_complete_creations_in_different_orders() {
    for n in [2, 3, 4] {
        on_all(n, |world| {
            let (a, b) = (world.dup().unwrap(), world.dup().unwrap());
            for round in 0..20 {
                let early = (world.rank() + round).is_multiple_of(2);
                let pending = if round.is_multiple_of(3) {
                    world.idup().unwrap()
                } else {
                    b.idup().unwrap()
                };
                let (later, blocking) = if early {
                    let later = pending.wait().unwrap();
                    (later, a.dup().unwrap())
                } else {
                    let blocking = a.dup().unwrap();
                    (pending.wait().unwrap(), blocking)
                };
                later.barrier().unwrap();
                assert_ne!(later.context(), blocking.context());
            }
            assert_eq!(world.live(), 3);
            world.barrier().unwrap();
        });
    }
}

/// Rank 1 has started a duplicate and makes no more calls. Rank 0 has received its message and
/// waits for more, yet can still make communicators with other ranks, and of itself alone.
#[test]
fn who_is_away_holds_up_no_other_creation() {
    let (started, done) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    on_all(3, |world| {
        let me = world.rank();
        let pair = world.split(Some(u32::from(me == 2)), 0).unwrap().unwrap();
        let alone = world.alone().unwrap();
        if me == 1 {
            let pending = pair.idup().unwrap();
            started.wait();
            done.wait();
            return pending.wait().unwrap().barrier().unwrap();
        }
        let pending = (me == 0).then(|| {
            started.wait();
            let pending = pair.idup().unwrap();
            for _ in 0..100 {
                world.device().device_check(Check::NonBlocking).unwrap();
            }
            assert!(!pending.is_complete());
            pending
        });
        let both = world.create_group(&group(&[0, 2]), Tag(1)).unwrap();
        both.unwrap().barrier().unwrap();
        let copies = [alone.dup().unwrap(), alone.idup().unwrap().wait().unwrap()];
        for copy in &copies {
            copy.barrier().unwrap();
        }
        assert_ne!(copies[0].context(), copies[1].context());
        if let Some(pending) = pending {
            done.wait();
            pending.wait().unwrap().barrier().unwrap();
        }
        drop((copies, alone, pair));
        assert_eq!(world.live(), 1);
    });
}

#[test]
fn threads_and_hooks_make_communicators_at_once() {
    on_some::<Multiple>(3, |world| {
        let parents: Vec<_> = (0..3).map(|_| world.dup().unwrap()).collect();
        std::thread::scope(|scope| {
            for (parent, turn) in parents.iter().zip(0..) {
                scope.spawn(move || {
                    for _ in 0..5 {
                        let later = [parent.idup().unwrap(), parent.idup().unwrap()];
                        let blocking = parent.dup().unwrap();
                        blocking.barrier().unwrap();
                        let [one, two] = later;
                        // Threads and ranks wait in different orders.
                        let (one, two) = if (turn + parent.rank()).is_multiple_of(2) {
                            let one = one.wait().unwrap();
                            (one, two.wait().unwrap())
                        } else {
                            let two = two.wait().unwrap();
                            (one.wait().unwrap(), two)
                        };
                        assert_ne!(one.context(), two.context());
                        one.barrier().unwrap();
                        two.barrier().unwrap();
                    }
                });
            }
        });
        assert_eq!(world.live(), 4);
        world.device().end().unwrap();
    });
}

#[test]
fn a_duplicate_that_nobody_wants_gives_its_context_back() {
    on_all(3, |world| {
        let parent = world.dup().unwrap();
        drop(parent.idup().unwrap());
        let kept = parent.idup().unwrap();
        drop(parent);
        while !kept.is_complete() {
            std::thread::yield_now();
        }
        // The agreement succeeds, and the caller gives it up afterwards.
        drop(kept);
        world.barrier().unwrap();
        let last = world.idup().unwrap().wait().unwrap();
        assert_eq!(world.live(), 2);
        last.barrier().unwrap();
    });
}

/// The intercommunicator between the two ranks of a world.
fn between(world: &World) -> Inter {
    let half = world.split(Some(world.rank()), 0).unwrap().unwrap();
    let remote = RemoteLeader {
        peer: world,
        rank: 1 - world.rank(),
        tag: Tag(1),
    };
    InterCommunicator::create(&half, 0, Some(remote)).unwrap()
}

/// Nothing has begun when the hooks run, so a panic leaves no agreement behind, whose context and
/// request nobody would ever free.
#[test]
fn a_copy_hook_that_panics_leaves_no_duplicate_behind() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    on_all(2, |world| {
        let inter = between(&world);
        let key = Key::<u32>::new().on_copy(|_| panic!("on purpose"));
        world.set_attribute(&key, 1);
        inter.messages().set_attribute(&key, 1);
        let live = world.live();
        let panics = [
            catch_unwind(AssertUnwindSafe(|| world.idup().map(drop))).is_err(),
            catch_unwind(AssertUnwindSafe(|| inter.idup().map(drop))).is_err(),
        ];
        assert_eq!(panics, [true; 2]);
        world.delete_attribute(&key);
        inter.messages().delete_attribute(&key);
        // Agreements of one parent end in the order in which they began.
        world.idup().unwrap().wait().unwrap().barrier().unwrap();
        inter.idup().unwrap().wait().unwrap();
        assert_eq!(world.live(), live);
    });
}

/// Other than with `dup`, all ranks must agree to call it again.
#[test]
fn a_copy_hook_that_fails_begins_nothing() {
    on_all(2, |world| {
        let inter = between(&world);
        let key = Key::<u32>::new()
            .try_on_copy(|_| Err(Error::new(ErrorKind::Exhausted, "no room for a copy")));
        world.set_attribute(&key, 1);
        inter.messages().set_attribute(&key, 1);
        let live = world.live();
        let kinds = [
            world.idup().unwrap_err().kind(),
            inter.idup().unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Exhausted; 2]);
        world.delete_attribute(&key);
        inter.messages().delete_attribute(&key);
        world.idup().unwrap().wait().unwrap().barrier().unwrap();
        inter.idup().unwrap().wait().unwrap();
        assert_eq!(world.live(), live);
    });
}

/// The request that a duplicate waits for belongs to an operation of all ranks, which must not
/// begin if the duplicate does not.
#[test]
fn a_copy_hook_that_panics_starts_nothing_to_wait_for() {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    on_all(2, |world| {
        let inter = between(&world);
        let key = Key::<u32>::new().on_copy(|_| panic!("on purpose"));
        world.set_attribute(&key, 1);
        inter.messages().set_attribute(&key, 1);
        let started = Cell::new(false);
        let first = || {
            started.set(true);
            Ok(None)
        };
        let panics = [
            catch_unwind(AssertUnwindSafe(|| world.idup_after(first).map(drop))).is_err(),
            catch_unwind(AssertUnwindSafe(|| inter.idup_after(first).map(drop))).is_err(),
        ];
        assert_eq!((panics, started.get()), ([true; 2], false));
        world.delete_attribute(&key);
        inter.messages().delete_attribute(&key);
    });
}

#[test]
fn a_death_ends_duplicates_in_the_background() {
    for dead in 0..3 {
        let started = std::sync::Barrier::new(3);
        on_some::<Single>(3, |world| {
            let pending = if world.rank() == dead {
                None
            } else {
                Some([world.idup().unwrap(), world.idup().unwrap()])
            };
            started.wait();
            let Some(pending) = pending else {
                return world.device().declare_self_failed("on purpose");
            };
            for pending in pending {
                let error = pending.wait().unwrap_err();
                let told = (error.kind(), error.peer());
                assert_eq!(told, (ErrorKind::PeerFailed, Some(dead)), "{error}");
            }
            assert_eq!(world.live(), 1);
            assert_eq!(world.idup().unwrap_err().kind(), ErrorKind::PeerFailed);
        });
    }
}

/// Rank 0's duplicates begin only after its part of the graph is done. So the other ranks' first
/// words about the duplicates arrive before their words about the graph's edges.
#[test]
fn messages_of_duplicates_are_not_those_of_graphs() {
    for n in [2, 3, 4, 5] {
        on_all(n, |world| {
            let me = world.rank();
            let own = world.pattern(Source::Rank(me), Tags::Any).unwrap();
            // SAFETY: the pattern is the communicator's, and there is no byte to write.
            let gate = unsafe {
                let nothing = ContigBuf::from_bytes_mut(&mut []);
                world.device().irecv_contig_unchecked(&own, nothing)
            };
            let gate = gate.unwrap();
            let open = || {
                let args = world.send_args(SendMode::Standard, me, Tag(1)).unwrap();
                world.device().send_contig(&args, &[]).unwrap();
            };
            if me != 0 {
                open();
            }
            let first = world.idup_after(|| Ok(Some(gate))).unwrap();
            let later = [first, world.idup().unwrap()];
            let edges = [(me, Edges::from([(me + 1) % n]))];
            let graph = world.dist_graph_create(&edges, false).unwrap();
            if me == 0 {
                open();
            }
            for later in later {
                later.wait().unwrap().barrier().unwrap();
            }
            graph.barrier().unwrap();
            let neighbours = graph.neighbours().unwrap();
            assert_eq!(neighbours.sources[0].rank, Some((me + n - 1) % n));
        });
    }
}
