//! What the end of a peer, or of the whole job, does to what is under way.
//!
//! - [`collective`]: what a death means in the collective contexts of a communicator
//! - [`failure`]: a peer that is dead, or gone: what was waiting for it ends with an error,
//!   everything else goes on
//! - [`finish`]: the end of a device's use, and of the whole job

pub(super) mod collective;
pub(super) mod failure;
pub(super) mod finish;
