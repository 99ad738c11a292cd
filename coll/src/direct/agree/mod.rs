//! Whether ranks mean the same operation, and the errors that they get if not.
//!
//! - [`counts`]: counts that all ranks pass, as a checksum
//! - [`odd`]: descriptions of ranks that do not agree about an operation
//! - [`sort`]: the signature of a rank's items, in five bits of a header
//! - [`verdict`]: a rank's check of another's part where both ends of a block state its length

pub(super) mod counts;
pub(super) mod odd;
pub(super) mod sort;
pub(super) mod verdict;
