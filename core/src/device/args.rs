//! Arguments of operations.

use portolan_datatype::MsgRep;

use crate::group::Group;
use crate::matching::Envelope;

/// A process (or a thread that is a rank) by its global rank, as the paper calls it.
///
/// An index into a table that may grow; groups map ranks to it. In a job that was started together,
/// process `n` is world rank `n`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcId(u32);

impl ProcId {
    /// The process with this index.
    #[inline]
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The index of the process.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// When a send is complete (MPI-4 section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SendMode {
    /// When the buffer may be used again.
    Standard,
    /// When the buffer may be used again and the receive has been matched.
    Synchronous,
    /// As standard, but the caller asserts that the receive is posted. If it is not, the message is
    /// delivered all the same, and a counter records it.
    Ready,
    /// At once or not at all: a message that would have to wait gives
    /// [`MayBlock`](crate::ErrorKind::MayBlock). Only for blocking sends.
    Buffered,
}

/// Where a message goes and how: the arguments that all sends of the paper have in common.
#[derive(Clone, Copy, Debug)]
pub struct SendArgs {
    /// Receiver, by global rank.
    pub dest: ProcId,
    /// Context id, the sender's rank in the communicator (source local rank) and the tag.
    pub envelope: Envelope,
    /// Mode.
    pub mode: SendMode,
    /// Message representation of the data, delivered with it.
    pub rep: MsgRep,
}

impl SendArgs {
    /// A standard send in native representation.
    #[inline]
    #[must_use]
    pub fn new(dest: ProcId, context: u32, source: u32, tag: u32) -> Self {
        Self {
            dest,
            envelope: Envelope {
                context,
                source,
                tag,
            },
            mode: SendMode::Standard,
            rep: MsgRep::Native,
        }
    }

    /// The same in another mode.
    #[inline]
    #[must_use]
    pub fn mode(self, mode: SendMode) -> Self {
        Self { mode, ..self }
    }
}

/// A communicator as the device sees it (`struct MPIR_COMMUNICATOR *` of the paper).
#[derive(Clone, Debug)]
pub struct CommView {
    /// First of the context ids of the communicator.
    pub context: u32,
    /// How many context ids it uses, from `context` on. The first is for point-to-point messages,
    /// the others for collective operations. When a member of the group dies, the device ends
    /// operations in those others, whichever rank they wait for: sends and receives that have not
    /// been matched, and later ones that cannot complete at once, end with
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    pub contexts: u32,
    /// Its members, by local rank. For an intercommunicator the remote group, because sends and
    /// receives name ranks of that one.
    pub group: Group,
    /// The caller's local rank.
    pub rank: u32,
}

/// A message that was taken out of matching by a matched probe.
///
/// Stale handles are refused, like stale requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[must_use = "a taken message must be received or discarded"]
pub struct Message(pub(crate) u64);

impl Message {
    /// The handle with these bits, for the device that gives it out. Any bits are allowed: a device
    /// refuses handles that it did not give out.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits of the handle.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}

/// Whether [`Device::device_check`](super::Device::device_check) may wait
/// (`MPID_BLOCKING_TYPE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Makes progress once.
    NonBlocking,
    /// Waits until the completion epoch differs from this one.
    Blocking(u64),
}

/// Where debug output goes.
#[derive(Clone, Copy, Debug)]
pub enum DebugOutput<'a> {
    /// Standard error.
    Stderr,
    /// A file, which is created.
    File(&'a std::path::Path),
}
