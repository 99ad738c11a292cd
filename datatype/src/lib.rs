//! The meaning of the bytes of a message.
//!
//! A message is a sequence of bytes; a program has typed data somewhere in memory. This crate
//! converts between the two, and knows nothing of communication:
//!
//! - [`Datatype`] is implemented by Rust types that can be sent, and can be derived.
//! - [`Layout`] describes where data lies and what it is made of: MPI's datatypes with all their
//!   constructors. It is compiled once into a flat [`Program`].
//! - [`Layout::pack_range`] and [`Layout::unpack_range`] move any part of a message between memory
//!   and its packed stream, in any [message representation](MsgRep).
//! - [`Signature`] tells from 32 bits whether a message may be received as the type that the
//!   receiver expects.
//! - [`Op`] combines values: the predefined reduction operators, and the user's.
//!
//! `docs/datatypes.md` in the repository explains how it works and why.
//!
//! ```
//! use portolan_datatype::{Layout, MsgRep};
//!
//! // The left column of a 3 × 4 matrix, as its neighbour needs it.
//! let matrix: [[f64; 4]; 3] = [[1.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]];
//! let column = Layout::vector(3, 1, 4, &Layout::of::<f64>())?;
//! let mut halo = [0.0f64; 3];
//! let bytes = column.packed_size(1, MsgRep::Native)?;
//! assert!(column.span(1)?.end as usize <= size_of_val(&matrix));
//! // SAFETY: the span lies within the matrix, and `halo` has room for 24 bytes.
//! unsafe {
//!     let (from, to) = (matrix.as_ptr().cast(), halo.as_mut_ptr().cast());
//!     column.pack_range(from, 1, 0, to, bytes, MsgRep::Native);
//! }
//! assert_eq!(halo, [1.0, 2.0, 3.0]);
//! # Ok::<(), portolan_datatype::LayoutError>(())
//! ```

pub mod bytes;
mod complex;
mod datatype;
mod error;
mod impls;
mod layout;
mod op;
mod pack;
mod pair;
mod primitive;
mod program;
mod registry;
mod represent;
mod signature;

pub use datatype::{Datatype, first_invalid, same_primitive};
pub use error::{LayoutError, OpError};
pub use layout::{Combiner, Contents, DarrayDim, Distribution, Envelope, Layout, Order};
/// A complex number, `re` and `im`: the type of the `num-complex` crate, which `rustfft`, `ndarray`
/// and others also use.
pub use num_complex::Complex;
pub use op::{Elementwise, Op, Predefined};
pub use pair::Pair;
#[cfg(feature = "derive")]
pub use portolan_datatype_derive::Datatype;
pub use primitive::Primitive;
pub use program::Program;
pub use registry::cached_layout;
pub use represent::{ByteOrder, MsgAction, MsgRep};
pub use signature::Signature;
