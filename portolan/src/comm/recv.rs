//! Blocking receives.
//!
//! Budget of [`Comm::recv_into`] for types without invalid bit patterns: no allocation, no system
//! call, no lock and no locked instruction above the device.

use portolan_core::comm::{Source, Tags};
use portolan_core::level::Level;
use portolan_core::matching::Pattern;
use portolan_core::{Device, Error, ErrorKind, Result, Status};
use portolan_datatype::{Datatype, first_invalid};

use super::Comm;

impl<L: Level, D: Device> Comm<L, D> {
    /// Receives into `buf` (MPI-4 section 3.2.4, `MPI_Recv`). The message may be shorter than the
    /// buffer: [`Status::count`] says how many values arrived.
    ///
    /// Values of types with invalid bit patterns (`bool`, `char`, enums) are received into a
    /// temporary buffer and checked before they are copied to `buf`.
    ///
    /// # Errors
    /// [`Truncated`](ErrorKind::Truncated) if the message is longer than `buf`: the error holds the
    /// status, and the rest of the message is lost. [`TypeMismatch`](ErrorKind::TypeMismatch),
    /// [`InvalidValue`](ErrorKind::InvalidValue), [`InvalidRank`](ErrorKind::InvalidRank),
    /// [`InvalidTag`](ErrorKind::InvalidTag), [`PeerFailed`](ErrorKind::PeerFailed);
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no memory for the temporary buffer or for
    /// one more request; [`Finalized`](ErrorKind::Finalized) after the end of this rank.
    #[doc(alias = "MPI_Recv")]
    #[inline]
    pub fn recv_into<T: Datatype>(
        &self,
        buf: &mut [T],
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<Status> {
        let pattern = self.inner.pattern(source.into(), tag.into());
        self.raise(pattern.and_then(|pattern| self.recv_checked(&pattern, buf)))
    }

    /// Receives a message of any length into a new vector (MPI-4 section 3.8.2, `MPI_Mprobe` and
    /// `MPI_Mrecv`).
    ///
    /// # Errors
    /// As [`recv_into`](Self::recv_into) except for truncation, and
    /// [`InvalidCount`](ErrorKind::InvalidCount) if the message is not a whole number of values,
    /// [`Exhausted`](ErrorKind::Exhausted) if there is not enough memory for it. In both cases the
    /// message is lost.
    #[doc(alias("MPI_Mprobe", "MPI_Mrecv"))]
    pub fn recv<T: Datatype>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<(Vec<T>, Status)> {
        self.match_recv(source, tag)?.recv()
    }

    /// Receives one value.
    ///
    /// # Errors
    /// As [`recv_into`](Self::recv_into), and [`InvalidCount`](ErrorKind::InvalidCount) if the
    /// message was empty.
    pub fn recv_one<T: Datatype>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<(T, Status)> {
        let pattern = self.raise(self.inner.pattern(source.into(), tag.into()))?;
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        // SAFETY: the pattern is this communicator's, and there is room for one value.
        let status = unsafe { self.recv_values(&pattern, value.as_mut_ptr(), 1) };
        let status = self.raise(status)?;
        // A value of a type without data packs to no bytes, so an empty message is one value.
        let is_one = match T::PACKED_SIZE {
            0 => status.bytes == 0,
            _ => status.count::<T>() == Some(1),
        };
        if !is_one {
            return self.raise(Err(self.not_whole::<T>(&status, "exactly one value")));
        }
        // SAFETY: the data of one value has arrived.
        unsafe {
            self.raise(self.check_values(value.as_ptr(), 1, &status))?;
            Ok((value.assume_init(), status))
        }
    }

    /// Receives at most `buf.len()` values that are valid for `T`.
    #[inline]
    pub(super) fn recv_checked<T: Datatype>(
        &self,
        pattern: &Pattern,
        buf: &mut [T],
    ) -> Result<Status> {
        if T::ANY_BITS {
            // SAFETY: the pattern is this communicator's, and whatever arrives is valid in `buf`.
            unsafe { self.recv_values(pattern, buf.as_mut_ptr(), buf.len()) }
        } else {
            self.recv_aside(pattern, buf)
        }
    }

    #[inline(never)]
    fn recv_aside<T: Datatype>(&self, pattern: &Pattern, buf: &mut [T]) -> Result<Status> {
        let mut aside = self.room_for::<T>(buf.len())?;
        // SAFETY: the pattern is this communicator's, and there is room for `buf.len()` values.
        let status = unsafe { self.recv_values(pattern, aside.as_mut_ptr(), buf.len()) }?;
        let whole = whole::<T>(&status).min(buf.len());
        // SAFETY: the data of `whole` values is there; they are copied if they are valid.
        unsafe {
            self.check_values(aside.as_ptr(), whole, &status)?;
            buf.as_mut_ptr()
                .copy_from_nonoverlapping(aside.as_ptr(), whole);
        }
        Ok(status)
    }

    /// An empty vector with room for `count` values.
    pub(crate) fn room_for<T>(&self, count: usize) -> Result<Vec<T>> {
        let mut values = Vec::new();
        match values.try_reserve_exact(count) {
            Ok(()) => Ok(values),
            Err(_) => Err(self.inner.error(
                ErrorKind::Exhausted,
                format!(
                    "no memory to receive {count} values of {} ({} bytes each)",
                    std::any::type_name::<T>(),
                    size_of::<T>()
                ),
                "send the message in parts",
            )),
        }
    }

    /// Whether `count` values that have arrived are valid.
    ///
    /// # Safety
    /// The data of the values is initialised.
    #[inline]
    pub(super) unsafe fn check_values<T: Datatype>(
        &self,
        values: *const T,
        count: usize,
        status: &Status,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        match unsafe { first_invalid(values, count) } {
            None => Ok(()),
            Some(index) => Err(self.not_valid::<T>(index, status)),
        }
    }

    #[cold]
    fn not_valid<T>(&self, index: usize, status: &Status) -> Error {
        let (source, tag) = (status.source, status.tag);
        let type_name = std::any::type_name::<T>();
        let what = format!(
            "value {index} of the message from rank {source}, tag {tag}, is not a valid {type_name}"
        );
        self.inner
            .error(
                ErrorKind::InvalidValue,
                what,
                "look at what the sender's buffer holds",
            )
            .with_status(*status)
    }

    #[cold]
    pub(super) fn not_whole<T: Datatype>(&self, status: &Status, wanted: &str) -> Error {
        let (source, tag, bytes) = (status.source, status.tag, status.bytes);
        let what = format!(
            "the message from rank {source}, tag {tag}, has {bytes} bytes: not {wanted} of {}, {} \
             bytes each",
            std::any::type_name::<T>(),
            T::layout().size()
        );
        self.inner
            .error(
                ErrorKind::InvalidCount,
                what,
                "receive the type that was sent",
            )
            .with_status(*status)
    }
}

/// How many whole values have arrived.
pub(super) fn whole<T: Datatype>(status: &Status) -> usize {
    // The data that arrived is in memory, so its size is a `usize`.
    (status.bytes as usize)
        .checked_div(T::layout().size())
        .unwrap_or(0)
}
