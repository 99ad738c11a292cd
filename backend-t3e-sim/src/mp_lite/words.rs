//! The conversion of headers to words and back.

use super::header::{Form, Inbound, LONGEST, Label, Outbound, Words};

const SMALL: u64 = 1;
const BUFFERED: u64 = 2;
const SEND_DONE: u64 = 3;
const SMALL_DONE: u64 = 4;
const PACKET: u64 = 5;
const CANCELLED: u64 = 6;
const ANNOUNCED: u64 = 7;
const PREPOST: u64 = 8;
const RECV_DONE: u64 = 9;
const CANCEL: u64 = 10;
const TAKE: u64 = 11;
const PART: u64 = 12;

/// A flag in a prepost's last word: the prepost takes any tag.
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
            Self::Announced {
                label,
                form,
                message,
                len,
            } => [
                pair(message, form.signature),
                pair(label.context, label.tag),
                long_last(ANNOUNCED, form, len),
            ],
            Self::Part { receive, len } => [u64::from(receive), len, PART],
            Self::Packet { at, len } => [
                u64::from(place(at)),
                0,
                long_last(PACKET, Form::default(), len),
            ],
            Self::Cancelled { receive } => [u64::from(receive), 0, CANCELLED],
        }
    }

    /// The header in these words; `None` if they are not a header.
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
            ANNOUNCED => Self::Announced {
                label,
                form: long,
                message: low(first),
                len: last >> 16,
            },
            PART => Self::Part {
                receive: low(first),
                len: second,
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
                // One is subtracted so that a message of no bytes has a negative number, too.
                let bytes = if gap.is_some() { -1 - bytes } else { bytes };
                [
                    pair(place(at), gap.unwrap_or(0)),
                    bytes.cast_unsigned(),
                    RECV_DONE | u64::from(seen) << 16,
                ]
            }
            Self::Take {
                message,
                at,
                room,
                receive,
                seen,
            } => [
                pair(place(at), message),
                pair(room, receive),
                TAKE | u64::from(seen) << 16,
            ],
            Self::Cancel { receive, seen } => {
                [u64::from(receive), 0, CANCEL | u64::from(seen) << 16]
            }
        }
    }

    /// The header in these words; `None` if they are not a header.
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
            TAKE => Self::Take {
                message: high(first),
                at: unplace(low(first)),
                room: low(second),
                receive: high(second),
                seen,
            },
            CANCEL => Self::Cancel {
                receive: low(first),
                seen,
            },
            _ => return None,
        })
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
            Inbound::Announced {
                label: LABEL,
                form: FORM,
                message: u32::MAX,
                len: LONGEST,
            },
            Inbound::Part {
                receive,
                len: LONGEST,
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
            Outbound::Take {
                message: 4,
                at: 64,
                room: u32::MAX,
                receive: 5,
                seen: 6,
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
