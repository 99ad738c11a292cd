//! Transports around transports: they watch the packets, or produce the worst that the contract
//! allows, so that tests reach states that a healthy network rarely shows.
//!
//! A decorator is a [`Hook`]; [`Decorated`] is the transport that asks it. Decorators stack,
//! because a decorated transport is a transport.
//!
//! | hook | what it does | which rank should notice |
//! | --- | --- | --- |
//! | [`Trace`] | records every packet | none |
//! | [`Count`] | counts packets and bytes by kind | none |
//! | [`Delay`] | delivers packets later, in the order of their pair | none |
//! | [`Refuse`] | reports a full transport where there is room | none |
//! | [`Unreach`] | reports memory out of reach that can be reached | none |
//! | [`Corrupt`] | flips bits of packets | the receiver, which declares the sender failed |
//! | [`DropPeer`] | declares a peer dead after a number of packets | all |
//!
//! Everything random follows from a seed, so that a failing run can be repeated.
//!
//! ```
//! use portolan_core::transport::decorate::{Count, Decorated};
//! use portolan_core::transport::{memory, Header, Transport};
//!
//! let mut ranks = memory::network(2);
//! let counts = Count::new();
//! let mut rank = Decorated::new(ranks.remove(0), counts.clone());
//! // SAFETY: rank 1 exists and is not rank 0; there are no bytes to read.
//! let _ = unsafe { rank.send_short(1, &Header::default(), std::ptr::null(), 0) };
//! assert_eq!(counts.total().sent, 1);
//! ```

mod corrupt;
mod count;
mod decorated;
mod delay;
mod drop_peer;
mod hook;
mod random;
mod refuse;
mod trace;
mod unreach;

pub use corrupt::Corrupt;
pub use count::{Count, Tally};
pub use decorated::Decorated;
pub use delay::Delay;
pub use drop_peer::DropPeer;
pub use hook::{Arrival, Hook};
pub use random::Random;
pub use refuse::Refuse;
pub use trace::{Direction, Record, Trace};
pub use unreach::Unreach;

#[cfg(test)]
mod tests;
