//! One device out of those that are compiled in: an enum, and one match per call.
//!
//! With one feature the match folds away.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;

use portolan_core::device::{
    AtomicOp, AtomicWidth, Attributes, Check, CommView, Completion, DebugOutput, Handler,
    HandlerId, Hook, HookId, Message, ProcId, Region, RegionKey, SendArgs, Upper,
};
#[cfg(any(feature = "memory", feature = "ofi", feature = "shm"))]
use portolan_core::engine::Engine;
use portolan_core::engine::StuckHook;
use portolan_core::level::{Level, Single};
use portolan_core::matching::Pattern;
use portolan_core::{ContigBuf, Device, Error, Group, Request, Result, Status, TypedBuf};
use portolan_datatype::{Layout, MsgAction, MsgRep};

/// The device of a rank: one of those that the features of this crate compile in.
///
/// Choosing is [`Builder`](crate::Builder)'s; what the device can do, its
/// [`attributes`](Device::attributes) say.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyDevice<L: Level = Single> {
    /// The engine over node-local shared memory (feature `shm`).
    #[cfg(feature = "shm")]
    Shm(Engine<portolan_shm::Shm, L>),
    /// The engine over libfabric (feature `ofi`).
    #[cfg(feature = "ofi")]
    Ofi(Engine<portolan_ofi::Ofi, L>),
    /// The engine over the reference transport, which joins threads of one process (feature
    /// `memory`, for tests).
    #[cfg(feature = "memory")]
    Memory(Engine<portolan_core::transport::memory::Memory, L>),
    /// MP_Lite on an emulated Cray T3E, in virtual time (feature `t3e-sim`). At level `Single` only.
    #[cfg(feature = "t3e-sim")]
    T3e(crate::one_thread::OneThread<portolan_t3e_sim::T3e, L>),
    /// Keeps the enum an enum when nothing is compiled in. Cannot be made.
    #[doc(hidden)]
    Never(Infallible, PhantomData<fn() -> L>),
}

macro_rules! each_variant {
    ($self:ident, $device:ident => $call:expr) => {
        match $self {
            #[cfg(feature = "shm")]
            Self::Shm($device) => $call,
            #[cfg(feature = "ofi")]
            Self::Ofi($device) => $call,
            #[cfg(feature = "memory")]
            Self::Memory($device) => $call,
            #[cfg(feature = "t3e-sim")]
            Self::T3e($device) => $call,
            Self::Never(never, _) => match *never {},
        }
    };
}

impl<L: Level> AnyDevice<L> {
    /// Says who hears of waits that last too long.
    #[cfg_attr(
        not(any(
            feature = "memory",
            feature = "ofi",
            feature = "shm",
            feature = "t3e-sim"
        )),
        allow(unused_variables, reason = "there is no device to tell")
    )]
    pub(crate) fn on_stuck(&self, hook: StuckHook) {
        each_variant!(self, device => device.on_stuck(hook));
    }
}

/// Writes the methods of [`Device`] that hand their call on. `$dispatch!(self, d => call)` evaluates
/// `call` with `d` bound to a reference to the device that answers. `end` and `abort` are left to
/// the caller.
macro_rules! delegate_device {
    ($dispatch:ident) => {
        $crate::any::delegate_device! { @safe $dispatch
            fn attributes(&self) -> &Attributes;
            fn wtime(&self) -> f64;
            fn wtick(&self) -> f64;
            fn comm_init(&self, parent: Option<&CommView>, new: &CommView) -> Result<()>;
            fn comm_free(&self, comm: &CommView);
            fn failure_of(&self, peer: ProcId) -> Option<String>;
            fn dead_member(&self, group: &Group) -> Option<ProcId>;
            fn declare_self_failed(&self, why: &str);
            fn node_of(&self, peer: ProcId) -> u32;
            fn set_packet_size(&self, bytes: usize);
            fn set_trace_file(&self, path: Option<&Path>) -> Result<()>;
            fn set_debug(&self, to: Option<DebugOutput<'_>>) -> Result<()>;
            fn describe_state(&self) -> Vec<String>;
            fn counters(&self) -> Vec<(&'static str, u64)>;
            fn start(&self, request: Request) -> Result<()>;
            fn iprobe_unchecked(&self, from: &Pattern) -> Result<Option<Status>>;
            fn probe_unchecked(&self, from: &Pattern) -> Result<Status>;
            fn improbe_unchecked(&self, from: &Pattern) -> Result<Option<(Message, Status)>>;
            fn mprobe_unchecked(&self, from: &Pattern) -> Result<(Message, Status)>;
            fn discard(&self, message: Message) -> Result<()>;
            fn is_complete(&self, request: Request) -> bool;
            fn test(&self, request: Request) -> Result<Option<Status>>;
            fn wait(&self, request: Request) -> Result<Status>;
            fn peek(&self, request: Request) -> Result<Option<Status>>;
            fn cancel(&self, request: Request) -> Result<()>;
            fn free(&self, request: Request) -> Result<()>;
            fn attach(&self, request: Request, completion: Completion) -> Result<()>;
            fn device_check(&self, check: Check) -> Result<()>;
            fn completion_epoch(&self) -> u64;
            fn msg_rep(&self, partner: Option<u32>, layout: &Layout) -> (MsgRep, MsgAction);
            fn msg_act(&self, partner: Option<u32>, layout: &Layout, rep: MsgRep) -> MsgAction;
            fn register_handler(&self, id: HandlerId, handler: Handler) -> Result<()>;
            fn active_send(
                &self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8],
            ) -> Result<()>;
            fn register_hook(&self, hook: Hook) -> HookId;
            fn wake_hook(&self, hook: HookId);
            fn upper_request(&self, upper: Box<dyn Upper>) -> Result<Request>;
            fn complete_upper(&self, request: Request, status: Status) -> Result<()>;
            fn fail_upper(&self, request: Request, error: Error) -> Result<()>;
            fn alloc_region(&self, len: usize) -> Result<Region>;
            fn direct(&self, peer: ProcId, key: &RegionKey) -> Option<NonNull<u8>>;
            fn flush(&self, peer: ProcId) -> Result<()>;
            fn wait_for(&self, group: &Group, ready: impl FnMut() -> bool) -> Result<()>;
            fn notify(&self, peer: ProcId);
        }
        $crate::any::delegate_device! { @unsafe $dispatch
            fn send_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<()>;
            fn isend_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<Request>;
            fn recv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Status>;
            fn irecv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Request>;
            fn send_datatype_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<()>;
            fn isend_datatype_unchecked(
                &self, args: &SendArgs, buf: TypedBuf<'_>,
            ) -> Result<Request>;
            fn recv_datatype_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Status>;
            fn irecv_datatype_unchecked(
                &self, from: &Pattern, buf: TypedBuf<'_>,
            ) -> Result<Request>;
            fn send_init_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request>;
            fn recv_init_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request>;
            fn imrecv_unchecked(&self, message: Message, buf: TypedBuf<'_>) -> Result<Request>;
            fn register_region(&self, ptr: *mut u8, len: usize) -> Result<Region>;
            fn free_region(&self, region: Region) -> Result<()>;
            fn put(
                &self, peer: ProcId, key: &RegionKey, offset: u64, source: *const u8, len: usize,
            ) -> Result<Request>;
            fn get(
                &self, peer: ProcId, key: &RegionKey, offset: u64, target: *mut u8, len: usize,
            ) -> Result<Request>;
            fn atomic(
                &self, peer: ProcId, key: &RegionKey, offset: u64, width: AtomicWidth, op: AtomicOp,
                fetched: *mut u64,
            ) -> Result<Request>;
        }
    };
    (@safe $dispatch:ident $(
        fn $name:ident(&self $(, $arg:ident: $type:ty)* $(,)?) $(-> $out:ty)?;
    )*) => {$(
        #[inline]
        fn $name(&self $(, $arg: $type)*) $(-> $out)? {
            $dispatch!(self, device => device.$name($($arg),*))
        }
    )*};
    (@unsafe $dispatch:ident $(
        fn $name:ident(&self $(, $arg:ident: $type:ty)* $(,)?) $(-> $out:ty)?;
    )*) => {$(
        #[inline]
        unsafe fn $name(&self $(, $arg: $type)*) $(-> $out)? {
            // SAFETY: the device that answers has this method's contract, which the caller keeps.
            $dispatch!(self, device => unsafe { device.$name($($arg),*) })
        }
    )*};
}
pub(crate) use delegate_device;

#[cfg_attr(
    not(any(
        feature = "memory",
        feature = "ofi",
        feature = "shm",
        feature = "t3e-sim"
    )),
    allow(
        unused_variables,
        reason = "there is no device to hand the arguments to"
    )
)]
impl<L: Level> Device for AnyDevice<L> {
    delegate_device!(each_variant);

    fn end(&self) -> Result<()> {
        each_variant!(self, device => device.end())
    }

    fn abort(&self, code: i32, facility: Option<&str>, message: Option<&str>) -> ! {
        each_variant!(self, device => device.abort(code, facility, message))
    }
}
