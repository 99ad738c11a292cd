//! How long a sample is, how many there are, and what they come to.

use portolan::{Comm, Result};

use super::kernel::{Part, WINDOW, sample};
use crate::cli::{BenchArgs, BenchKind};

/// Samples of one measurement. Their median is quoted, because on a shared machine the mean belongs
/// to the neighbours.
const SAMPLES: usize = 21;

/// What one size came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    /// Median over the samples; over pairs of ranks the mean (latency) or the sum (others).
    pub(super) value: f64,
    /// The same of each pair's best sample.
    pub(super) best: f64,
    /// How often a sample did what is timed.
    pub(super) rounds: u64,
    /// How many samples there were.
    pub(super) samples: usize,
}

/// Measures one size. Collective; rank 0 has the result, the others one of no meaning.
pub(super) fn measure(args: &BenchArgs, comm: &Comm, bytes: usize) -> Result<Measured> {
    let part = Part::of(comm.rank(), comm.size());
    let mut buffer = vec![0_u8; bytes];
    let mut timed = |rounds: u64| -> Result<f64> {
        comm.barrier()?;
        let start = comm.wtime();
        sample(args.kind, comm, part, rounds, &mut buffer)?;
        Ok(comm.wtime() - start)
    };

    // Doubles until a sample takes its share of the time; that also warms up everything.
    let share = args.seconds / SAMPLES as f64;
    let mut rounds = 1;
    loop {
        let long_enough = timed(rounds)? >= share;
        let mut go_on = [u8::from(!long_enough && rounds < 1 << 40)];
        comm.broadcast(&mut go_on, 0)?;
        if go_on == [0] {
            break;
        }
        rounds *= 2;
    }

    let mut values = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        values.push(value(args.kind, bytes, rounds, timed(rounds)?));
    }
    let mine = summary(args.kind, &mut values);
    let starts = matches!(part, Part::Starts { .. });
    let all = comm
        .gather(if starts { &mine[..] } else { &[] }, 0)?
        .unwrap_or_default();
    let pairs: Vec<_> = all.iter().filter(|pair| !pair.is_empty()).collect();
    let over_pairs = |which: usize| {
        let sum: f64 = pairs.iter().map(|pair| pair[which]).sum();
        if args.kind == BenchKind::Latency {
            sum / pairs.len() as f64
        } else {
            sum
        }
    };
    Ok(Measured {
        value: over_pairs(0),
        best: over_pairs(1),
        rounds,
        samples: SAMPLES,
    })
}

/// What a sample of that many seconds says, in the bench's unit.
fn value(kind: BenchKind, bytes: usize, rounds: u64, seconds: f64) -> f64 {
    let rounds = rounds as f64;
    match kind {
        BenchKind::Latency => seconds / (2.0 * rounds) * 1e6,
        BenchKind::Bandwidth => rounds * WINDOW as f64 * bytes as f64 / seconds / 1e6,
        BenchKind::Rate => rounds * WINDOW as f64 / seconds,
    }
}

/// Median and best of the samples.
fn summary(kind: BenchKind, values: &mut [f64]) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let best = if kind == BenchKind::Latency {
        values.first()
    } else {
        values.last()
    };
    let best = best.copied().unwrap_or(f64::NAN);
    [
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN),
        best,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_their_units() {
        // 10 round trips in 20 µs: 1 µs one way.
        assert!((value(BenchKind::Latency, 8, 10, 20e-6) - 1.0).abs() < 1e-9);
        // 10 windows of 64 messages of 1000 bytes in 1 ms: 640 MB/s, 640,000 messages/s.
        assert!((value(BenchKind::Bandwidth, 1000, 10, 1e-3) - 640.0).abs() < 1e-9);
        assert!((value(BenchKind::Rate, 1000, 10, 1e-3) - 640_000.0).abs() < 1e-6);
    }

    #[test]
    fn the_best_is_the_least_latency_and_the_most_of_the_rest() {
        let values = || vec![3.0, 1.0, 2.0];
        assert_eq!(summary(BenchKind::Latency, &mut values()), [2.0, 1.0]);
        assert_eq!(summary(BenchKind::Rate, &mut values()), [2.0, 3.0]);
    }
}
