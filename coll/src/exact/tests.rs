//! Tests of sums against arithmetic with big integers; [`ranks`] tests reductions.

mod ranks;

use proptest::prelude::*;

use super::*;
use crate::schedule::part;
use crate::simulate::Random;

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

/// Computes the value of a multiple of 2^-1074 in another way: digit by digit, from the top.
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
        // Subnormal results lose no digits, because they are multiples of the smallest number.
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
        // The digits are those of the sum plus 2^2400.
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
        // The product is exact in doubles, so the conversion rounds only once.
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
    // (2 - 2^-52) * 100,000 has 17 bits more than a double, which are rounded away.
    assert_eq!(sum.value(), 200_000.0 - 2.9e-11);
}
