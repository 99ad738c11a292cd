//! The cases, one module per subject.

pub mod accelerators;
pub mod active;
pub mod cancel;
pub mod capabilities;
pub mod checked;
pub mod collectives;
pub mod comms;
pub mod completion;
pub mod contiguous;
pub mod hooks;
pub mod layouts;
pub mod lifecycle;
pub mod matching;
pub mod memory;
pub mod modes;
pub mod one_sided;
pub mod order;
pub mod persistent;
pub mod probing;
pub mod progress;
pub mod representation;
pub mod requests;
pub mod signatures;
pub mod stress;
pub mod truncation;
pub mod uppers;
