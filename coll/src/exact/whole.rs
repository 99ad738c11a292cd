//! One sum over the elements of all ranks.

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_core::comm::Communicator;
use portolan_core::{Device, Result};
use portolan_datatype::Layout;

use super::real::Real;
use super::sum::Sum;
use crate::args::Operation;

/// The sum of all elements of all ranks' slices, rounded once; every rank gets it. Collective.
///
/// It depends on the elements alone: not on how they are spread over ranks, on their order, on the
/// number of ranks, or on the algorithm. See [`Sum`] for infinities, NaN and zeros.
///
/// # Errors
/// As [`run`](crate::run()).
pub fn sum<T: Real, D: Device>(comm: &Communicator<D>, mine: &[T]) -> Result<T> {
    let mut sum = Sum::new();
    sum.add_slice(mine);
    let layout = Layout::of::<Sum<T>>();
    let op = Sum::<T>::op();
    let all = Operation::Allreduce {
        send: None,
        recv: TypedBuf {
            ptr: (&raw mut sum).cast(),
            count: 1,
            layout: &layout,
            memory: MemoryKind::Host,
        },
        op: &op,
    };
    // SAFETY: the sum is borrowed for the call alone; all of its bits are initialised, and all
    // ranks reduce sums, for which all bits are valid.
    unsafe { crate::run(comm, &all)? };
    Ok(sum.value())
}
