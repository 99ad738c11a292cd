//! Buffers that stay where they are while their owner moves.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use portolan_datatype::Datatype;

/// A buffer taken apart: nothing of Rust's refers to its memory until it is put together again.
pub struct Parts<T> {
    /// First value.
    pub ptr: NonNull<T>,
    /// Number of initialised values.
    pub len: usize,
    /// Number of values that there is room for.
    pub capacity: usize,
}

impl<T> fmt::Debug for Parts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("ptr", &self.ptr)
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish()
    }
}

/// A buffer that can be given to the runtime for the length of an operation, and got back.
///
/// Taken apart into raw parts, because a `Box` that is moved asserts that nobody else uses its
/// memory.
///
/// # Safety
/// The `len` values at the `ptr` of [`into_parts`](Self::into_parts) stay in place, valid and
/// unchanged until [`from_parts`](Self::from_parts), whatever else happens. If the parts are
/// forgotten, they stay for ever.
pub unsafe trait StableBuf: Send + 'static {
    /// What the buffer holds.
    type Item: Datatype;

    /// Takes the buffer apart.
    fn into_parts(self) -> Parts<Self::Item>;

    /// Puts the buffer together again.
    ///
    /// # Safety
    /// `parts` came from [`into_parts`](Self::into_parts) of this type, and is used once.
    unsafe fn from_parts(parts: Parts<Self::Item>) -> Self;
}

/// A buffer that the runtime may also write: nobody else can see its memory.
///
/// # Safety
/// As [`StableBuf`], and from `into_parts` to `from_parts` the memory may be written through `ptr`.
pub unsafe trait StableBufMut: StableBuf {}

// SAFETY: the memory is the heap's, and taken apart nothing frees, moves or refers to it.
unsafe impl<T: Datatype> StableBuf for Vec<T> {
    type Item = T;

    fn into_parts(self) -> Parts<T> {
        let mut vec = ManuallyDrop::new(self);
        let ptr = non_null(vec.as_mut_ptr());
        Parts {
            ptr,
            len: vec.len(),
            capacity: vec.capacity(),
        }
    }

    unsafe fn from_parts(parts: Parts<T>) -> Self {
        // SAFETY: these are the parts of a vector that was not dropped.
        unsafe { Self::from_raw_parts(parts.ptr.as_ptr(), parts.len, parts.capacity) }
    }
}

// SAFETY: a vector's memory is its own.
unsafe impl<T: Datatype> StableBufMut for Vec<T> {}

// SAFETY: as for vectors.
unsafe impl<T: Datatype> StableBuf for Box<[T]> {
    type Item = T;

    fn into_parts(self) -> Parts<T> {
        let slice = Self::into_raw(self);
        Parts {
            ptr: non_null(slice.cast()),
            len: slice.len(),
            capacity: slice.len(),
        }
    }

    unsafe fn from_parts(parts: Parts<T>) -> Self {
        let slice = std::ptr::slice_from_raw_parts_mut(parts.ptr.as_ptr(), parts.len);
        // SAFETY: this is the pointer that `into_raw` gave.
        unsafe { Self::from_raw(slice) }
    }
}

// SAFETY: a box's memory is its own.
unsafe impl<T: Datatype> StableBufMut for Box<[T]> {}

// SAFETY: the count keeps the memory; while it is above 0 nobody can write it, because values of a
// `Datatype` have no interior mutability and `Arc::get_mut` wants to be alone.
unsafe impl<T: Datatype> StableBuf for Arc<[T]> {
    type Item = T;

    fn into_parts(self) -> Parts<T> {
        let slice = Self::into_raw(self);
        let ptr = non_null(slice.cast::<T>().cast_mut());
        Parts {
            ptr,
            len: slice.len(),
            capacity: slice.len(),
        }
    }

    unsafe fn from_parts(parts: Parts<T>) -> Self {
        let slice = std::ptr::slice_from_raw_parts(parts.ptr.as_ptr().cast_const(), parts.len);
        // SAFETY: this is the pointer that `into_raw` gave, and its count was not given up.
        unsafe { Self::from_raw(slice) }
    }
}

// SAFETY: the memory is there for ever and never changes.
unsafe impl<T: Datatype> StableBuf for &'static [T] {
    type Item = T;

    fn into_parts(self) -> Parts<T> {
        let ptr = non_null(self.as_ptr().cast_mut());
        Parts {
            ptr,
            len: self.len(),
            capacity: self.len(),
        }
    }

    unsafe fn from_parts(parts: Parts<T>) -> Self {
        // SAFETY: these are the pointer and length of a slice that is there for ever.
        unsafe { std::slice::from_raw_parts(parts.ptr.as_ptr(), parts.len) }
    }
}

/// The pointer of a live buffer, which is never null.
fn non_null<T>(ptr: *mut T) -> NonNull<T> {
    // SAFETY: callers pass pointers of vectors, boxes, counted slices and references.
    unsafe { NonNull::new_unchecked(ptr) }
}

/// A buffer that has been taken apart; dropping it drops the buffer.
pub(super) struct Held<B: StableBuf>(ManuallyDrop<Parts<B::Item>>);

// SAFETY: it owns a `B`, which is `Send`; the pointer inside gives no access by itself.
unsafe impl<B: StableBuf> Send for Held<B> {}
// SAFETY: a shared `Held` gives out no more than a pointer and lengths.
unsafe impl<B: StableBuf> Sync for Held<B> {}

impl<B: StableBuf> Held<B> {
    pub(super) fn new(buf: B) -> Self {
        Self(ManuallyDrop::new(buf.into_parts()))
    }

    pub(super) fn ptr(&self) -> *mut B::Item {
        self.0.ptr.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len
    }

    /// The buffer itself.
    pub(super) fn into_buf(mut self) -> B {
        // SAFETY: the parts are taken once: `self` is forgotten.
        let parts = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        // SAFETY: the parts came from `into_parts` of this type, and are used once.
        unsafe { B::from_parts(parts) }
    }
}

impl<B: StableBuf> fmt::Debug for Held<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<B: StableBuf> Drop for Held<B> {
    fn drop(&mut self) {
        // SAFETY: the parts are taken once, here, because this is the last use of `self`; they came
        // from `into_parts` of this type.
        unsafe {
            let parts = ManuallyDrop::take(&mut self.0);
            drop(B::from_parts(parts));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_as_they_were() {
        let mut vec = Vec::with_capacity(10);
        vec.extend([1u32, 2, 3]);
        let at = vec.as_ptr();
        let vec = Held::new(vec).into_buf();
        assert_eq!(
            (vec.as_ptr(), vec.capacity(), &vec[..]),
            (at, 10, &[1, 2, 3][..])
        );

        let counted: Arc<[u8]> = Arc::from([1, 2]);
        let held = Held::new(Arc::clone(&counted));
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(held);
        assert_eq!(Arc::strong_count(&counted), 1);

        assert!(Held::new(Box::<[f64]>::default()).into_buf().is_empty());
        let forever: &'static [i8] = &[-1];
        assert_eq!(Held::new(forever).into_buf(), [-1]);
    }
}
