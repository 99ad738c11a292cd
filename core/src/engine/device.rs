//! [`Device`] for the engine: each entry takes the lock, calls the part that does the work, and
//! waits where it must. The two hot entries, sending and receiving contiguous bytes, come first.

use std::path::Path;

use crate::buffer::{ContigBuf, MemoryKind, TypedBuf};
use crate::device::{
    AtomicOp, AtomicWidth, Attributes, Check, CommView, Completion, DebugOutput, Device, Exposing,
    Handler, HandlerId, Hook, HookId, Message, Persistent, ProcId, Region, RegionKey, SendArgs,
    Upper,
};
use crate::engine::Engine;
use crate::engine::complete::attach_to_nothing;
use crate::engine::data::Data;
use crate::engine::deaths::finish::{clock, clock_resolution};
use crate::engine::one_sided::driven::read;
use crate::engine::one_sided::{Reach, atomic_direct};
use crate::engine::short::outgoing::Peer;
use crate::engine::short::send::Launched;
use crate::engine::state::Context;
use crate::engine::waiting::cores;
use crate::engine::waiting::wait::Target;
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;
use crate::level::{Level, StateLock};
use crate::matching::{Pattern, Wanted};
use crate::observe::Tracer;
use crate::request::{Request, State as Stage};
use crate::staging::{DrivenBuf, unsupported};
use crate::status::Status;
use crate::transport::{Remote, Transport};

// SAFETY: by the transport's contract a request ends only once the transport has let go of its
// buffer; regions are the transport's memory.
unsafe impl<T: Transport, L: Level> Device for Engine<T, L> {
    #[inline]
    unsafe fn send_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<()> {
        {
            let mut state = self.state.lock();
            state
                .proto
                .trace("send", args.dest.index(), args.envelope.tag, buf.len);
            // SAFETY: the caller's promise.
            let launched = unsafe {
                if state.leaves_whole(&buf) {
                    state.try_eager_contig(args, &buf, true)
                } else {
                    state.try_unasked(args, &Data::Contig(buf), true)
                }
            };
            match launched {
                Launched::Yes => {
                    state.poll_if_due();
                    return Ok(());
                }
                Launched::Begun(request) => {
                    drop(state);
                    return self.wait(request).map(drop);
                }
                Launched::No => {}
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.send_slowly(args, Data::Contig(buf)) }
    }

    #[inline(always)]
    unsafe fn recv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Status> {
        let ContigBuf {
            ptr,
            len,
            signature,
            memory,
        } = buf;
        // SAFETY: the caller keeps the buffer until this returns, which is after completion.
        unsafe { self.recv_contig_in_hand(Wanted::from(from), ptr, len, signature, memory) }
    }

    #[inline]
    unsafe fn isend_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<Request> {
        let mut state = self.state.lock();
        state
            .proto
            .trace("isend", args.dest.index(), args.envelope.tag, buf.len);
        // Nothing may leave without a slot: the caller would try again and send it a second time.
        if state.proto.table.has_room() {
            if state.proto.is_to_be_bundled(args, buf.len) {
                // SAFETY: the caller's promise.
                return unsafe { state.start_for_bundle(args, buf) };
            }
            // SAFETY: the caller's promise.
            if unsafe { state.try_eager_contig(args, &buf, false) } == Launched::Yes {
                return state.launched();
            }
        }
        // SAFETY: the caller's promise.
        unsafe { state.start_contig(args, buf) }
    }

    #[inline(always)]
    unsafe fn irecv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Request> {
        let ContigBuf {
            ptr,
            len,
            signature,
            memory,
        } = buf;
        // SAFETY: the caller's promise.
        unsafe { self.start_recv_contig(Wanted::from(from), ptr, len, signature, memory) }
    }

    unsafe fn send_datatype_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<()> {
        if buf.memory != MemoryKind::Host {
            return Err(unsupported(buf.memory, "this send"));
        }
        let bytes = buf.layout.packed_size(buf.count, args.rep)?;
        let signature = buf.layout.signature(bytes);
        {
            let mut state = self.state.lock();
            state
                .proto
                .trace("send", args.dest.index(), args.envelope.tag, bytes);
            // SAFETY: the caller's promise.
            if unsafe { state.try_eager_typed(args, &buf, bytes, signature) } == Launched::Yes {
                state.poll_if_due();
                return Ok(());
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.send_slowly(args, Data::typed(&buf, args.rep)?) }
    }

    unsafe fn isend_datatype_unchecked(
        &self,
        args: &SendArgs,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        let data = Data::typed(&buf, args.rep)?;
        let bytes = data.len();
        let mut state = self.state.lock();
        state
            .proto
            .trace("isend", args.dest.index(), args.envelope.tag, bytes);
        let signature = data.signature(bytes);
        // Nothing may leave without a slot: the caller would try again and send it a second time.
        if state.proto.table.has_room()
            // SAFETY: the caller's promise.
            && unsafe { state.try_eager_typed(args, &buf, bytes, signature) } == Launched::Yes
        {
            return state.launched();
        }
        // SAFETY: the caller's promise.
        unsafe { state.start_send(args, data) }
    }

    unsafe fn recv_datatype_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Status> {
        let data = Data::typed(&buf, portolan_datatype::MsgRep::Native)?;
        // SAFETY: the caller keeps the buffer until this returns, which is after completion.
        unsafe { self.recv_data_in_hand(Wanted::from(from), data) }
    }

    unsafe fn irecv_datatype_unchecked(
        &self,
        from: &Pattern,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        let data = Data::typed(&buf, portolan_datatype::MsgRep::Native)?;
        // SAFETY: the caller's promise.
        unsafe { self.state.lock().start_recv(from, data) }
    }

    unsafe fn isend_driven_unchecked(&self, args: &SendArgs, buf: DrivenBuf) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.state.lock().start_driven_send(args, buf) }
    }

    unsafe fn irecv_driven_unchecked(&self, from: &Pattern, buf: DrivenBuf) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.state.lock().start_driven_recv(from, buf) }
    }

    unsafe fn send_init_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request> {
        let send = Persistent::Send(*args, Data::of(&buf, args.rep)?);
        self.state.lock().make_persistent(send)
    }

    unsafe fn recv_init_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request> {
        let receive = Persistent::Recv(*from, Data::of(&buf, portolan_datatype::MsgRep::Native)?);
        self.state.lock().make_persistent(receive)
    }

    fn start(&self, request: Request) -> Result<()> {
        self.state.lock().start_persistent(request)
    }

    #[inline]
    fn is_complete(&self, request: Request) -> bool {
        self.shared.is_complete(request)
    }

    #[inline]
    fn test(&self, request: Request) -> Result<Option<Status>> {
        if request.is_settled() {
            return Ok(Some(Status::EMPTY));
        }
        let mut state = self.state.lock();
        if let Some(outcome) = state.proto.try_collect(request) {
            return outcome.map(Some);
        }
        state.progress();
        state.proto.try_collect(request).transpose()
    }

    #[inline(always)]
    fn wait(&self, request: Request) -> Result<Status> {
        // Where the lock costs something, take it only for a request that is already complete.
        if !L::MULTIPLE || self.shared.words.is_quiet(request) {
            let mut state = self.state.lock();
            if state.proto.table.is_quiet(request) {
                return Ok(state.proto.table.take_quiet(request));
            }
        }
        self.wait_longer(request)
    }

    fn peek(&self, request: Request) -> Result<Option<Status>> {
        if request.is_settled() {
            return Ok(Some(Status::EMPTY));
        }
        let mut state = self.state.lock();
        let (index, mut stage) = state.proto.table.resolve(request)?;
        if stage == Stage::Active {
            state.progress();
            stage = state.proto.table.state(index);
        }
        match stage {
            Stage::Active => Ok(None),
            Stage::Inactive => Ok(Some(Status::EMPTY)),
            _ => Ok(Some(state.proto.status_of(index))),
        }
    }

    fn cancel(&self, request: Request) -> Result<()> {
        self.state.lock().cancel(request)
    }

    fn free(&self, request: Request) -> Result<()> {
        if request.is_settled() {
            return Ok(());
        }
        self.state.lock().proto.free_request(request)
    }

    fn attach(&self, request: Request, completion: Completion) -> Result<()> {
        if request.is_settled() && !request.is_null() {
            return attach_to_nothing(completion);
        }
        self.state.lock().proto.attach(request, completion)
    }

    fn device_check(&self, check: Check) -> Result<()> {
        match check {
            Check::NonBlocking => {
                self.state.lock().progress();
            }
            Check::Blocking(epoch) => {
                let shared = &self.shared;
                self.block_until(Target::Any, |_| (shared.epoch() != epoch).then_some(()));
            }
        }
        Ok(())
    }

    #[inline]
    fn completion_epoch(&self) -> u64 {
        self.shared.epoch()
    }

    fn iprobe_unchecked(&self, from: &Pattern) -> Result<Option<Status>> {
        let mut state = self.state.lock();
        state.progress();
        state.probe(from)
    }

    fn probe_unchecked(&self, from: &Pattern) -> Result<Status> {
        self.block_until(Target::Message(*from), |state| {
            state.probe(from).transpose()
        })
    }

    fn improbe_unchecked(&self, from: &Pattern) -> Result<Option<(Message, Status)>> {
        let mut state = self.state.lock();
        state.progress();
        state.matched_probe(from)
    }

    fn mprobe_unchecked(&self, from: &Pattern) -> Result<(Message, Status)> {
        self.block_until(Target::Message(*from), |state| {
            state.matched_probe(from).transpose()
        })
    }

    unsafe fn imrecv_unchecked(&self, message: Message, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::typed(&buf, portolan_datatype::MsgRep::Native)?;
        // SAFETY: the caller's promise.
        unsafe { self.state.lock().receive_taken(message, data) }
    }

    fn discard(&self, message: Message) -> Result<()> {
        self.state.lock().discard(message)
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn wtime(&self) -> f64 {
        clock()
    }

    fn wtick(&self) -> f64 {
        clock_resolution()
    }

    fn end(&self) -> Result<()> {
        self.end_through(self)
    }

    fn abort(&self, code: i32, facility: Option<&str>, message: Option<&str>) -> ! {
        self.abort_job(code, facility, message)
    }

    fn comm_init(&self, _parent: Option<&CommView>, new: &CommView) -> Result<()> {
        let mut state = self.state.lock();
        let proto = &mut state.proto;
        let last = new.context + (new.contexts.max(1) - 1);
        proto.contexts.retain(|&first, known| {
            !known.freed || last < first || first + (known.contexts - 1) < new.context
        });
        if proto.context_of(new.context).is_some() || proto.context_of(last).is_some() {
            return Err(proto.error(
                ErrorKind::InvalidCommunicator,
                format!("context ids {} to {last} are in use", new.context),
                "free the communicator that uses them first",
            ));
        }
        let context = Context {
            group: new.group.clone(),
            contexts: new.contexts.max(1),
            acknowledged: 0,
            freed: false,
        };
        proto.contexts.insert(new.context, context);
        Ok(())
    }

    fn comm_free(&self, comm: &CommView) {
        let mut state = self.state.lock();
        if let Some(known) = state.proto.contexts.get_mut(&comm.context) {
            known.freed = true;
        }
    }

    fn failure_of(&self, peer: ProcId) -> Option<String> {
        let mut state = self.state.lock();
        state.progress();
        let known = state.proto.peers.get(peer.index() as usize)?.flags & Peer::FAILED != 0;
        known.then(|| state.proto.active.failure_text(peer.index()).into())
    }

    #[inline]
    fn dead_member(&self, group: &Group) -> Option<ProcId> {
        self.state.lock().dead_member(group)
    }

    fn declare_self_failed(&self, why: &str) {
        self.state.lock().declare_self_failed(why);
    }

    fn end_silently(&self) {
        self.state.lock().transport.end_silently();
    }

    fn node_of(&self, peer: ProcId) -> u32 {
        self.state.lock().transport.node_of(peer.index())
    }

    fn set_packet_size(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.proto.set_eager(bytes);
    }

    fn set_trace_file(&self, path: Option<&Path>) -> Result<()> {
        let tracer = path
            .map(|path| Tracer::create(path, self.shared.rank))
            .transpose()?;
        let mut state = self.state.lock();
        state.proto.tracer = tracer;
        state.proto.traced = state.proto.tracer.is_some() || state.proto.debug.is_some();
        Ok(())
    }

    fn set_debug(&self, to: Option<DebugOutput<'_>>) -> Result<()> {
        let rank = self.shared.rank;
        let debug = match to {
            None => None,
            Some(DebugOutput::Stderr) => Some(Tracer::plain(None, rank)?),
            Some(DebugOutput::File(path)) => Some(Tracer::plain(Some(path), rank)?),
        };
        let mut state = self.state.lock();
        state.proto.debug = debug;
        state.proto.traced = state.proto.tracer.is_some() || state.proto.debug.is_some();
        Ok(())
    }

    fn describe_state(&self) -> Vec<String> {
        let state = self.state.lock();
        let mut lines = state.proto.describe();
        lines.push(format!(
            "transport memory: {} bytes",
            state.transport.memory_used() + state.proto.flows.memory()
        ));
        lines.push(format!("waiting: {}", self.policy.describe()));
        let facts = state.transport.describe().into_iter();
        lines.extend(facts.map(|(name, value)| format!("transport {name}: {value}")));
        lines
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.snapshot().by_name()
    }

    fn register_handler(&self, id: HandlerId, handler: Handler) -> Result<()> {
        let mut state = self.state.lock();
        state.proto.register_handler(id, handler)?;
        // The handler may have just been given messages that had come before, and have answered.
        state.do_noted();
        if state.proto.has_outgoing() {
            state.proto.leave_work();
        }
        Ok(())
    }

    fn active_send(&self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8]) -> Result<()> {
        self.block_until(Target::Any, |state| {
            match state.try_active(to, id, args, payload) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            }
        })
    }

    fn register_hook(&self, hook: Hook) -> HookId {
        self.state.lock().proto.register_hook(hook)
    }

    fn wake_hook(&self, hook: HookId) {
        let mut state = self.state.lock();
        state.proto.wake_hook(hook);
        if L::MULTIPLE {
            // A thread that sleeps or is parked must poll, so that the hook runs.
            self.shared.tell();
        }
    }

    #[inline]
    fn has_request_room(&self) -> bool {
        self.state.lock().proto.table.has_room()
    }

    fn upper_request(&self, upper: Box<dyn Upper>) -> Result<Request> {
        self.state.lock().proto.upper_request(upper)
    }

    fn complete_upper(&self, request: Request, status: Status) -> Result<()> {
        self.state.lock().proto.complete_upper(request, status)
    }

    fn fail_upper(&self, request: Request, error: Error) -> Result<()> {
        self.state.lock().proto.fail_upper(request, error)
    }

    fn alloc_region(&self, len: usize) -> Result<Region> {
        self.state.lock().alloc_region(len)
    }

    unsafe fn register_region(&self, ptr: *mut u8, len: usize) -> Result<Region> {
        if ptr.is_null() && len != 0 {
            return Err(crate::engine::one_sided::null_buffer(len).on_rank(self.shared.rank));
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { self.state.lock().register_region(ptr, len) })
    }

    unsafe fn register_driven(&self, memory: DrivenBuf) -> Result<Region> {
        // SAFETY: the caller's promise.
        unsafe { self.state.lock().register_driven(memory) }
    }

    unsafe fn put_driven(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        source: DrivenBuf,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.state.lock().put_driven(peer, key, offset, source) }
    }

    unsafe fn get_driven(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        target: DrivenBuf,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.state.lock().get_driven(peer, key, offset, target) }
    }

    unsafe fn free_region(&self, region: Region) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.state.lock().free_region(region) }
    }

    fn direct(&self, peer: ProcId, key: &RegionKey) -> Option<std::ptr::NonNull<u8>> {
        let at = self.state.lock().direct(peer.index(), key);
        at.and_then(std::ptr::NonNull::new)
    }

    fn shares(&self, start: *const u8, len: usize) -> bool {
        self.state.lock().transport.shares(start, len)
    }

    fn exposing(&self) -> Option<&dyn Exposing> {
        self.state.lock().exposes().then_some(self)
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
        unsafe { self.put_to(peer, (key, offset), (source, len)) }
    }

    unsafe fn get(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Result<Request> {
        let mut state = self.state.lock();
        match state.reach(peer, key, offset, len, 1)? {
            Reach::Direct(source) => {
                // SAFETY: the range is inside of a live region; the caller vouches for the target.
                unsafe { std::ptr::copy(source, target, len) };
                Ok(Request::NULL)
            }
            Reach::Driven(data, at) => {
                // SAFETY: as above.
                unsafe { read(&data, at, target, len)? };
                Ok(Request::NULL)
            }
            Reach::Packets(_) if len == 0 => Ok(Request::NULL),
            Reach::Packets(rank) => state.start_get(rank, key, offset, target, len),
        }
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
        let mut state = self.state.lock();
        match state.reach(peer, key, offset, width.bytes(), width.bytes())? {
            Reach::Direct(at) => {
                if peer.index() == state.proto.me {
                    // Peers' atomics by the network and atomics by the processor must not mix.
                    let what = Remote::Atomic { width, op };
                    let me = peer.index();
                    if let Some(request) = state.start_remote(me, key, offset, what, fetched)? {
                        return Ok(request);
                    }
                }
                // SAFETY: inside of a live region and aligned; the caller vouches for `fetched`.
                unsafe { atomic_direct(at, width, op, fetched) };
                Ok(Request::NULL)
            }
            Reach::Driven(data, _) => Err(unsupported(data.kind(), "an atomic operation")),
            Reach::Packets(rank) => state.start_atomic(rank, key, offset, width, op, fetched),
        }
    }

    fn flush(&self, peer: ProcId) -> Result<()> {
        // Direct stores are visible once made; this fence orders them before what follows. It pairs
        // with the acquire load of whatever tells the peer to look.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let rank = {
            let state = self.state.lock();
            let rank = peer.index();
            if rank as usize >= state.proto.peers.len() {
                return Err(state.proto.error(
                    ErrorKind::InvalidRank,
                    format!("there is no world rank {rank}"),
                    "use a rank of the job",
                ));
            }
            rank
        };
        // First what the network does, because some of it may turn out to go by packets.
        self.block_until(Target::Any, |state| {
            if state.proto.peers[rank as usize].flags & Peer::FAILED != 0 {
                return Some(Err(state.proto.peer_failed(rank)));
            }
            state.proto.remotes.is_flushed(rank).then_some(Ok(()))
        })?;
        let request = self.state.lock().start_flush(rank)?;
        self.wait(request).map(drop)
    }

    #[inline]
    fn wait_for(&self, group: &Group, ready: impl FnMut() -> bool) -> Result<()> {
        self.wait_for_memory(group, None, ready)
    }

    #[inline]
    fn wait_for_peer(
        &self,
        group: &Group,
        peer: ProcId,
        ready: impl FnMut() -> bool,
    ) -> Result<()> {
        self.wait_for_memory(group, Some(peer.index()), ready)
    }

    #[inline]
    fn notify(&self, peer: ProcId) {
        self.notify_of_memory(peer.index());
    }

    #[inline]
    fn processor(&self) -> Option<u32> {
        self.policy.takes_turns.then(cores::current).flatten()
    }

    #[inline]
    fn give_way(&self) {
        if self.policy.takes_turns {
            std::thread::yield_now();
        }
    }
}
