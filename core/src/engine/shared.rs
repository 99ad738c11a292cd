//! The part of an engine that every thread may read without the lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::request::{Request, State, StateWords};
use crate::transport::Bell;

/// The lock-free side of an engine: request states, the completion epoch, and what sleepers need.
///
/// SYNC POINT 2: the Release store in [`advance_epoch`](Self::advance_epoch) pairs with the Acquire
/// load in [`epoch`](Self::epoch): a thread that sees the new epoch also sees the request states
/// that led to it.
///
/// All writes happen under the engine's lock; the atomics serve readers that do not hold it.
pub(super) struct Shared {
    pub(super) rank: u32,
    pub(super) words: StateWords,
    epoch: AtomicU64,
    /// Threads that sleep on the bell, or are about to.
    sleepers: AtomicU32,
    /// Threads that wait on `parked` for any completion, because another thread is polling.
    waiting: AtomicU32,
    /// Number of polls so far. A waiting thread uses it to see that another thread makes progress.
    polls: AtomicU64,
    pub(super) bell: Arc<dyn Bell>,
    parking: Mutex<()>,
    parked: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("rank", &self.rank)
            .field("epoch", &self.epoch())
            .finish()
    }
}

impl Shared {
    pub(super) fn new(rank: u32, bell: Arc<dyn Bell>) -> Self {
        Self {
            rank,
            words: StateWords::new(),
            epoch: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            polls: AtomicU64::new(0),
            bell,
            parking: Mutex::new(()),
            parked: Condvar::new(),
        }
    }

    /// The completion epoch.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        // SYNC POINT 2: Acquire, pairs with the Release store in `advance_epoch`.
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether a request is complete, as [`Device::is_complete`](crate::Device::is_complete).
    #[inline]
    pub(super) fn is_complete(&self, request: Request) -> bool {
        request.is_null() || self.words.state_of(request) != Some(State::Active)
    }

    /// Notes that a request has become complete. The caller holds the lock, so a load and a store
    /// suffice as the increment.
    #[inline]
    pub(super) fn advance_epoch(&self) {
        let next = self.epoch.load(Ordering::Relaxed) + 1;
        // SYNC POINT 2: Release, pairs with the Acquire load in `epoch`.
        self.epoch.store(next, Ordering::Release);
        if self.sleepers.load(Ordering::Relaxed) + self.waiting.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Notes an event that a thread may wait for although it completes no request: an unexpected
    /// message, credit, or a hook that has to run.
    #[inline]
    pub(super) fn tell(&self) {
        // SYNC POINT 2: as in `advance_epoch`. A thread that begins to wait increments its counter
        // under the lock, after its last check.
        if self.sleepers.load(Ordering::Relaxed) + self.waiting.load(Ordering::Relaxed) != 0 {
            self.advance_epoch();
        }
    }

    /// Wakes every thread that waits for any completion. Relaxed loads suffice, here and above,
    /// because both counters change only under the engine's lock, which the caller holds.
    #[cold]
    #[inline(never)]
    pub(super) fn wake(&self) {
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.bell.ring();
        }
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.wake_parked();
        }
    }

    /// Wakes the parked threads; each checks again whether its condition holds.
    #[cold]
    pub(super) fn wake_parked(&self) {
        // Taking the mutex keeps the wake-up from falling between a waiter's check and its wait.
        drop(self.parking.lock().unwrap_or_else(PoisonError::into_inner));
        self.parked.notify_all();
    }

    /// Counts a poll. The caller holds the lock.
    #[inline]
    pub(super) fn count_poll(&self) {
        self.polls
            .store(self.polls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Counts one more thread that sleeps on the bell. The caller holds the lock.
    pub(super) fn add_sleeper(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one thread fewer that sleeps on the bell, and returns whether it was the last. The
    /// caller holds the lock.
    pub(super) fn remove_sleeper(&self) -> bool {
        self.sleepers.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Counts one more thread that is about to wait for completions that another thread makes. The
    /// caller holds the lock.
    pub(super) fn add_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one waiting thread fewer. The caller holds the lock.
    pub(super) fn remove_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until `over` holds or `limit` has passed; `over` is checked again whenever another
    /// thread's completion wakes this one. The caller does not hold the engine's lock.
    pub(super) fn wait_parked(&self, limit: Duration, over: impl Fn() -> bool) {
        let guard = self.parking.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.parked.wait_timeout_while(guard, limit, |()| !over());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
