//! The part of a stamp that describes data: its length, and its type.

use portolan_core::TypedBuf;
use portolan_datatype::{Layout, Signature};

use super::{Differing, Stamp};
use crate::args::Many;

/// Data as far as all ranks have to name the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    /// Number of bytes, if all ranks have to agree on one.
    pub(super) bytes: Option<u64>,
    /// The type, which matches every other if this rank does not know it or need not have the
    /// others'.
    pub(super) signature: Signature,
}

impl Data {
    /// Nothing that all ranks have to name alike.
    pub(super) const NONE: Self = Self {
        bytes: None,
        signature: Signature::ANY,
    };
    /// Bytes that it takes in a stamp.
    pub(super) const LEN: usize = 12;

    /// One buffer.
    pub(super) fn of(buf: &TypedBuf<'_>) -> Self {
        Self::items(buf, buf.count)
    }

    /// The same for another number of its items.
    pub(super) fn items(buf: &TypedBuf<'_>, count: usize) -> Self {
        let bytes = count * buf.layout.size();
        Self {
            bytes: Some(bytes as u64),
            signature: buf.layout.signature(bytes),
        }
    }

    /// One block of several, if all are equal.
    pub(super) fn block(many: &Many<'_>) -> Self {
        match many {
            Many::Equal(buf) => Self::of(buf),
            Many::Blocks(_) | Many::Layouts(_) => Self::NONE,
        }
    }

    /// The blocks of all ranks side by side. Every rank knows all of them, so that types of several
    /// primitives can be compared, too, although blocks may differ in length.
    pub(super) fn all(many: &Many<'_>, ranks: u32) -> Self {
        let signature = |layout: &Layout, count: usize| layout.signature(count * layout.size());
        match many {
            Many::Equal(buf) => Self {
                signature: signature(buf.layout, buf.count * ranks as usize),
                ..Self::of(buf)
            },
            Many::Blocks(blocks) => Self {
                signature: signature(blocks.layout, blocks.counts.iter().sum()),
                ..Self::NONE
            },
            Many::Layouts(_) => Self::NONE,
        }
    }

    /// The type alone of one block, `own`, or of all blocks, `whole`, between ranks of which only
    /// one knows all lengths. A block without items has no type. Neither have blocks of several
    /// primitives, because their signature depends on the length.
    pub(super) fn uneven(own: Option<&TypedBuf<'_>>, whole: Option<&Many<'_>>) -> Self {
        let own = own.filter(|own| own.count > 0).map(|own| own.layout);
        let whole = || match whole? {
            Many::Equal(buf) => Some(buf.layout).filter(|_| buf.count > 0),
            Many::Blocks(blocks) => {
                Some(blocks.layout).filter(|_| blocks.counts.iter().any(|&count| count > 0))
            }
            Many::Layouts(_) => None,
        };
        let signature = own.or_else(whole).and_then(Layout::uniform);
        Self {
            signature: signature.unwrap_or(Signature::ANY),
            ..Self::NONE
        }
    }

    /// Writes [`LEN`](Self::LEN) bytes. No data is as long as the number that stands for `None`.
    pub(super) fn encode(self, to: &mut [u8]) {
        to[..8].copy_from_slice(&self.bytes.unwrap_or(u64::MAX).to_le_bytes());
        to[8..Self::LEN].copy_from_slice(&self.signature.bits().to_le_bytes());
    }

    pub(super) fn decode(from: &[u8]) -> Self {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&from[..8]);
        let mut bits = [0; 4];
        bits.copy_from_slice(&from[8..Self::LEN]);
        Self {
            bytes: Some(u64::from_le_bytes(bytes)).filter(|&bytes| bytes != u64::MAX),
            signature: Signature::from_bits(u32::from_le_bytes(bits)),
        }
    }
}

impl Stamp {
    pub(super) fn differs_in_data(&self, other: &Self) -> Option<Differing> {
        self.differs_in_bytes(other)
            .or_else(|| self.differs_in_type(other))
    }

    pub(super) fn differs_in_bytes(&self, other: &Self) -> Option<Differing> {
        let (Some(a), Some(b)) = (self.data.bytes, other.data.bytes) else {
            return None;
        };
        let text = |stamp: &Self, bytes| stamp.with(format!("{bytes} bytes"));
        (a != b).then(|| (text(self, a), text(other, b)))
    }

    pub(super) fn differs_in_type(&self, other: &Self) -> Option<Differing> {
        let differ = !self.data.signature.matches(other.data.signature);
        differ.then(|| self.both(other, |stamp| stamp.with(type_of(stamp.data))))
    }
}

/// The type in words.
fn type_of(data: Data) -> String {
    match data.signature.primitive() {
        Some(primitive) => format!("values of {primitive:?}"),
        None => format!("signature {:#x}", data.signature.bits()),
    }
}
