//! How many rounds are measured.

use std::fmt;
use std::str::FromStr;

use crate::Pattern;

/// The number of rounds of a pattern for messages of one size. Portolan's ranks and the peers'
/// programs get the same plans.
///
/// As text, `bytes:rounds:warm_up`:
///
/// ```
/// use portolan_benches::{Pattern, Plan};
///
/// let plan = Plan::usual(Pattern::Latency, 8, 64);
/// assert_eq!(plan.to_string(), "8:10000:1000");
/// assert_eq!(plan.to_string().parse(), Ok(plan));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Length of a message, or the value on the pattern's [axis](Pattern::axis).
    pub bytes: usize,
    /// Rounds that are timed, if they do not take too long.
    pub rounds: u64,
    /// Rounds of warm-up before them.
    pub warm_up: u64,
}

/// The factor by which a sample becomes hundreds of time slices long.
const AMONG_OTHERS: u64 = 200;

impl Plan {
    /// The default plan, for a sample of some milliseconds: as many rounds as the OSU suite has for
    /// small messages, fewer for large ones.
    #[must_use]
    pub fn usual(pattern: Pattern, bytes: usize, window: u32) -> Self {
        let fit = |total: u64, least: u64, most: u64| {
            let each = (bytes as u64).max(1);
            (total / each).clamp(least, most)
        };
        let rounds = match pattern {
            Pattern::Latency | Pattern::Multithread if bytes <= 8 << 10 => 10_000,
            Pattern::Latency | Pattern::Multithread => fit(256 << 20, 50, 2000),
            Pattern::Depth | Pattern::DepthWildcard | Pattern::DepthUnexpected => 10_000,
            Pattern::DrainReverse | Pattern::DrainRandom => fit(1_000_000, 3, 10_000),
            Pattern::Overlap => fit(256 << 20, 20, 1000),
            Pattern::Collective(..) if bytes <= 8 << 10 => 2000,
            Pattern::Collective(..) => fit(64 << 20, 20, 500),
            Pattern::Barrier => return Self::new(0, 2000, 20),
            Pattern::Startup | Pattern::Idle | Pattern::MemoryRing | Pattern::MemoryAll => {
                return Self::new(0, 1, 1);
            }
            _ if bytes <= 1 << 10 => 2000,
            _ if bytes <= 8 << 10 => 500,
            _ => fit((1 << 30) / u64::from(window.max(1)), 4, 100),
        };
        Self::with_rounds(bytes, rounds)
    }

    /// The plan for ranks that share their cores with other work: so many rounds that a sample is
    /// as long as its limit allows. The default rounds end within a time slice or two (3 ms each),
    /// where it is chance whether both partners run. A plan of one round, such as the start of a
    /// job, stays the same.
    #[must_use]
    pub fn among_others(self) -> Self {
        let times = if self.rounds == 1 { 1 } else { AMONG_OTHERS };
        Self {
            rounds: self.rounds.saturating_mul(times),
            ..self
        }
    }

    /// A plan of `rounds` rounds, with a tenth as many rounds of warm-up.
    #[must_use]
    pub fn with_rounds(bytes: usize, rounds: u64) -> Self {
        Self::new(bytes, rounds, (rounds / 10).max(1))
    }

    fn new(bytes: usize, rounds: u64, warm_up: u64) -> Self {
        Self {
            bytes,
            rounds,
            warm_up,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.bytes, self.rounds, self.warm_up)
    }
}

/// The error for a text that is not a [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePlanError(String);

impl fmt::Display for ParsePlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not of the form BYTES:ROUNDS:WARM_UP, with 1 round or more of each",
            self.0
        )
    }
}

impl std::error::Error for ParsePlanError {}

impl FromStr for Plan {
    type Err = ParsePlanError;

    fn from_str(text: &str) -> Result<Self, ParsePlanError> {
        let parse = || {
            let mut fields = text.split(':');
            let bytes = fields.next()?.parse().ok()?;
            let rounds = fields.next()?.parse().ok()?;
            let warm_up = fields.next()?.parse().ok()?;
            let whole = fields.next().is_none() && rounds > 0 && warm_up > 0;
            whole.then(|| Self::new(bytes, rounds, warm_up))
        };
        parse().ok_or_else(|| ParsePlanError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_messages_are_repeated_less_often_and_never_not_at_all() {
        for pattern in Pattern::ALL {
            let rounds = |bytes| Plan::usual(pattern, bytes, 64).rounds;
            for power in 0..40 {
                let (small, large) = (rounds(1 << power), rounds(2 << power));
                assert!(large <= small && large > 0, "{pattern:?} {power}");
            }
        }
    }

    #[test]
    fn samples_beside_other_work_are_longer_but_warmed_up_alike() {
        let usual = Plan::usual(Pattern::Latency, 8, 64);
        let long = usual.among_others();
        assert!(long.rounds >= 100 * usual.rounds);
        assert_eq!((long.bytes, long.warm_up), (usual.bytes, usual.warm_up));
        let job = Plan::usual(Pattern::Startup, 0, 64);
        assert_eq!(job.among_others(), job);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "8", "8:1", "8:0:1", "8:1:0", "8:1:1:1", "-8:1:1", "x:1:1",
        ] {
            let error = text.parse::<Plan>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")));
        }
    }
}
