//! Envelopes, patterns, and their two internal forms.

/// The part of a message's header that matching uses.
///
/// Length and message representation travel beside it, and play no part in matching.
//
// A header has source and tag in one word. If they were neighbours here, too, they would be read
// together after they were written one by one, or one of them together with the context, and a
// processor waits in such a load until all earlier stores are done: those of the last message's
// cell, too.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Envelope {
    /// The sender's rank in the communicator that the message was sent on.
    pub source: u32,
    /// The context id of that communicator.
    pub context: u32,
    /// The tag the sender gave it.
    pub tag: u32,
}

/// What a receive or a probe asks for: an envelope whose source and tag may be left open.
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
        Wanted::from(self).meets(&Wanted::from(envelope))
    }

    /// Whether some message could match both patterns.
    ///
    /// Two receives that overlap must be served in the order in which they were posted. Two that do
    /// not overlap may be matched independently, one by the host and one by a card. Tag-matching
    /// offload relies on that.
    #[inline]
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        Wanted::from(self).meets(&Wanted::from(other))
    }

    /// Which fields are open, as an index below [`SHAPES`].
    #[inline]
    pub(super) fn shape(&self) -> usize {
        usize::from(self.source.is_none()) | usize::from(self.tag.is_none()) << 1
    }

    /// The key for filing receives with this pattern, and for finding the messages that match it.
    #[inline]
    pub(super) fn key(&self) -> Key {
        self.key_opened(self.shape())
    }

    /// The key of this pattern with all fields of `shape` open. `shape` must include the fields
    /// that are open already.
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
    /// The key for filing patterns of one shape that match this envelope.
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

/// Number of combinations of open fields.
pub(super) const SHAPES: usize = 4;
/// Bit of a shape: the source is open.
pub(super) const ANY_SOURCE: usize = 1;
/// Bit of a shape: the tag is open.
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
    /// A key that equals no pattern's.
    pub(super) const NONE: Self = Self {
        place: 0,
        tag: 0,
        kind: u32::MAX,
    };

    /// The shape of the patterns with this key.
    #[inline]
    pub(super) const fn shape(&self) -> usize {
        self.kind as usize % SHAPES
    }

    /// The same key in a separate name space, for tables that file one pattern in several ways.
    #[inline]
    pub(super) fn in_space(mut self, space: usize) -> Self {
        self.kind |= (space as u32) << 8;
        self
    }

    /// A hash that is the same in every process and every run.
    ///
    /// In practice ranks, tags and contexts are small consecutive numbers, and a peer may send any
    /// tags. Each step below is a bijection of the 64-bit state, so keys that differ in only one
    /// word never collide before the final truncation. The multiplications carry every input bit
    /// into the bits that choose a bucket. A queue may have a `seed` of its own, so that a peer
    /// that knows this source code still cannot predict the buckets. (The engine uses the default,
    /// 0.)
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

/// A pattern in two words. Queues and receives keep this form, and it is passed in registers. An
/// envelope is a pattern that only that envelope matches.
///
/// It avoids a stall: if a [`Pattern`] is written field by field and then copied as a whole, the
/// copy loads larger units than were stored, and the processor waits for the stores.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
pub(crate) struct Wanted {
    /// Context and source; the source is 0 if it is open.
    place: u64,
    /// The tag, 0 if it is open, in the low half; the shape in the high half.
    rest: u64,
}

impl Wanted {
    /// Whether the two agree in every field that is open in neither.
    #[inline]
    pub(crate) fn meets(&self, other: &Self) -> bool {
        // Fast path: almost always no field is open.
        let differ = (self.place ^ other.place) | (self.rest ^ other.rest);
        differ == 0 || (self.rest | other.rest) >> 32 != 0 && self.meets_open(other)
    }

    #[inline]
    fn meets_open(&self, other: &Self) -> bool {
        let open = self.shape() | other.shape();
        let places = if open & ANY_SOURCE == 0 {
            u64::MAX
        } else {
            place(u32::MAX, 0)
        };
        let tags = if open & ANY_TAG == 0 { u32::MAX } else { 0 };
        let place = (self.place ^ other.place) & places;
        let tag = (self.rest ^ other.rest) as u32 & tags;
        place | u64::from(tag) == 0
    }

    /// The pattern in separate fields.
    #[inline]
    pub(crate) fn pattern(self) -> Pattern {
        let shape = self.shape();
        Pattern {
            context: self.place as u32,
            source: (shape & ANY_SOURCE == 0).then_some((self.place >> 32) as u32),
            tag: (shape & ANY_TAG == 0).then_some(self.rest as u32),
        }
    }

    /// See [`Pattern::shape`].
    #[inline]
    pub(super) fn shape(self) -> usize {
        (self.rest >> 32) as usize
    }

    /// See [`Pattern::key`].
    #[inline]
    pub(super) fn key(self) -> Key {
        Key {
            place: self.place,
            tag: self.rest as u32,
            kind: (self.rest >> 32) as u32,
        }
    }
}

impl From<&Pattern> for Wanted {
    #[inline(always)]
    fn from(pattern: &Pattern) -> Self {
        Self {
            place: place(pattern.context, pattern.source.unwrap_or(0)),
            rest: u64::from(pattern.tag.unwrap_or(0)) | (pattern.shape() as u64) << 32,
        }
    }
}

impl From<&Envelope> for Wanted {
    #[inline(always)]
    fn from(envelope: &Envelope) -> Self {
        Self {
            place: place(envelope.context, envelope.source),
            rest: u64::from(envelope.tag),
        }
    }
}

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pattern().fmt(f)
    }
}
