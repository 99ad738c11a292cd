//! The predefined operators, and the primitives on which each is defined (MPI-4, 6.9.2 and 6.9.4).

use super::kernels::{self, Combine};
use super::loc::{self, Pairs};
use crate::program::Reducer;
use crate::{Layout, OpError, Primitive};

/// A predefined operator, see the constants of [`Op`](crate::Op).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[expect(missing_docs, reason = "documented at the constants of `Op`")]
pub enum Predefined {
    Sum = 1,
    Prod = 2,
    Min = 3,
    Max = 4,
    Land = 5,
    Lor = 6,
    Lxor = 7,
    Band = 8,
    Bor = 9,
    Bxor = 10,
    Maxloc = 11,
    Minloc = 12,
    Replace = 13,
    NoOp = 14,
}

/// The loops returned by [`Predefined::kernel`], indexed by the codes of the operator and of the
/// type.
static KERNELS: [[Option<Combine>; Primitive::ALL.len() + 1]; Predefined::ALL.len() + 1] = {
    let mut kernels = [[None; Primitive::ALL.len() + 1]; Predefined::ALL.len() + 1];
    let mut op = 0;
    while op < Predefined::ALL.len() {
        let mut primitive = 0;
        while primitive < Primitive::ALL.len() {
            kernels[op + 1][primitive + 1] = Predefined::ALL[op].kernel(Primitive::ALL[primitive]);
            primitive += 1;
        }
        op += 1;
    }
    kernels
};

/// What an operator does to the items of one layout.
pub(super) enum Action {
    /// Items stay as they are.
    Nothing,
    /// Each element is combined by itself.
    Elements(Reducer),
    /// Each pair is combined.
    Pairs(Pairs),
}

impl Predefined {
    /// Every predefined operator, in the order of their codes.
    pub const ALL: [Predefined; 14] = {
        use Predefined::*;
        [
            Sum, Prod, Min, Max, Land, Lor, Lxor, Band, Bor, Bxor, Maxloc, Minloc, Replace, NoOp,
        ]
    };

    /// Number of the operator in packets.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The operator with that number.
    pub const fn from_code(code: u8) -> Option<Predefined> {
        if code == 0 || code as usize > Self::ALL.len() {
            return None;
        }
        Some(Self::ALL[code as usize - 1])
    }

    /// The name for messages.
    pub const fn name(self) -> &'static str {
        use Predefined::*;
        match self {
            Sum => "sum",
            Prod => "prod",
            Min => "min",
            Max => "max",
            Land => "land",
            Lor => "lor",
            Lxor => "lxor",
            Band => "band",
            Bor => "bor",
            Bxor => "bxor",
            Maxloc => "maxloc",
            Minloc => "minloc",
            Replace => "replace",
            NoOp => "no_op",
        }
    }

    /// Whether the order of the operands makes no difference.
    pub const fn is_commutative(self) -> bool {
        !matches!(self, Predefined::Replace | Predefined::NoOp)
    }

    /// What it does to items of that layout.
    #[inline]
    pub(super) fn action(self, layout: &Layout) -> Result<Action, OpError> {
        // By far the most frequent case. Items without data may take either path: there is nothing
        // to combine.
        match self.reducer(layout) {
            Some(reducer) => Ok(Action::Elements(reducer)),
            None => self.other_action(layout),
        }
    }

    /// What the operator does to each element of that layout, if the elements are of one type on
    /// which it is defined.
    #[inline]
    pub(super) fn reducer(self, layout: &Layout) -> Option<Reducer> {
        let primitive = layout.homogeneous()?;
        let combine = KERNELS[self as usize][primitive as usize]?;
        Some(Reducer {
            combine,
            element: primitive.size(),
        })
    }

    #[inline(never)]
    fn other_action(self, layout: &Layout) -> Result<Action, OpError> {
        use Predefined::*;
        let op = self.name();
        if matches!(self, NoOp) || layout.size() == 0 {
            return Ok(Action::Nothing);
        }
        if matches!(self, Replace) {
            return Ok(Action::Elements(Reducer {
                combine: kernels::replace,
                element: 1,
            }));
        }
        if matches!(self, Maxloc | Minloc) {
            let pairs = loc::pairs(layout, self == Maxloc);
            return pairs.map(Action::Pairs).ok_or(OpError::NotAPair { op });
        }
        let Some(primitive) = layout.homogeneous() else {
            return Err(OpError::MixedLayout { op });
        };
        Err(OpError::NotDefined {
            op,
            primitive,
            remedy: self.domain(),
        })
    }

    /// The types that it is defined on, for messages.
    const fn domain(self) -> &'static str {
        use Predefined::*;
        match self {
            Sum | Prod => "integers, floating point or complex numbers",
            Min | Max => "integers or floating point numbers",
            Land | Lor | Lxor => "integers or bool",
            Band | Bor | Bxor => "integers or bytes",
            Maxloc | Minloc => "pairs",
            Replace | NoOp => "any type",
        }
    }

    /// The loop for elements of that primitive, if the operator is defined on it.
    const fn kernel(self, primitive: Primitive) -> Option<Combine> {
        match primitive {
            Primitive::I8 => kernels::integer::<i8>(self),
            Primitive::U8 => kernels::integer::<u8>(self),
            Primitive::I16 => kernels::integer::<i16>(self),
            Primitive::U16 => kernels::integer::<u16>(self),
            Primitive::I32 => kernels::integer::<i32>(self),
            Primitive::U32 => kernels::integer::<u32>(self),
            Primitive::I64 => kernels::integer::<i64>(self),
            Primitive::U64 => kernels::integer::<u64>(self),
            Primitive::I128 => kernels::integer::<i128>(self),
            Primitive::U128 => kernels::integer::<u128>(self),
            Primitive::F32 => kernels::float::<f32>(self),
            Primitive::F64 => kernels::float::<f64>(self),
            Primitive::C32 => kernels::complex::<f32>(self),
            Primitive::C64 => kernels::complex::<f64>(self),
            Primitive::Bool => kernels::boolean(self),
            Primitive::Byte => kernels::bits(self),
            Primitive::Packed | Primitive::Char => None,
        }
    }
}
