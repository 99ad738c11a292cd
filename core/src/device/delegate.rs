//! Devices that forward their calls to another device: the trait's methods, listed once.

/// The types that the signatures of [`Device`](super::Device) name, in one place for the macro.
#[doc(hidden)]
pub mod named {
    pub use std::path::Path;
    pub use std::ptr::NonNull;

    pub use portolan_datatype::{Layout, MsgAction, MsgRep};

    pub use crate::buffer::{ContigBuf, TypedBuf};
    pub use crate::device::{
        ActiveMessage, AtomicOp, AtomicWidth, Attributes, Check, CommView, Completion, DebugOutput,
        Exposing, Handler, HandlerId, Hook, HookId, Message, ProcId, Region, RegionKey, SendArgs,
        Upper,
    };
    pub use crate::error::{Error, Result};
    pub use crate::group::Group;
    pub use crate::matching::Pattern;
    pub use crate::request::Request;
    pub use crate::staging::DrivenBuf;
    pub use crate::status::Status;
}

/// Writes methods of [`Device`](crate::Device) that forward their call to another device: inside an
/// `unsafe impl Device for …`, `delegate_device! { to: words }`.
///
/// `to` is a macro of the caller's that finds the other device: `to!(self, device => call)` must
/// evaluate to `call`, with `device` bound to a reference to the other device. Each word is the
/// name of a method, or of a family, as the trait's headings divide them:
///
/// | word | methods |
/// | --- | --- |
/// | `lifecycle` | attributes, clocks, communicators, failures, debugging: all of the heading but |
/// | `leaving` | `end`, `abort` |
/// | `contiguous` | the four operations on contiguous buffers |
/// | `datatypes` | the four operations on layouts |
/// | `driven` | `isend_driven_unchecked` and the others from, to and on memory that only its driver reaches |
/// | `persistent` | `send_init_unchecked`, `recv_init_unchecked`, `start` |
/// | `queues` | probes, and messages that they take |
/// | `requests` | completion, cancelling, giving up; `device_check` |
/// | `packing` | `msg_rep`, `msg_act` |
/// | `active_messages` | `register_handler`, `active_send` |
/// | `registrations` | hooks, and requests of other crates' kinds |
/// | `one_sided` | regions, put, get, atomics, `flush`; `exposing` |
/// | `stores` | `wait_for`, `notify`, `processor`, `give_way` |
/// | `everything` | all of the above |
///
/// A method that is added to the trait must be added to this list, and to no other.
///
/// ```
/// use portolan_core::device::{Device, delegate_device};
///
/// /// A device with a clock that stands still.
/// struct Timeless<D>(D);
///
/// macro_rules! inner {
///     ($self:ident, $device:ident => $call:expr) => {{
///         let $device = &$self.0;
///         $call
///     }};
/// }
///
/// // SAFETY: every call goes to a device that keeps the contract.
/// unsafe impl<D: Device> Device for Timeless<D> {
///     fn wtime(&self) -> f64 {
///         0.0
///     }
///
///     delegate_device! { inner:
///         // Of its family all the others, each by its name.
///         attributes, wtick, comm_init, comm_free, failure_of, dead_member, declare_self_failed,
///         end_silently, node_of, set_packet_size, set_trace_file, set_debug, describe_state, counters,
///         leaving, contiguous, datatypes, driven, persistent, queues, requests, packing, active_messages,
///         registrations, one_sided, stores,
///     }
/// }
/// # use portolan_core::{engine::Engine, level::Single, transport::memory};
/// # use portolan_core::config::Settings;
/// # let settings = Settings::default();
/// # let transport = memory::network(1).remove(0);
/// # let device = Timeless(Engine::<_, Single>::new(transport, &settings)?);
/// assert_eq!(device.wtime(), 0.0);
/// assert_eq!(device.attributes().world_size, 1);
/// # Ok::<(), portolan_core::Error>(())
/// ```
#[macro_export]
macro_rules! delegate_device {
    ($to:ident: $($word:ident),+ $(,)?) => {$(
        $crate::delegate_device! { @$word $to }
    )+};

    // ---- Families ------------------------------------------------------------------------------

    (@everything $to:ident) => { $crate::delegate_device! { $to:
        lifecycle, leaving, contiguous, datatypes, driven, persistent, queues, requests, packing,
        active_messages, registrations, one_sided, stores,
    }};
    (@lifecycle $to:ident) => { $crate::delegate_device! { $to:
        attributes, wtime, wtick, comm_init, comm_free, failure_of, dead_member,
        declare_self_failed, end_silently, node_of, set_packet_size, set_trace_file, set_debug,
        describe_state, counters,
    }};
    (@leaving $to:ident) => { $crate::delegate_device! { $to: end, abort }};
    (@contiguous $to:ident) => { $crate::delegate_device! { $to:
        send_contig_unchecked, isend_contig_unchecked, recv_contig_unchecked,
        irecv_contig_unchecked,
    }};
    (@datatypes $to:ident) => { $crate::delegate_device! { $to:
        send_datatype_unchecked, isend_datatype_unchecked, recv_datatype_unchecked,
        irecv_datatype_unchecked,
    }};
    (@driven $to:ident) => { $crate::delegate_device! { $to:
        isend_driven_unchecked, irecv_driven_unchecked, register_driven, put_driven, get_driven,
    }};
    (@persistent $to:ident) => { $crate::delegate_device! { $to:
        send_init_unchecked, recv_init_unchecked, start,
    }};
    (@queues $to:ident) => { $crate::delegate_device! { $to:
        iprobe_unchecked, probe_unchecked, improbe_unchecked, mprobe_unchecked, imrecv_unchecked,
        discard,
    }};
    (@requests $to:ident) => { $crate::delegate_device! { $to:
        is_complete, test, wait, peek, cancel, free, attach, device_check, completion_epoch,
    }};
    (@packing $to:ident) => { $crate::delegate_device! { $to: msg_rep, msg_act }};
    (@active_messages $to:ident) => { $crate::delegate_device! { $to:
        register_handler, active_send,
    }};
    (@registrations $to:ident) => { $crate::delegate_device! { $to:
        register_hook, wake_hook, has_request_room, upper_request, complete_upper, fail_upper,
    }};
    (@one_sided $to:ident) => { $crate::delegate_device! { $to:
        alloc_region, register_region, free_region, direct, shares, exposing, put, get, atomic,
        flush,
    }};
    (@stores $to:ident) => { $crate::delegate_device! { $to:
        wait_for, wait_for_peer, notify, processor, give_way
    }};

    // ---- Methods, as the trait lists them ------------------------------------------------------

    (@attributes $to:ident) => { $crate::delegate_device! { $to
        fn attributes() -> &$crate::device::named::Attributes
    }};
    (@wtime $to:ident) => { $crate::delegate_device! { $to fn wtime() -> f64 }};
    (@wtick $to:ident) => { $crate::delegate_device! { $to fn wtick() -> f64 }};
    (@end $to:ident) => { $crate::delegate_device! { $to
        fn end() -> $crate::device::named::Result<()>
    }};
    (@abort $to:ident) => { $crate::delegate_device! { $to
        fn abort(
            code: i32,
            facility: Option<&str>,
            message: Option<&str>,
        ) -> !
    }};
    (@comm_init $to:ident) => { $crate::delegate_device! { $to
        fn comm_init(
            parent: Option<&$crate::device::named::CommView>,
            new: &$crate::device::named::CommView,
        ) -> $crate::device::named::Result<()>
    }};
    (@comm_free $to:ident) => { $crate::delegate_device! { $to
        fn comm_free(comm: &$crate::device::named::CommView)
    }};
    (@failure_of $to:ident) => { $crate::delegate_device! { $to
        fn failure_of(
            peer: $crate::device::named::ProcId,
        ) -> Option<String>
    }};
    (@dead_member $to:ident) => { $crate::delegate_device! { $to
        fn dead_member(
            group: &$crate::device::named::Group,
        ) -> Option<$crate::device::named::ProcId>
    }};
    (@declare_self_failed $to:ident) => { $crate::delegate_device! { $to
        fn declare_self_failed(why: &str)
    }};
    (@end_silently $to:ident) => { $crate::delegate_device! { $to
        fn end_silently()
    }};
    (@node_of $to:ident) => { $crate::delegate_device! { $to
        fn node_of(peer: $crate::device::named::ProcId) -> u32
    }};
    (@set_packet_size $to:ident) => { $crate::delegate_device! { $to
        fn set_packet_size(bytes: usize)
    }};
    (@set_trace_file $to:ident) => { $crate::delegate_device! { $to
        fn set_trace_file(
            path: Option<&$crate::device::named::Path>,
        ) -> $crate::device::named::Result<()>
    }};
    (@set_debug $to:ident) => { $crate::delegate_device! { $to
        fn set_debug(
            to: Option<$crate::device::named::DebugOutput<'_>>,
        ) -> $crate::device::named::Result<()>
    }};
    (@describe_state $to:ident) => { $crate::delegate_device! { $to
        fn describe_state() -> Vec<String>
    }};
    (@counters $to:ident) => { $crate::delegate_device! { $to
        fn counters() -> Vec<(&'static str, u64)>
    }};
    (@send_contig_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn send_contig_unchecked(
            args: &$crate::device::named::SendArgs,
            buf: $crate::device::named::ContigBuf,
        ) -> $crate::device::named::Result<()>
    }};
    (@isend_contig_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn isend_contig_unchecked(
            args: &$crate::device::named::SendArgs,
            buf: $crate::device::named::ContigBuf,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@recv_contig_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn recv_contig_unchecked(
            from: &$crate::device::named::Pattern,
            buf: $crate::device::named::ContigBuf,
        ) -> $crate::device::named::Result<$crate::device::named::Status>
    }};
    (@irecv_contig_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn irecv_contig_unchecked(
            from: &$crate::device::named::Pattern,
            buf: $crate::device::named::ContigBuf,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@send_datatype_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn send_datatype_unchecked(
            args: &$crate::device::named::SendArgs,
            buf: $crate::device::named::TypedBuf<'_>,
        ) -> $crate::device::named::Result<()>
    }};
    (@isend_datatype_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn isend_datatype_unchecked(
            args: &$crate::device::named::SendArgs,
            buf: $crate::device::named::TypedBuf<'_>,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@recv_datatype_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn recv_datatype_unchecked(
            from: &$crate::device::named::Pattern,
            buf: $crate::device::named::TypedBuf<'_>,
        ) -> $crate::device::named::Result<$crate::device::named::Status>
    }};
    (@irecv_datatype_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn irecv_datatype_unchecked(
            from: &$crate::device::named::Pattern,
            buf: $crate::device::named::TypedBuf<'_>,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@isend_driven_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn isend_driven_unchecked(
            args: &$crate::device::named::SendArgs,
            buf: $crate::device::named::DrivenBuf,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@irecv_driven_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn irecv_driven_unchecked(
            from: &$crate::device::named::Pattern,
            buf: $crate::device::named::DrivenBuf,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@send_init_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn send_init_unchecked(
            args: &$crate::device::named::SendArgs,
            buf: $crate::device::named::TypedBuf<'_>,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@recv_init_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn recv_init_unchecked(
            from: &$crate::device::named::Pattern,
            buf: $crate::device::named::TypedBuf<'_>,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@start $to:ident) => { $crate::delegate_device! { $to
        fn start(request: $crate::device::named::Request) -> $crate::device::named::Result<()>
    }};
    (@iprobe_unchecked $to:ident) => { $crate::delegate_device! { $to
        fn iprobe_unchecked(
            from: &$crate::device::named::Pattern,
        ) -> $crate::device::named::Result<Option<$crate::device::named::Status>>
    }};
    (@probe_unchecked $to:ident) => { $crate::delegate_device! { $to
        fn probe_unchecked(
            from: &$crate::device::named::Pattern,
        ) -> $crate::device::named::Result<$crate::device::named::Status>
    }};
    (@improbe_unchecked $to:ident) => { $crate::delegate_device! { $to
        fn improbe_unchecked(
            from: &$crate::device::named::Pattern,
        ) -> $crate::device::named::Result<
            Option<($crate::device::named::Message, $crate::device::named::Status)>,
        >
    }};
    (@mprobe_unchecked $to:ident) => { $crate::delegate_device! { $to
        fn mprobe_unchecked(
            from: &$crate::device::named::Pattern,
        ) -> $crate::device::named::Result<(
            $crate::device::named::Message, $crate::device::named::Status,
        )>
    }};
    (@imrecv_unchecked $to:ident) => { $crate::delegate_device! { $to
        unsafe fn imrecv_unchecked(
            message: $crate::device::named::Message,
            buf: $crate::device::named::TypedBuf<'_>,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@discard $to:ident) => { $crate::delegate_device! { $to
        fn discard(message: $crate::device::named::Message) -> $crate::device::named::Result<()>
    }};
    (@is_complete $to:ident) => { $crate::delegate_device! { $to
        fn is_complete(request: $crate::device::named::Request) -> bool
    }};
    (@test $to:ident) => { $crate::delegate_device! { $to
        fn test(
            request: $crate::device::named::Request,
        ) -> $crate::device::named::Result<Option<$crate::device::named::Status>>
    }};
    (@wait $to:ident) => { $crate::delegate_device! { $to
        fn wait(
            request: $crate::device::named::Request,
        ) -> $crate::device::named::Result<$crate::device::named::Status>
    }};
    (@peek $to:ident) => { $crate::delegate_device! { $to
        fn peek(
            request: $crate::device::named::Request,
        ) -> $crate::device::named::Result<Option<$crate::device::named::Status>>
    }};
    (@cancel $to:ident) => { $crate::delegate_device! { $to
        fn cancel(request: $crate::device::named::Request) -> $crate::device::named::Result<()>
    }};
    (@free $to:ident) => { $crate::delegate_device! { $to
        fn free(request: $crate::device::named::Request) -> $crate::device::named::Result<()>
    }};
    (@attach $to:ident) => { $crate::delegate_device! { $to
        fn attach(
            request: $crate::device::named::Request,
            completion: $crate::device::named::Completion,
        ) -> $crate::device::named::Result<()>
    }};
    (@device_check $to:ident) => { $crate::delegate_device! { $to
        fn device_check(check: $crate::device::named::Check) -> $crate::device::named::Result<()>
    }};
    (@completion_epoch $to:ident) => { $crate::delegate_device! { $to
        fn completion_epoch() -> u64
    }};
    (@msg_rep $to:ident) => { $crate::delegate_device! { $to
        fn msg_rep(
            partner: Option<u32>,
            layout: &$crate::device::named::Layout,
        ) -> ($crate::device::named::MsgRep, $crate::device::named::MsgAction)
    }};
    (@msg_act $to:ident) => { $crate::delegate_device! { $to
        fn msg_act(
            partner: Option<u32>,
            layout: &$crate::device::named::Layout,
            rep: $crate::device::named::MsgRep,
        ) -> $crate::device::named::MsgAction
    }};
    (@register_handler $to:ident) => { $crate::delegate_device! { $to
        fn register_handler(
            id: $crate::device::named::HandlerId,
            handler: $crate::device::named::Handler,
        ) -> $crate::device::named::Result<()>
    }};
    (@active_send $to:ident) => { $crate::delegate_device! { $to
        fn active_send(
            to: $crate::device::named::ProcId,
            id: $crate::device::named::HandlerId,
            args: [u64; 2],
            payload: &[u8],
        ) -> $crate::device::named::Result<()>
    }};
    (@register_hook $to:ident) => { $crate::delegate_device! { $to
        fn register_hook(hook: $crate::device::named::Hook) -> $crate::device::named::HookId
    }};
    (@wake_hook $to:ident) => { $crate::delegate_device! { $to
        fn wake_hook(hook: $crate::device::named::HookId)
    }};
    (@has_request_room $to:ident) => { $crate::delegate_device! { $to fn has_request_room() -> bool }};
    (@upper_request $to:ident) => { $crate::delegate_device! { $to
        fn upper_request(
            upper: Box<dyn $crate::device::named::Upper>,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@complete_upper $to:ident) => { $crate::delegate_device! { $to
        fn complete_upper(
            request: $crate::device::named::Request,
            status: $crate::device::named::Status,
        ) -> $crate::device::named::Result<()>
    }};
    (@fail_upper $to:ident) => { $crate::delegate_device! { $to
        fn fail_upper(
            request: $crate::device::named::Request,
            error: $crate::device::named::Error,
        ) -> $crate::device::named::Result<()>
    }};
    (@alloc_region $to:ident) => { $crate::delegate_device! { $to
        fn alloc_region(len: usize) -> $crate::device::named::Result<$crate::device::named::Region>
    }};
    (@register_region $to:ident) => { $crate::delegate_device! { $to
        unsafe fn register_region(
            ptr: *mut u8,
            len: usize,
        ) -> $crate::device::named::Result<$crate::device::named::Region>
    }};
    (@register_driven $to:ident) => { $crate::delegate_device! { $to
        unsafe fn register_driven(
            memory: $crate::device::named::DrivenBuf,
        ) -> $crate::device::named::Result<$crate::device::named::Region>
    }};
    (@put_driven $to:ident) => { $crate::delegate_device! { $to
        unsafe fn put_driven(
            peer: $crate::device::named::ProcId,
            key: &$crate::device::named::RegionKey,
            offset: u64,
            source: $crate::device::named::DrivenBuf,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@get_driven $to:ident) => { $crate::delegate_device! { $to
        unsafe fn get_driven(
            peer: $crate::device::named::ProcId,
            key: &$crate::device::named::RegionKey,
            offset: u64,
            target: $crate::device::named::DrivenBuf,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@free_region $to:ident) => { $crate::delegate_device! { $to
        unsafe fn free_region(
            region: $crate::device::named::Region,
        ) -> $crate::device::named::Result<()>
    }};
    (@direct $to:ident) => { $crate::delegate_device! { $to
        fn direct(
            peer: $crate::device::named::ProcId,
            key: &$crate::device::named::RegionKey,
        ) -> Option<$crate::device::named::NonNull<u8>>
    }};
    (@shares $to:ident) => { $crate::delegate_device! { $to
        fn shares(start: *const u8, len: usize) -> bool
    }};
    (@exposing $to:ident) => { $crate::delegate_device! { $to
        fn exposing() -> Option<&dyn $crate::device::named::Exposing>
    }};
    (@put $to:ident) => { $crate::delegate_device! { $to
        unsafe fn put(
            peer: $crate::device::named::ProcId,
            key: &$crate::device::named::RegionKey,
            offset: u64,
            source: *const u8,
            len: usize,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@get $to:ident) => { $crate::delegate_device! { $to
        unsafe fn get(
            peer: $crate::device::named::ProcId,
            key: &$crate::device::named::RegionKey,
            offset: u64,
            target: *mut u8,
            len: usize,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@atomic $to:ident) => { $crate::delegate_device! { $to
        unsafe fn atomic(
            peer: $crate::device::named::ProcId,
            key: &$crate::device::named::RegionKey,
            offset: u64,
            width: $crate::device::named::AtomicWidth,
            op: $crate::device::named::AtomicOp,
            fetched: *mut u64,
        ) -> $crate::device::named::Result<$crate::device::named::Request>
    }};
    (@flush $to:ident) => { $crate::delegate_device! { $to
        fn flush(peer: $crate::device::named::ProcId) -> $crate::device::named::Result<()>
    }};
    (@wait_for $to:ident) => { $crate::delegate_device! { $to
        fn wait_for(
            group: &$crate::device::named::Group,
            ready: impl FnMut() -> bool,
        ) -> $crate::device::named::Result<()>
    }};
    (@wait_for_peer $to:ident) => { $crate::delegate_device! { $to
        fn wait_for_peer(
            group: &$crate::device::named::Group,
            peer: $crate::device::named::ProcId,
            ready: impl FnMut() -> bool,
        ) -> $crate::device::named::Result<()>
    }};
    (@notify $to:ident) => { $crate::delegate_device! { $to
        fn notify(peer: $crate::device::named::ProcId)
    }};
    (@processor $to:ident) => { $crate::delegate_device! { $to
        fn processor() -> Option<u32>
    }};
    (@give_way $to:ident) => { $crate::delegate_device! { $to
        fn give_way()
    }};

    // ---- How one is written --------------------------------------------------------------------

    ($to:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)?) => {
        #[inline]
        fn $name(&self $(, $arg: $type)*) $(-> $out)? {
            $to!(self, device => device.$name($($arg),*))
        }
    };
    ($to:ident unsafe fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)?) => {
        #[inline]
        unsafe fn $name(&self $(, $arg: $type)*) $(-> $out)? {
            // SAFETY: the device that answers has this method's contract, which the caller keeps.
            $to!(self, device => unsafe { device.$name($($arg),*) })
        }
    };
}

#[cfg(test)]
mod tests {
    /// The names of the methods that the trait declares, in its order.
    fn declared() -> Vec<&'static str> {
        let text = include_str!("mod.rs");
        let (_, body) = text.split_once("pub unsafe trait Device {\n").unwrap();
        let (body, _) = body.split_once("\n}\n").unwrap();
        let line = |line: &'static str| {
            let words = line.strip_prefix("    ")?;
            let words = words.strip_prefix("unsafe ").unwrap_or(words);
            Some(words.strip_prefix("fn ")?.split_once('(')?.0)
        };
        body.lines().filter_map(line).collect()
    }

    /// The default would answer for a method that has one and is missing in the list.
    #[test]
    fn every_method_is_listed_and_in_one_family() {
        let text = include_str!("delegate.rs");
        let (text, _) = text.split_once("#[cfg(test)]").unwrap();
        let (_, families) = text.split_once("---- Families").unwrap();
        let (families, methods) = families.split_once("---- Methods").unwrap();
        let arms = methods.lines().filter_map(|line| {
            let (name, _) = line.trim_start().strip_prefix("(@")?.split_once(' ')?;
            Some(name)
        });
        assert_eq!(declared(), arms.collect::<Vec<_>>());
        for name in declared() {
            let words = families.split(|c: char| !c.is_alphanumeric() && c != '_');
            assert_eq!(words.filter(|word| *word == name).count(), 1, "{name}");
        }
    }
}
