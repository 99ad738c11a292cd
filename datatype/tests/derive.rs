//! `#[derive(Datatype)]` and the implementations for std's types.

#![cfg(feature = "derive")]

use std::marker::PhantomData;
use std::mem::{MaybeUninit, offset_of};
use std::num::{NonZero, Wrapping};

use portolan_datatype::{Complex, Datatype, Layout, MsgRep, Pair, Primitive, first_invalid};

/// The packed form of values.
fn packed<T: Datatype>(values: &[T]) -> Vec<u8> {
    let layout = T::layout();
    let mut bytes = vec![0; layout.size() * values.len()];
    let len = bytes.len();
    // SAFETY: the slice holds the values, `bytes` has room for their data.
    let moved = unsafe {
        let (from, to) = (values.as_ptr().cast(), bytes.as_mut_ptr());
        layout.pack_range(from, values.len(), 0, to, len, MsgRep::Native)
    };
    assert_eq!(moved, len);
    bytes
}

/// What a receiver does: unpack into memory that holds no value yet, check, then use it as a value.
fn unpacked<T: Datatype>(bytes: &[u8]) -> Result<T, usize> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: there is room for one value; it is read only if it is valid.
    unsafe {
        let (to, from) = (value.as_mut_ptr().cast(), bytes.as_ptr());
        T::layout().unpack_range(to, 1, 0, from, bytes.len(), MsgRep::Native);
        match first_invalid(value.as_ptr(), 1) {
            None => Ok(value.assume_init()),
            Some(index) => Err(index),
        }
    }
}

/// Checks the promises of the trait that can be checked.
fn keeps_its_promises<T: Datatype>() {
    let layout = T::layout();
    let name = std::any::type_name::<T>();
    assert_eq!(layout.lb(), 0, "{name}");
    assert_eq!(layout.extent(), size_of::<T>() as isize, "{name}");
    assert!(
        layout.true_lb() >= 0 && layout.true_extent() <= layout.extent(),
        "{name}"
    );
    assert_eq!(layout.is_contiguous(), T::CONTIGUOUS, "{name}");
    assert_eq!(layout.homogeneous(), T::HOMOGENEOUS, "{name}");
    assert_eq!(layout.size(), T::PACKED_SIZE, "{name}");
    assert_eq!(T::layout(), layout, "{name}");
    assert_eq!(T::layout().handles(), layout.handles(), "{name}");
}

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
struct Padded {
    a: u8,
    b: f64,
    c: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
#[repr(C)]
#[datatype(no_padding)]
struct Dense {
    b: f64,
    a: u32,
    c: [u16; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
struct Tuple(u8, Padded, [Dense; 3]);

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
struct Unit;

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
#[repr(C, packed)]
struct Packed {
    flag: bool,
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
#[repr(C, align(64))]
struct Aligned {
    value: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
#[datatype(no_padding)]
struct Generic<T, const N: usize>
where
    T: PartialEq,
{
    values: [T; N],
    unit: PhantomData<fn() -> T>,
}

trait Family {
    type Member;
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Doubles;

impl Family for Doubles {
    type Member = f64;
}

#[derive(Datatype)]
#[datatype(bound = "F: Family + 'static, F::Member: Datatype")]
struct ByBound<F: Family> {
    member: F::Member,
}

impl<F: Family<Member: Copy>> Clone for ByBound<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Family<Member: Copy>> Copy for ByBound<F> {}

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
#[repr(i16)]
enum Signed {
    Below = -3,
    Zero = 0,
    Above = 300,
}

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
struct Checked {
    state: Signed,
    flags: [bool; 3],
    letter: char,
    count: NonZero<u32>,
}

/// How an enum gets an alignment.
#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
#[repr(C, align(8))]
struct AlignedEnum(Signed);

/// The representation is the compiler's `u8`, whatever the program calls by that name.
mod renamed {
    use portolan_datatype::Datatype;

    #[expect(
        non_camel_case_types,
        dead_code,
        reason = "to be mistaken for the primitive"
    )]
    type u8 = u64;

    #[derive(Clone, Copy, Debug, PartialEq, Datatype)]
    #[repr(u8)]
    pub(super) enum Small {
        One = 1,
    }
}

#[test]
fn promises() {
    keeps_its_promises::<AlignedEnum>();
    keeps_its_promises::<renamed::Small>();
    keeps_its_promises::<Padded>();
    keeps_its_promises::<Dense>();
    keeps_its_promises::<Tuple>();
    keeps_its_promises::<Unit>();
    keeps_its_promises::<Packed>();
    keeps_its_promises::<Aligned>();
    keeps_its_promises::<Generic<i32, 5>>();
    keeps_its_promises::<Generic<Signed, 0>>();
    keeps_its_promises::<ByBound<Doubles>>();
    keeps_its_promises::<Signed>();
    keeps_its_promises::<Checked>();
    keeps_its_promises::<(u8, f64)>();
    keeps_its_promises::<(f64, [f64; 2])>();
    keeps_its_promises::<(u8, u16, u32, u64, i8, i16, bool, char)>();
    keeps_its_promises::<()>();
    keeps_its_promises::<[[f32; 3]; 4]>();
    keeps_its_promises::<[Padded; 2]>();
    keeps_its_promises::<Pair<f64>>();
    keeps_its_promises::<Pair<i32>>();
    keeps_its_promises::<Complex<f32>>();
    keeps_its_promises::<Wrapping<u64>>();
    keeps_its_promises::<PhantomData<String>>();
    keeps_its_promises::<NonZero<i128>>();
    keeps_its_promises::<usize>();
}

#[test]
fn fields_in_the_order_of_declaration() {
    let value = Padded { a: 1, b: 2.5, c: 3 };
    let expected = [&[1u8][..], &2.5f64.to_ne_bytes(), &3u16.to_ne_bytes()].concat();
    assert_eq!(packed(&[value]), expected);
    assert_eq!(unpacked::<Padded>(&expected), Ok(value));
    const { assert!(!Padded::CONTIGUOUS && Padded::ANY_BITS && Dense::CONTIGUOUS) };
    assert_eq!(Padded::layout().size(), 11);
    // It is up to the compiler where it lies in memory.
    assert_eq!(Layout::of::<Dense>().contents(), Dense::layout().contents());
    assert_eq!(offset_of!(Dense, a), 8);
}

#[test]
fn nested_and_packed_values_survive() {
    let dense = Dense {
        b: -1.0,
        a: 7,
        c: [8, 9],
    };
    let tuple = Tuple(5, Padded { a: 1, b: 2.0, c: 3 }, [dense; 3]);
    assert_eq!(unpacked(&packed(&[tuple])), Ok(tuple));
    let odd = Packed {
        flag: true,
        value: u64::MAX - 1,
    };
    assert_eq!(packed(&[odd, odd]).len(), 18);
    assert_eq!(unpacked(&packed(&[odd])), Ok(odd));
    let aligned = [Aligned { value: 3 }, Aligned { value: 4 }];
    assert_eq!(packed(&aligned).len(), 8);
    assert_eq!(unpacked(&packed(&[(1u8, 2.0f64)])), Ok((1u8, 2.0f64)));
}

#[test]
fn generic_types_have_layouts_of_their_own() {
    assert_eq!(Generic::<i32, 5>::layout().size(), 20);
    assert_eq!(Generic::<u8, 3>::layout().size(), 3);
    assert_eq!(Generic::<u8, 3>::HOMOGENEOUS, Some(Primitive::U8));
    assert_eq!(ByBound::<Doubles>::HOMOGENEOUS, Some(Primitive::F64));
    assert_eq!(
        unpacked::<ByBound<Doubles>>(&2.0f64.to_ne_bytes()).map(|b| b.member),
        Ok(2.0)
    );
}

#[test]
fn what_is_no_value_is_refused() {
    assert_eq!(unpacked(&300i16.to_ne_bytes()), Ok(Signed::Above));
    assert_eq!(unpacked(&(-3i16).to_ne_bytes()), Ok(Signed::Below));
    assert_eq!(unpacked(&0i16.to_ne_bytes()), Ok(Signed::Zero));
    assert_eq!(unpacked::<Signed>(&1i16.to_ne_bytes()), Err(0));
    let value = Checked {
        state: Signed::Zero,
        flags: [true, false, true],
        letter: 'λ',
        count: NonZero::<u32>::MIN,
    };
    let good = packed(&[value]);
    assert_eq!(unpacked(&good), Ok(value));
    // The state, a flag, the letter (a surrogate), the count.
    for (at, bytes) in [
        (0, 5i16.to_ne_bytes().to_vec()),
        (4, vec![2]),
        (5, 0xD800u32.to_ne_bytes().to_vec()),
        (9, vec![0; 4]),
    ] {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(&bytes);
        assert_eq!(unpacked::<Checked>(&bad), Err(0), "{bytes:?} at {at}");
    }
}

#[test]
fn an_aligned_enum_sends_no_padding() {
    let values = [AlignedEnum(Signed::Below), AlignedEnum(Signed::Above)];
    const { assert!(!AlignedEnum::CONTIGUOUS) };
    let bytes = packed(&values);
    assert_eq!(bytes.len(), 4);
    assert_eq!(unpacked::<AlignedEnum>(&bytes[2..]), Ok(values[1]));
    assert_eq!(unpacked::<AlignedEnum>(&1i16.to_ne_bytes()), Err(0));
    assert_eq!(unpacked::<renamed::Small>(&[2]), Err(0));
}

#[test]
fn the_first_invalid_value_is_found() {
    let bytes = [1u8, 1, 3, 1];
    // SAFETY: a bool is a byte.
    unsafe {
        assert_eq!(first_invalid(bytes.as_ptr().cast::<bool>(), 4), Some(2));
        assert_eq!(first_invalid(bytes.as_ptr().cast::<bool>(), 2), None);
        assert_eq!(
            first_invalid(bytes.as_ptr().cast::<[bool; 2]>(), 2),
            Some(1)
        );
    }
}

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
    cases.pass("tests/compile_pass/*.rs");
}
