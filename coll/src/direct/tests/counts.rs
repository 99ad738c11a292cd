//! Counts of a reduce-scatter about which ranks do not agree.

use portolan_core::{Device, ErrorKind, Result};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, on_all};
use crate::{Operation, Persistent, run, start};

/// The form in which an operation is called.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Blocking,
    Nonblocking,
    Persistent,
}

/// This rank's block of a reduction of rank + 1, and the outcome.
fn reduce_scatter(world: &World, counts: &[usize], form: Form) -> (Vec<u64>, Result<()>) {
    let layout = Layout::of::<u64>();
    let mut from = vec![u64::from(world.rank()) + 1; counts.iter().sum()];
    let mut to = vec![0; counts[world.rank() as usize]];
    let operation = Operation::ReduceScatter {
        send: Some(buf(&mut from, &layout)),
        recv: buf(&mut to, &layout),
        counts,
        op: &Op::from(Predefined::Sum),
    };
    let wait = |request| world.device().wait(request).map(drop);
    // SAFETY: the buffers outlive the call and the wait.
    let outcome = unsafe {
        match form {
            Form::Blocking => run(world, &operation),
            Form::Nonblocking => start(world, &operation).and_then(wait),
            Form::Persistent => {
                let mut plan = Persistent::new(world, &operation).unwrap();
                plan.start().and_then(wait)
            }
        }
    };
    (to, outcome)
}

/// Rank 0 calls with the counts in reverse order, between two calls with the agreed ones.
fn with_counts_that_differ(ranks: u32, usual: &[usize], form: Form) {
    let reversed: Vec<_> = usual.iter().rev().copied().collect();
    with_other_counts(ranks, usual, &reversed, form);
}

/// Rank 0 calls with other counts, between two calls with the usual ones.
fn with_other_counts(ranks: u32, usual: &[usize], other: &[usize], form: Form) {
    on_all(ranks, |world| {
        // SAFETY: there is no buffer.
        unsafe { run(world, &Operation::Barrier) }.unwrap();
        let total = u64::from(ranks * (ranks + 1) / 2);
        for differ in [false, true, false] {
            let is_odd = differ && world.rank() == 0;
            let counts = if is_odd { other } else { usual };
            let (block, outcome) = reduce_scatter(world, counts, form);
            match outcome {
                // A rank that waits for no block may be done before the others show that they
                // disagree.
                Ok(()) if differ => assert!(block.is_empty(), "{form:?} of {counts:?}"),
                Ok(()) => assert!(block.iter().all(|&value| value == total)),
                Err(error) => {
                    assert!(differ, "{error}");
                    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                    let text = error.to_string();
                    assert!(text.contains("a reduce-scatter with "), "{text}");
                }
            }
            // SAFETY: as above.
            unsafe { run(world, &Operation::Barrier) }.unwrap();
        }
    });
}

/// Lists in which rank 0 and the last rank have a block in either order of the list, or neither
/// has.
fn lists(ranks: usize) -> Vec<Vec<usize>> {
    let ends = |first, between, last| {
        let mut list = vec![between; ranks];
        (list[0], list[ranks - 1]) = (first, last);
        list
    };
    vec![
        ends(5, 0, 0),
        ends(1, 1, 2),
        ends(3, 2, 7),
        ends(900, 2, 1),
        ends(1, 9_000, 9_002),
        ends(20_000, 0, 4),
    ]
}

#[test]
fn blocking_calls_are_told_even_if_the_longest_and_the_sum_are_equal() {
    for ranks in [2, 3, 4, 8, 10] {
        for list in lists(ranks as usize) {
            with_counts_that_differ(ranks, &list, Form::Blocking);
        }
    }
}

#[test]
fn so_are_those_that_go_on_in_progress_in_cells_chunks_and_messages() {
    for ranks in [2, 3, 8] {
        for list in lists(ranks as usize) {
            with_counts_that_differ(ranks, &list, Form::Nonblocking);
            with_counts_that_differ(ranks, &list, Form::Persistent);
        }
    }
}

/// Blocks of one length at one rank and of several at the others, with the same longest block or
/// the same sum.
#[test]
fn equal_blocks_are_told_from_others() {
    for times in [1, 2_000] {
        let list = |counts: [usize; 2]| counts.map(|count| times * count);
        for form in [Form::Blocking, Form::Nonblocking, Form::Persistent] {
            for (one, other) in [([5, 5], [5, 4]), ([2, 2], [1, 3])] {
                with_other_counts(2, &list(one), &list(other), form);
                with_other_counts(2, &list(other), &list(one), form);
            }
        }
    }
}
