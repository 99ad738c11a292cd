//! Signatures, elements and counts against a naive type map.

mod model;

use model::{Tree, trees};
use portolan_datatype::{Layout, LayoutError, Pair, Primitive, Signature};
use proptest::prelude::*;

/// The primitives in the first `bytes` of the stream, and whether another one is cut off.
fn naive(tree: &Tree, bytes: usize) -> (Vec<Primitive>, bool) {
    let model = tree.model();
    let mut left = bytes;
    let mut found = Vec::new();
    for (_, primitive) in model.map.iter().cycle() {
        if left < primitive.size() {
            return (found, left > 0);
        }
        left -= primitive.size();
        found.push(*primitive);
    }
    (found, left > 0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn elements_and_counts(tree in trees(), bytes in 0usize..3000) {
        let layout = tree.layout();
        let (found, torn) = naive(&tree, bytes);
        prop_assert_eq!(layout.elements(bytes), (!torn).then_some(found.len()));
        let whole = (0..=bytes).find(|n| n * layout.size() == bytes);
        prop_assert_eq!(layout.count(bytes), whole);
    }

    #[test]
    fn equal_sequences_match_and_others_do_not(
        a in trees(), b in trees(), bytes in 1usize..400,
    ) {
        let (in_a, in_b) = (naive(&a, bytes), naive(&b, bytes));
        prop_assume!(a.model().size() > 0 && b.model().size() > 0);
        let (sent, wanted) = (a.layout().signature(bytes), b.layout().signature(bytes));
        let wild = |(found, torn): &(Vec<Primitive>, bool)| {
            found.contains(&Primitive::Packed)
                || (!torn && found.iter().all(|p| *p == Primitive::Byte))
        };
        // Two different sequences match by accident once in 2^31 cases.
        let expected = in_a == in_b || wild(&in_a) || wild(&in_b);
        prop_assert_eq!(sent.matches(wanted), expected, "{:?} {:?}", in_a, in_b);
        prop_assert_eq!(sent == Signature::ANY, wild(&in_a));
    }

    #[test]
    fn how_a_sequence_was_built_does_not_matter(tree in trees(), count in 1usize..5) {
        let model = tree.model();
        prop_assume!(!model.map.is_empty());
        let bytes = model.size() * count;
        let fields: Vec<Layout> = model.map.iter().map(|(_, p)| Layout::primitive(*p)).collect();
        let flat = Layout::structure(
            &vec![1; fields.len()], &vec![0; fields.len()], &fields,
        ).expect("small");
        for bytes in [bytes, bytes / 2, bytes - 1] {
            prop_assert_eq!(tree.layout().signature(bytes), flat.signature(bytes));
        }
        if let Some(only) = tree.layout().homogeneous() {
            prop_assert_eq!(tree.layout().signature(bytes), Signature::homogeneous(only));
        }
    }
}

#[test]
fn a_shorter_message_is_a_prefix() -> Result<(), LayoutError> {
    let (int, double) = (Layout::of::<i32>(), Layout::of::<f64>());
    let wanted = Layout::structure(&[2, 1], &[0, 8], &[int.clone(), double.clone()])?;
    assert!(int.signature(8).matches(wanted.signature(8)));
    assert!(!int.signature(12).matches(wanted.signature(12)));
    assert!(Layout::byte().signature(13).matches(wanted.signature(13)));
    assert!(double.signature(0).matches(wanted.signature(0)));
    Ok(())
}

#[test]
fn repetitions_without_end_are_no_work() -> Result<(), LayoutError> {
    let pair = Layout::of::<Pair<f64>>();
    let many = Layout::contiguous(1 << 50, &pair)?;
    assert_eq!(many.signature(12 << 40), pair.signature(12 << 40));
    assert_ne!(many.signature(12 << 40), pair.signature(12 << 39));
    assert_eq!(many.elements(12 << 40), Some(2 << 40));
    Ok(())
}

#[test]
fn bits_survive_the_envelope() {
    let signature = Layout::of::<Pair<f64>>().signature(24);
    assert_eq!(Signature::from_bits(signature.bits()), signature);
    assert_eq!(signature.primitive(), None);
    assert!(signature.to_string().starts_with("mixed types ("));
    assert_eq!(Layout::of::<f64>().signature(24).to_string(), "f64");
    assert_eq!(Signature::ANY.to_string(), "anything");
    assert_eq!(
        Layout::of::<f64>().signature(24).primitive(),
        Some(Primitive::F64)
    );
    assert!(!Signature::from_bits(u32::MAX).matches(Signature::homogeneous(Primitive::I8)));
}
