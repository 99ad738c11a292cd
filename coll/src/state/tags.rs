//! The tags of operations, and which of them are in use.
//!
//! There are fewer tags than numbers of operations, so an operation may get the tags of one that is
//! still under way, or of a persistent one that is still alive. Their ranks would take each other's
//! messages. So such operations [hold](InUse::hold) their tags until they are over.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use portolan_core::comm::{FIRST_FREE_TAG, Tag};

use super::lock;
use crate::schedule::{LANES, Lane};

/// First tag of this crate on the collective context; the collectives of core use the tags below.
pub(super) const FIRST_TAG: u32 = FIRST_FREE_TAG;

/// How tags are assigned to a communicator's operations: half of the tags serve operations in the
/// order in which they are started, half persistent operations in the order in which they are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    /// The number of operations of one kind whose messages can be told apart.
    distinct: u32,
}

/// The tags of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnTags(pub(super) u32);

impl Tags {
    pub(super) fn new(tag_ub: u32) -> Self {
        let room = (tag_ub.saturating_sub(FIRST_TAG) / LANES / 2).max(1);
        // A power of two, so that the sequence stays regular when the operation number wraps
        // around.
        Self {
            distinct: 1 << room.ilog2(),
        }
    }

    /// The number of operations of one kind after which the tags are used again.
    pub(crate) fn distinct(self) -> u32 {
        self.distinct
    }

    /// The tags of the operation that was started with this number.
    #[inline]
    pub(crate) fn started(self, number: u32) -> OwnTags {
        OwnTags(FIRST_TAG + number % self.distinct * LANES)
    }

    /// The tags of the persistent operation with this number.
    pub(crate) fn reserved(self, number: u32) -> OwnTags {
        OwnTags(FIRST_TAG + (self.distinct + number % self.distinct) * LANES)
    }
}

impl OwnTags {
    /// The tag of messages in a lane.
    #[inline]
    pub(crate) fn lane(self, lane: Lane) -> Tag {
        Tag(self.0 + u32::from(lane))
    }
}

/// The tags of a communicator that operations hold.
#[derive(Debug, Default)]
pub(super) struct InUse {
    tags: Mutex<BTreeSet<u32>>,
    /// The number of `tags`, so that a blocking operation need not lock them if there are none.
    count: AtomicUsize,
}

impl InUse {
    /// Whether an operation holds these tags.
    #[inline]
    pub(super) fn has(&self, tags: OwnTags) -> bool {
        // Relaxed: this thread took the tags, or follows the thread that took them, because
        // operations on one communicator are started one after the other. If it sees a return of
        // tags late, it locks for nothing.
        self.count.load(Ordering::Relaxed) != 0 && lock(&self.tags).contains(&tags.0)
    }

    /// Takes tags for an operation; `None` if another holds them.
    pub(super) fn hold(self: &Arc<Self>, tags: OwnTags) -> Option<Held> {
        let mut all = lock(&self.tags);
        let is_free = all.insert(tags.0);
        self.count.store(all.len(), Ordering::Relaxed);
        is_free.then(|| Held {
            tags,
            in_use: Arc::clone(self),
        })
    }
}

/// Tags that an operation holds until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) tags: OwnTags,
    in_use: Arc<InUse>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = lock(&self.in_use.tags);
        all.remove(&self.tags.0);
        self.in_use.count.store(all.len(), Ordering::Relaxed);
    }
}
