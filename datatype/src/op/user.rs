//! Operators of the user's own (`MPI_Op_create`).

use std::any::{TypeId, type_name};
use std::sync::Arc;

use super::{Op, Repr};
use crate::layout::Contents;
use crate::{Datatype, Layout, OpError};

/// Combines that many items of a layout: `(layout, count, input, inout)`.
type Function = dyn Fn(&Layout, usize, *const u8, *mut u8) + Send + Sync;

pub(super) struct UserOp {
    pub(super) commutative: bool,
    pub(super) name: &'static str,
    /// The only type it may be applied to; `None` if the function checks that itself.
    item: Option<Item>,
    pub(super) function: Box<Function>,
}

struct Item {
    layout: Layout,
    name: &'static str,
    id: TypeId,
    any_bits: bool,
}

impl UserOp {
    /// Whether the operator was made for values of type `T`. Another type of the same layout is
    /// accepted only if every bit pattern is a value of the operator's type.
    pub(super) fn is_over<T: Datatype>(&self) -> Result<bool, OpError> {
        match &self.item {
            Some(item) if item.id == TypeId::of::<T>() => Ok(true),
            Some(item) if !item.any_bits => Err(OpError::WrongType {
                expected: item.name,
            }),
            _ => Ok(false),
        }
    }

    pub(super) fn check(&self, layout: &Layout) -> Result<(), OpError> {
        match &self.item {
            Some(item) if items_in(layout, &item.layout).is_none() => Err(OpError::WrongType {
                expected: item.name,
            }),
            _ => Ok(()),
        }
    }

    /// The only layout that the operator may be applied to, and how many such items one item of
    /// `layout` is. If the operator has no such layout, or `layout` is not made of it, `layout`
    /// itself.
    #[inline]
    pub(super) fn unit<'a>(&'a self, layout: &'a Layout) -> (&'a Layout, usize) {
        let unit = self.item.as_ref().map(|item| &item.layout);
        let items = unit.and_then(|unit| Some((unit, items_in(layout, unit)?)));
        items.unwrap_or((layout, 1))
    }
}

/// How many items of layout `item`, side by side, a layout is made of.
fn items_in(layout: &Layout, item: &Layout) -> Option<usize> {
    if layout == item {
        return Some(1);
    }
    match layout.contents() {
        Contents::Dup { old } => items_in(old, item),
        Contents::Contiguous { count, old } => items_in(old, item)?.checked_mul(*count),
        _ => None,
    }
}

impl Op {
    /// Makes an operator from a function of two values, `function(input, inout)`, which returns the
    /// new `inout`. The function must be associative; unless `commutative`, algorithms keep the
    /// order of the ranks. The operator can be applied to buffers of `T`, or of arrays of `T`. Data
    /// that is not a valid value of `T` (for a `bool`, `char` or enum) is never passed to the
    /// function: it becomes the result as it is.
    ///
    /// The function runs inside calls of the device that carries the values. So neither it nor the
    /// drop of its captures may call a device or a communicator: a device that is at work panics
    /// then, which ends the process if other ranks are waiting.
    ///
    /// ```
    /// use portolan_datatype::Op;
    /// let hypot = Op::new(true, |a: f64, b: f64| a.hypot(b));
    /// let mut b = [4.0];
    /// hypot.apply_slices(&[3.0], &mut b)?;
    /// assert_eq!(b, [5.0]);
    /// # Ok::<(), portolan_datatype::OpError>(())
    /// ```
    #[doc(alias = "MPI_Op_create")]
    pub fn new<T: Datatype>(
        commutative: bool,
        function: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Op {
        let (layout, name, id) = (T::layout(), type_name::<T>(), TypeId::of::<T>());
        debug_assert_eq!(
            usize::try_from(layout.extent()),
            Ok(size_of::<T>()),
            "the implementation of Datatype for {name} is wrong: the layout's extent is not the size"
        );
        let unit = layout.clone();
        let item = Item {
            layout,
            name,
            id,
            any_bits: T::ANY_BITS,
        };
        let each = move |layout: &Layout, count: usize, input: *const u8, inout: *mut u8| {
            let items = items_in(layout, &unit).unwrap_or(0) * count;
            let (input, inout) = (input.cast::<T>(), inout.cast::<T>());
            for index in 0..items {
                let (a, b) = (input.wrapping_add(index), inout.wrapping_add(index));
                // SAFETY: `Op::apply` says that there is data at both, at any alignment; items lie
                // side by side, because a `T` has the extent of its size. Data from another rank
                // may not be a valid value: then it is passed on, and the rank that gets the result
                // detects it.
                unsafe {
                    if !T::ANY_BITS && !T::is_valid(b) {
                        continue;
                    }
                    if !T::ANY_BITS && !T::is_valid(a) {
                        b.cast::<u8>().copy_from(a.cast(), size_of::<T>());
                        continue;
                    }
                    b.write_unaligned(function(a.read_unaligned(), b.read_unaligned()));
                }
            }
        };
        Op(Repr::User(Arc::new(UserOp {
            commutative,
            name: "user",
            item: Some(item),
            function: Box::new(each),
        })))
    }

    /// Makes an operator from a function over buffers, for callers without static types (C
    /// programs): `function(layout, count, input, inout)`.
    ///
    /// # Safety
    /// For every layout that the operator is applied to, the function touches only the data of
    /// `count` items at `input`, which it reads, and at `inout`, which it reads and writes, and
    /// needs of them only what [`Op::apply`] promises.
    pub unsafe fn from_raw(
        commutative: bool,
        function: impl Fn(&Layout, usize, *const u8, *mut u8) + Send + Sync + 'static,
    ) -> Op {
        Op(Repr::User(Arc::new(UserOp {
            commutative,
            name: "user",
            item: None,
            function: Box::new(function),
        })))
    }
}
