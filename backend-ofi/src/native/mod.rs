//! Matching by the provider: tagged messages that libfabric's provider matches with receives.

mod matched;

pub(crate) use matched::Matched;
