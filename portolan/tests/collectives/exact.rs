//! Sums that have the same bits on any number of ranks, wherever these are.

use std::sync::Arc;

use portolan::coll::exact::Sum;
use portolan::coll::{Allreduce, Exscan, Reduce, ReduceScatterBlock, Scan};
use portolan::{Builder, Op, Result, World};

const SIZES: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const LEN: usize = 24;

/// Number `index` of 840, the same whatever the number of ranks. The numbers differ widely in size,
/// and have both signs.
fn number(index: u64, place: usize) -> f64 {
    let mixed = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (place as u64) << 17;
    let mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let exponent = 1023 - 60 + (mixed >> 53) % 120;
    f64::from_bits(mixed & (1 << 63 | ((1 << 52) - 1)) | exponent << 52)
}

/// The indices of the numbers that rank `rank` of `size` has.
fn share(rank: u32, size: u32) -> impl Iterator<Item = u64> {
    let each = 840 / u64::from(size);
    let first = u64::from(rank) * each;
    first..first + each
}

fn settings(direct: &str, check: &str) -> Builder {
    let builder = Builder::new().setting("REPRODUCIBLE", "on");
    builder
        .setting("COLL_DIRECT", direct)
        .setting("COLL_CHECK", check)
}

/// The world with its ranks in another order: unchanged, reversed, or even ones first.
fn placed(world: &World, how: u32) -> Result<portolan::Comm> {
    let (rank, n) = (i64::from(world.rank()), i64::from(world.size()));
    let key = match how {
        0 => rank,
        1 => n - rank,
        _ => rank % 2 * n + rank,
    };
    let comm = world.comm().split(0, key)?;
    Ok(comm.expect("everybody has a color"))
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_sum_of_all_slices_depends_on_the_numbers_alone() -> Result<()> {
    let mut all = Sum::new();
    (0..840).for_each(|index| all.add(number(index, 0)));
    let expected = all.value().to_bits();
    let in_order = (0..840).map(|index| number(index, 0)).sum::<f64>();
    assert_ne!(in_order.to_bits(), expected, "the numbers are too easy");
    for n in SIZES {
        let sums = portolan::try_threads(n, |world| {
            let mut sums = Vec::new();
            for how in 0..3 {
                let comm = placed(&world, how)?;
                let mine: Vec<_> = share(comm.rank(), n).map(|i| number(i, 0)).collect();
                sums.push(comm.exact_sum(&mine)?.to_bits());
            }
            Ok(sums)
        })?;
        assert!(
            sums.iter().flatten().all(|&sum| sum == expected),
            "{n} ranks"
        );
    }
    Ok(())
}

/// One number per rank and place. The first `n` of them are summed on `n` ranks, and on `n` and
/// more ranks, where the additional ones have zeros.
#[test]
fn the_reproducible_mode_gives_the_same_bits_on_1_to_8_ranks() -> Result<()> {
    for terms in [1, 3, 8] {
        let sum_of = |terms: u32, place| {
            let sum: Sum<f64> = (0..u64::from(terms)).map(|i| number(i, place)).collect();
            sum.value()
        };
        let expected: Vec<_> = (0..LEN).map(|place| sum_of(terms, place)).collect();
        let expected = Arc::new(bits(&expected));
        for n in SIZES.into_iter().filter(|&n| n >= terms) {
            for (direct, check) in [("on", "off"), ("off", "off"), ("off", "on")] {
                let expected = Arc::clone(&expected);
                settings(direct, check).try_threads(n, move |world| {
                    for how in 0..3 {
                        let comm = placed(&world, how)?;
                        in_every_reduction(&comm, terms, &expected)?;
                    }
                    Ok(())
                })?;
            }
        }
    }
    Ok(())
}

fn in_every_reduction(comm: &portolan::Comm, terms: u32, expected: &[u64]) -> Result<()> {
    let (me, n) = (comm.rank(), comm.size());
    let term = |place| {
        if me < terms {
            number(me.into(), place)
        } else {
            0.0
        }
    };
    let mine: Vec<_> = (0..LEN).map(term).collect();
    let root = terms % n;
    let mut all = vec![0.0; LEN];
    comm.run(Allreduce::new(&mine, &mut all, Op::SUM))?;
    assert_eq!(bits(&all), expected, "allreduce on {n} ranks");
    let owned = comm.start_owned(Allreduce::new(mine.clone(), vec![0.0; LEN], Op::SUM))?;
    assert_eq!(
        bits(&owned.wait()?.buf.1),
        expected,
        "iallreduce on {n} ranks"
    );
    all.fill(0.0);
    comm.run(Reduce::new(&mine, &mut all, Op::SUM, root))?;
    if me == root {
        assert_eq!(bits(&all), expected, "reduce on {n} ranks");
    }
    comm.run(Scan::new(&mine, &mut all, Op::SUM))?;
    if me + 1 >= terms {
        assert_eq!(bits(&all), expected, "scan on {n} ranks");
    }
    comm.run(Exscan::new(&mine, &mut all, Op::SUM))?;
    if me >= terms {
        assert_eq!(bits(&all), expected, "exscan on {n} ranks");
    }
    // Every rank gets a part: the places are repeated.
    let many: Vec<_> = (0..n as usize).flat_map(|_| &mine).copied().collect();
    comm.run(ReduceScatterBlock::new(&many, &mut all, Op::SUM))?;
    assert_eq!(bits(&all), expected, "reduce_scatter_block on {n} ranks");
    Ok(())
}

/// Without the mode these numbers do depend on the order; otherwise the test above would prove
/// nothing.
#[test]
fn without_the_mode_the_order_shows() {
    let places = 0..LEN;
    let differs = |place: usize| {
        let exact: Sum<f64> = (0..8).map(|i| number(i, place)).collect();
        let rounded: f64 = (0..8).map(|i| number(i, place)).sum();
        exact.value().to_bits() != rounded.to_bits()
    };
    assert!(places.filter(|&place| differs(place)).count() > 0);
}
