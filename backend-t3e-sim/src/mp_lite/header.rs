//! The 24-byte headers that travel through the queues: three words. The last word is never 0 and
//! becomes visible last, so a reader that sees it also sees the others.
//!
//! | to the receiver (`smsg`) | word 0 | word 1 | word 2 |
//! | --- | --- | --- | --- |
//! | [`Small`](Inbound::Small) | the data | context, tag | kind, representation, bytes, signature |
//! | [`Buffered`](Inbound::Buffered) | send buffer, signature | context, tag | kind, representation, bytes |
//! | [`SendDone`](Inbound::SendDone) | receive, signature | tag | kind, representation, bytes |
//! | [`SmallDone`](Inbound::SmallDone) | the data | receive, tag | kind, representation, bytes, signature |
//! | [`Announced`](Inbound::Announced) | message, signature | context, tag | kind, representation, bytes |
//! | [`Part`](Inbound::Part) | receive | bytes | kind |
//! | [`Packet`](Inbound::Packet) | send buffer | | kind, bytes |
//! | [`Cancelled`](Inbound::Cancelled) | receive | | kind |
//!
//! | to the sender (`rmsg`) | word 0 | word 1 | word 2 |
//! | --- | --- | --- | --- |
//! | [`Prepost`](Outbound::Prepost) | landing place, receive | context, tag | kind, seen, room |
//! | [`RecvDone`](Outbound::RecvDone) | send buffer, receive | bytes, negative in the gap | kind, seen |
//! | [`Take`](Outbound::Take) | landing place, message | room, receive | kind, seen |
//! | [`Cancel`](Outbound::Cancel) | receive | | kind, seen |

/// The words of a header in memory.
pub(super) type Words = [u64; 3];

/// Bytes of a header.
pub const HEADER: u64 = 24;

/// Most bytes that travel in a header.
pub const IN_HEADER: usize = 8;

/// Longest message: a length has 48 bits.
pub const LONGEST: u64 = (1 << 48) - 1;

/// Context and tag of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Context; in the seed's calls, the number of bytes.
    pub context: u32,
    /// Tag.
    pub tag: u32,
}

/// How the data of a message is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Form {
    /// Message representation, by its number; at most 15.
    pub rep: u8,
    /// Type signature, by its bits.
    pub signature: u32,
}

/// A header in `smsg`: from a sender to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Inbound {
    /// A message of at most 8 bytes, with its data.
    Small {
        label: Label,
        form: Form,
        data: u64,
        len: u8,
    },
    /// A message that waits in a buffer of its sender.
    Buffered {
        label: Label,
        form: Form,
        at: u64,
        len: u64,
    },
    /// A message was put into a preposted receive. `len` may be more than there was room for.
    SendDone {
        receive: u32,
        tag: u32,
        form: Form,
        len: u64,
    },
    /// The same for a message of at most 8 bytes, with its data.
    SmallDone {
        receive: u32,
        tag: u32,
        form: Form,
        data: u64,
        len: u8,
    },
    /// A message for which its sender has no buffer; the receiver takes it in parts (extension).
    Announced {
        label: Label,
        form: Form,
        message: u32,
        len: u64,
    },
    /// A part of an announced message lies where its receiver wanted it. With no bytes: the message
    /// no longer exists.
    Part { receive: u32, len: u64 },
    /// One of the device's own packets: active messages and the like.
    Packet { at: u64, len: u64 },
    /// A preposted receive was taken back before anything was put into it.
    Cancelled { receive: u32 },
}

/// A header in `rmsg`: from a receiver to a sender.
///
/// `seen` is the number of this sender's headers, modulo 2^16, that the receiver had seen when it
/// wrote this one. From it the sender knows which of its small messages can no longer match a later
/// prepost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outbound {
    /// A receive that waits. `tag` is `None` for any tag.
    Prepost {
        context: u32,
        tag: Option<u32>,
        at: u64,
        room: u32,
        receive: u32,
        seen: u16,
    },
    /// The message in the send buffer `at` was received (0: the message came in its header). In the
    /// gap, `receive` names the prepost that is to be taken out.
    RecvDone {
        at: u64,
        len: u64,
        gap: Option<u32>,
        seen: u16,
    },
    /// The sender is to put as much of an announced message here as there is room for. With no
    /// room: the receiver wants no more of it.
    Take {
        message: u32,
        at: u64,
        room: u32,
        receive: u32,
        seen: u16,
    },
    /// The receiver wants the receive taken back.
    Cancel { receive: u32, seen: u16 },
}

impl Inbound {
    /// Context and tag, if the header is a message that may wait for its receive.
    pub(super) fn label(&self) -> Option<Label> {
        match *self {
            Self::Small { label, .. }
            | Self::Buffered { label, .. }
            | Self::Announced { label, .. } => Some(label),
            _ => None,
        }
    }
}

impl Outbound {
    /// The number of headers that the writer had seen.
    #[must_use]
    pub(super) fn seen(&self) -> u16 {
        match *self {
            Self::Prepost { seen, .. }
            | Self::RecvDone { seen, .. }
            | Self::Take { seen, .. }
            | Self::Cancel { seen, .. } => seen,
        }
    }

    /// The same header, written by a receiver that has seen `seen` headers.
    #[must_use]
    pub(super) fn at_seen(mut self, now: u16) -> Self {
        match &mut self {
            Self::Prepost { seen, .. }
            | Self::RecvDone { seen, .. }
            | Self::Take { seen, .. }
            | Self::Cancel { seen, .. } => *seen = now,
        }
        self
    }
}
