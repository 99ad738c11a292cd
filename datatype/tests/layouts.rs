//! Constructors: bad arguments, kept arguments, distributed arrays, counted handles.

use portolan_datatype::{
    Combiner, Contents, DarrayDim, Distribution, Envelope, Layout, LayoutError, MsgRep, Order,
};
use proptest::prelude::*;

/// Where each `u16` of an item lies in memory, in the order of the packed stream.
fn places(layout: &Layout, array: usize) -> Vec<u16> {
    let memory: Vec<u16> = (0..array as u16).collect();
    let mut packed = vec![0u16; layout.size() / 2];
    assert!(layout.span(1).expect("small").end as usize <= array * 2);
    // SAFETY: the item lies within `memory`, its data fit `packed`.
    unsafe {
        let (from, to) = (memory.as_ptr().cast(), packed.as_mut_ptr().cast());
        layout.pack_range(from, 1, 0, to, layout.size(), MsgRep::Native);
    }
    packed
}

fn distributions() -> impl Strategy<Value = Distribution> {
    prop_oneof![
        Just(Distribution::Block),
        Just(Distribution::Cyclic),
        (1usize..4).prop_map(Distribution::CyclicOf),
        (4usize..7).prop_map(Distribution::BlockOf),
    ]
}

/// The rank of a dimension that has an index, according to the definition.
fn owner(dim: &DarrayDim, index: usize) -> usize {
    match dim.distribution {
        Distribution::None => 0,
        Distribution::Block => index / dim.size.div_ceil(dim.ranks),
        Distribution::BlockOf(block) => index / block,
        Distribution::Cyclic => index % dim.ranks,
        Distribution::CyclicOf(block) => index / block % dim.ranks,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each rank has exactly the elements that the definition gives it, in the array's order.
    #[test]
    fn distributed_arrays(
        dims in prop::collection::vec((1usize..11, distributions(), 2usize..4), 0..4),
        fortran in any::<bool>(),
    ) {
        let dims: Vec<DarrayDim> = dims
            .into_iter()
            .map(|(size, distribution, ranks)| {
                let fits = match distribution {
                    Distribution::BlockOf(block) => block * ranks >= size,
                    _ => true,
                };
                let distribution = if fits { distribution } else { Distribution::None };
                let ranks = if fits { ranks } else { 1 };
                DarrayDim { size, distribution, ranks }
            })
            .collect();
        let order = if fortran { Order::Fortran } else { Order::C };
        let ranks: usize = dims.iter().map(|d| d.ranks).product();
        let elements: usize = dims.iter().map(|d| d.size).product();
        let mut expected = vec![Vec::new(); ranks];
        for element in 0..elements {
            let mut index = vec![0; dims.len()];
            let mut rest = element;
            let mut digit = |i: usize| {
                index[i] = rest % dims[i].size;
                rest /= dims[i].size;
            };
            match order {
                Order::C => (0..dims.len()).rev().for_each(&mut digit),
                Order::Fortran => (0..dims.len()).for_each(&mut digit),
            }
            let rank = dims.iter().zip(&index).fold(0, |r, (d, i)| r * d.ranks + owner(d, *i));
            expected[rank].push(element as u16);
        }
        for (rank, expected) in expected.iter().enumerate() {
            let layout = Layout::darray(ranks, rank, &dims, order, &Layout::of::<u16>());
            let layout = layout.expect("legal");
            prop_assert_eq!(layout.extent(), 2 * elements as isize);
            prop_assert_eq!((layout.lb(), layout.size()), (0, 2 * expected.len()));
            prop_assert_eq!(&places(&layout, elements), expected);
        }
    }
}

#[test]
fn bad_arguments_are_named() {
    let int = Layout::of::<i32>();
    let said = |error: Result<Layout, LayoutError>, parts: &[&str]| {
        let text = error.expect_err("bad arguments").to_string();
        parts
            .iter()
            .for_each(|part| assert!(text.contains(part), "{text:?} lacks {part:?}"));
    };
    said(
        Layout::indexed(&[1, 2], &[0], &int),
        &["indexed", "1 displacements", "2 blocks"],
    );
    said(
        Layout::hindexed(&[1], &[0, 4], &int),
        &["hindexed", "2 displacements", "1 blocks"],
    );
    said(
        Layout::structure(&[1], &[0], &[]),
        &["structure", "0 layouts", "1 blocks"],
    );
    let array = |sizes: &[usize], sub: &[usize], starts: &[usize]| {
        Layout::subarray(sizes, sub, starts, Order::C, &Layout::byte())
    };
    said(
        array(&[4, 5], &[2], &[0, 0]),
        &["subarray", "1 subsizes", "2 blocks"],
    );
    said(
        array(&[4, 5], &[2, 3], &[0, 3]),
        &["dimension 1", "3 elements from 3", "array of 5"],
    );
    said(array(&[4], &[2], &[usize::MAX]), &["dimension 0"]);
    let dim = |size, distribution, ranks| DarrayDim {
        size,
        distribution,
        ranks,
    };
    let darray = |size, rank, d: DarrayDim| Layout::darray(size, rank, &[d], Order::C, &int);
    said(
        darray(3, 0, dim(9, Distribution::Block, 2)),
        &["number of ranks is 3", "product"],
    );
    said(
        darray(2, 2, dim(9, Distribution::Block, 2)),
        &["the rank is 2", "less than"],
    );
    said(
        darray(2, 0, dim(9, Distribution::None, 2)),
        &["is 2", "exactly 1"],
    );
    said(
        darray(2, 0, dim(9, Distribution::BlockOf(4), 2)),
        &["block size is 4", "cover"],
    );
    said(
        darray(2, 0, dim(9, Distribution::CyclicOf(0), 2)),
        &["block size is 0"],
    );
}

#[test]
fn arguments_are_kept() -> Result<(), LayoutError> {
    let int = Layout::of::<i32>();
    let envelope = |layout: &Layout| {
        let Envelope {
            combiner,
            integers,
            addresses,
            datatypes,
        } = layout.envelope();
        (combiner, integers, addresses, datatypes)
    };
    assert_eq!(envelope(&int), (Combiner::Named, 0, 0, 0));
    assert_eq!(envelope(&int.dup()?), (Combiner::Dup, 0, 0, 1));
    assert_eq!(
        envelope(&Layout::contiguous(3, &int)?),
        (Combiner::Contiguous, 1, 0, 1)
    );
    assert_eq!(
        envelope(&Layout::vector(3, 2, 1, &int)?),
        (Combiner::Vector, 3, 0, 1)
    );
    assert_eq!(
        envelope(&Layout::hvector(3, 2, 8, &int)?),
        (Combiner::Hvector, 2, 1, 1)
    );
    let (b, d) = ([1, 2, 3], [0, 4, 9]);
    assert_eq!(
        envelope(&Layout::indexed(&b, &d, &int)?),
        (Combiner::Indexed, 7, 0, 1)
    );
    assert_eq!(
        envelope(&Layout::hindexed(&b, &d, &int)?),
        (Combiner::Hindexed, 4, 3, 1)
    );
    assert_eq!(
        envelope(&Layout::indexed_block(2, &d, &int)?),
        (Combiner::IndexedBlock, 5, 0, 1)
    );
    let block = Layout::hindexed_block(2, &d, &int)?;
    assert_eq!(envelope(&block), (Combiner::HindexedBlock, 2, 3, 1));
    let fields = [int.clone(), Layout::of::<f64>(), block.clone()];
    assert_eq!(
        envelope(&Layout::structure(&b, &d, &fields)?),
        (Combiner::Struct, 4, 3, 3)
    );
    let part = Layout::subarray(&[4, 5], &[2, 2], &[1, 1], Order::Fortran, &int)?;
    assert_eq!(envelope(&part), (Combiner::Subarray, 8, 0, 1));
    let dims = [DarrayDim {
        size: 5,
        distribution: Distribution::Cyclic,
        ranks: 2,
    }];
    let dealt = Layout::darray(2, 1, &dims, Order::C, &int)?;
    assert_eq!(envelope(&dealt), (Combiner::Darray, 8, 0, 1));
    assert_eq!(
        envelope(&Layout::resized(&int, -4, 12)?),
        (Combiner::Resized, 0, 2, 1)
    );

    let Contents::Indexed {
        blocklengths,
        displacements,
        old,
    } = Layout::indexed(&b, &d, &int)?.contents().clone()
    else {
        panic!("made by indexed");
    };
    assert_eq!(
        (&*blocklengths, &*displacements, old),
        (&b[..], &d[..], int.clone())
    );
    let Contents::Darray {
        size: 2,
        rank: 1,
        dims: kept,
        order: Order::C,
        ..
    } = dealt.contents()
    else {
        panic!("made by darray of 2 ranks");
    };
    assert_eq!(**kept, dims);
    // Layouts made in the same way are equal.
    assert_eq!(block, Layout::hindexed_block(2, &d, &Layout::of::<i32>())?);
    assert_ne!(block, Layout::hindexed_block(2, &d, &Layout::of::<u32>())?);
    Ok(())
}

#[test]
fn the_last_handle_frees() -> Result<(), LayoutError> {
    let inner = Layout::contiguous(4, &Layout::of::<f32>())?;
    assert_eq!(inner.handles(), 1);
    let outer = Layout::vector(3, 1, 2, &inner)?;
    let clone = outer.clone();
    assert_eq!((inner.handles(), outer.handles()), (2, 2));
    // A committed program holds no counted handles.
    clone.commit();
    assert_eq!((inner.handles(), outer.handles()), (2, 2));
    // The program may drop its handle while an operation has one: what the operation needs stays.
    drop(outer);
    assert_eq!((clone.handles(), inner.handles()), (1, 2));
    assert_eq!(clone.size(), 48);
    drop(clone);
    assert_eq!(inner.handles(), 1);
    let part = Layout::subarray(&[3], &[2], &[1], Order::C, &inner)?;
    assert!(inner.handles() > 1);
    drop(part);
    assert_eq!(inner.handles(), 1);
    Ok(())
}

#[test]
fn threads_share_handles() -> Result<(), LayoutError> {
    let layout = Layout::vector(100, 1, 3, &Layout::of::<u16>())?;
    let expected = places(&layout, 300);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (layout, expected) = (layout.clone(), &expected);
            scope.spawn(move || assert_eq!(&places(&layout, 300), expected));
        }
    });
    assert_eq!(layout.handles(), 1);
    Ok(())
}

#[test]
fn bounds_of_structures_are_aligned_unless_set() -> Result<(), LayoutError> {
    let (byte, double) = (Layout::of::<u8>(), Layout::of::<f64>());
    let s = Layout::structure(&[1, 1], &[8, 0], &[byte.clone(), double.clone()])?;
    assert_eq!(
        (s.lb(), s.ub(), s.true_extent(), s.alignment()),
        (0, 16, 9, 8)
    );
    let wide = Layout::resized(&byte, -3, 5)?;
    let s = Layout::structure(&[1, 1], &[1, 0], &[wide, double])?;
    // Bounds that were set explicitly are the only ones that count (MPI-4, 5.1.6).
    assert_eq!((s.lb(), s.ub()), (-2, 3));
    let nothing = Layout::contiguous(0, &byte)?;
    assert_eq!((nothing.lb(), nothing.extent(), nothing.size()), (0, 0, 0));
    assert!(nothing.is_contiguous());
    assert_eq!(
        (nothing.count(0), nothing.count(1), nothing.elements(0)),
        (Some(0), None, Some(0))
    );
    Ok(())
}
