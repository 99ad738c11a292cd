//! What is matched with what: envelopes, patterns, and the two internal forms of them.

/// What a message says about itself, as far as matching is concerned.
///
/// Length and message representation travel beside it; they play no part in matching.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// The context id of the communicator the message was sent on.
    pub context: u32,
    /// The sender's rank in that communicator.
    pub source: u32,
    /// The tag the sender gave it.
    pub tag: u32,
}

/// What a receive or a probe asks for: an envelope in which source and tag may be left open.
///
/// `None` is the wildcard: `MPI_ANY_SOURCE` or `MPI_ANY_TAG`. The context has no wildcard, as in
/// MPI.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// The context id of the communicator that receives.
    pub context: u32,
    /// The sender's rank in that communicator, or `None` for any source.
    pub source: Option<u32>,
    /// The tag, or `None` for any tag.
    pub tag: Option<u32>,
}

impl Pattern {
    /// The pattern that only messages with this envelope match.
    ///
    /// ```
    /// use portolan_core::matching::{Envelope, Pattern};
    ///
    /// let envelope = Envelope { context: 1, source: 2, tag: 3 };
    /// assert!(Pattern::exact(&envelope).matches(&envelope));
    /// ```
    #[must_use]
    pub const fn exact(envelope: &Envelope) -> Self {
        Self {
            context: envelope.context,
            source: Some(envelope.source),
            tag: Some(envelope.tag),
        }
    }

    /// The pattern that every message of a communicator matches.
    #[must_use]
    pub const fn any(context: u32) -> Self {
        Self {
            context,
            source: None,
            tag: None,
        }
    }

    /// Whether a message with this envelope may be given to a receive with this pattern.
    ///
    /// ```
    /// use portolan_core::matching::{Envelope, Pattern};
    ///
    /// let any_source = Pattern { context: 0, source: None, tag: Some(4) };
    /// assert!(any_source.matches(&Envelope { context: 0, source: 9, tag: 4 }));
    /// assert!(!any_source.matches(&Envelope { context: 0, source: 9, tag: 5 }));
    /// assert!(!any_source.matches(&Envelope { context: 1, source: 9, tag: 4 }));
    /// ```
    #[inline]
    #[must_use]
    pub fn matches(&self, envelope: &Envelope) -> bool {
        Words::from(self).meets(&Words::from(envelope))
    }

    /// Whether some message could match both patterns.
    ///
    /// Two receives that overlap must be served in the order they were posted; two that do not
    /// may be served by different authorities, which is what tag-matching offload rests on.
    #[inline]
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        Words::from(self).meets(&Words::from(other))
    }

    /// Which of the fields are open, as an index below [`SHAPES`].
    #[inline]
    pub(super) fn shape(&self) -> usize {
        usize::from(self.source.is_none()) | usize::from(self.tag.is_none()) << 1
    }

    /// The key under which receives with this pattern, and the messages that it finds, are filed.
    #[inline]
    pub(super) fn key(&self) -> Key {
        self.key_opened(self.shape())
    }

    /// The key of this pattern once the fields of `shape`, its own open ones among them, are open.
    #[inline]
    pub(super) fn key_opened(&self, shape: usize) -> Key {
        debug_assert_eq!(shape & self.shape(), self.shape());
        let fixed = Envelope {
            context: self.context,
            source: self.source.unwrap_or(0),
            tag: self.tag.unwrap_or(0),
        };
        fixed.key(shape)
    }
}

impl Envelope {
    /// The key under which patterns of one shape that match this envelope are filed.
    #[inline]
    pub(super) fn key(&self, shape: usize) -> Key {
        let source = if shape & ANY_SOURCE == 0 {
            self.source
        } else {
            0
        };
        Key {
            place: place(self.context, source),
            tag: if shape & ANY_TAG == 0 { self.tag } else { 0 },
            kind: shape as u32,
        }
    }
}

/// How many combinations of open fields there are.
pub(super) const SHAPES: usize = 4;
/// The bit of a shape that says that the source is open.
pub(super) const ANY_SOURCE: usize = 1;
/// The bit of a shape that says that the tag is open.
pub(super) const ANY_TAG: usize = 2;

/// Context and source in one word.
#[inline]
const fn place(context: u32, source: u32) -> u64 {
    context as u64 | (source as u64) << 32
}

/// A hashable pattern. Open fields are zero; `kind` keeps patterns of different shapes apart.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) place: u64,
    pub(super) tag: u32,
    pub(super) kind: u32,
}

impl Key {
    /// The same key in a name space of its own, for tables that file one pattern several ways.
    #[inline]
    pub(super) fn in_space(mut self, space: usize) -> Self {
        self.kind |= (space as u32) << 8;
        self
    }

    /// A hash that is the same in every process and run.
    ///
    /// Ranks, tags and contexts are small consecutive numbers in practice, and tags are whatever a
    /// peer sends. Each step below is a bijection of the 64-bit state, so keys that differ in one
    /// word never collide before the last truncation, and the multiplications carry every input
    /// bit into the low bits that choose a bucket. `seed` differs from queue to queue where the
    /// engine wants a peer that knows this source not to know the buckets.
    #[inline]
    pub(super) fn hash(&self, seed: u64) -> u32 {
        let tail = u64::from(self.tag) | u64::from(self.kind) << 32;
        let state = stir(self.place ^ seed) ^ tail;
        (stir(stir(state)) >> 32) as u32
    }
}

/// One reversible mixing step: fold the high half down, multiply by an odd constant.
#[inline]
const fn stir(state: u64) -> u64 {
    // 2^64 divided by the golden ratio, made odd.
    (state ^ (state >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// An envelope or a pattern as masked words, which compare without a branch per field.
#[derive(Copy, Clone, Default)]
pub(super) struct Words {
    place: u64,
    place_mask: u64,
    tag: u32,
    tag_mask: u32,
}

impl Words {
    /// Whether the two agree wherever neither is open.
    #[inline]
    pub(super) fn meets(&self, other: &Self) -> bool {
        let place = (self.place ^ other.place) & self.place_mask & other.place_mask;
        let tag = (self.tag ^ other.tag) & self.tag_mask & other.tag_mask;
        place | u64::from(tag) == 0
    }
}

impl From<&Envelope> for Words {
    #[inline]
    fn from(envelope: &Envelope) -> Self {
        Self {
            place: place(envelope.context, envelope.source),
            place_mask: u64::MAX,
            tag: envelope.tag,
            tag_mask: u32::MAX,
        }
    }
}

impl From<&Pattern> for Words {
    #[inline]
    fn from(pattern: &Pattern) -> Self {
        let source_mask = if pattern.source.is_some() {
            u32::MAX
        } else {
            0
        };
        Self {
            place: place(pattern.context, pattern.source.unwrap_or(0)),
            place_mask: place(u32::MAX, source_mask),
            tag: pattern.tag.unwrap_or(0),
            tag_mask: if pattern.tag.is_some() { u32::MAX } else { 0 },
        }
    }
}
