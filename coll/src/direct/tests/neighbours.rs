//! Neighbour collectives over boards: lengths on both sides of all limits, any number of edges, and
//! ranks that do not agree.

use portolan_core::comm::{Dimension, Edges};
use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::Layout;

use super::{World, costs, on_all};
use crate::direct::boards::board::Header;
use crate::direct::boards::long::{
    LONG_ALONG, LONG_ALONG_SHARED, pretend_shared_vectors, without_memory,
};
use crate::simulate::Random;
use crate::{BlocksArg, LayoutsArg, Many, Operation, run, start};

/// Numbers of items of 4 bytes: none, in a cell, in a chunk, near and above its end for lists and
/// for one block, in long places, as messages.
const LENS: [usize; 10] = [0, 1, 5, 300, 2048, 6000, 17_409, 40_000, 270_000, 600_000];

/// An item that travels along an edge.
fn item(from: u32, to: u32, lane: u32, at: usize) -> u32 {
    from.wrapping_mul(7919) ^ to.wrapping_mul(104_729) ^ (lane << 20) ^ at as u32
}

/// A rank's neighbours, each with the number of the edge among those between the two ranks.
fn numbered(ranks: &[u32]) -> Vec<(u32, u32)> {
    let before = |at: usize| {
        ranks[..at]
            .iter()
            .filter(|&&rank| rank == ranks[at])
            .count()
    };
    let edge = |at: usize| (ranks[at], before(at) as u32);
    (0..ranks.len()).map(edge).collect()
}

/// Blocks one after another, with a gap of one item.
struct Blocks {
    data: Vec<u32>,
    counts: Vec<usize>,
    displacements: Vec<isize>,
}

impl Blocks {
    fn new(counts: Vec<usize>) -> Self {
        let begins = counts.iter().scan(0, |at, count| {
            let begin = *at;
            *at += count + 1;
            Some(begin as isize)
        });
        Self {
            displacements: begins.collect(),
            data: vec![u32::MAX; counts.iter().sum::<usize>() + counts.len()],
            counts,
        }
    }

    fn fill(&mut self, edge: usize, value: impl Fn(usize) -> u32) {
        for at in 0..self.counts[edge] {
            self.data[self.displacements[edge] as usize + at] = value(at);
        }
    }

    fn check(&self, edge: usize, value: impl Fn(usize) -> u32) {
        for at in 0..self.counts[edge] {
            let got = self.data[self.displacements[edge] as usize + at];
            assert_eq!(got, value(at), "item {at} of edge {edge}");
        }
    }

    fn many<'a>(&'a mut self, layout: &'a Layout) -> Many<'a> {
        Many::Blocks(BlocksArg {
            ptr: self.data.as_mut_ptr().cast(),
            counts: &self.counts,
            displacements: &self.displacements,
            layout,
        })
    }
}

fn go(comm: &World, operation: &Operation<'_>, blocking: bool) -> Result<()> {
    // SAFETY: the buffers outlive the call and the wait.
    unsafe {
        match blocking {
            true => run(comm, operation),
            false => {
                start(comm, operation).and_then(|request| comm.device().wait(request).map(drop))
            }
        }
    }
}

/// An alltoallv along edges, each with a length of its own, and an allgatherv.
fn both(comm: &World, sources: &[u32], destinations: &[u32], len: impl Fn(u32, u32, u32) -> usize) {
    let (me, layout) = (comm.rank(), Layout::of::<u32>());
    let (sources, destinations) = (numbered(sources), numbered(destinations));
    for blocking in [true, false] {
        let lens = destinations.iter().map(|&(to, lane)| len(me, to, lane));
        let mut send = Blocks::new(lens.collect());
        for (edge, &(to, lane)) in destinations.iter().enumerate() {
            send.fill(edge, |at| item(me, to, lane, at));
        }
        let lens = sources.iter().map(|&(from, lane)| len(from, me, lane));
        let mut recv = Blocks::new(lens.collect());
        let (sends, recvs) = (send.many(&layout), recv.many(&layout));
        let operation = Operation::NeighbourAlltoall {
            send: sends,
            recv: recvs,
        };
        go(comm, &operation, blocking).unwrap();
        for (edge, &(from, lane)) in sources.iter().enumerate() {
            recv.check(edge, |at| item(from, me, lane, at));
        }
        let of = |rank: u32| len(rank, rank, 0);
        let mut mine: Vec<u32> = (0..of(me)).map(|at| item(me, 0, 0, at)).collect();
        let mut recv = Blocks::new(sources.iter().map(|&(from, _)| of(from)).collect());
        let operation = Operation::NeighbourAllgather {
            send: super::buf(&mut mine, &layout),
            recv: recv.many(&layout),
        };
        go(comm, &operation, blocking).unwrap();
        for (edge, &(from, _)) in sources.iter().enumerate() {
            recv.check(edge, |at| item(from, 0, 0, at));
        }
    }
}

#[test]
fn any_lengths_go_along_the_edges_of_any_graph() {
    for ranks in [1, 2, 3, 4, 8] {
        on_all(ranks, |world| {
            let mut random = Random::new(u64::from(ranks));
            for turn in 0..24 {
                pretend_shared_vectors(turn % 3 == 2);
                // Edges may occur twice, and may lead to the rank itself; a rank may have none.
                let mut end = || random.below(ranks as usize) as u32;
                let all: Vec<(u32, u32)> = (0..turn).map(|_| (end(), end())).collect();
                let of = |mine: fn(&(u32, u32)) -> (u32, u32)| {
                    let own = all.iter().map(mine);
                    let own = own.filter(|&(whose, _)| whose == world.rank());
                    own.map(|(_, other)| other).collect::<Vec<_>>()
                };
                let (destinations, sources) = (of(|&edge| edge), of(|&(from, to)| (to, from)));
                let edges = |ranks: &[u32]| Edges::from(ranks.to_vec());
                let graph =
                    world.dist_graph_create_adjacent(edges(&sources), edges(&destinations), false);
                let graph = graph.unwrap();
                let shift = random.below(LENS.len());
                let len = |from: u32, to: u32, lane: u32| {
                    LENS[(from as usize + 3 * to as usize + lane as usize + shift) % LENS.len()]
                };
                both(&graph, &sources, &destinations, len);
            }
        });
    }
}

/// The length is then in the cell, in front of the name of the long place, which a rank that is its
/// own neighbour reads to the last byte.
#[test]
fn lengths_for_which_a_header_has_no_room_lie_on_boards() {
    on_all(2, |world| {
        pretend_shared_vectors(false);
        let all = [0, 1];
        let edges = || Edges::from(all.to_vec());
        let graph = world
            .dist_graph_create_adjacent(edges(), edges(), false)
            .unwrap();
        for len in [270_000, 540_000] {
            let bytes = len * size_of::<u32>();
            assert!(bytes <= LONG_ALONG && 2 * bytes >= Header::LONG);
            both(&graph, &all, &all, |_, _, _| len);
        }
    });
}

#[test]
fn more_edges_between_two_ranks_than_lanes_keep_their_order() {
    on_all(2, |world| {
        let all = vec![1 - world.rank(); 150];
        let edges = || Edges::from(all.clone());
        let graph = world
            .dist_graph_create_adjacent(edges(), edges(), false)
            .unwrap();
        for longest in [10, 2500] {
            both(&graph, &all, &all, |_, _, lane| 1 + lane as usize % longest);
        }
        // Some blocks are empty.
        both(&graph, &all, &all, |_, _, lane| lane as usize % 3);
        both(&graph, &all, &all, |_, _, lane| {
            3000 * usize::from(lane % 3 == 1)
        });
        // Short and long blocks in one lane.
        both(
            &graph,
            &all,
            &all,
            |_, _, lane| if lane < 70 { 1 } else { 3000 },
        );
    });
}

#[test]
fn two_that_send_each_other_what_neither_expects_do_not_wait_for_each_other() {
    on_all(2, |world| {
        pretend_shared_vectors(false);
        do_not_wait(world, &[(300_000, 10), (10, 300_000), (9000, 300_000)]);
        pretend_shared_vectors(true);
        let limit = LONG_ALONG_SHARED / 4;
        do_not_wait(
            world,
            &[
                (limit, limit + 1),
                (limit + 1, limit),
                (limit + 1, limit + 2),
            ],
        );
    });
}

fn do_not_wait(world: &World, lens: &[(usize, usize)]) {
    let (ring, layout) = (ring(world), Layout::of::<u32>());
    for &(sent, expected) in lens {
        let mut send = Blocks::new(vec![sent; 2]);
        let mut recv = Blocks::new(vec![expected; 2]);
        let operation = Operation::NeighbourAlltoall {
            send: send.many(&layout),
            recv: recv.many(&layout),
        };
        for blocking in [true, false] {
            let error = go(&ring, &operation, blocking).unwrap_err();
            let kinds = [ErrorKind::InvalidCount, ErrorKind::Truncated];
            assert!(kinds.contains(&error.kind()), "{sent}: {error}");
            go(&ring, &Operation::Barrier, true).unwrap();
        }
    }
}

/// One end of an edge has another length than the other end. In a nonblocking operation no rank
/// waits for ever, only the two ends of the edge get an error, and what follows works.
fn one_end_differs(ranks: u32, seed: u64) {
    let lens = [0, 1, 7, 300, 3000, 9000, 20_000, 40_000];
    on_all(ranks, |world| {
        let mut random = Random::new(seed);
        let mut end = || random.below(ranks as usize) as u32;
        let mut all: Vec<(u32, u32)> = (0..2 * ranks).map(|_| (end(), end())).collect();
        all.push((0, 1));
        let me = world.rank();
        let of = |mine: fn(&(u32, u32)) -> (u32, u32)| {
            let own = all.iter().map(mine).filter(|&(whose, _)| whose == me);
            own.map(|(_, other)| other).collect::<Vec<_>>()
        };
        let (destinations, sources) = (of(|&edge| edge), of(|&(from, to)| (to, from)));
        let edges = |ranks: &[u32]| Edges::from(ranks.to_vec());
        let graph = world.dist_graph_create_adjacent(edges(&sources), edges(&destinations), false);
        let (graph, layout) = (graph.unwrap(), Layout::of::<u32>());
        go(&graph, &Operation::Barrier, true).unwrap();
        for _ in 0..6 {
            let shift = random.below(lens.len());
            let len = |from: u32, to: u32, lane: u32| {
                lens[(from as usize + 3 * to as usize + lane as usize + shift) % lens.len()]
            };
            let usual = |own: &[u32], len: &dyn Fn(u32, u32) -> usize| -> Vec<usize> {
                numbered(own)
                    .iter()
                    .map(|&(other, lane)| len(other, lane))
                    .collect()
            };
            let mut to = usual(&destinations, &|to, lane| len(me, to, lane));
            let mut from = usual(&sources, &|from, lane| len(from, me, lane));
            let (odd, takes, other) = (
                random.below(2) as u32,
                random.below(2) == 0,
                lens[random.below(lens.len())],
            );
            // The edge from 0 to 1 that was added last.
            if odd == me && takes == (me == 1) {
                let list = if takes {
                    (&mut from, &sources)
                } else {
                    (&mut to, &destinations)
                };
                let at = list.1.iter().rposition(|&rank| rank == 1 - me).unwrap();
                list.0[at] = other;
            }
            let (mut send, mut recv) = (Blocks::new(to), Blocks::new(from));
            let operation = Operation::NeighbourAlltoall {
                send: send.many(&layout),
                recv: recv.many(&layout),
            };
            if let Err(error) = go(&graph, &operation, false) {
                let kinds = [ErrorKind::InvalidCount, ErrorKind::Truncated];
                assert!(
                    kinds.contains(&error.kind()) && me < 2,
                    "seed {seed}: {error}"
                );
            }
            go(&graph, &Operation::Barrier, true).unwrap();
        }
        both(&graph, &sources, &destinations, |from, to, lane| {
            lens[(from + to + lane) as usize % lens.len()]
        });
    });
}

#[test]
fn an_edge_whose_ends_differ_holds_nobody_up() {
    for seed in 0..10 {
        for ranks in [2, 3, 5] {
            one_end_differs(ranks, seed);
        }
    }
    one_end_differs(8, 100);
}

#[test]
fn a_list_that_has_no_room_goes_as_messages() {
    // 20 blocks of 2,000 items each way, and among them some that are too long for any list.
    let len = |_, _, lane| if lane % 5 == 1 { 3000 } else { 2000 };
    on_all(3, |world| {
        let me = world.rank();
        let others: Vec<u32> = (0..3).filter(|&rank| rank != me).collect();
        let all = others.repeat(20);
        let edges = || Edges::from(all.clone());
        let graph = world
            .dist_graph_create_adjacent(edges(), edges(), false)
            .unwrap();
        for _ in 0..3 {
            both(&graph, &all, &all, len);
        }
    });
}

/// A ring of the ranks of a world. With two ranks, both neighbours are the same.
fn ring(world: &World) -> World {
    let dims = [Dimension::periodic(world.size())];
    world.cart_create(&dims, false).unwrap().unwrap()
}

#[test]
fn short_ones_are_one_signal_and_long_ones_messages() {
    on_all(4, |world| {
        pretend_shared_vectors(false);
        costs_of(world, &[(1, 0), (17_000, 0), (100_000, 0), (300_000, 0)]);
        // A header has no room for the length, and then neither has a board for the block.
        costs_of(world, &[(540_000, 0), (600_000, 4)]);
        pretend_shared_vectors(true);
        let limit = LONG_ALONG_SHARED / 4;
        costs_of(world, &[(1, 0), (limit, 0), (limit + 1, 4), (100_000, 4)]);
    });
}

fn costs_of(world: &World, lens: &[(usize, u64)]) {
    let (ring, layout) = (ring(world), Layout::of::<u32>());
    let [mut send, mut recv] = [vec![ring.rank(); 600_000], vec![0; 1_200_000]];
    for &(len, messages) in lens {
        let before = costs(&ring);
        let operation = Operation::NeighbourAllgather {
            send: super::buf(&mut send[..len], &layout),
            recv: Many::Equal(super::buf(&mut recv[..len], &layout)),
        };
        go(&ring, &operation, true).unwrap();
        let after = costs(&ring);
        let sent = u64::from(messages > 0) * 2;
        assert_eq!(after[0] - before[0], 1, "{len}");
        assert_eq!(after[2] - before[2], sent, "{len}");
        let (below, above) = ((ring.rank() + 3) % 4, (ring.rank() + 1) % 4);
        assert!(recv[..len].iter().all(|&item| item == below), "{len}");
        assert!(
            recv[len..2 * len].iter().all(|&item| item == above),
            "{len}"
        );
    }
}

/// The rank has no source whose board could tell it that its message is not wanted.
#[test]
fn a_rank_that_only_sends_is_told_of_a_destination_that_does_something_else() {
    on_all(2, |world| {
        let (to, from) = match world.rank() {
            0 => (vec![1], vec![]),
            _ => (vec![], vec![0]),
        };
        let (from, to) = (Edges::from(from), Edges::from(to));
        let graph = world.dist_graph_create_adjacent(from, to, false).unwrap();
        let layout = Layout::of::<u32>();
        let mut data = vec![0u32; 600_000];
        for _ in 0..3 {
            let outcome = match graph.rank() {
                0 => {
                    let operation = Operation::NeighbourAlltoall {
                        send: Many::Equal(super::buf(&mut data, &layout)),
                        recv: Many::Equal(super::buf(&mut [0; 0], &layout)),
                    };
                    go(&graph, &operation, true)
                }
                _ => go(&graph, &Operation::Barrier, true),
            };
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            go(&graph, &Operation::Barrier, true).unwrap();
        }
    });
}

#[test]
fn lengths_that_differ_are_told_and_what_follows_works() {
    for ranks in [2, 3, 4] {
        on_all(ranks, |world| {
            let (ring, layout) = (ring(world), Layout::of::<u32>());
            for (odd, usual) in LENS.iter().flat_map(|&odd| LENS.map(|usual| (odd, usual))) {
                // No message is sent for an empty block, even if it is longer at the other end (see
                // `BlocksArg`).
                if odd == usual || odd.min(usual) == 0 {
                    continue;
                }
                let is_odd = ring.rank() == 1;
                for list in [true, false] {
                    let len = if is_odd { odd } else { usual };
                    let mut send = vec![ring.rank(); 2 * len];
                    let mut recv = vec![0; 2 * len];
                    let one = |data| TypedBuf {
                        count: len,
                        ..super::buf(data, &layout)
                    };
                    let recv = Many::Equal(one(&mut recv));
                    let operation = match list {
                        true => Operation::NeighbourAlltoall {
                            send: Many::Equal(one(&mut send)),
                            recv,
                        },
                        false => Operation::NeighbourAllgather {
                            send: one(&mut send),
                            recv,
                        },
                    };
                    let case = format!("{odd} beside {usual}, list {list}, {ranks} ranks");
                    let outcome = go(&ring, &operation, true);
                    let concerned = is_odd || [0, 2].contains(&ring.rank());
                    match outcome {
                        Ok(()) => assert!(!concerned, "{case}: rank {}", ring.rank()),
                        Err(error) => {
                            let kinds = [ErrorKind::InvalidCount, ErrorKind::Truncated];
                            assert!(kinds.contains(&error.kind()), "{case}: {error}");
                        }
                    }
                }
                let (mut send, mut recv) = ([ring.rank()], [0; 2]);
                let operation = Operation::NeighbourAllgather {
                    send: super::buf(&mut send, &layout),
                    recv: Many::Equal(TypedBuf {
                        count: 1,
                        ..super::buf(&mut recv, &layout)
                    }),
                };
                go(&ring, &operation, true).unwrap();
                let size = ring.size();
                let around = [size - 1, 1].map(|by| (ring.rank() + by) % size);
                assert_eq!(recv, around);
            }
        });
    }
}

#[test]
fn who_does_something_else_is_told_and_nobody_hangs() {
    on_all(3, |world| {
        let (ring, layout) = (ring(world), Layout::of::<u32>());
        for len in LENS {
            let mut send = vec![ring.rank(); 2 * len];
            let mut recv = vec![0; 2 * len];
            let one = |data| TypedBuf {
                count: len,
                ..super::buf(data, &layout)
            };
            let list = Operation::NeighbourAlltoall {
                send: Many::Equal(one(&mut send)),
                recv: Many::Equal(one(&mut recv)),
            };
            let same = Operation::Barrier;
            let operation = if ring.rank() == 1 { &same } else { &list };
            let error = go(&ring, operation, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{len}: {error}");
            let text = error.to_string();
            assert!(text.contains("a neighbour alltoall"), "{text}");
            go(&ring, &Operation::Barrier, true).unwrap();
        }
    });
}

#[test]
fn who_sends_to_one_that_does_something_else_does_not_wait_for_it() {
    on_all(2, |world| {
        let (me, layout) = (world.rank(), Layout::of::<u32>());
        let [sources, destinations] = [[vec![], vec![1]], [vec![0], vec![]]][me as usize].clone();
        let graph = world
            .dist_graph_create_adjacent(sources, destinations, false)
            .unwrap();
        for late in [true, false] {
            let mut send = Blocks::new(vec![300_000; usize::from(me == 0)]);
            let mut recv = Blocks::new(vec![0; usize::from(me == 1)]);
            let list = Operation::NeighbourAlltoall {
                send: send.many(&layout),
                recv: recv.many(&layout),
            };
            if me == 0 {
                // Rank 0 would not look at the other rank except because of its message.
                let _ = go(&graph, &list, true);
            } else {
                let pauses = if late { 2000 } else { 0 };
                (0..pauses).for_each(|_| std::thread::yield_now());
                go(&graph, &Operation::Barrier, true).unwrap_err();
            }
            go(&graph, &Operation::Barrier, true).unwrap();
        }
    });
}

#[test]
fn an_answer_may_be_of_another_type_and_a_wrong_one_is_told() {
    let layouts = [Layout::of::<u32>(), Layout::of::<f32>()];
    on_all(2, |world| {
        let (ring, me) = (ring(world), world.rank() as usize);
        for len in [1, 1000, 9000] {
            for right in [true, false] {
                let mut send = vec![ring.rank(); 2 * len];
                let mut recv = vec![0u32; 2 * len];
                let (counts, displacements) = ([len; 2], [0, 4 * len as isize]);
                let mine = layouts[me].clone();
                let theirs = layouts[if right { 1 - me } else { me }].clone();
                let [mine, theirs] = [[mine.clone(), mine], [theirs.clone(), theirs]];
                let many = |data: &mut [u32], layouts| {
                    Many::Layouts(LayoutsArg {
                        ptr: data.as_mut_ptr().cast(),
                        counts: &counts,
                        displacements: &displacements,
                        layouts,
                    })
                };
                let equal = |data: &mut [u32], layout| {
                    Many::Equal(TypedBuf {
                        ptr: data.as_mut_ptr().cast(),
                        count: len,
                        layout,
                        memory: MemoryKind::Host,
                    })
                };
                // Lists of layouts show no type, but the data taken from others may be compared.
                for receive in [many(&mut recv, &theirs), equal(&mut recv, &theirs[0])] {
                    let operation = Operation::NeighbourAlltoall {
                        send: equal(&mut send, &mine[0]),
                        recv: receive,
                    };
                    let outcome = go(&ring, &operation, true);
                    match outcome {
                        Ok(()) => assert!(right, "{len}"),
                        Err(error) => {
                            assert!(!right, "{error}");
                            assert_eq!(error.kind(), ErrorKind::TypeMismatch, "{error}");
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn who_gets_no_memory_for_long_places_sends_messages() {
    for without in [vec![1], vec![0, 1], vec![0, 1, 2]] {
        on_all(3, |world| {
            let all = [2, 1].map(|by| (world.rank() + by) % 3);
            let edges = || Edges::from(all.to_vec());
            let graph = world.dist_graph_create_adjacent(edges(), edges(), false);
            let graph = graph.unwrap();
            let is_without = without.contains(&world.rank());
            let body = || {
                let (mut send, mut recv) = (vec![7u32; 100_000], vec![0u32; 200_000]);
                let layout = Layout::of::<u32>();
                let operation = Operation::NeighbourAllgather {
                    send: super::buf(&mut send, &layout),
                    recv: Many::Equal(super::buf(&mut recv[..100_000], &layout)),
                };
                // The first operation makes boards, which takes messages.
                go(&graph, &Operation::Barrier, true).unwrap();
                let before = costs(&graph)[2];
                go(&graph, &operation, true).unwrap();
                let sent = if is_without { 2 } else { 0 };
                assert_eq!(costs(&graph)[2] - before, sent);
                assert!(recv.iter().all(|&item| item == 7));
                for shift in 0..LENS.len() {
                    both(&graph, &all, &all, |from, to, lane| {
                        LENS[(from as usize + 3 * to as usize + lane as usize + shift) % LENS.len()]
                    });
                }
            };
            match is_without {
                true => without_memory(body),
                false => body(),
            }
        });
    }
}

#[test]
fn who_gets_no_memory_tells_the_lengths_of_blocks_all_the_same() {
    // Two of them are longer than a chunk, and fit in a long place.
    const LEN: usize = 50_000;
    for (sent, expected) in [([LEN, 0], LEN), ([0, LEN], LEN), ([LEN, LEN], 0)] {
        on_all(3, |world| {
            let me = world.rank();
            let all = [2, 1].map(|by| (me + by) % 3);
            let edges = || Edges::from(all.to_vec());
            let graph = world.dist_graph_create_adjacent(edges(), edges(), false);
            let graph = graph.unwrap();
            go(&graph, &Operation::Barrier, true).unwrap();
            let body = || {
                let layout = Layout::of::<u32>();
                let many = |blocks: &mut Blocks| BlocksArg {
                    ptr: blocks.data.as_mut_ptr().cast(),
                    counts: &[],
                    displacements: &[],
                    layout: &layout,
                };
                let lens = if me == 1 { sent } else { [expected; 2] };
                let mut send = Blocks::new(lens.to_vec());
                let mut recv = Blocks::new(vec![expected; 2]);
                let (from, to) = (many(&mut send), many(&mut recv));
                let operation = Operation::NeighbourAlltoall {
                    send: Many::Blocks(BlocksArg {
                        counts: &send.counts,
                        displacements: &send.displacements,
                        ..from
                    }),
                    recv: Many::Blocks(BlocksArg {
                        counts: &recv.counts,
                        displacements: &recv.displacements,
                        ..to
                    }),
                };
                let outcome = go(&graph, &operation, true);
                // The block of rank 1 for this rank.
                let own = [2, 1].iter().position(|by| (1 + by) % 3 == me);
                let is_told = own.is_some_and(|own| sent[own] != expected);
                assert_eq!(outcome.is_err(), is_told, "{outcome:?}");
                go(&graph, &Operation::Barrier, true).unwrap();
            };
            match me {
                1 => without_memory(body),
                _ => body(),
            }
        });
    }
}

#[test]
fn memory_of_long_places_grows_and_is_used_again() {
    on_all(2, |world| {
        let layout = Layout::of::<u32>();
        let mut taken = Vec::new();
        for _ in 0..3 {
            let (ring, rank) = (ring(world), world.rank());
            let boards = || {
                crate::state::of(&ring)
                    .direct
                    .boards
                    .get()
                    .unwrap()
                    .as_ref()
            };
            for len in [90_000, 120_000, 200_000, 230_000] {
                let mut send: Vec<u32> = (0..len).map(|at| item(rank, 0, 0, at)).collect();
                let mut recv = vec![0; 2 * len];
                let operation = Operation::NeighbourAllgather {
                    send: super::buf(&mut send, &layout),
                    recv: Many::Equal(TypedBuf {
                        count: len,
                        ..super::buf(&mut recv, &layout)
                    }),
                };
                for _ in 0..6 {
                    go(&ring, &operation, true).unwrap();
                }
                let right = |(at, got): (usize, &u32)| *got == item(1 - rank, 0, 0, at % len);
                assert!(recv.iter().enumerate().all(right), "{len}");
            }
            // The third of the four lengths fits in the memory that was taken for the second, which
            // has twice the room of the first.
            let own = boards().unwrap().long.own();
            assert_eq!(own.len(), 3);
            taken.push(own.iter().map(|region| region.ptr).collect::<Vec<_>>());
            drop(ring);
            world.barrier().unwrap();
        }
        taken.iter_mut().for_each(|regions| regions.sort());
        assert!(taken.iter().all(|regions| *regions == taken[0]));
    });
}
