//! Arguments at the end of the address space, and beyond.

use portolan_datatype::{DarrayDim, Distribution, Layout, LayoutError, MsgRep, Order};
use proptest::prelude::*;

fn counts() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..4,
        1 => Just(usize::MAX),
        1 => Just(isize::MAX as usize),
        2 => (0u32..64).prop_map(|bit| 1 << bit),
        1 => any::<usize>(),
    ]
}

fn places_of_any_size() -> impl Strategy<Value = isize> {
    prop_oneof![
        4 => -8isize..9,
        1 => Just(isize::MIN),
        1 => Just(isize::MAX),
        2 => (0u32..64).prop_map(|bit| (1usize << bit) as isize),
        1 => any::<isize>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the arguments, a constructor returns, and the layout that it returns answers every
    /// query.
    #[test]
    fn no_argument_is_too_extreme(
        steps in prop::collection::vec(
            (0usize..11, counts(), counts(), places_of_any_size(), places_of_any_size()), 1..6,
        ),
        n in counts(),
        nothing in any::<bool>(),
    ) {
        let mut old = match nothing {
            true => Layout::contiguous(0, &Layout::of::<f64>()),
            false => Layout::structure(
                &[1, 1], &[0, 8], &[Layout::of::<u16>(), Layout::of::<f64>()],
            ),
        }.expect("small");
        for (which, a, b, c, d) in steps {
            let dim = |size, distribution, ranks| DarrayDim { size, distribution, ranks };
            let built = match which {
                0 => Layout::contiguous(a, &old),
                1 => Layout::vector(a, b, c, &old),
                2 => Layout::hvector(a, b, c, &old),
                3 => Layout::indexed(&[a, b], &[c, d], &old),
                4 => Layout::hindexed(&[a, b], &[c, d], &old),
                5 => Layout::indexed_block(a, &[c, d, 1], &old),
                6 => Layout::hindexed_block(a, &[c, d, 1], &old),
                7 => Layout::structure(&[a, b], &[c, d], &[old.clone(), Layout::of::<u32>()]),
                8 => Layout::subarray(&[a, b], &[a / 2, 1], &[a / 4, 0], Order::C, &old),
                9 => Layout::darray(
                    2, 1, &[dim(a, Distribution::CyclicOf(b), 2)], Order::Fortran, &old,
                ),
                _ => Layout::resized(&old, c, d),
            };
            let Ok(layout) = built else { continue };
            prop_assert!(layout.true_extent() >= 0);
            prop_assert_eq!(layout.ub().checked_sub(layout.lb()), Some(layout.extent()));
            let _ = (layout.span(n), layout.packed_size(n, MsgRep::Swapped), layout.signature(n));
            let _ = (layout.elements(n), layout.count(n), layout.is_contiguous());
            prop_assert!(layout.commit().len() < 200);
            prop_assert_eq!(layout.elements(layout.size()).is_some(), true);
            old = layout;
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_errors() {
    let double = Layout::of::<f64>();
    let overflow = |result: Result<Layout, LayoutError>| {
        assert!(
            matches!(result, Err(LayoutError::Overflow { .. })),
            "{result:?}"
        );
    };
    overflow(Layout::contiguous(usize::MAX, &double));
    overflow(Layout::contiguous(1 << 61, &double));
    overflow(Layout::vector(usize::MAX, usize::MAX, 1, &double));
    overflow(Layout::vector(2, 1, isize::MAX / 4, &double));
    overflow(Layout::hvector(3, 1, isize::MAX - 8, &double));
    overflow(Layout::hindexed(
        &[1, 1],
        &[isize::MIN, isize::MAX - 8],
        &double,
    ));
    overflow(Layout::hindexed(&[1], &[isize::MAX - 7], &double));
    overflow(Layout::indexed(&[1], &[isize::MIN / 4], &double));
    overflow(Layout::resized(&double, 1, isize::MAX));
    overflow(Layout::subarray(
        &[1 << 40, 1 << 40],
        &[1, 1],
        &[0, 0],
        Order::C,
        &double,
    ));
    let most = Layout::contiguous((isize::MAX / 8) as usize, &double).expect("just fits");
    assert!(most.packed_size(2, MsgRep::Native).is_ok());
    assert!(most.packed_size(3, MsgRep::Native).is_err());
    assert!(most.span(2).is_err());
    // A layout without data fits anywhere.
    assert!(Layout::hvector(0, 5, isize::MAX, &double).is_ok());
    let nothing = Layout::contiguous(0, &double).expect("nothing");
    let many = Layout::contiguous(usize::MAX, &nothing).expect("nothing, however often");
    assert_eq!((many.size(), many.extent()), (0, 0));
    let sizes = [usize::MAX, 2];
    assert!(Layout::subarray(&sizes, &sizes, &[0, 0], Order::C, &nothing).is_ok());
    // All of a short array is in the first part of a long block, and none of it in the second.
    for (rank, bytes) in [(0, 5 * 8), (1, 0)] {
        let distribution = Distribution::BlockOf(usize::MAX);
        let (size, ranks) = (5, 2);
        let dims = [DarrayDim {
            size,
            distribution,
            ranks,
        }];
        let part = Layout::darray(2, rank, &dims, Order::C, &double).expect("it fits");
        assert_eq!((part.size(), part.extent()), (bytes, 40));
    }
    let mut deep = double.clone();
    let error = loop {
        match deep.dup() {
            Ok(next) => deep = next,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(
            error,
            LayoutError::TooDeep {
                depth: 513,
                limit: 512,
                ..
            }
        ),
        "{error}"
    );
    let mut packed = [0u8; 8];
    // SAFETY: one double on either side.
    let bytes = unsafe {
        let value = 1.5f64;
        let from = std::ptr::from_ref(&value).cast();
        deep.pack_range(from, 1, 0, packed.as_mut_ptr(), 8, MsgRep::Native)
    };
    assert_eq!((bytes, f64::from_ne_bytes(packed)), (8, 1.5));
}
