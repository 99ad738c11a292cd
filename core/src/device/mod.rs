//! The abstract device interface: trait [`Device`], and [`Adi`], its routines under the names of
//! the paper (`docs/adi.md` has the correspondence).
//!
//! A device is an endpoint of one rank in one job. It is usable by itself: without communicators
//! from above, local ranks are world ranks and any context id may be used.
//!
//! The interface has two floors. Entries that end in `_unchecked` are `unsafe` and trust their
//! arguments, which they only assert in debug builds; the facade has validated them before it
//! calls. The safe methods of [`Adi`] validate everything and return errors.
//!
//! Everything here may be called inside or outside of a communicator's lifetime, from one thread at
//! level [`Single`](crate::level::Single) and from any at [`Multiple`](crate::level::Multiple); two
//! threads calling into one device both make progress.

mod active;
mod adi;
mod args;
mod attributes;
mod defaults;
mod delegate;
mod exposing;
mod persistent;
mod port;
mod region;
mod upper;

use portolan_datatype::{Layout, MsgAction, MsgRep};

pub use active::{ActiveMessage, Handler, HandlerId};
pub use adi::Adi;
pub use args::{Check, CommView, DebugOutput, Message, ProcId, SendArgs, SendMode};
pub use attributes::{Attributes, Caps, Which};
#[doc(hidden)]
pub use delegate::named;
pub use exposing::{Exposing, Exposure};
pub use persistent::{Persistent, Persistents};
pub use port::{Hook, HookId, Port, Turn};
pub use region::{AtomicOp, AtomicWidth, Region, RegionKey};
pub use upper::{Completion, Upper};

use crate::buffer::{ContigBuf, TypedBuf};
pub use crate::delegate_device;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::matching::Pattern;
use crate::request::Request;
use crate::staging::{DrivenBuf, unsupported};
use crate::status::Status;

/// The abstract device interface. See the [module](self).
///
/// # Completion
/// A request is complete when [`is_complete`](Self::is_complete) says so; [`test`](Self::test) and
/// [`wait`](Self::wait) complete it in MPI's sense too: they return its status and free it (a
/// persistent request becomes inactive instead). Errors of an operation come out of the call that
/// completes it; the request is freed all the same.
///
/// # Buffers
/// The buffer of a nonblocking operation belongs to the device from the start of the operation
/// until the request completes. Where [`Caps::CANCEL_LOCAL`] is set, a successful cancel of a
/// receive completes it inside the call.
///
/// # Safety
/// Code above a device relies on what the device says about memory. Once a request is said to be
/// over, however it ended, or a blocking call has returned, the device no longer uses the buffers.
/// Memory that it hands out stays valid until it is freed. What it reports about a message is true.
pub unsafe trait Device {
    // ---- Lifecycle and attributes ---------------------------------------------------------------

    /// The device's attributes.
    fn attributes(&self) -> &Attributes;

    /// Seconds since a fixed moment in the past (`MPID_Wtime`).
    fn wtime(&self) -> f64;

    /// Resolution of [`wtime`](Self::wtime) in seconds (`MPID_Wtick`).
    fn wtick(&self) -> f64;

    /// Ends the use of the device (`MPID_End`): completes what was started and waits for the other
    /// ranks. Collective. Later calls fail with [`Finalized`](crate::ErrorKind::Finalized).
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed) if a rank died instead.
    fn end(&self) -> Result<()>;

    /// Ends the whole job (`MPID_Abort`): prints `message` (a default text if there is none) and
    /// the caller (`facility`), hands `code` to the environment and does not return.
    fn abort(&self, code: i32, facility: Option<&str>, message: Option<&str>) -> !;

    /// Tells the device of a new communicator (`MPID_CommInit`), before its first message. All of
    /// `new` is set; `parent` is the communicator that it came from.
    ///
    /// # Errors
    /// [`InvalidCommunicator`](crate::ErrorKind::InvalidCommunicator) if the context is in use.
    fn comm_init(&self, parent: Option<&CommView>, new: &CommView) -> Result<()>;

    /// Tells the device that a communicator is freed (`MPID_CommFree`). Operations that are still
    /// pending complete as if it existed.
    fn comm_free(&self, comm: &CommView);

    /// Why a peer counts as failed: it is held to be dead, or it has left in good order while
    /// something was still wanted of it.
    fn failure_of(&self, peer: ProcId) -> Option<String>;

    /// A member of `group` that is held to be dead, if there is one. Called at the start of every
    /// collective operation, so while nobody has died it should cost only a few loads.
    fn dead_member(&self, group: &Group) -> Option<ProcId> {
        group
            .iter()
            .find(|&member| self.failure_of(member).is_some())
    }

    /// Declares this rank failed to the other ranks of its job (a thread that was a rank panicked).
    fn declare_self_failed(&self, why: &str);

    /// This rank's program has failed, and its process is about to end, by which others learn of
    /// the failure: when the device is dropped, it must not announce that it leaves in good order.
    fn end_silently(&self) {}

    /// Number of the node on which a peer runs; ranks with equal numbers share memory.
    fn node_of(&self, peer: ProcId) -> u32;

    /// Sets the largest eager message, in bytes (`MPID_SetPktSize`), up to the transport's limit.
    fn set_packet_size(&self, bytes: usize);

    /// Records every protocol event into `path` from now on, or stops (`MPID_Set_tracefile`).
    /// The format is the trace event format that Chromium's and Perfetto's viewers open.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the file cannot be written.
    fn set_trace_file(&self, path: Option<&std::path::Path>) -> Result<()>;

    /// Debug events go to standard error (`MPID_SetDebugFlag`), or to a file (`MPID_SetDebugFile`);
    /// `None` switches them off.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the file cannot be written.
    fn set_debug(&self, to: Option<DebugOutput<'_>>) -> Result<()>;

    /// What the rank waits for, its queues and its memory, as text (`MPID_SetSpaceDebugFlag`).
    fn describe_state(&self) -> Vec<String>;

    /// The device's counters, by name.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    // ---- Contiguous operations -----------------------------------------------------------------

    /// Sends and returns when the buffer may be used again (`MPID_SendContig`, `SsendContig`,
    /// `RsendContig`, `BsendContig` by [`SendArgs::mode`]).
    ///
    /// # Errors
    /// [`MayBlock`](crate::ErrorKind::MayBlock) in buffered mode, when the message cannot be sent
    /// without waiting: the caller buffers it then.
    ///
    /// # Safety
    /// `args` must name a rank of the job and a legal tag and context; `buf` must be readable for
    /// the length of the call.
    unsafe fn send_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<()>;

    /// Starts a send (`MPID_IsendContig`, `IssendContig`, `IrsendContig`). Buffered mode is not
    /// allowed.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there are no more request slots.
    ///
    /// # Safety
    /// As [`send_contig_unchecked`](Self::send_contig_unchecked), and `buf` must stay readable and
    /// unchanged until the request completes.
    unsafe fn isend_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<Request>;

    /// Receives and returns the status (`MPID_RecvContig`).
    ///
    /// # Errors
    /// [`Truncated`](crate::ErrorKind::Truncated) with the status in the error,
    /// [`TypeMismatch`](crate::ErrorKind::TypeMismatch),
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    ///
    /// # Safety
    /// `from` must be legal; `buf` must be writable for the length of the call.
    unsafe fn recv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Status>;

    /// Starts a receive (`MPID_IrecvContig`).
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there are no more request slots.
    ///
    /// # Safety
    /// As [`recv_contig_unchecked`](Self::recv_contig_unchecked), and `buf` must stay writable and
    /// unread until the request completes.
    unsafe fn irecv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Request>;

    // ---- Datatype operations: defaults in terms of the contiguous ones -------------------------

    /// Sends `buf.count` items of a layout (`MPID_SendDatatype` and its modes).
    ///
    /// The default packs into a buffer of the message's size and sends that.
    ///
    /// # Errors
    /// As [`send_contig_unchecked`](Self::send_contig_unchecked), and
    /// [`InvalidCount`](crate::ErrorKind::InvalidCount) if the packed size overflows.
    ///
    /// # Safety
    /// As [`send_contig_unchecked`](Self::send_contig_unchecked) for every byte that the layout
    /// covers.
    unsafe fn send_datatype_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<()>
    where
        Self: Sized,
    {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { defaults::send_datatype(self, args, buf) }
    }

    /// Starts a send of `buf.count` items of a layout (`MPID_IsendDatatype` and its modes).
    ///
    /// # Errors
    /// As [`isend_contig_unchecked`](Self::isend_contig_unchecked).
    ///
    /// # Safety
    /// As [`isend_contig_unchecked`](Self::isend_contig_unchecked) for every byte that the layout
    /// covers. The layout itself may be freed at once.
    unsafe fn isend_datatype_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request>
    where
        Self: Sized,
    {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { defaults::isend_datatype(self, args, buf) }
    }

    /// Receives into `buf.count` items of a layout (`MPID_RecvDatatype`).
    ///
    /// # Errors
    /// As [`recv_contig_unchecked`](Self::recv_contig_unchecked).
    ///
    /// # Safety
    /// As [`recv_contig_unchecked`](Self::recv_contig_unchecked) for every byte that the layout
    /// covers.
    unsafe fn recv_datatype_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Status>
    where
        Self: Sized,
    {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { defaults::recv_datatype(self, from, buf) }
    }

    /// Starts a receive into `buf.count` items of a layout (`MPID_IrecvDatatype`).
    ///
    /// # Errors
    /// As [`irecv_contig_unchecked`](Self::irecv_contig_unchecked).
    ///
    /// # Safety
    /// As [`irecv_contig_unchecked`](Self::irecv_contig_unchecked) for every byte that the layout
    /// covers. The layout itself may be freed at once.
    unsafe fn irecv_datatype_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request>
    where
        Self: Sized,
    {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { defaults::irecv_datatype(self, from, buf) }
    }

    // ---- Memory that only its driver reaches ---------------------------------------------------

    /// Starts a send of data in memory that only its driver reaches ([`Caps::DRIVEN`]). Most
    /// callers want [`Staging`](crate::staging::Staging), which finds the driver, and sends short
    /// data, and data that this device does not accept, from a copy.
    ///
    /// If the driver fails, both sides end with
    /// [`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory); later messages arrive.
    ///
    /// # Errors
    /// [`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory) without [`Caps::DRIVEN`], if the
    /// layout has gaps, the mode is buffered, the representation is not native, or the driver does
    /// not know the address; else as [`isend_contig_unchecked`](Self::isend_contig_unchecked).
    ///
    /// # Safety
    /// As [`isend_contig_unchecked`](Self::isend_contig_unchecked), with memory of the driver's
    /// kind.
    unsafe fn isend_driven_unchecked(&self, args: &SendArgs, buf: DrivenBuf) -> Result<Request> {
        let _ = args;
        Err(unsupported(buf.driver.kind(), "this send"))
    }

    /// Starts a receive into memory that only its driver reaches ([`Caps::DRIVEN`]); see
    /// [`isend_driven_unchecked`](Self::isend_driven_unchecked).
    ///
    /// # Errors
    /// As there, and as [`irecv_contig_unchecked`](Self::irecv_contig_unchecked).
    ///
    /// # Safety
    /// As [`irecv_contig_unchecked`](Self::irecv_contig_unchecked), with memory of the driver's
    /// kind.
    unsafe fn irecv_driven_unchecked(&self, from: &Pattern, buf: DrivenBuf) -> Result<Request> {
        let _ = from;
        Err(unsupported(buf.driver.kind(), "this receive"))
    }

    // ---- Persistent operations -----------------------------------------------------------------

    /// Makes an inactive persistent send (`MPI_Send_init` and its modes).
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there are no more request slots.
    ///
    /// # Safety
    /// As [`isend_datatype_unchecked`](Self::isend_datatype_unchecked), from each
    /// [`start`](Self::start) until the request completes.
    unsafe fn send_init_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request>;

    /// Makes an inactive persistent receive (`MPI_Recv_init`). Wildcards are kept for every start.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there are no more request slots.
    ///
    /// # Safety
    /// As [`irecv_datatype_unchecked`](Self::irecv_datatype_unchecked), from each
    /// [`start`](Self::start) until the request completes.
    unsafe fn recv_init_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request>;

    /// Starts a persistent request (`MPI_Start`). The request keeps its value.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if it is stale, not persistent or
    /// active.
    fn start(&self, request: Request) -> Result<()>;

    // ---- Queue information ---------------------------------------------------------------------

    /// The status of the earliest message that `from` matches, if one has arrived (`MPID_Iprobe`).
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed) if the source named is dead and nothing is
    /// left.
    fn iprobe_unchecked(&self, from: &Pattern) -> Result<Option<Status>>;

    /// Waits for a message that `from` matches (`MPID_Probe`).
    ///
    /// # Errors
    /// As [`iprobe_unchecked`](Self::iprobe_unchecked).
    fn probe_unchecked(&self, from: &Pattern) -> Result<Status>;

    /// Takes the earliest message that `from` matches out of matching, if one has arrived
    /// (`MPI_Improbe`): only the handle can receive it now.
    ///
    /// # Errors
    /// As [`iprobe_unchecked`](Self::iprobe_unchecked).
    fn improbe_unchecked(&self, from: &Pattern) -> Result<Option<(Message, Status)>>;

    /// Waits for a message and takes it (`MPI_Mprobe`).
    ///
    /// # Errors
    /// As [`iprobe_unchecked`](Self::iprobe_unchecked).
    fn mprobe_unchecked(&self, from: &Pattern) -> Result<(Message, Status)>;

    /// Starts to receive a message that was taken (`MPI_Imrecv`); after an error it is still taken.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the handle is stale.
    ///
    /// # Safety
    /// As [`irecv_datatype_unchecked`](Self::irecv_datatype_unchecked).
    unsafe fn imrecv_unchecked(&self, message: Message, buf: TypedBuf<'_>) -> Result<Request>;

    /// Discards a message that was taken: it counts as received, its data is lost.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the handle is stale.
    fn discard(&self, message: Message) -> Result<()>;

    // ---- Requests and completion ---------------------------------------------------------------

    /// Whether a request is complete: a load, no call of the device, no progress (`is_complete` of
    /// the paper). True for [`Request::NULL`], stale requests (the next call reports them) and
    /// inactive persistent ones. One that was given up is complete when its operation is over.
    fn is_complete(&self, request: Request) -> bool;

    /// Makes progress and completes the request if it can be (`MPID_SendIcomplete`,
    /// `MPID_RecvIcomplete`).
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), or the error of the operation; either
    /// way the request is gone (a persistent one is inactive).
    fn test(&self, request: Request) -> Result<Option<Status>>;

    /// Waits until the request is complete (`MPID_SendComplete`, `MPID_RecvComplete`,
    /// `MPID_WaitForComplete*`). Another thread may complete it meanwhile: that is noticed, not an
    /// error, as long as that thread does not free it.
    ///
    /// # Errors
    /// As [`test`](Self::test).
    fn wait(&self, request: Request) -> Result<Status>;

    /// The status of a complete request, which stays as it is (`MPI_Request_get_status`); makes
    /// progress. `None` while it is active.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn peek(&self, request: Request) -> Result<Option<Status>>;

    /// Asks for an active request to be cancelled (`MPID_SendCancel`, `MPID_RecvCancel`). The
    /// status at completion says whether it was; if it could not be, that is not an error.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn cancel(&self, request: Request) -> Result<()>;

    /// Gives a request up (`MPID_SendFree`, `MPID_RecvFree`, `MPID_Request_free`): the operation
    /// continues, and its slot is freed when it is over.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn free(&self, request: Request) -> Result<()>;

    /// Keeps `keep` alive until the operation of an active request is over, whatever becomes of the
    /// handle, and calls `then` with the status at completion (at once if that has passed).
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), and any error that `then` returns for
    /// [`Request::DONE`], which has no slot to keep it in.
    fn attach(&self, request: Request, completion: Completion) -> Result<()>;

    /// Makes progress (`MPID_DeviceCheck`). With [`Check::Blocking`], returns when the completion
    /// epoch differs from the one given, at once if it does already; may return earlier.
    ///
    /// # Errors
    /// [`Aborted`](crate::ErrorKind::Aborted) when the job ends.
    fn device_check(&self, check: Check) -> Result<()>;

    /// A number that changes whenever a request becomes complete, and on other events that a thread
    /// may wait for. Read it before the last test that precedes a blocking
    /// [`device_check`](Self::device_check).
    fn completion_epoch(&self) -> u64;

    // ---- Pack and unpack -----------------------------------------------------------------------

    /// The representation that a sender picks, and how to get the data into it (`MPID_Msg_rep`).
    /// `partner` is a rank of `comm`, `None` for any member.
    fn msg_rep(&self, partner: Option<u32>, layout: &Layout) -> (MsgRep, MsgAction) {
        let _ = partner;
        defaults::msg_rep(layout)
    }

    /// What a receiver has to do to data that came in `rep` (`MPID_Msg_act`).
    fn msg_act(&self, partner: Option<u32>, layout: &Layout, rep: MsgRep) -> MsgAction {
        let _ = partner;
        defaults::msg_act(layout, rep)
    }

    // ---- Active messages -----------------------------------------------------------------------

    /// Registers the handler for active messages with this id. Messages that arrived before are
    /// kept and delivered now.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the id is taken.
    fn register_handler(&self, id: HandlerId, handler: Handler) -> Result<()>;

    /// Sends an active message; returns when `payload` may be used again. Ordered with the other
    /// active messages to that peer, and not with anything else.
    ///
    /// # Errors
    /// [`InvalidRank`](crate::ErrorKind::InvalidRank),
    /// [`InvalidCount`](crate::ErrorKind::InvalidCount) over [`Attributes::active_max`],
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    fn active_send(&self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8]) -> Result<()>;

    // ---- Registrations of the crates above -----------------------------------------------------

    /// Registers a hook that runs inside progress, from the next poll on.
    fn register_hook(&self, hook: Hook) -> HookId;

    /// Wakes a hook that has said [`Turn::Sleep`]: it runs in the next poll, which may be another
    /// thread's. Give the hook its work first and then wake it: a hook that is just about to sleep
    /// without having seen the work then stays awake.
    fn wake_hook(&self, hook: HookId);

    /// Whether a slot for another request is free now. With one thread that stays true until the
    /// thread starts something.
    fn has_request_room(&self) -> bool;

    /// Makes a request of another crate's kind; it completes by
    /// [`complete_upper`](Self::complete_upper) or through a [`Port`].
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there are no more request slots.
    fn upper_request(&self, upper: Box<dyn Upper>) -> Result<Request>;

    /// Completes a request that [`upper_request`](Self::upper_request) made
    /// (`MPI_Grequest_complete`).
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn complete_upper(&self, request: Request, status: Status) -> Result<()>;

    /// Ends such a request with an error, which the call that completes it returns.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn fail_upper(&self, request: Request, error: Error) -> Result<()>;

    // ---- One-sided primitives ------------------------------------------------------------------

    /// Allocates `len` zeroed bytes that peers may reach, directly where [`Caps::DIRECT`] is set.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted).
    fn alloc_region(&self, len: usize) -> Result<Region>;

    /// Makes the caller's memory reachable for peers.
    ///
    /// # Errors
    /// [`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory).
    ///
    /// # Safety
    /// `len` bytes at `ptr` must be valid for reads and writes until the region is freed, and the
    /// program must not access them through references while peers may.
    unsafe fn register_region(&self, ptr: *mut u8, len: usize) -> Result<Region>;

    /// Makes memory that only its driver reaches reachable for peers ([`Caps::DRIVEN`]): they can
    /// put to it and get from it. Atomic operations, even the owner's, are refused
    /// ([`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory)).
    ///
    /// # Errors
    /// [`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory) without [`Caps::DRIVEN`], or if
    /// the driver does not know the address.
    ///
    /// # Safety
    /// As for [`register_region`](Self::register_region), with memory of the driver's kind.
    unsafe fn register_driven(&self, memory: DrivenBuf) -> Result<Region> {
        Err(unsupported(memory.driver.kind(), "a region"))
    }

    /// [`put`](Self::put) from memory that only its driver reaches, if this side needs no copy:
    /// either the peer's region is loaded and stored here, or the network reads such memory.
    /// [`Staging::put`](crate::staging::Staging::put) works everywhere.
    ///
    /// # Errors
    /// [`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory) if a copy is needed or the driver
    /// fails; else as [`put`](Self::put).
    ///
    /// # Safety
    /// As for [`put`](Self::put), with memory of the driver's kind.
    unsafe fn put_driven(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        source: DrivenBuf,
    ) -> Result<Request> {
        let _ = (peer, key, offset);
        Err(unsupported(source.driver.kind(), "a put"))
    }

    /// [`get`](Self::get) into memory that only its driver reaches; see, also for its errors,
    /// [`put_driven`](Self::put_driven).
    ///
    /// # Safety
    /// As for [`get`](Self::get), with memory of the driver's kind.
    unsafe fn get_driven(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        target: DrivenBuf,
    ) -> Result<Request> {
        let _ = (peer, key, offset);
        Err(unsupported(target.driver.kind(), "a get"))
    }

    /// Frees a region, or ends its registration. Later accesses by peers are errors on their side.
    ///
    /// A rank may free a region once it knows, from a barrier or a flag of each peer, that every
    /// peer has made its last access. The same memory may back this rank's next region at once.
    ///
    /// # Errors
    /// [`RemoteAccess`](crate::ErrorKind::RemoteAccess) if it is not a live region of this device.
    ///
    /// # Safety
    /// No pointer into memory that [`alloc_region`](Self::alloc_region) gave, here or obtained by
    /// [`direct`](Self::direct) on a peer, may be used any more.
    unsafe fn free_region(&self, region: Region) -> Result<()>;

    /// Where this process can load and store a peer's region directly, if it can. The pointer is
    /// good until the peer frees the region: look it up once, because this takes the device's lock.
    fn direct(&self, peer: ProcId, key: &RegionKey) -> Option<std::ptr::NonNull<u8>>;

    /// Whether peers load these bytes where they are, so that a message from there is copied once.
    fn shares(&self, _start: *const u8, _len: usize) -> bool {
        false
    }

    /// Memory that ranks expose to each other by hand, if peers can copy from there.
    fn exposing(&self) -> Option<&dyn Exposing> {
        None
    }

    /// Starts to write `len` bytes to a peer's region. The request completes when `source` may be
    /// used again; [`flush`](Self::flush) waits until the bytes are there, or were refused.
    ///
    /// # Errors
    /// [`RemoteAccess`](crate::ErrorKind::RemoteAccess) if the range is outside of the region.
    ///
    /// # Safety
    /// `len` bytes at `source` must stay readable until the request completes.
    unsafe fn put(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        source: *const u8,
        len: usize,
    ) -> Result<Request>;

    /// Starts to read `len` bytes of a peer's region. The request completes when they are here.
    ///
    /// # Errors
    /// [`RemoteAccess`](crate::ErrorKind::RemoteAccess) if the range is outside of the region.
    ///
    /// # Safety
    /// `len` bytes at `target` must stay writable until the request completes.
    unsafe fn get(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Result<Request>;

    /// Starts an atomic operation on a naturally aligned integer of a peer's region. The former
    /// value is written to `fetched`, if it is not null, before the request completes.
    ///
    /// # Errors
    /// [`RemoteAccess`](crate::ErrorKind::RemoteAccess) if the integer is outside of the region or
    /// not aligned.
    ///
    /// # Safety
    /// `fetched` must be null or stay writable for a `u64` until the request completes.
    unsafe fn atomic(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        width: AtomicWidth,
        op: AtomicOp,
        fetched: *mut u64,
    ) -> Result<Request>;

    /// Waits until everything that was put to `peer` is there, and every atomic has taken effect.
    ///
    /// # Errors
    /// `RemoteAccess` if a put was refused; [`PeerFailed`](crate::ErrorKind::PeerFailed).
    fn flush(&self, peer: ProcId) -> Result<()>;

    // ---- Waiting on memory that peers store into -----------------------------------------------

    /// Waits until `ready` returns `true`. `ready` looks at memory of a region (of this rank, or of
    /// a peer by [`direct`](Self::direct)) into which a member of `group` will store. It is called
    /// often and must not call the device, except [`is_complete`](Self::is_complete). Progress is
    /// made meanwhile.
    ///
    /// The rank that stores calls [`notify`](Self::notify) afterwards, unless it stores by
    /// [`put`](Self::put) or [`atomic`](Self::atomic) without [`Caps::DIRECT`]. The default polls,
    /// and never sleeps.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed) if a member of `group` has died and `ready`
    /// does not hold; [`Finalized`](crate::ErrorKind::Finalized).
    fn wait_for(&self, group: &Group, ready: impl FnMut() -> bool) -> Result<()>
    where
        Self: Sized,
    {
        defaults::wait_for(self, group, ready)
    }

    /// The same, errors included, for a `ready` that only a store, or a message, of `peer` can make
    /// hold. Where ranks take turns on processors, the waiting rank then knows whether it has to
    /// give its own away. By default this is [`wait_for`](Self::wait_for).
    fn wait_for_peer(&self, group: &Group, _peer: ProcId, ready: impl FnMut() -> bool) -> Result<()>
    where
        Self: Sized,
    {
        self.wait_for(group, ready)
    }

    /// Wakes `peer` if it sleeps in [`wait_for`](Self::wait_for) for a store that this rank has
    /// just made (with `Release`). A load if it does not sleep; nothing where peers cannot store.
    fn notify(&self, _peer: ProcId) {}

    /// The processor that the calling thread currently runs on, where this node has fewer
    /// processors than ranks, which so take turns. A rank that waits for one on the same processor
    /// must [`give_way`](Self::give_way); one that waits for a rank on another processor need not.
    /// `None`, as by default, where ranks have processors of their own, wait without giving them
    /// away, or the system does not tell. A thread that is not bound may run on another one later.
    fn processor(&self) -> Option<u32> {
        None
    }

    /// Lets other threads run here once. Nothing where [`processor`](Self::processor) is `None`.
    fn give_way(&self) {}
}
