//! Broadcasts.

use portolan_core::comm::Binomial;
use portolan_datatype::Layout;

use super::knomial::{self, Knomial};
use super::{Algorithm, after, before};
use crate::levels;
use crate::problem::Bcast;
use crate::schedule::{Builder, Span, part};

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Bcast>] = &[
    Algorithm {
        name: "binomial",
        summary: "along a binomial tree: log P rounds of the whole message, for short ones",
        fits: |_, _| true,
        build: |b, p| binomial(b, p),
    },
    Algorithm {
        name: knomial::NAME,
        summary: "along a tree of a radix, 4 unless the rule says radix=K: fewer rounds, more messages in each",
        fits: |_, _| true,
        build: |b, p| tree(b, p, b.radix()),
    },
    Algorithm {
        name: "linear",
        summary: "the root sends to every rank",
        fits: |_, _| true,
        build: |b, p| linear(b, p),
    },
    Algorithm {
        name: "scatter-allgather",
        summary: "a part to every rank down a binomial tree, then the parts around a ring: long ones",
        fits: |_, ask| ask.bytes >= ask.ranks as usize,
        build: |b, p| in_stream(b, p, scatter_allgather),
    },
    Algorithm {
        name: "chain",
        summary: "in segments from rank to rank, all links busy at once: the longest ones",
        fits: |_, _| true,
        build: |b, p| in_stream(b, p, chain),
    },
    Algorithm {
        name: "two-level",
        summary: "along a tree of one leader per node, then along a tree on each node: short ones",
        fits: |_, _| true,
        build: |b, p| levels::bcast(b, p),
    },
    Algorithm {
        name: "node-chain",
        summary: "a chain through one node after the other: the longest ones",
        fits: |_, _| true,
        build: |b, p| in_stream(b, p, levels::bcast_chain),
    },
];

pub(crate) fn binomial(b: &mut Builder, p: &Bcast) {
    tree(b, p, 2);
}

fn tree(b: &mut Builder, p: &Bcast, radix: u32) {
    let tree = Knomial::new(b.rank(), b.size(), p.root, radix);
    if let Some(parent) = tree.parent() {
        b.recv(parent, p.data);
        b.wait();
    }
    tree.children().for_each(|child| b.send(child, p.data));
    b.wait();
}

fn linear(b: &mut Builder, p: &Bcast) {
    if b.rank() == p.root {
        let others = (0..b.size()).filter(|&rank| rank != p.root);
        others.for_each(|rank| b.send(rank, p.data));
    } else {
        b.recv(p.root, p.data);
    }
    b.wait();
}

/// Writes an algorithm that sends the data in parts. Ranks may describe one stream of data by
/// different layouts (MPI-4 section 6.4: only the type signatures have to be equal). So parts are
/// cut between the primitives of the stream, not between items. Bytes match every primitive, so the
/// algorithm cuts at multiples of [`CUT`]. A layout with gaps is packed at the root, and unpacked
/// elsewhere.
fn in_stream(b: &mut Builder, p: &Bcast, write: impl FnOnce(&mut Builder, &Bcast)) {
    let layout = b.layout_of(p.data).clone();
    let flat = layout.is_contiguous();
    let bytes = if flat {
        Span {
            offset: p.data.offset,
            ..Span::bytes(p.data.base, 0, p.data.len())
        }
    } else {
        b.scratch(p.data.len())
    };
    let data = match layout.homogeneous().map(Layout::primitive) {
        Some(unit) if !layout.is_opaque() => {
            b.span(bytes.base, bytes.offset, bytes.len() / unit.size(), &unit)
        }
        _ => bytes,
    };
    if !flat && b.rank() == p.root {
        b.copy(p.data, data);
    }
    write(b, &Bcast { data, ..*p });
    if !flat && b.rank() != p.root {
        b.wait();
        b.copy(data, p.data);
    }
}

/// Every part begins at a multiple of this many bytes. The size of every primitive divides it.
const CUT: usize = 16;

/// Bytes `range` of the data, which begin and end at a [`CUT`] or at the end of the data.
fn cut(data: Span, range: std::ops::Range<usize>) -> Span {
    let size = data.size.max(1);
    debug_assert!(range.start.is_multiple_of(size) && range.len().is_multiple_of(size));
    data.items(range.start / size, range.len() / size)
}

/// Segment number `index` of the data, of about `bytes` bytes; `None` after the last.
fn segment(data: Span, bytes: usize, index: usize) -> Option<Span> {
    let each = (bytes / data.size.max(1)).max(1);
    let first = index
        .checked_mul(each)
        .filter(|&first| first < data.count)?;
    Some(data.items(first, each.min(data.count - first)))
}

pub(crate) fn chain(b: &mut Builder, p: &Bcast) {
    let (size, root) = (b.size(), p.root);
    let place = before(b.rank(), root, size);
    let previous = (place > 0).then(|| before(b.rank(), 1, size));
    let next = (place + 1 < size).then(|| after(b.rank(), 1, size));
    let bytes = b.segment_of(p.data.len());
    // A rank forwards one segment while it receives the next.
    let mut ready = None;
    for index in 0.. {
        let segment = segment(p.data, bytes, index);
        if let (Some(next), Some(ready)) = (next, ready) {
            b.send(next, ready);
        }
        if let (Some(previous), Some(segment)) = (previous, segment) {
            b.recv(previous, segment);
        }
        b.wait();
        ready = segment;
        if ready.is_none() {
            break;
        }
    }
}

/// Parts are numbered by place after the root, like the places in the tree of the scatter.
fn scatter_allgather(b: &mut Builder, p: &Bcast) {
    let (size, root) = (b.size(), p.root);
    let place = before(b.rank(), root, size);
    let bytes = p.data.len();
    let range = |place: u32| {
        let range = part(bytes.div_ceil(CUT), place as usize, size as usize);
        range.start.saturating_mul(CUT).min(bytes)..range.end.saturating_mul(CUT).min(bytes)
    };
    let parts =
        |first: u32, end: u32| cut(p.data, range(first).start..range(end.min(size) - 1).end);
    // Down the tree, each rank gets the parts of all ranks below it.
    let tree = Binomial::new(b.rank(), size, root);
    let below = |place: u32| {
        if place == 0 {
            size
        } else {
            1 << place.trailing_zeros()
        }
    };
    if let Some(parent) = tree.parent() {
        b.recv(parent, parts(place, place.saturating_add(below(place))));
        b.wait();
    }
    for child in tree.children() {
        let place = before(child, root, size);
        b.send(child, parts(place, place.saturating_add(below(place))));
    }
    b.wait();
    // Around the ring, each rank forwards the part that it received last. A part that it received
    // down the tree is only sent if the neighbour does not have it.
    let (left, right) = (before(b.rank(), 1, size), after(b.rank(), 1, size));
    let end = |place: u32| place.saturating_add(below(place)).min(size);
    for round in 0..size - 1 {
        let (mine, theirs) = (before(place, round, size), before(place, round + 1, size));
        let (next, own) = (after(place, 1, size), place);
        let has = |place: u32, part: u32| (place..end(place)).contains(&part);
        if !has(own, theirs) {
            b.recv(left, cut(p.data, range(theirs)));
        }
        if !has(next, mine) {
            b.send(right, cut(p.data, range(mine)));
        }
        b.wait();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithms::moved::{Shape, broadcast};
    use crate::algorithms::moving::{Form, LAYOUTS};
    use crate::schedule::Base;
    use crate::simulate::{Random, SIZES, Simulation, layouts};

    #[test]
    fn everybody_gets_what_the_root_has() {
        for algorithm in ALL {
            for size in SIZES {
                for (number, (layout, count)) in (0..).zip(layouts()) {
                    let root = number % size;
                    let mut run = Simulation::new(size, 11 + u64::from(size));
                    let data = run.fill(Base::Recv, &layout, count);
                    let fits = run.schedule_fitting(algorithm, count, &layout, |b| Bcast {
                        data: b.span(Base::Recv, data, count, &layout),
                        root,
                    });
                    if fits {
                        let expected = run.packed(root, Base::Recv, &layout, count);
                        run.run(algorithm.name);
                        for rank in 0..size {
                            let got = run.packed(rank, Base::Recv, &layout, count);
                            assert_eq!(got, expected, "{} {size} {count}", algorithm.name);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_rank_may_be_the_root() {
        let mut random = Random::new(10);
        for algorithm in ALL {
            for size in 1..=8 {
                for root in 0..size {
                    for layout in 0..LAYOUTS {
                        let shape = Shape::new(Form::Equal, layout, vec![5; size as usize]);
                        let ran = broadcast(algorithm, root, &shape, &mut random);
                        assert!(ran.is_some(), "{} does not fit", algorithm.name);
                    }
                }
            }
        }
    }

    #[test]
    fn ranks_may_give_the_data_by_different_layouts() {
        let int = Layout::of::<u32>();
        let column = Layout::vector(3, 1, 4, &int).expect("a legal vector");
        let mixed = Layout::structure(&[1, 1], &[0, 4], &[int.clone(), Layout::of::<u64>()]);
        let mixed = mixed.expect("a legal structure");
        let woven = Layout::contiguous(5, &mixed).expect("a legal layout");
        let pairs = [(&int, &column), (&column, &int), (&mixed, &woven)];
        for ((one, other), unattended) in pairs.into_iter().flat_map(|p| [(p, false), (p, true)]) {
            for algorithm in ALL {
                for size in [1, 2, 5, 8] {
                    let bytes = 60_000 * 12;
                    let of = |rank: u32| if rank.is_multiple_of(2) { one } else { other };
                    let mut run = Simulation::new(size, 5);
                    for rank in 0..size {
                        let reach = of(rank).span(bytes / of(rank).size()).expect("small");
                        let memory =
                            (0..reach.end as usize).map(|at| (at * 7 + rank as usize) as u8);
                        run.set_memory(rank, Base::Recv, memory.collect(), 0);
                    }
                    let fits = run.schedule_fitting(algorithm, bytes, &Layout::byte(), |b| {
                        let layout = of(b.rank());
                        if unattended {
                            b.leave_unattended();
                        }
                        Bcast {
                            data: b.span(Base::Recv, 0, bytes / layout.size(), layout),
                            root: size - 1,
                        }
                    });
                    assert!(fits, "{} does not fit", algorithm.name);
                    let packed = |run: &Simulation, rank: u32| {
                        run.packed(rank, Base::Recv, of(rank), bytes / of(rank).size())
                    };
                    let expected = packed(&run, size - 1);
                    run.run(algorithm.name);
                    for rank in 0..size {
                        assert!(packed(&run, rank) == expected, "{} {size}", algorithm.name);
                    }
                }
            }
        }
    }

    /// Bytes match every type, so a rank may give as bytes what others give as longer primitives.
    #[test]
    fn ranks_may_give_the_data_as_bytes() {
        let doubles = Layout::of::<f64>();
        let triples = Layout::contiguous(3, &doubles).expect("a legal layout");
        for algorithm in ALL {
            for (size, count) in [(2, 3usize), (3, 3), (4, 50), (5, 1000), (8, 70_001)] {
                for typed in 0..size {
                    let bytes = count * 8;
                    let of = |rank: u32| match rank == typed {
                        true if count.is_multiple_of(3) => (count / 3, triples.clone()),
                        true => (count, doubles.clone()),
                        false => (bytes, Layout::byte()),
                    };
                    let mut run = Simulation::new(size, 3);
                    for rank in 0..size {
                        let memory = (0..bytes).map(|at| (at * 7 + rank as usize) as u8);
                        run.set_memory(rank, Base::Recv, memory.collect(), 0);
                    }
                    let fits = run.schedule_fitting(algorithm, bytes, &Layout::byte(), |b| {
                        let (count, layout) = of(b.rank());
                        Bcast {
                            data: b.span(Base::Recv, 0, count, &layout),
                            root: 1,
                        }
                    });
                    assert!(fits, "{} does not fit", algorithm.name);
                    let expected = run.packed(1, Base::Recv, &Layout::byte(), bytes);
                    run.run(algorithm.name);
                    for rank in 0..size {
                        let got = run.packed(rank, Base::Recv, &Layout::byte(), bytes);
                        assert!(got == expected, "{} {size} {count}", algorithm.name);
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_data_from_any_root(
            // The longest take two segments.
            units in prop_oneof![7 => 0_usize..60, 1 => 2_700_usize..3_000],
            size in 1_usize..20,
            root in any::<prop::sample::Index>(),
            layout in 0..LAYOUTS,
            seed in any::<u64>(),
        ) {
            let mut random = Random::new(seed);
            let shape = Shape::new(Form::Equal, layout, vec![units; size]);
            for algorithm in ALL {
                broadcast(algorithm, root.index(size) as u32, &shape, &mut random);
            }
        }
    }
}
