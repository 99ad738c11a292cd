//! One buffer of a collective operation, and the part of it that the operation uses.

use std::fmt;

use portolan_core::{Device, Error, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::{Datatype, Layout, first_invalid};

use crate::Level;
use crate::comm::raw::all_bytes;
use crate::comm::{Buffer, BufferMut, Comm, Held, Memory, Part};

/// A buffer and the part of it that an operation uses: all of its values, or the items of a layout
/// ([`strided`]).
///
/// The buffer is taken apart from the beginning, so that there is no reference to its memory whose
/// guarantees an operation in the background could violate.
pub struct Data<B: Buffer> {
    held: Held<B>,
    count: usize,
    item: Item,
    strided: bool,
    /// Where data arrives that must be checked before it counts as values.
    aside: Vec<B::Item>,
}

/// The layout of an item. Layouts of primitives are borrowed, not reference-counted: counting would
/// take a good part of a short operation, and ranks that are threads would contend for the count.
enum Item {
    ForEver(&'static Layout),
    Counted(Layout),
}

impl Item {
    fn of<T: Datatype>() -> Self {
        T::layout_for_ever().map_or_else(|| Self::Counted(T::layout()), Self::ForEver)
    }

    fn layout(&self) -> &Layout {
        match self {
            Self::ForEver(layout) => layout,
            Self::Counted(layout) => layout,
        }
    }
}

impl<B: Buffer> fmt::Debug for Data<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Data")
            .field("count", &self.count)
            .field("strided", &self.strided)
            .finish_non_exhaustive()
    }
}

/// Types that can be given to an operation as a buffer: `&[T]`, `&mut [T]`, arrays and vectors by
/// reference, buffers that own their values (`Vec<T>`, `Box<[T]>`, `Arc<[T]>`,
/// [`Memory<T>`](Memory)), and [`strided`] parts of them all. Collective operations take them, and
/// those calls for messages that take parts of buffers ([`Comm::isend_owned`], [`Comm::send_init`],
/// [`Comm::exchange`] and the like).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no buffer of an operation",
    label = "not a buffer",
    note = "slices, vectors and arrays by reference are, and `Vec`, `Box` and `Arc` slices that are given \
            away; for one value there are calls like `Comm::allreduce_one`"
)]
pub trait IntoData {
    /// The buffer.
    type Buffer: Buffer;

    /// Converts to the buffer with all of its values, or the part that it already describes.
    fn into_data(self) -> Data<Self::Buffer>;

    /// Calls `then` with what a message consists of. Where that is a whole buffer, its layout is
    /// not asked for.
    #[doc(hidden)]
    fn with_part<R>(self, then: impl FnOnce(Part<'_, Self::Buffer>) -> R) -> R
    where
        Self: Sized,
    {
        self.into_data().with_part(then)
    }
}

impl<B: Buffer> IntoData for B {
    type Buffer = B;

    fn into_data(self) -> Data<B> {
        let held = Held::new(self);
        Data {
            count: held.len(),
            item: Item::of::<B::Item>(),
            held,
            strided: false,
            aside: Vec::new(),
        }
    }

    #[inline(always)]
    fn with_part<R>(self, then: impl FnOnce(Part<'_, B>) -> R) -> R {
        then(Part {
            held: Held::new(self),
            items: None,
        })
    }
}

impl<B: Buffer> IntoData for Data<B> {
    type Buffer = B;

    fn into_data(self) -> Self {
        self
    }

    fn with_part<R>(self, then: impl FnOnce(Part<'_, B>) -> R) -> R {
        then(Part {
            held: self.held,
            items: self.strided.then(|| (self.count, self.item.layout())),
        })
    }
}

macro_rules! by_reference {
    ($([$($generics:tt)*] $from:ty => $to:ty;)*) => {$(
        impl<'a, T: Datatype, $($generics)*> IntoData for $from {
            type Buffer = $to;

            fn into_data(self) -> Data<$to> {
                let slice: $to = self;
                slice.into_data()
            }

            fn with_part<R>(self, then: impl FnOnce(Part<'_, $to>) -> R) -> R {
                let slice: $to = self;
                slice.with_part(then)
            }
        }
    )*};
}

by_reference! {
    [] &'a Vec<T> => &'a [T];
    [] &'a mut Vec<T> => &'a mut [T];
    [] &'a Box<[T]> => &'a [T];
    [] &'a mut Box<[T]> => &'a mut [T];
    [L: Level, D: Device] &'a Memory<T, L, D> => &'a [T];
    [L: Level, D: Device] &'a mut Memory<T, L, D> => &'a mut [T];
    [const N: usize] &'a [T; N] => &'a [T];
    [const N: usize] &'a mut [T; N] => &'a mut [T];
}

/// Selects `count` items of a layout whose displacements count from the beginning of `base` (MPI-4
/// section 5.1), such as a column of a matrix. Any collective operation takes it instead of a whole
/// buffer; where the operation has a block per rank, `count` is the number of items in all blocks
/// together. So do calls for messages that own their buffer ([`Comm::isend_owned`] and the like),
/// persistent ones ([`Comm::send_init`], [`Comm::recv_init`]), [`Comm::sendrecv_layout`] and
/// [`Comm::exchange`].
///
/// The type must be one without padding; that is checked when the program is compiled.
///
/// ```
/// use portolan::Layout;
/// use portolan::coll::{Bcast, strided};
///
/// portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     // Two rows of four, row by row in memory.
///     let mut matrix = [f64::from(comm.rank()); 8];
///     let column = Layout::vector(2, 1, 4, &Layout::of::<f64>())?;
///     comm.run(Bcast::new(strided(&mut matrix[1..], 1, &column), 2))?;
///     assert_eq!((matrix[1], matrix[5]), (2.0, 2.0));
///     assert_eq!(matrix[2], f64::from(comm.rank()));
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
///
/// # Errors
/// None here. The operation returns [`InvalidBuffer`](ErrorKind::InvalidBuffer) if the items reach
/// beyond `base`.
pub fn strided<B: IntoData>(base: B, count: usize, layout: &Layout) -> Data<B::Buffer> {
    const {
        all_bytes::<<B::Buffer as Buffer>::Item>();
    };
    Data {
        count,
        item: Item::Counted(layout.clone()),
        strided: true,
        ..base.into_data()
    }
}

impl<B: Buffer> Data<B> {
    /// Length of the memory in bytes.
    pub(super) fn memory(&self) -> usize {
        // The values are in memory, so their size cannot overflow.
        self.held.len() * size_of::<B::Item>()
    }

    /// The address that data is read from or written to.
    pub(super) fn ptr(&self) -> *mut u8 {
        if self.aside.capacity() == 0 {
            self.held.ptr().cast()
        } else {
            self.aside.as_ptr().cast_mut().cast()
        }
    }

    /// The first `count` items, in the form that the crates below use.
    pub(super) fn first(&self, count: usize) -> TypedBuf<'_> {
        TypedBuf {
            ptr: self.ptr(),
            count,
            layout: self.item.layout(),
            memory: MemoryKind::Host,
        }
    }

    /// All items.
    pub(super) fn all(&self) -> TypedBuf<'_> {
        self.first(self.count)
    }

    /// Checks that the items lie within the memory. Those of a plain buffer always do.
    pub(super) fn check<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<()> {
        if !self.strided {
            return Ok(());
        }
        comm.check_span(self.memory(), self.count, self.item.layout())
    }

    /// See [`Buffer::abandon`].
    pub(super) fn abandon(&mut self) {
        self.held.abandon();
    }

    pub(super) fn into_buffer(self) -> B {
        self.held.into_buf()
    }

    /// The values, for reading.
    ///
    /// # Safety
    /// No operation uses the buffer for the lifetime of the slice.
    pub(super) unsafe fn look(&self) -> &[B::Item] {
        // SAFETY: a buffer's values stay in place while it is taken apart; the caller promises that
        // no other code uses them.
        unsafe { std::slice::from_raw_parts(self.held.ptr(), self.held.len()) }
    }

    /// The values, as the buffer's view.
    ///
    /// # Safety
    /// No operation uses the buffer for the lifetime of the view.
    pub(super) unsafe fn view(&mut self) -> B::View<'_> {
        // SAFETY: from the caller.
        unsafe { self.held.view() }
    }
}

impl<B: BufferMut> Data<B> {
    /// Called before an operation that receives. If the type has invalid bit patterns, the
    /// operation gets a copy of the memory to work on.
    pub(super) fn shelter<L: Level, D: Device>(&mut self, comm: &Comm<L, D>) -> Result<()> {
        let count = self.held.len();
        if B::Item::ANY_BITS || count == 0 || size_of::<B::Item>() == 0 {
            return Ok(());
        }
        let mut aside: Vec<B::Item> = comm.room_for(count)?;
        // SAFETY: there is room for `count` values, and the buffer has as many.
        unsafe {
            aside
                .as_mut_ptr()
                .copy_from_nonoverlapping(self.held.ptr(), count);
        };
        self.aside = aside;
        Ok(())
    }

    /// Called after it. Copies the received values to the buffer, if all of them are valid.
    ///
    /// # Errors
    /// [`InvalidValue`](ErrorKind::InvalidValue); the buffer is unchanged then.
    pub(super) fn adopt<L: Level, D: Device>(&mut self, comm: &Comm<L, D>) -> Result<()> {
        let aside = std::mem::take(&mut self.aside);
        if aside.capacity() == 0 {
            return Ok(());
        }
        let count = self.held.len();
        // SAFETY: the copy has the data of `count` values, all of it initialised: it began as a
        // copy of values, and operations only write data.
        if let Some(index) = unsafe { first_invalid(aside.as_ptr(), count) } {
            return Err(not_valid::<B::Item, L, D>(comm, index));
        }
        // SAFETY: as many values, all of them valid, and the operation is complete.
        unsafe {
            self.held
                .ptr()
                .copy_from_nonoverlapping(aside.as_ptr(), count);
        };
        Ok(())
    }
}

#[cold]
fn not_valid<T, L: Level, D: Device>(comm: &Comm<L, D>, index: usize) -> Error {
    let type_name = std::any::type_name::<T>();
    let what =
        format!("what a collective operation brought for value {index} is not a valid {type_name}");
    comm.inner.error(
        ErrorKind::InvalidValue,
        what,
        "look at what the other ranks contributed",
    )
}
