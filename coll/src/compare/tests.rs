//! Verdicts about calls that differ.

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_datatype::{Layout, Op};

use super::*;
use crate::schedule::Step;

fn buf(layout: &Layout, count: usize) -> TypedBuf<'_> {
    TypedBuf {
        ptr: std::ptr::dangling_mut(),
        count,
        layout,
        memory: MemoryKind::Host,
    }
}

fn verdict(zero: &Operation<'_>, one: &Operation<'_>) -> Option<String> {
    let stamp = |operation| Stamp::decode(&Stamp::new(operation, 2, Form::Blocking).encode());
    judge(&[stamp(zero), stamp(one)])
}

#[test]
fn what_differs_is_named_with_the_rank() {
    let (ints, floats) = (Layout::of::<i32>(), Layout::of::<f32>());
    let bcast = |layout, count, root| Operation::Bcast {
        data: buf(layout, count),
        root,
    };
    let sum = |op| Operation::Allreduce {
        send: None,
        recv: buf(&ints, 4),
        op,
    };
    let zero = bcast(&ints, 4, 0);
    assert_eq!(verdict(&zero, &zero), None);
    let said = |one: &Operation<'_>| verdict(&zero, one).unwrap();
    assert_eq!(
        said(&Operation::Barrier),
        "rank 1 calls a blocking barrier, rank 0 calls a blocking bcast"
    );
    assert!(
        said(&bcast(&ints, 4, 1)).contains("bcast with root 1, rank 0 calls bcast with root 0")
    );
    assert!(said(&bcast(&ints, 5, 0)).contains("bcast with 20 bytes, rank 0 calls bcast with 16"));
    assert!(said(&bcast(&floats, 4, 0)).contains("bcast with values of F32"));
    let ops = verdict(&sum(&Op::SUM), &sum(&Op::MAX)).unwrap();
    assert!(
        ops.contains("operator max") && ops.contains("operator sum"),
        "{ops}"
    );
}

#[test]
fn operators_of_the_program_differ_in_whether_they_commute() {
    let ints = Layout::of::<i32>();
    let sum = |op| Operation::Allreduce {
        send: None,
        recv: buf(&ints, 4),
        op,
    };
    let ops = [true, false].map(|commutes| Op::new(commutes, |a: i32, b: i32| a.max(b)));
    let said = verdict(&sum(&ops[0]), &sum(&ops[1])).unwrap();
    let expected = "operator user, in order, rank 0 calls allreduce with operator user";
    assert!(said.ends_with(expected), "{said}");
    assert_eq!(verdict(&sum(&ops[1]), &sum(&ops[1])), None);
}

#[test]
fn items_of_reductions_that_differ_are_named() {
    let ints = Layout::of::<i32>();
    let spread = Layout::resized(&ints, 0, 8).unwrap();
    let sum = |layout, count| Operation::Scan {
        send: None,
        recv: buf(layout, count),
        op: &Op::SUM,
        exclusive: false,
    };
    let said = verdict(&sum(&ints, 4), &sum(&spread, 4)).unwrap();
    assert_eq!(
        said,
        "rank 1 calls scan with items of 4 bytes, 8 from one to the next, \
         rank 0 calls scan with items of 4 bytes, 4 from one to the next"
    );
    assert_eq!(verdict(&sum(&spread, 4), &sum(&spread, 4)), None);
}

#[test]
fn counts_that_differ_with_one_sum_are_named() {
    let (ints, pairs) = (Layout::of::<i32>(), Layout::of::<[i32; 2]>());
    let scattered = |counts| Operation::ReduceScatter {
        send: None,
        recv: buf(&ints, 4),
        counts,
        op: &Op::SUM,
    };
    let said = verdict(&scattered(&[3, 1]), &scattered(&[1, 3])).unwrap();
    assert!(
        said.contains("rank 1 calls reduce-scatter with other counts"),
        "{said}"
    );
    assert_eq!(verdict(&scattered(&[3, 1]), &scattered(&[3, 1])), None);
    let gathered = |layout, counts| Operation::Allgather {
        send: None,
        recv: Many::Blocks(crate::args::BlocksArg {
            ptr: std::ptr::dangling_mut(),
            counts,
            displacements: &[0, 8],
            layout,
        }),
    };
    // The same lengths in other layouts have the same hash.
    let zero = gathered(&ints, &[4, 2]);
    assert_eq!(verdict(&zero, &gathered(&pairs, &[2, 1])), None);
    let said = verdict(&zero, &gathered(&ints, &[2, 4])).unwrap();
    assert!(said.contains("allgather with other counts"), "{said}");
    let equal = Operation::Allgather {
        send: None,
        recv: Many::Equal(buf(&ints, 3)),
    };
    assert_eq!(verdict(&gathered(&ints, &[3, 3]), &equal), None);
    let said = verdict(&equal, &zero).unwrap();
    assert!(said.contains("allgather with other counts"), "{said}");
}

/// The block form says how long one block is, the form with counts how long all are. The ranks would
/// wait for each other if these were taken for the same.
#[test]
fn both_forms_of_a_reduce_scatter_match_if_all_blocks_are_as_long() {
    let ints = Layout::of::<i32>();
    let counted = |counts| Operation::ReduceScatter {
        send: None,
        recv: buf(&ints, 4),
        counts,
        op: &Op::SUM,
    };
    let equal = |count| Operation::ReduceScatterBlock {
        send: None,
        recv: buf(&ints, count),
        op: &Op::SUM,
    };
    assert_eq!(verdict(&counted(&[2, 2]), &equal(2)), None);
    let said = verdict(&counted(&[3, 1]), &equal(2)).unwrap();
    let expected = "rank 1 calls reduce-scatter with other counts";
    assert!(said.contains(expected), "{said}");
    let said = verdict(&counted(&[2, 2]), &equal(4)).unwrap();
    let expected = "reduce-scatter with 32 bytes, rank 0 calls reduce-scatter with 16 bytes";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn long_verdicts_are_cut_between_characters() {
    let mut bytes = [0; 20];
    write_verdict(&mut bytes, "äöüäöüäöüäöü");
    assert_eq!(read_verdict(&bytes), "äöüäöüäö");
}

#[test]
fn the_prelude_is_two_messages_per_rank_on_average() {
    for size in 1..9 {
        let messages = (0..size).map(|rank| {
            let mut b = Builder::new(crate::Team::all(rank, size));
            prelude(
                &mut b,
                &Stamp::new(&Operation::Barrier, size, Form::Blocking),
            );
            let schedule = b.finish();
            let sends = schedule.steps().iter();
            sends.filter(|s| matches!(s, Step::Send { .. })).count()
        });
        assert_eq!(messages.sum::<usize>(), 2 * (size as usize - 1));
    }
}
