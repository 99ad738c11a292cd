//! Intercommunicators: two groups that talk to each other (MPI-4 section 7.6).
//!
//! A rank names ranks of the *other* group. Point-to-point messages go through a communicator whose
//! group is the remote one ([`InterCommunicator::messages`]). Everything that concerns all ranks
//! goes through a second one, of both groups ([`InterCommunicator::merged`]): agreeing on contexts
//! here, the collectives of `coll`. `create.rs` says how two groups that share no communicator come
//! to have that, `parts.rs` how parts of two groups that have one come to have another.

mod create;
mod later;
mod link;
mod parts;

use std::sync::Arc;

pub use create::RemoteLeader;
pub use later::PendingInterDup;
pub(super) use link::Attempts;

use super::meet::Call;
use super::{Communicator, Errors, New};
use crate::device::Device;
use crate::error::{ErrorKind, Result};
use crate::group::{Comparison, Group};

/// Two groups that talk to each other, and the caller's place in one of them (MPI-4 section 7.6).
///
/// A rank names ranks of the *other* group: messages go by [`messages`](Self::messages), what
/// concerns all ranks by [`merged`](Self::merged). A counted handle, as [`Communicator`] is.
#[derive(Debug)]
pub struct InterCommunicator<D: Device>(Arc<Inner<D>>);

impl<D: Device> Clone for InterCommunicator<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<D: Device> {
    messages: Communicator<D>,
    merged: Communicator<D>,
    local: Group,
    /// Whether the caller's group comes first in the merged one.
    low: bool,
}

impl<D: Device> InterCommunicator<D> {
    /// The caller's rank in its own group (`MPI_Comm_rank`).
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.0.messages.rank()
    }

    /// Number of ranks in the caller's group (`MPI_Comm_size`).
    #[must_use]
    pub fn size(&self) -> u32 {
        self.0.local.size()
    }

    /// Number of ranks in the other group (`MPI_Comm_remote_size`).
    #[must_use]
    pub fn remote_size(&self) -> u32 {
        self.remote_group().size()
    }

    /// The caller's group (`MPI_Comm_group`).
    #[must_use]
    pub fn local_group(&self) -> &Group {
        &self.0.local
    }

    /// The other group (`MPI_Comm_remote_group`).
    #[must_use]
    pub fn remote_group(&self) -> &Group {
        self.0.messages.group()
    }

    /// The communicator that messages between the groups go through: its group is the remote one,
    /// its rank the caller's in the local one. Collective calls on it are
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator). Its name, attributes and error mode
    /// are the intercommunicator's.
    #[inline]
    #[must_use]
    pub fn messages(&self) -> &Communicator<D> {
        &self.0.messages
    }

    /// The communicator of both groups, for collective operations; the same order everywhere.
    #[inline]
    #[must_use]
    pub fn merged(&self) -> &Communicator<D> {
        &self.0.merged
    }

    /// The rank that the first of the caller's group has in the [merged](Self::merged) one.
    #[must_use]
    pub fn local_offset(&self) -> u32 {
        if self.0.low { 0 } else { self.remote_size() }
    }

    /// The rank that the first of the other group has in the [merged](Self::merged) one.
    #[must_use]
    pub fn remote_offset(&self) -> u32 {
        if self.0.low { self.size() } else { 0 }
    }

    /// Says what becomes of errors from now on, of messages and of collectives
    /// (`MPI_Comm_set_errhandler`).
    pub fn set_errors(&self, errors: Errors) {
        self.0.messages.set_errors(errors);
        self.0.merged.set_errors(errors);
    }

    /// Whether two handles are of the same intercommunicator (`MPI_IDENT`).
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How alike two intercommunicators are (`MPI_Comm_compare`): what holds of both groups.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        if self.same_as(other) {
            return Comparison::Identical;
        }
        let local = self.local_group().compare(other.local_group());
        let remote = self.remote_group().compare(other.remote_group());
        match (local, remote) {
            (Comparison::Unequal, _) | (_, Comparison::Unequal) => Comparison::Unequal,
            (Comparison::Similar, _) | (_, Comparison::Similar) => Comparison::Similar,
            _ => Comparison::Congruent,
        }
    }

    /// Another one of the same groups (`MPI_Comm_dup`). Attributes are copied as their keys say.
    /// Collective over both groups.
    ///
    /// # Errors
    /// As [`Communicator::dup`].
    pub fn dup(&self) -> Result<Self> {
        let merged = self.0.merged.dup()?;
        let new = Self::on(merged, &self.0.messages, self.0.local.clone(), self.0.low)?;
        new.0.messages.inherit_attributes(&self.0.messages);
        Ok(new)
    }

    /// The communicator of both groups (`MPI_Intercomm_merge`): the group that says `high` comes
    /// after the one that does not; if both say the same, some order. Collective over both groups,
    /// with one `high` in each.
    ///
    /// # Errors
    /// As [`Communicator::dup`], and [`InvalidArgument`](ErrorKind::InvalidArgument), on every
    /// rank, if the ranks of a group disagree about `high`.
    pub fn merge(&self, high: bool) -> Result<Communicator<D>> {
        let merged = &self.0.merged;
        // Two bits for each group: all of it say high, all of it say low.
        let mine = if high { 0b01 } else { 0b10 };
        let mut said = [if self.0.low {
            mine | 0b1100
        } else {
            mine << 2 | 0b0011
        }];
        merged.meet(Call::Merge)?;
        merged.and_words(&mut said)?;
        let (first, second) = (said[0] & 0b11, said[0] >> 2 & 0b11);
        if first == 0 || second == 0 {
            return Err(merged.error(
                ErrorKind::InvalidArgument,
                "the ranks of a group disagree about which group is the high one".to_owned(),
                "give the same on all ranks of a group",
            ));
        }
        let context = merged.decide()?;
        let turned = (first, second) == (0b01, 0b10);
        let first = turned != self.0.low;
        let (local, remote) = (self.local_group(), self.remote_group());
        let (group, offset) = if first {
            (local.union(remote), 0)
        } else {
            (remote.union(local), self.remote_size())
        };
        self.0
            .messages
            .derive(group, offset + self.rank(), context, None)
    }

    /// What stands on a communicator of both groups. Collective.
    fn on(
        merged: Communicator<D>,
        parent: &Communicator<D>,
        local: Group,
        low: bool,
    ) -> Result<Self> {
        let context = merged.agree(Call::Across)?;
        Self::with(merged, context, parent, local, low)
    }

    /// The same with a context that has been agreed on.
    fn with(
        merged: Communicator<D>,
        context: u32,
        parent: &Communicator<D>,
        local: Group,
        low: bool,
    ) -> Result<Self> {
        let all = merged.group();
        let (start, end) = if low {
            (local.size(), all.size())
        } else {
            (0, all.size() - local.size())
        };
        let others: Vec<u32> = (start..end).collect();
        let rank = if low {
            merged.rank()
        } else {
            merged.rank() - end
        };
        let new = New {
            parent: Some(parent),
            group: all.include(&others)?,
            rank,
            context,
            collective: false,
            errors: parent.errors(),
            name: format!("{}+", parent.name()),
            topology: None,
        };
        let (device, job) = (Arc::clone(&merged.0.device), Arc::clone(&merged.0.job));
        let messages = Communicator::build(device, job, new)?;
        Ok(Self(Arc::new(Inner {
            messages,
            merged,
            local,
            low,
        })))
    }
}
