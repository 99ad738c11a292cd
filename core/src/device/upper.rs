//! Requests of other crates in the one request table.

use std::any::Any;

use crate::status::Status;

/// What a crate above attaches to its request (collective, RMA, generalised): MPI's
/// `MPI_Grequest_start` callbacks.
pub trait Upper: Send {
    /// The status to report, derived from the status that completed the request (`query_fn`).
    fn query(&mut self, status: Status) -> Status {
        status
    }

    /// Called when the program asks for the request to be cancelled; `complete` says whether it was
    /// already complete (`cancel_fn`). Returns whether the device should now complete it as
    /// cancelled.
    fn cancel(&mut self, complete: bool) -> bool {
        let _ = complete;
        false
    }
}

/// An action for when the operation of a request is over, whatever has become of its handle.
pub struct Completion {
    /// Dropped when the operation is over.
    pub keep: Box<dyn Any + Send>,
    /// Called with the outcome before `keep` is dropped; returns the status to report.
    pub then: Option<fn(&mut (dyn Any + Send), Status) -> Status>,
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion")
            .field("then", &self.then.is_some())
            .finish_non_exhaustive()
    }
}
