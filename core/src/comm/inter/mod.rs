//! Intercommunicators: two groups that talk to each other (MPI-4 section 7.6).
//!
//! A rank addresses ranks of the *other* group. Point-to-point messages go through a communicator
//! whose group is the remote one ([`InterCommunicator::messages`]). Everything that involves all
//! ranks goes through a second communicator, of both groups ([`InterCommunicator::merged`]): the
//! agreement on contexts here, and the collectives of `coll`. `create.rs` connects two groups that
//! share no communicator. `parts.rs` makes an intercommunicator of parts of two groups that are
//! connected already.

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
/// A rank addresses ranks of the *other* group. Messages go through [`messages`](Self::messages),
/// collective operations through [`merged`](Self::merged). It is a counted handle, like
/// [`Communicator`].
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
    /// Whether the caller's group comes first in the merged group.
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

    /// The communicator for messages between the groups. Its group is the remote one; its rank is
    /// the caller's rank in the local group. Collective calls on it return
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator). Its name, attributes and error mode
    /// are the intercommunicator's.
    #[inline]
    #[must_use]
    pub fn messages(&self) -> &Communicator<D> {
        &self.0.messages
    }

    /// The communicator of both groups, for collective operations. All ranks see the groups in the
    /// same order.
    #[inline]
    #[must_use]
    pub fn merged(&self) -> &Communicator<D> {
        &self.0.merged
    }

    /// The rank of the caller's group's first member in the [merged](Self::merged) communicator.
    #[must_use]
    pub fn local_offset(&self) -> u32 {
        if self.0.low { 0 } else { self.remote_size() }
    }

    /// The rank of the other group's first member in the [merged](Self::merged) communicator.
    #[must_use]
    pub fn remote_offset(&self) -> u32 {
        if self.0.low { self.size() } else { 0 }
    }

    /// Sets how errors are handled from now on, of messages and of collectives
    /// (`MPI_Comm_set_errhandler`).
    pub fn set_errors(&self, errors: Errors) {
        self.0.messages.set_errors(errors);
        self.0.merged.set_errors(errors);
    }

    /// Whether two handles refer to the same intercommunicator (`MPI_IDENT`).
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How alike two intercommunicators are (`MPI_Comm_compare`): the weaker result of comparing
    /// the local groups and the remote groups.
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

    /// A new intercommunicator of the same groups (`MPI_Comm_dup`). Each attribute is copied as its
    /// key says. Collective over both groups.
    ///
    /// # Errors
    /// As [`Communicator::dup`].
    pub fn dup(&self) -> Result<Self> {
        let merged = self.0.merged.dup()?;
        let new = Self::on(merged, &self.0.messages, self.0.local.clone(), self.0.low)?;
        new.0.messages.inherit_attributes(&self.0.messages)?;
        Ok(new)
    }

    /// A new communicator of both groups (`MPI_Intercomm_merge`). The group that passes `high`
    /// comes after the one that does not; if both pass the same, the order is unspecified.
    /// Collective over both groups, with the same `high` within each group.
    ///
    /// # Errors
    /// As [`Communicator::dup`], and [`InvalidArgument`](ErrorKind::InvalidArgument), on every
    /// rank, if the ranks of a group disagree about `high`.
    pub fn merge(&self, high: bool) -> Result<Communicator<D>> {
        let merged = &self.0.merged;
        // Two bits per group: all of its ranks pass high, all of its ranks pass low.
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

    /// The intercommunicator on top of `merged`, a communicator of both groups. Collective.
    fn on(
        merged: Communicator<D>,
        parent: &Communicator<D>,
        local: Group,
        low: bool,
    ) -> Result<Self> {
        let context = merged.agree(Call::Across)?;
        Self::with(merged, context, parent, local, low)
    }

    /// Like [`on`](Self::on), with a context for messages that has been agreed on already.
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
