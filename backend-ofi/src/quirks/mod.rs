//! Workarounds that some providers need.
//!
//! - [`acquaint`]: endpoints of one process over libfabric's shared memory, which have to connect
//!   to each other before the first message
//! - [`hung_calls`]: calls of libfabric's shm of 1.x that never return, because a rank died while
//!   it held a lock
//! - [`room`]: enough space in TCP's receive buffers below the provider `sockets`
//! - [`stream`]: pauses between polls over libfabric's shm of 1.x, whose queue has one lock for
//!   both sides

pub(crate) mod acquaint;
pub(crate) mod hung_calls;
pub(crate) mod room;
pub(crate) mod stream;
