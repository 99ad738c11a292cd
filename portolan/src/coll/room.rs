//! Memory for values that an operation is going to receive.

use portolan_core::{Device, Result};
use portolan_datatype::Datatype;

use crate::Level;
use crate::comm::{Buffer, BufferMut, Comm, Parts};

/// Zeroed memory for `len` values. Zeros need not be valid values, which is why no code outside of
/// this folder may have one. A `Room` only goes into operations that [`Comm::run`] runs: they copy
/// the memory without interpreting it, and check the values that arrive.
pub(super) struct Room<T> {
    memory: Vec<T>,
    len: usize,
}

impl<T: Datatype> Room<T> {
    pub(super) fn new<L: Level, D: Device>(comm: &Comm<L, D>, len: usize) -> Result<Self> {
        let mut memory = comm.room_for::<T>(len)?;
        // SAFETY: there is room for `len` values.
        unsafe { memory.as_mut_ptr().write_bytes(0, len) };
        Ok(Self { memory, len })
    }

    /// The values.
    ///
    /// # Safety
    /// An operation has received all of them, and `Comm::run` has succeeded.
    pub(super) unsafe fn filled(self) -> Vec<T> {
        let mut values = self.memory;
        // SAFETY: the values have arrived, and have been checked if the type has invalid bit
        // patterns.
        unsafe { values.set_len(self.len) };
        values
    }
}

// SAFETY: a vector's memory stays where it is. That it holds no values yet is [`Room`]'s own rule.
unsafe impl<T: Datatype> Buffer for Room<T> {
    type Item = T;
    type Rest = ();
    type View<'a>
        = ()
    where
        Self: 'a;

    fn into_parts(self) -> Parts<T> {
        let parts = Buffer::into_parts(self.memory);
        Parts {
            len: self.len,
            ..parts
        }
    }

    unsafe fn from_parts(parts: Parts<T>) -> Self {
        let len = parts.len;
        // SAFETY: these are the parts of a vector without values that was not dropped.
        let memory = unsafe { <Vec<T> as Buffer>::from_parts(Parts { len: 0, ..parts }) };
        Self { memory, len }
    }

    unsafe fn view<'a>(_: &'a mut Parts<T>) -> Self::View<'a>
    where
        Self: 'a,
    {
    }
}

// SAFETY: a vector's memory is its own.
unsafe impl<T: Datatype> BufferMut for Room<T> {}
