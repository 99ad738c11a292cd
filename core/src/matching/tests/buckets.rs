//! The table of buckets compared with a plain list of its contents.

use proptest::prelude::*;

use crate::matching::buckets::Buckets;

/// An operation on the table. Places and hashes are taken modulo what exists.
#[derive(Clone, Debug)]
enum Step {
    Insert(u32),
    Remove(usize),
    Replace(usize),
    Empty,
}

fn step() -> impl Strategy<Value = Step> {
    // Some runs use few hashes, so that buckets overflow.
    let hash = prop_oneof![any::<u32>(), 0..3_u32, (0..40_u32).prop_map(|n| n << 20)];
    prop_oneof![
        12 => hash.prop_map(Step::Insert),
        4 => any::<usize>().prop_map(Step::Remove),
        2 => any::<usize>().prop_map(Step::Replace),
        1 => Just(Step::Empty),
    ]
}

/// Checks that everything in the table is found, and nothing else.
fn check(table: &Buckets, model: &[(u32, u32)]) {
    assert_eq!(table.len(), model.len());
    for &(hash, number) in model {
        assert_eq!(table.find(hash, |found| found == number), Some(number));
        let guess = table.guess(hash).expect("something is there");
        assert!(model.contains(&(hash, guess)));
        assert_eq!(table.find(hash, |found| found == u32::MAX - 1), None);
    }
}

proptest! {
    #[test]
    fn what_was_filed_is_found_until_it_is_taken_out(
        steps in proptest::collection::vec(step(), 1..1500),
    ) {
        let (mut table, mut model, mut next) = (Buckets::new(), Vec::new(), 0);
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(hash) => {
                    table.insert(hash, next);
                    model.push((hash, next));
                    next += 1;
                }
                Step::Remove(place) if !model.is_empty() => {
                    let (hash, number) = model.swap_remove(place % model.len());
                    table.remove(hash, number);
                }
                Step::Replace(place) if !model.is_empty() => {
                    let place = place % model.len();
                    let (hash, number) = model[place];
                    table.replace(hash, number, next);
                    model[place].1 = next;
                    next += 1;
                }
                Step::Empty if at % 7 == 0 => {
                    for (hash, number) in model.drain(..) {
                        table.remove(hash, number);
                    }
                }
                _ => {}
            }
            if at % 100 == 0 {
                check(&table, &model);
            }
        }
        check(&table, &model);
    }
}

#[test]
fn a_table_grows_with_what_is_in_it_and_shrinks_when_it_needs_less() {
    let mut table = Buckets::new();
    let mut phase = |count: u32| {
        let hash = |n: u32| n.wrapping_mul(0x9e37_79b9);
        (0..count).for_each(|n| table.insert(hash(n), n));
        for n in 0..count {
            assert_eq!(table.find(hash(n), |found| found == n), Some(n));
        }
        (0..count).for_each(|n| table.remove(hash(n), n));
        assert_eq!(table.guess(hash(1)), None);
        table.chunks()
    };
    let many = phase(20_000);
    assert!(
        (104..130).contains(&many),
        "{many} chunks of 192 entries each"
    );
    assert_eq!(phase(20_000), many, "the same once more");
    for round in 0..300 {
        assert!(phase(10) <= many, "{round}");
    }
    assert!(phase(10) <= 2, "one, and perhaps one of those behind");
    assert_eq!(phase(20_000), many, "and grows again");
}
