//! Devices that borrow one: as it is, and without its datatype operations.

use std::path::Path;
use std::ptr::NonNull;

use portolan_core::device::{
    AtomicOp, AtomicWidth, Attributes, Check, CommView, Completion, DebugOutput, Device, Handler,
    HandlerId, Hook, HookId, Message, Region, RegionKey, Upper,
};
use portolan_core::matching::Pattern;
use portolan_core::{ContigBuf, Error, Group, ProcId, Request, Result, SendArgs, Status, TypedBuf};
use portolan_datatype::{Layout, MsgAction, MsgRep};

/// The device inside, except that datatype operations are the defaults in terms of contiguous ones:
/// the paper's model implementation, run against every device.
#[derive(Debug)]
pub struct Plain<'d, D>(pub &'d D);

/// Methods that go straight through.
macro_rules! through {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self $(, $argument: $kind)*) $(-> $result)? {
            self.0.$name($($argument),*)
        })*
    };
    ($(unsafe fn $name:ident(&self $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {
        $(unsafe fn $name(&self $(, $argument: $kind)*) $(-> $result)? {
            // SAFETY: the caller's promise is the one that is needed.
            unsafe { self.0.$name($($argument),*) }
        })*
    };
}

/// The device inside, as it is: for what wants to own its device, as communicators do.
#[derive(Debug)]
pub struct Lent<'d, D>(pub &'d D);

/// All methods that are not about datatypes.
macro_rules! contiguous {
    () => {
        through! {
            fn attributes(&self) -> &Attributes;
            fn wtime(&self) -> f64;
            fn wtick(&self) -> f64;
            fn end(&self) -> Result<()>;
            fn abort(&self, code: i32, facility: Option<&str>, message: Option<&str>) -> !;
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
            fn register_handler(&self, id: HandlerId, handler: Handler) -> Result<()>;
            fn active_send(
                &self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8]
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

        through! {
            unsafe fn send_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<()>;
            unsafe fn isend_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<Request>;
            unsafe fn recv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Status>;
            unsafe fn irecv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Request>;
            unsafe fn send_init_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request>;
            unsafe fn recv_init_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request>;
            unsafe fn imrecv_unchecked(&self, message: Message, buf: TypedBuf<'_>) -> Result<Request>;
            unsafe fn register_region(&self, ptr: *mut u8, len: usize) -> Result<Region>;
            unsafe fn free_region(&self, region: Region) -> Result<()>;
            unsafe fn put(
                &self, peer: ProcId, key: &RegionKey, offset: u64, source: *const u8, len: usize
            ) -> Result<Request>;
            unsafe fn get(
                &self, peer: ProcId, key: &RegionKey, offset: u64, target: *mut u8, len: usize
            ) -> Result<Request>;
            unsafe fn atomic(
                &self,
                peer: ProcId,
                key: &RegionKey,
                offset: u64,
                width: AtomicWidth,
                op: AtomicOp,
                fetched: *mut u64
            ) -> Result<Request>;
        }
    };
}

impl<D: Device> Device for Plain<'_, D> {
    contiguous!();
}

impl<D: Device> Device for Lent<'_, D> {
    contiguous!();

    through! {
        fn msg_rep(&self, partner: Option<u32>, layout: &Layout) -> (MsgRep, MsgAction);
        fn msg_act(&self, partner: Option<u32>, layout: &Layout, rep: MsgRep) -> MsgAction;
    }

    through! {
        unsafe fn send_datatype_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<()>;
        unsafe fn isend_datatype_unchecked(
            &self, args: &SendArgs, buf: TypedBuf<'_>
        ) -> Result<Request>;
        unsafe fn recv_datatype_unchecked(
            &self, from: &Pattern, buf: TypedBuf<'_>
        ) -> Result<Status>;
        unsafe fn irecv_datatype_unchecked(
            &self, from: &Pattern, buf: TypedBuf<'_>
        ) -> Result<Request>;
    }
}
