//! Completion: from the end of an operation to the status in the caller's hands.

use crate::device::Completion;
use crate::engine::entry::Op;
use crate::engine::state::{Proto, State};
use crate::error::{Error, ErrorKind, Result};
use crate::request::{Request, State as Stage};
use crate::status::Status;
use crate::transport::Transport;

impl Proto {
    /// Completes an operation.
    #[inline]
    pub(super) fn complete(&mut self, index: u32, status: Status) {
        self.trace("complete", status.source, status.tag, status.bytes as usize);
        let entry = self.table.entry(index);
        entry.status = status;
        if !matches!(entry.op, Op::Upper(_)) {
            entry.set_op(Op::Idle);
        }
        if entry.rare.is_some() {
            return self.complete_rare(index);
        }
        if status.is_good() && entry.is_plain() {
            self.shared.words.set_quiet(index);
        } else {
            self.table.set_state(index, Stage::Complete);
        }
        self.shared.advance_epoch();
    }

    /// Completes an operation that has something attached or a parked thread waiting for it, or
    /// whose handle was given up.
    #[inline(never)]
    pub(super) fn complete_rare(&mut self, index: u32) {
        let entry = self.table.entry(index);
        let mut watched = false;
        let mut abandoned = false;
        if let Some(rare) = &mut entry.rare {
            let attached = rare.attached.take().into_iter();
            for completion in attached.chain(rare.attached_too.drain(..)) {
                run_attached(completion, &mut entry.status);
            }
            watched = std::mem::take(&mut rare.watched);
            abandoned = rare.abandoned;
        }
        if abandoned {
            self.table.abandoned -= 1;
            self.table.release(index);
        } else {
            self.table.set_state(index, Stage::Complete);
        }
        self.shared.advance_epoch();
        if watched {
            self.shared.wake_parked();
        }
    }

    /// Ends an operation whose peer has died.
    #[cold]
    pub(super) fn fail_request(&mut self, index: u32, peer: u32) {
        let why = self.active.failure_text(peer);
        let entry = self.table.entry(index);
        let (source, tag) = match &entry.op {
            Op::Recv(op) => (op.wanted.pattern().source, op.wanted.pattern().tag),
            _ => (None, None),
        };
        entry.rare().failure = Some((peer, why));
        let status = Status {
            source: source.unwrap_or(peer),
            tag: tag.unwrap_or(u32::MAX),
            error: Some(ErrorKind::PeerFailed),
            ..Status::EMPTY
        };
        self.complete(index, status);
    }

    /// The outcome of a request, if it is over; the request is then gone.
    #[inline]
    pub(super) fn try_collect(&mut self, request: Request) -> Option<Result<Status>> {
        if self.table.is_quiet(request) {
            return Some(Ok(self.table.take_quiet(request)));
        }
        match self.table.resolve(request) {
            Ok((_, Stage::Active)) => None,
            Ok((_, Stage::Inactive)) => Some(Ok(Status::EMPTY)),
            Ok((index, _)) => Some(self.collect(index)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Takes the outcome of a complete request: frees it, or makes it inactive if it is persistent.
    #[inline(never)]
    pub(super) fn collect(&mut self, index: u32) -> Result<Status> {
        let outcome = self.outcome(index);
        let entry = self.table.entry(index);
        if entry.persistent().is_some() {
            entry.set_op(Op::Idle);
            self.table.set_state(index, Stage::Inactive);
        } else {
            self.table.release(index);
        }
        outcome
    }

    /// The status of a complete request, which stays complete.
    #[inline]
    pub(super) fn status_of(&mut self, index: u32) -> Status {
        let entry = self.table.entry(index);
        match &mut entry.op {
            Op::Upper(upper) => upper.query(entry.status),
            _ => entry.status,
        }
    }

    fn outcome(&mut self, index: u32) -> Result<Status> {
        let status = self.status_of(index);
        match status.error {
            None => Ok(status),
            Some(kind) => Err(self.operation_error(index, kind, status)),
        }
    }

    #[cold]
    #[inline(never)]
    fn operation_error(&mut self, index: u32, kind: ErrorKind, status: Status) -> Error {
        let rare = self.table.entry(index).rare.as_mut();
        if let Some(error) = rare.and_then(|rare| rare.error.take()) {
            return error.with_status(status);
        }
        let rare = self.table.entry(index).rare.as_ref();
        match rare.and_then(|rare| rare.failure.clone()) {
            Some((peer, why)) if kind == ErrorKind::PeerFailed => Error::peer_failed(peer, &why)
                .with_status(status)
                .on_rank(self.me),
            _ => self.status_error(kind, status),
        }
    }

    /// The error that a status stands for.
    #[cold]
    #[inline(never)]
    pub(super) fn status_error(&self, kind: ErrorKind, status: Status) -> Error {
        let Status {
            source,
            tag,
            bytes,
            sent,
            ..
        } = status;
        let what = format!("a message of {sent} bytes from rank {source} with tag {tag}");
        let error = match kind {
            ErrorKind::Truncated => Error::new(
                kind,
                format!(
                    "{what} was cut to the buffer's {bytes} bytes, {} were lost",
                    sent - bytes
                ),
            )
            .remedy("receive into a larger buffer, or probe for the length first"),
            ErrorKind::TypeMismatch => Error::new(
                kind,
                format!("{what} is of another type than the receive; its data was dropped"),
            )
            .remedy("use the same element type on both sides, or bytes to receive anything"),
            ErrorKind::PeerMisbehaved => Error::new(kind, format!("{what} is damaged"))
                .remedy("run the same build of the program on all ranks; if they do, what is between them damages data"),
            ErrorKind::RemoteAccess => {
                Error::new(kind, "the peer refused the access: its region is gone")
                    .remedy("free regions after the last access, with a barrier between")
            }
            ErrorKind::Exhausted => Error::new(
                kind,
                "more operations are under way than the device can number",
            )
            .remedy("complete some of them before more are started"),
            _ => Error::new(kind, format!("the operation failed: {kind:?}")),
        };
        error.with_status(status).on_rank(self.me)
    }

    /// Gives up a request's handle.
    pub(super) fn free_request(&mut self, request: Request) -> Result<()> {
        let (index, stage) = self.table.resolve(request)?;
        match stage {
            Stage::Active => {
                let rare = self.table.entry(index).rare();
                rare.abandoned = true;
                rare.persistent = None;
                self.table.abandoned += 1;
            }
            _ => self.table.release(index),
        }
        Ok(())
    }

    /// Attaches a completion to a request, which keeps it until the operation is over.
    pub(super) fn attach(&mut self, request: Request, completion: Completion) -> Result<()> {
        let (index, stage) = self.table.resolve(request)?;
        let entry = self.table.entry(index);
        if stage != Stage::Active {
            run_attached(completion, &mut entry.status);
            // The completion may have turned the status into an error.
            self.table.set_state(index, stage);
            return Ok(());
        }
        let rare = entry.rare();
        if rare.attached.is_none() {
            rare.attached = Some(completion);
        } else {
            rare.attached_too.push(completion);
        }
        Ok(())
    }
}

/// Runs a completion that was attached to an operation that was over when it started. No slot keeps
/// its result, so an error is returned here.
pub(super) fn attach_to_nothing(completion: Completion) -> Result<()> {
    let mut status = Status::EMPTY;
    run_attached(completion, &mut status);
    match status.error {
        None => Ok(()),
        Some(kind) => Err(Error::new(
            kind,
            "what was attached to an operation that was over in its start has failed",
        )),
    }
}

fn run_attached(mut completion: Completion, status: &mut Status) {
    if let Some(then) = completion.then {
        *status = then(&mut *completion.keep, *status);
    }
}

impl<T: Transport> State<T> {
    /// Tries to cancel an active request.
    pub(super) fn cancel(&mut self, request: Request) -> Result<()> {
        let (index, stage) = self.proto.table.resolve(request)?;
        let entry = self.proto.table.entry(index);
        if let Op::Upper(upper) = &mut entry.op {
            let finish = upper.cancel(stage == Stage::Complete);
            if finish && stage == Stage::Active {
                self.proto.complete(index, Status::cancelled());
            }
            return Ok(());
        }
        if stage != Stage::Active {
            return Ok(());
        }
        if self.take_back(index) {
            self.release_offer(index);
            self.proto.counters.cancelled += 1;
            self.proto.complete(index, Status::cancelled());
        }
        Ok(())
    }

    /// Takes an operation that is not matched yet out of matching; `false` if it is too late.
    pub(super) fn take_back(&mut self, index: u32) -> bool {
        use crate::engine::entry::{RecvStage, SendStage};

        match &self.proto.table.entry(index).op {
            Op::Queued(op) => {
                let peer = op.args.dest.index();
                self.proto.unqueue_send(peer, index)
            }
            Op::Recv(op) => match op.stage {
                RecvStage::Posted(id) => self.proto.posted.cancel(id).is_some(),
                RecvStage::Matched | RecvStage::Arriving { .. } | RecvStage::Transfer(_) => false,
            },
            Op::Send(op) => {
                let (peer, word) = (op.args.dest.index(), op.word);
                match op.stage {
                    SendStage::Queued | SendStage::Unasked { left: 0 } => {
                        self.proto.unqueue_send(peer, index)
                    }
                    SendStage::Offered => {
                        word.is_some_and(|word| self.transport.offer_cancel(word))
                    }
                    SendStage::Looped(id) => self.proto.unexpected.take(id).is_some(),
                    SendStage::Unasked { .. }
                    | SendStage::Streaming
                    | SendStage::Pushing { .. }
                    | SendStage::Pushed
                    | SendStage::Unmatched => false,
                }
            }
            _ => false,
        }
    }

    /// Withdraws the exposures of a cancelled or failed operation. If the peer knows the word of a
    /// send, the peer closes it.
    pub(super) fn release_offer(&mut self, index: u32) {
        if let Some(op) = self.proto.table.recv(index)
            && let crate::engine::entry::RecvStage::Transfer(transfer) = &mut op.stage
            && let Some(opened) = transfer.opened.take()
        {
            self.transport.withdraw(&opened);
        }
        // The word of a send that is still queued was never shown to the peer.
        if let Op::Send(op) = &mut self.proto.table.entry(index).op {
            use crate::engine::entry::SendStage::{Queued, Unasked};
            let is_untold = matches!(op.stage, Queued | Unasked { .. });
            if let Some(word) = op.word.take()
                && is_untold
            {
                self.transport.offer_close(word);
            }
            if let Some(exposure) = op.exposure.take() {
                self.proto.exposed -= 1;
                self.transport.withdraw(&exposure);
            }
        }
    }
}
