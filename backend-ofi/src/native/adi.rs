//! [`Device`] for a rank whose provider matches: tagged messages go to the provider, everything
//! else to the engine.

use std::sync::atomic::Ordering;
use std::time::Duration;

use portolan_core::device::{
    Attributes, CommView, Completion, Handler, HandlerId, Hook, HookId, Message as Handle,
    Persistent, delegate_device,
};
use portolan_core::engine::Data;
use portolan_core::level::Level;
use portolan_core::matching::Pattern;
use portolan_core::transport::Bell;
use portolan_core::{
    ContigBuf, Device, Error, ErrorKind, ProcId, Request, Result, SendArgs, SendMode, Status,
    TypedBuf,
};
use portolan_datatype::MsgRep;

use super::buffers::NoMemory;
use super::deaths::PATIENCE;
use super::looks::Seen;
use super::packets::{Core, Wish};
use super::port::{handled, hooked};
use super::slots::Arrival;
use super::{Native, Tagged};

/// Small messages in a row after which the sender polls, to see what its peers have sent.
const UNPOLLED: u32 = 64;
/// Looks in a row after which a probe sleeps between them.
const SPIN: u32 = 64;
/// Looks in a row without a useful answer, usually for want of room, after which a probe reports
/// that there is nothing.
const ROOM: u32 = 1000;
/// How long a probe sleeps between looks. It has to look again and again, because no provider
/// announces that a message has matched nothing.
const NAP: Duration = Duration::from_millis(1);

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
    fn polled(&self) -> bool {
        // Relaxed: see `send`.
        self.unpolled.store(0, Ordering::Relaxed);
        self.engine.poll()
    }

    // ---- Probes --------------------------------------------------------------------------------

    /// The earliest message that `from` matches, if one has arrived, with the number of its slot if
    /// it is taken.
    fn look(&self, from: &Pattern, take: bool) -> Option<(Arrival, u32)> {
        for _ in 0..ROOM {
            let (claim, begun, takings) = {
                let Core { ofi, tags } = &mut *self.shared.lock();
                // Messages that an earlier receive is to get are not shown.
                let claim = take && !tags.overflows();
                (claim, tags.look(ofi, from, claim), tags.takings())
            };
            let Some(number) = begun else {
                if self.shared.lock().tags.blind {
                    return None;
                }
                // No room for a look: this does not show that there is no message.
                self.polled();
                continue;
            };
            let arrival = self.answer(number)?;
            if claim {
                return Some((arrival, number));
            }
            let begun = {
                let Core { ofi, tags } = &mut *self.shared.lock();
                if tags.takings() != takings {
                    continue; // It may have been taken by now, so that another one is the earliest.
                }
                if tags.is_wanted(&arrival) {
                    return None;
                }
                if !take {
                    return Some((arrival, number));
                }
                tags.look(ofi, &Pattern::exact(&arrival.envelope), true)
            };
            if let Some(number) = begun {
                return Some((self.answer(number)?, number));
            }
            self.polled();
        }
        None
    }

    /// The result of a look. The provider answers at once; the polls only fetch the answer, after
    /// the completions that came before it. If this rank's endpoint is broken, no answer comes, and
    /// the result is that there is nothing.
    fn answer(&self, number: u32) -> Option<Arrival> {
        let mut patience = PATIENCE;
        loop {
            let seen = self.shared.lock().tags.seen(number);
            match seen {
                Seen::Later if patience == 0 && self.gives_up_look(number) => return None,
                Seen::Later => {
                    patience = patience.saturating_sub(1);
                    self.polled();
                }
                Seen::Nothing => return None,
                Seen::Message(arrival) => return Some(arrival),
            }
        }
    }

    #[cold]
    fn gives_up_look(&self, number: u32) -> bool {
        let Core { ofi, tags } = &mut *self.shared.lock();
        tags.give_up_look(ofi, number)
    }

    /// What a probe sees, or the failure because of which it will never see anything.
    fn shown(&self, from: &Pattern) -> Result<Option<Status>> {
        self.check_live()?;
        self.shared.check_pattern(from)?;
        let found = self.look_or_fail(from, false)?;
        Ok(found.map(|(arrival, _)| status(&arrival)))
    }

    fn taken(&self, from: &Pattern) -> Result<Option<(Handle, Status)>> {
        self.check_live()?;
        self.shared.check_pattern(from)?;
        let found = self.look_or_fail(from, true)?;
        Ok(found.map(|(arrival, number)| {
            let handle = self.shared.lock().tags.keep(number);
            (handle, status(&arrival))
        }))
    }

    /// What a look finds, or the failure because of which it will never find anything.
    fn look_or_fail(&self, from: &Pattern, take: bool) -> Result<Option<(Arrival, u32)>> {
        let found = self.look(from, take);
        if found.is_some() {
            return Ok(found);
        }
        let Err(error) = self.check_source(from) else {
            return Ok(None);
        };
        // The last message may have arrived after the look and before the failure was known.
        let again = from.source.and_then(|_| self.look(from, take));
        again.map_or(Err(error), |found| Ok(Some(found)))
    }

    /// Returns an error if a probe would wait for a rank that is dead or has left, or if this rank
    /// is dead and its endpoint shows no messages.
    fn check_source(&self, from: &Pattern) -> Result<()> {
        let own = self.attributes.world_rank;
        let dead = self.shared.lock().tags.doom_of_probe(own, from);
        let Some(peer) = dead else {
            return Ok(());
        };
        // The engine knows only of the deaths of others, and learns of those later: once it has
        // heard everything that the dead rank had sent.
        let known = self.engine.failure_of(ProcId::new(peer));
        let why = known.or_else(|| self.shared.lock().ofi.shared.deaths.reason(peer, u32::MAX));
        let why = why.unwrap_or_else(|| "it has died".to_owned());
        Err(Error::peer_failed(peer, &why).on_rank(self.attributes.world_rank))
    }

    /// Looks until there is something to see of what `from` matches.
    fn block<R>(&self, from: &Pattern, look: impl Fn() -> Result<Option<R>>) -> Result<R> {
        let mut idle = 0;
        loop {
            if let Some(seen) = look().transpose() {
                return seen;
            }
            idle = if self.polled() { 0 } else { idle + 1 };
            if idle < SPIN {
                std::thread::yield_now();
                continue;
            }
            let (bell, seen, peer) = {
                let mut core = self.shared.lock();
                core.ofi.lookers += 1;
                let bell = std::sync::Arc::clone(&core.ofi.bell);
                let seen = bell.seen();
                let contexts = core.tags.contexts();
                let process = |source| contexts.process(from.context, source);
                (bell, seen, from.source.and_then(process))
            };
            if let Some(peer) = peer {
                self.engine.look_for_leaver(ProcId::new(peer));
            }
            if !self.polled() {
                bell.sleep(seen, Some(NAP));
            }
            let mut core = self.shared.lock();
            core.ofi.lookers -= 1;
            if !core.ofi.listens() {
                core.ofi.bell.quiet();
            }
        }
    }

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

    fn check_live(&self) -> Result<()> {
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

fn status(arrival: &Arrival) -> Status {
    let (source, tag) = (arrival.envelope.source, arrival.envelope.tag);
    Status::received(source, tag, arrival.len as u64)
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
