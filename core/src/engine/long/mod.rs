//! Long messages: offered, then pulled by the receiver, streamed by the sender, or half by each; or
//! sent in pieces without an offer.
//!
//! - [`flows`]: accelerator data on its way through host memory
//! - [`growing`]: packets that arrive while their senders still write them
//! - [`in_hand`]: offers whose receive is in hand are pulled at once
//! - [`late`]: receives of long messages whose senders were absent when the messages were matched
//! - [`loader`]: the data of a send, or of a peer's get, on its way from an accelerator
//! - [`pieces`]: messages that are sent in pieces without an offer
//! - [`rendezvous`]: offers: the receiver takes a message once it has a buffer for it
//! - [`room`]: where a pull puts the bytes
//! - [`shared`]: messages from memory that peers load themselves
//! - [`transfer`]: moving the data of an offer: pulled by the receiver, streamed by the sender, or
//!   half by each
//! - [`unasked`]: whether a message of middle length is announced, or sent in pieces without an
//!   offer
//! - [`ways`]: which way the data of long messages takes

pub(super) mod flows;
pub(super) mod growing;
pub(super) mod in_hand;
pub(super) mod late;
pub(super) mod loader;
pub(super) mod pieces;
pub(super) mod rendezvous;
pub(super) mod room;
pub(super) mod shared;
pub(super) mod transfer;
pub(super) mod unasked;
pub(super) mod ways;
