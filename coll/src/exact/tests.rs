//! Sums against arithmetic with big integers, and reductions of all ranks against each other.

use portolan_datatype::{Complex, Datatype, Layout, Op};
use proptest::prelude::*;

use super::*;
use crate::algorithms::{Ask, names};
use crate::args::Name;
use crate::lower::Problem;
use crate::problem::{Allreduce, Reduce, ReduceScatter, Scan};
use crate::schedule::{Base, Blocks, Builder, part};
use crate::select::{Rule, Table};
use crate::simulate::{Random, Simulation};

/// Numbers that ordinary sums of any order get wrong.
fn nasty(random: &mut Random) -> f64 {
    const SOME: [f64; 12] = [
        1e300,
        -1e300,
        1e-300,
        -1e-300,
        5e-324,
        -5e-324,
        2.2e-308,
        1.0,
        -1.0,
        1e16,
        f64::MAX,
        -0.0,
    ];
    match random.below(4) {
        0 => SOME[random.below(SOME.len())],
        1 => (random.next() as i64 as f64) * 1e-19,
        2 => f64::from_bits(random.next() & !(1 << 62)),
        _ => -f64::from_bits(random.next() & !(1 << 62)),
    }
}

/// The value of a multiple of 2^-1074 by another way: digits one by one, from the top.
fn slow_value(sum: &[i128; 40], negative: bool) -> f64 {
    // Words of 60 bits, normalised and not negative.
    let bit = |at: usize| at / 60 < 40 && sum[at / 60] >> (at % 60) & 1 == 1;
    let Some(top) = (0..2400).rev().find(|&at| bit(at)) else {
        return 0.0;
    };
    let lowest = top.saturating_sub(52);
    let mut digits: u64 = (lowest..=top).fold(0, |d, at| d | u64::from(bit(at)) << (at - lowest));
    if lowest > 0 {
        let half = bit(lowest - 1);
        let below = (0..lowest - 1).any(bit);
        digits += u64::from(half && (below || digits & 1 == 1));
    }
    // Scaled in steps that are exact.
    let mut value = digits as f64;
    let mut exponent = lowest as i32 - 1074;
    while exponent < 0 {
        let step = exponent.max(-1000);
        // Subnormal results have no digits to lose: they are multiples of the smallest number.
        value *= 2f64.powi(step);
        exponent -= step;
    }
    while exponent > 0 {
        let step = exponent.min(1000);
        value *= 2f64.powi(step);
        exponent -= step;
    }
    if negative { -value } else { value }
}

fn slow_sum(numbers: &[f64]) -> f64 {
    let mut sum = [0i128; 40];
    for x in numbers {
        let bits = x.to_bits();
        let exponent = bits >> 52 & 0x7ff;
        let digits = (bits & ((1 << 52) - 1)) | u64::from(exponent > 0) << 52;
        let shift = exponent.max(1) as usize - 1;
        let sign = if x.is_sign_negative() { -1 } else { 1 };
        let wide = u128::from(digits) << (shift % 60);
        sum[shift / 60] += sign * (wide & ((1 << 60) - 1)) as i128;
        sum[shift / 60 + 1] += sign * (wide >> 60) as i128;
    }
    let carry = |sum: &mut [i128; 40]| {
        let mut carry = 0;
        for word in sum {
            *word += carry;
            carry = word.div_euclid(1 << 60);
            *word = word.rem_euclid(1 << 60);
        }
        carry
    };
    let negative = carry(&mut sum) < 0;
    if negative {
        // The digits are those of 2^2400 more than the sum.
        sum.iter_mut().for_each(|word| *word = -*word);
        carry(&mut sum);
    }
    slow_value(&sum, negative)
}

#[test]
fn sums_are_rounded_once_and_to_nearest() {
    let value = |numbers: &[f64]| numbers.iter().copied().collect::<Sum<f64>>().value();
    assert_eq!(value(&[1e300, 1e-300, -1e300]), 1e-300);
    assert_eq!(value(&[1.0, f64::EPSILON / 2.0]), 1.0, "a tie goes to even");
    assert_eq!(
        value(&[1.0 + f64::EPSILON, f64::EPSILON / 2.0]),
        1.0 + 2.0 * f64::EPSILON
    );
    assert_eq!(
        value(&[1.0, f64::EPSILON / 2.0, 5e-324]),
        1.0 + f64::EPSILON
    );
    assert_eq!(value(&[5e-324, 5e-324]), 1e-323);
    assert_eq!(
        value(&[f64::MIN_POSITIVE, -5e-324]),
        f64::MIN_POSITIVE - 5e-324
    );
    assert_eq!(value(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    assert_eq!(value(&[f64::MAX, f64::MAX]), f64::INFINITY);
    let ulp = 2f64.powi(971);
    assert_eq!(
        value(&[f64::MAX, ulp / 2.0]),
        f64::INFINITY,
        "half way is even above"
    );
    assert_eq!(value(&[f64::MAX, ulp / 2.0, -5e-324]), f64::MAX);
    assert_eq!(value(&[-f64::MAX, -ulp]), f64::NEG_INFINITY);
    let single = |numbers: &[f32]| numbers.iter().copied().collect::<Sum<f32>>().value();
    assert_eq!(single(&[1e30, 1e-30, -1e30]), 1e-30);
    assert_eq!(single(&[f32::MAX, f32::MAX]), f32::INFINITY);
    assert_eq!(
        single(&[1.0, f32::EPSILON / 2.0, 1e-45]),
        1.0 + f32::EPSILON
    );
    assert_eq!(single(&[-1e-45, -1e-45]), -3e-45);
}

#[test]
fn infinities_nan_and_zeros_are_those_of_the_standard() {
    let value = |numbers: &[f64]| numbers.iter().copied().collect::<Sum<f64>>().value();
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    assert_eq!(value(&[1.0, inf, -1e300]), inf);
    assert_eq!(value(&[-inf, -inf]), -inf);
    assert!(value(&[inf, -inf]).is_nan());
    assert!(value(&[1.0, -nan]).is_nan());
    assert_eq!(
        value(&[inf, -nan]).to_bits(),
        f64::NAN.to_bits(),
        "always the same one"
    );
    let sign = |numbers: &[f64]| value(numbers).is_sign_negative();
    assert!(sign(&[-0.0, -0.0]) && !sign(&[-0.0, 0.0]) && !sign(&[1.0, -1.0, -0.0]));
    assert!(!sign(&[]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_sum_is_what_big_integers_give_in_any_order_and_grouping(
        seed in any::<u64>(), count in 0usize..60, groups in 1usize..9,
    ) {
        let mut random = Random::new(seed);
        let numbers: Vec<f64> = (0..count).map(|_| nasty(&mut random)).collect();
        let mut one_by_one = Sum::new();
        numbers.iter().rev().for_each(|&x| one_by_one.add(x));
        let mut merged = Sum::new();
        for group in 0..groups {
            let mut some = Sum::new();
            some.add_slice(&numbers[part(count, group, groups)]);
            merged.merge(&some);
        }
        prop_assert!(one_by_one == merged);
        let mut all = Sum::new();
        all.add_slice(&numbers);
        prop_assert!(all == merged);
        prop_assert_eq!(all.value(), slow_sum(&numbers));
    }

    #[test]
    fn one_number_comes_back_as_it_was(bits in any::<u64>()) {
        let double = f64::from_bits(bits);
        let mut sum = Sum::new();
        sum.add(double);
        prop_assert!(double.is_nan() || sum.value().to_bits() == bits);
        let single = f32::from_bits(bits as u32);
        let mut sum = Sum::new();
        sum.add(single);
        prop_assert!(single.is_nan() || sum.value().to_bits() == bits as u32);
    }

    #[test]
    fn short_sums_of_singles_are_those_of_doubles(mantissas in prop::collection::vec(any::<i16>(), 0..100)) {
        // Exact in doubles, so rounded once by the conversion.
        let numbers: Vec<f32> = mantissas.iter().map(|&m| f32::from(m) * 1.5e-5).collect();
        let mut sum = Sum::new();
        sum.add_slice(&numbers);
        let double: f64 = numbers.iter().map(|&x| f64::from(x)).sum();
        prop_assert_eq!(sum.value(), double as f32);
    }
}

#[test]
fn many_numbers_of_one_sign_carry() {
    let numbers = vec![f64::from_bits(0x3fff_ffff_ffff_ffff); 100_000];
    let mut sum = Sum::new();
    sum.add_slice(&numbers);
    sum.add_slice(&numbers.iter().map(|x| -x).collect::<Vec<_>>());
    assert_eq!(sum.value(), 0.0);
    sum.add_slice(&numbers);
    // (2 - 2^-52) * 100,000, of which 17 bits more than a double has are rounded away.
    assert_eq!(sum.value(), 200_000.0 - 2.9e-11);
}

/// A table that chooses one algorithm for everything.
fn only(name: Name, algorithm: &str) -> Table {
    Table::with(vec![Rule {
        operation: name,
        ranks: u32::MAX,
        bytes: usize::MAX,
        levels: false,
        algorithm: algorithm.to_owned(),
    }])
}

/// Runs a reduction in the reproducible mode and returns what is in the receive buffer of each rank.
fn reduced<T: Datatype>(
    inputs: &[Vec<T>],
    name: Name,
    algorithm: &str,
    op: &Op,
    problem: impl Fn(&mut Builder, &Layout, usize) -> Problem,
) -> Vec<Vec<u8>> {
    let (size, count) = (inputs.len() as u32, inputs[0].len());
    let layout = Layout::of::<T>();
    let mut run = Simulation::new(size, 21);
    let len = count * layout.size();
    for (rank, input) in (0..).zip(inputs) {
        // SAFETY: the data of a slice of plain numbers.
        let bytes = unsafe { std::slice::from_raw_parts(input.as_ptr().cast::<u8>(), len) };
        run.set_memory(rank, Base::Send, bytes.to_vec(), 0);
        run.set_memory(rank, Base::Recv, vec![0x77; len], 0);
    }
    let table = only(name, algorithm);
    run.schedule_all(|b| {
        b.set_op(op);
        let problem = problem(b, &layout, count);
        let ask = Ask {
            ranks: size,
            bytes: len,
            items: count,
        };
        write(b, &table, name, &problem, &ask, (op, &layout));
    });
    run.run(algorithm);
    (0..size)
        .map(|rank| run.memory(rank, Base::Recv).to_vec())
        .collect()
}

fn allreduce(b: &mut Builder, layout: &Layout, count: usize) -> Problem {
    Problem::Allreduce(Allreduce {
        input: b.span(Base::Send, 0, count, layout),
        output: b.span(Base::Recv, 0, count, layout),
        commutative: true,
    })
}

#[test]
fn sums_over_ranks_do_not_depend_on_ranks_placement_or_algorithm() {
    // 40 numbers for each of 30 elements, spread over 1 to 8 ranks: those that a rank has are added there,
    // exactly, and what it contributes is a sum.
    let mut random = Random::new(3);
    let numbers: Vec<Vec<f64>> = (0..30)
        .map(|_| (0..40).map(|_| nasty(&mut random)).collect())
        .collect();
    let expected: Vec<u64> = numbers.iter().map(|all| slow_sum(all).to_bits()).collect();
    for size in 1..=8 {
        for turn in 0..size {
            let inputs: Vec<Vec<Sum<f64>>> = (0..size)
                .map(|rank| {
                    let share = part(40, (rank + turn) % size, size);
                    let sum = |all: &Vec<f64>| all[share.clone()].iter().copied().collect();
                    numbers.iter().map(sum).collect()
                })
                .collect();
            for algorithm in names(Name::Allreduce) {
                let op = Sum::<f64>::op();
                let got = reduced(&inputs, Name::Allreduce, algorithm, &op, allreduce);
                for memory in got {
                    let sums = memory.as_ptr().cast::<Sum<f64>>();
                    // SAFETY: the memory has 30 sums; all bits are valid.
                    let value = |i| unsafe { sums.add(i).read_unaligned() }.value().to_bits();
                    assert_eq!(
                        (0..30).map(value).collect::<Vec<_>>(),
                        expected,
                        "{algorithm} {size}"
                    );
                }
            }
        }
    }
}

fn doubles(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|x| u64::from_ne_bytes(x.try_into().expect("8 bytes")))
        .collect()
}

/// Contributions of `size` ranks of which the numbers for each element are the same set for every size: those of
/// 8 ranks are given to fewer by leaving out pairs that cancel.
fn contributions(size: usize, count: usize) -> Vec<Vec<f64>> {
    let mut random = Random::new(5);
    // What only one rank has, and pairs that cancel for the rest.
    let mut some = || -> Vec<f64> { (0..count).map(|_| nasty(&mut random)).collect() };
    let mut all = vec![some()];
    for _ in 0..3 {
        let numbers = some();
        let opposite = numbers.iter().map(|x| -x).collect();
        all.extend([numbers, opposite]);
    }
    all.push(vec![0.0; count]);
    all.truncate(if size.is_multiple_of(2) {
        size - 1
    } else {
        size
    });
    if size.is_multiple_of(2) {
        all.push(vec![0.0; count]);
    }
    all
}

#[test]
fn every_operation_and_algorithm_gives_the_same_bits_at_1_to_8_ranks() {
    // More items than go in one part.
    let count = 4_001;
    let expected: Vec<u64> = contributions(1, count)[0]
        .iter()
        .map(|x| (x + 0.0).to_bits())
        .collect();
    let same = |got: &[u8], what: (&str, usize)| {
        // The lone number keeps the sign of its zero, sums with +0 do not.
        let plus = |bits: u64| (f64::from_bits(bits) + 0.0).to_bits();
        let got: Vec<_> = doubles(got).into_iter().map(plus).collect();
        assert_eq!(got, expected, "{what:?}");
    };
    for size in 1..=8usize {
        let inputs = contributions(size, count);
        for algorithm in names(Name::Allreduce) {
            let got = reduced(&inputs, Name::Allreduce, algorithm, &Op::SUM, allreduce);
            got.iter().for_each(|got| same(got, (algorithm, size)));
        }
        let root = size as u32 / 2;
        for algorithm in names(Name::Reduce) {
            let got = reduced(
                &inputs,
                Name::Reduce,
                algorithm,
                &Op::SUM,
                |b, layout, count| {
                    let output = b.span(Base::Recv, 0, count, layout);
                    Problem::Reduce(Reduce {
                        input: b.span(Base::Send, 0, count, layout),
                        output: (b.rank() == root).then_some(output),
                        root,
                        commutative: true,
                    })
                },
            );
            same(&got[root as usize], (algorithm, size));
        }
        for algorithm in names(Name::ReduceScatter) {
            let got = reduced(
                &inputs,
                Name::ReduceScatter,
                algorithm,
                &Op::SUM,
                |b, layout, count| {
                    let whole = b.span(Base::Send, 0, count, layout);
                    let output = b.span(Base::Recv, 0, count, layout);
                    Problem::ReduceScatter(ReduceScatter {
                        input: Blocks::Listed(
                            (0..size).map(|rank| whole.part(rank, size)).collect(),
                        ),
                        whole,
                        output: output.items(0, part(count, b.rank() as usize, size).len()),
                        commutative: true,
                    })
                },
            );
            let blocks = got
                .iter()
                .enumerate()
                .map(|(rank, got)| &got[..part(count, rank, size).len() * 8]);
            same(&blocks.collect::<Vec<_>>().concat(), (algorithm, size));
        }
        for (name, exclusive) in [(Name::Scan, false), (Name::Exscan, true)] {
            for algorithm in names(name) {
                let got = reduced(&inputs, name, algorithm, &Op::SUM, |b, layout, count| {
                    Problem::Scan(Scan {
                        input: b.span(Base::Send, 0, count, layout),
                        output: b.span(Base::Recv, 0, count, layout),
                        exclusive,
                        commutative: true,
                    })
                });
                if exclusive {
                    assert!(
                        got[0].iter().all(|&byte| byte == 0x77),
                        "rank 0's is left alone"
                    );
                } else {
                    same(&got[0], (algorithm, size));
                    same(&got[size - 1], (algorithm, size));
                }
            }
        }
    }
}

#[test]
fn complex_numbers_and_singles_are_widened_too() {
    let inputs: Vec<Vec<Complex<f32>>> = (0..5)
        .map(|rank| {
            let re = [1e30, 1.0, -1e30, 1e-30, 0.0][rank];
            vec![Complex { re, im: -2.0 * re }; 700]
        })
        .collect();
    let got = reduced(&inputs, Name::Allreduce, "ring", &Op::SUM, allreduce);
    for item in got[3].chunks_exact(8) {
        let float = |at: usize| f32::from_ne_bytes(item[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!((float(0), float(4)), (1.0, -2.0));
    }
}

#[test]
fn other_operators_keep_the_order_of_the_ranks() {
    let (double, int) = (Layout::of::<f64>(), Layout::of::<i32>());
    let user = Op::new(true, |a: f64, b: f64| a + b);
    assert_eq!(treatment(&user, &double), Treatment::Fixed);
    assert_eq!(treatment(&Op::PROD, &double), Treatment::Fixed);
    assert_eq!(treatment(&Op::PROD, &int), Treatment::AsIs);
    assert_eq!(treatment(&Op::MIN, &double), Treatment::Ordered);
    assert_eq!(treatment(&Op::MAX, &int), Treatment::AsIs);
    // Of +0 and -0 the last in the order of the ranks is the smallest, whatever the algorithm.
    for size in 2..=8usize {
        let inputs: Vec<Vec<f64>> = (0..size)
            .map(|rank| vec![if rank % 3 == 1 { -0.0 } else { 0.0 }; 64])
            .collect();
        let expected = inputs[size - 1][0].to_bits();
        for algorithm in names(Name::Allreduce) {
            for got in reduced(&inputs, Name::Allreduce, algorithm, &Op::MIN, allreduce) {
                assert_eq!(doubles(&got), vec![expected; 64], "{algorithm} {size}");
            }
        }
    }
    // Products are rounded in one order whatever the table says.
    let mut random = Random::new(9);
    let inputs: Vec<Vec<f64>> = (0..7)
        .map(|_| (0..64).map(|_| random.next() as f64 * 1e-19).collect())
        .collect();
    let results: Vec<_> = names(Name::Allreduce)
        .into_iter()
        .map(|algorithm| reduced(&inputs, Name::Allreduce, algorithm, &Op::PROD, allreduce))
        .collect();
    assert!(results.windows(2).all(|two| two[0] == two[1]));
    assert!(results[0].windows(2).all(|two| two[0] == two[1]));
}
