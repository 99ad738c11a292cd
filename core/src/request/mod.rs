//! Requests: slots `{channel, index, generation}` with a status, never pointers.

mod handle;
mod words;

pub use handle::Request;
pub(crate) use words::{State, StateWords};
