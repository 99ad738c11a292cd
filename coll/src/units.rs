//! Takes reductions apart into the smallest items that their operators know.
//!
//! Ranks may put the same values into items of different lengths: 30 arrays of 1000 on one rank,
//! 30,000 values on another. Vectors are cut into parts and rounds of whole items, and whether an
//! operation goes over boards depends on the length of one item. So before anything else, items
//! that consist only of smaller ones side by side are taken apart. Then the cuts are the same on
//! all ranks, whatever form each uses.

use portolan_core::comm::{Communicator, InterCommunicator};
use portolan_core::{Device, Result, TypedBuf};
use portolan_datatype::{Layout, Op};

use crate::args::Operation;
use crate::check::{check, check_inter};
use crate::exact::reduction;
use crate::inter::InterOperation;

/// Whether there is something to take apart.
#[inline(always)]
pub(crate) fn are_in(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Reduce { .. }
        | Operation::Allreduce { .. }
        | Operation::ReduceScatterBlock { .. }
        | Operation::Scan { .. }
        | Operation::ReduceScatter { .. } => {
            reduction(operation).is_some_and(|(op, layout)| op.unit(layout).1 != 1)
        }
        _ => false,
    }
}

/// The operation with smaller items, in which there is [nothing](are_in) left to take apart. `kept`
/// holds its counts.
///
/// # Errors
/// As [`check`], for the items that the caller passed.
pub(crate) fn of<'a, D: Device>(
    comm: &Communicator<D>,
    operation: &'a Operation<'a>,
    kept: &'a mut Vec<usize>,
) -> Result<Operation<'a>> {
    check(comm, operation)?;
    let mut operation = *operation;
    match &mut operation {
        Operation::Reduce { send, recv, op, .. } => {
            if let Some(items) = send.or(*recv) {
                apart(op, items.layout, send.iter_mut().chain(recv));
            }
        }
        Operation::Allreduce { send, recv, op }
        | Operation::ReduceScatterBlock { send, recv, op }
        | Operation::Scan { send, recv, op, .. } => {
            apart(op, recv.layout, send.iter_mut().chain([recv]));
        }
        Operation::ReduceScatter {
            send,
            recv,
            counts,
            op,
        } => {
            *counts = by_rank(op, recv.layout, counts, kept);
            apart(op, recv.layout, send.iter_mut().chain([recv]));
        }
        _ => {}
    }
    debug_assert!(!are_in(&operation));
    Ok(operation)
}

/// The same for an operation between two groups; `None` if there is nothing to take apart, or if an
/// argument is wrong.
pub(crate) fn between<'a, D: Device>(
    comm: &InterCommunicator<D>,
    operation: &'a InterOperation<'a>,
    kept: &'a mut Vec<usize>,
) -> Option<InterOperation<'a>> {
    let (op, layout) = reduction_between(operation)?;
    if op.unit(layout).1 == 1 {
        return None;
    }
    check_inter(comm, operation).ok()?;
    let mut operation = *operation;
    match &mut operation {
        InterOperation::Reduce { send, recv, op, .. } => {
            // A rank has one or the other.
            for items in [send, recv].into_iter().flatten() {
                apart(op, items.layout, [items]);
            }
        }
        InterOperation::Allreduce { send, recv, op }
        | InterOperation::ReduceScatterBlock { send, recv, op } => {
            apart(op, recv.layout, [send, recv]);
        }
        InterOperation::ReduceScatter {
            send,
            recv,
            counts,
            op,
        } => {
            *counts = by_rank(op, recv.layout, counts, kept);
            apart(op, recv.layout, [send, recv]);
        }
        _ => return None,
    }
    Some(operation)
}

/// Operator and layout, if an operation between two groups is a reduction.
pub(crate) fn reduction_between<'a>(
    operation: &InterOperation<'a>,
) -> Option<(&'a Op, &'a Layout)> {
    match *operation {
        InterOperation::Reduce { send, recv, op, .. } => Some((op, send.or(recv)?.layout)),
        InterOperation::Allreduce { recv, op, .. }
        | InterOperation::ReduceScatter { recv, op, .. }
        | InterOperation::ReduceScatterBlock { recv, op, .. } => Some((op, recv.layout)),
        _ => None,
    }
}

/// Takes all buffers of a rank apart as `layout` says. It is the layout for which the operator was
/// checked. Where another buffer has another layout, its items are the same byte for byte (the
/// check has seen to that), but may not be described as items that the operator knows.
fn apart<'a: 'b, 'b>(
    op: &'a Op,
    layout: &'a Layout,
    bufs: impl IntoIterator<Item = &'b mut TypedBuf<'a>>,
) {
    let (layout, each) = op.unit(layout);
    for buf in bufs {
        // The count can only overflow for a buffer that is not used, or has no bytes.
        (buf.layout, buf.count) = (layout, buf.count.saturating_mul(each));
    }
}

fn by_rank<'a>(
    op: &Op,
    layout: &Layout,
    counts: &[usize],
    kept: &'a mut Vec<usize>,
) -> &'a [usize] {
    let (_, each) = op.unit(layout);
    *kept = counts
        .iter()
        .map(|count| count.saturating_mul(each))
        .collect();
    kept
}
