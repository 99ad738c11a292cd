//! Attributes: values that libraries attach to communicators (MPI-4 section 7.7).

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId};

use super::{Communicator, lock};
use crate::device::Device;
use crate::error::Result;

type CopyHook<T> = Box<dyn Fn(&T) -> Result<Option<T>> + Send + Sync>;
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

impl<T: 'static> Key<T> {
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
    pub fn on_copy(self, copy: impl Fn(&T) -> Option<T> + Send + Sync + 'static) -> Self {
        self.try_on_copy(move |value| Ok(copy(value)))
    }

    /// Like [`on_copy`](Self::on_copy), for a hook that may fail. Its error is what the call on
    /// this rank returns, and this rank gets no duplicate. (What has been copied before is deleted.
    /// The other ranks learn nothing of it: if their hooks succeed, they have theirs.)
    ///
    /// # Panics
    /// If the key has been cloned or used already.
    #[must_use]
    pub fn try_on_copy(
        mut self,
        copy: impl Fn(&T) -> Result<Option<T>> + Send + Sync + 'static,
    ) -> Self {
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
struct Held<T: 'static> {
    key: Key<T>,
    value: ManuallyDrop<Arc<T>>,
    /// The only thread that may touch the value; `None` if all may.
    home: Option<ThreadId>,
}

// SAFETY: the key may go anywhere, because its hooks may. The value may, too, unless there is a
// `home`; then nothing touches it on any other thread (`is_here`), and it is not dropped there.
unsafe impl<T: 'static> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T: 'static> Sync for Held<T> {}

impl<T: 'static> Held<T> {
    fn shared(key: &Key<T>, value: T) -> Self
    where
        T: Send + Sync,
    {
        Self {
            key: key.clone(),
            value: ManuallyDrop::new(Arc::new(value)),
            home: None,
        }
    }

    fn of_thread(key: &Key<T>, value: T) -> Self {
        Self {
            key: key.clone(),
            value: ManuallyDrop::new(Arc::new(value)),
            home: Some(thread::current().id()),
        }
    }
}

impl<T: 'static> Drop for Held<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        // SAFETY: the value is not used after this, not even if the hook panics.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        if let Some(delete) = &self.key.0.delete {
            delete(&value);
        }
    }
}

/// A [`Held`] of any type.
pub(super) trait Attribute: Send + Sync {
    fn id(&self) -> usize;
    /// Whether the calling thread may touch the value.
    fn is_here(&self) -> bool;
    /// The [`Held`] itself.
    fn any(&self) -> &dyn Any;
    fn copy(&self) -> Result<Option<Arc<dyn Attribute>>>;
}

impl<T: 'static> Attribute for Held<T> {
    fn id(&self) -> usize {
        self.key.id()
    }

    fn is_here(&self) -> bool {
        self.home.is_none_or(|home| home == thread::current().id())
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn copy(&self) -> Result<Option<Arc<dyn Attribute>>> {
        let hook = self.key.0.copy.as_ref().filter(|_| self.is_here());
        let Some(value) = hook.map_or(Ok(None), |copy| copy(&self.value))? else {
            return Ok(None);
        };
        Ok(Some(Arc::new(Self {
            key: self.key.clone(),
            value: ManuallyDrop::new(Arc::new(value)),
            home: self.home,
        })))
    }
}

/// The attributes of one communicator, in the order in which they were set. A value of one thread
/// is there for that thread only.
#[derive(Clone, Default)]
pub(super) struct Attributes(Vec<Arc<dyn Attribute>>);

impl Attributes {
    /// Adds a value; returns the one that was there under this key.
    fn set<T: 'static>(&mut self, new: Held<T>) -> Option<Arc<dyn Attribute>> {
        let old = self.remove(&new.key);
        self.0.push(Arc::new(new));
        old
    }

    fn position<T: 'static>(&self, key: &Key<T>) -> Option<usize> {
        let is_it = |held: &Arc<dyn Attribute>| held.id() == key.id() && held.is_here();
        self.0.iter().position(is_it)
    }

    fn get<T: 'static>(&self, key: &Key<T>) -> Option<Arc<T>> {
        let held = &self.0[self.position(key)?];
        let held = held.any().downcast_ref::<Held<T>>()?;
        Some(Arc::clone(&held.value))
    }

    fn remove<T: 'static>(&mut self, key: &Key<T>) -> Option<Arc<dyn Attribute>> {
        Some(self.0.remove(self.position(key)?))
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

    fn copy(&self) -> Result<Self> {
        // One by one, so that what has been copied is deleted if a later hook fails or panics.
        let mut copies = Self::default();
        for held in &self.0 {
            copies.0.extend(held.copy()?);
        }
        Ok(copies)
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
    pub(super) fn inherit_attributes(&self, parent: &Self) -> Result<()> {
        self.set_attributes(parent.copied_attributes()?);
        Ok(())
    }

    /// The attributes that a duplicate inherits, as they are now. The error is that of a hook.
    pub(super) fn copied_attributes(&self) -> Result<Attributes> {
        let held = lock(&self.0.attributes).clone();
        let rank = self.0.device.attributes().world_rank;
        held.copy().map_err(|error| error.on_rank(rank))
    }

    /// Sets the attributes of a communicator that has none yet.
    pub(super) fn set_attributes(&self, attributes: Attributes) {
        *lock(&self.0.attributes) = attributes;
    }

    /// Attaches a value to the communicator (`MPI_Comm_set_attr`). A previous value under this key
    /// is deleted, with the key's delete hook.
    #[doc(alias = "MPI_Comm_set_attr")]
    pub fn set_attribute<T: Send + Sync + 'static>(&self, key: &Key<T>, value: T) {
        let old = lock(&self.0.attributes).set(Held::shared(key, value));
        // Dropped without the lock, because it may call the delete hook.
        drop(old);
    }

    /// Like [`set_attribute`](Self::set_attribute), for a value that may not leave its thread, such
    /// as a communicator at level `Single`.
    ///
    /// Only the calling thread finds, copies and deletes it. Under the same key, other threads may
    /// have values of their own. If another thread drops the last handle of the communicator, the
    /// value is leaked, without a call of the delete hook. (That cannot happen at level `Single`.)
    pub fn set_thread_attribute<T: 'static>(&self, key: &Key<T>, value: T) {
        let old = lock(&self.0.attributes).set(Held::of_thread(key, value));
        drop(old);
    }

    /// The value under a key (`MPI_Comm_get_attr`).
    #[doc(alias = "MPI_Comm_get_attr")]
    #[must_use]
    pub fn attribute<T: 'static>(&self, key: &Key<T>) -> Option<Arc<T>> {
        lock(&self.0.attributes).get(key)
    }

    /// Deletes the value under a key (`MPI_Comm_delete_attr`); returns whether there was one.
    #[doc(alias = "MPI_Comm_delete_attr")]
    pub fn delete_attribute<T: 'static>(&self, key: &Key<T>) -> bool {
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

    use crate::error::{Error, ErrorKind};

    #[test]
    fn copies_and_deletions_follow_the_key() {
        let deleted = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&deleted);
        let counted = Key::<u32>::new()
            .on_copy(|n| (*n < 10).then_some(n + 1))
            .on_delete(move |n| _ = seen.fetch_add(*n, Ordering::Relaxed));
        let plain = Key::<String>::new();

        let mut first = Attributes::default();
        assert!(first.set(Held::shared(&counted, 5)).is_none());
        first.set(Held::shared(&plain, "left behind".into()));
        let second = first.copy().unwrap();
        assert_eq!(second.get(&counted).as_deref(), Some(&6));
        assert!(second.get(&plain).is_none());

        drop(second);
        assert_eq!(deleted.load(Ordering::Relaxed), 6);
        drop(first.set(Held::shared(&counted, 20)));
        assert_eq!(deleted.load(Ordering::Relaxed), 11);
        assert!(first.copy().unwrap().get(&counted).is_none());
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
            attributes.set(Held::shared(key, n));
        }
        let panic = catch_unwind(AssertUnwindSafe(|| drop(attributes))).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert_eq!(text, "the hook of 3", "the first panic goes on");
        assert_eq!(*deleted.lock().unwrap(), [4, 3, 2, 1]);

        deleted.lock().unwrap().clear();
        let (first, second) = (key(false), key(false));
        let mut attributes = Attributes::default();
        for (key, n) in [(&first, 1), (&second, 2), (&keys[0], 9)] {
            attributes.set(Held::shared(key, n));
        }
        assert!(catch_unwind(AssertUnwindSafe(|| attributes.copy())).is_err());
        assert_eq!(
            *deleted.lock().unwrap(),
            [2, 1],
            "the copies that were made"
        );
    }

    #[test]
    fn a_hook_that_fails_deletes_what_was_copied() {
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&deleted);
        let full = || Error::new(ErrorKind::Exhausted, "on purpose");
        let key = Key::<u8>::new()
            .on_copy(|n| Some(n + 1))
            .on_delete(move |n| seen.lock().unwrap().push(*n));
        let failing = Key::<u8>::new().try_on_copy(move |_| Err(full()));
        let mut attributes = Attributes::default();
        attributes.set(Held::shared(&key, 1));
        attributes.set(Held::shared(&failing, 5));
        let error = attributes.copy().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        assert_eq!(*deleted.lock().unwrap(), [2]);
    }

    /// A value that may not leave its thread, and says which thread dropped it.
    struct Local(std::rc::Rc<Mutex<Option<ThreadId>>>);

    impl Drop for Local {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(thread::current().id());
        }
    }

    #[test]
    fn a_value_of_one_thread_is_there_for_that_thread_only() {
        let key = Key::<Local>::new().on_copy(|held| Some(Local(held.0.clone())));
        let dropped = std::rc::Rc::new(Mutex::new(None));
        let mut attributes = Attributes::default();
        attributes.set(Held::of_thread(&key, Local(dropped.clone())));
        assert_eq!(attributes.copy().unwrap().0.len(), 1);
        assert_eq!(dropped.lock().unwrap().take(), Some(thread::current().id()));
        let mut copy = attributes.copy().unwrap();

        thread::scope(|scope| {
            let (attributes, key) = (&mut attributes, &key);
            let elsewhere = move || {
                assert!(attributes.get(key).is_none());
                assert!(attributes.remove(key).is_none());
                assert!(attributes.copy().unwrap().0.is_empty());
                let own = std::rc::Rc::new(Mutex::new(None));
                assert!(attributes.set(Held::of_thread(key, Local(own))).is_none());
                assert!(attributes.get(key).is_some());
                assert!(attributes.remove(key).is_some());
                // Leaked: it is not dropped here.
                copy.clear();
            };
            scope.spawn(elsewhere).join().unwrap();
        });
        assert_eq!(*dropped.lock().unwrap(), None);
        assert!(attributes.get(&key).is_some());
        drop(attributes.remove(&key));
        assert_eq!(dropped.lock().unwrap().take(), Some(thread::current().id()));
    }

    #[test]
    fn keys_of_one_type_are_told_apart() {
        let (a, b) = (Key::<u8>::new(), Key::<u8>::new());
        let mut attributes = Attributes::default();
        attributes.set(Held::shared(&a, 1));
        assert!(attributes.get(&b).is_none());
        assert!(attributes.remove(&b).is_none());
        assert!(attributes.remove(&a).is_some());
        assert!(attributes.get(&a).is_none());
    }
}
