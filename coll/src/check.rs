//! Validation: everything that can be known to be wrong before any message is sent.
//!
//! The same for every form of a call. What only the other ranks know (another operation, another count) is
//! for [`crate::compare`].

use portolan_core::buffer::TypedBuf;
use portolan_core::comm::Communicator;
use portolan_core::{Device, Error, ErrorKind, Result};
use portolan_datatype::{Layout, Op};

use crate::args::{Many, Name, Operation};

/// Checks the arguments of an operation on a communicator.
///
/// # Errors
/// [`InvalidRank`](ErrorKind::InvalidRank) for the root, [`InvalidCount`](ErrorKind::InvalidCount) for
/// counts and displacements, [`InvalidBuffer`](ErrorKind::InvalidBuffer) for buffers that are missing,
/// [`InvalidLayout`](ErrorKind::InvalidLayout) for layouts that the operator does not know;
/// [`PeerFailed`](ErrorKind::PeerFailed) if a member is known to be dead.
pub fn check<D: Device>(comm: &Communicator<D>, operation: &Operation<'_>) -> Result<()> {
    comm.check_members()?;
    let check = Check {
        comm,
        name: operation.name(),
    };
    match *operation {
        Operation::Barrier => Ok(()),
        Operation::Bcast { data, root } => {
            check.root(root)?;
            check.data("the data", &data)
        }
        Operation::Gather {
            send,
            recv,
            root,
            uneven,
        } => {
            check.root(root)?;
            check.rooted(root, "receive", recv.is_some(), send.is_some())?;
            check.optional("the contribution", send.as_ref())?;
            let Some(recv) = recv.filter(|_| comm.rank() == root) else {
                return Ok(());
            };
            check.form(&recv, uneven)?;
            check.target("the receive buffer", &recv)?;
            check.own_block(send.as_ref(), &recv, "the contribution")
        }
        Operation::Scatter {
            send,
            recv,
            root,
            uneven,
        } => {
            check.root(root)?;
            check.rooted(root, "send", send.is_some(), recv.is_some())?;
            check.optional("the receive buffer", recv.as_ref())?;
            let Some(send) = send.filter(|_| comm.rank() == root) else {
                return Ok(());
            };
            check.form(&send, uneven)?;
            check.many("the send buffer", &send)?;
            check.own_block(recv.as_ref(), &send, "the receive buffer")
        }
        Operation::Allgather { send, recv } => {
            check.optional("the contribution", send.as_ref())?;
            check.form(&recv, true)?;
            check.target("the receive buffer", &recv)?;
            check.own_block(send.as_ref(), &recv, "the contribution")
        }
        Operation::Alltoall { send, recv } => {
            if let Some(send) = &send {
                check.many("the send buffer", send)?;
                check.same_form(send, &recv)?;
            }
            check.target("the receive buffer", &recv)?;
            let send = send.as_ref();
            send.map_or(Ok(()), |send| check.to_itself(send, &recv))
        }
        Operation::Reduce {
            send,
            recv,
            op,
            root,
        } => {
            check.root(root)?;
            check.rooted(root, "receive", recv.is_some(), send.is_some())?;
            let recv = recv.filter(|_| comm.rank() == root);
            check.optional("the contribution", send.as_ref())?;
            check.optional("the receive buffer", recv.as_ref())?;
            check.alike(send.as_ref(), recv.as_ref(), 1)?;
            let data = send.or(recv);
            data.map_or(Ok(()), |data| check.operator(op, data.layout))
        }
        Operation::Allreduce { send, recv, op } | Operation::Scan { send, recv, op, .. } => {
            check.reduction(send.as_ref(), &recv, op)?;
            check.alike(send.as_ref(), Some(&recv), 1)
        }
        Operation::ReduceScatter {
            send,
            recv,
            counts,
            op,
        } => {
            check.reduction(send.as_ref(), &recv, op)?;
            check.scattered(send.as_ref(), &recv, counts)
        }
        Operation::ReduceScatterBlock { send, recv, op } => {
            check.reduction(send.as_ref(), &recv, op)?;
            let all = recv.count.checked_mul(comm.size() as usize);
            let reach = all.map(|all| recv.layout.span(all).is_ok());
            if reach != Some(true) {
                return Err(check.wrong("the blocks overflow the address space", "use fewer items"));
            }
            check.alike(send.as_ref(), Some(&recv), 1)
        }
        Operation::NeighbourAllgather { send, .. } => check.data("the contribution", &send),
        Operation::NeighbourAlltoall { .. } => Ok(()),
    }
}

struct Check<'a, D: Device> {
    comm: &'a Communicator<D>,
    name: Name,
}

impl<D: Device> Check<'_, D> {
    #[cold]
    fn error(&self, kind: ErrorKind, what: &str, remedy: &str) -> Error {
        let what = format!("{}: {what}", self.name);
        self.comm.error(kind, what, remedy)
    }

    #[cold]
    fn wrong(&self, what: &str, remedy: &str) -> Error {
        self.error(ErrorKind::InvalidCount, what, remedy)
    }

    fn root(&self, root: u32) -> Result<()> {
        self.comm.check_rank("root", root)
    }

    /// The root has a buffer for all; whoever is not the root has one for its own part.
    fn rooted(&self, root: u32, whole: &str, has_whole: bool, has_own: bool) -> Result<()> {
        let rank = self.comm.rank();
        let what = if rank == root && !has_whole {
            format!("rank {rank} is the root and has no {whole} buffer")
        } else if rank != root && !has_own {
            format!(
                "rank {rank} is not the root {root} and has no buffer of its own: only the root can work in place"
            )
        } else {
            return Ok(());
        };
        Err(self.error(ErrorKind::InvalidBuffer, &what, "pass the buffer"))
    }

    fn optional(&self, which: &str, data: Option<&TypedBuf<'_>>) -> Result<()> {
        data.map_or(Ok(()), |data| self.data(which, data))
    }

    fn data(&self, which: &str, data: &TypedBuf<'_>) -> Result<()> {
        self.items(which, data.ptr, data.count, data.layout)
    }

    fn items(&self, which: &str, ptr: *mut u8, count: usize, layout: &Layout) -> Result<()> {
        let reach = layout.span(count).map_err(Error::from)?;
        let bytes = layout.size().checked_mul(count);
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            let what = format!("{which} of {count} items is longer than the address space");
            return Err(self.wrong(&what, "use fewer items"));
        }
        if ptr.is_null() && !reach.is_empty() {
            let what = format!("{which} is null, with {count} items");
            let remedy =
                "collective operations take no absolute displacements: pass the buffer's address";
            return Err(self.error(ErrorKind::InvalidBuffer, &what, remedy));
        }
        Ok(())
    }

    /// Blocks that are read.
    fn many(&self, which: &str, many: &Many<'_>) -> Result<()> {
        let size = self.comm.size() as usize;
        let listed = |counts: &[usize], displacements: &[isize], layouts: usize| {
            if (counts.len(), displacements.len(), layouts) == (size, size, size) {
                return Ok(());
            }
            let what = format!(
                "{which} has {} count(s) and {} displacement(s) for {size} rank(s)",
                counts.len(),
                displacements.len()
            );
            Err(self.wrong(&what, "give one of each for every rank of the communicator"))
        };
        match many {
            Many::Equal(buf) => {
                let Some(all) = buf.count.checked_mul(size) else {
                    let what = format!(
                        "{which} of {} items for each of {size} ranks overflows",
                        buf.count
                    );
                    return Err(self.wrong(&what, "use fewer items"));
                };
                self.items(which, buf.ptr, all, buf.layout)
            }
            Many::Blocks(of) => {
                listed(of.counts, of.displacements, size)?;
                (0..size).try_for_each(|rank| {
                    self.block(which, rank, of.ptr, of.counts[rank], of.layout)?;
                    self.place(which, rank, of.displacements[rank], of.layout.extent())
                })
            }
            Many::Layouts(of) => {
                listed(of.counts, of.displacements, of.layouts.len())?;
                (0..size).try_for_each(|rank| {
                    self.block(which, rank, of.ptr, of.counts[rank], &of.layouts[rank])?;
                    self.place(which, rank, of.displacements[rank], 1)
                })
            }
        }
    }

    fn block(
        &self,
        which: &str,
        rank: usize,
        ptr: *mut u8,
        count: usize,
        layout: &Layout,
    ) -> Result<()> {
        self.items(
            &format!("the block of rank {rank} in {which}"),
            ptr,
            count,
            layout,
        )
    }

    fn place(&self, which: &str, rank: usize, displacement: isize, unit: isize) -> Result<()> {
        if displacement.checked_mul(unit).is_some() {
            return Ok(());
        }
        let what = format!("displacement {displacement} of rank {rank} in {which} overflows");
        Err(self.wrong(&what, "use displacements within the buffer"))
    }

    /// Blocks that are written: none may overlap another.
    fn target(&self, which: &str, many: &Many<'_>) -> Result<()> {
        self.many(which, many)?;
        let mut reaches: Vec<(isize, isize, usize)> = match many {
            Many::Equal(_) => return Ok(()),
            Many::Blocks(of) => {
                let places = of.counts.iter().zip(of.displacements);
                let reach = |(&count, &at): (&usize, &isize)| {
                    reach(of.layout, count, at * of.layout.extent())
                };
                places
                    .map(reach)
                    .enumerate()
                    .map(|(rank, (low, high))| (low, high, rank))
                    .collect()
            }
            Many::Layouts(of) => {
                let places = of.counts.iter().zip(of.displacements).zip(of.layouts);
                let reach =
                    |((&count, &at), layout): ((&usize, &isize), &Layout)| reach(layout, count, at);
                places
                    .map(reach)
                    .enumerate()
                    .map(|(rank, (low, high))| (low, high, rank))
                    .collect()
            }
        };
        // Blocks of layouts with gaps may be woven into each other without sharing a byte: only reaches of
        // layouts without gaps are compared.
        let dense = match many {
            Many::Equal(_) => true,
            Many::Blocks(of) => of.layout.is_contiguous(),
            Many::Layouts(of) => of.layouts.iter().all(Layout::is_contiguous),
        };
        if !dense {
            return Ok(());
        }
        reaches.retain(|(low, high, _)| low < high);
        reaches.sort_unstable();
        match reaches.windows(2).find(|pair| pair[1].0 < pair[0].1) {
            None => Ok(()),
            Some(pair) => {
                let what = format!(
                    "the blocks of ranks {} and {} overlap in {which}",
                    pair[0].2, pair[1].2
                );
                Err(self.wrong(&what, "give every rank a place of its own"))
            }
        }
    }

    /// Layouts per rank are for alltoall only, lengths per rank only where all ranks have said so.
    fn form(&self, many: &Many<'_>, uneven: bool) -> Result<()> {
        let (what, remedy) = match many {
            Many::Equal(_) => return Ok(()),
            Many::Blocks(_) if uneven => return Ok(()),
            Many::Blocks(_) => (
                "counts per rank where all ranks take part with one length",
                "set `uneven` on all ranks",
            ),
            Many::Layouts(_) => (
                "layouts per rank, which this operation does not have",
                "use one layout for all blocks",
            ),
        };
        Err(self.error(ErrorKind::InvalidArgument, what, remedy))
    }

    /// What a rank sends to itself is as long as what it expects.
    fn own_block(&self, own: Option<&TypedBuf<'_>>, many: &Many<'_>, which: &str) -> Result<()> {
        let Some(own) = own else { return Ok(()) };
        let rank = self.comm.rank();
        let (has, block) = (own.count * own.layout.size(), bytes_of(many, rank));
        if has == block {
            return Ok(());
        }
        let what =
            format!("{which} of rank {rank} has {has} bytes, its block in the other buffer {block}");
        Err(self.wrong(&what, "use equal lengths for both"))
    }

    fn to_itself(&self, send: &Many<'_>, recv: &Many<'_>) -> Result<()> {
        let rank = self.comm.rank();
        let (sent, expected) = (bytes_of(send, rank), bytes_of(recv, rank));
        if sent == expected {
            return Ok(());
        }
        let what =
            format!("rank {rank} sends {sent} bytes to itself and expects {expected} from itself");
        Err(self.wrong(&what, "use equal lengths for both"))
    }

    fn same_form(&self, send: &Many<'_>, recv: &Many<'_>) -> Result<()> {
        let same = std::mem::discriminant(send) == std::mem::discriminant(recv);
        if same {
            return Ok(());
        }
        let what = "the send and the receive buffer are described in different forms";
        Err(self.error(
            ErrorKind::InvalidArgument,
            what,
            "use the same form for both",
        ))
    }

    fn reduction(&self, send: Option<&TypedBuf<'_>>, recv: &TypedBuf<'_>, op: &Op) -> Result<()> {
        self.optional("the contribution", send)?;
        self.data("the receive buffer", recv)?;
        self.operator(op, recv.layout)
    }

    fn operator(&self, op: &Op, layout: &Layout) -> Result<()> {
        op.check(layout).map_err(|error| {
            let remedy = "use an operator that knows the type, or one of your own (Op::new)";
            self.error(ErrorKind::InvalidLayout, &error.to_string(), remedy)
        })
    }

    /// Contribution and result have one layout and one count.
    fn alike(
        &self,
        send: Option<&TypedBuf<'_>>,
        recv: Option<&TypedBuf<'_>>,
        blocks: usize,
    ) -> Result<()> {
        let (Some(send), Some(recv)) = (send, recv) else {
            return Ok(());
        };
        if send.count != recv.count * blocks {
            let what = format!(
                "the contribution has {} items, the receive buffer {}",
                send.count, recv.count
            );
            return Err(self.wrong(&what, "use the same count for both"));
        }
        self.one_layout(send, recv)
    }

    fn one_layout(&self, send: &TypedBuf<'_>, recv: &TypedBuf<'_>) -> Result<()> {
        let shape = |layout: &Layout| {
            (
                layout.size(),
                layout.extent(),
                layout.lb(),
                layout.true_extent(),
            )
        };
        if shape(send.layout) == shape(recv.layout) {
            return Ok(());
        }
        let what = "the contribution and the receive buffer have different layouts";
        Err(self.error(
            ErrorKind::InvalidLayout,
            what,
            "use the same layout for both",
        ))
    }

    fn scattered(
        &self,
        send: Option<&TypedBuf<'_>>,
        recv: &TypedBuf<'_>,
        counts: &[usize],
    ) -> Result<()> {
        let (size, rank) = (self.comm.size() as usize, self.comm.rank() as usize);
        if counts.len() != size {
            let what = format!("{} count(s) for {size} rank(s)", counts.len());
            return Err(self.wrong(&what, "give one count for every rank"));
        }
        let total = counts
            .iter()
            .try_fold(0usize, |sum, &count| sum.checked_add(count));
        let (has, wants) = match send {
            Some(send) => (Some(send.count), total),
            None => (Some(recv.count), total),
        };
        if has != wants {
            let what = format!(
                "the contribution has {} items, the counts sum up to {}",
                has.unwrap_or_default(),
                wants.map_or("more than the address space".to_owned(), |sum| sum
                    .to_string())
            );
            return Err(self.wrong(&what, "contribute as many items as all ranks get"));
        }
        match send {
            Some(send) => {
                if recv.count < counts[rank] {
                    let what = format!(
                        "the receive buffer has {} items, the block of rank {rank} {}",
                        recv.count, counts[rank]
                    );
                    return Err(self.wrong(&what, "make room for the own block"));
                }
                self.one_layout(send, recv)
            }
            None => Ok(()),
        }
    }
}

/// Bytes of data of a rank's block; lists and lengths have been checked.
fn bytes_of(many: &Many<'_>, rank: u32) -> usize {
    let rank = rank as usize;
    match many {
        Many::Equal(buf) => buf.count * buf.layout.size(),
        Many::Blocks(of) => of.counts[rank] * of.layout.size(),
        Many::Layouts(of) => of.counts[rank] * of.layouts[rank].size(),
    }
}

/// The bytes that a block touches, relative to its buffer.
fn reach(layout: &Layout, count: usize, at: isize) -> (isize, isize) {
    // The reach was computed before, without overflow.
    let reach = layout.span(count).unwrap_or(0..0);
    (reach.start.saturating_add(at), reach.end.saturating_add(at))
}
