//! Whether a call of the provider does not come back any more.
//!
//! libfabric's shm provider of 1.x keeps a spin lock in every rank's queue, in shared memory: who polls takes its own, who
//! sends takes the receiver's, and who waits for one waits without an end. A rank that is killed while it holds one leaves
//! it locked, and whoever needs it next, before the death is known or after it, stays inside the library, where no error
//! reaches it. Only another thread can notice that: the one that watches the processes. It cannot take the lock away, so
//! it ends the rank, which says why, instead of a job that stands still.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::shared::Shared;

/// A call that has taken so long, with a death known, does not come back. Those that do take microseconds, or as long as the
/// system keeps this rank off its processor.
const LIMIT: Duration = Duration::from_secs(5);
/// How often is looked, as soon as a death is known.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Counts one rank's calls: written by the one thread at a time that uses the endpoint.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Calls {
    // Relaxed, everywhere here: nothing else is told by these, and who reads a number late looks again a second later.

    /// Calls begin that take locks of the provider's.
    #[inline]
    pub(crate) fn begin(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        self.begun.store(begun.wrapping_add(1), Ordering::Relaxed);
    }

    /// They have come back.
    #[inline]
    pub(crate) fn end(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        self.ended.store(begun, Ordering::Relaxed);
    }

    /// The number of the call that has begun and has not ended.
    fn under_way(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::Relaxed);
        let begun = self.begun.load(Ordering::Relaxed);
        (begun != ended).then_some(begun)
    }
}

/// What the watching thread knows of this rank's calls.
#[derive(Debug)]
pub(crate) struct Patience {
    calls: Arc<Calls>,
    rank: u32,
    provider: String,
    /// Which call was under way at the last look, and since when it has been seen.
    seen: Option<(u64, Instant)>,
}

impl Patience {
    pub(crate) fn new(calls: Arc<Calls>, rank: u32, provider: String) -> Self {
        Self {
            calls,
            rank,
            provider,
            seen: None,
        }
    }

    /// Looks whether the same call is still under way: `true` if it is not going to come back.
    fn is_over(&mut self, now: Instant) -> bool {
        let call = self.calls.under_way();
        match (call, self.seen) {
            (Some(call), Some((seen, since))) if call == seen => now - since >= LIMIT,
            (call, _) => {
                self.seen = call.map(|call| (call, now));
                false
            }
        }
    }

    /// Ends this rank if ranks have died and a call does not come back.
    pub(crate) fn look(&mut self, shared: &Shared) {
        if shared.deaths.count() == 0 || !self.is_over(Instant::now()) {
            return;
        }
        let (rank, provider) = (self.rank, &self.provider);
        let dead: Vec<String> = shared
            .deaths
            .list(0)
            .into_iter()
            .map(|(_, why)| why)
            .collect();
        let dead = dead.join("; ");
        let text = format!(
            "portolan: rank {rank}: a call of libfabric's provider {provider} has not come back for {} s, and {dead}: \
             who is killed inside that provider may leave a lock in shared memory taken for good. Rank {rank} ends with \
             code 1, since nothing else gets it out of the library; neither the transport shm (PORTOLAN_TRANSPORT=shm) \
             nor the provider tcp (PORTOLAN_OFI_PROVIDER=tcp) has such locks\n",
            LIMIT.as_secs()
        );
        // Standard error may be closed; there is nobody else to tell.
        let _ = std::io::stderr().write_all(text.as_bytes());
        let _ = std::io::stdout().flush();
        // Not `exit`: the library's own end would wait for the same lock.
        // SAFETY: ends the process.
        unsafe { libc::_exit(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_stays_the_same_one_is_given_up() {
        let calls = Arc::new(Calls::default());
        let mut patience = Patience::new(Arc::clone(&calls), 0, "shm".to_owned());
        let start = Instant::now();
        let mut at = |seconds| patience.is_over(start + Duration::from_secs(seconds));
        assert!(!at(0), "nothing is under way");
        calls.begin();
        assert!(!at(10), "it has only just been seen");
        calls.end();
        calls.begin();
        assert!(!at(20), "it is another one");
        assert!(!at(24), "it has not been long");
        assert!(at(25), "it does not come back");
        calls.end();
        assert!(!at(40), "it has come back, and the program computes");
        assert!(!at(60));
    }
}
