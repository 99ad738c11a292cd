//! The two ends of a pair: what the sender keeps about the receiver, and the receiver about the
//! sender.
//!
//! # Life of a pair
//! 1. The first packets go through the receiver's inbox, one at a time, so that no memory is spent
//!    on pairs that hardly talk.
//! 2. When there are more packets, or one does not fit a slot, the sender allocates a ring and
//!    announces it through the same inbox, once its previous packet there has been delivered. As
//!    soon as the announcement lies in its slot, the sender's packets go into the ring. The
//!    receiver learns of the ring after everything that came before it, so the order holds however
//!    slow either side is.
//! 3. When a payload does not fit a cell, the sender allocates a small bulk area. When that proves
//!    too small, the sender replaces it by one of full size, if there is memory for that.

use std::num::NonZeroU64;

use bytemuck::Zeroable;

use crate::bell::BellWords;
use crate::bulk::{BulkRx, BulkTx};
use crate::inbox::Posted;
use crate::manner::Manner;
use crate::optional::Optional;
use crate::ring::{Cell, Cells, Ends, RingRx, RingTx};
use crate::segment::Segment;
use crate::sync::Ordering::Relaxed;

/// What a sender keeps about a receiver. It is all zeros until the first send, so that a receiver
/// to which nothing is sent takes no memory ([`places`](crate::places)).
#[derive(Debug, Zeroable)]
pub(crate) struct Outgoing {
    /// The ring, once it is announced.
    pub(crate) ring: Optional<RingTx>,
    /// The receiver's bell, if there is or was a ring.
    bell: *const BellWords,
    pub(crate) bulk: Optional<BulkTx>,
    /// Offset in the segment of a ring that is allocated but not yet announced.
    pub(crate) unannounced: Option<NonZeroU64>,
    /// The packet of this rank that is in the receiver's inbox.
    pub(crate) posted: Optional<Posted>,
    /// Packets that went through the inbox.
    pub(crate) first_packets: u32,
    /// Whether the last send found no room; `seen` are the receiver's positions at that time.
    pub(crate) blocked: bool,
    pub(crate) seen: Seen,
    /// Why nothing can be sent any more.
    gone: Option<Box<Gone>>,
    /// How the two ranks take turns in sending.
    pub(crate) turns: Turns,
    /// How messages that are alone are copied, in both directions.
    pub(crate) manner: Manner,
}

/// Why nothing can be sent any more.
#[derive(Debug)]
struct Gone(String);

/// How two ranks take turns in sending. Ranks that answer each message with one send messages that
/// are alone: no other packet travels right before or behind them.
#[derive(Clone, Copy, Debug, Default, Zeroable)]
pub(crate) struct Turns {
    /// Packets that this rank has sent since packets last came from the other; `sent_before` counts
    /// those of this rank's turn before that.
    sent: u32,
    sent_before: u32,
    /// Packets that came in the other rank's latest turn.
    came: u32,
}

impl Turns {
    /// Counts a packet that this rank sends.
    #[inline(always)]
    pub(crate) fn sends(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Counts `packets` packets from the other rank.
    #[inline(always)]
    pub(crate) fn comes(&mut self, packets: usize) {
        if self.sent != 0 {
            (self.sent_before, self.sent, self.came) = (self.sent, 0, 0);
        }
        self.came = self.came.wrapping_add(packets as u32);
    }

    /// Whether the packet that this rank sends next is likely to be alone.
    #[inline(always)]
    pub(crate) fn sends_one(&self) -> bool {
        self.sent == 0 && self.sent_before == 1
    }

    /// Whether the packet that comes next is likely to be alone.
    #[inline(always)]
    pub(crate) fn awaits_one(&self) -> bool {
        self.sent != 0 && self.came == 1
    }
}

/// The receiver's positions in ring and bulk area at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
pub(crate) struct Seen {
    consumed: u64,
    bulk: u64,
}

impl Seen {
    pub(crate) fn now(ends: &Ends) -> Self {
        Self {
            consumed: ends.consumed.load(Relaxed),
            bulk: ends.bulk_consumed.load(Relaxed),
        }
    }
}

// SAFETY: `bell` points into the segment, which the transport keeps mapped.
unsafe impl Send for Outgoing {}

impl Outgoing {
    /// Begins to send through `ring`.
    pub(crate) fn begin(&mut self, ring: RingTx, bell: &BellWords) {
        self.unannounced = None;
        self.bell = bell;
        self.ring.set(Some(ring));
    }

    /// Ends all sending: the receiver has failed, for the reason `why`.
    pub(crate) fn end(&mut self, why: Option<String>) {
        self.ring.set(None);
        self.bulk.set(None);
        self.gone = why.map(|why| Box::new(Gone(why)));
    }

    /// Sends nothing any more, because of `why`, which is this rank's own trouble.
    #[cold]
    pub(crate) fn refuse(&mut self, why: &str) {
        self.gone = Some(Box::new(Gone(why.to_owned())));
    }

    /// Why nothing can be sent any more.
    pub(crate) fn gone(&self) -> Option<&str> {
        self.gone.as_deref().map(|Gone(why)| why.as_str())
    }

    /// Prefetches the cache lines of the next packet to this receiver, which may be an answer.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self) {
        if let Some(ring) = self.ring.as_ref() {
            ring.prefetch_next();
        }
        if let Some(bulk) = self.bulk.as_ref() {
            bulk.prefetch_next();
        }
    }

    /// Notes that the receiver, `peer`, has left the job.
    #[cold]
    pub(crate) fn has_left(&mut self, peer: u32) {
        let why = || format!("rank {peer} has left the job and takes no more messages");
        self.gone.get_or_insert_with(|| Box::new(Gone(why())));
    }

    /// The receiver's bell.
    ///
    /// # Safety
    /// There must be a ring.
    #[inline(always)]
    pub(crate) unsafe fn bell(&self) -> &BellWords {
        debug_assert!(!self.bell.is_null());
        // SAFETY: the caller's promise: `begin` was given a reference into the segment, which the
        // transport that holds `self` keeps mapped.
        unsafe { &*self.bell }
    }
}

/// What a receiver keeps about a sender.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) peer: u32,
    pub(crate) ring: RingRx,
    pub(crate) bulk: BulkRx,
    /// Bytes of the next packet, which [grows](crate::grow), that have been delivered.
    pub(crate) begun: usize,
    bell: *const BellWords,
}

// SAFETY: as for `Outgoing`.
unsafe impl Send for Incoming {}

impl Incoming {
    /// Adopts the ring that `peer` has announced at `offset`; `None` if there is none.
    pub(crate) fn adopt(
        segment: &Segment,
        peer: u32,
        offset: u64,
        cells: u32,
        wide: bool,
    ) -> Option<Self> {
        let (cells, ends) = ring_at(segment, offset, cells, wide)?;
        segment.touch(offset, ring_bytes(cells.count()));
        // SAFETY: `ring_at` found both inside the segment, which outlives this. The ring has one
        // receiver, because its offset was sent to this rank alone.
        let ring = unsafe { RingRx::new(cells, ends) };
        Some(Self {
            peer,
            ring,
            bulk: BulkRx::default(),
            begun: 0,
            bell: &raw const segment.rank(peer).bell,
        })
    }

    /// The sender's bell.
    #[inline(always)]
    pub(crate) fn bell(&self) -> &BellWords {
        // SAFETY: `adopt` took it from the segment, which the transport that holds `self` keeps
        // mapped.
        unsafe { &*self.bell }
    }
}

/// Bytes of a ring in the segment: the words that both sides share, then the cells.
pub(crate) fn ring_bytes(cells: u32) -> u64 {
    (size_of::<Ends>() + cells as usize * size_of::<Cell>()) as u64
}

/// The ring at `offset`, if it lies in the allocated part of the segment.
pub(crate) fn ring_at(
    segment: &Segment,
    offset: u64,
    cells: u32,
    wide: bool,
) -> Option<(Cells, *const Ends)> {
    if !offset.is_multiple_of(4096) {
        return None;
    }
    let base = segment.at(offset, ring_bytes(cells) as usize)?;
    let first = base
        .wrapping_add(size_of::<Ends>())
        .cast::<Cell>()
        .cast_const();
    // SAFETY: the bytes are aligned, valid whatever they hold, and mapped as long as the segment.
    // The announcement makes sure that there is one sender and one receiver.
    let cells = unsafe { Cells::new(first, cells, wide) };
    Some((cells, base.cast::<Ends>().cast_const()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_each_message_sends_one_that_is_alone() {
        let mut turns = Turns::default();
        assert!(
            !turns.sends_one() && !turns.awaits_one(),
            "nothing is known"
        );
        for round in 0..3 {
            turns.sends();
            assert!(!turns.sends_one(), "it would be the second");
            assert_eq!(turns.awaits_one(), round > 0);
            turns.comes(1);
            assert!(turns.sends_one());
            assert!(!turns.awaits_one(), "nobody has asked for it");
        }
    }

    #[test]
    fn windows_and_their_answers_are_told_from_that() {
        let (mut sender, mut receiver) = (Turns::default(), Turns::default());
        for _ in 0..3 {
            for _ in 0..64 {
                assert!(!sender.sends_one());
                sender.sends();
            }
            for packets in [1, 16, 47] {
                assert!(!receiver.awaits_one());
                receiver.comes(packets);
            }
            receiver.sends();
            sender.comes(1);
        }
        assert!(!sender.sends_one() && !receiver.awaits_one());
    }
}
