//! Thread levels: what they cost is decided when a device is made, by type.
//!
//! [`Single`] pays a flag that catches re-entry; [`Multiple`] pays a mutex. A device of level
//! `Single` is not `Sync`, so a program cannot share it between threads by mistake.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Single {}
    impl Sealed for super::Multiple {}
}

/// How many threads may use a device (`MPI_THREAD_SINGLE`/`FUNNELED` and `MPI_THREAD_MULTIPLE`).
pub trait Level: sealed::Sealed + Sized + 'static {
    /// Whether several threads may call at once.
    const MULTIPLE: bool;
    /// The lock around a channel's state.
    type Lock<S: Send>: StateLock<S>;
}

/// One thread uses the device.
#[derive(Debug, Clone, Copy)]
pub enum Single {}

/// Any thread uses the device, at any time.
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
/// (`MPID_THREAD_DS_LOCK` and its kin, section 6.3).
pub trait StateLock<S> {
    /// Access while it lives.
    type Guard<'a>: DerefMut<Target = S>
    where
        Self: 'a;

    /// A lock around `state` (`MPID_THREAD_DS_LOCK_INIT`).
    fn new(state: S) -> Self;

    /// Waits for access (`MPID_THREAD_DS_LOCK`; dropping the guard is `_UNLOCK`, dropping the lock
    /// `_LOCK_FREE`).
    ///
    /// # Panics
    /// At level [`Single`], when the caller has access already: a handler or hook entered the
    /// device by another way than the context that it was given.
    fn lock(&self) -> Self::Guard<'_>;

    /// Access, unless somebody has it.
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
    panic!("the device was entered from one of its own handlers; use the context it hands over")
}

impl<S> Deref for CellGuard<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        // SAFETY: `busy` was false when this guard was made and is true until it is dropped, and the
        // lock is not `Sync`: this is the only guard.
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

/// The lock of level [`Multiple`]: a mutex.
///
/// Poisoning is ignored: a panic can only come from a handler of a crate above, which runs while
/// the engine's own state is consistent.
#[derive(Debug)]
pub struct MutexLock<S>(Mutex<S>);

impl<S> StateLock<S> for MutexLock<S> {
    type Guard<'a>
        = MutexGuard<'a, S>
    where
        S: 'a;

    fn new(state: S) -> Self {
        Self(Mutex::new(state))
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, S>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
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
