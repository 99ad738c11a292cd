//! Selection of messages by source and tag, with types instead of sentinel values.

use std::fmt;

/// The tag of a message, from 0 to the device's largest (`MPI_TAG_UB`).
#[doc(alias = "MPI_TAG_UB")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(pub u32);

impl From<u32> for Tag {
    #[inline]
    fn from(value: u32) -> Self {
        Self(value)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The sources that a receive or probe accepts messages from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// Any rank of the communicator (`MPI_ANY_SOURCE`).
    #[doc(alias = "MPI_ANY_SOURCE")]
    Any,
    /// This rank of the communicator.
    Rank(u32),
}

impl Source {
    /// The rank, unless any is accepted.
    #[inline]
    #[must_use]
    pub const fn rank(self) -> Option<u32> {
        match self {
            Self::Any => None,
            Self::Rank(rank) => Some(rank),
        }
    }
}

impl From<u32> for Source {
    #[inline]
    fn from(rank: u32) -> Self {
        Self::Rank(rank)
    }
}

/// The tags that a receive or probe accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tags {
    /// Any tag (`MPI_ANY_TAG`).
    #[doc(alias = "MPI_ANY_TAG")]
    Any,
    /// This tag.
    Is(Tag),
}

impl Tags {
    /// The tag's value, unless any is accepted.
    #[inline]
    #[must_use]
    pub const fn value(self) -> Option<u32> {
        match self {
            Self::Any => None,
            Self::Is(tag) => Some(tag.0),
        }
    }
}

impl From<Tag> for Tags {
    #[inline]
    fn from(tag: Tag) -> Self {
        Self::Is(tag)
    }
}

impl From<u32> for Tags {
    #[inline]
    fn from(tag: u32) -> Self {
        Self::Is(Tag(tag))
    }
}
