//! Discarding messages that were sent on a communicator that has been freed.
//!
//! A message may arrive here that this rank never receives: the program has not asked for it, or a
//! death has ended the operation that would have. The message waits in the device, under the
//! communicator's context, and the next communicator with that context would receive it. So it is
//! discarded: once when the communicator is freed, and once more before the context is offered to
//! other ranks again, because a message may have been on its way (`context.rs`). From then on
//! nothing may be discarded. A rank that has finished the agreement earlier may already send on the
//! new communicator.
//!
//! A sender that waits for its message to be received is told that it was, so that it does not wait
//! for ever. Only what waits for the last communicator of a rank stays where it is: no other
//! communicator follows, and the senders learn from the device how the rank has left.

use super::Communicator;
use super::context::{Kind, Pool, STRIDE};
use super::extension::Job;
use crate::device::Device;
use crate::matching::Pattern;

impl<D: Device> Communicator<D> {
    /// Discards what waits in the contexts of ids that the next agreement may offer again: of those
    /// that are due, or of `all` that are free. Returns whether no message is left.
    pub(super) fn sweep(&self, kind: Kind, all: bool) -> bool {
        let job = &self.0.job;
        let mut ids = job.pool.to_sweep(kind, all);
        let mut swept = true;
        while let Some(context) = ids.next() {
            let wholly = discard(self.device(), job, context);
            ids.swept(wholly);
            swept &= wholly;
        }
        swept
    }

    /// Takes an id for a communicator of this process only, by `take`; `None` if there is none,
    /// also after what other threads are sweeping has been swept.
    pub(super) fn take_local(&self, take: impl Fn(&Pool) -> Option<u32>) -> Option<u32> {
        let pool = &self.0.job.pool;
        loop {
            let swept = self.sweep(Kind::OfOne, false);
            let more = swept && pool.has_unswept(Kind::OfOne);
            let taken = take(pool);
            if taken.is_some() || !more {
                return taken;
            }
            std::thread::yield_now();
        }
    }
}

/// Discards what waits in the contexts of the communicator whose first context is `first`. No
/// operation on it may be pending. Returns whether no message is left.
pub(super) fn discard<D: Device>(device: &D, job: &Job<D>, first: u32) -> bool {
    let contexts = first..first + STRIDE;
    let mut wholly = true;
    for context in contexts.clone() {
        // An error (the device has been ended, a member has died) comes only when no message waits
        // that could be taken.
        while let Ok(Some((message, _))) = device.improbe_unchecked(&Pattern::any(context)) {
            if device.discard(message).is_err() {
                wholly = false;
                break;
            }
        }
    }
    super::lock(&job.strays).retain(|stray| !contexts.contains(&stray.context()));
    job.attempts.forget(first);
    wholly
}
