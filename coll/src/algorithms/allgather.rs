//! Allgathers: every rank's block to every rank.

use super::around::{pack, recv_around, send_around, unpack, whole};
use super::{Algorithm, after, before};
use crate::levels;
use crate::problem::Allgather;
use crate::schedule::Builder;

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Allgather>] = &[
    Algorithm {
        name: "ring",
        summary: "each rank hands on to the next what came last: P - 1 rounds, each between neighbours",
        fits: |_, _| true,
        build: |b, p| ring(b, p),
    },
    Algorithm {
        name: "linear",
        summary: "every rank sends to every other at once: one round of P - 1 messages",
        fits: |_, _| true,
        build: |b, p| linear(b, p),
    },
    Algorithm {
        name: "bruck",
        summary: "in round k 2^k blocks come from the rank 2^k after: log P rounds, for short blocks",
        fits: |_, _| true,
        build: |b, p| bruck(b, p),
    },
    Algorithm {
        name: "recursive-doubling",
        summary: "in round k ranks 2^k apart swap what they have: log P rounds, for powers of two",
        fits: |_, ask| ask.ranks.is_power_of_two(),
        build: |b, p| recursive_doubling(b, p),
    },
    Algorithm {
        name: "neighbour-exchange",
        summary: "swaps pairs of blocks with both neighbours in turn: P / 2 rounds, for an even number",
        fits: |_, ask| ask.ranks.is_multiple_of(2),
        build: |b, p| neighbour_exchange(b, p),
    },
    Algorithm {
        name: "two-level",
        summary: "each node to one leader, the leaders with each other, everything back to each node: short ones",
        fits: |_, _| true,
        build: |b, p| levels::allgather(b, p),
    },
    Algorithm {
        name: "node-ring",
        summary: "a ring through one node after the other: long blocks",
        fits: |_, _| true,
        build: |b, p| levels::allgather_ring(b, p),
    },
];

/// Bytes of all blocks up to which few rounds are better than the shortest ways.
const SHORT: usize = 64 << 10;

/// Few rounds for short blocks; for longer ones, messages only between neighbours.
pub(crate) fn by_length(b: &mut Builder, p: &Allgather) {
    if p.blocks.len() <= SHORT {
        bruck(b, p);
    } else {
        ring(b, p);
    }
}

pub(crate) fn ring(b: &mut Builder, p: &Allgather) {
    let (rank, size) = (b.rank(), b.size());
    let (left, right) = (before(rank, 1, size), after(rank, 1, size));
    b.copy(p.mine, p.blocks.of(rank));
    for round in 0..size - 1 {
        b.recv(left, p.blocks.of(before(rank, round + 1, size)));
        b.send(right, p.blocks.of(before(rank, round, size)));
        b.wait();
    }
}

fn linear(b: &mut Builder, p: &Allgather) {
    let (rank, size) = (b.rank(), b.size());
    for distance in 1..size {
        let from = before(rank, distance, size);
        b.recv(from, p.blocks.of(from));
    }
    (1..size).for_each(|distance| b.send(after(rank, distance, size), p.mine));
    b.copy(p.mine, p.blocks.of(rank));
    b.wait();
}

/// Blocks arrive in their places, so nothing is rotated at the end.
pub(crate) fn bruck(b: &mut Builder, p: &Allgather) {
    let (rank, size) = (b.rank(), b.size());
    b.copy(p.mine, p.blocks.of(rank));
    let mut distance = 1;
    while distance < size {
        let count = distance.min(size - distance);
        let (from, to) = (after(rank, distance, size), before(rank, distance, size));
        let incoming = recv_around(b, from, &p.blocks, from, count);
        send_around(b, to, &p.blocks, rank, count);
        b.wait();
        incoming.unpack(b, &p.blocks);
        distance = distance.saturating_mul(2);
    }
}

fn recursive_doubling(b: &mut Builder, p: &Allgather) {
    let (rank, size) = (b.rank(), b.size());
    b.copy(p.mine, p.blocks.of(rank));
    let mut count = 1;
    while count < size {
        let partner = rank ^ count;
        let first_of = |rank: u32| rank & !(count - 1);
        let incoming = recv_around(b, partner, &p.blocks, first_of(partner), count);
        send_around(b, partner, &p.blocks, first_of(rank), count);
        b.wait();
        incoming.unpack(b, &p.blocks);
        count *= 2;
    }
}

/// Ranks 2q and 2q + 1 are pair q. First they swap their blocks. From then on each rank receives
/// two blocks per round, alternately from its neighbour in another pair and from its partner: the
/// two blocks that the sender received last.
fn neighbour_exchange(b: &mut Builder, p: &Allgather) {
    let (rank, size) = (b.rank(), b.size());
    let (pair, pairs) = (rank / 2, size / 2);
    let even = rank.is_multiple_of(2);
    let inner = rank ^ 1;
    let outer = if even {
        before(rank, 1, size)
    } else {
        after(rank, 1, size)
    };
    b.copy(p.mine, p.blocks.of(rank));
    b.recv(inner, p.blocks.of(inner));
    b.send(inner, p.blocks.of(rank));
    b.wait();
    // Both blocks of a pair are one message, wherever each rank has them, so that ranks that list
    // their blocks one by one understand ranks that do not. Blocks that do not lie side by side
    // travel in scratch memory. Two pieces are enough, because what arrived last is what leaves
    // next.
    let of_pair = |pair: u32| whole(&p.blocks, 2 * pair, 2);
    let longest = (0..pairs).filter_map(|pair| of_pair(pair).err()).max();
    let parcels = [0; 2].map(|_| b.scratch(longest.unwrap_or(0)));
    let place = |pair: u32, round: u32| match of_pair(pair) {
        Ok(span) => (span, false),
        Err(len) => (parcels[round as usize % 2].items(0, len), true),
    };
    let (mut leaving, packed) = place(pair, 0);
    if packed && pairs > 1 {
        pack(b, &p.blocks, 2 * pair, 2, leaving);
    }
    for round in 1..pairs {
        let distance = round.div_ceil(2);
        let outwards = round % 2 == 1;
        let partner = if outwards { outer } else { inner };
        let next = if outwards == even {
            before(pair, distance, pairs)
        } else {
            after(pair, distance, pairs)
        };
        let (coming, packed) = place(next, round);
        b.recv(partner, coming);
        b.send(partner, leaving);
        b.wait();
        if packed {
            unpack(b, &p.blocks, 2 * next, 2, coming);
        }
        leaving = coming;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::algorithms::moved::{Shape, allgathered, shapes};
    use crate::algorithms::moving::{Form, LAYOUTS};
    use crate::simulate::{Random, SIZES};

    #[test]
    fn everybody_gets_every_block_in_every_form() {
        let mut random = Random::new(7);
        for algorithm in ALL {
            for size in SIZES {
                for shape in shapes(size, &mut random) {
                    for in_place in [false, true] {
                        allgathered(algorithm, in_place, &shape, &mut random);
                    }
                }
            }
        }
    }

    #[test]
    fn ranks_may_give_their_blocks_in_different_forms() {
        let mut random = Random::new(9);
        for algorithm in ALL {
            for size in SIZES {
                for units in [0, 1, 5] {
                    let mut shape = Shape::new(Form::Equal, 1, vec![units; size as usize]);
                    shape.mixed = true;
                    allgathered(algorithm, units == 5, &shape, &mut random);
                }
            }
        }
    }

    /// Messages and waits of each rank.
    fn cost(name: &str, size: usize) -> Option<(usize, usize)> {
        let algorithm = ALL
            .iter()
            .find(|known| known.name == name)
            .expect("it is known");
        let shape = Shape::new(Form::Equal, 1, vec![2; size]);
        let all = allgathered(algorithm, false, &shape, &mut Random::new(8))?;
        let cost = |rank| (all.sent(rank), all.waits(rank));
        assert!(
            (0..size as u32).all(|rank| cost(rank) == cost(0)),
            "{name} on {size}"
        );
        Some(cost(0))
    }

    #[test]
    fn rounds_and_messages_are_what_they_are_said_to_be() {
        assert_eq!(cost("ring", 13), Some((12, 12)));
        assert_eq!(cost("linear", 13), Some((12, 1)));
        assert_eq!(cost("bruck", 13), Some((4, 4)));
        assert_eq!(cost("bruck", 16), Some((4, 4)));
        assert_eq!(cost("recursive-doubling", 16), Some((4, 4)));
        assert_eq!(cost("recursive-doubling", 12), None);
        assert_eq!(cost("neighbour-exchange", 16), Some((8, 8)));
        assert_eq!(cost("neighbour-exchange", 13), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_blocks(
            units in vec(0_usize..9, 1..20),
            layout in 0..LAYOUTS,
            in_place in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let mut random = Random::new(seed);
            let even = vec![units[0]; units.len()];
            for (form, units) in [(Form::Equal, even), (Form::Blocks, units)] {
                let shape = Shape::new(form, layout, units);
                for algorithm in ALL {
                    allgathered(algorithm, in_place, &shape, &mut random);
                }
            }
        }
    }
}
