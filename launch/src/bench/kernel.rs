//! What is timed: the calls of one sample, on the side that starts and on the other.

use portolan::{Comm, Result};

use crate::cli::BenchKind;

/// Messages on the way before the receiver answers, as in the OSU benchmarks.
pub(super) const WINDOW: u64 = 64;

/// A rank's part in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Starts, and takes the time.
    Starts {
        /// The rank that answers.
        peer: u32,
    },
    /// Answers.
    Answers {
        /// The rank that starts.
        peer: u32,
    },
    /// The one rank too many of an odd number.
    Idle,
}

impl Part {
    /// Ranks of the first half start, each with its own partner in the second half.
    pub(super) fn of(rank: u32, size: u32) -> Self {
        let half = size / 2;
        match rank {
            r if r < half => Self::Starts { peer: r + half },
            r if r < 2 * half => Self::Answers { peer: r - half },
            _ => Self::Idle,
        }
    }
}

/// One sample: `rounds` times what the bench does, with the message in `buffer`.
pub(super) fn sample(
    kind: BenchKind,
    comm: &Comm,
    part: Part,
    rounds: u64,
    buffer: &mut [u8],
) -> Result<()> {
    match (kind, part) {
        (_, Part::Idle) => Ok(()),
        (BenchKind::Latency, part) => ping_pong(comm, part, rounds, buffer),
        (BenchKind::Bandwidth | BenchKind::Rate, part) => windows(comm, part, rounds, buffer),
    }
}

/// To and fro: a round is two messages, one after the other.
fn ping_pong(comm: &Comm, part: Part, rounds: u64, buffer: &mut [u8]) -> Result<()> {
    for _ in 0..rounds {
        match part {
            Part::Starts { peer } => {
                comm.send(buffer, peer, 1)?;
                comm.recv_into(buffer, peer, 1)?;
            }
            Part::Answers { peer } => {
                comm.recv_into(buffer, peer, 1)?;
                comm.send(buffer, peer, 1)?;
            }
            Part::Idle => {}
        }
    }
    Ok(())
}

/// One way: a round is a window of messages that may overlap, and one empty answer.
///
/// The receiver takes them one after the other into the same buffer.
fn windows(comm: &Comm, part: Part, rounds: u64, buffer: &mut [u8]) -> Result<()> {
    for _ in 0..rounds {
        match part {
            Part::Starts { peer } => {
                let message = &*buffer;
                comm.scope(|scope| {
                    for _ in 0..WINDOW {
                        scope.send(message, peer, 1)?;
                    }
                    Ok(())
                })?;
                comm.recv_into(&mut [0_u8; 0], peer, 2)?;
            }
            Part::Answers { peer } => {
                for _ in 0..WINDOW {
                    comm.recv_into(buffer, peer, 1)?;
                }
                comm.send(&[0_u8; 0], peer, 2)?;
            }
            Part::Idle => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_one_partner_and_an_odd_one_rests() {
        for size in 2..9 {
            let mut idle = 0;
            for rank in 0..size {
                match Part::of(rank, size) {
                    Part::Starts { peer } => {
                        assert_eq!(Part::of(peer, size), Part::Answers { peer: rank });
                    }
                    Part::Answers { peer } => {
                        assert_eq!(Part::of(peer, size), Part::Starts { peer: rank });
                    }
                    Part::Idle => idle += 1,
                }
            }
            assert_eq!(idle, size % 2);
        }
    }

    #[test]
    fn every_kind_moves_its_messages_between_any_number_of_ranks() {
        for ranks in [2, 3, 4] {
            portolan::try_threads(ranks, |world| {
                let comm = world.comm();
                let part = Part::of(comm.rank(), comm.size());
                for kind in [BenchKind::Latency, BenchKind::Bandwidth, BenchKind::Rate] {
                    for bytes in [0, 8, 100_000] {
                        let filled = if matches!(part, Part::Starts { .. }) {
                            7
                        } else {
                            0
                        };
                        let mut buffer = vec![filled; bytes];
                        sample(kind, &comm, part, 3, &mut buffer)?;
                        let arrived = matches!(part, Part::Idle) || buffer.iter().all(|&b| b == 7);
                        assert!(arrived, "{kind:?} {bytes}");
                    }
                }
                Ok(())
            })
            .unwrap();
        }
    }
}
