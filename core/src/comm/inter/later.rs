//! Duplicates of intercommunicators whose contexts are agreed on in the background.

use super::InterCommunicator;
use crate::comm::attributes::Attributes;
use crate::comm::gate::Gate;
use crate::comm::{Errors, PendingDup};
use crate::device::Device;
use crate::error::Result;
use crate::request::Request;

/// A duplicate of an intercommunicator that is being made ([`InterCommunicator::idup`]).
///
/// Dropping it gives up the duplicate. The agreement still runs to its end, because the other ranks
/// take part in it.
#[must_use = "dropping it gives the duplicate up"]
pub struct PendingInterDup<D: Device> {
    parent: InterCommunicator<D>,
    /// The communicator of both groups, and below it the context for messages between them.
    merged: PendingDup<D>,
    messages: PendingDup<D>,
    // As they were at the time of the call.
    attributes: Attributes,
    errors: Errors,
}

impl<D: Device> InterCommunicator<D> {
    /// Starts to make a new intercommunicator of the same groups (`MPI_Comm_idup`);
    /// [`PendingInterDup::wait`] returns it. It inherits attributes and error mode as they are now.
    /// Collective over both groups, like [`Communicator::idup`](crate::comm::Communicator::idup).
    ///
    /// # Errors
    /// As [`Communicator::idup`](crate::comm::Communicator::idup).
    pub fn idup(&self) -> Result<PendingInterDup<D>> {
        self.idup_after(|| Ok(None))
    }

    /// Like [`idup`](Self::idup), but sends its first message only when a request has completed
    /// that `first` returns, as [`Communicator::idup_after`](crate::comm::Communicator::idup_after)
    /// does.
    ///
    /// # Errors
    /// As [`idup`](Self::idup), before `first` is called; those of `first`.
    pub fn idup_after(
        &self,
        first: impl FnOnce() -> Result<Option<Request>>,
    ) -> Result<PendingInterDup<D>> {
        let (merged, messages) = (self.merged(), self.messages());
        // First, because the copy hooks belong to the program and may fail or panic.
        let attributes = messages.copied_attributes()?;
        // Both are ready before either begins. If only one had begun when this call failed, it
        // would be the agreement that the other ranks take for the first one of the next call.
        let (new, below) = (merged.ready_to_dup()?, merged.ready_to_dup()?);
        let gate = first()?.map(Gate::new);
        Ok(PendingInterDup {
            parent: self.clone(),
            merged: new.begin(gate.clone()),
            messages: below.begin(gate),
            attributes,
            errors: messages.errors(),
        })
    }
}

impl<D: Device> PendingInterDup<D> {
    /// The intercommunicator that is being duplicated.
    #[must_use]
    pub fn parent(&self) -> &InterCommunicator<D> {
        &self.parent
    }

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.merged.is_complete() && self.messages.is_complete()
    }

    /// Waits until the duplicate is made, and returns it.
    ///
    /// # Errors
    /// As [`InterCommunicator::dup`].
    pub fn wait(self) -> Result<InterCommunicator<D>> {
        let merged = self.merged.wait()?;
        let context = self.messages.wait_for_context()?;
        let parent = &self.parent;
        let local = parent.local_group().clone();
        let new = InterCommunicator::with(merged, context, parent.messages(), local, parent.0.low)?;
        new.messages().set_errors(self.errors);
        new.messages().set_attributes(self.attributes);
        Ok(new)
    }
}

impl<D: Device> std::fmt::Debug for PendingInterDup<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingInterDup")
            .field("merged", &self.merged)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}
