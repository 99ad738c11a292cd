//! Collective operations over the device: every operation by every algorithm, in every form of the
//! call, compared with results that each rank can compute by itself.

mod again;
mod between;
mod buffer;
mod edges;
mod exact;
mod in_flight;
mod moving;
mod reducing;

pub use again::every_way;
pub use between::{
    two_groups_bad_arguments, two_groups_disagree, two_groups_move, two_groups_reduce,
};
pub use edges::{neighbours_in_graphs, neighbours_of_other_lengths, neighbours_on_grids};
pub use exact::reproducible;
pub use in_flight::in_flight;
pub use moving::{allgather, alltoall, gather, scatter};
pub use reducing::{allreduce, reduce, reduce_scatter, scan};

use std::sync::Arc;

use portolan_coll::select::{Rule, Table};
use portolan_coll::{Name, Operation, Options, Persistent, algorithms, configure, run, start};
use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_core::comm::Communicator;
use portolan_core::{Device, ErrorKind, Result};
use portolan_datatype::Layout;

use crate::case::Verdict;
use crate::plain::Lent;
use crate::rank::{Rank, fails};
use buffer::{Buffer, Bytes, Form, UNIT};

/// How an operation is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Blocking,
    Nonblocking,
    /// Started twice.
    Persistent,
    /// Persistent and started once: in place, a second start would work on the result of the first.
    Once,
}

impl Call {
    pub(crate) const ALL: [Self; 3] = [Self::Blocking, Self::Nonblocking, Self::Persistent];

    /// The corresponding form for an operation in place.
    fn in_place(self) -> Self {
        match self {
            Self::Persistent => Self::Once,
            call => call,
        }
    }

    /// Runs an operation on the communicator.
    ///
    /// # Safety
    /// As [`run`].
    pub(crate) unsafe fn operation<D: Device>(
        self,
        comm: &Communicator<D>,
        operation: &Operation<'_>,
    ) -> Result<()> {
        let device = comm.device();
        // SAFETY: from the caller; requests are waited for before this returns.
        unsafe {
            match self {
                Self::Blocking => run(comm, operation),
                Self::Nonblocking => device.wait(start(comm, operation)?).map(drop),
                Self::Persistent => {
                    let mut operation = Persistent::new(comm, operation)?;
                    device.wait(operation.start()?)?;
                    device.wait(operation.start()?).map(drop)
                }
                Self::Once => device
                    .wait(Persistent::new(comm, operation)?.start()?)
                    .map(drop),
            }
        }
    }
}

/// Makes a world whose collectives follow `options`. No rank leaves it before all are done with it.
pub(crate) fn world<D: Device>(
    rank: &Rank<'_, D>,
    options: Options,
    body: impl FnOnce(&Communicator<Lent<'_, D>>),
) {
    let comm = Communicator::world(Arc::new(Lent(rank.device))).expect("the world");
    configure(&comm, options).expect("nothing has run yet");
    body(&comm);
    drop(comm);
    rank.barrier();
}

/// Runs `body` with an operation done by each of its algorithms, by the default choice (with and
/// without lines), and in the debug mode.
pub(crate) fn by_every_algorithm<D: Device>(
    rank: &Rank<'_, D>,
    operation: Name,
    body: impl Fn(&Communicator<Lent<'_, D>>),
) {
    let names = algorithms::names(operation);
    assert!(!names.is_empty(), "{operation} has no algorithms");
    let tree = |name: &&'static str| algorithms::has_radix(name);
    let trees: Vec<_> = names.iter().copied().filter(tree).collect();
    let ways = names.into_iter().map(|name| (name, None));
    for (algorithm, radix) in ways.chain(trees.into_iter().map(|name| (name, Some(3)))) {
        let mut options = Options::default();
        let rule = Rule {
            radix,
            ..Rule::always(operation, algorithm)
        };
        options.table = Table::with(vec![rule]);
        options.direct = false;
        world(rank, options, &body);
    }
    for takes in [false, true] {
        let mut options = Options::default();
        options.takes = takes;
        world(rank, options, &body);
    }
    world(rank, debug_mode(), &body);
}

/// A root that is neither the first rank nor the last, if there is one; else the first.
fn middle<D: Device>(rank: &Rank<'_, D>) -> u32 {
    match rank.size() {
        1 | 2 => 0,
        size => size / 2,
    }
}

/// Options with which ranks compare what they call.
fn debug_mode() -> Options {
    let mut options = Options::default();
    options.compare = true;
    options
}

/// A barrier ends on every rank. (`coll` itself tests that it does not end too early.)
pub fn barrier<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    by_every_algorithm(rank, Name::Barrier, |comm| {
        for call in Call::ALL {
            // SAFETY: there are no buffers.
            unsafe { call.operation(comm, &Operation::Barrier) }.expect("a barrier");
        }
    });
    Ok(())
}

/// Every rank gets the root's data, also where ranks describe the same numbers by different
/// layouts.
pub fn bcast<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let lens = [0, 1, rank.eager_max().min(20_000) / UNIT + 1, 20_001];
    by_every_algorithm(rank, Name::Bcast, |comm| {
        for (turn, units) in lens.into_iter().enumerate() {
            let call = Call::ALL[turn % 3];
            for (root, strided) in [(0, false), (rank.last(), true), (0, rank.me() % 2 == 1)] {
                let mut expected = Buffer::one(units, strided);
                expected.put(0, &Bytes::content(root, 0, units * UNIT));
                let mut data = Buffer::one(units, strided);
                if rank.me() == root {
                    data.put(0, &Bytes::content(root, 0, units * UNIT));
                }
                let operation = Operation::Bcast {
                    data: data.typed(),
                    root,
                };
                // SAFETY: `data` is there until the operation is over.
                unsafe { call.operation(comm, &operation) }.expect("a broadcast");
                assert!(
                    data.memory() == expected.memory(),
                    "{units} units from {root} {call:?}"
                );
            }
        }
    });
    Ok(())
}

/// In the debug mode, a block that only its sender, or only its receiver, believes to be empty is
/// an error for the receiver, and no rank hangs.
pub fn empty_for_one_side<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    world(rank, debug_mode(), |comm| {
        let wrong = rank.last();
        for sent in [0, 1] {
            let lens: Vec<_> = (0..=wrong)
                .map(|from| [sent, 1 - sent][usize::from(from == wrong)])
                .collect();
            let mut mine = Buffer::one(sent, false);
            let mut all = Buffer::new(Form::Blocks, &lens, false);
            for call in [Call::Blocking, Call::Nonblocking] {
                let operation = Operation::Gather {
                    send: Some(mine.typed()),
                    recv: (rank.me() == 0).then(|| all.many()),
                    root: 0,
                    uneven: true,
                };
                // SAFETY: the buffers outlive the operation.
                let outcome = unsafe { call.operation(comm, &operation) };
                let kind = [ErrorKind::InvalidCount, ErrorKind::Truncated][sent];
                match rank.me() {
                    0 => fails(outcome, kind, "a block that is empty for one side"),
                    _ => outcome.expect("what this rank does is right"),
                }
            }
        }
    });
    Ok(())
}

/// Errors in the arguments are reported before any message is sent, in every form of the call.
pub fn bad_arguments<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    world(rank, Options::default(), |comm| {
        let size = rank.size() as usize;
        let byte = Layout::byte();
        let mut memory = vec![0u8; 16 * size];
        let data = TypedBuf {
            ptr: memory.as_mut_ptr(),
            count: 4,
            layout: &byte,
            memory: MemoryKind::Host,
        };
        let null = TypedBuf {
            ptr: std::ptr::null_mut(),
            ..data
        };
        let counts = vec![2; size + 1];
        let displacements = vec![0; size];
        let blocks = |counts| {
            portolan_coll::Many::Blocks(portolan_coll::BlocksArg {
                ptr: data.ptr,
                counts,
                displacements: &displacements,
                layout: &byte,
            })
        };
        let root = rank.size();
        let recv = portolan_coll::Many::Equal(data);
        let mut wrong = vec![
            (
                Operation::Bcast { data, root },
                ErrorKind::InvalidRank,
                "a root outside",
            ),
            (
                Operation::Bcast {
                    data: null,
                    root: 0,
                },
                ErrorKind::InvalidBuffer,
                "no buffer",
            ),
            (
                Operation::Allgather {
                    send: None,
                    recv: blocks(&counts),
                },
                ErrorKind::InvalidCount,
                "a count too many",
            ),
            (
                Operation::Alltoall {
                    send: Some(blocks(&counts[1..])),
                    recv,
                },
                ErrorKind::InvalidArgument,
                "two forms",
            ),
        ];
        if size > 1 {
            wrong.push((
                Operation::Allgather {
                    send: None,
                    recv: blocks(&counts[1..]),
                },
                ErrorKind::InvalidCount,
                "blocks that overlap",
            ));
        }
        for (operation, kind, what) in wrong {
            for call in Call::ALL {
                // SAFETY: buffers are not used where arguments are wrong.
                fails(unsafe { call.operation(comm, &operation) }, kind, what);
            }
        }
        // Nothing is left behind.
        // SAFETY: there are no buffers.
        unsafe { run(comm, &Operation::Barrier) }.expect("a barrier");
    });
    Ok(())
}
