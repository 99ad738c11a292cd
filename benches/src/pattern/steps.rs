//! What the ranks do in a round.

use std::ops::DerefMut;

use portolan::Level;
use portolan::{Comm, Device, Result};

use super::{Pattern, scoped};
use crate::gpu::{self, GpuBuffers};
use crate::window::{Part, Window};
use crate::{Buffers, Role};

/// Tag of the messages that are measured.
pub(super) const MESSAGE: u32 = 1;
/// Tag of the receiver's answer to a window.
pub(super) const ANSWER: u32 = 2;
/// First tag of the messages that are drained.
const DRAINED: u32 = 1000;

/// The rounds of a pattern for one size.
#[derive(Clone, Debug)]
pub struct Steps {
    pattern: Pattern,
    window: u32,
    /// The order in which messages with a tag each are sent.
    order: Vec<u32>,
}

impl Steps {
    /// Prepares the rounds. `size` is that of the [plan](crate::Plan), `window` the number of
    /// messages in a window.
    #[must_use]
    pub fn new(pattern: Pattern, size: usize, window: u32) -> Self {
        let count = u32::try_from(size).unwrap_or(u32::MAX);
        let order = match pattern {
            Pattern::DrainReverse => (0..count).rev().collect(),
            Pattern::DrainRandom => shuffled(count),
            _ => Vec::new(),
        };
        Self {
            pattern,
            window,
            order,
        }
    }

    /// Runs `rounds` rounds, on every rank of `comm`.
    ///
    /// # Errors
    /// Those of the calls, such as [`PeerFailed`](portolan::ErrorKind::PeerFailed).
    pub fn run<L: Level, D: Device>(
        &self,
        comm: &Comm<L, D>,
        rounds: u64,
        buffers: &mut Buffers<impl DerefMut<Target = [u8]>>,
    ) -> Result<()> {
        use Pattern as P;
        match (self.pattern, Role::of(comm.rank(), comm.size())) {
            (P::Barrier, _) => (0..rounds).try_for_each(|_| comm.barrier()),
            (_, Role::Rests) => Ok(()),
            (P::Bibandwidth, role) => both_ways(role, rounds, windowed(comm, self.window, buffers)),
            (P::Bandwidth | P::Rate, role) => {
                one_way(comm, role, rounds, windowed(comm, self.window, buffers))
            }
            (P::DrainReverse | P::DrainRandom, role) => {
                drain(comm, role, rounds, &self.order, buffers)
            }
            (_, role) => ping_pong(comm, role, rounds, MESSAGE, buffers),
        }
    }

    /// As [`run`](Self::run), with the messages of each window in a scope, for the patterns that
    /// have windows ([`Pattern::has_windows`]). There is a buffer for each message of a window.
    pub(crate) fn run_in_scopes<L: Level, D: Device>(
        &self,
        comm: &Comm<L, D>,
        rounds: u64,
        buffers: &mut Buffers<impl DerefMut<Target = [u8]>>,
    ) -> Result<()> {
        let role = Role::of(comm.rank(), comm.size());
        match self.pattern {
            Pattern::Bibandwidth => scoped::both_ways(comm, role, rounds, self.window, buffers),
            _ => scoped::one_way(comm, role, rounds, self.window, buffers),
        }
    }

    /// As [`run`](Self::run), with buffers on GPUs, for the patterns that can have them
    /// ([`Pattern::has_gpu_buffers`]).
    pub(crate) fn run_on_gpus<L: Level, D: Device>(
        &self,
        comm: &Comm<L, D>,
        rounds: u64,
        buffers: &mut GpuBuffers,
    ) -> Result<()> {
        use Pattern as P;
        match (self.pattern, Role::of(comm.rank(), comm.size())) {
            (_, Role::Rests) => Ok(()),
            (P::Bibandwidth, role) => both_ways(role, rounds, buffers.window(comm, self.window)),
            (P::Bandwidth, role) => one_way(comm, role, rounds, buffers.window(comm, self.window)),
            (_, role) => gpu::ping_pong(comm, role, rounds, MESSAGE, buffers),
        }
    }
}

/// The numbers below `count`, shuffled in an order that is the same everywhere: the C programs
/// under `peers/` compute the same order.
#[must_use]
pub fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut state = 1_u64;
    for last in (1..order.len()).rev() {
        // Knuth's MMIX generator; its upper half is random enough to shuffle.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
    order
}

/// Ping-pong: a round is two messages, one after the other.
pub(crate) fn ping_pong<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    tag: u32,
    buffers: &mut Buffers<impl DerefMut<Target = [u8]>>,
) -> Result<()> {
    let (send, receive) = buffers.both();
    match role {
        Role::Starts { peer } => {
            for _ in 0..rounds {
                comm.send(send, peer, tag)?;
                comm.recv_into(receive, peer, tag)?;
            }
        }
        Role::Answers { peer } => {
            for _ in 0..rounds {
                comm.recv_into(receive, peer, tag)?;
                comm.send(send, peer, tag)?;
            }
        }
        Role::Rests => {}
    }
    Ok(())
}

/// A window of messages between all send buffers and all receive buffers.
fn windowed<'a, L: Level, D: Device>(
    comm: &'a Comm<L, D>,
    messages: u32,
    buffers: &'a mut Buffers<impl DerefMut<Target = [u8]>>,
) -> Window<'a, L, D> {
    let (send, receive) = buffers.each();
    Window::new(comm, messages, send, receive)
}

/// One way: a round is a window of messages that may overlap, and a short answer.
fn one_way<L: Level, D: Device, P: Part>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    mut window: Window<'_, L, D, P>,
) -> Result<()> {
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

/// Both ways: a round is a window in each direction.
fn both_ways<L: Level, D: Device, P: Part>(
    role: Role,
    rounds: u64,
    mut window: Window<'_, L, D, P>,
) -> Result<()> {
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

/// In a round all receives are posted, each with a tag of its own, and then their messages are sent
/// in some order.
fn drain<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    order: &[u32],
    buffers: &mut Buffers<impl DerefMut<Target = [u8]>>,
) -> Result<()> {
    let (send, receive) = buffers.each();
    let mut window = Window::new(comm, order.len() as u32, send, receive);
    let mut answer = [0_u8; 4];
    match role {
        Role::Starts { peer } => {
            for _ in 0..rounds {
                comm.recv_into(&mut answer, peer, ANSWER)?;
                window.send_each(peer, order.iter().map(|at| DRAINED + at))?;
                window.wait()?;
                comm.recv_into(&mut answer, peer, ANSWER)?;
            }
        }
        Role::Answers { peer } => {
            for _ in 0..rounds {
                window.receive_each(peer, (0..order.len() as u32).map(|at| DRAINED + at))?;
                comm.send(&answer, peer, ANSWER)?;
                window.wait()?;
                comm.send(&answer, peer, ANSWER)?;
            }
        }
        Role::Rests => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_moves_its_messages_between_any_number_of_ranks() {
        for ranks in [2, 3, 4] {
            portolan::try_threads(ranks, |world| {
                let comm = world.comm();
                let role = Role::of(comm.rank(), comm.size());
                for pattern in Pattern::SINGLE {
                    for size in [1, 8, 100_000] {
                        let bytes = pattern.message_bytes(size);
                        let mine = comm.rank() as u8 + 1;
                        let mut buffers = Buffers::new(bytes, mine)?;
                        Steps::new(pattern, size, 40).run(&comm, 3, &mut buffers)?;
                        let one_way = matches!(
                            pattern,
                            Pattern::Bandwidth
                                | Pattern::Rate
                                | Pattern::DrainReverse
                                | Pattern::DrainRandom
                        );
                        let theirs = match role {
                            _ if pattern == Pattern::Barrier => 0,
                            Role::Starts { .. } if one_way => 0,
                            role => role.peer().map_or(0, |peer| peer as u8 + 1),
                        };
                        let arrived = buffers.received().flatten().all(|&b| b == theirs);
                        assert!(arrived, "{pattern:?}, size {size}, {ranks} ranks");
                    }
                }
                Ok(())
            })
            .unwrap();
        }
    }

    /// Numbers the send buffers, and counts the receive buffers into which their number has come.
    fn numbers_that_arrive(pattern: Pattern, window: u32, count: u32, scoped: bool) -> [usize; 2] {
        let counts = portolan::try_threads(2, |world| {
            let comm = world.comm();
            let mut buffers = Buffers::several(count, 20_000, 0)?;
            buffers.number();
            let steps = Steps::new(pattern, 20_000, window);
            if scoped {
                steps.run_in_scopes(&comm, 2, &mut buffers)?;
            } else {
                steps.run(&comm, 2, &mut buffers)?;
            }
            let has_its_number =
                |(at, buffer): (usize, &[u8])| buffer.iter().all(|&b| usize::from(b) == at + 1);
            Ok(buffers
                .received()
                .enumerate()
                .filter(|&buffer| has_its_number(buffer))
                .count())
        });
        counts.unwrap().try_into().unwrap()
    }

    #[test]
    fn every_message_has_the_buffer_whose_turn_it_is() {
        let [one, both] = [Pattern::Bandwidth, Pattern::Bibandwidth];
        for scoped in [false, true] {
            assert_eq!(numbers_that_arrive(one, 7, 7, scoped), [0, 7]);
            assert_eq!(numbers_that_arrive(both, 7, 7, scoped), [7, 7]);
            // Buffers that no message uses keep their content.
            assert_eq!(numbers_that_arrive(Pattern::Rate, 3, 5, scoped), [0, 3]);
            // More messages than the scope has places for without allocating.
            assert_eq!(numbers_that_arrive(both, 70, 70, scoped), [70, 70]);
        }
        assert_eq!(numbers_that_arrive(both, 7, 3, false), [3, 3]);
    }

    #[test]
    fn a_shuffle_loses_nothing_and_is_always_the_same() {
        let order = shuffled(1000);
        assert_eq!(order, shuffled(1000));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..1000) && sorted != order);
        assert_eq!(shuffled(0), []);
    }
}
