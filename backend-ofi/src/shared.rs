//! What the ranks of one process know together.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use portolan_core::transport::Bell;

use crate::deaths::Deaths;
use crate::deaths::roster::Roster;
use crate::endpoint::bell::EventBell;
use crate::endpoint::link::Link;

/// Who has left, and who has died.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) roster: Roster,
    pub(crate) deaths: Deaths,
    pub(crate) contacts: Contacts,
    /// What ranks of this process have left behind. It is closed when the last of them has gone: an
    /// endpoint of the shm provider uses the memory of the others in its process until then.
    retired: Mutex<Vec<Link>>,
}

impl Shared {
    pub(crate) fn new(roster: Roster, ranks: u32) -> Self {
        Self {
            roster,
            deaths: Deaths::default(),
            contacts: Contacts::new(ranks),
            retired: Mutex::default(),
        }
    }

    /// A rank has gone.
    pub(crate) fn retire(&self, link: Link) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.push(link);
    }
}

/// With whom the rank of this process has begun to talk: told to the thread that watches them.
#[derive(Debug)]
pub(crate) struct Contacts {
    /// By rank.
    words: Box<[AtomicU8]>,
    /// The watching thread's, where ranks are watched by heartbeats.
    alarm: OnceLock<Arc<EventBell>>,
}

impl Contacts {
    /// A packet was to be sent to the rank.
    pub(crate) const SPOKEN: u8 = 1;
    /// A packet has come from it, or a message that the provider has matched.
    pub(crate) const ARRIVED: u8 = 2;

    fn new(ranks: u32) -> Self {
        Self {
            words: (0..ranks).map(|_| AtomicU8::new(0)).collect(),
            alarm: OnceLock::new(),
        }
    }

    /// Who is to be woken.
    pub(crate) fn tell(&self, alarm: &Arc<EventBell>) {
        let _ = self.alarm.set(Arc::clone(alarm));
    }

    /// Whether ranks are watched by heartbeats.
    pub(crate) fn are_watched(&self) -> bool {
        self.alarm.get().is_some()
    }

    /// What there is with `rank`. Relaxed, here and in `note`: nothing else is told by it.
    pub(crate) fn with(&self, rank: u32) -> u8 {
        self.words[rank as usize].load(Ordering::Relaxed)
    }

    /// Notes what there is with `rank`.
    #[cold]
    pub(crate) fn note(&self, rank: u32, what: u8) {
        let before = self.words[rank as usize].fetch_or(what, Ordering::Relaxed);
        if before == 0
            && let Some(alarm) = self.alarm.get()
        {
            alarm.ring();
        }
    }
}
