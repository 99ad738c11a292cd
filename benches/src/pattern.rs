//! What ranks do, and what the time that it takes means.

use portolan::level::Level;
use portolan::{Comm, Device, Result};

use crate::window::Window;
use crate::{Buffers, Role};

/// Tag of the messages that are measured.
const MESSAGE: u32 = 1;
/// Tag of the receiver's answer to a window.
const ANSWER: u32 = 2;

/// What is measured. The patterns are those of the OSU suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Half a round trip, as `osu_latency`.
    Latency,
    /// Windows of messages one way, each window answered, as `osu_bw`.
    Bandwidth,
    /// Windows both ways at a time, as `osu_bibw`.
    Bibandwidth,
    /// As `Bandwidth`, counting messages, as `osu_mbw_mr`.
    Rate,
    /// A barrier of all ranks, as `osu_barrier`.
    Barrier,
    /// Half a round trip of [8 bytes](Self::message_bytes) while receives that do not match are
    /// waiting on both sides.
    Depth,
}

impl Pattern {
    /// Every pattern.
    pub const ALL: [Self; 6] = [
        Self::Latency,
        Self::Bandwidth,
        Self::Bibandwidth,
        Self::Rate,
        Self::Barrier,
        Self::Depth,
    ];

    /// Its name, on command lines and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Bibandwidth => "bibandwidth",
            Self::Rate => "rate",
            Self::Barrier => "barrier",
            Self::Depth => "depth",
        }
    }

    /// The unit of its values. A megabyte is 10⁶ bytes.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Latency | Self::Barrier | Self::Depth => "us",
            Self::Bandwidth | Self::Bibandwidth => "MB/s",
            Self::Rate => "messages/s",
        }
    }

    /// Whether a smaller value is a better one.
    #[must_use]
    pub fn less_is_better(self) -> bool {
        self.unit() == "us"
    }

    /// Whether it is one between pairs of ranks.
    #[must_use]
    pub fn is_paired(self) -> bool {
        self != Self::Barrier
    }

    /// Length of a message, if the [plan](crate::Plan) says `size`: the same, except where that is
    /// the number of receives that wait.
    #[must_use]
    pub fn message_bytes(self, size: usize) -> usize {
        if self == Self::Depth { 8 } else { size }
    }

    /// How many receives wait while messages pass, if the plan says `size`.
    #[must_use]
    pub fn waiting(self, size: usize) -> usize {
        if self == Self::Depth { size } else { 0 }
    }

    /// What it means that so many rounds took that many seconds.
    #[must_use]
    pub fn value(self, seconds: f64, rounds: u64, bytes: usize, window: u32) -> f64 {
        let rounds = rounds as f64;
        let messages = rounds * f64::from(window);
        match self {
            Self::Latency | Self::Depth => seconds / (2.0 * rounds) * 1e6,
            Self::Bandwidth => messages * bytes as f64 / seconds / 1e6,
            Self::Bibandwidth => 2.0 * messages * bytes as f64 / seconds / 1e6,
            Self::Rate => messages / seconds,
            Self::Barrier => seconds / rounds * 1e6,
        }
    }

    /// Does it `rounds` times, on every rank of `comm`.
    ///
    /// # Errors
    /// Those of the calls, such as [`PeerFailed`](portolan::ErrorKind::PeerFailed).
    pub fn run<L: Level, D: Device>(
        self,
        comm: &Comm<L, D>,
        rounds: u64,
        window: u32,
        buffers: &mut Buffers,
    ) -> Result<()> {
        match (self, Role::of(comm.rank(), comm.size())) {
            (Self::Barrier, _) => (0..rounds).try_for_each(|_| comm.barrier()),
            (_, Role::Rests) => Ok(()),
            (Self::Latency | Self::Depth, role) => ping_pong(comm, role, rounds, buffers),
            (Self::Bibandwidth, role) => both_ways(comm, role, rounds, window, buffers),
            (_, role) => one_way(comm, role, rounds, window, buffers),
        }
    }
}

/// To and fro: a round is two messages, one after the other.
fn ping_pong<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    buffers: &mut Buffers,
) -> Result<()> {
    let (send, receive) = buffers.both();
    match role {
        Role::Starts { peer } => {
            for _ in 0..rounds {
                comm.send(send, peer, MESSAGE)?;
                comm.recv_into(receive, peer, MESSAGE)?;
            }
        }
        Role::Answers { peer } => {
            for _ in 0..rounds {
                comm.recv_into(receive, peer, MESSAGE)?;
                comm.send(send, peer, MESSAGE)?;
            }
        }
        Role::Rests => {}
    }
    Ok(())
}

/// One way: a round is a window of messages that may overlap, and a short answer.
fn one_way<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    messages: u32,
    buffers: &mut Buffers,
) -> Result<()> {
    let (send, receive) = buffers.both();
    let mut window = Window::new(comm, messages, send, receive);
    let mut answer = [0_u8; 4];
    match role {
        Role::Starts { peer } => {
            for _ in 0..rounds {
                window.send(peer, MESSAGE)?;
                window.wait()?;
                comm.recv_into(&mut answer, peer, ANSWER)?;
            }
        }
        Role::Answers { peer } => {
            for _ in 0..rounds {
                window.receive(peer, MESSAGE)?;
                window.wait()?;
                comm.send(&answer, peer, ANSWER)?;
            }
        }
        Role::Rests => {}
    }
    Ok(())
}

/// Both ways: a round is a window each way.
fn both_ways<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    messages: u32,
    buffers: &mut Buffers,
) -> Result<()> {
    let (send, receive) = buffers.both();
    let mut window = Window::new(comm, messages, send, receive);
    let Some(peer) = role.peer() else {
        return Ok(());
    };
    for _ in 0..rounds {
        window.receive(peer, MESSAGE)?;
        window.send(peer, MESSAGE)?;
        window.wait()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_their_units() {
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
        // 10 round trips in 20 µs: 1 µs one way.
        near(Pattern::Latency.value(20e-6, 10, 8, 64), 1.0);
        near(Pattern::Barrier.value(20e-6, 10, 0, 64), 2.0);
        // 10 windows of 64 messages of 1000 bytes in 1 ms: 640 MB/s, 640,000 messages/s.
        near(Pattern::Bandwidth.value(1e-3, 10, 1000, 64), 640.0);
        near(Pattern::Bibandwidth.value(1e-3, 10, 1000, 64), 1280.0);
        near(Pattern::Rate.value(1e-3, 10, 1000, 64), 640_000.0);
    }

    #[test]
    fn every_pattern_moves_its_messages_between_any_number_of_ranks() {
        for ranks in [2, 3, 4] {
            portolan::try_threads(ranks, |world| {
                let comm = world.comm();
                let role = Role::of(comm.rank(), comm.size());
                for pattern in Pattern::ALL {
                    for bytes in [0, 8, 100_000] {
                        let mine = comm.rank() as u8 + 1;
                        let mut buffers = Buffers::new(bytes, mine)?;
                        pattern.run(&comm, 3, 40, &mut buffers)?;
                        let one_way = matches!(pattern, Pattern::Bandwidth | Pattern::Rate);
                        let theirs = match role {
                            _ if !pattern.is_paired() => 0,
                            Role::Starts { .. } if one_way => 0,
                            role => role.peer().map_or(0, |peer| peer as u8 + 1),
                        };
                        let arrived = buffers.received().iter().all(|&b| b == theirs);
                        assert!(arrived, "{pattern:?}, {bytes} bytes, {ranks} ranks");
                    }
                }
                Ok(())
            })
            .unwrap();
        }
    }
}
