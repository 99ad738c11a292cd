//! [`Places`]: a place for each rank of the job, in memory that takes no room until it is written.
//!
//! A send finds what it keeps about a receiver by one index, because that is the fastest. Most
//! places of a large job are never used. So unused places are all zeros
//! ([`optional`](crate::optional)), and the table is a mapping of its own: the system gives it a
//! page when something in that page is first written. (An allocator may hand out memory that was
//! used before, and then has to fill it with zeros, which takes all of its pages.)

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Zeroable;
use memmap2::MmapMut;

/// One `T` for each rank.
#[derive(Debug)]
pub(crate) struct Places<T> {
    first: NonNull<T>,
    count: usize,
    /// Never used through its own pointer; it keeps the memory.
    _memory: MmapMut,
}

// SAFETY: the memory belongs to this table alone, as that of a `Box<[T]>` does.
unsafe impl<T: Send> Send for Places<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Places<T> {}

impl<T: Zeroable> Places<T> {
    /// `count` places of zeros.
    ///
    /// # Errors
    /// If the system has no address space for them.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096) };
        let bytes = count.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let mut memory = MmapMut::map_anon(bytes.max(1))?;
        let first = NonNull::from(&mut memory[..]).cast();
        Ok(Self {
            first,
            count,
            _memory: memory,
        })
    }
}

impl<T> Deref for Places<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` mapped this many, at a page boundary, as zeros, which are a valid `T`. The
        // mapping lives as long as `self`, and nothing else refers to it.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T> DerefMut for Places<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
    }
}

impl<T> Drop for Places<T> {
    fn drop(&mut self) {
        // Dropping a place reads it. Reading a page that was never written maps the system's one
        // page of zeros, so even this takes no memory.
        // SAFETY: the elements are valid, and not used any more.
        unsafe { std::ptr::drop_in_place(&raw mut **self) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn places_are_zeros_keep_what_is_put_there_and_drop_it() {
        let mut places = Places::<(u64, Option<Box<Rc<()>>>)>::new(1000).unwrap();
        assert_eq!(places.len(), 1000);
        assert!(places.iter().all(|place| place.0 == 0 && place.1.is_none()));
        let shared = Rc::new(());
        places[999] = (7, Some(Box::new(Rc::clone(&shared))));
        assert_eq!(places[999].0, 7);
        assert_eq!(Rc::strong_count(&shared), 2);
        drop(places);
        assert_eq!(Rc::strong_count(&shared), 1);
        assert!(Places::<u64>::new(0).unwrap().is_empty());
        assert!(Places::<u64>::new(usize::MAX).is_err());
    }
}
