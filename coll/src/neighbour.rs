//! Neighbour collectives (MPI-4 section 8.6): messages along the edges of a topology.
//!
//! A rank knows its own edges only, so there is no algorithm to choose and nothing to agree on:
//! every message goes straight from a source to a destination, and all go at once.

use portolan_core::comm::{Neighbour, Neighbours};

use crate::algorithms::Ask;
use crate::args::Operation;
use crate::lower::{Lowered, Problem, blocks};
use crate::problem;
use crate::schedule::{Base, Builder, LANES, Lane, Span};

/// Lanes that the edges between two ranks share. The number is even, so that the two directions of
/// a dimension are never in the same lane. Messages in one lane match in the order of the
/// neighbours, which is the same on both sides.
pub(crate) const EDGE_LANES: u32 = LANES - 2;

/// Lowers a neighbour collective that has been validated.
///
/// # Panics
/// If the operation is not a neighbour collective.
pub(crate) fn lower(
    b: &mut Builder,
    neighbours: &Neighbours,
    operation: &Operation<'_>,
) -> Lowered {
    let Neighbours {
        sources,
        destinations,
    } = neighbours;
    let (sends, recv, from) = match operation {
        Operation::NeighbourAllgather { send, recv } => {
            let mine = b.span(Base::Send, 0, send.count, send.layout);
            (edges(destinations, |_| mine), recv, send.ptr)
        }
        Operation::NeighbourAlltoall { send, recv } => {
            let (parts, from) = blocks(b, Base::Send, send, destinations.len() as u32);
            (edges(destinations, |place| parts.of(place)), recv, from)
        }
        other => unreachable!("{} is not along edges", other.name()),
    };
    let (parts, to) = blocks(b, Base::Recv, recv, sources.len() as u32);
    let recvs = edges(sources, |place| parts.of(place));
    Lowered {
        problem: Problem::Neighbour(problem::Neighbour { sends, recvs }),
        ask: Ask {
            ranks: b.size(),
            bytes: 0,
            items: 0,
        },
        bases: [from, to],
    }
}

/// The lane of messages along edge number `edge` of those between two ranks.
#[inline]
pub(crate) fn lane_of(edge: u32) -> Lane {
    (edge % EDGE_LANES) as Lane
}

/// One message for every neighbour that exists.
fn edges(neighbours: &[Neighbour], data: impl Fn(u32) -> Span) -> Vec<(u32, Lane, Span)> {
    let edge = |(place, neighbour): (u32, &Neighbour)| {
        Some((neighbour.rank?, lane_of(neighbour.lane), data(place)))
    };
    (0..).zip(neighbours).filter_map(edge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::NEIGHBOUR;
    use crate::algorithms::moving::{Buffer, Form, LAYOUTS, Side, run_lowered};
    use crate::simulate::{Random, SIZES};

    /// The neighbours of each rank, from the edges of a graph in any order.
    fn graph(size: u32, edges: &[(u32, u32)], random: &mut Random) -> Vec<Neighbours> {
        let mut listed = |of: fn(&(u32, u32)) -> (u32, u32), rank: u32| {
            let own = edges.iter().map(of).filter(|&(whose, _)| whose == rank);
            let mut others: Vec<u32> = own.map(|(_, other)| other).collect();
            (1..others.len()).for_each(|last| others.swap(last, random.below(last + 1)));
            let before = |at: usize| others[..at].iter().filter(|&&o| o == others[at]).count();
            let neighbour = |at: usize| Neighbour {
                rank: Some(others[at]),
                lane: before(at) as u32,
            };
            (0..others.len()).map(neighbour).collect()
        };
        let of_rank = |rank| Neighbours {
            sources: listed(|&(from, to)| (to, from), rank),
            destinations: listed(|&(from, to)| (from, to), rank),
        };
        (0..size).map(of_rank).collect()
    }

    /// A line or a ring, as a grid of one dimension: the neighbours are below and above.
    fn line(size: u32, periodic: bool) -> Vec<Neighbours> {
        let of_rank = |rank: u32| {
            let moved = |by: u32| {
                let inside = periodic || (1..=size).contains(&(rank + by));
                inside.then(|| (rank + by + size - 1) % size)
            };
            let (below, above) = (moved(0), moved(2));
            let neighbour = |(rank, lane)| Neighbour { rank, lane };
            Neighbours {
                sources: [(below, 1), (above, 0)].map(neighbour).to_vec(),
                destinations: [(below, 0), (above, 1)].map(neighbour).to_vec(),
            }
        };
        (0..size).map(of_rank).collect()
    }

    /// The amount of data along an edge: different data, of different lengths, on each.
    fn units(from: u32, to: u32, lane: u32, all_alike: bool) -> usize {
        let mixed = if all_alike {
            from
        } else {
            from + 3 * to + lane
        };
        [2, 0, 1, 5][mixed as usize % 4]
    }

    /// Runs one collective on the neighbours of all ranks.
    fn check(all: &[Neighbours], alltoall: bool, random: &mut Random) {
        let message = |from: u32, to: u32, lane: u32| match alltoall {
            true => (from, to + 100 * lane, units(from, to, lane, false)),
            false => (from, 0, units(from, 0, 0, true)),
        };
        let side = |(rank, own): (u32, &Neighbours)| {
            let sent = |n: &Neighbour| message(rank, n.rank.unwrap_or(rank), n.lane);
            let mut sent: Vec<_> = own.destinations.iter().map(sent).collect();
            let received = |n: &Neighbour| message(n.rank.unwrap_or(rank), rank, n.lane);
            let received: Vec<_> = own.sources.iter().map(received).collect();
            let there = |place: &usize| own.sources[*place].rank.is_some();
            let expected = (0..received.len())
                .filter(there)
                .map(|place| (place, received[place]));
            let lengths = |of: &[(u32, u32, usize)]| of.iter().map(|m| m.2).collect::<Vec<_>>();
            let form = [Form::Layouts, Form::Blocks][usize::from(!alltoall)];
            let layout = random.below(LAYOUTS);
            let send = match alltoall {
                true => Buffer::new(form, &lengths(&sent), layout, random),
                false => {
                    sent = vec![message(rank, 0, 0)];
                    Buffer::one(sent[0].2, layout)
                }
            };
            Side {
                send: Some(send),
                recv: Some(Buffer::new(form, &lengths(&received), layout, random)),
                sent,
                kept: Vec::new(),
                expected: expected.collect(),
            }
        };
        let sides: Vec<_> = (0..).zip(all).map(side).collect();
        let lowering = |b: &mut Builder, side: &Side| {
            let recv = side.recv.as_ref().expect("it was made").many();
            let send = side.send.as_ref().expect("it was made");
            let operation = match alltoall {
                true => Operation::NeighbourAlltoall {
                    send: send.many(),
                    recv,
                },
                false => Operation::NeighbourAllgather {
                    send: send.typed(),
                    recv,
                },
            };
            let neighbours = &all[b.rank() as usize];
            lower(b, neighbours, &operation)
        };
        let problem = |problem| match problem {
            Problem::Neighbour(problem) => problem,
            other => panic!("{other:?}"),
        };
        let ran = run_lowered(&NEIGHBOUR[0], &sides, random.next(), lowering, problem);
        let ran = ran.expect("it fits everything");
        assert!((0..all.len() as u32).all(|rank| ran.waits(rank) <= 1));
    }

    #[test]
    fn messages_find_their_edges_in_any_graph() {
        let mut random = Random::new(12);
        for size in SIZES {
            for more in [0, 3, 40] {
                // Every rank has a neighbour. Edges may occur twice, and may lead to the rank
                // itself.
                let mut edges: Vec<_> = (0..size).map(|rank| (rank, (rank + 1) % size)).collect();
                for _ in 0..more {
                    let end = |random: &mut Random| random.below(size as usize) as u32;
                    edges.push((end(&mut random), end(&mut random)));
                }
                let all = graph(size, &edges, &mut random);
                check(&all, false, &mut random);
                check(&all, true, &mut random);
            }
        }
    }

    #[test]
    fn the_two_directions_of_a_short_ring_are_not_confused() {
        let mut random = Random::new(13);
        for size in SIZES {
            for periodic in [false, true] {
                check(&line(size, periodic), false, &mut random);
                check(&line(size, periodic), true, &mut random);
            }
        }
    }

    #[test]
    fn more_edges_than_lanes_between_two_ranks_keep_their_order() {
        let mut random = Random::new(14);
        let edges: Vec<_> = (0..150).map(|at| (at % 2, 1)).collect();
        let mut all = graph(2, &edges, &mut random);
        // Rank 0 needs a source.
        all[0].sources.push(Neighbour {
            rank: None,
            lane: 0,
        });
        check(&all, true, &mut random);
    }
}
