//! The reproducible mode.

use portolan_coll::{Operation, Options, exact};
use portolan_core::Device;
use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_datatype::{Layout, Op};

use super::{Call, world};
use crate::case::Verdict;
use crate::rank::Rank;

/// Their sum is 3. No order of rounded additions over any number of ranks finds it reliably.
const NUMBERS: [f64; 11] = [
    1e300,
    3.0,
    -1e300,
    5e-324,
    1e16,
    -1.0,
    -1e16,
    f64::MAX,
    1.0,
    -f64::MAX,
    -2.5e-320,
];

fn typed<'a>(items: &mut [f64], layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: items.as_mut_ptr().cast(),
        count: items.len(),
        layout,
        memory: MemoryKind::Host,
    }
}

/// Sums of floating-point numbers have the same bits on any number of ranks: over the elements of
/// all ranks' slices, and item by item.
pub fn reproducible<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let share = NUMBERS.into_iter().skip(rank.me() as usize);
    let share: Vec<f64> = share.step_by(rank.size() as usize).collect();
    let mut options = Options::default();
    options.reproducible = true;
    world(rank, options, |comm| {
        let all = exact::sum(comm, &share).expect("a sum");
        assert_eq!(all.to_bits(), 3f64.to_bits());
        // The numbers of ranks 1 and up cancel in pairs.
        let noise = match (rank.me(), rank.size()) {
            (1, 3..) => [1e300, 1e17],
            (2, 3..) => [-1e300, -1e17],
            _ => [0.0; 2],
        };
        let own = [[0.0, 0.0], [0.3, 0.1]][usize::from(rank.me() == 0)];
        let mut mine = [own[0] + noise[0], own[1] + noise[1]];
        let mut result = [0.0; 2];
        let layout = Layout::of::<f64>();
        for call in Call::ALL {
            let operation = Operation::Allreduce {
                send: Some(typed(&mut mine, &layout)),
                recv: typed(&mut result, &layout),
                op: &Op::SUM,
            };
            // SAFETY: the buffers live until the operation is over.
            unsafe { call.operation(comm, &operation) }.expect("a sum");
            assert_eq!(result, [0.3, 0.1], "{call:?}");
        }
    });
    Ok(())
}
