//! Context, source and tag in the bits of a provider's tag; signature, representation and the
//! sender's mark in the data word of the completion.

use portolan_core::matching::{Envelope, Pattern};

/// Context ids from here on are the device's own; they take the last ids that a tag can hold.
const OWN: u32 = 0xffff_ff00;
/// How many of those there are.
const OWN_COUNT: u32 = 0x100;

/// Bits of an ADI tag, if there is room for that many: all values that are not negative as a C int.
const TAG: u32 = 31;
/// Fewest bits of a tag (MPI's TAG_UB is at least 32767) and of a context id.
const LEAST: u32 = 16;

/// How the bits of a provider's tag are used. From the highest: context, source, tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    context: u32,
    source: u32,
    tag: u32,
}

impl Bits {
    /// The division for a job of `size` ranks, if tags of the provider's `format`
    /// (`mem_tag_format`) have room for it. The format has at least one bit set in each field that
    /// a provider distinguishes, so all bits up to the highest one set may be used.
    pub(crate) fn new(format: u64, size: u32) -> Option<Self> {
        let all = u64::BITS - format.leading_zeros();
        let source = (u32::BITS - size.saturating_sub(1).leading_zeros()).max(1);
        let tag = all.checked_sub(source + LEAST)?.min(TAG);
        let context = (all - source - tag).min(u32::BITS - 1);
        (tag >= LEAST).then_some(Self {
            context,
            source,
            tag,
        })
    }

    /// Largest tag (TAG_UB).
    pub(crate) fn tag_ub(self) -> u32 {
        low(self.tag) as u32
    }

    /// Largest context id (MAX_CONTEXT_ID).
    pub(crate) fn max_context_id(self) -> u32 {
        low(self.context) as u32 - OWN_COUNT
    }

    /// Whether an envelope can be written as a tag.
    pub(crate) fn hold(self, envelope: &Envelope) -> bool {
        let context = envelope.context <= self.max_context_id() || envelope.context >= OWN;
        context
            && u64::from(envelope.source) <= low(self.source)
            && u64::from(envelope.tag) <= low(self.tag)
    }

    /// The tag of a message.
    #[inline]
    pub(crate) fn pack(self, envelope: &Envelope) -> u64 {
        let context = if envelope.context >= OWN {
            self.max_context_id() + 1 + (envelope.context - OWN)
        } else {
            envelope.context
        };
        u64::from(context) << (self.source + self.tag)
            | (u64::from(envelope.source) & low(self.source)) << self.tag
            | u64::from(envelope.tag) & low(self.tag)
    }

    /// The tag that a receive asks for, and the mask of its bits that do not matter.
    #[inline]
    pub(crate) fn pattern(self, from: &Pattern) -> (u64, u64) {
        let tag = self.pack(&Envelope {
            context: from.context,
            source: from.source.unwrap_or(0),
            tag: from.tag.unwrap_or(0),
        });
        let mut ignore = 0;
        if from.source.is_none() {
            ignore |= low(self.source) << self.tag;
        }
        if from.tag.is_none() {
            ignore |= low(self.tag);
        }
        (tag, ignore)
    }

    /// The envelope in a message's tag.
    #[inline]
    pub(crate) fn unpack(self, bits: u64) -> Envelope {
        let context = (bits >> (self.source + self.tag) & low(self.context)) as u32;
        let own = context.checked_sub(self.max_context_id() + 1);
        Envelope {
            context: own.map_or(context, |own| OWN + own),
            source: (bits >> self.tag & low(self.source)) as u32,
            tag: (bits & low(self.tag)) as u32,
        }
    }
}

/// The lowest `count` bits, of at most 63.
#[inline]
const fn low(count: u32) -> u64 {
    (1 << count) - 1
}

/// The contents of a message's data word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// Bits of the type signature.
    pub(crate) signature: u32,
    /// Code of the representation.
    pub(crate) rep: u8,
    /// The mark by which its sender recognises it.
    pub(crate) mark: Mark,
}

/// The mark by which a sender recognises a message of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The lowest bits of its number among this rank's messages.
    Turn(u32),
    /// The number of the operation: the sender waits to be told that the message was matched.
    Awaited(u32),
}

impl Mark {
    /// Numbers in marks are below this.
    pub(crate) const NUMBERS: u32 = 1 << 23;

    /// The mark of the message with this number.
    #[inline]
    pub(crate) fn turn(turn: u64) -> Self {
        Self::Turn(turn as u32 % Self::NUMBERS)
    }

    /// The last message, up to number `last`, whose number has these lowest bits.
    pub(crate) fn latest(last: u64, low: u32) -> u64 {
        let behind = last.wrapping_sub(low.into()) % u64::from(Self::NUMBERS);
        last.wrapping_sub(behind)
    }

    /// As 24 bits.
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Turn(low) => low,
            Self::Awaited(number) => number | Self::NUMBERS,
        }
    }

    #[inline]
    pub(crate) fn of(bits: u32) -> Self {
        let number = bits % Self::NUMBERS;
        match bits & Self::NUMBERS {
            0 => Self::Turn(number),
            _ => Self::Awaited(number),
        }
    }
}

impl Label {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        let mark = u64::from(self.mark.bits());
        u64::from(self.signature) | u64::from(self.rep) << 32 | mark << 40
    }

    #[inline]
    pub(crate) fn unpack(data: u64) -> Self {
        Self {
            signature: data as u32,
            rep: (data >> 32) as u8,
            mark: Mark::of((data >> 40) as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [u64; 3] = [0xaaaa_aaaa_aaaa_aaaa, 0x0000_aaaa_aaaa_aaaa, (1 << 44) - 1];

    #[test]
    fn envelopes_survive_in_every_division() {
        for format in FORMATS {
            for size in [1, 2, 3, 300, 4096] {
                let bits = Bits::new(format, size).unwrap();
                assert!(bits.tag_ub() >= 32767 && bits.max_context_id() >= 32767);
                for context in [0, 1, bits.max_context_id(), OWN, u32::MAX] {
                    for (source, tag) in [(0, 0), (size - 1, 7), (size - 1, bits.tag_ub())] {
                        let envelope = Envelope {
                            context,
                            source,
                            tag,
                        };
                        assert!(bits.hold(&envelope), "{bits:?} {envelope:?}");
                        assert_eq!(bits.unpack(bits.pack(&envelope)), envelope, "{bits:?}");
                        assert!(bits.pack(&envelope).leading_zeros() >= format.leading_zeros());
                    }
                }
            }
        }
    }

    #[test]
    fn patterns_match_as_those_of_the_adi() {
        let bits = Bits::new(u64::MAX, 5).unwrap();
        let some = [None, Some(0), Some(1), Some(4)];
        for (context, from_context) in [(0, 0), (1, 0), (OWN, OWN), (OWN, 3)] {
            for (source, tag) in [(0, 0), (1, 4), (4, 1)] {
                let envelope = Envelope {
                    context,
                    source,
                    tag,
                };
                for from in some.iter().flat_map(|&s| some.map(|t| (s, t))) {
                    let pattern = Pattern {
                        context: from_context,
                        source: from.0,
                        tag: from.1,
                    };
                    let (wanted, ignore) = bits.pattern(&pattern);
                    let matches = bits.pack(&envelope) & !ignore == wanted & !ignore;
                    assert_eq!(
                        matches,
                        pattern.matches(&envelope),
                        "{pattern:?} {envelope:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(Bits::new(low(32), 1 << 20), None, "too few bits");
        let bits = Bits::new(u64::MAX, 4).unwrap();
        let envelope = |context, source, tag| Envelope {
            context,
            source,
            tag,
        };
        assert!(!bits.hold(&envelope(bits.max_context_id() + 1, 0, 0)));
        assert!(!bits.hold(&envelope(0, 4, 0)));
        assert!(!bits.hold(&envelope(0, 0, bits.tag_ub() + 1)));
    }

    #[test]
    fn labels_survive() {
        let last = Mark::NUMBERS - 1;
        for mark in [0, last]
            .into_iter()
            .flat_map(|number| [Mark::Turn(number), Mark::Awaited(number)])
        {
            let label = Label {
                signature: u32::MAX,
                rep: 255,
                mark,
            };
            assert_eq!(Label::unpack(label.pack()), label);
        }
    }

    #[test]
    fn the_latest_message_of_a_mark_is_found() {
        let all = u64::from(Mark::NUMBERS);
        for (last, turn) in [
            (7, 7),
            (7, 0),
            (all + 3, all),
            (all + 3, 4),
            (5 * all - 1, 4 * all),
        ] {
            let Mark::Turn(low) = Mark::turn(turn) else {
                unreachable!("that is what `turn` makes")
            };
            assert_eq!(Mark::latest(last, low), turn);
        }
        assert!(Mark::latest(3, 4) > 3, "there was none");
    }
}
