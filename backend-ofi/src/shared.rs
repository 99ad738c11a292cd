//! State that the ranks of one process share.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use portolan_core::transport::Bell;

use crate::deaths::Deaths;
use crate::deaths::counts::Counts;
use crate::deaths::roster::Roster;
use crate::endpoint::bell::EventBell;
use crate::endpoint::link::Link;

/// Which ranks have left, and which have died.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) roster: Roster,
    pub(crate) deaths: Deaths,
    pub(crate) contacts: Contacts,
    pub(crate) counts: Counts,
    /// Links of ranks of this process that have gone. They are closed when the last of these ranks
    /// has gone, because an endpoint of the shm provider uses the memory of the others in its
    /// process until then.
    retired: Mutex<Vec<Link>>,
}

impl Shared {
    pub(crate) fn new(roster: Roster, ranks: u32) -> Self {
        Self {
            roster,
            deaths: Deaths::default(),
            contacts: Contacts::new(ranks),
            counts: Counts::new(ranks),
            retired: Mutex::default(),
        }
    }

    /// Keeps the link of a rank that has gone.
    pub(crate) fn retire(&self, link: Link) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.push(link);
    }
}

/// The ranks with which the rank of this process has begun to communicate, as the thread that
/// watches them needs to know.
#[derive(Debug)]
pub(crate) struct Contacts {
    /// By rank: [`SPOKEN`](Contacts::SPOKEN) and [`ARRIVED`](Contacts::ARRIVED).
    words: Box<[AtomicU8]>,
    /// The watching thread's bell, where ranks are watched by heartbeats.
    alarm: OnceLock<Arc<EventBell>>,
}

impl Contacts {
    /// This rank has begun to send to that rank.
    pub(crate) const SPOKEN: u8 = 1;
    /// A packet, or a message that the provider matched, has arrived from that rank.
    pub(crate) const ARRIVED: u8 = 2;

    fn new(ranks: u32) -> Self {
        Self {
            words: (0..ranks).map(|_| AtomicU8::new(0)).collect(),
            alarm: OnceLock::new(),
        }
    }

    /// Sets the bell to ring at the first contact with a rank.
    pub(crate) fn tell(&self, alarm: &Arc<EventBell>) {
        let _ = self.alarm.set(Arc::clone(alarm));
    }

    /// Whether ranks are watched by heartbeats.
    pub(crate) fn are_watched(&self) -> bool {
        self.alarm.get().is_some()
    }

    /// The contact with `rank` so far. Relaxed, here and in `note`: the value publishes no other
    /// data.
    pub(crate) fn with(&self, rank: u32) -> u8 {
        self.words[rank as usize].load(Ordering::Relaxed)
    }

    /// Adds to the contact with `rank`.
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
