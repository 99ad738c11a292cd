//! Code of the crates above that runs inside progress, and what it may do there.

use super::active::HandlerId;
use super::args::{ProcId, SendArgs};
use super::exposing::Exposure;
use super::upper::Upper;
use crate::buffer::TypedBuf;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::matching::Pattern;
use crate::request::Request;
use crate::status::Status;

/// The result of a [`Hook`]'s turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Turn {
    /// The hook got something done. It runs again at the next poll, and no waiting thread sleeps
    /// before that.
    Busy,
    /// There was nothing to do. It runs again at every poll, but the rank may sleep until a message
    /// arrives or a request completes.
    Idle,
    /// Nothing is left to do: it does not run again before
    /// [`Device::wake_hook`](super::Device::wake_hook), and costs nothing until then.
    Sleep,
}

/// Names a hook of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct HookId(u32);

impl HookId {
    /// The hook that a device has registered under this number.
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number of the hook.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// Runs inside progress, after the messages of a poll have been delivered: the completions that
/// they made can be acted on at once. Must not block, and must not call the device but by its
/// [`Port`].
///
/// A panic ends the process, as in a [`Handler`](super::Handler).
pub type Hook = Box<dyn FnMut(&mut dyn Port) -> Turn + Send>;

/// What a handler or hook may do with the device that runs it. Nothing here waits: what cannot
/// leave at once is queued.
///
/// Messages and requests are those of the [`Device`](super::Device). A message that is sent here
/// may be received by a call of the device and vice versa, in the order of the calls. A request
/// that is started here may be completed there.
pub trait Port {
    /// This process.
    fn me(&self) -> ProcId;

    /// Seconds on the device's clock, as [`Device::wtime`](super::Device::wtime).
    fn wtime(&self) -> f64;

    /// Sends an active message. The payload is copied if it cannot leave at once, so this never
    /// waits. The memory for replies is bounded, because the credit by which a peer may send
    /// further requests leaves behind the replies to its earlier ones.
    ///
    /// # Errors
    /// [`InvalidRank`](crate::ErrorKind::InvalidRank),
    /// [`InvalidCount`](crate::ErrorKind::InvalidCount),
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    fn send(&mut self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8]) -> Result<()>;

    /// Starts a send of `buf.count` items of a layout. Buffered mode is not allowed.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there are no more request slots,
    /// [`InvalidCount`](crate::ErrorKind::InvalidCount) if the packed size overflows.
    ///
    /// # Safety
    /// As [`Device::isend_datatype_unchecked`](super::Device::isend_datatype_unchecked).
    unsafe fn isend(&mut self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request>;

    /// Starts a receive into `buf.count` items of a layout.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// As [`Device::irecv_datatype_unchecked`](super::Device::irecv_datatype_unchecked).
    unsafe fn irecv(&mut self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request>;

    /// The status of a request that is complete, which is then freed; `None` while it is active.
    /// Makes no progress.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), or the error of the operation; either
    /// way the request is gone.
    fn test(&mut self, request: Request) -> Result<Option<Status>>;

    /// Whether a request is complete, as [`Device::is_complete`](super::Device::is_complete).
    fn is_complete(&self, request: Request) -> bool;

    /// Asks for an active request to be cancelled. It must still be completed; its status then says
    /// whether it was cancelled.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn cancel(&mut self, request: Request) -> Result<()>;

    /// Makes a request of the caller's kind.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there are no more request slots.
    fn upper_request(&mut self, upper: Box<dyn Upper>) -> Result<Request>;

    /// Completes a request of the caller's kind.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn complete(&mut self, request: Request, status: Status) -> Result<()>;

    /// Ends a request of the caller's kind because a peer has failed: the call that completes it
    /// returns [`PeerFailed`](crate::ErrorKind::PeerFailed) with the reason that the device knows.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn fail(&mut self, request: Request, peer: ProcId) -> Result<()>;

    /// Ends a request of the caller's kind: the call that completes it returns this error.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn fail_with(&mut self, request: Request, error: Error) -> Result<()>;

    /// A member of `group` that is held to be dead, if there is one.
    fn dead_member(&self, group: &Group) -> Option<ProcId>;

    /// Wakes a hook that sleeps. A running hook may wake itself.
    fn wake_hook(&mut self, hook: HookId);

    /// Wakes a peer that sleeps while it waits for a store into memory, as
    /// [`Device::notify`](super::Device::notify).
    fn notify(&mut self, peer: ProcId);

    /// Copies from what a peer has exposed, as [`Exposing::pull`](super::Exposing::pull), but makes
    /// no progress. `false` in a handler, and on devices that have no
    /// [`exposing`](super::Device::exposing).
    ///
    /// # Safety
    /// As [`Exposing::pull`](super::Exposing::pull).
    unsafe fn pull(
        &mut self,
        peer: ProcId,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> bool {
        let _ = (peer, exposure, offset, target, len);
        false
    }

    /// Ends an exposure of this rank, as [`Exposing::withdraw`](super::Exposing::withdraw): in a
    /// handler as soon as the poll is over, so a handler must not complete what the memory belongs
    /// to.
    fn withdraw(&mut self, exposure: &Exposure) {
        let _ = exposure;
    }
}
