//! The inbox of a rank: it receives the first packets of every pair, before the pair has a ring.
//!
//! Any rank may post. The sender claims a slot with one compare-and-swap, fills and publishes it,
//! and then sets the slot's bit in `pending`, the one word that the receiver polls. A sender has at
//! most **one** packet in an inbox at a time. It posts the next packet, or announces its ring, only
//! after the slot has changed, and the receiver frees a slot only after it has delivered the
//! packet. So packets of a pair stay in order without a queue, whatever happens to other senders.
//!
//! **Killed senders.** A claimed slot names its claimer. [`Inbox::sweep`] frees the slots that dead
//! ranks had claimed, and finds packets that were published but whose bit was never set. A killed
//! sender can leave nothing else half done.

use bytemuck::Zeroable;

use crate::optional::Present;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, AtomicU64, UnsafeCell};

/// Slots of an inbox; each has one bit in `pending`.
pub(crate) const SLOTS: u32 = if cfg!(loom) { 2 } else { 64 };
/// Largest payload that fits into a slot, in bytes.
pub(crate) const PAYLOAD: usize = 216;

const FREE: u64 = 0;
const CLAIMED: u64 = 1 << 62;
const FULL: u64 = 2 << 62;
const STATE: u64 = 3 << 62;
const RANK_SHIFT: u32 = 32;
const RANK_MASK: u64 = 0xff_ffff;

/// The kind of packet in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A packet of the engine.
    Packet = 1,
    /// The announcement of the sender's ring, in which all later packets come. Header: offset,
    /// cells, 0.
    Ring = 2,
}

/// The words of an inbox.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Inbox {
    /// Bit `n` is set when slot `n` has been published.
    pending: AtomicU64,
    /// Set by a sender that found no free slot.
    starved: AtomicU32,
    slots: [Slot; SLOTS as usize],
}

/// One slot: four cache lines.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(64)))]
struct Slot {
    /// State (2 bits), rank of the sender (24 bits), number of the packet (32 bits).
    word: AtomicU64,
    body: UnsafeCell<Body>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Body {
    header: [u64; 3],
    kind: u32,
    len: u32,
    payload: [u8; PAYLOAD],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 256);

/// A packet that was posted: its slot, and the value of the slot's word when it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub(crate) struct Posted {
    slot: u32,
    word: u64,
}

impl Present for Posted {
    fn is_present(&self) -> bool {
        self.word != FREE
    }
}

/// A packet in a slot, valid until [`Inbox::free`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// Rank of the sender, as the sender states it; not checked against the number of ranks.
    pub(crate) from: u32,
    pub(crate) kind: u32,
    pub(crate) header: [u64; 3],
    pub(crate) payload: *const u8,
    /// At most [`PAYLOAD`].
    pub(crate) len: usize,
}

impl Inbox {
    /// Posts a packet; `None` if no slot is free.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable and `len` is at most [`PAYLOAD`].
    pub(crate) unsafe fn post(
        &self,
        from: u32,
        number: u32,
        kind: Kind,
        header: [u64; 3],
        data: *const u8,
        len: usize,
    ) -> Option<Posted> {
        let name = (u64::from(from) & RANK_MASK) << RANK_SHIFT;
        let slot = self.claim(from, CLAIMED | name)?;
        let place = &self.slots[slot as usize];
        place.body.with_mut(|body| {
            // SAFETY: the compare-and-swap made the slot this sender's until it is published, and
            // the caller vouches for `data`.
            unsafe {
                (*body).header = header;
                (*body).kind = kind as u32;
                (*body).len = len as u32;
                std::ptr::copy_nonoverlapping(data, (&raw mut (*body).payload).cast(), len);
            }
        });
        let word = FULL | name | u64::from(number);
        // SYNC 1: publishes the body to the Acquire load in `look`.
        place.word.store(word, Release);
        // SYNC 2: orders the word before the bit; pairs with the Acquire swap in `pending`.
        self.pending.fetch_or(1 << slot, Release);
        Some(Posted { slot, word })
    }

    fn claim(&self, from: u32, word: u64) -> Option<u32> {
        for n in 0..SLOTS {
            let slot = (from % SLOTS + n) % SLOTS;
            let place = &self.slots[slot as usize].word;
            // SYNC 3: Acquire pairs with the Release store in `free`: the receiver has already read
            // what this sender is about to overwrite.
            if place.load(Relaxed) == FREE
                && place.compare_exchange(FREE, word, Acquire, Relaxed).is_ok()
            {
                return Some(slot);
            }
        }
        // The receiver looks at `starved` after it has freed a slot. The barrier in the bell's
        // `arm` comes between this store and the caller's next attempt.
        self.starved.store(1, Relaxed);
        None
    }

    /// Whether a posted packet has been delivered.
    #[inline]
    pub(crate) fn delivered(&self, posted: Posted) -> bool {
        // SYNC 3: as in `claim`. Only this sender writes the word with this number, so any other
        // value means that the receiver has freed the slot.
        self.slots[posted.slot as usize].word.load(Acquire) != posted.word
    }

    /// Takes the bits of the slots that were published since the last call.
    #[inline(always)]
    pub(crate) fn pending(&self) -> u64 {
        if self.pending.load(Relaxed) == 0 {
            return 0;
        }
        // SYNC 2: pairs with the Release in `post`.
        self.pending.swap(0, Acquire)
    }

    /// The packet in `slot`, if one was published there.
    pub(crate) fn look(&self, slot: u32) -> Option<Arrived> {
        let place = &self.slots[slot as usize];
        // SYNC 1: pairs with the Release store in `post`.
        let word = place.word.load(Acquire);
        if word & STATE != FULL {
            return None;
        }
        let from = ((word >> RANK_SHIFT) & RANK_MASK) as u32;
        Some(place.body.with(|body| {
            // SAFETY: the slot is full, so it belongs to the receiver until the receiver frees it.
            // The body holds plain integers, for which every bit pattern is valid.
            unsafe {
                Arrived {
                    from,
                    kind: (*body).kind,
                    header: (*body).header,
                    payload: (&raw const (*body).payload).cast(),
                    len: ((*body).len as usize).min(PAYLOAD),
                }
            }
        }))
    }

    /// Frees a slot whose packet was delivered.
    pub(crate) fn free(&self, slot: u32) {
        // SYNC 3: orders the receiver's reads before the store; pairs with `claim` and `delivered`.
        self.slots[slot as usize].word.store(FREE, Release);
    }

    /// Whether a slot is free; a hint.
    pub(crate) fn has_room(&self) -> bool {
        // SYNC 3: as in `claim`.
        self.slots
            .iter()
            .any(|slot| slot.word.load(Acquire) == FREE)
    }

    /// Whether a sender has found no free slot since the last call.
    pub(crate) fn take_starved(&self) -> bool {
        self.starved.load(Relaxed) != 0 && self.starved.swap(0, Relaxed) != 0
    }

    /// Clears up after dead ranks: frees the slots that they had only claimed. Returns, as bits,
    /// all slots that hold packets, whether or not their bit in `pending` was set.
    pub(crate) fn sweep(&self, dead: impl Fn(u32) -> bool) -> u64 {
        let mut full = 0;
        for slot in 0..SLOTS {
            let place = &self.slots[slot as usize].word;
            // SYNC 1: as in `look`.
            let word = place.load(Acquire);
            let from = ((word >> RANK_SHIFT) & RANK_MASK) as u32;
            match word & STATE {
                FULL => full |= 1 << slot,
                CLAIMED if dead(from) => {
                    // AcqRel: nothing that the dead rank wrote is read; the Release side is that of
                    // `free`.
                    let _ = place.compare_exchange(word, FREE, AcqRel, Relaxed);
                }
                _ => {}
            }
        }
        full
    }
}

#[cfg(loom)]
impl Inbox {
    pub(crate) fn new() -> Self {
        let slot = || Slot {
            word: AtomicU64::new(FREE),
            body: UnsafeCell::new(Body {
                header: [0; 3],
                kind: 0,
                len: 0,
                payload: [0; PAYLOAD],
            }),
        };
        Self {
            pending: AtomicU64::new(0),
            starved: AtomicU32::new(0),
            slots: std::array::from_fn(|_| slot()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn inbox() -> Box<Inbox> {
        // SAFETY: an inbox is integers; all zero is an empty one.
        unsafe { crate::segment::layout::zeroed() }
    }

    fn post(inbox: &Inbox, from: u32, bytes: &[u8]) -> Option<Posted> {
        // SAFETY: a slice of at most `PAYLOAD` bytes.
        unsafe {
            inbox.post(
                from,
                7,
                Kind::Packet,
                [1, 2, 3],
                bytes.as_ptr(),
                bytes.len(),
            )
        }
    }

    #[test]
    fn a_packet_arrives_and_is_acknowledged_when_its_slot_is_freed() {
        let inbox = inbox();
        let posted = post(&inbox, 5, b"hello").unwrap();
        let bits = inbox.pending();
        assert_eq!(bits.count_ones(), 1);
        let slot = bits.trailing_zeros();
        let arrived = inbox.look(slot).unwrap();
        assert_eq!(
            (arrived.from, arrived.header, arrived.len),
            (5, [1, 2, 3], 5)
        );
        assert!(!inbox.delivered(posted));
        inbox.free(slot);
        assert!(inbox.delivered(posted));
        assert_eq!(inbox.pending(), 0);
    }

    #[test]
    fn a_full_inbox_refuses_and_says_so_to_the_receiver() {
        let inbox = inbox();
        for rank in 0..SLOTS {
            assert!(post(&inbox, rank, b"").is_some());
        }
        assert!(!inbox.take_starved());
        assert!(post(&inbox, 1000, b"").is_none());
        assert!(inbox.take_starved());
        inbox.free(9);
        assert!(post(&inbox, 1000, b"").is_some());
    }

    #[test]
    fn slots_of_the_dead_are_freed_and_lost_bits_found() {
        let inbox = inbox();
        // Rank 3 died after its claim, rank 4 after it had published but before it set the bit.
        assert_eq!(inbox.claim(3, CLAIMED | 3 << RANK_SHIFT), Some(3));
        post(&inbox, 4, b"x").unwrap();
        let _ = inbox.pending();
        assert_eq!(inbox.sweep(|_| false), 1 << 4);
        assert_eq!(inbox.slots[3].word.load(Relaxed) & STATE, CLAIMED);
        assert_eq!(inbox.sweep(|rank| rank == 3), 1 << 4);
        assert_eq!(inbox.slots[3].word.load(Relaxed), FREE);
    }
}
