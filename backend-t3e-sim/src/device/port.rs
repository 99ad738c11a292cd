//! The port that handlers and hooks are given. Tagged messages go to MP_Lite, as those of the
//! device do; the rest goes to the engine that runs them.

use portolan_core::device::{Handler, HandlerId, Hook, HookId, Port, Upper};
use portolan_core::engine::Data;
use portolan_core::matching::Pattern;
use portolan_core::{Error, Group, ProcId, Request, Result, SendArgs, Status, TypedBuf};
use portolan_datatype::MsgRep;

use super::{State, Tagged};
use crate::progress::{Shared, finish};

/// A hook whose tagged messages go through MP_Lite.
pub(super) fn hooked(shared: Shared, mut hook: Hook) -> Hook {
    Box::new(move |engine| {
        let shared = &shared;
        hook(&mut Tags { engine, shared })
    })
}

/// A handler whose tagged messages go through MP_Lite.
pub(super) fn handled(shared: Shared, mut handler: Handler) -> Handler {
    Box::new(move |engine, message| {
        let shared = &shared;
        handler(&mut Tags { engine, shared }, message);
    })
}

/// The engine's port, except for tagged messages.
struct Tags<'a> {
    engine: &'a mut dyn Port,
    shared: &'a Shared,
}

impl Tags<'_> {
    /// Makes a request for a tagged operation, which `start` starts.
    fn tagged(&mut self, start: impl FnOnce(&mut State, Request)) -> Result<Request> {
        let request = self.engine.upper_request(Box::new(Tagged))?;
        start(&mut self.shared.lock(), request);
        finish(self.shared, self.engine);
        Ok(request)
    }
}

impl Port for Tags<'_> {
    fn me(&self) -> ProcId {
        self.engine.me()
    }

    /// In virtual time. Unlike the device's call, it takes none.
    fn wtime(&self) -> f64 {
        self.shared.lock().wire.clock().as_secs()
    }

    fn send(&mut self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8]) -> Result<()> {
        self.engine.send(to, id, args, payload)
    }

    unsafe fn isend(&mut self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::of(&buf, args.rep)?;
        // SAFETY: the caller's promise.
        self.tagged(|state, request| unsafe { state.start_send(request, args, data) })
    }

    unsafe fn irecv(&mut self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::of(&buf, MsgRep::Native)?;
        // SAFETY: the caller's promise.
        self.tagged(|state, request| unsafe { state.start_receive(request, from, data) })
    }

    fn test(&mut self, request: Request) -> Result<Option<Status>> {
        self.engine.test(request)
    }

    fn is_complete(&self, request: Request) -> bool {
        self.engine.is_complete(request)
    }

    fn cancel(&mut self, request: Request) -> Result<()> {
        if self.engine.is_complete(request) || !self.shared.lock().cancel(request) {
            return self.engine.cancel(request);
        }
        finish(self.shared, self.engine);
        Ok(())
    }

    fn upper_request(&mut self, upper: Box<dyn Upper>) -> Result<Request> {
        self.engine.upper_request(upper)
    }

    fn complete(&mut self, request: Request, status: Status) -> Result<()> {
        self.engine.complete(request, status)
    }

    fn fail(&mut self, request: Request, peer: ProcId) -> Result<()> {
        self.engine.fail(request, peer)
    }

    fn fail_with(&mut self, request: Request, error: Error) -> Result<()> {
        self.engine.fail_with(request, error)
    }

    fn dead_member(&self, group: &Group) -> Option<ProcId> {
        self.engine.dead_member(group)
    }

    fn wake_hook(&mut self, hook: HookId) {
        self.engine.wake_hook(hook);
    }

    fn notify(&mut self, peer: ProcId) {
        self.engine.notify(peer);
    }
}
