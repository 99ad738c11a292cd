//! Detects packets that never arrive, over TCP.
//!
//! When a connection breaks, operations that are still open on it fail, and their sender reports
//! that. But packets that the provider had already copied, or that the system had taken, are lost
//! silently. A provider that connects again goes on with the packets behind them, and the receiver
//! would hold these for ever, waiting for the missing number. Over TCP, a packet never overtakes an
//! earlier one to the same rank. So a number that is missing for long is lost, and so is the
//! connection of the two ranks. (This does not hold where packets go in parts, one of which may
//! wait while the next leaves.) Over other providers, a missing packet may be on its way for as
//! long as its sender computes.

use std::time::{Duration, Instant};

/// How long a number may be missing while this rank polls.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest time between two polls that counts: a rank that does not poll cannot know that
/// nothing comes.
const STEP: Duration = Duration::from_millis(100);

/// The missing number, and for how long it has been missing.
#[derive(Debug, Default)]
pub(crate) struct Gap {
    /// The sender of the missing packet, and its number.
    missing: Option<(u32, u32)>,
    looked: Option<Instant>,
    waited: Duration,
}

impl Gap {
    /// Whether a packet is missing.
    pub(crate) fn is_open(&self) -> bool {
        self.missing.is_some()
    }

    /// Pretends that it has been missing for the whole limit.
    #[cfg(test)]
    pub(crate) fn pretend_to_wait(&mut self) {
        self.waited = LIMIT;
    }

    /// Updates which packet is missing. Returns whether it is lost.
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

    /// Looks this many times, this far apart. Returns whether a packet is lost then.
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
        // Another packet is missing, or the missing one has arrived.
        assert!(!looks(&mut gap, (1, 8), looks_needed, STEP));
        assert!(!gap.look(None, Instant::now));
        assert!(!gap.is_open());
        // An hour without a look counts as one step.
        let hour = Duration::from_secs(3600);
        assert!(!looks(&mut gap, (1, 8), looks_needed, hour));
        assert!(looks(&mut gap, (1, 9), looks_needed + 1, STEP));
    }
}
