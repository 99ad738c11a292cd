//! How a rank starts: the library, the provider, the network, and how the ranks come together.
//!
//! - [`descriptors`]: whether this process may open as many as the job needs
//! - [`info`]: descriptions of what providers offer, in the library's own memory
//! - [`interfaces`]: the network interfaces of this machine, by their names and addresses, and
//!   which of them are down
//! - [`library`]: opens libfabric without letting it change how the process handles signals
//! - [`networks`]: whether the ranks' addresses can be on one network
//! - [`open`]: makes the transport: one rank of a job of processes, or all ranks of a job inside
//!   one process
//! - [`provider`]: lists what libfabric offers, which offers are usable, and the best of these
//! - [`verdict`]: what the ranks tell each other before they communicate, and whether they can work
//!   together

pub(crate) mod descriptors;
pub(crate) mod info;
pub(crate) mod interfaces;
pub(crate) mod library;
pub(crate) mod networks;
pub(crate) mod open;
pub(crate) mod provider;
pub(crate) mod verdict;
