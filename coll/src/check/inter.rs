//! Operations between two groups.

use portolan_core::buffer::TypedBuf;
use portolan_core::comm::InterCommunicator;
use portolan_core::{Device, ErrorKind, Result};

use super::Check;
use super::blocks::Places;
use crate::inter::{InterOperation, Root};

/// Checks the arguments of an operation on an intercommunicator.
///
/// # Errors
/// As [`check`](crate::check()); [`InvalidRank`](ErrorKind::InvalidRank) for a root outside of the
/// other group.
pub fn check_inter<D: Device>(
    comm: &InterCommunicator<D>,
    operation: &InterOperation<'_>,
) -> Result<()> {
    comm.merged().check_members()?;
    let both = Both {
        check: Check {
            comm: comm.merged(),
            name: operation.name(),
        },
        local: comm.size() as usize,
        rank: comm.rank() as usize,
        remote: comm.remote_size(),
    };
    let check = &both.check;
    match *operation {
        InterOperation::Barrier => Ok(()),
        InterOperation::Bcast { data, root } => {
            both.root(root)?;
            let (needs, beside) = (root != Root::Beside, data.is_none());
            both.has("the data", needs && beside)?;
            check.optional("the data", data.as_ref().filter(|_| needs))
        }
        InterOperation::Gather { send, recv, root } => {
            both.root(root)?;
            let (send, recv) = both.sides(root, send, recv)?;
            check.optional("the contribution", send.as_ref())?;
            let Some(recv) = recv else { return Ok(()) };
            check.form(&recv, true)?;
            check.target("the receive buffer", &recv, both.others())
        }
        InterOperation::Scatter { send, recv, root } => {
            both.root(root)?;
            let (recv, send) = both.sides(root, recv, send)?;
            check.optional("the receive buffer", recv.as_ref())?;
            let Some(send) = send else { return Ok(()) };
            check.form(&send, true)?;
            check.many("the send buffer", &send, both.others())
        }
        InterOperation::Allgather { send, recv } => {
            check.data("the contribution", &send)?;
            check.form(&recv, true)?;
            check.target("the receive buffer", &recv, both.others())
        }
        InterOperation::Alltoall { send, recv } => {
            check.many("the send buffer", &send, both.others())?;
            check.target("the receive buffer", &recv, both.others())
        }
        InterOperation::Reduce {
            send,
            recv,
            op,
            root,
        } => {
            both.root(root)?;
            let (send, recv) = both.sides(root, send, recv)?;
            check.optional("the contribution", send.as_ref())?;
            check.optional("the receive buffer", recv.as_ref())?;
            let data = send.or(recv);
            data.map_or(Ok(()), |data| check.operator(op, data.layout))
        }
        InterOperation::Allreduce { send, recv, op } => {
            check.reduction(Some(&send), &recv, op)?;
            check.alike(Some(&send), Some(&recv), 1)
        }
        InterOperation::ReduceScatter {
            send,
            recv,
            counts,
            op,
        } => {
            check.reduction(Some(&send), &recv, op)?;
            check.scattered(Some(&send), &recv, counts, both.local, both.rank)
        }
        InterOperation::ReduceScatterBlock { send, recv, op } => {
            check.reduction(Some(&send), &recv, op)?;
            check.all_blocks(&recv, both.local)?;
            check.alike(Some(&send), Some(&recv), 1)
        }
    }
}

/// A check between two groups.
struct Both<'a, D: Device> {
    check: Check<'a, D>,
    /// Number of ranks in the caller's group, and the caller's rank there.
    local: usize,
    rank: usize,
    remote: u32,
}

impl<D: Device> Both<'_, D> {
    fn others(&self) -> Places {
        Places {
            count: self.remote as usize,
            one: "remote rank",
        }
    }

    fn root(&self, root: Root) -> Result<()> {
        match root {
            Root::Remote(rank) if rank >= self.remote => {
                let what = format!(
                    "root {rank} is not in the other group of {} ranks",
                    self.remote
                );
                let remedy = "name the root by its rank in its own group";
                Err(self.check.error(ErrorKind::InvalidRank, &what, remedy))
            }
            _ => Ok(()),
        }
    }

    fn has(&self, which: &str, missing: bool) -> Result<()> {
        if !missing {
            return Ok(());
        }
        let what = format!("{which} of rank {} of its group is missing", self.rank);
        let remedy = "pass the buffer: there is no form in place between two groups";
        Err(self.check.error(ErrorKind::InvalidBuffer, &what, remedy))
    }

    /// The buffers that are used: a rank's own for one that talks to a root, the whole for the
    /// root. Each must be there.
    fn sides<'b, W>(
        &self,
        root: Root,
        own: Option<TypedBuf<'b>>,
        whole: Option<W>,
    ) -> Result<(Option<TypedBuf<'b>>, Option<W>)> {
        match root {
            Root::Beside => Ok((None, None)),
            Root::Here => {
                self.has("the root's buffer", whole.is_none())?;
                Ok((None, whole))
            }
            Root::Remote(_) => {
                self.has("the buffer", own.is_none())?;
                Ok((own, None))
            }
        }
    }
}
