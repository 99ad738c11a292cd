//! Whether ranks mean the same operation, and what they are told if not.
//!
//! - [`counts`]: counts of which each rank says all, as a checksum
//! - [`odd`]: ranks that do not agree about an operation, in words
//! - [`sort`]: the signature of a rank's items, in five bits of a header
//! - [`verdict`]: what a rank thinks of another's part where both ends of a block tell its length

pub(super) mod counts;
pub(super) mod odd;
pub(super) mod sort;
pub(super) mod verdict;
