//! What some providers need and others do not.
//!
//! - [`acquaint`]: endpoints of one process over libfabric's shared memory, which have to know each
//!   other before the first message
//! - [`hung_calls`]: calls of libfabric's shm of 1.x that do not come back, because a rank died
//!   with a lock
//! - [`room`]: room in the receive buffers of TCP below the provider `sockets`
//! - [`stream`]: libfabric's shm of 1.x, whose queue has one lock for both sides: pauses between
//!   polls

pub(crate) mod acquaint;
pub(crate) mod hung_calls;
pub(crate) mod room;
pub(crate) mod stream;
