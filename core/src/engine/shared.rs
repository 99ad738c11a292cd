//! What every thread may read of an engine without its lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::request::{Request, State, StateWords};
use crate::transport::Bell;

/// The lock-free side of an engine: request states, the completion epoch, and what sleepers need.
///
/// SYNC POINT 2: the Release store in [`advance_epoch`](Self::advance_epoch) pairs with the Acquire
/// load in [`epoch`](Self::epoch): who sees the new epoch sees the states that made it.
///
/// Everything is written under the engine's lock; the atomics are for readers without it.
pub(super) struct Shared {
    pub(super) rank: u32,
    pub(super) words: StateWords,
    epoch: AtomicU64,
    /// Threads that sleep, or are about to, on the bell.
    sleepers: AtomicU32,
    /// Threads that wait on `parked` for any completion, because another thread is polling.
    waiting: AtomicU32,
    /// Polls so far, so that a waiting thread can see that another thread makes progress.
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

    /// A request became complete. Under the lock, so a load and a store do for an increment.
    #[inline]
    pub(super) fn advance_epoch(&self) {
        let next = self.epoch.load(Ordering::Relaxed) + 1;
        // SYNC POINT 2: Release, pairs with the Acquire load in `epoch`.
        self.epoch.store(next, Ordering::Release);
        if self.sleepers.load(Ordering::Relaxed) + self.waiting.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Something has come that a thread may wait for without a request that tells it: a message
    /// that nobody has asked for, credit, a hook that is to run.
    #[inline]
    pub(super) fn tell(&self) {
        // SYNC POINT 2: as in `advance_epoch`. Who begins to wait counts itself under the lock,
        // behind its last look.
        if self.sleepers.load(Ordering::Relaxed) + self.waiting.load(Ordering::Relaxed) != 0 {
            self.advance_epoch();
        }
    }

    /// Wakes whoever waits for any completion. Relaxed loads do, here and above, because both
    /// counters change under the engine's lock, which the caller holds.
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

    /// Wakes the parked threads, which look whether what they wait for has come.
    #[cold]
    pub(super) fn wake_parked(&self) {
        // Taking the mutex keeps the wake-up from falling between a waiter's check and its wait.
        drop(self.parking.lock().unwrap_or_else(PoisonError::into_inner));
        self.parked.notify_all();
    }

    /// A poll has been made, under the lock.
    #[inline]
    pub(super) fn count_poll(&self) {
        self.polls
            .store(self.polls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// One more thread sleeps on the bell. Under the lock.
    pub(super) fn add_sleeper(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    /// One thread fewer sleeps on the bell. Under the lock; returns whether it was the last.
    pub(super) fn remove_sleeper(&self) -> bool {
        self.sleepers.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// One more thread is about to wait for completions that another thread makes. Under the lock.
    pub(super) fn add_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// One thread fewer waits. Under the lock.
    pub(super) fn remove_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until `over` holds, another thread's completion wakes this one and `over` is tried
    /// again, or `limit` is up. Without the engine's lock.
    pub(super) fn wait_parked(&self, limit: Duration, over: impl Fn() -> bool) {
        let guard = self.parking.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.parked.wait_timeout_while(guard, limit, |()| !over());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
