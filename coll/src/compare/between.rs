//! Judges the calls of the ranks of two groups: which rank is the root for which, and what has to
//! be alike in both groups or in one.

use portolan_core::comm::InterCommunicator;
use portolan_core::{Device, TypedBuf};
use portolan_datatype::Op;

use super::data::Data;
use super::reduced::Reduced;
use super::{BlocksAs, Differing, Differs, Form, Side, Stamp, equal, gathered, mark, scattered};
use crate::args::{Many, Name};
use crate::inter::{InterOperation, Root};
use crate::units::reduction_between;

/// A rank among both groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    /// Its rank in the communicator of both.
    pub(super) rank: u32,
    /// Its rank in the job.
    pub(super) world_rank: u32,
    /// The first rank of its group in the communicator of both, and the group's size.
    pub(super) local: (u32, u32),
    /// The same of the other group.
    pub(super) remote: (u32, u32),
}

impl Stamp {
    /// The stamp of an operation between two groups.
    pub(crate) fn between<D: Device>(
        comm: &InterCommunicator<D>,
        operation: &InterOperation<'_>,
        form: Form,
    ) -> Self {
        let both = comm.merged();
        let at = At {
            rank: both.rank(),
            world_rank: both.device().attributes().world_rank,
            local: (comm.local_offset(), comm.size()),
            remote: (comm.remote_offset(), comm.remote_size()),
        };
        Self::between_at(&at, operation, form)
    }

    pub(super) fn between_at(at: &At, operation: &InterOperation<'_>, form: Form) -> Self {
        let (root, data) = facts(operation, at.local.1);
        let layout = reduction_between(operation).map(|(_, layout)| layout);
        let named = root.and_then(|root| match root {
            Root::Here => Some(at.rank),
            Root::Beside => None,
            Root::Remote(rank) => Some(at.remote.0 + rank),
        });
        Self {
            name: operation.name() as u8,
            form,
            // Between two groups, how blocks are given makes no difference.
            blocks_as: BlocksAs::Equal,
            has_root: named.is_some(),
            root: named.unwrap_or_default(),
            data,
            sent: sent(operation),
            reduced: Reduced::of(operator(operation), layout),
            blocks: blocks(operation, at),
            side: Some(Side {
                low: at.local.0 == 0,
                roots: root == Some(Root::Here),
                world_rank: at.world_rank,
            }),
        }
    }

    fn is_low(&self) -> bool {
        self.side.is_some_and(|side| side.low)
    }

    fn is_root(&self) -> bool {
        self.side.is_some_and(|side| side.roots)
    }

    fn world_rank(&self) -> u32 {
        self.side.map_or(0, |side| side.world_rank)
    }

    /// Whether the operation has a root.
    fn needs_root(&self) -> bool {
        [Name::Bcast, Name::Gather, Name::Scatter, Name::Reduce]
            .map(|name| name as u8)
            .contains(&self.name)
    }

    /// Whether both groups have to name the same data.
    fn is_of_both(&self) -> bool {
        [Name::Allreduce, Name::ReduceScatter]
            .map(|name| name as u8)
            .contains(&self.name)
    }
}

/// The operator, which ranks beside a root also pass.
fn operator<'a>(operation: &InterOperation<'a>) -> Option<&'a Op> {
    match *operation {
        InterOperation::Reduce { op, .. }
        | InterOperation::Allreduce { op, .. }
        | InterOperation::ReduceScatter { op, .. }
        | InterOperation::ReduceScatterBlock { op, .. } => Some(op),
        _ => None,
    }
}

/// The data that a rank sends to each of the others, where it also receives from each. It has to be
/// what the ranks of the other group receive.
fn sent(operation: &InterOperation<'_>) -> Data {
    match operation {
        InterOperation::Allgather { send, .. } => Data::of(send),
        InterOperation::Alltoall { send, .. } => Data::block(send),
        _ => Data::NONE,
    }
}

/// A hash of the lengths of all blocks, if this rank knows them; otherwise 0.
fn blocks(operation: &InterOperation<'_>, at: &At) -> u64 {
    match operation {
        InterOperation::ReduceScatter { recv, counts, .. } => mark(scattered(recv, counts)),
        InterOperation::ReduceScatterBlock { recv, .. } => equal(recv, at.local.1),
        InterOperation::Allgather { recv, .. } => gathered(recv, at.remote.1),
        InterOperation::Gather {
            recv: Some(whole),
            root: Root::Here,
            ..
        }
        | InterOperation::Scatter {
            send: Some(whole),
            root: Root::Here,
            ..
        } => gathered(whole, at.remote.1),
        _ => 0,
    }
}

/// The root, and the data on which ranks agree, in a group of `ranks` ranks.
fn facts(operation: &InterOperation<'_>, ranks: u32) -> (Option<Root>, Data) {
    let of = |buf: Option<&TypedBuf<'_>>| buf.map_or(Data::NONE, Data::of);
    match operation {
        InterOperation::Barrier => (None, Data::NONE),
        InterOperation::Bcast { data, root } => {
            let data = data.as_ref().filter(|_| *root != Root::Beside);
            (Some(*root), of(data))
        }
        InterOperation::Gather {
            send: own,
            recv: whole,
            root,
        }
        | InterOperation::Scatter {
            send: whole,
            recv: own,
            root,
        } => {
            let data = match (root, whole) {
                (Root::Here, Some(Many::Equal(block))) => Data::of(block),
                (Root::Here, whole) => Data::uneven(None, whole.as_ref()),
                (Root::Beside, _) => Data::NONE,
                (Root::Remote(_), _) => of(own.as_ref()),
            };
            (Some(*root), data)
        }
        InterOperation::Allgather { recv, .. } => match recv {
            Many::Equal(block) => (None, Data::of(block)),
            _ => (None, Data::uneven(None, Some(recv))),
        },
        InterOperation::Alltoall { recv, .. } => (None, Data::block(recv)),
        InterOperation::Reduce {
            send, recv, root, ..
        } => {
            let data = match root {
                Root::Here => of(recv.as_ref()),
                Root::Beside => Data::NONE,
                Root::Remote(_) => of(send.as_ref()),
            };
            (Some(*root), data)
        }
        InterOperation::Allreduce { recv, .. } => (None, Data::of(recv)),
        InterOperation::ReduceScatter { send, .. } => (None, Data::of(send)),
        InterOperation::ReduceScatterBlock { send, .. } => {
            (None, Data::items(send, send.count * ranks as usize))
        }
    }
}

/// The first difference, if any. Ranks are named by their ranks in the job.
pub(super) fn judge(stamps: &[Stamp]) -> Option<String> {
    let first = stamps.first()?;
    let all = |differs| find(first, stamps.iter(), differs);
    all(&Stamp::differs_in_call)
        .or_else(|| roots(stamps))
        .or_else(|| all(&Stamp::differs_in_operator))
        .or_else(|| data(stamps))
}

/// The first of `others` that differs from `one`, and how.
fn find<'a>(
    one: &Stamp,
    mut others: impl Iterator<Item = &'a Stamp>,
    differs: Differs<'_>,
) -> Option<String> {
    others.find_map(|other| differs(one, other).map(|differing| said(one, other, differing)))
}

fn said(one: &Stamp, other: &Stamp, (ones, others): Differing) -> String {
    let (first, second) = (other.world_rank(), one.world_rank());
    format!("world rank {first} calls {others}, world rank {second} calls {ones}")
}

/// Checks the roots. The root is in one group, in which all other ranks stand beside it, and every
/// rank of the other group names it.
fn roots(stamps: &[Stamp]) -> Option<String> {
    let Some(one) = stamps.iter().find(|stamp| stamp.has_root) else {
        let first = stamps.first().filter(|stamp| stamp.needs_root())?;
        return Some(format!("nobody is the root of {}", first.operation()));
    };
    let root = stamps.get(one.root as usize)?;
    let is_right = |(rank, stamp): &(u32, &Stamp)| {
        if stamp.is_low() != root.is_low() {
            stamp.has_root && stamp.root == one.root
        } else if *rank == one.root {
            stamp.is_root()
        } else {
            !stamp.has_root
        }
    };
    let (_, wrong) = (0..).zip(stamps).find(|each| !is_right(each))?;
    let seen = |stamp: &Stamp| {
        let name = stamp.operation();
        match stamps.get(stamp.root as usize).filter(|_| stamp.has_root) {
            _ if stamp.is_root() => format!("{name} as the root"),
            Some(root) => format!("{name} with world rank {} as the root", root.world_rank()),
            None => format!("{name} beside the root"),
        }
    };
    Some(said(one, wrong, one.both(wrong, seen)))
}

/// Checks the data. If there is a root, all ranks must name the same data as the root. Otherwise
/// the ranks of each group must name the same data, and for some operations both groups must.
fn data(stamps: &[Stamp]) -> Option<String> {
    if let Some(one) = stamps.iter().find(|stamp| stamp.has_root) {
        let root = stamps.get(one.root as usize)?;
        // Ranks beside the root have no items, and the root does not combine its own.
        let mut others = stamps
            .iter()
            .filter(|stamp| stamp.has_root && !stamp.is_root());
        return find(root, stamps.iter(), &Stamp::differs_in_data)
            .or_else(|| find(others.next()?, others, &Stamp::differs_in_items))
            .or_else(|| lengths(stamps));
    }
    let first = stamps.first()?;
    let both = first
        .is_of_both()
        .then(|| find(first, stamps.iter(), &Stamp::differs_in_data));
    let within = || {
        [true, false].into_iter().find_map(|low| {
            let mut group = group(stamps, low);
            let differs = |one: &Stamp, other: &Stamp| {
                one.differs_in_data(other)
                    .or_else(|| one.differs_in_blocks(other))
                    .or_else(|| one.differs_in_items(other))
            };
            find(group.next()?, group, &differs)
        })
    };
    let across = || {
        [true, false].into_iter().find_map(|low| {
            let receiver = group(stamps, low).next()?;
            find(receiver, group(stamps, !low), &differs_in_sent)
        })
    };
    both.flatten()
        .or_else(within)
        .or_else(across)
        .or_else(|| lengths(stamps))
}

fn group(stamps: &[Stamp], low: bool) -> impl Iterator<Item = &Stamp> {
    stamps.iter().filter(move |stamp| stamp.is_low() == low)
}

/// How what a rank sends differs from what a rank of the other group receives.
fn differs_in_sent(receiver: &Stamp, sender: &Stamp) -> Option<Differing> {
    let sends = Stamp {
        data: sender.sent,
        ..*sender
    };
    let (receives, sends) = receiver.differs_in_data(&sends)?;
    Some((format!("{receives} to receive"), format!("{sends} to send")))
}

/// Checks the lengths that a rank gives for all ranks of the other group, each of which gives its
/// own: at the root, or in an allgather.
fn lengths(stamps: &[Stamp]) -> Option<String> {
    let own: fn(&Stamp) -> Data = match stamps.first()?.name {
        name if name == Name::Allgather as u8 => |stamp| stamp.sent,
        name if name == Name::Gather as u8 || name == Name::Scatter as u8 => |stamp| stamp.data,
        _ => return None,
    };
    [true, false].into_iter().find_map(|low| {
        let all = group(stamps, low).find(|stamp| stamp.blocks != 0)?;
        let lens = group(stamps, !low).map(|stamp| own(stamp).bytes.unwrap_or_default() as usize);
        (all.blocks != mark(lens)).then(|| {
            let (rank, name) = (all.world_rank(), all.operation());
            format!(
                "world rank {rank} calls {name} with other counts than the ranks of the other group"
            )
        })
    })
}
