//! Verdicts about calls that differ.

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_datatype::{Layout, Op};

use super::between::At;
use super::*;
use crate::inter::{InterOperation, Root};
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
    let stamp =
        |rank, operation| Stamp::decode(&Stamp::new(operation, (rank, 2), Form::Blocking).encode());
    judge(&[stamp(0, zero), stamp(1, one)])
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

/// The block form says how long one block is, the form with counts how long all are. The ranks
/// would wait for each other if these were taken for the same.
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

/// Where blocks may differ in length, ranks still have to give values of one type.
#[test]
fn types_that_differ_in_forms_with_counts_are_named() {
    let (ints, floats) = (Layout::of::<i32>(), Layout::of::<f32>());
    let (bytes, longs) = (Layout::byte(), Layout::of::<[i64; 2]>());
    let mixed = Layout::structure(&[1, 1], &[0, 8], &[ints.clone(), Layout::of::<f64>()]);
    let mixed = mixed.expect("a legal structure");
    let blocks = |layout, counts| {
        Many::Blocks(crate::args::BlocksArg {
            ptr: std::ptr::dangling_mut(),
            counts,
            displacements: &[0, 8],
            layout,
        })
    };
    let gather = |own, whole, root| Operation::Gather {
        send: own,
        recv: whole,
        root,
        uneven: true,
    };
    let at_root = |own| gather(own, Some(blocks(&ints, &[2, 3])), 0);
    let said = verdict(&at_root(None), &gather(Some(buf(&floats, 3)), None, 0)).unwrap();
    let expected = "rank 1 calls gatherv with values of F32, rank 0 calls gatherv with values of";
    assert!(said.contains(expected), "{said}");
    // The root's own block has no items, but the others' have.
    let said = verdict(
        &at_root(Some(buf(&ints, 0))),
        &gather(Some(buf(&floats, 3)), None, 0),
    );
    assert!(said.unwrap().contains(expected));
    // Blocks without items have no type, bytes have every type, and the lengths may differ.
    for own in [buf(&floats, 0), buf(&bytes, 12), buf(&ints, 3)] {
        assert_eq!(verdict(&at_root(None), &gather(Some(own), None, 0)), None);
    }
    // The signature of several primitives depends on the length, which the others do not know.
    let whole = gather(None, Some(blocks(&mixed, &[2, 3])), 0);
    let own = gather(Some(buf(&mixed, 3)), None, 0);
    assert_eq!(verdict(&whole, &own), None);

    let gathered = |layout, counts| Operation::Allgather {
        send: None,
        recv: blocks(layout, counts),
    };
    let said = verdict(&gathered(&ints, &[1, 4]), &gathered(&floats, &[1, 4])).unwrap();
    assert!(said.contains("allgather with values of F32"), "{said}");
    let said = verdict(&gathered(&mixed, &[4, 8]), &gathered(&longs, &[3, 6])).unwrap();
    assert!(said.contains("allgather with values of I64"), "{said}");
    assert_eq!(
        verdict(&gathered(&mixed, &[1, 4]), &gathered(&mixed, &[1, 4])),
        None
    );
    let equal = Operation::Allgather {
        send: None,
        recv: Many::Equal(buf(&mixed, 2)),
    };
    assert_eq!(verdict(&equal, &gathered(&mixed, &[2, 2])), None);
}

/// Rank 0 has no items, so the others' types are compared with the root's.
#[test]
fn a_type_that_only_the_root_can_tell_is_compared_with_the_root() {
    let (ints, floats) = (Layout::of::<i32>(), Layout::of::<f32>());
    let scatter = |layout, count| Operation::Scatter {
        send: None,
        recv: Some(buf(layout, count)),
        root: 1,
        uneven: true,
    };
    let all = [scatter(&ints, 0), scatter(&ints, 3), scatter(&floats, 2)];
    let stamps = (0..).zip(&all);
    let stamps = stamps.map(|(rank, call)| Stamp::new(call, (rank, 3), Form::Blocking));
    let stamps: Vec<_> = stamps.collect();
    let said = judge(&stamps).unwrap();
    let expected = "rank 2 calls scatterv with values of F32, rank 1 calls scatterv with values of";
    assert!(said.contains(expected), "{said}");
    assert_eq!(judge(&stamps[..2]), None);
}

/// What rank 0 says of the calls of two groups of two ranks: ranks 0 and 1, and ranks 2 and 3.
fn between_verdict<'a>(call: impl Fn(u32) -> InterOperation<'a>) -> Option<String> {
    let stamp = |rank: u32| {
        let [local, remote] = match rank {
            0 | 1 => [(0, 2), (2, 2)],
            _ => [(2, 2), (0, 2)],
        };
        let at = At {
            rank,
            world_rank: rank,
            local,
            remote,
        };
        let stamp = Stamp::between_at(&at, &call(rank), Form::Blocking);
        Stamp::decode(&stamp.encode())
    };
    judge(&[0, 1, 2, 3].map(stamp))
}

#[test]
fn what_one_group_sends_is_compared_with_what_the_other_receives() {
    let (ints, floats) = (Layout::of::<i32>(), Layout::of::<f32>());
    // Rank 3 alone sends something else.
    let allgather = |odd: (usize, &'static str)| {
        let (ints, floats) = (&ints, &floats);
        between_verdict(move |rank| InterOperation::Allgather {
            send: match rank {
                0 | 1 => buf(ints, 2),
                3 if odd.1 == "floats" => buf(floats, odd.0),
                3 => buf(ints, odd.0),
                _ => buf(ints, 5),
            },
            recv: Many::Equal(buf(ints, if rank < 2 { 5 } else { 2 })),
        })
    };
    assert_eq!(allgather((5, "ints")), None);
    assert_eq!(
        allgather((6, "ints")).unwrap(),
        "world rank 3 calls allgather with 24 bytes to send, \
         world rank 0 calls allgather with 20 bytes to receive"
    );
    let said = allgather((5, "floats")).unwrap();
    assert!(
        said.contains("world rank 3 calls allgather with values of F32 to send"),
        "{said}"
    );
    let alltoall = |sent, received| {
        let ints = &ints;
        between_verdict(move |rank| InterOperation::Alltoall {
            send: Many::Equal(buf(ints, if rank < 2 { sent } else { 7 })),
            recv: Many::Equal(buf(ints, if rank < 2 { 7 } else { received })),
        })
    };
    assert_eq!(alltoall(3, 3), None);
    let said = alltoall(3, 4).unwrap();
    assert!(
        said.contains("world rank 0 calls alltoall with 12 bytes to send"),
        "{said}"
    );
}

#[test]
fn counts_for_the_other_group_are_compared_with_its_lengths() {
    let ints = Layout::of::<i32>();
    let blocks = |counts| {
        Many::Blocks(crate::args::BlocksArg {
            ptr: std::ptr::dangling_mut(),
            counts,
            displacements: &[0, 8],
            layout: &ints,
        })
    };
    let (allgather, gather) = (
        |counts: &'static [usize; 2]| {
            between_verdict(|rank| InterOperation::Allgather {
                send: buf(&ints, [1, 1, 3, 4][rank as usize]),
                recv: match rank {
                    0 | 1 => blocks(counts),
                    _ => Many::Equal(buf(&ints, 1)),
                },
            })
        },
        |counts: &'static [usize; 2]| {
            between_verdict(|rank| InterOperation::Gather {
                send: (rank > 1).then(|| buf(&ints, [0, 0, 3, 4][rank as usize])),
                recv: (rank == 1).then(|| blocks(counts)),
                root: [Root::Beside, Root::Here, Root::Remote(1), Root::Remote(1)][rank as usize],
            })
        },
    );
    assert_eq!([allgather(&[3, 4]), gather(&[3, 4])], [None, None]);
    let expected = "calls allgather with other counts than the ranks of the other group";
    assert!(allgather(&[4, 3]).unwrap().contains(expected));
    let expected = "world rank 1 calls gather with other counts than the ranks of the other group";
    assert_eq!(gather(&[4, 3]).unwrap(), expected);
}

#[test]
fn items_of_a_reduction_to_the_other_group_that_differ_are_named() {
    let ints = Layout::of::<i32>();
    let spread = Layout::resized(&ints, 0, 8).unwrap();
    let reduce = |layout| {
        let ints = &ints;
        between_verdict(move |rank| InterOperation::Reduce {
            send: match rank {
                0 => None,
                2 => Some(buf(ints, 4)),
                3 => Some(buf(layout, 4)),
                _ => None,
            },
            recv: (rank == 1).then(|| buf(ints, 4)),
            op: &Op::SUM,
            root: [Root::Beside, Root::Here, Root::Remote(1), Root::Remote(1)][rank as usize],
        })
    };
    assert_eq!(reduce(&ints), None);
    let said = reduce(&spread).unwrap();
    let expected = "world rank 3 calls reduce with items of 4 bytes, 8 from one to the next";
    assert!(said.starts_with(expected), "{said}");
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
                &Stamp::new(&Operation::Barrier, (rank, size), Form::Blocking),
            );
            let schedule = b.finish();
            let sends = schedule.steps().iter();
            sends.filter(|s| matches!(s, Step::Send { .. })).count()
        });
        assert_eq!(messages.sum::<usize>(), 2 * (size as usize - 1));
    }
}
