//! Operators against naive loops.

use portolan_datatype::{
    Complex, Datatype, Layout, LayoutError, Op, OpError, Pair, Predefined, Primitive,
};
use proptest::prelude::*;

/// Checks an operator on slices against a function of two values.
fn same<T: Datatype + PartialEq + std::fmt::Debug>(
    op: &Op,
    input: &[T],
    inout: &[T],
    naive: impl Fn(T, T) -> T,
) {
    let mut result = inout.to_vec();
    op.apply_slices(input, &mut result).expect("defined");
    let expected: Vec<T> = input
        .iter()
        .zip(inout)
        .map(|(a, b)| naive(*a, *b))
        .collect();
    assert_eq!(result, expected, "{op:?}");
}

macro_rules! integers {
    ($($name:ident $t:ty),*) => {
        proptest! {
            #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
            $(#[test]
            fn $name(pairs in prop::collection::vec(any::<($t, $t)>(), 0..70)) {
                let (a, b): (Vec<$t>, Vec<$t>) = pairs.into_iter().unzip();
                same(&Op::SUM, &a, &b, |a, b| a.wrapping_add(b));
                same(&Op::PROD, &a, &b, |a, b| a.wrapping_mul(b));
                same(&Op::MIN, &a, &b, Ord::min);
                same(&Op::MAX, &a, &b, Ord::max);
                same(&Op::BAND, &a, &b, |a, b| a & b);
                same(&Op::BOR, &a, &b, |a, b| a | b);
                same(&Op::BXOR, &a, &b, |a, b| a ^ b);
                same(&Op::REPLACE, &a, &b, |a, _| a);
                same(&Op::NO_OP, &a, &b, |_, b| b);
                let small = |v: &[$t]| v.iter().map(|x| *x & 1).collect::<Vec<_>>();
                let (a, b) = (small(&a), small(&b));
                same(&Op::LAND, &a, &b, |a, b| (a != 0 && b != 0).into());
                same(&Op::LOR, &a, &b, |a, b| (a != 0 || b != 0).into());
                same(&Op::LXOR, &a, &b, |a, b| ((a != 0) != (b != 0)).into());
            })*
        }
    };
}
integers! {
    on_i8 i8, on_u8 u8, on_i16 i16, on_u16 u16, on_i32 i32, on_u32 u32, on_i64 i64, on_u64 u64,
    on_i128 i128, on_u128 u128
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_f64(pairs in prop::collection::vec((-1e9..1e9f64, -1e9..1e9f64), 0..70)) {
        let (a, b): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        same(&Op::SUM, &a, &b, |a, b| a + b);
        same(&Op::PROD, &a, &b, |a, b| a * b);
        same(&Op::MIN, &a, &b, f64::min);
        same(&Op::MAX, &a, &b, f64::max);
        let complex = |v: &[f64]| -> Vec<Complex<f64>> {
            v.iter().map(|x| Complex { re: *x, im: 1.0 - x }).collect()
        };
        let (a, b) = (complex(&a), complex(&b));
        same(&Op::SUM, &a, &b, |a, b| Complex { re: a.re + b.re, im: a.im + b.im });
        same(&Op::PROD, &a, &b, |a, b| Complex {
            re: a.re * b.re - a.im * b.im,
            im: a.re * b.im + a.im * b.re,
        });
    }

    #[test]
    fn on_bool(pairs in prop::collection::vec(any::<(bool, bool)>(), 0..70)) {
        let (a, b): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        same(&Op::LAND, &a, &b, |a, b| a && b);
        same(&Op::LOR, &a, &b, |a, b| a || b);
        same(&Op::LXOR, &a, &b, |a, b| a != b);
        same(&Op::REPLACE, &a, &b, |a, _| a);
    }

    #[test]
    fn pairs_of_few_values(pairs in prop::collection::vec(((0i64..3, 0i32..9), (0i64..3, 0i32..9)), 0..40)) {
        let pair = |(value, index)| Pair { value, index };
        let (a, b): (Vec<_>, Vec<_>) = pairs.iter().map(|(a, b)| (pair(*a), pair(*b))).unzip();
        let best = |a: Pair<i64>, b: Pair<i64>, a_wins: bool| Pair {
            value: if a_wins { a.value } else { b.value },
            index: match a.value == b.value {
                true => a.index.min(b.index),
                false if a_wins => a.index,
                false => b.index,
            },
        };
        same(&Op::MAXLOC, &a, &b, |a, b| best(a, b, a.value > b.value));
        same(&Op::MINLOC, &a, &b, |a, b| best(a, b, a.value < b.value));
    }
}

/// The table of MPI-4, 6.9.2: the primitives on which each operator is defined.
#[test]
fn definedness() {
    use Predefined::*;
    let integer = [Sum, Prod, Min, Max, Land, Lor, Lxor, Band, Bor, Bxor].as_slice();
    for primitive in Primitive::ALL {
        let defined = match primitive {
            Primitive::F32 | Primitive::F64 => &[Sum, Prod, Min, Max],
            Primitive::C32 | Primitive::C64 => [Sum, Prod].as_slice(),
            Primitive::Bool => &[Land, Lor, Lxor],
            Primitive::Byte => &[Band, Bor, Bxor],
            Primitive::Char | Primitive::Packed => &[],
            _ => integer,
        };
        let layout = Layout::primitive(primitive);
        for op in Predefined::ALL {
            let expected = defined.contains(&op) || matches!(op, Replace | NoOp);
            assert_eq!(
                Op::from(op).check(&layout).is_ok(),
                expected,
                "{op:?} on {primitive}"
            );
        }
    }
    let error = Op::SUM
        .check(&Layout::of::<char>())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("sum") && error.contains("char") && error.contains("integers"),
        "{error}"
    );
    let mixed = Layout::of::<Pair<f64>>();
    assert_eq!(
        Op::SUM.check(&mixed),
        Err(OpError::MixedLayout { op: "sum" })
    );
    assert_eq!(
        Op::MAXLOC.check(&Layout::of::<f64>()),
        Err(OpError::NotAPair { op: "maxloc" })
    );
}

#[test]
fn nan_wins_on_either_side() {
    for op in [Op::MIN, Op::MAX] {
        let mut b = [1.0, f64::NAN, f64::NAN];
        op.apply_slices(&[f64::NAN, 1.0, f64::NAN], &mut b)
            .expect("defined");
        assert!(b.iter().all(|x| x.is_nan()), "{b:?}");
    }
    let mut b = [
        Pair {
            value: f32::NAN,
            index: 7,
        },
        Pair {
            value: 1.0,
            index: 1,
        },
    ];
    let a = [
        Pair {
            value: 9.0,
            index: 1,
        },
        Pair {
            value: f32::NAN,
            index: 3,
        },
    ];
    Op::MINLOC.apply_slices(&a, &mut b).expect("defined");
    assert_eq!((b[0].index, b[1].index), (7, 3));
}

/// In any arrangement, gaps stay as they are, and combining parts of a stream gives the same
/// result.
#[test]
fn arrangements_and_parts() -> Result<(), LayoutError> {
    let layout = Layout::hindexed(&[3, 1, 2], &[24, 0, 56], &Layout::of::<u64>())?;
    let layout = Layout::resized(&layout, 0, 80)?;
    let count = 300; // more than one part of the buffer
    let input: Vec<u64> = (0..10 * count as u64).map(|i| i * i).collect();
    let before: Vec<u64> = (0..10 * count as u64).map(|i| i * 1000).collect();
    let expected: Vec<u64> = (0..before.len())
        .map(|i| match i % 10 {
            0 | 3 | 4 | 5 | 7 | 8 => input[i] + before[i],
            _ => before[i],
        })
        .collect();
    let mut inout = before.clone();
    // SAFETY: both hold `count` items of 10 words.
    unsafe {
        Op::SUM.apply(
            &layout,
            count,
            input.as_ptr().cast(),
            inout.as_mut_ptr().cast(),
        )
    }
    .expect("defined");
    assert_eq!(inout, expected);

    let mut stream = vec![0u8; layout.size() * count];
    let rep = portolan_datatype::MsgRep::Native;
    let bytes = stream.len();
    // SAFETY: as above, and the stream has room for the data.
    unsafe {
        layout.pack_range(
            input.as_ptr().cast(),
            count,
            0,
            stream.as_mut_ptr(),
            bytes,
            rep,
        );
    }
    let mut inout = before.clone();
    for position in (0..bytes).step_by(56) {
        // SAFETY: as above; 56 bytes more, or as many as are left.
        unsafe {
            let from = stream.as_ptr().add(position);
            let len = 56.min(bytes - position);
            let to = inout.as_mut_ptr().cast();
            Op::SUM
                .apply_packed(&layout, count, position, from, len, to)
                .expect("whole elements");
        }
    }
    assert_eq!(inout, expected);
    // SAFETY: nothing is touched, because the range splits an element.
    let split = unsafe {
        let to = inout.as_mut_ptr().cast();
        Op::SUM.apply_packed(&layout, count, 4, stream.as_ptr(), 8, to)
    };
    assert_eq!(
        split,
        Err(OpError::SplitElement {
            position: 4,
            end: 12,
            element: 8
        })
    );
    assert_eq!(inout, expected);
    Ok(())
}

#[test]
fn pairs_in_other_arrangements() -> Result<(), LayoutError> {
    // The index lies before the value.
    let fields = [Layout::of::<f64>(), Layout::of::<i32>()];
    let reversed = Layout::structure(&[1, 1], &[8, 0], &fields)?;
    let pair = |value: f64, index: i32| -> [u8; 16] {
        let mut bytes = [0xEE; 16];
        bytes[..4].copy_from_slice(&index.to_ne_bytes());
        bytes[8..].copy_from_slice(&value.to_ne_bytes());
        bytes
    };
    let input = [pair(5.0, 2), pair(1.0, 3)].concat();
    let mut inout = [pair(5.0, 4), pair(2.0, 5)].concat();
    let expected = [pair(5.0, 2), pair(2.0, 5)].concat();
    // SAFETY: both hold two items.
    unsafe { Op::MAXLOC.apply(&reversed, 2, input.as_ptr(), inout.as_mut_ptr()) }.expect("a pair");
    assert_eq!(inout, expected);
    // Several pairs in an item, and one item after the other from a stream.
    let mut both = [Pair {
        value: 1i64,
        index: 0,
    }; 4];
    let input = [[
        Pair {
            value: 0i64,
            index: 1,
        },
        Pair { value: 2, index: 2 },
    ]; 2];
    let two = Layout::of::<[Pair<i64>; 2]>();
    // SAFETY: both hold two items of two pairs.
    unsafe { Op::MAXLOC.apply(&two, 2, input.as_ptr().cast(), both.as_mut_ptr().cast()) }
        .expect("pairs");
    assert_eq!(both.map(|p| p.index), [0, 2, 0, 2]);
    let mut stream = Vec::new();
    for (value, index) in [(3i64, 9i32), (0, 9), (3, 1), (7, 5)] {
        stream.extend_from_slice(&value.to_ne_bytes());
        stream.extend_from_slice(&index.to_ne_bytes());
    }
    let one = Layout::of::<Pair<i64>>();
    // SAFETY: there are four pairs on either side.
    unsafe {
        let to = both.as_mut_ptr().cast();
        Op::MAXLOC
            .apply_packed(&one, 4, 0, stream.as_ptr(), stream.len(), to)
            .expect("pairs");
    }
    assert_eq!(both.map(|p| p.value), [3, 2, 3, 7]);
    assert_eq!(both.map(|p| p.index), [9, 2, 1, 5]);
    Ok(())
}

#[test]
fn operators_of_the_users_own() {
    let subtract = Op::new(false, |a: i32, b: i32| a - b);
    assert!(!subtract.is_commutative() && Op::SUM.is_commutative());
    same(&subtract, &[7, 8], &[1, 10], |a: i32, b| a - b);
    same(&subtract, &[[7, 8], [0, 0]], &[[1, 10], [2, 3]], |a, b| {
        [a[0] - b[0], a[1] - b[1]]
    });
    let wrong = subtract.apply_slices(&[1u32], &mut [1u32]);
    assert_eq!(wrong, Err(OpError::WrongType { expected: "i32" }));
    assert_eq!(
        subtract.apply_slices(&[1, 2], &mut [1]),
        Err(OpError::LengthMismatch { input: 2, inout: 1 })
    );

    // Parts of a stream: whole items only.
    let layout = Layout::of::<[i32; 2]>();
    let stream: Vec<u8> = [5, 6, 7, 8i32]
        .iter()
        .flat_map(|x| x.to_ne_bytes())
        .collect();
    let mut inout = [[0, 0], [1, 1], [2, 2]];
    let to = inout.as_mut_ptr().cast::<u8>();
    // SAFETY: three items, of which the last two are changed; the second call changes nothing.
    let (whole, split) = unsafe {
        (
            subtract.apply_packed(&layout, 3, 8, stream.as_ptr(), 16, to),
            subtract.apply_packed(&layout, 3, 4, stream.as_ptr(), 8, to),
        )
    };
    assert_eq!(whole, Ok(()));
    assert!(matches!(
        split,
        Err(OpError::SplitElement {
            position: 4,
            end: 12,
            element: 8
        })
    ));
    assert_eq!(inout, [[0, 0], [4, 5], [5, 6]]);

    let maximum = |layout: &Layout, count: usize, input: *const u8, inout: *mut u8| {
        for i in 0..layout.size() * count {
            // SAFETY: applied to contiguous bytes only.
            unsafe { *inout.add(i) = (*input.add(i)).max(*inout.add(i)) };
        }
    };
    // SAFETY: the function touches `size * count` bytes, which is all of contiguous data.
    let raw = unsafe { Op::from_raw(true, maximum) };
    same(&raw, &[3u8, 200], &[7, 100], Ord::max);
}

/// No operator makes a value that its type does not have.
#[cfg(feature = "derive")]
#[test]
fn results_are_values() {
    use std::num::NonZero;
    #[derive(Clone, Copy, Debug, PartialEq, Datatype)]
    #[repr(u8)]
    enum Light {
        Red = 1,
        Green = 2,
    }
    let mut inout = [Light::Red, Light::Green];
    let sum = Op::SUM.apply_slices(&[Light::Red, Light::Green], &mut inout);
    assert_eq!(
        sum,
        Err(OpError::InvalidResult {
            op: "sum",
            index: 1
        })
    );
    assert_eq!(inout, [Light::Green, Light::Green]);
    Op::MIN
        .apply_slices(&[Light::Red; 2], &mut inout)
        .expect("a light");
    assert_eq!(inout, [Light::Red; 2]);

    let one = NonZero::<u8>::MIN;
    let mut top = [NonZero::<u8>::MAX];
    assert!(Op::SUM.apply_slices(&[one], &mut top).is_err());
    assert_eq!(top, [NonZero::<u8>::MAX]);

    // Bytes of one type are not values of another, even if their layouts are equal.
    let on_lights = Op::new(true, |a: Light, _: Light| a);
    assert!(matches!(
        on_lights.apply_slices(&[77u8], &mut [1u8]),
        Err(OpError::WrongType { .. })
    ));
    let on_bytes = Op::new(true, |_: u8, _: u8| 77);
    assert!(matches!(
        on_bytes.apply_slices(&[Light::Red], &mut inout[..1]),
        Err(OpError::InvalidResult { index: 0, .. })
    ));
    assert_eq!(inout[0], Light::Red);
}

/// A handwritten implementation whose layout is shorter than its values.
#[cfg(debug_assertions)]
#[derive(Clone, Copy)]
#[repr(align(4))]
struct Longer(#[expect(dead_code, reason = "what is in it does not matter")] u8);

#[cfg(debug_assertions)]
// SAFETY: the contract is broken; `Op::new` notices before anything is read.
unsafe impl Datatype for Longer {
    const CONTIGUOUS: bool = true;
    const PACKED_SIZE: usize = 1;
    const ANY_BITS: bool = true;
    const HOMOGENEOUS: Option<Primitive> = Some(Primitive::U8);

    fn layout() -> Layout {
        u8::layout()
    }

    unsafe fn is_valid(_: *const Self) -> bool {
        true
    }
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "the layout's extent is not the size")]
fn an_operator_steps_by_the_size_of_its_type() {
    let _ = Op::new(true, |a: Longer, _: Longer| a);
}

#[test]
fn operators_do_not_see_what_is_no_value() {
    let never = Op::new(true, |_: bool, _: bool| unreachable!("77 is neither"));
    let layout = Layout::of::<bool>();
    for (input, inout, expected) in [(77u8, 1u8, 77u8), (1, 77, 77), (77, 78, 78)] {
        let mut result = inout;
        // SAFETY: there is one byte of data at both, and the two do not overlap.
        let done = unsafe { never.apply(&layout, 1, &raw const input, &raw mut result) };
        assert_eq!((done, result), (Ok(()), expected));
    }
}

#[test]
fn items_are_taken_apart_as_far_as_they_lie_side_by_side() -> Result<(), LayoutError> {
    let one = Layout::of::<f64>();
    let array = Layout::contiguous(6, &Layout::contiguous(2, &one)?.dup()?)?;
    let two = Layout::structure(&[1, 1], &[0, 8], &[one.clone(), one.clone()])?;
    let spread = Layout::resized(&one, 0, 24)?;
    assert_eq!(Op::SUM.unit(&one), (&one, 1));
    assert_eq!(Op::SUM.unit(&array), (&one, 12));
    assert_eq!(Op::SUM.unit(&two), (&one, 2));
    assert_eq!(Op::SUM.unit(&spread), (&spread, 1));
    let spreads = Layout::contiguous(5, &spread)?;
    assert_eq!(Op::SUM.unit(&spreads), (&spread, 5));
    // A pair is what the operator works on, and may have a gap.
    let pair = Layout::of::<Pair<f64>>();
    let pairs = Layout::contiguous(7, &pair)?;
    assert_eq!(Op::MAXLOC.unit(&pairs), (&pair, 7));
    let numbers = Layout::contiguous(2, &one)?;
    assert_eq!(Op::MAXLOC.unit(&numbers), (&numbers, 1));
    // The program's own operators work on one type, or do not declare one.
    let own = Op::new(true, |a: [f64; 2], _: [f64; 2]| a);
    assert_eq!(own.unit(&array), (&numbers, 6));
    let own = Op::new(true, |a: f64, b: f64| a + b);
    assert_eq!(own.unit(&array), (&one, 12));
    // SAFETY: it touches nothing.
    let raw = unsafe { Op::from_raw(true, |_, _, _, _| {}) };
    assert_eq!(raw.unit(&array), (&array, 1));
    Ok(())
}

#[test]
fn codes() {
    for op in Predefined::ALL {
        assert_eq!(Predefined::from_code(op.code()), Some(op));
    }
    assert_eq!(Predefined::from_code(0), None);
    assert_eq!(Predefined::from_code(15), None);
}

/// Ranks may combine the same values in any order, and all of them must get the same bits.
#[test]
fn extremes_are_the_same_to_the_last_bit_in_any_order() {
    let odd = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        -f64::NAN,
        f64::from_bits(f64::NAN.to_bits() | 7),
    ];
    let combined = |op: &Op, a: f64, b: f64| {
        let mut result = [b];
        op.apply_slices(&[a], &mut result).expect("defined");
        let mut short = [b as f32];
        op.apply_slices(&[a as f32], &mut short).expect("defined");
        (result[0].to_bits(), short[0].to_bits())
    };
    let pair = |op: &Op, a: Pair<f64>, b: Pair<f64>| {
        let mut result = [b];
        op.apply_slices(&[a], &mut result).expect("defined");
        (result[0].value.to_bits(), result[0].index)
    };
    for a in odd {
        for b in odd {
            for op in [Op::MIN, Op::MAX] {
                assert_eq!(combined(&op, a, b), combined(&op, b, a), "{op:?} {a} {b}");
            }
            for (i, j) in [(3, 3), (3, 5), (5, 3)] {
                let (one, other) = (Pair { value: a, index: i }, Pair { value: b, index: j });
                for op in [Op::MINLOC, Op::MAXLOC] {
                    let found = pair(&op, one, other);
                    assert_eq!(found, pair(&op, other, one), "{op:?} {a} {b}");
                    let given = [(a.to_bits(), i), (b.to_bits(), j)];
                    assert!(given.contains(&found), "{op:?} {a} {b}: a pair of nobody's");
                }
            }
        }
    }
    assert_eq!(combined(&Op::MAX, -0.0, 0.0).0, 0.0_f64.to_bits());
    assert_eq!(combined(&Op::MIN, 0.0, -0.0).0, (-0.0_f64).to_bits());
}
