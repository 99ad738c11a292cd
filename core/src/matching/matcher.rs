//! The pair rule: both queues, and what a message or a receive does when it comes.
//!
//! The invariant is that no message that waits matches a receive that waits. A newcomer of either
//! kind looks at the other kind's queue first and waits only if nothing there matches; since each
//! queue gives its earliest match, the pair made is the earliest of both, as MPI demands.

use super::envelope::{Envelope, Pattern};
use super::posted::{PostedId, PostedQueue};
use super::unexpected::{UnexpectedId, UnexpectedQueue};

/// What became of a message that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrived<T, M> {
    /// It belongs to this receive, which is no longer posted.
    Matched(T, M),
    /// Nothing matched: it waits.
    Stored(UnexpectedId),
}

/// What became of a receive that was posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received<T, M> {
    /// This message had been waiting for it.
    Matched(T, Envelope, M),
    /// Nothing matched: it waits.
    Posted(PostedId),
}

/// The posted and the unexpected queue under the pair rule.
///
/// ```
/// use portolan_core::matching::{Arrived, Envelope, Matcher, Pattern, Received};
///
/// let mut matcher = Matcher::new();
/// let message = Envelope { context: 0, source: 1, tag: 2 };
/// assert!(matches!(matcher.arrive(message, "first"), Arrived::Stored(_)));
/// assert_eq!(
///     matcher.receive(Pattern::any(0), 'r'),
///     Received::Matched('r', message, "first"),
/// );
/// ```
#[derive(Debug)]
pub struct Matcher<T, M> {
    /// Receives waiting for messages. Cancel and drain here; post through [`Matcher::receive`].
    pub posted: PostedQueue<T>,
    /// Messages waiting for receives. Probe, take and drain here.
    pub unexpected: UnexpectedQueue<M>,
}

impl<T, M> Matcher<T, M> {
    /// Two empty queues.
    #[must_use]
    pub fn new() -> Self {
        Self {
            posted: PostedQueue::new(),
            unexpected: UnexpectedQueue::new(),
        }
    }

    /// A message arrives: the earliest receive that matches gets it, or it waits.
    #[inline]
    pub fn arrive(&mut self, envelope: Envelope, message: M) -> Arrived<T, M> {
        match self.posted.match_arrival(&envelope) {
            Some(value) => Arrived::Matched(value, message),
            None => Arrived::Stored(self.unexpected.push(envelope, message)),
        }
    }

    /// A receive is posted: it gets the earliest message that matches, or it waits.
    #[inline]
    pub fn receive(&mut self, pattern: Pattern, value: T) -> Received<T, M> {
        match self.unexpected.take_match(&pattern) {
            Some((envelope, message)) => Received::Matched(value, envelope, message),
            None => Received::Posted(self.posted.post(pattern, value)),
        }
    }
}

impl<T, M> Default for Matcher<T, M> {
    fn default() -> Self {
        Self::new()
    }
}
