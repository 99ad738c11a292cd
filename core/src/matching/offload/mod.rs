//! Tag-matching offload: a network card that matches, and the software that keeps it honest.
//!
//! A card with tag matching holds the head of the posted queue in its own list and writes a
//! message that matches straight into the user's buffer, while the rank computes. It has little
//! room, knows few wildcards, takes its commands late, and hands up every message that matches
//! nothing in its list. MPI's order must hold all the same.
//!
//! * [`TagOffload`]: what a card (or a library that drives one) has to offer, and promise.
//! * [`ShadowList`]: the software side. Every receive stays in the software's posted queue, card
//!   or no card. One goes to the card only if every earlier receive that could match the same
//!   message is there already, so the card's list is never ahead of the software's.
//! * [`SimNic`]: a card in a few hundred lines, stepped by hand. Tests run the shadow list
//!   against it in every order of commands, messages and events; no other card is needed.
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
