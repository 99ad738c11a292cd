//! Reduction operators (MPI-4, 6.9), with which `reduce`, `allreduce`, `scan` and `accumulate`
//! combine values.

mod elementwise;
mod kernels;
mod loc;
mod predefined;
mod unit;
mod user;

use std::fmt;
use std::sync::Arc;

pub use elementwise::Elementwise;
pub use predefined::Predefined;
use user::UserOp;

use crate::program::{Reducer, run_kernel};
use crate::{Datatype, Layout, MsgRep, OpError};
use predefined::Action;

/// A reduction operator: combines the items of two buffers one by one, as
/// `inout = input op inout`.
///
/// ```
/// use portolan_datatype::Op;
/// let mut sum = [1.0, 2.0, 3.0];
/// Op::SUM.apply_slices(&[10.0, 20.0, 30.0], &mut sum)?;
/// assert_eq!(sum, [11.0, 22.0, 33.0]);
/// # Ok::<(), portolan_datatype::OpError>(())
/// ```
#[derive(Clone)]
pub struct Op(Repr);

#[derive(Clone)]
enum Repr {
    Predefined(Predefined),
    User(Arc<UserOp>),
}

impl Op {
    /// Sum. Integers wrap around.
    #[doc(alias = "MPI_SUM")]
    pub const SUM: Op = Op(Repr::Predefined(Predefined::Sum));
    /// Product. Integers wrap around.
    #[doc(alias = "MPI_PROD")]
    pub const PROD: Op = Op(Repr::Predefined(Predefined::Prod));
    /// The smaller value; NaN if either is NaN.
    #[doc(alias = "MPI_MIN")]
    pub const MIN: Op = Op(Repr::Predefined(Predefined::Min));
    /// The greater value; NaN if either is NaN.
    #[doc(alias = "MPI_MAX")]
    pub const MAX: Op = Op(Repr::Predefined(Predefined::Max));
    /// Logical and: 1 if neither is 0.
    #[doc(alias = "MPI_LAND")]
    pub const LAND: Op = Op(Repr::Predefined(Predefined::Land));
    /// Logical or: 1 unless both are 0.
    #[doc(alias = "MPI_LOR")]
    pub const LOR: Op = Op(Repr::Predefined(Predefined::Lor));
    /// Logical exclusive or: 1 if exactly one is 0.
    #[doc(alias = "MPI_LXOR")]
    pub const LXOR: Op = Op(Repr::Predefined(Predefined::Lxor));
    /// Bitwise and.
    #[doc(alias = "MPI_BAND")]
    pub const BAND: Op = Op(Repr::Predefined(Predefined::Band));
    /// Bitwise or.
    #[doc(alias = "MPI_BOR")]
    pub const BOR: Op = Op(Repr::Predefined(Predefined::Bor));
    /// Bitwise exclusive or.
    #[doc(alias = "MPI_BXOR")]
    pub const BXOR: Op = Op(Repr::Predefined(Predefined::Bxor));
    /// The pair with the greater value; of equal values, that with the lower index.
    #[doc(alias = "MPI_MAXLOC")]
    pub const MAXLOC: Op = Op(Repr::Predefined(Predefined::Maxloc));
    /// The pair with the smaller value; of equal values, that with the lower index.
    #[doc(alias = "MPI_MINLOC")]
    pub const MINLOC: Op = Op(Repr::Predefined(Predefined::Minloc));
    /// The input replaces the previous value. For one-sided communication.
    #[doc(alias = "MPI_REPLACE")]
    pub const REPLACE: Op = Op(Repr::Predefined(Predefined::Replace));
    /// The previous value stays. For one-sided communication.
    #[doc(alias = "MPI_NO_OP")]
    pub const NO_OP: Op = Op(Repr::Predefined(Predefined::NoOp));

    /// The predefined operator, if this is one.
    pub fn predefined(&self) -> Option<Predefined> {
        match self.0 {
            Repr::Predefined(op) => Some(op),
            Repr::User(_) => None,
        }
    }

    /// Whether the order of the operands makes no difference, so that algorithms may change it.
    #[doc(alias = "MPI_Op_commutative")]
    pub fn is_commutative(&self) -> bool {
        match &self.0 {
            Repr::Predefined(op) => op.is_commutative(),
            Repr::User(user) => user.commutative,
        }
    }

    /// The name for messages.
    pub fn name(&self) -> &'static str {
        match &self.0 {
            Repr::Predefined(op) => op.name(),
            Repr::User(user) => user.name,
        }
    }

    /// Whether the operator can be applied to items of that layout.
    ///
    /// # Errors
    /// What is wrong, and what to use instead.
    pub fn check(&self, layout: &Layout) -> Result<(), OpError> {
        match &self.0 {
            Repr::Predefined(op) => op.action(layout).map(drop),
            Repr::User(user) => user.check(layout),
        }
    }

    /// Whether the operator is only for one-sided communication: [`REPLACE`](Self::REPLACE) and
    /// [`NO_OP`](Self::NO_OP), which MPI does not allow in reductions (MPI-4 section 12.3.4).
    #[inline]
    pub fn is_one_sided(&self) -> bool {
        let one_sided = |op: &Predefined| matches!(op, Predefined::Replace | Predefined::NoOp);
        matches!(&self.0, Repr::Predefined(op) if one_sided(op))
    }

    /// Combines `count` items at `input` into those at `inout`.
    ///
    /// Predefined operators accept layouts of one primitive type in any arrangement; `replace` and
    /// `no_op` accept every layout.
    ///
    /// # Errors
    /// As [`check`](Self::check). Nothing has been changed then.
    ///
    /// # Safety
    /// - All data of `count` items at `input` is initialised and valid for reads, at `inout` for
    ///   reads and writes, and the two do not overlap. No alignment is needed.
    /// - Neither is null: absolute displacements cannot be used in reductions.
    /// - An operator made by [`Op::from_raw`] says what else it needs. The others check the data
    ///   before they treat it as a value.
    pub unsafe fn apply(
        &self,
        layout: &Layout,
        count: usize,
        input: *const u8,
        inout: *mut u8,
    ) -> Result<(), OpError> {
        let op = match &self.0 {
            Repr::Predefined(op) => op,
            Repr::User(user) => {
                user.check(layout)?;
                // The caller has promised what the function needs.
                (user.function)(layout, count, input, inout);
                return Ok(());
            }
        };
        // SAFETY: from the caller, in each case.
        unsafe {
            match op.action(layout)? {
                Action::Nothing => {}
                Action::Elements(reducer) if layout.is_contiguous() => {
                    Elementwise(reducer).apply(input, inout, layout.size() * count);
                }
                Action::Elements(reducer) => {
                    apply_in_parts(reducer, layout, count, input, inout);
                }
                Action::Pairs(pairs) => pairs.apply(layout, count, input, inout),
            }
        }
        Ok(())
    }

    /// Combines bytes `position..position + len` of a packed stream, in this machine's byte order,
    /// into those of the `count` items at `inout` to which they belong. A target does this with the
    /// parts of an accumulate. Bytes past the last item are ignored.
    ///
    /// # Errors
    /// As [`check`](Self::check); [`OpError::SplitElement`] if the range begins or ends inside an
    /// element, or, for operators that only handle whole items ([`Op::from_raw`], [`Op::new`]),
    /// inside an item. Nothing has been changed then.
    ///
    /// # Safety
    /// As [`apply`](Self::apply), with `stream` initialised and valid for reads of `len` bytes.
    pub unsafe fn apply_packed(
        &self,
        layout: &Layout,
        count: usize,
        position: usize,
        stream: *const u8,
        len: usize,
        inout: *mut u8,
    ) -> Result<(), OpError> {
        self.check(layout)?;
        let total = layout.size().saturating_mul(count);
        let len = len.min(total.saturating_sub(position));
        if len == 0 {
            return Ok(());
        }
        let whole = |element: usize| {
            if position.is_multiple_of(element) && len.is_multiple_of(element) {
                return Ok(());
            }
            Err(OpError::SplitElement {
                position,
                end: position + len,
                element,
            })
        };
        if let Repr::Predefined(op) = &self.0 {
            match op.action(layout)? {
                Action::Nothing => return Ok(()),
                Action::Elements(reducer) => {
                    whole(reducer.element)?;
                    let program = layout.commit();
                    // SAFETY: from the caller; the range was cut to the stream, and the reducer
                    // only reads it.
                    unsafe {
                        let stream = stream.cast_mut();
                        run_kernel(program, reducer, inout, count, position, stream, len);
                    }
                    return Ok(());
                }
                Action::Pairs(_) => {}
            }
        }
        whole(layout.size())?;
        let (first, items) = (position / layout.size(), len / layout.size());
        let first = (first as isize).wrapping_mul(layout.extent());
        // SAFETY: from the caller; the range is of whole items.
        unsafe { self.apply_items(layout, items, stream, inout.wrapping_offset(first)) }
    }

    /// Combines `items` packed items one after the other, each unpacked into the layout that the
    /// operator knows.
    ///
    /// # Safety
    /// As [`apply_packed`](Self::apply_packed), for `items` items from the first.
    unsafe fn apply_items(
        &self,
        layout: &Layout,
        items: usize,
        stream: *const u8,
        inout: *mut u8,
    ) -> Result<(), OpError> {
        let span = layout
            .span(1)
            .expect("bounds were checked when the layout was built");
        let mut item = vec![0u8; (span.end - span.start) as usize];
        let base = item.as_mut_ptr().wrapping_offset(-span.start);
        for index in 0..items {
            let at = (index as isize).wrapping_mul(layout.extent());
            // SAFETY: `item` holds the span of one item; `stream` has one item more.
            unsafe {
                let from = stream.add(index * layout.size());
                layout.unpack_range(base, 1, 0, from, layout.size(), MsgRep::Native);
                self.apply(layout, 1, base, inout.wrapping_offset(at))?;
            }
        }
        Ok(())
    }

    /// Combines the values of two slices.
    ///
    /// # Errors
    /// As [`check`](Self::check); [`OpError::LengthMismatch`] unless the slices are equally long;
    /// [`OpError::InvalidResult`] if a result is not a valid value of `T`. In that case the items
    /// before it have been combined; that item and the later ones have not.
    pub fn apply_slices<T: Datatype>(&self, input: &[T], inout: &mut [T]) -> Result<(), OpError> {
        if input.len() != inout.len() {
            return Err(OpError::LengthMismatch {
                input: input.len(),
                inout: inout.len(),
            });
        }
        let layout = T::layout();
        let exact = match &self.0 {
            Repr::Predefined(_) => false,
            Repr::User(user) => user.is_over::<T>()?,
        };
        if T::ANY_BITS || exact {
            let (from, to) = (input.as_ptr().cast(), inout.as_mut_ptr().cast());
            // SAFETY: slices are valid, hold valid values, and do not overlap; results are valid,
            // because any bits are, or because an operator over `T` returns values of `T`.
            return unsafe { self.apply(&layout, input.len(), from, to) };
        }
        self.check(&layout)?;
        for (index, (input, inout)) in input.iter().zip(inout).enumerate() {
            let mut result = std::mem::MaybeUninit::new(*inout);
            // SAFETY: both are values of `T`; the result is checked before it is used as one.
            unsafe {
                let to = result.as_mut_ptr();
                self.apply(&layout, 1, std::ptr::from_ref(input).cast(), to.cast())?;
                if !T::is_valid(to) {
                    return Err(OpError::InvalidResult {
                        op: self.name(),
                        index,
                    });
                }
                *inout = result.assume_init();
            }
        }
        Ok(())
    }
}

/// Combines items with gaps: the input is packed part by part into a small buffer on the stack.
///
/// # Safety
/// As [`Op::apply`].
#[inline(never)]
unsafe fn apply_in_parts(
    reducer: Reducer,
    layout: &Layout,
    count: usize,
    input: *const u8,
    inout: *mut u8,
) {
    /// A multiple of every element's size.
    const PART: usize = 4096;
    let mut part = [0u8; PART];
    let program = layout.commit();
    let mut position = 0;
    loop {
        let to = part.as_mut_ptr();
        // SAFETY: from the caller; parts are of whole elements, because their size is.
        unsafe {
            let len = layout.pack_range(input, count, position, to, PART, MsgRep::Native);
            if len == 0 {
                return;
            }
            run_kernel(program, reducer, inout, count, position, to, len);
            position += len;
        }
    }
}

impl From<Predefined> for Op {
    fn from(op: Predefined) -> Op {
        Op(Repr::Predefined(op))
    }
}

impl From<&Op> for Op {
    #[inline]
    fn from(op: &Op) -> Op {
        op.clone()
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Op({})", self.name())
    }
}
