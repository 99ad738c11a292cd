//! Ranks that take turns on processors.
//!
//! Where ranks outnumber processors, nothing costs as much as handing a processor over, and how
//! often that happens depends on which ranks wait for which. So each rank says on its board on
//! which processor it runs. A rank that begins an operation reads which other ranks run on its own
//! processor ("beside" it), and acts on that:
//!
//! - It looks at the ranks beside it first. Anything they have not shown yet they cannot show
//!   before this rank has given the processor away, so it gives it away at once.
//! - Once they have shown it, no rank on this processor can proceed before a rank elsewhere does.
//!   So the rank keeps the processor and looks, for about as long as giving the processor away and
//!   getting it back takes.
//! - The rank that comes last to a barrier leaves it first, because it has the processor. That is
//!   the wrong order if it waits in the next operation for a rank that does not wait for it, such
//!   as the root of a broadcast: it then has to give the processor away, and meanwhile the ranks
//!   elsewhere wait too. So such a rank lets the others leave the barrier first. It assumes that
//!   the next operation is like the last one before the barrier.

use std::sync::atomic::Ordering;

use portolan_core::Device;

use crate::args::Operation;
use crate::direct::boards::view::Boards;

/// How often a rank looks at one elsewhere before it gives the processor away.
const PATIENCE: u32 = 100;

/// The ranks that compete for this rank's processor, as known when an operation begins.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::direct) struct Beside {
    /// Whether ranks take turns at all.
    turns: bool,
    /// The ranks beside this one, as a bit mask.
    ranks: u64,
}

impl Beside {
    #[inline]
    pub(in crate::direct) fn of<D: Device>(device: &D, boards: &Boards) -> Self {
        match device.processor() {
            None => Self::default(),
            Some(processor) => Self::on(processor, boards),
        }
    }

    /// For a rank on that processor, which this also tells the others.
    #[cold]
    fn on(processor: u32, boards: &Boards) -> Self {
        if boards.size() > u64::BITS {
            return Self::default();
        }
        // SAFETY: boards of this communicator, mapped as long as it lives.
        let word = |rank| unsafe { boards.map.processor(boards.board(rank)) };
        // 0 means that a rank has not said it yet.
        let (own, here) = (word(boards.rank), processor.saturating_add(1));
        // Relaxed, here and below: this is only a hint. It may be out of date, and no other data is
        // read because of it.
        if own.load(Ordering::Relaxed) != here {
            own.store(here, Ordering::Relaxed);
        }
        let is_beside = |rank| rank != boards.rank && word(rank).load(Ordering::Relaxed) == here;
        let bit = |rank| u64::from(is_beside(rank)) << rank;
        Self {
            turns: true,
            ranks: (0..boards.size()).map(bit).sum(),
        }
    }

    /// Whether ranks take turns.
    #[inline]
    pub(in crate::direct) fn takes_turns(self) -> bool {
        self.turns
    }

    /// Whether another rank runs on this rank's processor, as far as it has said.
    #[inline]
    pub(in crate::direct) fn is_beside(self, rank: u32) -> bool {
        self.ranks.checked_shr(rank).unwrap_or(0) & 1 != 0
    }

    /// Whether any other rank does.
    #[inline]
    pub(in crate::direct) fn is_any(self) -> bool {
        self.ranks != 0
    }

    /// The ranks of `size` other than `rank`, those beside it first. Within that order each rank
    /// begins with the one after it, so that not all look at the same one.
    #[inline]
    pub(in crate::direct) fn others(self, rank: u32, size: u32) -> impl Iterator<Item = u32> {
        let all = move || (rank + 1..size).chain(0..rank);
        let first = all().take(if self.ranks == 0 { 0 } else { size as usize });
        first
            .filter(move |&other| self.is_beside(other))
            .chain(all().filter(move |&other| !self.is_beside(other)))
    }

    /// Begins a wait for a rank that was not ready at the first look. Returns whether the processor
    /// was given away.
    #[cold]
    pub(in crate::direct) fn begin_wait<D: Device>(
        self,
        device: &D,
        rank: u32,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        if self.is_beside(rank) {
            device.give_way();
            return true;
        }
        for _ in 0..PATIENCE {
            if ready() {
                break;
            }
            std::hint::spin_loop();
        }
        false
    }
}

/// Whether a rank waits in an operation for others that do not wait for it.
pub(in crate::direct) fn waits_alone(operation: &Operation<'_>, rank: u32) -> bool {
    match *operation {
        Operation::Bcast { root, .. } | Operation::Scatter { root, .. } => rank != root,
        Operation::Gather { root, .. } | Operation::Reduce { root, .. } => rank == root,
        Operation::Scan { .. } => rank > 0,
        Operation::ReduceScatter { counts, .. } => counts[rank as usize] > 0 && counts.contains(&0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::buffer::{MemoryKind, TypedBuf};
    use portolan_datatype::{Layout, Op, Predefined};

    use super::*;
    use crate::args::Many;
    use crate::direct::agree::sort::Sorts;
    use crate::direct::tracks::call::Call;

    #[test]
    fn only_those_wait_alone_for_whom_nobody_waits() {
        let layout = Layout::of::<u8>();
        let mut byte = 0u8;
        let data = TypedBuf {
            ptr: &raw mut byte,
            count: 1,
            layout: &layout,
            memory: MemoryKind::Host,
        };
        let op = &Op::from(Predefined::Sum);
        fn alone(operation: &Operation<'_>) -> [bool; 3] {
            let alone = [0, 1, 2].map(|rank| waits_alone(operation, rank));
            // A track gives the same answer, except for a reduce-scatter, in which all ranks look
            // at all there.
            if !matches!(operation, Operation::ReduceScatter { .. }) {
                let call = |rank| {
                    let mut call = Call::new((rank, 3), Sorts::ANY);
                    assert!(call.describe(operation, None, 0), "done on a track");
                    call
                };
                assert_eq!([0, 1, 2].map(|rank| call(rank).waits_alone()), alone);
            }
            alone
        }
        let (send, root) = (Some(data), 1);
        assert_eq!(alone(&Operation::Bcast { data, root }), [true, false, true]);
        let recv = send;
        let reduce = Operation::Reduce {
            send,
            recv,
            op,
            root,
        };
        assert_eq!(alone(&reduce), [false, true, false]);
        let recv = data;
        let exclusive = false;
        let scan = Operation::Scan {
            send,
            recv,
            op,
            exclusive,
        };
        assert_eq!(alone(&scan), [false, true, true]);
        let counts = &[1, 1, 0];
        let reduce_scatter = Operation::ReduceScatter {
            send,
            recv,
            counts,
            op,
        };
        assert_eq!(alone(&reduce_scatter), [true, true, false]);
        let allreduce = Operation::Allreduce { send, recv, op };
        assert_eq!(alone(&allreduce), [false; 3]);
        for uneven in [true, false] {
            let all = Some(Many::Equal(data));
            let gather = Operation::Gather {
                send,
                recv: all,
                root,
                uneven,
            };
            assert_eq!(alone(&gather), [false, true, false]);
            let scatter = Operation::Scatter {
                send: all,
                recv: Some(recv),
                root,
                uneven,
            };
            assert_eq!(alone(&scatter), [true, false, true]);
        }
    }

    #[test]
    fn those_beside_come_first_and_everybody_once() {
        for size in [2, 3, 8, 64] {
            for rank in 0..size {
                for beside in [0, 1 << rank, 0b1010_0110_u64, u64::MAX] {
                    let beside = beside & !(1 << rank);
                    let known = Beside {
                        turns: true,
                        ranks: beside,
                    };
                    let order: Vec<u32> = known.others(rank, size).collect();
                    let mut sorted = order.clone();
                    sorted.sort_unstable();
                    let others: Vec<u32> = (0..size).filter(|&other| other != rank).collect();
                    assert_eq!(sorted, others);
                    assert!(order.is_sorted_by_key(|&other| beside >> other & 1 == 0));
                }
            }
        }
        let nobody = Beside::default();
        assert!(nobody.others(2, 5).eq([3, 4, 0, 1]));
        // More ranks than there are bits.
        assert_eq!(nobody.others(70, 200).count(), 199);
    }
}
