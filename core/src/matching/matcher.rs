//! The pair rule: both queues, and how an arriving message or a posted receive uses them.
//!
//! The invariant is that no waiting message matches a waiting receive. A newcomer of either kind
//! searches the other kind's queue first, and waits only if nothing there matches. Since each queue
//! returns its earliest match, each pair consists of the earliest of both kinds, as MPI demands.

use super::envelope::{Envelope, Pattern};
use super::posted::{PostedId, PostedQueue};
use super::unexpected::{UnexpectedId, UnexpectedQueue};

/// The outcome for a message that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrived<T, M> {
    /// It goes to this receive, which is no longer posted.
    Matched(T, M),
    /// Nothing matched; the message waits.
    Stored(UnexpectedId),
}

/// The outcome for a receive that was posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received<T, M> {
    /// This message had been waiting.
    Matched(T, Envelope, M),
    /// Nothing matched; the receive waits.
    Posted(PostedId),
}

/// The posted and the unexpected queue, joined by the pair rule.
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

    /// Handles a message that arrives: the earliest receive that matches gets it, or it waits.
    #[inline]
    pub fn arrive(&mut self, envelope: Envelope, message: M) -> Arrived<T, M> {
        match self.posted.match_arrival(&envelope) {
            Some(value) => Arrived::Matched(value, message),
            None => Arrived::Stored(self.unexpected.push(envelope, message)),
        }
    }

    /// Handles a receive that is posted: it gets the earliest message that matches, or it waits.
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
