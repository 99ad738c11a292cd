//! The layout of the segment. Ranks check the hash of this layout before they talk.
//!
//! ```text
//! 0        Head: what the job is, how much is used, the failure epoch
//! 4 KiB    RankArea of rank 0: identity, bell, presence, processor, inbox, offer words
//!          RankArea of rank 1 …
//! data     extents in the order of their allocation: rings, bulk areas, memory of `alloc`
//! …        never allocated: costs nothing
//! ```
//!
//! Everything in it is an atomic or an integer in an `UnsafeCell`. So zeroed memory is a valid,
//! empty segment, and no bytes that a peer writes can make a reference invalid.

use portolan_core::transport::WIRE_VERSION;

use crate::bell::BellWords;
use crate::bulk::FIRST_AT;
use crate::inbox::{self, Inbox};
use crate::memory_limit::Allowance;
use crate::ring::{BEGINNING, Cell, Ends, INLINE_WIDE, OfSender, TAG_BITS};
use crate::sync::{AtomicU32, AtomicU64};

/// First word of every segment.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"PORTOLAN");
/// Offer words of a rank.
pub(crate) const OFFERS: usize = 4096;
/// Longest text, in bytes, that says why a rank is held to be dead.
pub(crate) const REASON: usize = 232;
/// The word that a rank must read from a peer when it tries `process_vm_readv`.
pub(crate) const PROBE: u64 = 0x7061_7374_6f72_616c;

/// A value on cache lines of its own.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// The first page of the segment.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct Head {
    /// [`MAGIC`], which the maker of the segment writes last.
    pub(crate) magic: AtomicU64,
    pub(crate) wire: AtomicU32,
    pub(crate) ranks: AtomicU32,
    /// [`layout_hash`].
    pub(crate) layout: AtomicU64,
    /// Size of the file.
    pub(crate) total: AtomicU64,
    pub(crate) ring_cells: AtomicU32,
    /// Set if some rank may not use `membarrier`: every rank then fences. Set before the second
    /// fence of `open`.
    pub(crate) fenced: AtomicU32,
    pub(crate) bulk_bytes: AtomicU64,
    /// The number of ranks found dead.
    pub(crate) epoch: Apart<AtomicU32>,
    /// End of the last extent.
    pub(crate) used: Apart<AtomicU64>,
    /// What may be allocated without asking the system how much memory is left.
    pub(crate) allowance: Apart<Allowance>,
}

/// The area of one rank.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct RankArea {
    pub(crate) identity: Identity,
    pub(crate) bell: BellWords,
    pub(crate) presence: Apart<Presence>,
    /// One more than the processor on which this rank last waited while ranks took turns on
    /// processors; 0 for none. Peers read the word at each such wait; it hardly ever changes where
    /// a rank has one thread.
    pub(crate) processor: Apart<AtomicU32>,
    pub(crate) inbox: Inbox,
    pub(crate) offers: Apart<[AtomicU32; OFFERS]>,
}

/// Whether a rank attends to the requests of others.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Presence {
    /// Whether the rank is inside the library and will poll soon.
    pub(crate) inside: AtomicU32,
    /// How often the rank has polled in passing while peers may have been pulling from it.
    pub(crate) looks: AtomicU32,
}

/// The process of a rank, and its life.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Identity {
    pub(crate) pid: AtomicU32,
    /// See [`Life`].
    pub(crate) life: AtomicU32,
    /// When the process started, in clock ticks since boot.
    pub(crate) start: AtomicU64,
    pub(crate) reason_len: AtomicU32,
    pub(crate) reason: [std::sync::atomic::AtomicU8; REASON],
    /// [`PROBE`].
    pub(crate) probe: AtomicU64,
    /// Where `probe` is in the address space of this rank.
    pub(crate) probe_at: AtomicU64,
    /// One more than the rank into whose memory this rank is writing; 0 for none.
    pub(crate) pushing: AtomicU32,
}

/// The life of a rank, as [`Identity::life`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Life {
    /// Has not attached yet.
    Unborn = 0,
    /// At work.
    Running = 1,
    /// Left in an orderly way.
    Finished = 2,
    /// Dead; a rank is writing down the reason.
    Failing = 3,
    /// Dead; the reason is written down.
    Failed = 4,
    /// Its program has failed. Its process is about to end, and that end counts as its death.
    Ending = 5,
}

impl Life {
    /// The life with this number. A number that no correct rank writes counts as a failure.
    pub(crate) fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Unborn,
            1 => Self::Running,
            2 => Self::Finished,
            3 => Self::Failing,
            5 => Self::Ending,
            _ => Self::Failed,
        }
    }

    pub(crate) fn dead(self) -> bool {
        matches!(self, Self::Failing | Self::Failed)
    }
}

/// The offset at which the extents begin in a segment for `ranks` ranks.
pub(crate) fn data_start(ranks: u32) -> u64 {
    (size_of::<Head>() + ranks as usize * size_of::<RankArea>()) as u64
}

/// A number that changes with the layout of anything that two ranks both touch.
pub(crate) const fn layout_hash() -> u64 {
    let facts = [
        WIRE_VERSION as usize,
        size_of::<Head>(),
        std::mem::offset_of!(Head, allowance),
        size_of::<RankArea>(),
        size_of::<Identity>(),
        size_of::<Inbox>(),
        size_of::<Ends>(),
        size_of::<Cell>(),
        std::mem::offset_of!(Identity, pushing),
        std::mem::offset_of!(RankArea, bell),
        std::mem::offset_of!(RankArea, processor),
        std::mem::offset_of!(RankArea, inbox),
        std::mem::offset_of!(RankArea, offers),
        inbox::PAYLOAD,
        TAG_BITS as usize,
        BEGINNING as usize,
        INLINE_WIDE,
        std::mem::offset_of!(OfSender, filled),
        FIRST_AT,
        OFFERS,
        REASON,
    ];
    // FNV-1a over the words: enough to tell two builds apart.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut n = 0;
    while n < facts.len() {
        hash = (hash ^ facts[n] as u64).wrapping_mul(0x0100_0000_01b3);
        n += 1;
    }
    hash
}

/// A zeroed value on the heap, as it would lie in a fresh segment.
///
/// # Safety
/// All zero must be a valid `T`.
#[cfg(test)]
pub(crate) unsafe fn zeroed<T>() -> Box<T> {
    let layout = std::alloc::Layout::new::<T>();
    assert!(layout.size() > 0);
    // SAFETY: the layout is not empty, and the memory is that of one `T`, which by the caller's
    // promise is valid when zeroed.
    unsafe {
        let ptr = std::alloc::alloc_zeroed(layout).cast::<T>();
        assert!(!ptr.is_null());
        Box::from_raw(ptr)
    }
}
