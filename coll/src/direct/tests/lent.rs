//! Operations of two ranks on tracks, in which a contribution may be copied from where it is.
//!
//! Each reader tries both ways in turn: its first eight contributions of a category are shown, and
//! the following ones lent, one after it has said that it wishes so.

use portolan_core::transport::Pulls;
use portolan_core::transport::memory::{self, Options as Network};
use portolan_core::{Device, Error, ErrorKind, Request, Result, TypedBuf};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, lingering, on_network};
use crate::direct::blocking::pulled::forbid;
use crate::direct::boards::board::small;
use crate::{Many, Operation, Options, Persistent, run, start};

/// Words of a contribution.
const LEN: usize = 10 << 10;
const BYTES: u64 = 4 * LEN as u64;
/// So many operations are certain to have tried both ways.
const ENOUGH: usize = 24;

/// Two ranks that have boards, and may copy from each other; with board lines that are taken, and
/// without.
fn on_pair(body: impl Fn(&World) + Sync) {
    for takes in [false, true] {
        let network = Network {
            pulls: Pulls::Always,
            ..Network::default()
        };
        let options = Options {
            takes,
            ..Options::default()
        };
        on_network(memory::network_with(2, network), &options, |world| {
            barrier(world);
            lingering::begin(if takes { 3 } else { 0 });
            body(world);
            world.barrier().unwrap();
        });
    }
}

fn barrier(world: &World) {
    // SAFETY: there is no buffer.
    unsafe { run(world, &Operation::Barrier) }.unwrap();
}

fn wait(world: &World, request: Request) -> Result<()> {
    world.device().wait(request).map(drop)
}

/// Starts an operation and waits for it.
fn go(world: &World, operation: &Operation<'_>) -> Result<()> {
    // SAFETY: the buffers are left alone until the wait is over.
    wait(world, unsafe { start(world, operation) }?)
}

/// Bytes that this rank has copied from the other's buffers so far.
fn pulled(world: &World) -> u64 {
    let all = world.device().counters();
    let found = all.iter().find(|(name, _)| *name == "bytes_pulled");
    found.unwrap().1
}

/// The values of a rank in a round. All differ.
fn values(rank: u32, round: usize) -> Vec<u32> {
    (0..LEN as u32)
        .map(|at| at * 64 + round as u32 * 2 + rank)
        .collect()
}

/// Equal blocks of items of `layout`, one for each rank.
fn blocks<'a>(data: &mut [u32], layout: &'a Layout, count: usize) -> Many<'a> {
    Many::Equal(TypedBuf {
        count,
        ..buf(data, layout)
    })
}

/// Spreads a vector over every other word.
fn spread(words: &[u32]) -> Vec<u32> {
    words.iter().flat_map(|&word| [word, u32::MAX]).collect()
}

/// The items of two layouts: words side by side, and words with gaps of the same size.
fn layouts() -> [Layout; 2] {
    let word = Layout::of::<u32>();
    let apart = Layout::resized(&word, 0, 8).unwrap();
    [word, apart]
}

/// One operation of each kind that may be lent; returns how many bytes this rank has copied in it
/// from the other's buffer. `gaps`: whether this rank's send buffer and its receive buffer have
/// gaps.
fn bcast(world: &World, round: usize, [gives, takes]: [bool; 2]) -> u64 {
    let (layouts, root) = (layouts(), round as u32 % 2);
    let is_root = world.rank() == root;
    let gaps = if is_root { gives } else { takes };
    let mine = values(world.rank(), round);
    let mut data = if gaps { spread(&mine) } else { mine };
    let before = pulled(world);
    let data_of = TypedBuf {
        count: LEN,
        ..buf(&mut data, &layouts[usize::from(gaps)])
    };
    go(
        world,
        &Operation::Bcast {
            data: data_of,
            root,
        },
    )
    .unwrap();
    let expected = values(root, round);
    assert_eq!(data, if gaps { spread(&expected) } else { expected });
    pulled(world) - before
}

fn allgather(world: &World, round: usize, [gives, takes]: [bool; 2]) -> u64 {
    let layouts = layouts();
    let mine = values(world.rank(), round);
    let mut from = if gives { spread(&mine) } else { mine };
    let mut to = vec![u32::MAX; 2 * LEN * if takes { 2 } else { 1 }];
    let before = pulled(world);
    let operation = Operation::Allgather {
        send: Some(TypedBuf {
            count: LEN,
            ..buf(&mut from, &layouts[usize::from(gives)])
        }),
        recv: blocks(&mut to, &layouts[usize::from(takes)], LEN),
    };
    go(world, &operation).unwrap();
    let expected = [values(0, round), values(1, round)].concat();
    assert_eq!(to, if takes { spread(&expected) } else { expected });
    pulled(world) - before
}

fn alltoall(world: &World, round: usize, [gives, takes]: [bool; 2]) -> u64 {
    let (layouts, me) = (layouts(), world.rank());
    let mine = [values(2 * me, round), values(2 * me + 1, round)].concat();
    let mut from = if gives { spread(&mine) } else { mine };
    let mut to = vec![u32::MAX; 2 * LEN * if takes { 2 } else { 1 }];
    let before = pulled(world);
    let operation = Operation::Alltoall {
        send: Some(blocks(&mut from, &layouts[usize::from(gives)], LEN)),
        recv: blocks(&mut to, &layouts[usize::from(takes)], LEN),
    };
    go(world, &operation).unwrap();
    let expected = [values(me, round), values(2 + me, round)].concat();
    assert_eq!(to, if takes { spread(&expected) } else { expected });
    pulled(world) - before
}

fn allreduce(world: &World, round: usize, in_place: bool) -> u64 {
    // Which operand is the left one matters.
    let combined = |left: u32, right: u32| right.wrapping_mul(3).wrapping_add(left);
    let op = &Op::new(false, combined);
    let layout = Layout::of::<u32>();
    let mut from = values(world.rank(), round);
    let mut to = if in_place { from.clone() } else { vec![0; LEN] };
    let before = pulled(world);
    let operation = Operation::Allreduce {
        send: (!in_place).then(|| buf(&mut from, &layout)),
        recv: buf(&mut to, &layout),
        op,
    };
    go(world, &operation).unwrap();
    let [left, right] = [0, 1].map(|rank| values(rank, round));
    let expected = left.into_iter().zip(right);
    assert!(
        to.into_iter()
            .eq(expected.map(|(left, right)| combined(left, right)))
    );
    pulled(world) - before
}

const NO_GAPS: [bool; 2] = [false; 2];

#[test]
fn both_ways_are_tried_and_both_give_the_right_data() {
    on_pair(|world| {
        let ways: [&dyn Fn(usize) -> u64; 3] = [
            &|round| allgather(world, round, NO_GAPS),
            &|round| alltoall(world, round, NO_GAPS),
            &|round| allreduce(world, round, false),
        ];
        // Allgather and alltoall are of one category, so what is known after the first is known.
        let mut copied = ways.map(|way| (0..ENOUGH).map(way).collect::<Vec<_>>());
        assert_eq!(copied[0][..8], [0; 8]);
        assert_eq!(copied[2][..8], [0; 8]);
        for copied in &mut copied {
            assert!(
                copied.iter().all(|&bytes| bytes == 0 || bytes == BYTES),
                "{copied:?}"
            );
        }
        for tried in [&copied[0], &copied[2]] {
            let lent = tried.iter().filter(|&&bytes| bytes > 0).count();
            assert!(lent >= 2, "{tried:?}");
        }
    });
}

#[test]
fn a_broadcast_is_lent_where_its_receiver_wishes_so() {
    on_pair(|world| {
        let copied: Vec<_> = (0..4 * ENOUGH)
            .map(|round| bcast(world, round, NO_GAPS))
            .collect();
        // Every other one is this rank's own.
        let received = copied.iter().skip(1 - world.rank() as usize).step_by(2);
        assert!(
            received.clone().take(8).all(|&bytes| bytes == 0),
            "{copied:?}"
        );
        assert!(received.clone().any(|&bytes| bytes == BYTES), "{copied:?}");
        let sent = copied.iter().skip(world.rank() as usize).step_by(2);
        assert!(sent.clone().all(|&bytes| bytes == 0), "{copied:?}");
    });
}

/// What has gaps at its owner is shown. What has gaps at its reader is copied to the reader's board
/// first, unless the reader's own contribution is there.
#[test]
fn data_with_gaps_arrives_where_it_belongs() {
    for gaps in [[true, false], [false, true], [true, true]] {
        for one in [0, 1] {
            on_pair(|world| {
                let mine = if world.rank() == one { gaps } else { NO_GAPS };
                for round in 0..ENOUGH {
                    allgather(world, round, mine);
                    alltoall(world, round, mine);
                }
                for round in 0..2 * ENOUGH {
                    bcast(world, round, mine);
                }
            });
        }
    }
}

#[test]
fn a_reader_that_may_not_copy_asks_for_the_data() {
    for those in [&[0][..], &[1], &[0, 1]] {
        on_pair(|world| {
            let me = world.rank();
            if those.contains(&me) {
                forbid();
            }
            let copied: u64 = (0..ENOUGH)
                .map(|round| allgather(world, round, NO_GAPS))
                .sum();
            assert_eq!(copied > 0, !those.contains(&me));
            for round in 0..ENOUGH {
                alltoall(world, round, NO_GAPS);
                allreduce(world, round, round % 2 == 0);
                bcast(world, round, NO_GAPS);
            }
        });
    }
}

#[test]
fn what_is_combined_in_place_is_not_lent() {
    on_pair(|world| {
        for round in 0..2 * ENOUGH {
            assert_eq!(allreduce(world, round, true), 0);
        }
    });
}

/// The buffer is not the caller's again before the reader has copied from it.
#[test]
fn an_owner_waits_for_its_reader() {
    on_pair(|world| {
        let layout = Layout::of::<u32>();
        let mut lent = false;
        for round in 0..2 * ENOUGH {
            let mut data = values(world.rank(), round);
            let root = 0;
            let data_of = buf(&mut data, &layout);
            let before = pulled(world);
            let begin = || {
                // SAFETY: left alone until the wait.
                unsafe {
                    start(
                        world,
                        &Operation::Bcast {
                            data: data_of,
                            root,
                        },
                    )
                }
                .unwrap()
            };
            if world.rank() == root {
                let request = begin();
                world.barrier().unwrap();
                wait(world, request).unwrap();
                data.fill(0);
            } else {
                // The root has started the operation, and cannot be over with a loan.
                world.barrier().unwrap();
                wait(world, begin()).unwrap();
                assert_eq!(data, values(root, round));
                lent |= pulled(world) > before;
            }
        }
        assert_eq!(lent, world.rank() == 1);
    });
}

/// Ranks that do not agree do not copy, and nobody waits for ever.
#[test]
fn ranks_that_disagree_end_with_errors() {
    fn error(outcome: Result<()>) -> Option<ErrorKind> {
        outcome.err().map(|error: Error| error.kind())
    }
    on_pair(|world| {
        let (layout, bytes) = (Layout::of::<u32>(), Layout::of::<f32>());
        let me = world.rank();
        for round in 0..ENOUGH {
            allgather(world, round, NO_GAPS);
            bcast(world, 2 * round, NO_GAPS);
            // Another length, of what may be lent and of what may not.
            for other in [LEN - 500, 3, 4 * LEN] {
                let len = if me == 0 { LEN } else { other };
                let (mut from, mut to) = (vec![me; len], vec![7; 2 * len + 100]);
                let operation = Operation::Allgather {
                    send: Some(buf(&mut from, &layout)),
                    recv: blocks(&mut to, &layout, len),
                };
                assert_eq!(error(go(world, &operation)), Some(ErrorKind::InvalidCount));
                assert!(to[2 * len..].iter().all(|&word| word == 7));
                // A root does not look at the others, and has no error.
                let operation = Operation::Bcast {
                    data: buf(&mut from, &layout),
                    root: 0,
                };
                let expected = (me == 1).then_some(ErrorKind::InvalidCount);
                let outcome = error(go(world, &operation));
                assert!(
                    outcome == expected || other == 4 * LEN && outcome.is_some(),
                    "{outcome:?}"
                );
            }
            // Another type.
            let mut data = values(me, round);
            let operation = Operation::Bcast {
                data: buf(&mut data, if me == 0 { &layout } else { &bytes }),
                root: 0,
            };
            let expected = (me == 1).then_some(ErrorKind::TypeMismatch);
            assert_eq!(error(go(world, &operation)), expected);
            // Another root: both give.
            let operation = Operation::Bcast {
                data: buf(&mut data, &layout),
                root: me,
            };
            assert_eq!(error(go(world, &operation)), None);
            // Another operation.
            let operation = match me {
                0 => Operation::Bcast {
                    data: buf(&mut data, &layout),
                    root: 0,
                },
                _ => Operation::Barrier,
            };
            let expected = (me == 1).then_some(ErrorKind::InvalidArgument);
            assert_eq!(error(go(world, &operation)), expected);
        }
    });
}

/// Many at once, over and over: each has a buffer, a cell and a chunk of its own.
#[test]
fn many_may_be_under_way() {
    on_pair(|world| {
        let layout = Layout::of::<u32>();
        let op = &Op::from(Predefined::Sum);
        for turn in 0..6 {
            let rounds = turn * 12..turn * 12 + 12;
            let mut from: Vec<_> = rounds
                .clone()
                .map(|round| values(world.rank(), round))
                .collect();
            let mut to: Vec<_> = rounds.clone().map(|_| vec![0; 2 * LEN]).collect();
            let mut begin = |at: usize| {
                let send = Some(buf(&mut from[at], &layout));
                let operation = if at.is_multiple_of(3) {
                    let recv = buf(&mut to[at][..LEN], &layout);
                    Operation::Allreduce { send, recv, op }
                } else {
                    let recv = blocks(&mut to[at], &layout, LEN);
                    Operation::Allgather { send, recv }
                };
                // SAFETY: left alone until the wait.
                unsafe { start(world, &operation) }.unwrap()
            };
            let requests: Vec<_> = (0..12).map(&mut begin).collect();
            // The ranks wait in different orders.
            let in_order = requests.into_iter();
            let in_order: Vec<_> = match world.rank() {
                0 => in_order.collect(),
                _ => in_order.rev().collect(),
            };
            for request in in_order {
                wait(world, request).unwrap();
            }
            for (at, round) in rounds.enumerate() {
                let [left, right] = [0, 1].map(|rank| values(rank, round));
                if at.is_multiple_of(3) {
                    let sums = left.iter().zip(right).map(|(left, right)| left + right);
                    assert!(to[at][..LEN].iter().copied().eq(sums));
                } else {
                    assert_eq!(to[at], [left, right].concat());
                }
            }
        }
    });
}

/// A persistent operation's chunk is shorter, but as long as this.
#[test]
fn persistent_operations_are_lent_too() {
    on_pair(|world| {
        let layout = Layout::of::<u32>();
        let len = small(1) / 4;
        let (mut from, mut to) = (vec![0; len], vec![0; 2 * len]);
        let operation = Operation::Allgather {
            send: Some(buf(&mut from, &layout)),
            recv: blocks(&mut to, &layout, len),
        };
        let mut again = Persistent::new(world, &operation).unwrap();
        let before = pulled(world);
        for round in 0..ENOUGH as u32 {
            // The buffers are the operation's only between its start and its end.
            from.fill(2 * round + world.rank());
            // SAFETY: left alone until the wait.
            let request = unsafe { again.start() }.unwrap();
            wait(world, request).unwrap();
            for (rank, block) in (0..).zip(to.chunks(len)) {
                assert!(block.iter().all(|&word| word == 2 * round + rank));
            }
        }
        assert!(pulled(world) > before);
    });
}

/// A rank that dies leaves the other with an error, whose buffer is its own again.
#[test]
fn a_death_ends_a_loan() {
    let network = Network {
        pulls: Pulls::Always,
        ..Network::default()
    };
    let (ranks, options) = (memory::network_with(2, network), Options::default());
    on_network(ranks, &options, |world| {
        // After the barrier each knows the other's wishes, so the ninth is the first that is lent.
        let copied = (0..9).map(|round| {
            barrier(world);
            allgather(world, round, NO_GAPS)
        });
        let copied: Vec<_> = copied.collect();
        assert_eq!((copied[7], copied[8]), (0, BYTES), "{copied:?}");
        barrier(world);
        if world.rank() == 1 {
            world.device().declare_self_failed("on purpose");
            return;
        }
        let layout = Layout::of::<u32>();
        let (mut from, mut to) = (values(0, 0), vec![0; 2 * LEN]);
        let operation = Operation::Allgather {
            send: Some(buf(&mut from, &layout)),
            recv: blocks(&mut to, &layout, LEN),
        };
        let outcome = go(world, &operation);
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PeerFailed);
    });
}
