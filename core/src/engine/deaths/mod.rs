//! How the end of a peer, or of the whole job, affects operations under way.
//!
//! - [`beside`]: operations of a device that contains an engine, which may wait for who has left
//! - [`collective`]: the consequences of a death in the collective contexts of a communicator
//! - [`failure`]: a peer that is dead or gone: operations that wait for it end with an error,
//!   everything else goes on
//! - [`finish`]: the end of a device's use, and of the whole job

pub(super) mod beside;
pub(super) mod collective;
pub(super) mod failure;
pub(super) mod finish;
