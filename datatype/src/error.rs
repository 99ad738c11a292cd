//! Errors in the arguments of a constructor or of an operator.

use crate::Primitive;

/// Why a [`Layout`](crate::Layout) could not be built, or a size could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A size, displacement or extent does not fit the address space.
    #[error(
        "{constructor}: {what} does not fit {} bits; use smaller counts or several messages",
        usize::BITS
    )]
    Overflow {
        /// The constructor or query, by its name in [`Layout`](crate::Layout).
        constructor: &'static str,
        /// The quantity that was being computed.
        what: &'static str,
    },
    /// Two arrays of arguments that must be equally long are not.
    #[error("{constructor}: {found} {what}, but {expected} blocks; give one for each block")]
    LengthMismatch {
        /// The constructor.
        constructor: &'static str,
        /// Which array.
        what: &'static str,
        /// How many blocks there are.
        expected: usize,
        /// How many entries the array has.
        found: usize,
    },
    /// A subarray does not lie inside its array.
    #[error(
        "subarray: in dimension {dim}, {subsize} elements from {start} leave an array of {size}; \
         start + subsize must be at most size"
    )]
    OutsideArray {
        /// The dimension, from 0.
        dim: usize,
        /// Size of the array in that dimension.
        size: usize,
        /// Size of the part.
        subsize: usize,
        /// Where the part starts.
        start: usize,
    },
    /// An argument of a distributed array is out of its range.
    #[error("darray: {what} is {value}; {remedy}")]
    BadDistribution {
        /// Which argument.
        what: &'static str,
        /// Its value.
        value: usize,
        /// What to use instead.
        remedy: &'static str,
    },
    /// Layouts were nested more deeply than is supported.
    #[error("{constructor}: layouts nested {depth} deep; at most {limit} are supported")]
    TooDeep {
        /// The constructor.
        constructor: &'static str,
        /// The depth that was requested.
        depth: usize,
        /// The limit.
        limit: usize,
    },
}

/// Why an operator cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The operator is not defined on that primitive (MPI-4, 6.9.2).
    #[error(
        "operator {op} is not defined on {primitive}; use {remedy}, or an operator of your own"
    )]
    NotDefined {
        /// The operator.
        op: &'static str,
        /// The primitive.
        primitive: Primitive,
        /// The types it is defined on.
        remedy: &'static str,
    },
    /// A predefined operator was given a layout of several primitives.
    #[error(
        "operator {op} needs a layout made of one primitive type; \
         reduce the fields one by one, or use an operator of your own"
    )]
    MixedLayout {
        /// The operator.
        op: &'static str,
    },
    /// `maxloc` or `minloc` was given something other than pairs of a value and an index.
    #[error(
        "operator {op} needs pairs of a value and an index, such as Pair<f64>, side by side in memory"
    )]
    NotAPair {
        /// The operator.
        op: &'static str,
    },
    /// A user's operator was given a layout of a type other than the one it was made for.
    #[error("operator over {expected} was given another datatype; use Layout::of::<{expected}>()")]
    WrongType {
        /// Name of the type it was made for.
        expected: &'static str,
    },
    /// The two buffers of a reduction differ in length.
    #[error("reduction of {input} items into {inout}; both buffers need the same length")]
    LengthMismatch {
        /// Items in the input.
        input: usize,
        /// Items in the buffer that is updated.
        inout: usize,
    },
    /// A range of a packed stream begins or ends inside a number.
    #[error(
        "bytes {position}..{end} of a packed stream split an element of {element} bytes; \
             reduce whole elements"
    )]
    SplitElement {
        /// First byte.
        position: usize,
        /// One past the last byte.
        end: usize,
        /// Size of an element in bytes.
        element: usize,
    },
    /// An operator returned something that is not a valid value of the type.
    #[error(
        "operator {op} gives item {index} a value that its type does not have; \
         reduce plain numbers, or use an operator over the type itself"
    )]
    InvalidResult {
        /// The operator.
        op: &'static str,
        /// Index of the item.
        index: usize,
    },
}
