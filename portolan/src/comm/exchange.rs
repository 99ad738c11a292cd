//! Sending while receiving, of parts of buffers and at the edges of grids.

use portolan_core::comm::{Shift, Source, Tag, Tags};
use portolan_core::level::Level;
use portolan_core::{Device, Result, SendMode, Status};
use portolan_datatype::Datatype;

use super::part::Part;
use super::raw::any_bits;
use super::{Buffer, BufferMut, Comm};
use crate::coll::IntoData;

impl<L: Level, D: Device> Comm<L, D> {
    /// As [`sendrecv`](Self::sendrecv), of buffers or [`strided`](crate::coll::strided) parts of
    /// them (MPI-4 section 3.10, `MPI_Sendrecv` with derived datatypes).
    ///
    /// ```
    /// use portolan::Layout;
    /// use portolan::coll::strided;
    ///
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     let other = 1 - comm.rank();
    ///     // Three rows of two, row by row in memory.
    ///     let (mine, mut theirs) = ([f64::from(comm.rank()); 6], [9.0; 6]);
    ///     let column = Layout::vector(3, 1, 2, &Layout::of::<f64>())?;
    ///     let send = strided(&mine[1..], 1, &column);
    ///     let recv = strided(&mut theirs, 1, &column);
    ///     comm.sendrecv_layout(send, other, 7, recv, other, 7)?;
    ///     let other = f64::from(other);
    ///     assert_eq!(theirs, [other, 9.0, other, 9.0, other, 9.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// The type that is received must be one for which every bit pattern is valid; that is checked
    /// when the program is compiled.
    ///
    /// # Errors
    /// As [`sendrecv`](Self::sendrecv), and [`InvalidBuffer`](crate::ErrorKind::InvalidBuffer) if
    /// the items of a layout reach beyond their buffer.
    #[doc(alias = "MPI_Sendrecv")]
    pub fn sendrecv_layout<S: Buffer, R: BufferMut>(
        &self,
        send: impl IntoData<Buffer = S>,
        dest: u32,
        send_tag: impl Into<Tag>,
        recv: impl IntoData<Buffer = R>,
        source: impl Into<Source>,
        recv_tag: impl Into<Tags>,
    ) -> Result<Status> {
        const {
            any_bits::<R::Item>();
        };
        let to = (dest, send_tag.into());
        let from = (source.into(), recv_tag.into());
        let both =
            |send: Part<'_, S>| recv.with_part(|recv| self.both_parts(&send, to, &recv, from));
        self.raise(send.with_part(both))
    }

    /// As [`sendrecv_replace`](Self::sendrecv_replace), of a buffer or a
    /// [`strided`](crate::coll::strided) part of one (MPI-4 section 3.10, `MPI_Sendrecv_replace`
    /// with a derived datatype). Memory that the layout does not cover stays as it is.
    ///
    /// ```
    /// use portolan::Layout;
    /// use portolan::coll::strided;
    ///
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     let other = 1 - comm.rank();
    ///     let mut matrix = [comm.rank(); 6];
    ///     let column = Layout::vector(3, 1, 2, &Layout::of::<u32>())?;
    ///     comm.sendrecv_replace_layout(strided(&mut matrix[1..], 1, &column), other, 7, other, 7)?;
    ///     let mine = comm.rank();
    ///     assert_eq!(matrix, [mine, other, mine, other, mine, other]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`sendrecv_layout`](Self::sendrecv_layout).
    #[doc(alias = "MPI_Sendrecv_replace")]
    pub fn sendrecv_replace_layout<B: BufferMut>(
        &self,
        buf: impl IntoData<Buffer = B>,
        dest: u32,
        send_tag: impl Into<Tag>,
        source: impl Into<Source>,
        recv_tag: impl Into<Tags>,
    ) -> Result<Status> {
        const {
            any_bits::<B::Item>();
        };
        let to = (dest, send_tag.into());
        let from = (source.into(), recv_tag.into());
        self.raise(buf.with_part(|part| self.replace_part(&part, to, from)))
    }

    /// Sends a copy of a part and receives into the part.
    fn replace_part<B: BufferMut>(
        &self,
        part: &Part<'_, B>,
        (dest, send_tag): (u32, Tag),
        (source, recv_tag): (Source, Tags),
    ) -> Result<Status> {
        let args = self.inner.send_args(SendMode::Standard, dest, send_tag)?;
        let pattern = self.inner.pattern(source, recv_tag)?;
        let all = B::Item::layout();
        let (count, layout) = self.items_of(part)?.unwrap_or((part.held.len(), &all));
        let ptr = part.held.ptr().cast_const().cast();
        // SAFETY: the items lie within the buffer, whose type has no padding if it is a part of it.
        let copy = unsafe { self.packed(&args, ptr, count, layout) }?;
        let signature = layout.signature(copy.len());
        // SAFETY: the arguments and the pattern are this communicator's. The copy lives until the
        // end of the call, at which the send is complete; the part is borrowed for as long.
        unsafe {
            self.both(
                || self.start_send_packed(&args, std::ptr::from_ref(&copy[..]), signature),
                || self.recv_part(&pattern, part),
            )
        }
    }

    /// Sends to the destination of a shift and receives from its source at the same time (MPI-4
    /// section 3.10, `MPI_Sendrecv`). Where there is no destination nothing is sent, and where
    /// there is no source nothing is received (`MPI_PROC_NULL`): `recv` stays as it is, and the
    /// status has no message ([`Status::has_message`]). So ranks at the edge of a grid need no code
    /// of their own.
    ///
    /// The buffers may be [`strided`](crate::coll::strided) parts. The type that is received must
    /// be one for which every bit pattern is valid; that is checked when the program is compiled.
    ///
    /// ```
    /// use portolan::topology::Dimension;
    ///
    /// // Each rank has four points of a rod, between ghost points. Beyond its ends it is cold.
    /// portolan::try_threads(3, |world| {
    ///     let rod = world.comm().cart_create(&[Dimension::open(3)], false)?.expect("all ranks");
    ///     let right = rod.shift(0, 1)?;
    ///     let mut points = [1.0; 6];
    ///     (points[0], points[5]) = (0.0, 0.0);
    ///     for _ in 0..10 {
    ///         let (first, last) = ([points[1]], [points[4]]);
    ///         rod.exchange(right, &last, &mut points[..1], 0)?;
    ///         rod.exchange(right.reversed(), &first, &mut points[5..], 0)?;
    ///         let mut next = points;
    ///         for at in 1..5 {
    ///             next[at] = (points[at - 1] + 2.0 * points[at] + points[at + 1]) / 4.0;
    ///         }
    ///         points = next;
    ///     }
    ///     assert_eq!(points[0] == 0.0, rod.rank() == 0);
    ///     assert_eq!(points[5] == 0.0, rod.rank() == 2);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`sendrecv_layout`](Self::sendrecv_layout).
    #[doc(alias("MPI_Sendrecv", "MPI_PROC_NULL"))]
    pub fn exchange<S: Buffer, R: BufferMut<Item = S::Item>>(
        &self,
        shift: Shift,
        send: impl IntoData<Buffer = S>,
        recv: impl IntoData<Buffer = R>,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        const {
            any_bits::<R::Item>();
        };
        let tag = tag.into();
        let outcome = match (shift.destination, shift.source) {
            (Some(dest), Some(source)) => {
                let (to, from) = ((dest, tag), (source.into(), tag.into()));
                let both = |send: Part<'_, S>| {
                    recv.with_part(|recv| self.both_parts(&send, to, &recv, from))
                };
                send.with_part(both)
            }
            (Some(dest), None) => {
                let args = self.inner.send_args(SendMode::Standard, dest, tag);
                // SAFETY: the arguments are this communicator's.
                let sent = |args| send.with_part(|send| unsafe { self.send_part(&args, &send) });
                args.and_then(sent).map(|()| Status::EMPTY)
            }
            (None, Some(source)) => {
                let pattern = self.inner.pattern(source.into(), tag.into());
                let receive = |pattern| {
                    recv.with_part(|recv| {
                        // SAFETY: the pattern is this communicator's, and all bits are valid.
                        unsafe { self.recv_part(&pattern, &recv) }
                    })
                };
                pattern.and_then(receive)
            }
            (None, None) => Ok(Status::EMPTY),
        };
        self.raise(outcome)
    }

    /// Sends one part while it receives another, whose type has no invalid bit patterns.
    fn both_parts<S: Buffer, R: BufferMut>(
        &self,
        send: &Part<'_, S>,
        (dest, send_tag): (u32, Tag),
        recv: &Part<'_, R>,
        (source, recv_tag): (Source, Tags),
    ) -> Result<Status> {
        let args = self.inner.send_args(SendMode::Standard, dest, send_tag)?;
        let pattern = self.inner.pattern(source, recv_tag)?;
        // SAFETY: the arguments and the pattern are this communicator's. The parts are borrowed for
        // the length of the call, at whose end the send is complete; all bits are valid.
        unsafe {
            self.both(
                || self.start_send_part(&args, send),
                || self.recv_part(&pattern, recv),
            )
        }
    }
}
