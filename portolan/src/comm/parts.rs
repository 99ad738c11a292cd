//! Buffers whose memory stays in place while their owner moves.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use portolan_datatype::Datatype;

/// A buffer taken apart: until it is put together again, no Rust reference or owner points to its
/// memory.
pub struct Parts<T, Rest = ()> {
    /// First value.
    pub ptr: NonNull<T>,
    /// Number of initialised values.
    pub len: usize,
    /// Number of values that there is room for.
    pub capacity: usize,
    /// What else the buffer is made of; `()` for most.
    pub rest: Rest,
}

impl<T, Rest> fmt::Debug for Parts<T, Rest> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("ptr", &self.ptr)
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Memory with values that an operation can use: a borrowed slice, or a buffer that owns its
/// values.
///
/// While an operation uses the memory, the buffer is held as raw parts. References and boxes would
/// assert that no other code uses the memory, which is false meanwhile.
///
/// # Safety
/// From [`into_parts`](Self::into_parts) to [`from_parts`](Self::from_parts), the `len` values at
/// `ptr` stay in place and valid, and no other code changes them, whatever else happens. If the
/// parts are forgotten, this holds for as long as a `Self` may live.
pub unsafe trait Buffer: Sized {
    /// What the buffer holds.
    type Item: Datatype;

    /// What the buffer is made of besides its values; `()` for most.
    type Rest;

    /// A view of the values, for the program while no operation uses them.
    type View<'a>
    where
        Self: 'a;

    /// Whether the memory is borrowed, so that forgetting the parts loses nothing.
    const BORROWED: bool = false;

    /// Takes the buffer apart.
    fn into_parts(self) -> Parts<Self::Item, Self::Rest>;

    /// Puts the buffer together again.
    ///
    /// # Safety
    /// `parts` came from [`into_parts`](Self::into_parts) of this type, and is used once.
    unsafe fn from_parts(parts: Parts<Self::Item, Self::Rest>) -> Self;

    /// The values.
    ///
    /// # Safety
    /// `parts` came from [`into_parts`](Self::into_parts) of this type, and no operation uses them
    /// for the lifetime of the view.
    unsafe fn view<'a>(parts: &'a mut Parts<Self::Item, Self::Rest>) -> Self::View<'a>
    where
        Self: 'a;

    /// Called before the device keeps the buffer until an operation is over, because the program
    /// has dropped the request. The device then does nothing with the buffer but drop it, within a
    /// call that makes progress and on any thread. A buffer that keeps the device gives that up
    /// here. Most do nothing.
    fn abandon(parts: &mut Parts<Self::Item, Self::Rest>) {
        let _ = parts;
    }
}

/// A buffer that the runtime may also write, because no other code can see its memory.
///
/// # Safety
/// As [`Buffer`], and from `into_parts` to `from_parts` the memory may be written through `ptr`.
#[diagnostic::on_unimplemented(
    message = "nothing can be received into `{Self}`",
    label = "others may see this memory",
    note = "a `&mut` slice, vector or array can be received into, and a `Vec` or `Box` that is given away"
)]
pub unsafe trait BufferMut: Buffer {}

/// A buffer that can be given to the runtime for the duration of an operation, and taken back
/// afterwards: a `Vec`, `Box<[T]>`, `Arc<[T]>`, `&'static [T]`, or [`Memory`](crate::Memory).
pub trait StableBuf: Buffer + Send + 'static {}

impl<B: Buffer + Send + 'static> StableBuf for B {}

/// A [`StableBuf`] that the runtime may also write.
pub trait StableBufMut: StableBuf + BufferMut {}

impl<B: StableBuf + BufferMut> StableBufMut for B {}

/// A shared view of the values.
macro_rules! shared_view {
    ($item:ty) => {
        type View<'a>
            = &'a [$item]
        where
            Self: 'a;

        unsafe fn view<'a>(parts: &'a mut Parts<$item>) -> &'a [$item]
        where
            Self: 'a,
        {
            // SAFETY: the caller promises that the values are there and that no code writes them.
            unsafe { std::slice::from_raw_parts(parts.ptr.as_ptr(), parts.len) }
        }
    };
}

/// A view for changing the values.
macro_rules! changing_view {
    ($item:ty) => {
        type View<'a>
            = &'a mut [$item]
        where
            Self: 'a;

        unsafe fn view<'a>(parts: &'a mut Parts<$item>) -> &'a mut [$item]
        where
            Self: 'a,
        {
            // SAFETY: the caller promises that the values are there and that no other code uses
            // them; `parts` is borrowed for as long.
            unsafe { std::slice::from_raw_parts_mut(parts.ptr.as_ptr(), parts.len) }
        }
    };
}

// SAFETY: the memory is on the heap. While the vector is taken apart, nothing frees it, moves it or
// refers to it.
unsafe impl<T: Datatype> Buffer for Vec<T> {
    type Item = T;
    type Rest = ();

    changing_view!(T);

    fn into_parts(self) -> Parts<T> {
        let mut vec = ManuallyDrop::new(self);
        let ptr = non_null(vec.as_mut_ptr());
        Parts {
            ptr,
            len: vec.len(),
            capacity: vec.capacity(),
            rest: (),
        }
    }

    unsafe fn from_parts(parts: Parts<T>) -> Self {
        // SAFETY: these are the parts of a vector that was not dropped.
        unsafe { Self::from_raw_parts(parts.ptr.as_ptr(), parts.len, parts.capacity) }
    }
}

// SAFETY: a vector's memory is its own.
unsafe impl<T: Datatype> BufferMut for Vec<T> {}

// SAFETY: as for vectors.
unsafe impl<T: Datatype> Buffer for Box<[T]> {
    type Item = T;
    type Rest = ();

    changing_view!(T);

    fn into_parts(self) -> Parts<T> {
        parts_of(Self::into_raw(self))
    }

    unsafe fn from_parts(parts: Parts<T>) -> Self {
        let slice = std::ptr::slice_from_raw_parts_mut(parts.ptr.as_ptr(), parts.len);
        // SAFETY: this is the pointer that `into_raw` gave.
        unsafe { Self::from_raw(slice) }
    }
}

// SAFETY: a box's memory is its own.
unsafe impl<T: Datatype> BufferMut for Box<[T]> {}

// SAFETY: the reference count keeps the memory alive. While it is above 0 no code can write the
// memory, because values of a `Datatype` have no interior mutability and `Arc::get_mut` needs the
// only reference.
unsafe impl<T: Datatype> Buffer for Arc<[T]> {
    type Item = T;
    type Rest = ();

    shared_view!(T);

    fn into_parts(self) -> Parts<T> {
        parts_of(Self::into_raw(self).cast_mut())
    }

    unsafe fn from_parts(parts: Parts<T>) -> Self {
        let slice = std::ptr::slice_from_raw_parts(parts.ptr.as_ptr().cast_const(), parts.len);
        // SAFETY: this is the pointer that `into_raw` returned, and its count was not given up.
        unsafe { Self::from_raw(slice) }
    }
}

// SAFETY: no code can write the memory while it is borrowed, and it is borrowed for the lifetime of
// a `Self`.
unsafe impl<'s, T: Datatype> Buffer for &'s [T] {
    type Item = T;
    type Rest = ();

    const BORROWED: bool = true;

    shared_view!(T);

    fn into_parts(self) -> Parts<T> {
        parts_of(std::ptr::from_ref(self).cast_mut())
    }

    unsafe fn from_parts(parts: Parts<T>) -> &'s [T] {
        // SAFETY: these are the pointer and length of a slice that is borrowed for this lifetime.
        unsafe { std::slice::from_raw_parts(parts.ptr.as_ptr(), parts.len) }
    }
}

// SAFETY: no other code can use the memory while it is borrowed, and it is borrowed for the
// lifetime of a `Self`.
unsafe impl<'s, T: Datatype> Buffer for &'s mut [T] {
    type Item = T;
    type Rest = ();

    const BORROWED: bool = true;

    changing_view!(T);

    fn into_parts(self) -> Parts<T> {
        parts_of(std::ptr::from_mut(self))
    }

    unsafe fn from_parts(parts: Parts<T>) -> &'s mut [T] {
        // SAFETY: these are the pointer and length of a slice that is exclusively borrowed for this
        // lifetime.
        unsafe { std::slice::from_raw_parts_mut(parts.ptr.as_ptr(), parts.len) }
    }
}

// SAFETY: the memory is exclusively borrowed.
unsafe impl<T: Datatype> BufferMut for &mut [T] {}

/// The parts of a buffer without spare capacity.
fn parts_of<T>(slice: *mut [T]) -> Parts<T> {
    Parts {
        ptr: non_null(slice.cast()),
        len: slice.len(),
        capacity: slice.len(),
        rest: (),
    }
}

/// The pointer of a live buffer, which is never null.
fn non_null<T>(ptr: *mut T) -> NonNull<T> {
    // SAFETY: callers pass pointers of vectors, boxes, counted slices and references.
    unsafe { NonNull::new_unchecked(ptr) }
}

/// A buffer that has been taken apart; dropping it drops the buffer.
pub(crate) struct Held<B: Buffer>(ManuallyDrop<Parts<B::Item, B::Rest>>, PhantomData<B>);

// SAFETY: it owns a `B`, which is `Send`; the pointer inside gives no access by itself.
unsafe impl<B: Buffer + Send> Send for Held<B> {}
// SAFETY: a shared `Held` gives out no more than a pointer and lengths.
unsafe impl<B: Buffer> Sync for Held<B> {}

impl<B: Buffer> Held<B> {
    pub(crate) fn new(buf: B) -> Self {
        Self(ManuallyDrop::new(buf.into_parts()), PhantomData)
    }

    pub(crate) fn ptr(&self) -> *mut B::Item {
        self.0.ptr.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// See [`Buffer::abandon`].
    pub(crate) fn abandon(&mut self) {
        B::abandon(&mut self.0);
    }

    /// The buffer itself.
    pub(crate) fn into_buf(mut self) -> B {
        // SAFETY: the parts are taken once: `self` is forgotten.
        let parts = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        // SAFETY: the parts came from `into_parts` of this type, and are used once.
        unsafe { B::from_parts(parts) }
    }

    /// The values.
    ///
    /// # Safety
    /// No operation uses the buffer for the lifetime of the view.
    pub(crate) unsafe fn view(&mut self) -> B::View<'_> {
        // SAFETY: the parts are of this type; the rest is the caller's promise.
        unsafe { B::view(&mut self.0) }
    }
}

impl<B: Buffer> fmt::Debug for Held<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<B: Buffer> Drop for Held<B> {
    fn drop(&mut self) {
        if B::BORROWED {
            // There is nothing to give back, and not even a reference may be made to memory that
            // may be in use.
            return;
        }
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
