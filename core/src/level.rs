//! Thread levels, chosen by type when a device is made, so that each pays only its own cost.
//!
//! [`Single`] pays for a flag that catches re-entry. [`Multiple`] pays for a mutex, which catches
//! re-entry too. A device of level `Single` is not `Sync`, so a program cannot share it between
//! threads by mistake.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Single {}
    impl Sealed for super::Multiple {}
}

/// How many threads may use a device (`MPI_THREAD_SINGLE`/`FUNNELED` and `MPI_THREAD_MULTIPLE`).
pub trait Level: sealed::Sealed + std::fmt::Debug + Sized + 'static {
    /// Whether several threads may call the device at once.
    const MULTIPLE: bool;
    /// The lock around a channel's state.
    type Lock<S: Send>: StateLock<S>;
}

/// Only one thread uses the device.
#[derive(Debug, Clone, Copy)]
pub enum Single {}

/// Any thread may use the device, at any time.
#[derive(Debug, Clone, Copy)]
pub enum Multiple {}

impl Level for Single {
    const MULTIPLE: bool = false;
    type Lock<S: Send> = CellLock<S>;
}

impl Level for Multiple {
    const MULTIPLE: bool = true;
    type Lock<S: Send> = MutexLock<S>;
}

/// Exclusive access to a channel's state: the device's side of the paper's thread locks
/// (`MPID_THREAD_DS_LOCK` and related routines, section 6.3).
pub trait StateLock<S> {
    /// Grants access for as long as it lives.
    type Guard<'a>: DerefMut<Target = S>
    where
        Self: 'a;

    /// A lock around `state` (`MPID_THREAD_DS_LOCK_INIT`).
    fn new(state: S) -> Self;

    /// Waits for access (`MPID_THREAD_DS_LOCK`; dropping the guard is `_UNLOCK`, dropping the lock
    /// `_LOCK_FREE`).
    ///
    /// # Panics
    /// If the calling thread already has access: a handler, a hook or an operator re-entered the
    /// device instead of using the context that it was given.
    fn lock(&self) -> Self::Guard<'_>;

    /// Takes access, unless it is held already.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}

/// The lock of level [`Single`]: a flag. Not `Sync`.
#[derive(Debug)]
pub struct CellLock<S> {
    busy: Cell<bool>,
    state: UnsafeCell<S>,
}

/// Access to a [`CellLock`]'s state.
#[derive(Debug)]
pub struct CellGuard<'a, S>(&'a CellLock<S>);

impl<S> StateLock<S> for CellLock<S> {
    type Guard<'a>
        = CellGuard<'a, S>
    where
        S: 'a;

    fn new(state: S) -> Self {
        Self {
            busy: Cell::new(false),
            state: UnsafeCell::new(state),
        }
    }

    #[inline]
    fn lock(&self) -> CellGuard<'_, S> {
        match self.try_lock() {
            Some(guard) => guard,
            None => reentered(),
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<CellGuard<'_, S>> {
        if self.busy.replace(true) {
            return None;
        }
        Some(CellGuard(self))
    }
}

#[cold]
#[inline(never)]
fn reentered() -> ! {
    panic!(
        "the device was entered from one of its own handlers, hooks or operators, which run within a call; \
         handlers and hooks use the context that they are handed, and an operator (`Op::new`) makes no \
         calls at all: it combines its two values, and drops nothing that makes any"
    )
}

impl<S> Deref for CellGuard<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        // SAFETY: `busy` was false when this guard was made and is true until it is dropped, and
        // the lock is not `Sync`: this is the only guard.
        unsafe { &*self.0.state.get() }
    }
}

impl<S> DerefMut for CellGuard<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: as in `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.0.state.get() }
    }
}

impl<S> Drop for CellGuard<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.0.busy.set(false);
    }
}

/// The lock of level [`Multiple`]: a mutex, and the thread that holds it.
///
/// Poisoning is ignored: a panic can only come from a handler of a crate above, which runs while
/// the engine's own state is consistent.
#[derive(Debug)]
pub struct MutexLock<S> {
    state: Mutex<S>,
    /// The thread that has access, as numbered by [`this_thread`]; 0 if there is none. Relaxed
    /// throughout: a thread only looks for its own number, which no other thread stores, and sees
    /// its own stores in order.
    holder: AtomicUsize,
}

/// Access to a [`MutexLock`]'s state.
#[derive(Debug)]
pub struct HeldGuard<'a, S> {
    state: MutexGuard<'a, S>,
    holder: &'a AtomicUsize,
}

impl<S> MutexLock<S> {
    #[inline]
    fn held<'a>(&'a self, state: MutexGuard<'a, S>) -> HeldGuard<'a, S> {
        let holder = &self.holder;
        holder.store(this_thread(), Ordering::Relaxed);
        HeldGuard { state, holder }
    }

    /// Waits for access. Panics if this thread itself holds it, because it would wait for ever.
    #[cold]
    #[inline(never)]
    fn wait(&self) -> HeldGuard<'_, S> {
        if self.holder.load(Ordering::Relaxed) == this_thread() {
            reentered();
        }
        self.held(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A number that no other live thread has. Reading it costs a load.
#[inline]
fn this_thread() -> usize {
    // SAFETY: it has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

impl<S> StateLock<S> for MutexLock<S> {
    type Guard<'a>
        = HeldGuard<'a, S>
    where
        S: 'a;

    fn new(state: S) -> Self {
        Self {
            state: Mutex::new(state),
            holder: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn lock(&self) -> HeldGuard<'_, S> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<HeldGuard<'_, S>> {
        match self.state.try_lock() {
            Ok(guard) => Some(self.held(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.held(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<S> Deref for HeldGuard<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> DerefMut for HeldGuard<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

impl<S> Drop for HeldGuard<'_, S> {
    #[inline]
    fn drop(&mut self) {
        // The mutex is released after this, when the field is dropped.
        self.holder.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn re_entry_is_noticed() {
        let lock = CellLock::new(1);
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        *lock.lock() += 1;
        assert_eq!(*lock.lock(), 2);
    }

    #[test]
    #[should_panic(expected = "entered from one of its own handlers")]
    fn re_entry_panics() {
        let lock = CellLock::new(());
        let _guard = lock.lock();
        let _again = lock.lock();
    }

    #[test]
    #[should_panic(expected = "entered from one of its own handlers")]
    fn re_entry_panics_where_a_mutex_would_wait_for_ever() {
        let lock = MutexLock::new(());
        let _guard = lock.lock();
        let _again = lock.lock();
    }

    #[test]
    fn another_thread_waits_for_a_mutex() {
        let lock = MutexLock::new(0);
        std::thread::scope(|scope| {
            let mut guard = lock.lock();
            let other = scope.spawn(|| *lock.lock());
            assert!(lock.try_lock().is_none());
            *guard = 7;
            drop(guard);
            assert_eq!(other.join().expect("it waits and reads"), 7);
        });
        assert_eq!(*lock.lock(), 7);
    }

    #[test]
    fn a_poisoned_mutex_still_opens() {
        let lock = std::sync::Arc::new(MutexLock::new(5));
        let other = std::sync::Arc::clone(&lock);
        let died = std::thread::spawn(move || {
            let _guard = other.lock();
            panic!("on purpose");
        })
        .join();
        assert!(died.is_err());
        assert_eq!(*lock.lock(), 5);
    }
}
