//! Extensions: state that crates above keep per communicator and per job, found without a search.
//!
//! Attributes are for programs: any number of keys, behind a lock. An extension is for a crate that
//! looks up its own state in every call, when a call takes a hundred nanoseconds. So a lookup is a
//! fixed slot, one load and one comparison of types.

use std::any::{Any, TypeId};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use super::Communicator;
use super::among::Stray;
use super::context::Pool;
use super::inter::Attempts;
use super::later::Later;
use crate::device::Device;

/// The crate that owns an extension. There is one slot per crate that builds on communicators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Collectives.
    Coll = 0,
    /// One-sided communication.
    Rma = 1,
}

/// Number of slots.
const SLOTS: usize = 2;

/// The `close` of [`Communicator::extension_with`], without the value's type.
type Close<D> = Box<dyn FnOnce(Box<dyn Any + Send + Sync>, &D) + Send + Sync>;

/// The extensions of one communicator, or of one job.
pub(super) struct Extensions<D>([OnceLock<Held<D>>; SLOTS]);

/// A value and its type. Neither is ever replaced.
struct Held<D> {
    /// The type of the value. It is stored here because asking the value for it would take as long
    /// as the rest of a lookup.
    of: TypeId,
    value: Box<dyn Any + Send + Sync>,
    close: Option<Close<D>>,
}

impl<D> Default for Extensions<D> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl<D> Extensions<D> {
    #[inline]
    fn get<T: Send + Sync + 'static>(&self, slot: Slot, init: impl FnOnce() -> Held<D>) -> &T {
        let held = self.0[slot as usize].get_or_init(init);
        if held.of != TypeId::of::<T>() {
            another_type(slot);
        }
        // SAFETY: the value has this type. `plain` and `closed_by` made `of` from the value's type,
        // and neither ever changes.
        unsafe { &*(&raw const *held.value).cast::<T>() }
    }

    /// Drops or closes the values, starting with the last slot.
    pub(super) fn close(&mut self, device: &D) {
        for slot in self.0.iter_mut().rev() {
            match slot.take() {
                Some(Held {
                    value, close: None, ..
                }) => drop(value),
                Some(Held {
                    value,
                    close: Some(close),
                    ..
                }) => close(value, device),
                None => {}
            }
        }
    }
}

#[cold]
#[inline(never)]
fn another_type(slot: Slot) -> ! {
    panic!(
        "the extension {slot:?} was made with another type: one crate uses a slot, with one type"
    )
}

fn plain<D, T: Send + Sync + 'static>(value: T) -> Held<D> {
    Held {
        of: TypeId::of::<T>(),
        value: Box::new(value),
        close: None,
    }
}

fn closed_by<D: 'static, T: Send + Sync + 'static>(
    value: T,
    close: impl FnOnce(T, &D) + Send + Sync + 'static,
) -> Held<D> {
    Held {
        of: TypeId::of::<T>(),
        value: Box::new(value),
        close: Some(Box::new(|value, device| {
            if let Ok(value) = value.downcast() {
                close(*value, device);
            }
        })),
    }
}

/// State shared by all communicators of one rank of one job.
pub(super) struct Job<D: Device> {
    pub(super) pool: Arc<Pool>,
    pub(super) strays: Mutex<Vec<Stray>>,
    pub(super) attempts: Attempts,
    pub(super) later: Later,
    /// See [`Communicator::end_all`].
    pub(super) ended: AtomicBool,
    extensions: Extensions<D>,
    device: Arc<D>,
}

impl<D: Device> Job<D> {
    pub(super) fn new(device: Arc<D>) -> Self {
        Self {
            pool: Arc::new(Pool::new(device.attributes().max_context_id)),
            strays: Mutex::default(),
            attempts: Attempts::default(),
            later: Later::default(),
            ended: AtomicBool::new(false),
            extensions: Extensions::default(),
            device,
        }
    }
}

impl<D: Device> Drop for Job<D> {
    fn drop(&mut self) {
        self.extensions.close(&self.device);
    }
}

impl<D: Device> Communicator<D> {
    /// The state that a crate above keeps with this communicator. `init` makes it at the first
    /// call.
    ///
    /// It is not inherited, and is dropped with the communicator. It must not hold the
    /// communicator, which would then never be dropped.
    ///
    /// # Panics
    /// If the slot already holds another type. (An `init` that asks for the same slot deadlocks.)
    #[inline]
    pub fn extension<T: Send + Sync + 'static>(&self, slot: Slot, init: impl FnOnce() -> T) -> &T {
        self.0.extensions.get(slot, || plain(init()))
    }

    /// Like [`extension`](Self::extension), for a value that must give something back to the
    /// device. `close` gets the value when the communicator is dropped, before the device is told.
    /// The device may have been ended by then.
    ///
    /// # Panics
    /// As [`extension`](Self::extension).
    #[inline]
    pub fn extension_with<T: Send + Sync + 'static>(
        &self,
        slot: Slot,
        init: impl FnOnce() -> T,
        close: impl FnOnce(T, &D) + Send + Sync + 'static,
    ) -> &T
    where
        D: 'static,
    {
        self.0.extensions.get(slot, || closed_by(init(), close))
    }

    /// The state that a crate above keeps once for this rank of the job: all communicators that
    /// descend from one world share it. `init` makes it at the first call. It is dropped with the
    /// last of the communicators, so it must not hold one.
    ///
    /// # Panics
    /// As [`extension`](Self::extension).
    #[inline]
    pub fn job_extension<T: Send + Sync + 'static>(
        &self,
        slot: Slot,
        init: impl FnOnce() -> T,
    ) -> &T {
        self.0.job.extensions.get(slot, || plain(init()))
    }

    /// Like [`job_extension`](Self::job_extension), for a value that must give something back to
    /// the device, as with [`extension_with`](Self::extension_with).
    ///
    /// # Panics
    /// As [`extension`](Self::extension).
    #[inline]
    pub fn job_extension_with<T: Send + Sync + 'static>(
        &self,
        slot: Slot,
        init: impl FnOnce() -> T,
        close: impl FnOnce(T, &D) + Send + Sync + 'static,
    ) -> &T
    where
        D: 'static,
    {
        self.0.job.extensions.get(slot, || closed_by(init(), close))
    }
}
