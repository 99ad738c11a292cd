//! Memory that the network reaches: what is registered, whose it is, and remote operations on
//! regions.
//!
//! - [`atomics`]: atomic operations as the provider does them
//! - [`hmem`]: memory of accelerators in the provider's hands (`FI_HMEM`)
//! - [`registrations`]: memory that is registered for longer than one operation
//! - [`remote`]: put, get and atomics by the provider, on regions

pub(crate) mod atomics;
pub(crate) mod hmem;
pub(crate) mod registrations;
pub(crate) mod remote;
