//! The ring of one ordered pair: one sender, one receiver, cells of one cache line.
//!
//! ```text
//!        ┌────────────┬──────────────┬────────────────────────────┐
//! cell p │ control 8  │ header 24    │ first 32 bytes of payload  │  ← one line: a small message
//!        ├────────────┴──────────────┴────────────────────────────┤
//! p + 1  │ the next 64 bytes of payload                           │
//!        └────────────────────────────────────────────────────────┘
//! control = lap tag (low 32 bits, odd) | length | BULK
//! ```
//!
//! The control word is written last. The receiver polls the very line in which the message arrives,
//! so a small message costs one transfer of one cache line.
//!
//! **What is a message?** A cell holds one for the receiver at position `p` exactly when its control
//! word carries the tag of `p`. A cell that last began a message carries the tag of an earlier lap.
//! A cell that last held payload carries anything, even something that looks like a tag; the sender
//! remembers such cells (`dirty`), and before it publishes a message it clears the control word
//! of the cell that follows, if that is one of them. The receiver looks there only after it has
//! seen the message, so it never looks at payload. (`a_payload_that_mimics_a_control_word…` in the tests, and loom.)
//!
//! **Contiguity.** A message that begins near the end runs over into spare cells behind the ring; the next
//! one begins at cell 0. Both sides compute this, so nothing needs to be marked.
//!
//! **Room.** The receiver publishes its position after each quarter of the ring; the sender reads it only when
//! what it remembers does not suffice. A drained ring always shows at least three quarters as free.

mod cell;
mod rx;
mod tx;

pub(crate) use cell::{Cell, Cells};
pub(crate) use rx::{Polled, RingRx};
pub(crate) use tx::{Pushed, RingTx};

use crate::sync::{AtomicU32, AtomicU64};

/// Bytes of a cell: a cache line.
pub(crate) const CELL: usize = 64;
/// Bytes of payload that fit into the first cell of a message.
pub(crate) const INLINE: usize = 32;
/// Fewest cells of a ring.
pub(crate) const MIN_CELLS: u32 = 64;
/// Most cells of a ring.
pub(crate) const MAX_CELLS: u32 = 1 << 20;
/// Set in a control word whose payload lies in the bulk area.
pub(crate) const BULK: u64 = 1 << 63;

const LEN_SHIFT: u32 = 32;
const LEN_MASK: u64 = 0xff_ffff;

/// What the receiver writes and the sender reads, and one word for the other direction.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Ends {
    /// The receiver's position in cells, published after each quarter of the ring.
    pub(crate) consumed: AtomicU64,
    /// The receiver's position in the bulk area, in bytes, published after each packet.
    pub(crate) bulk_consumed: AtomicU64,
    /// The sender found no room: whoever makes some and sees the sender asleep rings its bell.
    /// On a line of its own, because the sender writes it.
    pub(crate) starved: Starved,
}

/// See [`Ends::starved`].
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Starved(pub(crate) AtomicU32);

#[cfg(loom)]
impl Ends {
    pub(crate) fn new() -> Self {
        Self {
            consumed: AtomicU64::new(0),
            bulk_consumed: AtomicU64::new(0),
            starved: Starved(AtomicU32::new(0)),
        }
    }
}

/// How many cells a message with `len` bytes of payload takes.
#[inline(always)]
pub(crate) fn cells_for(len: usize) -> u32 {
    if len <= INLINE {
        1
    } else {
        1 + (len - INLINE).div_ceil(CELL) as u32
    }
}

/// What payload has to look like to be taken for a message at `pos`, for the tests.
#[cfg(test)]
pub(crate) fn forged(pos: u64, len: usize) -> u64 {
    control(pos, len, 0)
}

/// The tag of position `pos`: odd, and different for positions less than 2^31 cells apart.
#[inline(always)]
fn tag(pos: u64) -> u32 {
    ((pos as u32) << 1) | 1
}

/// The control word of a message at `pos`.
#[inline(always)]
fn control(pos: u64, len: usize, bulk: u64) -> u64 {
    u64::from(tag(pos)) | ((len as u64) << LEN_SHIFT) | bulk
}

#[cfg(all(test, not(loom)))]
mod tests;
