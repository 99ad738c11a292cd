//! The cost of collectives: messages and synchronisations, counted per communicator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan_core::Device;
use portolan_core::comm::Communicator;

/// What is counted on this rank since a communicator was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counters {
    /// Operations started.
    Operations = 0,
    /// Messages sent.
    Messages,
    /// Bytes of data in them.
    Bytes,
    /// Times that the rank waited for messages, that is, the rounds of its schedules.
    Waits,
    /// Flags set in memory at which other ranks look.
    Signals,
    /// Times that the rank waited for such flags.
    Looks,
}

impl Counters {
    pub(crate) const COUNT: usize = 6;

    /// All counters.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Operations,
        Self::Messages,
        Self::Bytes,
        Self::Waits,
        Self::Signals,
        Self::Looks,
    ];

    /// The name as people read it.
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

/// The counts of a rank's communicators that have ended.
#[derive(Debug, Default)]
pub struct Totals([AtomicU64; Counters::COUNT]);

impl Totals {
    /// Adds the counts of one communicator. Communicators may end in several threads at once.
    pub(crate) fn add(&self, counted: [u64; Counters::COUNT]) {
        for (total, more) in self.0.iter().zip(counted) {
            // Relaxed: a reader either runs after those threads are done, or may see old values.
            total.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// The sum of a counter over those communicators.
    #[must_use]
    pub fn of(&self, what: Counters) -> u64 {
        self.0[what as usize].load(Ordering::Relaxed)
    }
}

/// The totals of this rank's communicators that have ended or will end; they can still be read when
/// no communicator is left.
#[must_use]
pub fn totals<D: Device>(comm: &Communicator<D>) -> Arc<Totals> {
    Arc::clone(&crate::state::of_job(comm).totals)
}

/// The current value of a counter of a communicator.
#[must_use]
pub fn counted<D: Device>(comm: &Communicator<D>, what: Counters) -> u64 {
    crate::state::of(comm).counted(what)
}
