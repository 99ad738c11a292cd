//! The part of a stamp that only reductions have: the operator, and the size of an item.

use portolan_datatype::{Layout, Op};

use super::{Differing, STAMP, Stamp};

/// Its position in a stamp.
const OP: std::ops::Range<usize> = 24..40;
const ITEM: std::ops::Range<usize> = 52..60;

/// All zero for an operation that reduces nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reduced {
    /// Name of the operator, truncated.
    op: [u8; 16],
    /// Bytes of data of an item, and bytes from one item to the next, truncated to 32 bits.
    item: [u32; 2],
}

impl Reduced {
    /// For an operator and the items that this rank passes, if it passes any.
    pub(super) fn of(op: Option<&Op>, layout: Option<&Layout>) -> Self {
        let item = |layout: &Layout| [layout.size() as u32, layout.extent() as u32];
        Self {
            op: op.map_or_else(Default::default, short_name),
            item: layout.map_or_else(Default::default, item),
        }
    }

    pub(super) fn encode(&self, to: &mut [u8; STAMP]) {
        to[OP].copy_from_slice(&self.op);
        let (words, _) = to[ITEM].as_chunks_mut::<4>();
        for (to, word) in words.iter_mut().zip(self.item) {
            *to = word.to_le_bytes();
        }
    }

    pub(super) fn decode(from: &[u8; STAMP]) -> Self {
        let mut op = [0; 16];
        op.copy_from_slice(&from[OP]);
        let (words, _) = from[ITEM].as_chunks::<4>();
        Self {
            op,
            item: [words[0], words[1]].map(u32::from_le_bytes),
        }
    }
}

/// The name of an operator, truncated. For a user-defined operator the name only says whether it
/// commutes: the compiler may name functions that do the same differently on different ranks.
fn short_name(op: &Op) -> [u8; 16] {
    let text = match op.predefined().is_none() && !op.is_commutative() {
        true => "user, in order",
        false => op.name(),
    };
    let mut name = [0; 16];
    let len = text.len().min(name.len());
    name[..len].copy_from_slice(&text.as_bytes()[..len]);
    name
}

impl Stamp {
    pub(super) fn differs_in_operator(&self, other: &Self) -> Option<Differing> {
        let op = |stamp: &Self| {
            let name = String::from_utf8_lossy(&stamp.reduced.op);
            stamp.with(format!("operator {}", name.trim_end_matches('\0')))
        };
        (self.reduced.op != other.reduced.op).then(|| self.both(other, op))
    }

    /// Ranks that pass the same bytes in items of different sizes. They would cut the vector in
    /// different places, or lay the items out differently in shared memory.
    pub(super) fn differs_in_items(&self, other: &Self) -> Option<Differing> {
        let items = |stamp: &Self| {
            let [size, extent] = stamp.reduced.item;
            let extent = extent.cast_signed();
            stamp.with(format!(
                "items of {size} bytes, {extent} from one to the next"
            ))
        };
        (self.reduced.item != other.reduced.item).then(|| self.both(other, items))
    }
}
