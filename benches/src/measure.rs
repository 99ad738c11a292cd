//! One sample, on all ranks.

use portolan::level::Level;
use portolan::{Comm, Device, Result};

use crate::window::Window;
use crate::{Buffers, Pattern, Plan, Role};

/// First tag of the receives that wait: above those of the patterns.
const WAITING: u32 = 1000;

/// What a sample is of, but for the size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// What is measured.
    pub pattern: Pattern,
    /// Messages in a window.
    pub window: u32,
    /// Time that a sample may take, in seconds: there are fewer rounds than planned if they would
    /// take longer.
    pub limit: f64,
}

/// What a sample came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// As in the plan.
    pub bytes: usize,
    /// In the pattern's unit: over pairs of ranks the mean (latency) or the sum (others), over ranks
    /// the mean (barrier).
    pub value: f64,
    /// Rounds that were timed.
    pub rounds: u64,
}

/// Takes one sample. Collective; the same on every rank.
///
/// The time is the device's, so a device with virtual time gives its own. The C programs under
/// `peers/` do the same step by step.
///
/// # Errors
/// [`Exhausted`](portolan::ErrorKind::Exhausted) if there is no memory for the messages; those of the
/// pattern.
pub fn measure<L: Level, D: Device>(
    comm: &Comm<L, D>,
    setup: &Setup,
    plan: &Plan,
) -> Result<Sample> {
    let Setup {
        pattern,
        window,
        limit,
    } = *setup;
    let role = Role::of(comm.rank(), comm.size());
    let mut buffers = Buffers::new(pattern.message_bytes(plan.bytes), comm.rank() as u8)?;
    let mut aside = [0_u8; 8];
    // They are cancelled at the end.
    let mut waiting = Window::new(comm, pattern.waiting(plan.bytes) as u32, &[], &mut aside);
    if let Some(peer) = role.peer() {
        waiting.receive_each(peer, WAITING)?;
    }
    let mut timed = |rounds| -> Result<f64> {
        comm.barrier()?;
        let begun = comm.wtime();
        pattern.run(comm, rounds, window, &mut buffers)?;
        Ok(comm.wtime() - begun)
    };

    // Rank 0's clock decides for all.
    let agree = |rounds| -> Result<u64> {
        let mut rounds = [rounds];
        comm.broadcast(&mut rounds, 0)?;
        Ok(rounds[0])
    };
    // Even the warm-up may be too long: a queue of 100,000 entries costs some peers 20 ms a message.
    let first = timed(1)?;
    let warm_up = agree(affordable(plan.warm_up, first, limit / 4.0))?;
    let each = timed(warm_up)? / warm_up as f64;
    let rounds = agree(affordable(plan.rounds, each, limit))?;
    let seconds = timed(rounds)?;

    let starts = matches!(role, Role::Starts { .. });
    let counts = starts || !pattern.is_paired();
    let value = pattern.value(seconds, rounds, plan.bytes, window);
    let mut sum = if counts { [value, 1.0] } else { [0.0; 2] };
    comm.allreduce(&mut sum, |a, b| a + b)?;
    let [sum, count] = sum;
    let value = if pattern.less_is_better() {
        sum / count
    } else {
        sum
    };
    Ok(Sample {
        bytes: plan.bytes,
        value,
        rounds,
    })
}

/// As many rounds of `each` seconds as there is time for: one at least, `planned` at most.
fn affordable(planned: u64, each: f64, limit: f64) -> u64 {
    let room = (limit / each) as u64;
    planned.min(room).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_fit_into_the_time() {
        assert_eq!(affordable(100, 1e-6, 1.0), 100);
        assert_eq!(affordable(100, 0.1, 1.0), 10);
        assert_eq!(affordable(100, 10.0, 1.0), 1);
        assert_eq!(affordable(100, 0.0, 1.0), 100);
    }

    #[test]
    fn a_sample_is_the_same_on_every_rank() {
        for pattern in Pattern::ALL {
            let setup = Setup {
                pattern,
                window: 8,
                limit: 1.0,
            };
            let plan = Plan::with_rounds(16, 20);
            let samples =
                portolan::try_threads(4, |world| measure(&world.comm(), &setup, &plan)).unwrap();
            assert!(samples[0].value > 0.0 && samples[0].value.is_finite());
            assert!(samples[0].rounds <= 20);
            assert!(samples.iter().all(|sample| *sample == samples[0]));
        }
    }
}
