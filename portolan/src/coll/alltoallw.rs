//! Alltoall with a layout for every block.

use std::collections::TryReserveError;

use portolan_coll::inter::InterOperation;
use portolan_coll::{LayoutsArg, Many, Operation};
use portolan_core::{Device, ErrorKind, Result};
use portolan_datatype::{Layout, MsgRep};

use super::blocks::{Which, not_in_place, wrong};
use super::call::{Collective, Sealed, has_sides};
use super::data::{Data, IntoData};
use super::sides::{Receives, RecvOnly, SendRecv};
use crate::Level;
use crate::comm::raw::all_bytes;
use crate::comm::{Buffer, BufferMut, Comm, InterComm};

/// One block per rank, each with a layout of its own. It is collected from triples (bytes from the
/// beginning of the buffer, number of items, layout), in the order of the ranks.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    counts: Vec<usize>,
    /// Displacements that do not fit an `isize` are clamped: no buffer reaches that far.
    displacements: Vec<isize>,
    layouts: Vec<Layout>,
}

impl FromIterator<(usize, usize, Layout)> for Shapes {
    fn from_iter<I: IntoIterator<Item = (usize, usize, Layout)>>(blocks: I) -> Self {
        let mut shapes = Self::default();
        for (displacement, count, layout) in blocks {
            let displacement = isize::try_from(displacement).unwrap_or(isize::MAX);
            shapes.displacements.push(displacement);
            shapes.counts.push(count);
            shapes.layouts.push(layout);
        }
        shapes
    }
}

/// The memory of a buffer. Programs can neither make one nor look into it.
pub struct Spot {
    ptr: *mut u8,
    bytes: usize,
}

impl Spot {
    pub(super) fn of<B: Buffer>(data: &Data<B>) -> Self {
        Self {
            ptr: data.ptr(),
            bytes: data.memory(),
        }
    }
}

impl Shapes {
    /// The blocks of a buffer, after checking that each lies within it.
    pub(super) fn of<L: Level, D: Device>(
        &self,
        which: Which<'_, L, D>,
        spot: &Spot,
    ) -> Result<Many<'_>> {
        let (blocks, of) = which.blocks;
        let (buffer, bytes) = (which.buffer, spot.bytes);
        if self.counts.len() != blocks {
            let what = format!(
                "{} block(s) of {buffer} for {blocks} {of}(s)",
                self.counts.len()
            );
            let remedy = format!("give one for every {of}");
            return Err(which.error(ErrorKind::InvalidCount, &what, &remedy));
        }
        let places = self.counts.iter().zip(&self.displacements);
        for (index, ((&count, &at), layout)) in places.zip(&self.layouts).enumerate() {
            let span = layout.span(count)?;
            let (low, high) = (span.start.checked_add(at), span.end.checked_add(at));
            let inside = low.is_some_and(|low| low >= 0)
                && high.is_some_and(|high| high.cast_unsigned() <= bytes);
            if !inside && !span.is_empty() {
                let what = format!(
                    "the block of {of} {index}, {count} item(s) from byte {at} on, covers bytes {} to \
                     {} of {buffer}, which has {bytes}",
                    at.saturating_add(span.start),
                    at.saturating_add(span.end)
                );
                let remedy = "give displacements, in bytes, and counts within the buffer";
                return Err(which.error(ErrorKind::InvalidCount, &what, remedy));
            }
        }
        Ok(Many::Layouts(LayoutsArg {
            ptr: spot.ptr,
            counts: &self.counts,
            displacements: &self.displacements,
            layouts: &self.layouts,
        }))
    }
}

impl Shapes {
    /// Checks that no byte of a buffer is in blocks of both. Every block [lies](Self::of) within
    /// the buffer.
    ///
    /// # Errors
    /// [`InvalidBuffer`](ErrorKind::InvalidBuffer) if one is, [`Exhausted`](ErrorKind::Exhausted)
    /// without memory to find out.
    pub(super) fn check_apart<L: Level, D: Device>(
        &self,
        other: &Self,
        spot: &Spot,
        comm: &Comm<L, D>,
        operation: &'static str,
    ) -> Result<()> {
        let near = |one: &Block<'_>| other.blocks().any(|two| one.may_meet(&two));
        if !self.blocks().any(|one| near(&one)) {
            return Ok(());
        }
        match self.meets(other, spot.bytes) {
            Ok(false) => Ok(()),
            Ok(true) => Err(wrong(
                comm,
                operation,
                ErrorKind::InvalidBuffer,
                "a byte of the buffer is sent and received",
                "give shapes without a byte in common, or two buffers",
            )),
            Err(_) => Err(wrong(
                comm,
                operation,
                ErrorKind::Exhausted,
                "no memory to find out whether a byte of the buffer is sent and received",
                "give two buffers",
            )),
        }
    }

    /// Whether a byte of a buffer is in blocks of both, found by a map of the buffer.
    fn meets(&self, other: &Self, bytes: usize) -> std::result::Result<bool, TryReserveError> {
        let mut map = filled(bytes, 0)?;
        for block in self.blocks() {
            let data = filled(block.bytes(), 1)?;
            let (at, len) = (map.as_mut_ptr().wrapping_offset(block.at), data.len());
            // SAFETY: the block lies within the buffer, and the map is as long as the buffer.
            unsafe {
                let native = MsgRep::Native;
                block
                    .layout
                    .unpack_range(at, block.count, 0, data.as_ptr(), len, native);
            }
        }
        for block in other.blocks() {
            let mut data = filled(block.bytes(), 0)?;
            let (at, len) = (map.as_ptr().wrapping_offset(block.at), data.len());
            // SAFETY: as above.
            unsafe {
                let native = MsgRep::Native;
                block
                    .layout
                    .pack_range(at, block.count, 0, data.as_mut_ptr(), len, native);
            }
            if data.contains(&1) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The blocks that have data.
    fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        let places = self.displacements.iter().zip(&self.counts);
        let blocks = places
            .zip(&self.layouts)
            .map(|((&at, &count), layout)| Block { at, count, layout });
        blocks.filter(|block| block.bytes() > 0)
    }
}

/// One block of a buffer.
struct Block<'a> {
    /// In bytes from the beginning of the buffer.
    at: isize,
    count: usize,
    layout: &'a Layout,
}

impl Block<'_> {
    /// Bytes of data.
    fn bytes(&self) -> usize {
        self.count.saturating_mul(self.layout.size())
    }

    /// Whether one begins before the other ends, and the other way round.
    fn may_meet(&self, other: &Self) -> bool {
        let reach = |block: &Self| {
            // It lies within a buffer, so nothing overflows.
            let span = block.layout.span(block.count).unwrap_or(0..0);
            (span.start + block.at, span.end + block.at)
        };
        let (one, two) = (reach(self), reach(other));
        one.0 < two.1 && two.0 < one.1
    }
}

fn filled(len: usize, with: u8) -> std::result::Result<Vec<u8>, TryReserveError> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len)?;
    bytes.resize(len, with);
    Ok(bytes)
}

/// Every rank sends a block to every rank, and every block has a layout of its own (MPI-4 section
/// 6.8, `MPI_Alltoallw`); this redistributes a matrix, for example. The type of the buffers must be
/// one without padding; that is checked when the program is compiled.
///
/// ```
/// use portolan::Layout;
/// use portolan::coll::{Alltoallw, Shapes};
///
/// // Two ranks with a row each of a matrix of 2 × 2 get a column each.
/// portolan::try_threads(2, |world| {
///     let comm = world.comm();
///     let me = f64::from(comm.rank());
///     let (row, mut column) = ([me, me + 10.0], [0.0; 2]);
///     let one: Shapes = (0..2).map(|rank| (rank * 8, 1, Layout::of::<f64>())).collect();
///     comm.run(Alltoallw::new(&row, one.clone(), &mut column, one))?;
///     assert_eq!(column, [0.0 + me * 10.0, 1.0 + me * 10.0]);
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias = "MPI_Alltoallw")]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct Alltoallw<B: Receives> {
    sides: B,
    send: Shapes,
    recv: Shapes,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> Alltoallw<SendRecv<S, R>> {
    /// Block `i` of `send` goes to rank `i`; block `i` of `recv` comes from there.
    pub fn new(
        send: impl IntoData<Buffer = S>,
        send_shapes: Shapes,
        recv: impl IntoData<Buffer = R>,
        recv_shapes: Shapes,
    ) -> Self {
        const {
            all_bytes::<S::Item>();
        };
        let (send, recv) = (send.into_data(), recv.into_data());
        Self {
            sides: SendRecv { send, recv },
            send: send_shapes,
            recv: recv_shapes,
        }
    }
}

impl<R: BufferMut> Alltoallw<RecvOnly<R>> {
    /// Exchanges block `i` of `data` for the block that rank `i` has for this rank
    /// (`MPI_IN_PLACE`).
    #[doc(alias = "MPI_IN_PLACE")]
    pub fn in_place(data: impl IntoData<Buffer = R>, shapes: Shapes) -> Self {
        const {
            all_bytes::<R::Item>();
        };
        let recv = data.into_data();
        Self {
            sides: RecvOnly { recv },
            send: Shapes::default(),
            recv: shapes,
        }
    }
}

impl<B: Receives> Sealed for Alltoallw<B> {}

impl<B: Receives> Collective for Alltoallw<B> {
    has_sides!(B);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let (sent, received) = self.sides.spots();
        let send = sent.map(|spot| {
            let which = Which::by_rank(comm, "alltoall", "the send buffer");
            self.send.of(which, &spot)
        });
        let which = Which::by_rank(comm, "alltoall", "the receive buffer");
        Ok(Operation::Alltoall {
            send: send.transpose()?,
            recv: self.recv.of(which, &received)?,
        })
    }
    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        let comm = inter.remote();
        self.sides.check(comm)?;
        not_in_place(comm, "alltoall", self.sides.send())?;
        match self.operation(comm)? {
            Operation::Alltoall {
                send: Some(send),
                recv,
            } => Ok(InterOperation::Alltoall { send, recv }),
            _ => unreachable!("it was made by this file, and is not in place"),
        }
    }
}
