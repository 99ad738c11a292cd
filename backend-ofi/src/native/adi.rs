//! [`Device`] for a rank whose provider matches: tagged messages go to the provider, everything
//! else to the engine.

use std::sync::atomic::Ordering;

use portolan_core::device::{
    Attributes, CommView, Completion, Handler, HandlerId, Hook, HookId, Message as Handle,
    Persistent, delegate_device,
};
use portolan_core::engine::Data;
use portolan_core::level::Level;
use portolan_core::matching::Pattern;
use portolan_core::{
    ContigBuf, Device, Error, ErrorKind, Request, Result, SendArgs, SendMode, Status, TypedBuf,
};
use portolan_datatype::MsgRep;

use super::buffers::NoMemory;
use super::packets::{Core, Wish};
use super::port::{handled, hooked};
use super::{Native, Tagged};

/// Small messages in a row after which the sender polls, to see what its peers have sent.
const UNPOLLED: u32 = 64;

impl<L: Level> Native<L> {
    /// # Safety
    /// As [`Device::isend_contig_unchecked`].
    pub(super) unsafe fn start_send(&self, args: &SendArgs, data: Data) -> Result<Request> {
        self.check_live()?;
        self.shared.check_send(args)?;
        let request = self.engine.upper_request(Box::new(Tagged))?;
        let started = {
            let Core { ofi, tags } = &mut *self.shared.lock();
            // SAFETY: the caller's promise.
            unsafe { tags.start_send(ofi, request, args, data) }
        };
        self.check_started(request, started)?;
        self.flush_ends();
        Ok(request)
    }

    /// # Safety
    /// As [`Device::irecv_contig_unchecked`].
    pub(super) unsafe fn start_receive(&self, from: &Pattern, data: Data) -> Result<Request> {
        self.check_live()?;
        self.shared.check_pattern(from)?;
        let request = self.engine.upper_request(Box::new(Tagged))?;
        let started = {
            let Core { ofi, tags } = &mut *self.shared.lock();
            // SAFETY: the caller's promise.
            unsafe { tags.start_receive(ofi, request, from, data) }
        };
        self.check_started(request, started)?;
        self.flush_ends();
        Ok(request)
    }

    /// # Safety
    /// As [`Device::send_contig_unchecked`].
    #[inline]
    unsafe fn send(&self, args: &SendArgs, data: Data) -> Result<()> {
        self.check_live()?;
        self.shared.check_send(args)?;
        // Relaxed: nothing depends on this count.
        if self.unpolled.fetch_add(1, Ordering::Relaxed) >= UNPOLLED {
            self.polled();
        }
        // SAFETY: the caller's promise.
        if unsafe { self.launch(args, &data) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.send_slowly(args, data) }
    }

    /// # Safety
    /// As [`Device::send_contig_unchecked`].
    #[inline]
    unsafe fn launch(&self, args: &SendArgs, data: &Data) -> bool {
        let Core { ofi, tags } = &mut *self.shared.lock();
        // SAFETY: the caller's promise.
        unsafe { tags.launch(ofi, args, data) }
    }

    /// Performs a send that could not leave at once.
    #[cold]
    unsafe fn send_slowly(&self, args: &SendArgs, data: Data) -> Result<()> {
        if args.mode == SendMode::Buffered {
            // Progress may make room, and is due: a program that only does buffered sends would
            // never make any otherwise.
            self.polled();
            // SAFETY: the caller's promise.
            if unsafe { self.launch(args, &data) } {
                return Ok(());
            }
            return Err(may_block(args, data.len()).on_rank(self.attributes.world_rank));
        }
        // At level Multiple a synchronous send to this rank waits, as any other: another thread may
        // be about to receive it.
        let waits = L::MULTIPLE && args.mode == SendMode::Synchronous;
        if args.dest.index() == self.attributes.world_rank && !waits {
            // SAFETY: the caller's promise.
            return unsafe { self.send_to_self(args, data) };
        }
        // SAFETY: the caller keeps the buffer until this returns, which is after completion.
        let request = unsafe { self.start_send(args, data)? };
        self.engine.wait(request).map(drop)
    }

    /// A blocking send to this rank itself. It must not wait for a receive that this thread posts
    /// later, so a standard send is copied. A synchronous one comes here at level `Single` only,
    /// where no other thread could receive.
    ///
    /// # Safety
    /// As [`Device::send_contig_unchecked`].
    unsafe fn send_to_self(&self, args: &SendArgs, data: Data) -> Result<()> {
        let synchronous = args.mode == SendMode::Synchronous;
        if synchronous && !self.shared.lock().tags.expects(&args.envelope) {
            let what = format!(
                "a synchronous send of rank {} to itself would wait for ever: no receive for tag {} is \
                 posted",
                args.envelope.source, args.envelope.tag
            );
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .remedy("post the receive first, or send nonblocking")
                .on_rank(self.attributes.world_rank));
        }
        // SAFETY: the caller's promise; the message is copied at once.
        let request = unsafe { self.start_send(args, data)? };
        // A refused send has completed, with its error.
        match self.engine.test(request)? {
            Some(_) => Ok(()),
            None => self.engine.free(request),
        }
    }

    /// # Safety
    /// As [`Device::recv_contig_unchecked`].
    unsafe fn receive(&self, from: &Pattern, data: Data) -> Result<Status> {
        // SAFETY: the caller keeps the buffer until this returns, which is after completion.
        let request = unsafe { self.start_receive(from, data)? };
        self.engine.wait(request)
    }

    /// Completes requests whose operations are over. (Operations that a failure has ended wait for
    /// the next progress, which knows the reason.)
    fn flush_ends(&self) {
        loop {
            let next = self.shared.lock().tags.next_over();
            let Some((request, status)) = next else {
                return;
            };
            let outcome = self.engine.complete_upper(request, status);
            debug_assert!(outcome.is_ok() || request.is_null(), "{outcome:?}");
        }
    }

    /// Makes progress.
    pub(super) fn polled(&self) -> bool {
        // Relaxed: see `send`.
        self.unpolled.store(0, Ordering::Relaxed);
        self.engine.poll()
    }

    // ---- Messages that probes have taken --------------------------------------------------------

    fn not_taken(&self, message: Handle) -> Error {
        let what = format!(
            "message handle {:#x} is not of a message that waits",
            message.to_bits()
        );
        self.refuse(what, "receive or discard a taken message once")
    }

    /// # Safety
    /// As [`Device::imrecv_unchecked`].
    unsafe fn receive_taken(&self, message: Handle, data: Data) -> Result<Request> {
        let request = self.engine.upper_request(Box::new(Tagged))?;
        let known = {
            let Core { ofi, tags } = &mut *self.shared.lock();
            // SAFETY: the caller's promise.
            unsafe { tags.receive_taken(ofi, message, request, data) }
        };
        if self.check_started(request, known)? {
            self.flush_ends();
            return Ok(request);
        }
        self.withdraw(request)?;
        Err(self.not_taken(message))
    }

    // ---- Errors --------------------------------------------------------------------------------

    fn refuse(&self, what: String, remedy: &str) -> Error {
        Error::new(ErrorKind::InvalidRequest, what)
            .remedy(remedy)
            .on_rank(self.attributes.world_rank)
    }

    pub(super) fn check_live(&self) -> Result<()> {
        // Relaxed: a program that ends the device while another thread uses it gets either answer.
        if !self.ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::Finalized, "the device has been ended")
                .remedy("make no calls after the end")
                .on_rank(self.attributes.world_rank),
        )
    }

    /// Frees the request of an operation that has not started.
    #[cold]
    fn withdraw(&self, request: Request) -> Result<()> {
        self.engine.complete_upper(request, Status::EMPTY)?;
        self.engine.free(request)
    }

    /// Returns an error if an operation has not started for want of memory, and frees its request.
    fn check_started<T>(&self, request: Request, started: Result<T, NoMemory>) -> Result<T> {
        match started {
            Ok(started) => Ok(started),
            Err(none) => {
                self.withdraw(request)?;
                Err(Error::from(none).on_rank(self.attributes.world_rank))
            }
        }
    }

    /// Returns an error if a request is not of another crate's kind.
    fn check_upper(&self, request: Request) -> Result<()> {
        let mine = self.shared.lock().tags.knows(request);
        if !mine && !self.persistents.contains(request) {
            return Ok(());
        }
        let what = format!("{request:?} is not a request of another crate's kind");
        Err(self.refuse(what, "complete only what upper_request made"))
    }
}

/// The error of a buffered send that found no room.
#[cold]
fn may_block(args: &SendArgs, len: usize) -> Error {
    let what = format!(
        "a buffered send of {len} bytes to world rank {} would have to wait",
        args.dest.index()
    );
    Error::new(ErrorKind::MayBlock, what).remedy("copy the message and send the copy nonblocking")
}

macro_rules! engine {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = &$self.engine;
        $call
    }};
}

// SAFETY: the engine keeps the contract. No buffer is lent to the provider for matched messages,
// which are copied on both sides.
unsafe impl<L: Level> Device for Native<L> {
    // ---- Tagged messages: the provider's --------------------------------------------------------

    #[inline]
    unsafe fn send_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.send(args, Data::Contig(buf)) }
    }

    unsafe fn isend_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.start_send(args, Data::Contig(buf)) }
    }

    unsafe fn recv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Status> {
        // SAFETY: the caller's promise.
        unsafe { self.receive(from, Data::Contig(buf)) }
    }

    unsafe fn irecv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.start_receive(from, Data::Contig(buf)) }
    }

    unsafe fn send_datatype_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.send(args, Data::of(&buf, args.rep)?) }
    }

    unsafe fn isend_datatype_unchecked(
        &self,
        args: &SendArgs,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.start_send(args, Data::of(&buf, args.rep)?) }
    }

    unsafe fn recv_datatype_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Status> {
        // SAFETY: the caller's promise.
        unsafe { self.receive(from, Data::of(&buf, MsgRep::Native)?) }
    }

    unsafe fn irecv_datatype_unchecked(
        &self,
        from: &Pattern,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.start_receive(from, Data::of(&buf, MsgRep::Native)?) }
    }

    unsafe fn send_init_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::of(&buf, args.rep)?;
        self.shared.check_send(args)?;
        self.persistents
            .init(&*self.engine, Persistent::Send(*args, data))
    }

    unsafe fn recv_init_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::of(&buf, MsgRep::Native)?;
        self.shared.check_pattern(from)?;
        self.persistents
            .init(&*self.engine, Persistent::Recv(*from, data))
    }

    fn start(&self, request: Request) -> Result<()> {
        self.check_live()?;
        self.persistents
            .start(&*self.engine, request, |persistent| match persistent {
                // SAFETY: the maker of the persistent request promised the buffer from each start
                // until the completion.
                Persistent::Send(args, data) => unsafe { self.start_send(&args, data) },
                // SAFETY: as above.
                Persistent::Recv(from, data) => unsafe { self.start_receive(&from, data) },
            })
    }

    fn iprobe_unchecked(&self, from: &Pattern) -> Result<Option<Status>> {
        self.polled();
        self.shown(from)
    }

    fn probe_unchecked(&self, from: &Pattern) -> Result<Status> {
        self.block(from, || self.shown(from))
    }

    fn improbe_unchecked(&self, from: &Pattern) -> Result<Option<(Handle, Status)>> {
        self.polled();
        self.taken(from)
    }

    fn mprobe_unchecked(&self, from: &Pattern) -> Result<(Handle, Status)> {
        self.block(from, || self.taken(from))
    }

    unsafe fn imrecv_unchecked(&self, message: Handle, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::of(&buf, MsgRep::Native)?;
        // SAFETY: the caller's promise.
        unsafe { self.receive_taken(message, data) }
    }

    fn discard(&self, message: Handle) -> Result<()> {
        let known = {
            let Core { ofi, tags } = &mut *self.shared.lock();
            tags.discard(ofi, message)
        };
        match known {
            true => Ok(()),
            false => Err(self.not_taken(message)),
        }
    }

    // ---- Requests: the engine's, except persistent ones -----------------------------------------

    #[inline]
    fn is_complete(&self, request: Request) -> bool {
        self.persistents.is_complete(&*self.engine, request)
    }

    fn test(&self, request: Request) -> Result<Option<Status>> {
        self.persistents.test(&*self.engine, request)
    }

    fn wait(&self, request: Request) -> Result<Status> {
        self.persistents.wait(&*self.engine, request)
    }

    fn peek(&self, request: Request) -> Result<Option<Status>> {
        self.persistents.peek(&*self.engine, request)
    }

    fn cancel(&self, request: Request) -> Result<()> {
        let Some(request) = self.persistents.under_way(request) else {
            return Ok(());
        };
        // To the engine, a tagged operation cannot be cancelled.
        self.engine.cancel(request)?;
        self.shared.lock().grant(Wish::Cancel(request));
        self.flush_ends();
        Ok(())
    }

    fn free(&self, request: Request) -> Result<()> {
        self.persistents.free(&*self.engine, request).map(drop)
    }

    fn attach(&self, request: Request, completion: Completion) -> Result<()> {
        self.persistents.attach(&*self.engine, request, completion)
    }

    fn complete_upper(&self, request: Request, status: Status) -> Result<()> {
        self.check_upper(request)?;
        self.engine.complete_upper(request, status)
    }

    fn fail_upper(&self, request: Request, error: Error) -> Result<()> {
        self.check_upper(request)?;
        self.engine.fail_upper(request, error)
    }

    // ---- Lifecycle -----------------------------------------------------------------------------

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn end(&self) -> Result<()> {
        self.check_live()?;
        let outcome = self.engine.end_through(self);
        // Relaxed: see `check_live`.
        self.ended.store(true, Ordering::Relaxed);
        outcome
    }

    fn comm_init(&self, parent: Option<&CommView>, new: &CommView) -> Result<()> {
        self.engine.comm_init(parent, new)?;
        self.shared.lock().tags.contexts().add(new);
        Ok(())
    }

    fn comm_free(&self, comm: &CommView) {
        self.engine.comm_free(comm);
        self.shared.lock().tags.contexts().free(comm.context);
    }

    fn describe_state(&self) -> Vec<String> {
        let mut lines = self.shared.lock().tags.describe();
        lines.extend(self.engine.describe_state());
        lines
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.engine.counters();
        counters.extend(self.shared.lock().tags.counters());
        counters
    }

    // ---- Handlers and hooks: the engine runs them, the provider matches their messages ----------

    fn register_handler(&self, id: HandlerId, handler: Handler) -> Result<()> {
        let handler = handled(self.shared.clone(), handler);
        self.engine.register_handler(id, handler)
    }

    fn register_hook(&self, hook: Hook) -> HookId {
        self.engine.register_hook(hooked(self.shared.clone(), hook))
    }

    // ---- Passed to the engine unchanged ---------------------------------------------------------

    delegate_device! { engine:
        wtime, wtick, abort, failure_of, dead_member, declare_self_failed, end_silently, node_of, set_packet_size,
        set_trace_file, set_debug, device_check, completion_epoch, packing, active_send,
        wake_hook, has_request_room, upper_request, one_sided, stores,
    }
}
