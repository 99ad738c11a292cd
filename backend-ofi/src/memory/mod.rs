//! Memory that the network reaches: registrations, their owners, and remote operations on regions.
//!
//! - [`atomics`]: atomic operations by the provider
//! - [`hmem`]: accelerator memory in the provider's hands (`FI_HMEM`)
//! - [`registrations`]: memory that is registered for longer than one operation
//! - [`remote`]: put, get and atomics on regions, by the provider

pub(crate) mod atomics;
pub(crate) mod hmem;
pub(crate) mod registrations;
pub(crate) mod remote;
