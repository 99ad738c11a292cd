//! Attributes: values that libraries attach to communicators (MPI-4 section 7.7).

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use super::{Communicator, lock};
use crate::device::Device;

type CopyHook<T> = Box<dyn Fn(&T) -> Option<T> + Send + Sync>;
type DeleteHook<T> = Box<dyn Fn(&T) + Send + Sync>;

/// Names an attribute, and defines what happens to its values when they are copied or deleted
/// (`MPI_Comm_create_keyval`).
///
/// A counted handle: clones are the same key. A key lives as long as there are values under it, so
/// it may be dropped early (`MPI_Comm_free_keyval`).
#[doc(alias = "MPI_Comm_create_keyval")]
pub struct Key<T>(Arc<Hooks<T>>);

struct Hooks<T> {
    copy: Option<CopyHook<T>>,
    delete: Option<DeleteHook<T>>,
}

impl<T: Send + Sync + 'static> Key<T> {
    /// A key whose values are not copied when a communicator is duplicated
    /// (`MPI_COMM_NULL_COPY_FN`).
    #[doc(alias = "MPI_COMM_NULL_COPY_FN")]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every key is another one")]
    pub fn new() -> Self {
        Self(Arc::new(Hooks {
            copy: None,
            delete: None,
        }))
    }

    /// Sets the copy hook: a duplicate gets the value that `copy` returns, or none if it returns
    /// `None`.
    ///
    /// # Panics
    /// If the key has been cloned or used already.
    #[must_use]
    pub fn on_copy(mut self, copy: impl Fn(&T) -> Option<T> + Send + Sync + 'static) -> Self {
        self.hooks().copy = Some(Box::new(copy));
        self
    }

    /// Sets the delete hook: `delete` is called when a value is replaced or deleted, or its
    /// communicator is dropped.
    ///
    /// # Panics
    /// If the key has been cloned or used already.
    #[must_use]
    pub fn on_delete(mut self, delete: impl Fn(&T) + Send + Sync + 'static) -> Self {
        self.hooks().delete = Some(Box::new(delete));
        self
    }

    fn hooks(&mut self) -> &mut Hooks<T> {
        Arc::get_mut(&mut self.0).expect("hooks are given before the key is cloned or used")
    }

    /// Identifies the key. The address stays unique because values hold the key that they are
    /// under.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("copies", &self.0.copy.is_some())
            .field("deletes", &self.0.delete.is_some())
            .finish()
    }
}

/// A value under its key. Dropping it calls the delete hook.
struct Held<T: Send + Sync + 'static> {
    key: Key<T>,
    value: Arc<T>,
}

impl<T: Send + Sync + 'static> Drop for Held<T> {
    fn drop(&mut self) {
        if let Some(delete) = &self.key.0.delete {
            delete(&self.value);
        }
    }
}

/// A [`Held`] of any type.
pub(super) trait Attribute: Send + Sync {
    fn id(&self) -> usize;
    fn value(&self) -> Arc<dyn Any + Send + Sync>;
    fn copy(&self) -> Option<Arc<dyn Attribute>>;
}

impl<T: Send + Sync + 'static> Attribute for Held<T> {
    fn id(&self) -> usize {
        self.key.id()
    }

    fn value(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.value) as _
    }

    fn copy(&self) -> Option<Arc<dyn Attribute>> {
        let value = Arc::new(self.key.0.copy.as_ref()?(&self.value)?);
        Some(Arc::new(Self {
            key: self.key.clone(),
            value,
        }))
    }
}

/// The attributes of one communicator, in the order in which they were set.
#[derive(Clone, Default)]
pub(super) struct Attributes(Vec<Arc<dyn Attribute>>);

impl Attributes {
    pub(super) fn set<T: Send + Sync + 'static>(
        &mut self,
        key: &Key<T>,
        value: T,
    ) -> Option<Arc<dyn Attribute>> {
        let old = self.remove(key);
        self.0.push(Arc::new(Held {
            key: key.clone(),
            value: Arc::new(value),
        }));
        old
    }

    pub(super) fn get<T: Send + Sync + 'static>(&self, key: &Key<T>) -> Option<Arc<T>> {
        let held = self.0.iter().find(|held| held.id() == key.id())?;
        held.value().downcast().ok()
    }

    pub(super) fn remove<T: Send + Sync + 'static>(
        &mut self,
        key: &Key<T>,
    ) -> Option<Arc<dyn Attribute>> {
        let index = self.0.iter().position(|held| held.id() == key.id())?;
        Some(self.0.remove(index))
    }

    /// Drops all values, the one that was set last first (MPI-4 section 11.2.4 requires this order
    /// for the communicator of a process alone). If delete hooks panic, the others are called all
    /// the same, and then the first panic goes on.
    pub(super) fn clear(&mut self) {
        let mut first = None;
        while let Some(last) = self.0.pop() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(last))) {
                first.get_or_insert(panic);
            }
        }
        if let Some(panic) = first
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }

    pub(super) fn copy(&self) -> Self {
        // One by one, so that what has been copied is deleted if a later hook panics.
        let mut copies = Self::default();
        for held in &self.0 {
            copies.0.extend(held.copy());
        }
        copies
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<D: Device> Communicator<D> {
    /// Copies the attributes of `parent` to a duplicate. The hooks belong to the program, so they
    /// run without the lock.
    pub(super) fn inherit_attributes(&self, parent: &Self) {
        self.set_attributes(parent.copied_attributes());
    }

    /// The attributes that a duplicate inherits, as they are now.
    pub(super) fn copied_attributes(&self) -> Attributes {
        let held = lock(&self.0.attributes).clone();
        held.copy()
    }

    /// Sets the attributes of a communicator that has none yet.
    pub(super) fn set_attributes(&self, attributes: Attributes) {
        *lock(&self.0.attributes) = attributes;
    }

    /// Attaches a value to the communicator (`MPI_Comm_set_attr`). A previous value under this key
    /// is deleted, with the key's delete hook.
    #[doc(alias = "MPI_Comm_set_attr")]
    pub fn set_attribute<T: Send + Sync + 'static>(&self, key: &Key<T>, value: T) {
        let old = lock(&self.0.attributes).set(key, value);
        // Dropped without the lock, because it may call the delete hook.
        drop(old);
    }

    /// The value under a key (`MPI_Comm_get_attr`).
    #[doc(alias = "MPI_Comm_get_attr")]
    #[must_use]
    pub fn attribute<T: Send + Sync + 'static>(&self, key: &Key<T>) -> Option<Arc<T>> {
        lock(&self.0.attributes).get(key)
    }

    /// Deletes the value under a key (`MPI_Comm_delete_attr`); returns whether there was one.
    #[doc(alias = "MPI_Comm_delete_attr")]
    pub fn delete_attribute<T: Send + Sync + 'static>(&self, key: &Key<T>) -> bool {
        let old = lock(&self.0.attributes).remove(key);
        old.is_some()
    }

    /// Deletes all values, the one that was set last first.
    pub fn delete_attributes(&self) {
        let mut all = std::mem::take(&mut *lock(&self.0.attributes));
        all.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn copies_and_deletions_follow_the_key() {
        let deleted = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&deleted);
        let counted = Key::<u32>::new()
            .on_copy(|n| (*n < 10).then_some(n + 1))
            .on_delete(move |n| _ = seen.fetch_add(*n, Ordering::Relaxed));
        let plain = Key::<String>::new();

        let mut first = Attributes::default();
        assert!(first.set(&counted, 5).is_none());
        first.set(&plain, "left behind".into());
        let second = first.copy();
        assert_eq!(second.get(&counted).as_deref(), Some(&6));
        assert!(second.get(&plain).is_none());

        drop(second);
        assert_eq!(deleted.load(Ordering::Relaxed), 6);
        drop(first.set(&counted, 20));
        assert_eq!(deleted.load(Ordering::Relaxed), 11);
        assert!(first.copy().get(&counted).is_none());
        drop(first);
        assert_eq!(deleted.load(Ordering::Relaxed), 31);
    }

    #[test]
    fn panics_of_hooks_change_neither_the_order_nor_the_number_of_deletions() {
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let key = |panics: bool| {
            let deleted = Arc::clone(&deleted);
            Key::<u8>::new()
                .on_copy(|&n| (n < 9).then_some(n).or_else(|| panic!("no copy of {n}")))
                .on_delete(move |&n| {
                    deleted.lock().unwrap().push(n);
                    assert!(!panics, "the hook of {n}");
                })
        };
        let keys = [key(false), key(true), key(true), key(false)];
        let mut attributes = Attributes::default();
        for (key, n) in keys.iter().zip(1..) {
            attributes.set(key, n);
        }
        let panic = catch_unwind(AssertUnwindSafe(|| drop(attributes))).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert_eq!(text, "the hook of 3", "the first panic goes on");
        assert_eq!(*deleted.lock().unwrap(), [4, 3, 2, 1]);

        deleted.lock().unwrap().clear();
        let (first, second) = (key(false), key(false));
        let mut attributes = Attributes::default();
        for (key, n) in [(&first, 1), (&second, 2), (&keys[0], 9)] {
            attributes.set(key, n);
        }
        assert!(catch_unwind(AssertUnwindSafe(|| attributes.copy())).is_err());
        assert_eq!(
            *deleted.lock().unwrap(),
            [2, 1],
            "the copies that were made"
        );
    }

    #[test]
    fn keys_of_one_type_are_told_apart() {
        let (a, b) = (Key::<u8>::new(), Key::<u8>::new());
        let mut attributes = Attributes::default();
        attributes.set(&a, 1);
        assert!(attributes.get(&b).is_none());
        assert!(attributes.remove(&b).is_none());
        assert!(attributes.remove(&a).is_some());
        assert!(attributes.get(&a).is_none());
    }
}
