//! Hooks: code of the crates above that runs inside progress, and what hooks and handlers may do
//! there.
//!
//! A hook runs when a poll is over, with access to the whole state, so what it starts leaves at
//! once. A handler runs while the transport delivers its message, so what it starts is noted, and
//! done as soon as the poll is over. A hook that sleeps costs nothing: [`Proto::work`] says whether
//! there may be one that is awake.

use std::collections::VecDeque;

use crate::buffer::TypedBuf;
use crate::device::{HandlerId, Hook, HookId, Port, ProcId, SendArgs, SendMode, Turn, Upper};
use crate::engine::data::Data;
use crate::engine::deaths::finish::clock;
use crate::engine::entry::Op;
use crate::engine::short::send::Launched;
use crate::engine::state::{Proto, State};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::guard::NoUnwind;
use crate::matching::Pattern;
use crate::request::{Request, State as Stage};
use crate::status::Status;
use crate::transport::{Exposure, Transport};

/// The hooks, and the operations that handlers have requested.
#[derive(Default)]
pub(in crate::engine) struct Hooks {
    slots: Vec<Slot>,
    /// Whether a hook was woken since the hooks last ran.
    woken: bool,
    /// Whether a hook is running.
    running: bool,
    noted: VecDeque<Noted>,
}

struct Slot {
    /// `None` while it runs.
    hook: Option<Hook>,
    awake: bool,
}

/// An operation that a handler has requested. Its request is active at once, but idle until it is
/// done.
enum Noted {
    Send(Request, SendArgs, Data),
    Receive(Request, Pattern, Data),
    Cancel(Request),
    Notify(u32),
    Withdraw(Exposure),
}

impl Hooks {
    /// Whether the current calls come from a hook.
    #[inline]
    pub(in crate::engine) fn running(&self) -> bool {
        self.running
    }

    /// Whether some hook wants to run in the next poll.
    #[inline]
    pub(in crate::engine) fn awake(&self) -> bool {
        self.slots.iter().any(|slot| slot.awake)
    }
}

impl Proto {
    pub(in crate::engine) fn register_hook(&mut self, hook: Hook) -> HookId {
        let id = HookId::new(self.hooks.slots.len() as u32);
        self.hooks.slots.push(Slot {
            hook: Some(hook),
            awake: true,
        });
        self.work = true;
        id
    }

    pub(in crate::engine) fn wake_hook(&mut self, hook: HookId) {
        if let Some(slot) = self.hooks.slots.get_mut(hook.index() as usize) {
            slot.awake = true;
            self.hooks.woken = true;
            self.work = true;
        }
    }

    fn note(&mut self, noted: Noted) {
        self.hooks.noted.push_back(noted);
        self.work = true;
    }

    /// Makes a request of another crate.
    pub(in crate::engine) fn upper_request(&mut self, upper: Box<dyn Upper>) -> Result<Request> {
        let request = self.table.claim(Stage::Active)?;
        self.table.entry(request.index()).set_op(Op::Upper(upper));
        Ok(request)
    }
}

impl<T: Transport> State<T> {
    /// Runs the hooks that are awake; returns how much they did.
    pub(in crate::engine) fn run_hooks(&mut self) -> usize {
        let mut done = 0;
        for at in 0..self.proto.hooks.slots.len() {
            let slot = &mut self.proto.hooks.slots[at];
            if !slot.awake {
                continue;
            }
            let Some(mut hook) = slot.hook.take() else {
                continue;
            };
            // Cleared before the hook runs: if the hook is woken while it runs, it stays awake
            // whatever it returns.
            slot.awake = false;
            let before = self.proto.shared.epoch();
            let guard = NoUnwind::new("a progress hook");
            self.proto.hooks.running = true;
            let turn = hook(&mut Context(Whole(self)));
            self.proto.hooks.running = false;
            guard.done();
            // A spinning thread checks its request only after something was done.
            done += usize::from(self.proto.shared.epoch() != before);
            let slot = &mut self.proto.hooks.slots[at];
            slot.hook = Some(hook);
            slot.awake |= turn != Turn::Sleep;
            done += usize::from(turn != Turn::Idle);
        }
        // A hook that a later hook has woken has not run yet, so no thread may go to sleep now.
        done += usize::from(std::mem::take(&mut self.proto.hooks.woken));
        done + self.do_noted()
    }

    /// Does what handlers have requested.
    pub(in crate::engine) fn do_noted(&mut self) -> usize {
        let mut done = 0;
        while let Some(noted) = self.proto.hooks.noted.pop_front() {
            done += 1;
            match noted {
                Noted::Send(request, args, data) => {
                    self.give_way(args.envelope.context);
                    // SAFETY: the handler has promised what is needed; its request is active, so
                    // the buffer is the device's.
                    unsafe { self.start_send_in(request.index(), &args, data, false) };
                }
                Noted::Receive(request, pattern, data) => {
                    self.give_way(pattern.context);
                    // SAFETY: as above.
                    unsafe { self.start_recv_in(request.index(), &pattern, data) };
                }
                Noted::Cancel(request) => {
                    // The request may have been completed and freed since.
                    let _ = self.cancel(request);
                }
                Noted::Notify(peer) => self.nudge(peer),
                Noted::Withdraw(exposure) => self.transport.withdraw(&exposure),
            }
        }
        done
    }

    /// The receive in hand is older than the operation that is about to start, but is matched after
    /// all posted receives. If the two could match the same messages, the receive in hand first
    /// becomes an ordinary receive.
    fn give_way(&mut self, context: u32) {
        if self.proto.hand.waits_in(context) {
            self.post_in_hand();
        }
    }
}

/// What handlers and hooks get as their [`Port`].
pub(in crate::engine) struct Context<S>(pub(in crate::engine) S);

/// The device inside of a poll, for handlers.
pub(in crate::engine) struct Inside<'a>(pub(in crate::engine) &'a mut Proto);

/// The device after a poll, for hooks.
struct Whole<'a, T: Transport>(&'a mut State<T>);

/// Where handlers and hooks differ.
trait Access {
    fn proto(&self) -> &Proto;
    fn proto_mut(&mut self) -> &mut Proto;
    /// # Safety
    /// As [`Port::isend`].
    unsafe fn start_send(&mut self, args: &SendArgs, data: Data) -> Result<Request>;
    /// # Safety
    /// As [`Port::irecv`].
    unsafe fn start_receive(&mut self, from: &Pattern, data: Data) -> Result<Request>;
    fn start_cancel(&mut self, request: Request) -> Result<()>;
    fn start_notify(&mut self, peer: u32);
    fn fail_by(&mut self, request: Request, peer: ProcId) -> Result<()>;
    /// # Safety
    /// As [`Port::pull`].
    unsafe fn copy(&mut self, from: u32, exposure: &Exposure, offset: u64, to: Target) -> bool;
    fn end_exposure(&mut self, exposure: &Exposure);
}

/// Writable memory: its address and length.
type Target = (*mut u8, usize);

impl Access for Inside<'_> {
    fn proto(&self) -> &Proto {
        self.0
    }

    fn proto_mut(&mut self) -> &mut Proto {
        self.0
    }

    unsafe fn start_send(&mut self, args: &SendArgs, data: Data) -> Result<Request> {
        self.0.check_live()?;
        let request = self.0.table.claim(Stage::Active)?;
        self.0.note(Noted::Send(request, *args, data));
        Ok(request)
    }

    unsafe fn start_receive(&mut self, from: &Pattern, data: Data) -> Result<Request> {
        self.0.check_live()?;
        let request = self.0.table.claim(Stage::Active)?;
        self.0.note(Noted::Receive(request, *from, data));
        Ok(request)
    }

    fn start_cancel(&mut self, request: Request) -> Result<()> {
        self.0.table.resolve(request)?;
        self.0.note(Noted::Cancel(request));
        Ok(())
    }

    fn start_notify(&mut self, peer: u32) {
        self.0.note(Noted::Notify(peer));
    }

    fn fail_by(&mut self, request: Request, peer: ProcId) -> Result<()> {
        self.0.fail_upper_by(request, peer)
    }

    unsafe fn copy(&mut self, _: u32, _: &Exposure, _: u64, _: Target) -> bool {
        false
    }

    fn end_exposure(&mut self, exposure: &Exposure) {
        self.0.note(Noted::Withdraw(*exposure));
    }
}

impl<T: Transport> Access for Whole<'_, T> {
    fn proto(&self) -> &Proto {
        &self.0.proto
    }

    fn proto_mut(&mut self) -> &mut Proto {
        &mut self.0.proto
    }

    unsafe fn start_send(&mut self, args: &SendArgs, data: Data) -> Result<Request> {
        let state = &mut *self.0;
        // This hook may have caused a handler to run that has requested something.
        state.do_noted();
        state.give_way(args.envelope.context);
        // This is part of a poll, so no other poll is due.
        state.proto.unpolled = 0;
        let launched = match &data {
            // Nothing may leave without a slot: the caller would try again and send it a second
            // time.
            _ if !state.proto.table.has_room() => Launched::No,
            // SAFETY: the caller's promise.
            Data::Contig(buf) => unsafe { state.try_eager_contig(args, buf, false) },
            Data::Typed {
                ptr,
                count,
                layout,
                bytes,
            } => {
                let buf = TypedBuf {
                    ptr: *ptr,
                    count: *count,
                    layout,
                    memory: Default::default(),
                };
                let signature = layout.signature(*bytes);
                // SAFETY: the caller's promise.
                unsafe { state.try_eager_typed(args, &buf, *bytes, signature) }
            }
            Data::Driven(_) => Launched::No,
        };
        if launched == Launched::Yes {
            return state.launched();
        }
        // SAFETY: the caller's promise.
        unsafe { state.start_send(args, data) }
    }

    unsafe fn start_receive(&mut self, from: &Pattern, data: Data) -> Result<Request> {
        self.0.do_noted();
        self.0.give_way(from.context);
        // SAFETY: the caller's promise.
        unsafe { self.0.start_recv(from, data) }
    }

    fn start_cancel(&mut self, request: Request) -> Result<()> {
        self.0.cancel(request)
    }

    fn start_notify(&mut self, peer: u32) {
        self.0.nudge(peer);
    }

    fn fail_by(&mut self, request: Request, peer: ProcId) -> Result<()> {
        self.0.fail_upper_by(request, peer)
    }

    unsafe fn copy(&mut self, from: u32, exposure: &Exposure, offset: u64, to: Target) -> bool {
        // SAFETY: the caller's promise. (A transport that would go on copying later does not
        // expose.)
        self.0.exposes() && unsafe { self.0.pull_exposed(from, exposure, offset, to) }
    }

    fn end_exposure(&mut self, exposure: &Exposure) {
        self.0.transport.withdraw(exposure);
    }
}

impl<S: Access> Port for Context<S> {
    fn me(&self) -> ProcId {
        ProcId::new(self.0.proto().me)
    }

    fn wtime(&self) -> f64 {
        clock()
    }

    fn send(&mut self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8]) -> Result<()> {
        self.0.proto_mut().active_reply(to, id, args, payload)
    }

    unsafe fn isend(&mut self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request> {
        let proto = self.0.proto_mut();
        debug_assert!((args.dest.index() as usize) < proto.peers.len());
        debug_assert_ne!(args.mode, SendMode::Buffered);
        let data = Data::of(&buf, args.rep)?;
        proto.trace("isend", args.dest.index(), args.envelope.tag, data.len());
        // SAFETY: the caller's promise.
        unsafe { self.0.start_send(args, data) }
    }

    unsafe fn irecv(&mut self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request> {
        let data = Data::of(&buf, portolan_datatype::MsgRep::Native)?;
        // SAFETY: the caller's promise.
        unsafe { self.0.start_receive(from, data) }
    }

    fn test(&mut self, request: Request) -> Result<Option<Status>> {
        if request.is_settled() {
            return Ok(Some(Status::EMPTY));
        }
        self.0.proto_mut().try_collect(request).transpose()
    }

    fn is_complete(&self, request: Request) -> bool {
        self.0.proto().shared.is_complete(request)
    }

    fn cancel(&mut self, request: Request) -> Result<()> {
        self.0.start_cancel(request)
    }

    fn upper_request(&mut self, upper: Box<dyn Upper>) -> Result<Request> {
        self.0.proto_mut().upper_request(upper)
    }

    fn complete(&mut self, request: Request, status: Status) -> Result<()> {
        self.0.proto_mut().complete_upper(request, status)
    }

    fn fail(&mut self, request: Request, peer: ProcId) -> Result<()> {
        self.0.fail_by(request, peer)
    }

    fn fail_with(&mut self, request: Request, error: Error) -> Result<()> {
        self.0.proto_mut().fail_upper(request, error)
    }

    fn dead_member(&self, group: &Group) -> Option<ProcId> {
        self.0.proto().first_dead(group).map(ProcId::new)
    }

    fn wake_hook(&mut self, hook: HookId) {
        self.0.proto_mut().wake_hook(hook);
    }

    fn notify(&mut self, peer: ProcId) {
        self.0.start_notify(peer.index());
    }

    unsafe fn pull(
        &mut self,
        peer: ProcId,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.copy(peer.index(), exposure, offset, (target, len)) }
    }

    fn withdraw(&mut self, exposure: &Exposure) {
        self.0.end_exposure(exposure);
    }
}
