//! Sending from and receiving into the part of a buffer that a layout describes, such as a column
//! of a matrix.

use portolan_core::comm::{Source, Tag, Tags};
use portolan_core::level::Level;
use portolan_core::{Device, ErrorKind, Result, SendMode, Status};
use portolan_datatype::{Datatype, Layout};

use super::Comm;
use super::raw::{all_bytes, any_bits};

impl<L: Level, D: Device> Comm<L, D> {
    /// Sends `count` items of a layout (MPI-4 section 5.1, `MPI_Send` with a derived datatype). Its
    /// displacements count from the beginning of `base`.
    ///
    /// ```
    /// use portolan::Layout;
    ///
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     // Three rows of four: row by row in memory.
    ///     let mut matrix: Vec<f64> = (0..12).map(f64::from).collect();
    ///     let column = Layout::vector(3, 1, 4, &Layout::of::<f64>())?;
    ///     if comm.rank() == 0 {
    ///         comm.send_layout(&matrix[1..], 1, &column, 1, 0)
    ///     } else {
    ///         comm.recv_layout(&mut matrix[3..], 1, &column, 0, 0)?;
    ///         assert_eq!([matrix[3], matrix[7], matrix[11]], [1.0, 5.0, 9.0]);
    ///         Ok(())
    ///     }
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`InvalidBuffer`](ErrorKind::InvalidBuffer) if the items reach
    /// beyond `base`.
    #[doc(alias = "MPI_Send")]
    pub fn send_layout<T: Datatype>(
        &self,
        base: &[T],
        count: usize,
        layout: &Layout,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<()> {
        let to = (dest, tag.into());
        self.send_layout_in_mode(SendMode::Standard, base, (count, layout), to)
    }

    /// As [`send_layout`](Self::send_layout), but returns only after a receive has matched the
    /// message (MPI-4 section 3.4, `MPI_Ssend` with a derived datatype).
    ///
    /// # Errors
    /// As [`send_layout`](Self::send_layout).
    #[doc(alias = "MPI_Ssend")]
    pub fn ssend_layout<T: Datatype>(
        &self,
        base: &[T],
        count: usize,
        layout: &Layout,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<()> {
        let to = (dest, tag.into());
        self.send_layout_in_mode(SendMode::Synchronous, base, (count, layout), to)
    }

    /// As [`send_layout`](Self::send_layout), for a message whose receive is known to be posted
    /// (MPI-4 section 3.4, `MPI_Rsend` with a derived datatype; as [`rsend`](Self::rsend)).
    ///
    /// # Errors
    /// As [`send_layout`](Self::send_layout).
    #[doc(alias = "MPI_Rsend")]
    pub fn rsend_layout<T: Datatype>(
        &self,
        base: &[T],
        count: usize,
        layout: &Layout,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<()> {
        let to = (dest, tag.into());
        self.send_layout_in_mode(SendMode::Ready, base, (count, layout), to)
    }

    fn send_layout_in_mode<T: Datatype>(
        &self,
        mode: SendMode,
        base: &[T],
        (count, layout): (usize, &Layout),
        (dest, tag): (u32, Tag),
    ) -> Result<()> {
        const {
            all_bytes::<T>();
        };
        self.raise(self.check_span(size_of_val(base), count, layout))?;
        let args = self.raise(self.inner.send_args(mode, dest, tag))?;
        // SAFETY: the arguments are this communicator's; the layout stays within `base`, all bytes
        // of which are data.
        self.raise(unsafe { self.send_items(&args, base.as_ptr().cast(), count, layout) })
    }

    /// Receives into `count` items of a layout (MPI-4 section 5.1, `MPI_Recv` with a derived
    /// datatype). Its displacements count from the beginning of `base`. Memory that the layout does
    /// not cover stays as it is.
    ///
    /// # Errors
    /// As [`recv_into`](Self::recv_into), and [`InvalidBuffer`](ErrorKind::InvalidBuffer) if the
    /// items reach beyond `base`.
    #[doc(alias = "MPI_Recv")]
    pub fn recv_layout<T: Datatype>(
        &self,
        base: &mut [T],
        count: usize,
        layout: &Layout,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<Status> {
        const {
            all_bytes::<T>();
            any_bits::<T>();
        };
        self.raise(self.check_span(size_of_val(base), count, layout))?;
        let pattern = self.raise(self.inner.pattern(source.into(), tag.into()))?;
        // SAFETY: the pattern is this communicator's; the layout stays within `base`, in which any
        // bits are valid.
        self.raise(unsafe { self.recv_items(&pattern, base.as_mut_ptr().cast(), count, layout) })
    }

    /// Checks that `count` items stay within `bytes` bytes.
    pub(crate) fn check_span(&self, bytes: usize, count: usize, layout: &Layout) -> Result<()> {
        let span = layout.span(count)?;
        match usize::try_from(span.end) {
            Ok(end) if end <= bytes && span.start >= 0 => Ok(()),
            _ => Err(self.inner.error(
                ErrorKind::InvalidBuffer,
                format!(
                    "{count} item(s) of the layout cover bytes {} to {} of a buffer of {bytes} bytes",
                    span.start, span.end
                ),
                "give a longer buffer, a smaller count, or a slice that begins elsewhere",
            )),
        }
    }
}
