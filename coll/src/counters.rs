//! What collectives have cost: messages and synchronisations, counted per communicator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan_core::Device;
use portolan_core::comm::Communicator;

/// What is counted, since a communicator was made, on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counters {
    /// Operations started.
    Operations = 0,
    /// Messages sent.
    Messages,
    /// Bytes of data in them.
    Bytes,
    /// Times that the rank waited for messages: the rounds of its schedules.
    Waits,
    /// Flags set in memory that other ranks look at.
    Signals,
    /// Times that the rank waited for such flags.
    Looks,
}

impl Counters {
    pub(crate) const COUNT: usize = 6;

    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Operations,
        Self::Messages,
        Self::Bytes,
        Self::Waits,
        Self::Signals,
        Self::Looks,
    ];

    /// As people read it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::Messages => "messages",
            Self::Bytes => "bytes",
            Self::Waits => "waits",
            Self::Signals => "signals",
            Self::Looks => "looks",
        }
    }
}

/// What was counted on the communicators of a rank that have ended.
#[derive(Debug, Default)]
pub struct Totals([AtomicU64; Counters::COUNT]);

impl Totals {
    /// Communicators may end in several threads at once.
    pub(crate) fn add(&self, counted: [u64; Counters::COUNT]) {
        for (total, more) in self.0.iter().zip(counted) {
            // Relaxed: it is read when those threads are done, or may be late.
            total.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// The sum of a counter over those communicators.
    #[must_use]
    pub fn of(&self, what: Counters) -> u64 {
        self.0[what as usize].load(Ordering::Relaxed)
    }
}

/// What is counted on communicators of this rank that end, from now on and before: it may be read
/// when none is left.
#[must_use]
pub fn totals<D: Device>(comm: &Communicator<D>) -> Arc<Totals> {
    Arc::clone(&crate::state::of_job(comm).totals)
}

/// What has been counted on a communicator.
#[must_use]
pub fn counted<D: Device>(comm: &Communicator<D>, what: Counters) -> u64 {
    crate::state::of(comm).counted(what)
}
