//! Tag-matching offload: a network card that matches, and the software that keeps its matching
//! correct.
//!
//! A card with tag matching holds the head of the posted queue in a list of its own. When a message
//! matches there, the card writes it straight into the user's buffer while the rank computes. But
//! the card has little room and supports few wildcards, carries out commands late, and hands up
//! every message that matches nothing in its list. MPI's order must hold all the same.
//!
//! * [`TagOffload`]: what a card, or a library that drives one, must offer and promise.
//! * [`ShadowList`]: the software side. Every receive stays in the software's posted queue, whether
//!   or not the card has it too. A receive goes to the card only if the card already has every
//!   earlier receive that could match the same message, so the card's list is never ahead of the
//!   software's.
//! * [`SimNic`]: a simulated card, stepped by hand. Tests run the shadow list against it in every
//!   order of commands, messages and events, so they need no real card.
//!
//! ```
//! use portolan_core::matching::offload::{Outcome, OffloadCaps, Posting, ShadowList, SimNic};
//! use portolan_core::matching::{Envelope, Pattern};
//!
//! let nic: SimNic<&str, ()> = SimNic::new(OffloadCaps { list_size: 16, ..OffloadCaps::ALL });
//! let mut shadow = ShadowList::new(nic, 0);
//! let posting = shadow.receive(Pattern::any(0), 64, (), "a receive");
//! assert!(matches!(posting, Posting::Posted(_)));
//!
//! // The card takes the command, matches a message by itself and says so when it likes.
//! shadow.device_mut().execute_command();
//! let envelope = Envelope { context: 0, source: 1, tag: 2 };
//! shadow.device_mut().arrive_eager(envelope, 5, "bytes");
//! shadow.device_mut().finish_transfer(0);
//!
//! let mut delivered = None;
//! while let Some(outcome) = shadow.progress()? {
//!     delivered = outcome;
//! }
//! assert_eq!(
//!     delivered,
//!     Some(Outcome::Delivered { value: "a receive", envelope, len: 5, inline: Some("bytes") }),
//! );
//! # Ok::<(), portolan_core::matching::offload::Breach>(())
//! ```

mod counts;
mod device;
mod outcome;
mod overlap;
mod shadow;
mod sim;

pub use device::{Event, Message, OffloadCaps, ReceiveId, Refusal, TagOffload};
pub use outcome::{Breach, Cancel, Outcome, Posting, ShadowCounters};
pub use shadow::ShadowList;
pub use sim::SimNic;

#[cfg(test)]
mod tests;
