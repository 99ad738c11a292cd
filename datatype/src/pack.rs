//! Packing and unpacking: from memory to the packed stream of bytes that is sent, and back.
//!
//! The packed stream of a buffer is the data of its items, one after the other without gaps, each
//! in the order of its type map. Any range of it can be moved by itself, even one that cuts a
//! number in half. So a long message can go in parts of any size, with the position kept in the
//! request.

use crate::Layout;
use crate::bytes;
use crate::program::{Direction, transfer};
use crate::represent::MsgRep;

impl Layout {
    /// Copies bytes `position..position + len` of the packed stream of `count` items at `buf` to
    /// `dst`, in the representation `rep`. Returns how many bytes were written: `len`, or fewer if
    /// the stream ends before.
    ///
    /// # Safety
    /// - Every byte of data in that range of the `count` items at `buf` is initialised and valid
    ///   for reads ([`span`](Self::span) says where they can be; gaps are not read), and no other
    ///   code writes to it meanwhile.
    /// - `dst` is valid for writes of `len` bytes, and does not overlap that data.
    /// - A null `buf` means that displacements are absolute addresses (`MPI_BOTTOM`); the
    ///   provenance of the data there must have been exposed (see
    ///   [`std::ptr::with_exposed_provenance`]).
    ///
    /// Neither pointer needs any alignment.
    ///
    /// ```
    /// use portolan_datatype::{Layout, MsgRep};
    /// let matrix = [[1u16, 2, 3], [4, 5, 6]];
    /// let column = Layout::vector(2, 1, 3, &Layout::of::<u16>())?;
    /// let mut packed = [0u8; 4];
    /// // SAFETY: the column lies within the matrix, and `packed` has room for 4 bytes.
    /// let bytes = unsafe {
    ///     let second = matrix.as_ptr().cast::<u8>().add(2);
    ///     column.pack_range(second, 1, 0, packed.as_mut_ptr(), 4, MsgRep::External32)
    /// };
    /// assert_eq!((bytes, packed), (4, [0, 2, 0, 5]));
    /// # Ok::<(), portolan_datatype::LayoutError>(())
    /// ```
    #[inline]
    pub unsafe fn pack_range(
        &self,
        buf: *const u8,
        count: usize,
        position: usize,
        dst: *mut u8,
        len: usize,
        rep: MsgRep,
    ) -> usize {
        let program = self.commit();
        let swap = rep.pack_action().reverses();
        if program.is_contiguous() && !swap && !buf.is_null() {
            let len = len.min(self.size().saturating_mul(count).saturating_sub(position));
            // SAFETY: contiguous items are their own packed stream; the rest is from the caller.
            unsafe { bytes::copy(buf.wrapping_add(position), dst, len) };
            return len;
        }
        let program = if swap { self.swap_program() } else { program };
        let buf = buf.cast_mut();
        // SAFETY: from the caller; packing only reads through `buf`.
        unsafe {
            transfer(
                program,
                Direction::Pack,
                swap,
                buf,
                count,
                position,
                dst,
                len,
            )
        }
    }

    /// Copies `len` bytes at `src` to where bytes `position..position + len` of the packed stream
    /// of `count` items at `buf` belong. They are in the representation `rep`, relative to the
    /// receiver (see [`MsgRep::seen_from`]). Returns how many bytes were used: `len`, or fewer if
    /// the stream ends before. Gaps between the data are left alone.
    ///
    /// # Safety
    /// - Every byte of data in that range of the `count` items at `buf` is valid for writes, and no
    ///   other code uses it meanwhile. If it is to be read as a Rust type afterwards, the values
    ///   must be valid for that type; [`Datatype::is_valid`](crate::Datatype::is_valid) can tell.
    /// - `src` is valid for reads of `len` bytes, initialised, and does not overlap that data.
    /// - A null `buf` is as in [`pack_range`](Self::pack_range).
    ///
    /// Neither pointer needs any alignment.
    #[inline]
    pub unsafe fn unpack_range(
        &self,
        buf: *mut u8,
        count: usize,
        position: usize,
        src: *const u8,
        len: usize,
        rep: MsgRep,
    ) -> usize {
        let program = self.commit();
        let swap = rep.unpack_action().reverses();
        if program.is_contiguous() && !swap && !buf.is_null() {
            let len = len.min(self.size().saturating_mul(count).saturating_sub(position));
            // SAFETY: contiguous items are their own packed stream; the rest is from the caller.
            unsafe { bytes::copy(src, buf.wrapping_add(position), len) };
            return len;
        }
        let program = if swap { self.swap_program() } else { program };
        let src = src.cast_mut();
        // SAFETY: from the caller; unpacking only reads through `src`.
        unsafe {
            transfer(
                program,
                Direction::Unpack,
                swap,
                buf,
                count,
                position,
                src,
                len,
            )
        }
    }
}
