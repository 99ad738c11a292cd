//! The port of handlers and hooks: it passes tagged messages to the provider, as the device does,
//! and everything else to the engine that runs the handlers.

use std::sync::Arc;

use portolan_core::device::{Handler, HandlerId, Hook, HookId, Port, Upper};
use portolan_core::engine::Data;
use portolan_core::matching::Pattern;
use portolan_core::{Error, Group, ProcId, Request, Result, SendArgs, Status, TypedBuf};
use portolan_datatype::MsgRep;

use super::Tagged;
use super::packets::{Shared, Wish, finish};

/// A hook whose messages the provider matches.
pub(super) fn hooked(shared: Arc<Shared>, mut hook: Hook) -> Hook {
    Box::new(move |engine| {
        let shared = &*shared;
        hook(&mut Tags { engine, shared })
    })
}

/// A handler whose messages the provider matches.
pub(super) fn handled(shared: Arc<Shared>, mut handler: Handler) -> Handler {
    Box::new(move |engine, message| {
        let shared = &*shared;
        handler(&mut Tags { engine, shared }, message);
    })
}

/// The engine's port, but for tagged messages.
struct Tags<'a> {
    engine: &'a mut dyn Port,
    shared: &'a Shared,
}

impl Tags<'_> {
    /// A request for a tagged operation.
    fn tagged(&mut self, wish: impl FnOnce(Request) -> Wish) -> Result<Request> {
        let request = self.engine.upper_request(Box::new(Tagged))?;
        self.shared.ask(wish(request));
        finish(self.shared, self.engine);
        Ok(request)
    }
}

impl Port for Tags<'_> {
    fn me(&self) -> ProcId {
        self.engine.me()
    }

    fn wtime(&self) -> f64 {
        self.engine.wtime()
    }

    fn send(&mut self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8]) -> Result<()> {
        self.engine.send(to, id, args, payload)
    }

    unsafe fn isend(&mut self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::of(&buf, args.rep)?;
        self.shared.check_send(args)?;
        self.tagged(|request| Wish::Send(request, *args, data))
    }

    unsafe fn irecv(&mut self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::of(&buf, MsgRep::Native)?;
        self.shared.check_pattern(from)?;
        self.tagged(|request| Wish::Receive(request, *from, data))
    }

    fn test(&mut self, request: Request) -> Result<Option<Status>> {
        self.engine.test(request)
    }

    fn is_complete(&self, request: Request) -> bool {
        self.engine.is_complete(request)
    }

    fn cancel(&mut self, request: Request) -> Result<()> {
        // To the engine, a tagged operation cannot be cancelled.
        self.engine.cancel(request)?;
        self.shared.ask(Wish::Cancel(request));
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
