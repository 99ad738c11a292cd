//! All-to-alls: a block of every rank's to every rank.

use super::{Algorithm, after, before};
use crate::levels;
use crate::problem::Alltoall;
use crate::schedule::{Base, Blocks, Builder, Span};

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Alltoall>] = &[
    Algorithm {
        name: "linear",
        summary: "every rank to every other, 32 peers at a time, each beginning with the next rank",
        fits: |_, _| true,
        build: |b, p| linear(b, p),
    },
    Algorithm {
        name: "pairwise",
        summary: "in round k ranks k apart (or that differ by k in bits) swap: one peer at a time",
        fits: |_, _| true,
        build: |b, p| pairwise(b, p),
    },
    Algorithm {
        name: "bruck",
        summary: "log P rounds of P / 2 blocks that find their way bit by bit: short blocks of one length",
        fits: |p, _| p.send.are_equal() && p.recv.are_equal(),
        build: |b, p| bruck(b, p),
    },
    Algorithm {
        name: "two-level",
        summary: "by one leader per node, one message between any two nodes: the shortest blocks of one length",
        fits: |p, ask| p.send.are_equal() && p.recv.are_equal() && leaders_have_room(p, ask.ranks),
        build: |b, p| levels::alltoall(b, p),
    },
];

/// Peers to which the linear algorithm talks at a time, so that requests and unexpected messages
/// stay bounded.
const PEERS: u32 = 32;

/// Whether all blocks of all ranks fit in memory, because a leader may hold them all at once.
fn leaders_have_room(p: &Alltoall, ranks: u32) -> bool {
    let all = p.recv.len().checked_mul(ranks as usize);
    all.is_some_and(|bytes| bytes <= isize::MAX as usize)
}

fn own_block(b: &mut Builder, p: &Alltoall) {
    let rank = b.rank();
    b.copy(p.send.of(rank), p.recv.of(rank));
}

pub(crate) fn linear(b: &mut Builder, p: &Alltoall) {
    let (rank, size) = (b.rank(), b.size());
    let mut first = 1;
    while first < size {
        let end = first.saturating_add(PEERS).min(size);
        for distance in first..end {
            let from = before(rank, distance, size);
            b.recv(from, p.recv.of(from));
        }
        for distance in first..end {
            let to = after(rank, distance, size);
            b.send(to, p.send.of(to));
        }
        if first == 1 {
            own_block(b, p);
        }
        b.wait();
        first = end;
    }
    if size == 1 {
        own_block(b, p);
    }
}

fn pairwise(b: &mut Builder, p: &Alltoall) {
    let (rank, size) = (b.rank(), b.size());
    own_block(b, p);
    for distance in 1..size {
        let (from, to) = if size.is_power_of_two() {
            (rank ^ distance, rank ^ distance)
        } else {
            (before(rank, distance, size), after(rank, distance, size))
        };
        b.recv(from, p.recv.of(from));
        b.send(to, p.send.of(to));
        b.wait();
    }
}

/// A block whose receiver is `d` after its sender lies in place `d` of every rank that holds it. It
/// moves on by every power of two that is set in `d`, from the lowest to the highest.
fn bruck(b: &mut Builder, p: &Alltoall) {
    let (rank, size) = (b.rank(), b.size());
    own_block(b, p);
    let each = p.recv.of(rank).len();
    if size == 1 || each == 0 {
        return;
    }
    let places = b.scratch(size as usize * each);
    let place = |first: u32, count: u32| places.items(first as usize * each, count as usize * each);
    rotate(b, &p.send, place);
    let half = parcel_blocks(size) as usize * each;
    let (outgoing, incoming) = (b.scratch(half), b.scratch(half));
    let mut bit = 1;
    while bit < size {
        let mut parcels = (0, 0);
        let (from, to) = (before(rank, bit, size), after(rank, bit, size));
        for run in runs(bit, size) {
            let data = place(run.start, run.end - run.start);
            b.copy(data, outgoing.items(parcels.0, data.len()));
            parcels.0 += data.len();
        }
        b.recv(from, incoming.items(0, parcels.0));
        b.send(to, outgoing.items(0, parcels.0));
        b.wait();
        for run in runs(bit, size) {
            let data = place(run.start, run.end - run.start);
            b.copy(incoming.items(parcels.1, data.len()), data);
            parcels.1 += data.len();
        }
        bit = bit.saturating_mul(2);
    }
    for distance in 1..size {
        let from = before(rank, distance, size);
        b.copy(place(distance, 1), p.recv.of(from));
    }
}

/// Copies the block for the rank `d` after this one to place `d`.
fn rotate(b: &mut Builder, blocks: &Blocks, place: impl Fn(u32, u32) -> Span) {
    let (rank, size) = (b.rank(), b.size());
    let runs = [(rank + 1, size, 1), (0, rank, size - rank)];
    for (first, end, to) in runs {
        if let Some(span) = blocks.range(first, end - first) {
            debug_assert_ne!(
                span.base,
                Base::Recv,
                "what is in place is put aside before"
            );
            b.copy(span, place(to, end - first));
        }
    }
}

/// The places in which a bit is set, as runs.
fn runs(bit: u32, size: u32) -> impl Iterator<Item = std::ops::Range<u32>> {
    let starts = (bit..size).step_by(2 * bit as usize);
    starts.map(move |start| start..start.saturating_add(bit).min(size))
}

/// The most blocks that move in one round.
fn parcel_blocks(size: u32) -> u32 {
    let bits = (0..32).map(|n| 1 << n).take_while(|&bit| bit < size);
    let blocks = bits.map(|bit| runs(bit, size).map(|run| run.end - run.start).sum::<u32>());
    blocks.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::algorithms::moved::{Shape, exchanged};
    use crate::algorithms::moving::{Form, LAYOUTS};
    use crate::simulate::{Random, SIZES};

    fn shape(form: Form, layout: usize, size: u32) -> Shape {
        Shape::new(form, layout, vec![0; size as usize])
    }

    #[test]
    fn every_block_finds_its_receiver_in_every_form() {
        let mut random = Random::new(9);
        for algorithm in ALL {
            for size in SIZES {
                for in_place in [false, true] {
                    for (units, layout) in [(0, 0), (1, 1), (3, 2), (2, 3), (2, 4), (3, 5)] {
                        let shape = shape(Form::Equal, layout, size);
                        exchanged(algorithm, in_place, &shape, |_, _| units, &mut random);
                    }
                    for layout in 0..LAYOUTS {
                        for form in [Form::Blocks, Form::Layouts] {
                            // In place, a rank sends each other rank as much as it receives from
                            // it.
                            let units = |from: u32, to: u32| {
                                let mixed = (from + to + 3 * from.abs_diff(to)) as usize;
                                let one_way = if in_place { 0 } else { from as usize };
                                [0, 1, 2, 7, 0, 3][(mixed + one_way) % 6]
                            };
                            let shape = shape(form, layout, size);
                            exchanged(algorithm, in_place, &shape, units, &mut random);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_leader_whose_blocks_would_not_fit_into_memory_is_not_asked() {
        let two_level = &ALL[3];
        let whole = |len| Blocks::Equal {
            whole: Span::bytes(Base::Recv, 0, len),
            ranks: 4,
        };
        for (len, fits) in [(1 << 60, true), (1 << 61, false), (1 << 62, false)] {
            let (send, recv) = (whole(len), whole(len));
            let ask = crate::algorithms::Ask {
                ranks: 4,
                bytes: len / 4,
                items: 0,
            };
            assert_eq!((two_level.fits)(&Alltoall { send, recv }, &ask), fits);
        }
    }

    #[test]
    fn rounds_and_messages_are_what_they_are_said_to_be() {
        let cost = |name: &str, size| {
            let algorithm = ALL
                .iter()
                .find(|known| known.name == name)
                .expect("it is known");
            let shape = shape(Form::Equal, 0, size);
            let all = exchanged(algorithm, false, &shape, |_, _| 1, &mut Random::new(10));
            let all = all.expect("it fits");
            let cost = |rank| (all.sent(rank), all.waits(rank));
            assert!(
                (0..size).all(|rank| cost(rank) == cost(0)),
                "{name} on {size}"
            );
            cost(0)
        };
        assert_eq!(cost("linear", 13), (12, 1));
        assert_eq!(cost("linear", 40), (39, 2));
        assert_eq!(cost("pairwise", 13), (12, 12));
        assert_eq!(cost("bruck", 13), (4, 4));
        assert_eq!(cost("bruck", 16), (4, 4));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_blocks(
            size in 1_u32..12,
            units in vec(0_usize..9, 12 * 12),
            layout in 0..LAYOUTS,
            in_place in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let mut random = Random::new(seed);
            let uneven = |from: u32, to: u32| {
                // In place, a rank sends each other rank as much as it receives from it.
                let pair = if in_place { (from.min(to), from.max(to)) } else { (from, to) };
                units[(12 * pair.0 + pair.1) as usize]
            };
            for algorithm in ALL {
                let equal = shape(Form::Equal, layout, size);
                exchanged(algorithm, in_place, &equal, |_, _| units[0], &mut random);
                for form in [Form::Blocks, Form::Layouts] {
                    let shape = shape(form, layout, size);
                    exchanged(algorithm, in_place, &shape, uneven, &mut random);
                }
            }
        }
    }
}
