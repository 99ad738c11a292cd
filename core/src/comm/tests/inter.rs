//! Intercommunicators.

use super::*;
use crate::buffer::ContigBuf;
use crate::device::Check;
use crate::matching::Pattern;

pub(super) type Inter<L = Single> = InterCommunicator<Engine<InMemory, L>>;

/// The ranks below `cut` and the others, each group reversed if `turned`, led by its last rank.
pub(super) fn halves<L: Level>(
    world: &World<L>,
    cut: u32,
    turned: bool,
    tag: u32,
) -> crate::Result<Inter<L>> {
    let low = world.rank() < cut;
    let key = i64::from(world.rank());
    let half = world.split(Some(u32::from(low)), if turned { -key } else { key })?;
    let half = half.expect("everybody has a color");
    let leader = half.size() - 1;
    let first = |ranks: std::ops::Range<u32>| if turned { ranks.start } else { ranks.end - 1 };
    let rank = if low {
        first(cut..world.size())
    } else {
        first(0..cut)
    };
    let remote = RemoteLeader {
        peer: world,
        rank,
        tag: Tag(tag),
    };
    // Ranks other than the leader need not know it.
    let remote = (half.rank() == leader).then_some(remote);
    InterCommunicator::create(&half, leader, remote)
}

fn send<L: Level>(comm: &World<L>, to: u32, byte: u8) {
    let args = comm.send_args(SendMode::Standard, to, Tag(1)).unwrap();
    // SAFETY: the arguments are this communicator's.
    let sent = unsafe {
        let device = comm.device();
        device.send_contig_unchecked(&args, ContigBuf::from_bytes(&[byte]))
    };
    sent.unwrap();
}

fn receive<L: Level>(comm: &World<L>, from: Source) -> (u32, u8) {
    let pattern = comm.pattern(from, Tags::Any).unwrap();
    let mut byte = [0];
    // SAFETY: the arguments are this communicator's.
    let status = unsafe {
        let device = comm.device();
        device.recv_contig_unchecked(&pattern, ContigBuf::from_bytes_mut(&mut byte))
    };
    (status.unwrap().source, byte[0])
}

/// Every rank talks to every rank of the other group, by its rank there.
pub(super) fn talk<L: Level>(inter: &Inter<L>) {
    let messages = inter.messages();
    for to in 0..inter.remote_size() {
        send(messages, to, inter.rank() as u8);
    }
    for from in 0..inter.remote_size() {
        assert_eq!(receive(messages, Source::Rank(from)), (from, from as u8));
    }
    inter.merged().barrier().unwrap();
    // From any source; each message says which rank sent it.
    if inter.rank() == 0 {
        for to in 0..inter.remote_size() {
            send(messages, to, 0);
        }
    }
    assert_eq!(receive(messages, Source::Any), (0, 0));
    inter.merged().barrier().unwrap();
}

#[test]
fn groups_talk_to_each_other() {
    for (n, cut) in [(2, 1), (3, 1), (3, 2), (4, 2), (5, 2), (8, 3)] {
        for turned in [false, true] {
            on_all(n, |world| {
                let inter = halves(&world, cut, turned, 3).unwrap();
                let low = world.rank() < cut;
                let (own, other) = if low { (cut, n - cut) } else { (n - cut, cut) };
                assert_eq!((inter.size(), inter.remote_size()), (own, other));
                let me = ProcId::new(world.rank());
                assert_eq!(inter.local_group().rank_of(me), Some(inter.rank()));
                assert_eq!(inter.local_group().common(inter.remote_group()), None);
                let merged = inter.merged();
                assert_eq!(merged.rank(), inter.local_offset() + inter.rank());
                for (rank, process) in (0..).zip(inter.remote_group().iter()) {
                    assert_eq!(
                        merged.group().process(inter.remote_offset() + rank),
                        Some(process)
                    );
                }
                let mine = [u64::from(merged.rank())];
                let all = merged.allgather_words(&mine).unwrap();
                assert_eq!(all, (0..u64::from(n)).collect::<Vec<_>>());
                talk(&inter);

                let copy = inter.dup().unwrap();
                assert_eq!(copy.compare(&inter), Comparison::Congruent);
                assert_eq!(inter.compare(&inter.clone()), Comparison::Identical);
                // A message sent on one is not received on the other.
                let to = inter.rank() % inter.remote_size();
                send(inter.messages(), to, 200);
                talk(&copy);
                let from = (0..other).filter(|r| r % own == inter.rank());
                for from in from {
                    assert_eq!(receive(inter.messages(), Source::Rank(from)), (from, 200));
                }
                drop(inter);
                talk(&copy);
            });
        }
    }
}

#[test]
fn duplicates_in_the_background_talk_apart() {
    for (n, cut) in [(2, 1), (5, 2)] {
        on_all(n, |world| {
            let inter = halves(&world, cut, false, 4).unwrap();
            let key = Key::<u32>::new().on_copy(|n| Some(n + 1));
            inter.messages().set_attribute(&key, 1);
            let before = world.live();
            let (first, dropped) = (inter.idup().unwrap(), inter.idup().unwrap());
            inter.messages().set_attribute(&key, 70);
            inter.set_errors(Errors::Abort);
            let blocking = inter.dup().unwrap();
            let second = inter.idup().unwrap();
            drop(dropped);
            let (second, first) = (second.wait().unwrap(), first.wait().unwrap());
            assert_eq!(first.messages().attribute(&key).as_deref(), Some(&2));
            assert_eq!(second.messages().attribute(&key).as_deref(), Some(&71));
            let errors = |inter: &Inter| [inter.messages().errors(), inter.merged().errors()];
            assert_eq!(
                (errors(&first), errors(&second)),
                ([Errors::Return; 2], [Errors::Abort; 2])
            );
            assert_eq!(first.compare(&inter), Comparison::Congruent);
            // A message sent on one is not received on the others.
            for (byte, inter) in [(200, &inter), (201, &second), (202, &blocking)] {
                (0..inter.remote_size()).for_each(|to| send(inter.messages(), to, byte));
            }
            talk(&first);
            for (byte, inter) in [(200, &inter), (201, &second), (202, &blocking)] {
                for from in 0..inter.remote_size() {
                    assert_eq!(receive(inter.messages(), Source::Rank(from)), (from, byte));
                }
            }
            drop((first, second, blocking));
            world.barrier().unwrap();
            assert_eq!(world.live(), before);
        });
    }
}

#[test]
fn merging_puts_the_high_group_last() {
    on_all(5, |world| {
        let inter = halves(&world, 2, false, 0).unwrap();
        let low = world.rank() < 2;
        let members = |comm: &World| comm.group().iter().map(ProcId::index).collect::<Vec<_>>();
        let merged = inter.merge(!low).unwrap();
        assert_eq!(members(&merged), [0, 1, 2, 3, 4]);
        let merged = inter.merge(low).unwrap();
        assert_eq!(members(&merged), [2, 3, 4, 0, 1]);
        assert_eq!(
            merged.group().process(merged.rank()),
            Some(ProcId::new(world.rank()))
        );
        merged.barrier().unwrap();
        for both in [true, false] {
            let some = inter.merge(both).unwrap();
            let theirs = some.allgather_words(&[u64::from(some.rank())]).unwrap();
            assert_eq!(theirs, [0, 1, 2, 3, 4]);
        }
        let error = inter.merge(world.rank() == 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(world.live(), 5);
        world.barrier().unwrap();
    });
}

#[test]
fn what_needs_all_ranks_is_not_done_with_half_of_them() {
    on_all(3, |world| {
        let inter = halves(&world, 1, false, 0).unwrap();
        let messages = inter.messages();
        let outcomes = [
            messages.barrier(),
            messages.dup().map(drop),
            messages.split(Some(0), 0).map(drop),
            messages.create(inter.remote_group()).map(drop),
            messages.bcast(&mut [0], 0),
            messages.cart_create(&[Dimension::open(1)], false).map(drop),
        ];
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCommunicator, "{error}");
        }
        assert!(
            messages
                .create_group(inter.remote_group(), Tag(0))
                .unwrap()
                .is_none()
        );
        world.barrier().unwrap();
    });
}

#[test]
fn modes_names_and_attributes_are_the_intercommunicators() {
    on_all(2, |world| {
        let inter = halves(&world, 1, false, 0).unwrap();
        let key = Key::<u8>::new().on_copy(|n| Some(n + 1));
        inter.messages().set_attribute(&key, 1);
        inter.messages().set_name("across");
        inter.set_errors(Errors::Abort);
        let copy = inter.dup().unwrap();
        assert_eq!(copy.messages().attribute(&key).as_deref(), Some(&2));
        assert_eq!(copy.messages().name(), "across+");
        assert_eq!(copy.messages().errors(), Errors::Abort);
        assert_eq!(copy.merged().errors(), Errors::Abort);
    });
}

#[test]
fn a_leaders_mistake_is_told_to_its_group() {
    on_all(4, |world| {
        let half = world.split(Some(world.rank() / 2), 0).unwrap().unwrap();
        let create = |remote: Option<RemoteLeader<'_, _>>| {
            let error = InterCommunicator::create(&half, 1, remote).unwrap_err();
            (error.kind(), error.to_string())
        };
        let to = |rank, tag| {
            Some(RemoteLeader {
                peer: &world,
                rank,
                tag: Tag(tag),
            })
        };
        let (kind, text) = create(None);
        assert_eq!(kind, ErrorKind::InvalidArgument);
        assert!(text.contains("does not know the remote one"), "{text}");
        let (kind, text) = create(to(9, 0));
        assert_eq!(kind, ErrorKind::InvalidRank);
        assert!(text.contains("remote leader 9"), "{text}");
        assert_eq!(create(to(0, u32::MAX)).0, ErrorKind::InvalidTag);
        let (kind, text) = create(to(world.rank() / 2 * 2, 0));
        assert_eq!(kind, ErrorKind::InvalidArgument);
        assert!(text.contains("is in the local group"), "{text}");
        let outside = InterCommunicator::create(&half, 2, None).unwrap_err();
        assert!(outside.to_string().contains("local leader 2"), "{outside}");
        assert_eq!(world.live(), 2);
        world.barrier().unwrap();
    });
}

/// Two threads of rank 1 are in two groups that have rank 1 in common: both groups get the error.
#[test]
fn groups_that_overlap_are_refused_on_both_sides() {
    on_some::<Multiple>(3, |world| {
        let group = |ranks: [u32; 2]| Group::new(ranks.map(ProcId::new).to_vec());
        let sides = [group([0, 1]), group([2, 1])];
        std::thread::scope(|scope| {
            for (side, tag) in sides.iter().zip(0..) {
                let world = &world;
                scope.spawn(move || {
                    let Some(comm) = world.create_group(side, Tag(tag)).unwrap() else {
                        return;
                    };
                    let remote = RemoteLeader {
                        peer: world,
                        rank: if tag == 0 { 2 } else { 0 },
                        tag: Tag(0),
                    };
                    let error = InterCommunicator::create(&comm, 0, Some(remote)).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                    assert!(
                        error.to_string().contains("process 1 is in both groups"),
                        "{error}"
                    );
                });
            }
        });
        world.device().end().unwrap();
    });
}

#[test]
fn a_death_on_one_side_ends_the_creation_on_both() {
    for (n, dead) in [(2, 1), (3, 2), (4, 0), (5, 4), (5, 2)] {
        // The groups exist before any rank dies.
        let split = std::sync::Barrier::new(n as usize);
        on_some::<Single>(n, |world| {
            let half = world
                .split(Some(u32::from(world.rank() >= n / 2)), 0)
                .unwrap()
                .unwrap();
            split.wait();
            if world.rank() == dead {
                return world
                    .device()
                    .declare_self_failed("it is what this test is about");
            }
            let rank = if world.rank() < n / 2 { n / 2 } else { 0 };
            for _ in 0..2 {
                let remote = RemoteLeader {
                    peer: &world,
                    rank,
                    tag: Tag(5),
                };
                let error = InterCommunicator::create(&half, 0, Some(remote)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
                assert_eq!(error.peer(), Some(dead), "{error}");
            }
        });
    }
}

/// Each leader has received the other's message when a member of its own group dies, so both
/// leaders report that they give up. Neither receives the other's report; since messages here wait
/// for their receiver (`EAGER_MAX` is 0), neither may wait for its report to be received.
#[test]
fn leaders_that_both_give_up_do_not_wait_for_each_other() {
    let mut settings = Settings::default();
    settings.set("EAGER_MAX", "0").unwrap();
    let split = std::sync::Barrier::new(4);
    let met = std::sync::Barrier::new(2);
    let done = AtomicU32::new(0);
    on_some_with::<Single>(4, &settings, |world| {
        let half = world.split(Some(world.rank() / 2), 0).unwrap().unwrap();
        split.wait();
        if half.rank() == 1 {
            // The message that the leader sends its group after it has met the other leader.
            let told = Pattern {
                context: half.context() + 1,
                source: Some(0),
                tag: None,
            };
            // SAFETY: the pattern is the communicator's.
            world.device().probe_unchecked(&told).unwrap();
            met.wait();
            return world
                .device()
                .declare_self_failed("it is what this test is about");
        }
        for _ in 0..2 {
            let remote = RemoteLeader {
                peer: &world,
                rank: 2 - world.rank(),
                tag: Tag(1),
            };
            let error = InterCommunicator::create(&half, 0, Some(remote)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
        }
        // A rank's last message stays with it until the other rank has received it.
        done.fetch_add(1, Ordering::Relaxed);
        while done.load(Ordering::Relaxed) < 2 {
            world.device().device_check(Check::NonBlocking).unwrap();
            std::thread::yield_now();
        }
    });
}

#[test]
fn threads_make_intercommunicators_while_others_are_made() {
    on_some::<Multiple>(4, |world| {
        let parents: Vec<_> = (0..3).map(|_| world.dup().unwrap()).collect();
        std::thread::scope(|scope| {
            for (parent, tag) in parents.iter().zip(0..) {
                scope.spawn(move || {
                    for round in 0..4 {
                        let inter = halves(parent, 1 + round % 3, tag == 1, tag).unwrap();
                        talk(&inter);
                        inter.merge(round == 0).unwrap().barrier().unwrap();
                    }
                });
            }
            for _ in 0..4 {
                world.dup().unwrap().barrier().unwrap();
            }
        });
        assert_eq!(world.live(), 4);
        world.device().end().unwrap();
    });
}
