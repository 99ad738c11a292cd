//! [`Device`] for a PE: tagged messages go to MP_Lite, everything else to the engine.

use std::ptr::NonNull;

use portolan_core::device::{
    AtomicOp, AtomicWidth, Attributes, Check, CommView, Completion, Handler, HandlerId, Hook,
    HookId, Message as Handle, Persistent, Region, RegionKey, delegate_device,
};
use portolan_core::engine::Data;
use portolan_core::matching::Pattern;
use portolan_core::{
    ContigBuf, Device, Error, ErrorKind, Group, ProcId, Request, Result, SendArgs, SendMode,
    Status, TypedBuf,
};
use portolan_datatype::MsgRep;

use super::T3e;
use super::port::{handled, hooked};
use crate::send::{may_block, to_itself};

impl T3e {
    /// # Safety
    /// As [`Device::isend_contig_unchecked`].
    pub(super) unsafe fn start_send(&self, args: &SendArgs, data: Data) -> Result<Request> {
        self.check_live()?;
        // SAFETY: the caller's promise.
        self.tagged(|state, request| unsafe { state.start_send(request, args, data) })
    }

    /// # Safety
    /// As [`Device::irecv_contig_unchecked`].
    pub(super) unsafe fn start_receive(&self, from: &Pattern, data: Data) -> Result<Request> {
        self.check_live()?;
        // SAFETY: the caller's promise.
        self.tagged(|state, request| unsafe { state.start_receive(request, from, data) })
    }

    /// # Safety
    /// As [`Device::send_contig_unchecked`].
    unsafe fn send(&self, args: &SendArgs, data: Data) -> Result<()> {
        if self.shared.lock().waits_for_itself(args) {
            return Err(to_itself(args).on_rank(self.attributes.world_rank));
        }
        let len = data.len();
        // SAFETY: the caller keeps the buffer until this returns, which is after completion.
        let request = unsafe { self.start_send(args, data)? };
        if args.mode == SendMode::Buffered && self.test(request)?.is_none() {
            self.cancel(request)?;
            let status = self.wait(request)?;
            if status.cancelled {
                return Err(may_block(args, len).on_rank(self.attributes.world_rank));
            }
            return Ok(());
        }
        if args.mode == SendMode::Buffered {
            return Ok(()); // The test above has completed it.
        }
        self.wait(request).map(drop)
    }

    /// # Safety
    /// As [`Device::recv_contig_unchecked`].
    unsafe fn receive(&self, from: &Pattern, data: Data) -> Result<Status> {
        // SAFETY: the caller keeps the buffer until this returns, which is after completion.
        let request = unsafe { self.start_receive(from, data)? };
        self.wait(request)
    }

    /// Makes progress until `ready` returns a value.
    fn block<R>(&self, mut ready: impl FnMut(&Self) -> Option<R>) -> R {
        loop {
            let heard = self.shared.lock().heard;
            let busy = self.engine.poll();
            if let Some(result) = ready(self) {
                return result;
            }
            // If the engine was busy, a hook may have more to do, and no peer's write would wake
            // this PE for that.
            if !busy {
                self.shared.lock().sleep(heard, None);
            }
        }
    }

    /// The message that a probe sees, or the failure because of which it will never see one.
    fn look(&self, from: &Pattern) -> Result<Option<Status>> {
        self.check_live()?;
        let mut state = self.shared.lock();
        let pattern = state.pattern(from);
        let super::State { lite, wire, .. } = &mut *state;
        if let Some(arrival) = lite.probe(wire, &pattern) {
            return Ok(Some(state.shown(&arrival)));
        }
        match state.failure_for(&pattern) {
            None => Ok(None),
            Some(peer) => {
                drop(state);
                Err(self.peer_failed(peer))
            }
        }
    }

    fn look_and_take(&self, from: &Pattern) -> Result<Option<(Handle, Status)>> {
        self.check_live()?;
        let mut state = self.shared.lock();
        let pattern = state.pattern(from);
        let super::State { lite, wire, .. } = &mut *state;
        if let Some((number, arrival)) = lite.take(wire, &pattern) {
            let status = state.shown(&arrival);
            return Ok(Some((self.handles.borrow_mut().add(number), status)));
        }
        drop(state);
        self.look(from).map(|_| None)
    }

    fn peer_failed(&self, peer: u32) -> Error {
        let why = self.failure_of(ProcId::new(peer));
        let why = why.unwrap_or_else(|| "it has died".to_owned());
        Error::peer_failed(peer, &why).on_rank(self.attributes.world_rank)
    }

    fn check_live(&self) -> Result<()> {
        if !self.ended.get() {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::Finalized, "the device has been ended")
                .remedy("make no calls after the end")
                .on_rank(self.attributes.world_rank),
        )
    }

    /// An error if a request is not one of another crate's kind.
    fn check_upper(&self, request: Request) -> Result<()> {
        let operations = &self.shared.lock().operations;
        let mine = operations.contains_key(&request.to_bits());
        if !mine && !self.persistents.contains(request) {
            return Ok(());
        }
        let what = format!("{request:?} is not a request of another crate's kind");
        Err(Error::new(ErrorKind::InvalidRequest, what)
            .remedy("complete only what upper_request made")
            .on_rank(self.attributes.world_rank))
    }

    fn not_taken(&self, message: Handle) -> Error {
        let what = format!(
            "message handle {:#x} is not of a message that waits",
            message.to_bits()
        );
        Error::new(ErrorKind::InvalidRequest, what)
            .remedy("receive or discard a taken message once")
            .on_rank(self.attributes.world_rank)
    }
}

/// Passes a call to the engine below, for what the engine answers alone.
macro_rules! engine {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = &$self.engine;
        $call
    }};
}

// SAFETY: the engine keeps the contract; the memory of regions is the emulated machine's, which
// outlives the device.
unsafe impl Device for T3e {
    // ---- Tagged messages: MP_Lite's -------------------------------------------------------------

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
        unsafe { self.send(args, Data::typed(&buf, args.rep)?) }
    }

    unsafe fn isend_datatype_unchecked(
        &self,
        args: &SendArgs,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.start_send(args, Data::typed(&buf, args.rep)?) }
    }

    unsafe fn recv_datatype_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Status> {
        // SAFETY: the caller's promise.
        unsafe { self.receive(from, Data::typed(&buf, MsgRep::Native)?) }
    }

    unsafe fn irecv_datatype_unchecked(
        &self,
        from: &Pattern,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.start_receive(from, Data::typed(&buf, MsgRep::Native)?) }
    }

    unsafe fn send_init_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::typed(&buf, args.rep)?;
        self.persistents
            .init(&*self.engine, Persistent::Send(*args, data))
    }

    unsafe fn recv_init_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::typed(&buf, MsgRep::Native)?;
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
        self.device_check(Check::NonBlocking)?;
        self.look(from)
    }

    fn probe_unchecked(&self, from: &Pattern) -> Result<Status> {
        self.block(|device| device.look(from).transpose())
    }

    fn improbe_unchecked(&self, from: &Pattern) -> Result<Option<(Handle, Status)>> {
        self.device_check(Check::NonBlocking)?;
        self.look_and_take(from)
    }

    fn mprobe_unchecked(&self, from: &Pattern) -> Result<(Handle, Status)> {
        self.block(|device| device.look_and_take(from).transpose())
    }

    unsafe fn imrecv_unchecked(&self, message: Handle, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::typed(&buf, MsgRep::Native)?;
        let number = self.handles.borrow().get(message);
        let number = number.ok_or_else(|| self.not_taken(message))?;
        // Only now: without a free request the message stays.
        self.tagged(|state, request| {
            self.handles.borrow_mut().remove(message);
            // SAFETY: the caller's promise.
            let known = unsafe { state.receive_taken(number, request, data) };
            debug_assert!(known, "a handle is of a message that was taken");
        })
    }

    fn discard(&self, message: Handle) -> Result<()> {
        let number = self.handles.borrow_mut().remove(message);
        let number = number.ok_or_else(|| self.not_taken(message))?;
        let mut state = self.shared.lock();
        let super::State { lite, wire, .. } = &mut *state;
        lite.discard_taken(wire, number);
        Ok(())
    }

    // ---- Requests: the engine's, but for persistent ones ---------------------------------------

    fn is_complete(&self, request: Request) -> bool {
        self.persistents.is_complete(&*self.engine, request)
    }

    fn test(&self, request: Request) -> Result<Option<Status>> {
        self.polled();
        self.persistents.test(&*self.engine, request)
    }

    fn wait(&self, request: Request) -> Result<Status> {
        self.persistents.wait(&*self.engine, request)
    }

    fn peek(&self, request: Request) -> Result<Option<Status>> {
        self.polled();
        self.persistents.peek(&*self.engine, request)
    }

    fn cancel(&self, request: Request) -> Result<()> {
        let Some(request) = self.persistents.under_way(request) else {
            return Ok(());
        };
        // The operation of a freed request goes on, but the request may not be used any more.
        if self.engine.is_complete(request) || !self.shared.lock().cancel(request) {
            return self.engine.cancel(request);
        }
        self.flush();
        Ok(())
    }

    fn free(&self, request: Request) -> Result<()> {
        if let Some(given_up) = self.persistents.free(&*self.engine, request)? {
            self.shared.lock().abandon(given_up);
        }
        Ok(())
    }

    fn attach(&self, request: Request, completion: Completion) -> Result<()> {
        self.persistents.attach(&*self.engine, request, completion)
    }

    fn device_check(&self, check: Check) -> Result<()> {
        if check == Check::NonBlocking {
            self.polled();
        }
        self.engine.device_check(check)
    }

    fn complete_upper(&self, request: Request, status: Status) -> Result<()> {
        self.check_upper(request)?;
        self.engine.complete_upper(request, status)
    }

    fn fail_upper(&self, request: Request, error: Error) -> Result<()> {
        self.check_upper(request)?;
        self.engine.fail_upper(request, error)
    }

    // ---- Lifecycle and attributes --------------------------------------------------------------

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Virtual seconds since the machine was started. Reading the clock takes some.
    fn wtime(&self) -> f64 {
        let mut state = self.shared.lock();
        state.wire.poll();
        state.wire.clock().as_secs()
    }

    fn wtick(&self) -> f64 {
        1e-12
    }

    fn end(&self) -> Result<()> {
        self.check_live()?;
        let outcome = self.engine.end_through(self);
        self.ended.set(true);
        outcome
    }

    fn comm_init(&self, parent: Option<&CommView>, new: &CommView) -> Result<()> {
        self.engine.comm_init(parent, new)?;
        self.shared.lock().add_context(new);
        Ok(())
    }

    fn comm_free(&self, comm: &CommView) {
        self.engine.comm_free(comm);
        self.shared.lock().remove_context(comm.context);
    }

    fn describe_state(&self) -> Vec<String> {
        let mut lines = self.shared.lock().lite.describe();
        lines.extend(self.engine.describe_state());
        lines
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.engine.counters();
        counters.extend(self.stats().by_name());
        counters
    }

    // ---- Active messages and hooks: the engine's -----------------------------------------------

    fn register_handler(&self, id: HandlerId, handler: Handler) -> Result<()> {
        let handler = handled(self.shared.clone(), handler);
        self.engine.register_handler(id, handler)
    }

    fn register_hook(&self, hook: Hook) -> HookId {
        self.engine.register_hook(hooked(self.shared.clone(), hook))
    }

    // ---- One-sided primitives: see `one_sided.rs` ----------------------------------------------

    fn alloc_region(&self, len: usize) -> Result<Region> {
        self.new_region(len)
    }

    unsafe fn register_region(&self, ptr: *mut u8, len: usize) -> Result<Region> {
        // SAFETY: the caller's promise.
        unsafe { self.add_region(ptr, len) }
    }

    unsafe fn free_region(&self, region: Region) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.remove_region(region) }
    }

    fn direct(&self, peer: ProcId, key: &RegionKey) -> Option<NonNull<u8>> {
        self.region_of(peer, key)
    }

    unsafe fn put(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        source: *const u8,
        len: usize,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.put_packets(peer, key, offset, source, len) }
    }

    unsafe fn get(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.get_packets(peer, key, offset, target, len) }
    }

    unsafe fn atomic(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        width: AtomicWidth,
        op: AtomicOp,
        fetched: *mut u64,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.atomic_packet(peer, key, offset, width, op, fetched) }
    }

    /// Sleeps in virtual time until a peer has written something, and then checks `ready` again.
    fn wait_for(&self, group: &Group, mut ready: impl FnMut() -> bool) -> Result<()> {
        self.check_live()?;
        self.block(|device| {
            if ready() {
                return Some(Ok(()));
            }
            let dead = device.dead_member(group)?;
            Some(Err(device.peer_failed(dead.index())))
        })
    }

    // ---- What the engine does as it is ---------------------------------------------------------

    delegate_device! { engine:
        abort, failure_of, dead_member, declare_self_failed, end_silently, node_of, set_packet_size,
        set_trace_file, set_debug, completion_epoch, active_send, wake_hook, has_request_room, upper_request, flush,
    }
}
