//! The 24-byte headers that travel through the queues: three words, the last of which is never 0
//! and becomes visible last, so a reader that sees it sees the others.
//!
//! | to the receiver (`smsg`) | word 0 | word 1 | word 2 |
//! | --- | --- | --- | --- |
//! | [`Small`](Inbound::Small) | the data | context, tag | kind, representation, bytes, signature |
//! | [`Buffered`](Inbound::Buffered) | send buffer, signature | context, tag | kind, representation, bytes |
//! | [`SendDone`](Inbound::SendDone) | receive, signature | tag | kind, representation, bytes |
//! | [`SmallDone`](Inbound::SmallDone) | the data | receive, tag | kind, representation, bytes, signature |
//! | [`Packet`](Inbound::Packet) | send buffer | | kind, bytes |
//! | [`Cancelled`](Inbound::Cancelled) | receive | | kind |
//!
//! | to the sender (`rmsg`) | word 0 | word 1 | word 2 |
//! | --- | --- | --- | --- |
//! | [`Prepost`](Outbound::Prepost) | landing place, receive | context, tag | kind, seen, room |
//! | [`RecvDone`](Outbound::RecvDone) | send buffer, receive | bytes, negative in the gap | kind, seen |
//! | [`Cancel`](Outbound::Cancel) | receive | | kind, seen |

/// A header as it lies in memory.
pub(super) type Words = [u64; 3];

/// Bytes of a header.
pub const HEADER: u64 = 24;

/// Most bytes that travel in a header.
pub const IN_HEADER: usize = 8;

/// Longest message: its length has 48 bits.
pub const LONGEST: u64 = (1 << 48) - 1;

/// Context and tag of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Context; in the seed's calls the number of bytes.
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
    /// A message of at most 8 bytes, data and all.
    Small {
        label: Label,
        form: Form,
        data: u64,
        len: u8,
    },
    /// A message that waits in a buffer of its sender's.
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
    /// The same, of at most 8 bytes, data and all.
    SmallDone {
        receive: u32,
        tag: u32,
        form: Form,
        data: u64,
        len: u8,
    },
    /// A packet of the device's: its active messages and the like.
    Packet { at: u64, len: u64 },
    /// A preposted receive was taken back before anything was put into it.
    Cancelled { receive: u32 },
}

/// A header in `rmsg`: from a receiver to a sender.
///
/// `seen` is how many headers of this sender the receiver had seen when it wrote this, modulo 2^16:
/// the sender knows by it which of its small messages can no longer match a later prepost.
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
    /// The message in the send buffer `at` (0: it came in its header) was received. In the gap
    /// `receive` names the prepost that is to be taken out.
    RecvDone {
        at: u64,
        len: u64,
        gap: Option<u32>,
        seen: u16,
    },
    /// The receive is to be taken back.
    Cancel { receive: u32, seen: u16 },
}

const SMALL: u64 = 1;
const BUFFERED: u64 = 2;
const SEND_DONE: u64 = 3;
const SMALL_DONE: u64 = 4;
const PACKET: u64 = 5;
const CANCELLED: u64 = 6;
const PREPOST: u64 = 8;
const RECV_DONE: u64 = 9;
const CANCEL: u64 = 10;

/// Set in the second word's place of the flags: the prepost takes any tag.
const ANY_TAG: u64 = 1 << 4;

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Places in symmetric memory travel as numbers of words, in 32 bits.
fn place(at: u64) -> u32 {
    debug_assert!(at.is_multiple_of(8) && at >> 35 == 0);
    (at / 8) as u32
}

fn unplace(word: u32) -> u64 {
    u64::from(word) * 8
}

fn small_last(kind: u64, form: Form, len: u8) -> u64 {
    kind | u64::from(form.rep & 15) << 8
        | u64::from(len & 15) << 12
        | u64::from(form.signature) << 32
}

fn long_last(kind: u64, form: Form, len: u64) -> u64 {
    kind | u64::from(form.rep & 15) << 8 | (len & LONGEST) << 16
}

fn small_form(last: u64) -> (Form, u8) {
    let form = Form {
        rep: (last >> 8) as u8 & 15,
        signature: high(last),
    };
    (form, (last >> 12) as u8 & 15)
}

impl Inbound {
    /// The three words.
    #[must_use]
    pub(super) fn words(&self) -> Words {
        match *self {
            Self::Small {
                label,
                form,
                data,
                len,
            } => [
                data,
                pair(label.context, label.tag),
                small_last(SMALL, form, len),
            ],
            Self::Buffered {
                label,
                form,
                at,
                len,
            } => [
                pair(place(at), form.signature),
                pair(label.context, label.tag),
                long_last(BUFFERED, form, len),
            ],
            Self::SendDone {
                receive,
                tag,
                form,
                len,
            } => [
                pair(receive, form.signature),
                u64::from(tag),
                long_last(SEND_DONE, form, len),
            ],
            Self::SmallDone {
                receive,
                tag,
                form,
                data,
                len,
            } => [data, pair(receive, tag), small_last(SMALL_DONE, form, len)],
            Self::Packet { at, len } => [
                u64::from(place(at)),
                0,
                long_last(PACKET, Form::default(), len),
            ],
            Self::Cancelled { receive } => [u64::from(receive), 0, CANCELLED],
        }
    }

    /// The header in these words; `None` if they are none.
    #[must_use]
    pub(super) fn parse([first, second, last]: Words) -> Option<Self> {
        let label = Label {
            context: low(second),
            tag: high(second),
        };
        let (form, len) = small_form(last);
        let long = Form {
            signature: high(first),
            ..form
        };
        Some(match last & 15 {
            SMALL => Self::Small {
                label,
                form,
                data: first,
                len,
            },
            BUFFERED => Self::Buffered {
                label,
                form: long,
                at: unplace(low(first)),
                len: last >> 16,
            },
            SEND_DONE => Self::SendDone {
                receive: low(first),
                tag: low(second),
                form: long,
                len: last >> 16,
            },
            SMALL_DONE => Self::SmallDone {
                receive: low(second),
                tag: high(second),
                form,
                data: first,
                len,
            },
            PACKET => Self::Packet {
                at: unplace(low(first)),
                len: last >> 16,
            },
            CANCELLED => Self::Cancelled {
                receive: low(first),
            },
            _ => return None,
        })
    }
}

impl Outbound {
    /// The three words.
    #[must_use]
    pub(super) fn words(&self) -> Words {
        match *self {
            Self::Prepost {
                context,
                tag,
                at,
                room,
                receive,
                seen,
            } => [
                pair(place(at), receive),
                pair(context, tag.unwrap_or(0)),
                PREPOST
                    | if tag.is_none() { ANY_TAG } else { 0 }
                    | u64::from(seen) << 16
                    | u64::from(room) << 32,
            ],
            Self::RecvDone { at, len, gap, seen } => {
                let bytes = len as i64;
                // Minus one more, so that no bytes have a negative number, too.
                let bytes = if gap.is_some() { -1 - bytes } else { bytes };
                [
                    pair(place(at), gap.unwrap_or(0)),
                    bytes.cast_unsigned(),
                    RECV_DONE | u64::from(seen) << 16,
                ]
            }
            Self::Cancel { receive, seen } => {
                [u64::from(receive), 0, CANCEL | u64::from(seen) << 16]
            }
        }
    }

    /// The header in these words; `None` if they are none.
    #[must_use]
    pub(super) fn parse([first, second, last]: Words) -> Option<Self> {
        let seen = (last >> 16) as u16;
        Some(match last & 15 {
            PREPOST => Self::Prepost {
                context: low(second),
                tag: (last & ANY_TAG == 0).then_some(high(second)),
                at: unplace(low(first)),
                room: high(last),
                receive: high(first),
                seen,
            },
            RECV_DONE => {
                let bytes = second.cast_signed();
                let len = if bytes < 0 { -1 - bytes } else { bytes };
                Self::RecvDone {
                    at: unplace(low(first)),
                    len: len.cast_unsigned(),
                    gap: (bytes < 0).then_some(high(first)),
                    seen,
                }
            }
            CANCEL => Self::Cancel {
                receive: low(first),
                seen,
            },
            _ => return None,
        })
    }

    /// How many headers the writer had seen.
    #[must_use]
    pub(super) fn seen(&self) -> u16 {
        match *self {
            Self::Prepost { seen, .. }
            | Self::RecvDone { seen, .. }
            | Self::Cancel { seen, .. } => seen,
        }
    }

    /// The same header, by a writer that has seen this many.
    #[must_use]
    pub(super) fn at_seen(mut self, now: u16) -> Self {
        match &mut self {
            Self::Prepost { seen, .. }
            | Self::RecvDone { seen, .. }
            | Self::Cancel { seen, .. } => *seen = now,
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: Label = Label {
        context: 0xdead_beef,
        tag: 0x7fff_ffff,
    };
    const FORM: Form = Form {
        rep: 2,
        signature: 0x8765_4321,
    };

    #[test]
    fn headers_to_the_receiver_survive() {
        let (receive, tag, data, at) = (u32::MAX, LABEL.tag, u64::MAX, 8 * u64::from(u32::MAX));
        for header in [
            Inbound::Small {
                label: LABEL,
                form: FORM,
                data,
                len: 8,
            },
            Inbound::Buffered {
                label: LABEL,
                form: FORM,
                at,
                len: LONGEST,
            },
            Inbound::SendDone {
                receive,
                tag,
                form: FORM,
                len: LONGEST,
            },
            Inbound::SmallDone {
                receive,
                tag,
                form: FORM,
                data,
                len: 0,
            },
            Inbound::Packet { at: 8, len: 24 },
            Inbound::Cancelled { receive },
        ] {
            assert_eq!(Inbound::parse(header.words()), Some(header));
            assert_ne!(
                header.words()[2],
                0,
                "the last word says that there is a header"
            );
        }
        assert_eq!(Inbound::parse([1, 2, 0]), None);
    }

    #[test]
    fn headers_to_the_sender_survive() {
        for header in [
            Outbound::Prepost {
                context: 1,
                tag: None,
                at: 64,
                room: u32::MAX,
                receive: 9,
                seen: u16::MAX,
            },
            Outbound::RecvDone {
                at: 64,
                len: 0,
                gap: Some(3),
                seen: 1,
            },
            Outbound::RecvDone {
                at: 64,
                len: LONGEST,
                gap: Some(3),
                seen: 1,
            },
            Outbound::RecvDone {
                at: 64,
                len: 17,
                gap: None,
                seen: 1,
            },
            Outbound::Cancel {
                receive: 7,
                seen: 2,
            },
        ] {
            assert_eq!(Outbound::parse(header.words()), Some(header));
            assert_ne!(header.words()[2], 0);
            assert_eq!(header.at_seen(77).seen(), 77);
        }
    }

    #[test]
    fn a_received_message_of_the_gap_has_a_negative_number_of_bytes() {
        let bytes = |gap| {
            Outbound::RecvDone {
                at: 64,
                len: 100,
                gap,
                seen: 0,
            }
            .words()[1]
        };
        assert!(bytes(Some(1)).cast_signed() < 0);
        assert_eq!(bytes(None), 100);
    }
}
