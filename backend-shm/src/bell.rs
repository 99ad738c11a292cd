//! The bell of a rank: how the rank sleeps, and how a rank that hands it something wakes it.
//!
//! ```text
//! sleeper                                   sender
//!   read the word (seen)                      publish the packet
//!   sleeping := ARMED                         (compiler fence)
//!   membarrier: every rank's CPU fences       read sleeping
//!   poll once more                              ARMED → RUNG: word += 1, futex wake
//!   futex wait while word = seen                RUNG: somebody else is at it
//! ```
//!
//! Without the barrier, the sender's read of `sleeping` could come before its packet is visible,
//! and the sleeper's poll before the packet: the packet would lie there while its receiver sleeps.
//! The sleeper, which has time, pays for the barrier and saves every sender a fence. Where the
//! kernel refuses `membarrier` to any rank, `fenced` is set for the whole job before it starts, and
//! both sides use a fence.
//!
//! If several senders find the sleeper armed, one of them makes the system call; the others see
//! `RUNG`. (If that sender is killed between its swap and the call, its death rings every bell.)

use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::{AtomicU32, compiler_fence, fence};

const AWAKE: u32 = 0;
const ARMED: u32 = 1;
const RUNG: u32 = 2;

/// The words of a bell.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct BellWords {
    /// The futex: it changes with every ring.
    word: AtomicU32,
    /// Whether the rank sleeps or is about to.
    sleeping: AtomicU32,
    #[cfg(loom)]
    waiters: model::Waiters,
}

impl BellWords {
    /// The current value of the word.
    #[inline]
    pub(crate) fn seen(&self) -> u32 {
        // SYNC 1: pairs with the Release in `ring`: what was published before the ring is visible.
        self.word.load(Acquire)
    }

    /// Announces sleep. The caller then polls once more and sleeps. If the result is `false`, the
    /// kernel refused the barrier and a wake-up could be missed, so the caller sleeps only briefly.
    #[must_use]
    pub(crate) fn arm(&self, fenced: bool) -> bool {
        self.sleeping.store(ARMED, Relaxed);
        if fenced || cfg!(loom) {
            // SYNC 2: pairs with the fence in `wake_if`.
            fence(SeqCst);
            true
        } else {
            barrier_everywhere()
        }
    }

    /// Takes the announcement back.
    #[inline]
    pub(crate) fn disarm(&self) {
        self.sleeping.store(AWAKE, Relaxed);
    }

    /// Whether the rank is about to sleep, asleep or waking up. A hint.
    #[inline]
    pub(crate) fn is_asleep(&self) -> bool {
        self.sleeping.load(Relaxed) != AWAKE
    }

    /// Wakes the rank if it sleeps. A sender calls this right after it has published something.
    #[inline(always)]
    pub(crate) fn wake_if_asleep(&self, fenced: bool) {
        self.wake_if(fenced, || true);
    }

    /// Like [`wake_if_asleep`](Self::wake_if_asleep), but only if `wanted` returns `true`. `wanted`
    /// runs after the barrier, so its loads come after the publication.
    #[inline(always)]
    pub(crate) fn wake_if(&self, fenced: bool, wanted: impl FnOnce() -> bool) {
        if fenced || cfg!(loom) {
            // SYNC 2: pairs with the fence in `arm`.
            fence(SeqCst);
        } else {
            // The sleeper's membarrier orders the processor; here only the compiler needs a fence.
            compiler_fence(SeqCst);
        }
        if self.sleeping.load(Relaxed) != AWAKE && wanted() {
            self.wake();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        // The swap comes before the change of the word. In the other order, a slow sender could
        // change the word before a sleeper reads it, and swap after that sleeper has armed. `RUNG`
        // would then promise a change that the sleeper has already seen, and the next sender, which
        // relies on that promise, would leave it asleep. (Loom found this.)
        // AcqRel: orders the swap before the change below, and after what was published.
        if self
            .sleeping
            .compare_exchange(ARMED, RUNG, AcqRel, Relaxed)
            .is_ok()
        {
            self.ring();
        }
    }

    /// Changes the word and wakes every thread that sleeps on it, armed or not.
    pub(crate) fn ring(&self) {
        // SYNC 1: pairs with the Acquire in `seen`.
        self.word.fetch_add(1, Release);
        self.futex_wake();
    }
}

#[cfg(not(loom))]
mod futex {
    use std::time::Duration;

    use super::BellWords;

    impl BellWords {
        /// Sleeps until the word differs from `seen`, at most for `limit`; may return early.
        pub(crate) fn sleep(&self, seen: u32, limit: Option<Duration>) {
            let time = limit.map(|limit| libc::timespec {
                tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: limit.subsec_nanos().into(),
            });
            let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: the word is valid, aligned and stays mapped during the call; `time` is null
            // or points to a timespec. Every result (woken, value differs, signal, timeout) means
            // the same: look again.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    &raw const self.word,
                    libc::FUTEX_WAIT,
                    seen,
                    time,
                )
            };
        }

        pub(super) fn futex_wake(&self) {
            // SAFETY: as above. Not FUTEX_PRIVATE: other processes sleep on the same page of the
            // file.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    &raw const self.word,
                    libc::FUTEX_WAKE,
                    i32::MAX,
                )
            };
        }
    }
}

/// Registers this process with `membarrier`; `false` if the kernel refuses.
#[cfg(not(loom))]
pub(crate) fn register_barrier() -> bool {
    // SAFETY: two integers.
    unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED,
            0,
        ) == 0
    }
}

/// Makes every running thread of every registered process execute a full barrier. Fails only if a
/// system call filter was installed after the job had started.
#[cfg(not(loom))]
fn barrier_everywhere() -> bool {
    // SAFETY: two integers.
    unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED,
            0,
        ) == 0
    }
}

#[cfg(loom)]
fn barrier_everywhere() -> bool {
    true
}

/// The futex under loom: a lock and a condition variable. A lost wake-up is then a deadlock, which
/// loom finds.
#[cfg(loom)]
mod model {
    use loom::sync::{Condvar, Mutex};

    use super::{BellWords, Relaxed};
    use crate::sync::AtomicU32;

    #[derive(Debug)]
    pub(super) struct Waiters(Mutex<()>, Condvar);

    impl BellWords {
        pub(crate) fn new() -> Self {
            Self {
                word: AtomicU32::new(0),
                sleeping: AtomicU32::new(0),
                waiters: Waiters(Mutex::new(()), Condvar::new()),
            }
        }

        pub(crate) fn sleep(&self, seen: u32) {
            let guard = self.waiters.0.lock().unwrap();
            if self.word.load(Relaxed) == seen {
                drop(self.waiters.1.wait(guard).unwrap());
            }
        }

        pub(super) fn futex_wake(&self) {
            let _guard = self.waiters.0.lock().unwrap();
            self.waiters.1.notify_all();
        }
    }
}
