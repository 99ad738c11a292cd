//! Neighbour collectives on tracks: nonblocking and persistent operations with one length for all
//! blocks.

use portolan_core::comm::{Dimension, Edges};
use portolan_core::{Device, ErrorKind, Request, Result, TypedBuf};
use portolan_datatype::Layout;

use super::{World, buf, costs, on_all};
use crate::simulate::Random;
use crate::{BlocksArg, Many, Operation, Persistent, run, start};

/// Numbers of items of 4 bytes: none, in a cell, in a chunk, near the limits for one block and for
/// lists, and as messages.
const LENS: [usize; 9] = [0, 1, 7, 300, 2048, 4096, 8192, 16_385, 40_000];

/// An item that travels along an edge.
fn item(from: u32, to: u32, lane: u32, at: usize) -> u32 {
    from.wrapping_mul(7919) ^ to.wrapping_mul(104_729) ^ (lane << 20) ^ at as u32
}

/// The ranks at the other ends of edges, each with the number of the edge among those between the
/// two ranks.
fn numbered(ranks: &[u32]) -> Vec<(u32, u32)> {
    let before = |at: usize| ranks[..at].iter().filter(|&&r| r == ranks[at]).count();
    (0..ranks.len())
        .map(|at| (ranks[at], before(at) as u32))
        .collect()
}

/// The buffers of an allgather or alltoall along edges, with blocks of `len` items.
struct Case {
    alltoall: bool,
    len: usize,
    me: u32,
    sources: Vec<(u32, u32)>,
    send: Vec<u32>,
    recv: Vec<u32>,
}

impl Case {
    fn new(me: u32, sources: &[u32], destinations: &[u32], alltoall: bool, len: usize) -> Self {
        let sources = numbered(sources);
        let block = |(to, lane)| (0..len).map(move |at| item(me, to, lane, at));
        let send = match alltoall {
            true => numbered(destinations).into_iter().flat_map(block).collect(),
            false => block((0, 0)).collect(),
        };
        Self {
            alltoall,
            len,
            me,
            send,
            recv: vec![u32::MAX; sources.len() * len],
            sources,
        }
    }

    fn with<R>(&mut self, layout: &Layout, body: impl FnOnce(&Operation<'_>) -> R) -> R {
        let block = |data| TypedBuf {
            count: self.len,
            ..buf(data, layout)
        };
        let (send, recv) = (block(&mut self.send), Many::Equal(block(&mut self.recv)));
        body(&match self.alltoall {
            true => Operation::NeighbourAlltoall {
                send: Many::Equal(send),
                recv,
            },
            false => Operation::NeighbourAllgather { send, recv },
        })
    }

    fn check(&mut self) {
        for (edge, &(from, lane)) in self.sources.iter().enumerate() {
            for (at, got) in self.recv[edge * self.len..][..self.len]
                .iter_mut()
                .enumerate()
            {
                let sent = match self.alltoall {
                    true => item(from, self.me, lane, at),
                    false => item(from, 0, 0, at),
                };
                assert_eq!(std::mem::take(got), sent, "item {at} of edge {edge}");
            }
        }
    }
}

fn begin(comm: &World, case: &mut Case) -> Result<Request> {
    // SAFETY: the callers keep the case until their wait has ended.
    case.with(&Layout::of::<u32>(), |operation| unsafe {
        start(comm, operation)
    })
}

fn wait(comm: &World, request: Request) -> Result<()> {
    comm.device().wait(request).map(drop)
}

/// All lengths at once and then one by one, in nonblocking form and as persistent operations, each
/// of which is started twice.
fn all_forms(comm: &World, sources: &[u32], destinations: &[u32]) {
    let cases = || {
        let new = |len, alltoall| Case::new(comm.rank(), sources, destinations, alltoall, len);
        LENS.into_iter()
            .flat_map(move |len| [true, false].map(|alltoall| new(len, alltoall)))
    };
    let mut flight: Vec<Case> = cases().collect();
    let requests: Vec<_> = flight.iter_mut().map(|case| begin(comm, case)).collect();
    for (request, case) in requests.into_iter().zip(&mut flight) {
        wait(comm, request.unwrap()).unwrap();
        case.check();
    }
    for mut case in cases() {
        let request = begin(comm, &mut case).unwrap();
        wait(comm, request).unwrap();
        case.check();
    }
    for mut case in cases() {
        let plan = case.with(&Layout::of::<u32>(), |operation| {
            Persistent::new(comm, operation)
        });
        let mut plan = plan.unwrap();
        for _ in 0..2 {
            // SAFETY: the case is kept until the wait.
            wait(comm, unsafe { plan.start() }.unwrap()).unwrap();
            case.check();
        }
    }
}

fn graph(world: &World, sources: &[u32], destinations: &[u32]) -> World {
    let edges = |ranks: &[u32]| Edges::from(ranks.to_vec());
    let graph = world.dist_graph_create_adjacent(edges(sources), edges(destinations), false);
    let graph = graph.unwrap();
    // SAFETY: there is no buffer.
    unsafe { run(&graph, &Operation::Barrier) }.unwrap();
    graph
}

#[test]
fn any_length_goes_along_the_edges_of_any_graph() {
    for ranks in [1, 2, 3, 4, 8] {
        on_all(ranks, |world| {
            let mut random = Random::new(u64::from(ranks));
            for edges in [0, 1, 3, 6, 12, 30, 150] {
                // Edges may occur twice, and may lead to the rank itself; a rank may have none.
                let mut end = || random.below(ranks as usize) as u32;
                let all: Vec<(u32, u32)> = (0..edges).map(|_| (end(), end())).collect();
                let of = |mine: fn(&(u32, u32)) -> (u32, u32)| {
                    let own = all.iter().map(mine).filter(|&(own, _)| own == world.rank());
                    own.map(|(_, other)| other).collect::<Vec<_>>()
                };
                let (destinations, sources) = (of(|&edge| edge), of(|&(from, to)| (to, from)));
                all_forms(
                    &graph(world, &sources, &destinations),
                    &sources,
                    &destinations,
                );
            }
        });
    }
}

/// A ring of the ranks of a world, with boards. With two ranks, both neighbours are the same.
fn ring(world: &World) -> (World, [u32; 2]) {
    let dims = [Dimension::periodic(world.size())];
    let ring = world.cart_create(&dims, false).unwrap().unwrap();
    // SAFETY: there is no buffer.
    unsafe { run(&ring, &Operation::Barrier) }.unwrap();
    let around = [world.size() - 1, 1].map(|by| (ring.rank() + by) % ring.size());
    (ring, around)
}

#[test]
fn short_ones_are_one_signal_and_one_look_a_neighbour() {
    on_all(4, |world| {
        let (ring, around) = ring(world);
        for (alltoall, len) in [(true, 1), (false, 1), (true, 8192), (false, 16_384)] {
            let before = costs(&ring);
            // A ring of one dimension has its edges in the lanes of their directions.
            let mut case = Case::new(ring.rank(), &around, &around, alltoall, len);
            let request = begin(&ring, &mut case).unwrap();
            wait(&ring, request).unwrap();
            let after = costs(&ring);
            let more: Vec<_> = after.iter().zip(before).map(|(a, b)| a - b).collect();
            assert_eq!(more, [1, 2, 0], "{alltoall} {len}");
        }
        let mut long = Case::new(ring.rank(), &around, &around, false, 16_385);
        let request = begin(&ring, &mut long).unwrap();
        wait(&ring, request).unwrap();
        assert!(costs(&ring)[2] > 0);
    });
}

#[test]
fn lengths_that_differ_are_told_and_what_follows_works() {
    for ranks in [2, 3, 5] {
        on_all(ranks, |world| {
            let (ring, around) = ring(world);
            for (odd, usual) in LENS.iter().flat_map(|&odd| LENS.map(|usual| (odd, usual))) {
                if odd == usual {
                    continue;
                }
                let is_odd = ring.rank() == 1;
                for alltoall in [true, false] {
                    let len = if is_odd { odd } else { usual };
                    let mut case = Case::new(ring.rank(), &around, &around, alltoall, len);
                    let outcome = begin(&ring, &mut case).and_then(|request| wait(&ring, request));
                    let text = format!("{odd} beside {usual}, alltoall {alltoall}, {ranks} ranks");
                    if is_odd || around.contains(&1) {
                        let error = outcome.expect_err(&text);
                        let kinds = [ErrorKind::InvalidCount, ErrorKind::Truncated];
                        assert!(kinds.contains(&error.kind()), "{text}: {error}");
                    }
                }
                let mut case = Case::new(ring.rank(), &around, &around, false, 3);
                let request = begin(&ring, &mut case).unwrap();
                wait(&ring, request).unwrap();
                case.check();
            }
        });
    }
}

#[test]
fn who_does_something_else_is_told_and_nobody_hangs() {
    on_all(4, |world| {
        let (ring, around) = ring(world);
        for len in LENS {
            let mut case = Case::new(ring.rank(), &around, &around, true, len);
            let outcome = match ring.rank() {
                // SAFETY: there is no buffer.
                1 => unsafe { start(&ring, &Operation::Barrier) },
                _ => begin(&ring, &mut case),
            };
            let outcome = outcome.and_then(|request| wait(&ring, request));
            if ring.rank() == 1 || around.contains(&1) {
                let error = outcome.expect_err("rank 1 is not there");
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{len}: {error}");
                assert!(
                    error.to_string().contains("a neighbour alltoall"),
                    "{error}"
                );
            }
            // SAFETY: there is no buffer.
            unsafe { run(&ring, &Operation::Barrier) }.unwrap();
        }
    });
}

/// A rank whose own two ends of an edge differ gets an error in every form, as two ranks do.
#[test]
fn a_rank_that_does_not_agree_with_itself_is_told() {
    for ranks in [2, 3] {
        on_all(ranks, |world| {
            let (me, layout) = (world.rank(), Layout::of::<u32>());
            let next = (me + 1) % ranks;
            let before = (me + ranks - 1) % ranks;
            // Including the case in which the rank has no such edge from itself.
            for destinations in [vec![me, next], vec![next]] {
                let mut send = [7; 60_000];
                let mut recv = [0; 60_000];
                let lens = [0, 1, 300, 20_000];
                let differ = lens.into_iter().flat_map(|one| lens.map(|two| (one, two)));
                for ((sent, expected), turn) in differ.flat_map(|lens| [(lens, 0), (lens, 1)]) {
                    // A new communicator each time, because only the first persistent operations of
                    // each get tracks.
                    let comm = graph(world, &[me, before], &destinations);
                    let (alltoall, counts, given) = match turn {
                        0 => (
                            true,
                            [[sent, 1], [expected, 1]],
                            sent * (destinations.len() - 1),
                        ),
                        // The block goes to all destinations, and to the rank itself if that has a
                        // place for it.
                        _ => (false, [[sent, sent], [expected, sent]], sent),
                    };
                    let places = counts.map(|[first, _]| [0, first as isize]);
                    let blocks = |data: &mut [u32], at: usize, used: usize| {
                        Many::Blocks(BlocksArg {
                            ptr: data.as_mut_ptr().cast(),
                            counts: &counts[at][2 - used..],
                            displacements: &places[at][2 - used..],
                            layout: &layout,
                        })
                    };
                    let to = blocks(&mut recv, 1, 2);
                    let operation = match alltoall {
                        true => Operation::NeighbourAlltoall {
                            send: blocks(&mut send, 0, destinations.len()),
                            recv: to,
                        },
                        false => Operation::NeighbourAllgather {
                            send: buf(&mut send[..sent], &layout),
                            recv: to,
                        },
                    };
                    // SAFETY: the buffers outlive the calls and the waits.
                    let outcomes = unsafe {
                        [
                            run(&comm, &operation),
                            start(&comm, &operation).and_then(|request| wait(&comm, request)),
                            Persistent::new(&comm, &operation)
                                .and_then(|mut plan| wait(&comm, plan.start()?)),
                        ]
                    };
                    for outcome in outcomes {
                        let text =
                            format!("{given} for {expected} of {ranks}, alltoall {alltoall}");
                        if given == expected {
                            outcome.expect(&text);
                            continue;
                        }
                        let error = outcome.expect_err(&text);
                        let kind = match given > expected {
                            true => ErrorKind::Truncated,
                            false => ErrorKind::InvalidCount,
                        };
                        assert_eq!(error.kind(), kind, "{text}: {error}");
                    }
                }
            }
        });
    }
}
