//! The ring of one ordered pair: one sender, one receiver, and cells of one cache line each.
//!
//! ```text
//!      ┌───────────┬───────────┬──────────────────────────────────┐
//! cell │ control 8 │ header 24 │ up to 32 bytes of payload, or    │
//!      │           │           │ where in the bulk area it lies   │
//!      └───────────┴───────────┴──────────────────────────────────┘
//! control = tag of the position (low 56 bits, odd) | length | BULK
//! ```
//!
//! The sender writes the control word last. The receiver polls the very line in which the message
//! arrives, so a small message costs the transfer of one cache line. A cell holds a message for the
//! receiver at position `p` exactly when its control word carries the tag of `p`; before that it
//! carries the tag of an earlier lap, or zero.
//!
//! **Wide rings.** In a wide ring every message takes two neighbouring cells, and its payload of up
//! to 88 bytes continues in the second. Positions count cells, so they advance by two there. The
//! place where the receiver looks for a control word never holds anything else in either kind of
//! ring. Which kind is faster depends on the processor: where one polled line makes it fetch the
//! neighbouring line as well, it takes that line from the sender that is writing it, and a wide
//! ring is slower; where receivers take lines, it is faster (`docs/shm.md`).
//!
//! **Taking.** Where receivers take lines ([`lines`](portolan_core::lines)), a receiver that has
//! read a message's header may write a byte of it, and of a second cell the last byte, which no
//! payload reaches, while the cells belong to the receiver.
//!
//! **Room.** The receiver publishes its position after each quarter of the ring, and after each
//! beginning ([`BEGINNING`]). The sender reads that position only when the one it remembers leaves
//! no room. A drained ring always shows at least three quarters of itself as free.
//!
//! **Starting over.** On some processors a line is handed over in half the time while both sides
//! still have it in their first-level caches. There ([`lines`](portolan_core::lines)) a sender that
//! comes to the end of a beginning, and sees that everything it sent has been read, continues at
//! the ring's first cell: its position skips the rest of the lap. A receiver that finds nothing at
//! the end of a beginning therefore looks at the first cell, too. The sender starts over only while
//! the whole ring is empty, so a sender that has skipped leaves nothing behind. But a sender that
//! goes on without skipping may also reach the first cell while its receiver is between those two
//! looks; so the receiver then looks at its own cell once more.

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
/// Bytes of payload that fit into the two cells of a message in a wide ring. The rest of the second
/// cell stays free for a receiver that takes it.
pub(crate) const INLINE_WIDE: usize = INLINE + CELL - 8;
const _: () = assert!(INLINE_WIDE <= LEN_MASK as usize);
/// Fewest cells of a ring.
pub(crate) const MIN_CELLS: u32 = 32;
/// Most cells of a ring.
pub(crate) const MAX_CELLS: u32 = 1 << 20;
/// Set in the control word of a message whose payload lies in the bulk area.
pub(crate) const BULK: u64 = 1 << 63;

/// Cells after which a sender may start over. They, and those of the opposite direction, are to fit
/// the first-level cache beside everything else.
pub(crate) const BEGINNING: u64 = if cfg!(loom) { 1 } else { 64 };

/// Cells of the largest ring in which a sender starts over. Each start skips a lap, and skipped
/// cells keep their tags, so in larger rings tags would repeat too soon. (In a ring of this size
/// they repeat after a year of nothing else.)
const RESTARTING: u32 = 4096;

/// Bits of a tag.
pub(crate) const TAG_BITS: u32 = 56;
const LEN_SHIFT: u32 = TAG_BITS;
const LEN_MASK: u64 = 0x7f;

/// The words that the receiver writes and the sender reads, and those for the other direction.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Ends {
    /// The receiver's position in cells, published often enough that the sender sees new room
    /// before the old runs out.
    pub(crate) consumed: AtomicU64,
    /// The receiver's position in the bulk area, in bytes, published after each packet.
    pub(crate) bulk_consumed: AtomicU64,
    pub(crate) of_sender: OfSender,
}

/// The words that the sender writes and the receiver reads, on a line of their own.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct OfSender {
    /// The position in the bulk area up to which a packet that [grows](crate::grow) is there.
    pub(crate) filled: AtomicU64,
    /// Set by a sender that found no room: a receiver that makes some, and sees the sender asleep,
    /// rings its bell.
    pub(crate) starved: AtomicU32,
}

#[cfg(loom)]
impl Ends {
    pub(crate) fn new() -> Self {
        Self {
            consumed: AtomicU64::new(0),
            bulk_consumed: AtomicU64::new(0),
            of_sender: OfSender {
                filled: AtomicU64::new(0),
                starved: AtomicU32::new(0),
            },
        }
    }
}

/// The control word by which a lying sender claims a message at `pos`, for the tests.
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
