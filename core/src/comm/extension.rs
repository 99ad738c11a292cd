//! Extensions: what crates above keep per communicator and per job, found without a search.
//!
//! Attributes are for programs: any number of keys, behind a lock. An extension is for a crate that
//! looks its own state up in every call, a hundred nanoseconds long: a fixed slot, one load, one
//! comparison of types.

use std::any::{Any, TypeId};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use super::Communicator;
use super::among::Stray;
use super::context::Pool;
use super::inter::Attempts;
use super::later::Later;
use crate::device::Device;

/// Whose extension it is. There is one slot per crate that stands on communicators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Collectives.
    Coll = 0,
    /// One-sided communication.
    Rma = 1,
}

/// Number of slots.
const SLOTS: usize = 2;

/// What [`Communicator::extension_with`] calls in the end, without the type.
type Close<D> = Box<dyn FnOnce(Box<dyn Any + Send + Sync>, &D) + Send + Sync>;

/// The extensions of one communicator, or of one job.
pub(super) struct Extensions<D>([OnceLock<Held<D>>; SLOTS]);

/// A value, of which neither part is ever replaced.
struct Held<D> {
    /// Of what type the value is: beside it, because to ask it takes as long as the rest of a look.
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
        // SAFETY: the value is of this type: `of` was made of its type, in `plain` or `closed_by`,
        // and both stay as they are.
        unsafe { &*(&raw const *held.value).cast::<T>() }
    }

    /// Gives the values up, the last slot first.
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

/// What the communicators of one rank of one job share.
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
    /// What a crate above keeps with this communicator; made by `init` when it is first asked for.
    ///
    /// It is not inherited, and is dropped with the communicator. It must not hold the
    /// communicator, which would never go then.
    ///
    /// # Panics
    /// If the slot was made with another type. (An `init` that asks for the same slot waits for
    /// itself.)
    #[inline]
    pub fn extension<T: Send + Sync + 'static>(&self, slot: Slot, init: impl FnOnce() -> T) -> &T {
        self.0.extensions.get(slot, || plain(init()))
    }

    /// The same for a value that has something to give back to the device: `close` gets it when the
    /// communicator goes, before the device is told so. The device may have been ended by then.
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

    /// What a crate above keeps once for this rank of the job: all communicators that come from one
    /// world have the same. Made by `init` when it is first asked for, dropped with the last of
    /// the communicators; it must not hold one.
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

    /// The same for a value that has something to give back to the device, as
    /// [`extension_with`](Self::extension_with).
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
