//! Packets that never come, over TCP.
//!
//! What breaks with a connection fails where it was handed over, and its sender says so. But nobody
//! hears of packets that the provider has copied, or that the system had taken: a provider that
//! connects again goes on behind them, and whoever receives would hold what comes for ever, behind
//! a number that is not there. Over TCP a packet overtakes none that was sent to the same rank
//! before it, so a number that is missing for long is lost, and so is the pair. (Not where packets
//! go in parts, of which one may wait while the next leaves.) Elsewhere it may be on its way for as
//! long as its sender computes.

use std::time::{Duration, Instant};

/// How long a number may be missing while this rank looks.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest time between two looks that counts: who does not look cannot tell that nothing
/// comes.
const STEP: Duration = Duration::from_millis(100);

/// A number that is missing, and for how long.
#[derive(Debug, Default)]
pub(crate) struct Gap {
    /// Whose packet, and which.
    missing: Option<(u32, u32)>,
    looked: Option<Instant>,
    waited: Duration,
}

impl Gap {
    /// Whether something is missing.
    pub(crate) fn is_open(&self) -> bool {
        self.missing.is_some()
    }

    /// As if it had been missing for as long as anything may be.
    #[cfg(test)]
    pub(crate) fn pretend_to_wait(&mut self) {
        self.waited = LIMIT;
    }

    /// What is missing now. Returns whether it is lost.
    pub(crate) fn look(&mut self, missing: Option<(u32, u32)>, now: impl Fn() -> Instant) -> bool {
        if self.missing != missing {
            *self = Self {
                missing,
                ..Self::default()
            };
        }
        if missing.is_none() {
            return false;
        }
        let now = now();
        if let Some(before) = self.looked.replace(now) {
            self.waited += now.saturating_duration_since(before).min(STEP);
        }
        self.waited >= LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks so many times, at this distance; whether something is lost then.
    fn looks(gap: &mut Gap, missing: (u32, u32), times: u32, distance: Duration) -> bool {
        let start = Instant::now();
        (0..times).any(|n| gap.look(Some(missing), || start + distance * n))
    }

    #[test]
    fn what_is_missing_for_long_is_lost() {
        let looks_needed = (LIMIT.as_millis() / STEP.as_millis()) as u32;
        let mut gap = Gap::default();
        assert!(!looks(&mut gap, (1, 7), looks_needed, STEP));
        assert!(gap.is_open());
        // Another one is, or it has come.
        assert!(!looks(&mut gap, (1, 8), looks_needed, STEP));
        assert!(!gap.look(None, Instant::now));
        assert!(!gap.is_open());
        // An hour in which nobody looks counts as one step.
        let hour = Duration::from_secs(3600);
        assert!(!looks(&mut gap, (1, 8), looks_needed, hour));
        assert!(looks(&mut gap, (1, 9), looks_needed + 1, STEP));
    }
}
