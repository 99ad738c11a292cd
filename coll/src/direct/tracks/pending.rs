//! Operations under way on tracks between the call that starts them and their end.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use portolan_core::Result;

use crate::direct::agree::odd::described;
use crate::direct::agree::verdict::Refused;
use crate::direct::boards::view::Boards;
use crate::direct::tracks::begun::Begun;
use crate::direct::tracks::hands::Hands;
use crate::direct::tracks::kept::Kept;

/// An operation on a track that is not over yet, with everything it needs.
pub(crate) struct Pending {
    /// Leaked if the operation never ends. That happens only when the device goes away, and the
    /// boards' memory with it.
    boards: ManuallyDrop<Arc<Boards>>,
    kept: Arc<Kept>,
    begun: Begun,
    /// Whether none of its data goes over boards.
    all_by_messages: bool,
    over: bool,
}

/// What an operation that has messages has seen on the boards.
pub(crate) struct Seen {
    /// Messages without a counterpart.
    pub(crate) refused: Vec<Refused>,
    /// Whether the operation must not wait for any of its messages any more.
    pub(crate) ends: bool,
    pub(crate) outcome: Result<()>,
}

impl Pending {
    pub(in crate::direct) fn new(
        boards: &Arc<Boards>,
        kept: Arc<Kept>,
        begun: Begun,
        all_by_messages: bool,
    ) -> Self {
        Self {
            all_by_messages,
            boards: ManuallyDrop::new(Arc::clone(boards)),
            kept,
            begun,
            over: false,
        }
    }

    /// Proceeds as far as possible; returns the outcome once the operation is over.
    ///
    /// # Safety
    /// The buffers are the operation's until it is over.
    pub(crate) unsafe fn advance(&mut self, hands: &mut dyn Hands) -> Option<Result<()>> {
        let boards = &**self.boards;
        if !self.begun.may_move(boards) {
            return None;
        }
        let operation = self.kept.operation();
        let mut call = boards.call(&operation);
        if !boards.describe(&mut call, &operation, self.begun.track) {
            return None;
        }
        // SAFETY: from the caller.
        unsafe {
            if !self.begun.show(boards, &call, hands) || !self.begun.look(boards, &call, hands) {
                return None;
            }
            let outcome = self.begun.take(boards, &call, hands);
            self.over = outcome.is_some();
            outcome
        }
    }

    /// For an operation that has messages: shows its part, takes its data from boards once all of
    /// it is there, and reports a rank that does not agree.
    ///
    /// # Safety
    /// The buffers are the operation's until it is over.
    pub(crate) unsafe fn watch(&mut self, hands: &mut dyn Hands) -> Seen {
        let boards = &**self.boards;
        let nothing = Seen {
            refused: Vec::new(),
            ends: false,
            outcome: Ok(()),
        };
        if self.over || !self.begun.may_see(boards) {
            return nothing;
        }
        let operation = self.kept.operation();
        let mut call = boards.call(&operation);
        if !boards.describe(&mut call, &operation, self.begun.track) {
            return nothing;
        }
        // SAFETY: from the caller.
        let shown = unsafe { self.begun.show(boards, &call, hands) };
        let all_seen = self.begun.look(boards, &call, hands);
        let outcome = if self.all_by_messages {
            match self.begun.take_odd() {
                None => Ok(()),
                Some((odd, mine)) => Err(described(boards.rank, (call.kind, mine), odd)),
            }
        } else if shown && all_seen {
            // SAFETY: from the caller.
            let outcome = unsafe { self.begun.take(boards, &call, hands) };
            self.over = outcome.is_some();
            outcome.unwrap_or(Ok(()))
        } else {
            Ok(())
        };
        Seen {
            refused: self.begun.take_refused(),
            ends: self.all_by_messages && outcome.is_err(),
            outcome,
        }
    }

    /// Whether the other ranks can already see that it has messages.
    pub(crate) fn is_shown(&self) -> bool {
        self.begun.shown
    }

    /// Whether its step no longer waits for any rank.
    pub(crate) fn may_end(&self) -> bool {
        self.over || self.begun.shown && self.all_by_messages
    }

    /// Ends the step of an operation that goes by messages, or that ends because a rank has died.
    pub(crate) fn give_up(&mut self, hands: &mut dyn Hands) {
        if !std::mem::replace(&mut self.over, true) {
            self.begun.give_up(&self.boards, hands);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.over {
            // SAFETY: the field is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.boards) };
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending")
            .field("step", &self.begun.step)
            .finish_non_exhaustive()
    }
}
