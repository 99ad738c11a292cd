//! The ring of one ordered pair: one sender, one receiver, cells of one cache line.
//!
//! ```text
//!      ┌───────────┬───────────┬──────────────────────────────────┐
//! cell │ control 8 │ header 24 │ up to 32 bytes of payload, or    │
//!      │           │           │ where in the bulk area it lies   │
//!      └───────────┴───────────┴──────────────────────────────────┘
//! control = tag of the position (low 56 bits, odd) | length | BULK
//! ```
//!
//! The control word is written last. The receiver polls the very line in which the message arrives,
//! so a small message costs one transfer of one cache line. A cell holds a message for the receiver
//! at position `p` exactly when its control word carries the tag of `p`; before, it carries that of
//! an earlier lap, or zero. Every message takes one cell, so nothing but control words ever lies
//! where the receiver looks for one. (Messages over several cells, and cells of two lines, were
//! tried and are slower from 33 bytes on: a poll of one line makes the processor fetch its
//! neighbour as well, out of the hands of the sender that is writing it. See `docs/shm.md`.)
//!
//! **Taking.** Where lines are taken ([`lines`](portolan_core::lines)) the receiver may write the
//! last byte of a cell whose payload is shorter, while the cell is its own.
//!
//! **Room.** The receiver publishes its position after each quarter of the ring, and after each
//! beginning ([`BEGINNING`]); the sender reads it only when what it remembers does not suffice. A
//! drained ring always shows at least three quarters as free.
//!
//! **Starting over.** On some processors lines are handed over in half the time while both sides
//! still have them in their first caches. There ([`lines`](portolan_core::lines)) a sender that
//! comes to the end of a beginning, and sees that everything it sent has been read, goes on at the
//! ring's first cell: its position skips the rest of the lap. The receiver, which finds nothing at
//! the end of a beginning, looks there, too. The sender decides with all of the ring empty, so who
//! has skipped left nothing behind; one that goes on without skipping may reach the first cell,
//! too, while its receiver is between the two looks, which therefore looks at its own cell once
//! more.

mod cell;
mod rx;
mod tx;

pub(crate) use cell::{Cell, Cells};
pub(crate) use rx::{Polled, RingRx};
pub(crate) use tx::{Pushed, RingTx};

use crate::sync::{AtomicU32, AtomicU64};

/// Bytes of a cell: a cache line.
pub(crate) const CELL: usize = 64;
/// Bytes of payload that fit into a cell.
pub(crate) const INLINE: usize = 32;
/// Fewest cells of a ring.
pub(crate) const MIN_CELLS: u32 = 32;
/// Most cells of a ring.
pub(crate) const MAX_CELLS: u32 = 1 << 20;
/// Set in a control word whose payload lies in the bulk area.
pub(crate) const BULK: u64 = 1 << 63;

/// Cells after which a sender may start over. They, and those of the other way, are to fit the
/// first cache beside all else.
pub(crate) const BEGINNING: u64 = if cfg!(loom) { 1 } else { 64 };

/// Cells of the largest ring the sender of which starts over. Each time it does it skips a lap, so
/// in larger ones tags would come again too soon: cells that are skipped keep theirs. (With these
/// after a year of nothing else.)
const RESTARTING: u32 = 4096;

/// Bits of a tag.
pub(crate) const TAG_BITS: u32 = 56;
const LEN_SHIFT: u32 = TAG_BITS;
const LEN_MASK: u64 = 0x7f;

/// What the receiver writes and the sender reads, and one word for the other direction.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Ends {
    /// The receiver's position in cells, published often enough that there is room before it runs
    /// out.
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

/// What a sender that lies would write to claim a message at `pos`, for the tests.
#[cfg(test)]
pub(crate) fn forged(pos: u64, len: usize) -> u64 {
    control(pos, len, 0)
}

/// The tag of position `pos`: odd, and different for positions less than 2^55 cells apart.
#[inline(always)]
fn tag(pos: u64) -> u64 {
    ((pos << 1) | 1) & ((1 << TAG_BITS) - 1)
}

/// Whether a control word is that of a message at `pos`.
#[inline(always)]
fn is_at(control: u64, pos: u64) -> bool {
    (control ^ ((pos << 1) | 1)) << (u64::BITS - TAG_BITS) == 0
}

/// The control word of a message at `pos`.
#[inline(always)]
fn control(pos: u64, len: usize, bulk: u64) -> u64 {
    tag(pos) | ((len as u64) << LEN_SHIFT) | bulk
}

#[cfg(all(test, not(loom)))]
mod tests;
