//! Patterns whose figure is not the time of a round.

use std::ops::DerefMut;

use std::thread;
use std::time::Duration;

use portolan::Level;
use portolan::{Comm, Device, Error, ErrorKind, Result};

use crate::hidden::{compute, hidden_share, seconds_of_a_turn};
use crate::measure::timed;
use crate::process::{Whose, monotonic_nanoseconds, processor_seconds, proportional_kib};
use crate::window::Window;
use crate::{Buffers, Pattern, Plan, Role, Setup};

/// Tag of the messages.
const MESSAGE: u32 = 1;
/// Tag of the message by which the receiver says that it is ready.
const READY: u32 = 2;
/// Messages in each direction before the memory of two ranks is measured: enough for all that they
/// remember of each other.
const TALKS: u32 = 32;
/// Length of the sender's computation, as a multiple of the time of a send.
const COMPUTES: f64 = 4.0;

/// What a sender has measured in all rounds of a call, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Time in sends, from their beginning until they are complete.
    send: f64,
    /// Time in computations in between.
    compute: f64,
}

/// The share of a send in percent that is hidden behind a computation, and the number of rounds.
///
/// First, sends alone are timed. Then the sender computes for several times as long between the
/// start of each send and waiting for it. The time by which a send then exceeds the computation was
/// not hidden.
pub(crate) fn overlap<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    setup: &Setup,
    plan: &Plan,
) -> Result<(f64, u64)> {
    let fill = comm.rank() as u8;
    if setup.allocated {
        let buffers = Buffers::allocated(comm, 1, plan.bytes, fill)?;
        return hidden(comm, role, setup, plan, buffers);
    }
    hidden(comm, role, setup, plan, Buffers::new(plan.bytes, fill)?)
}

fn hidden<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    setup: &Setup,
    plan: &Plan,
    mut buffers: Buffers<impl DerefMut<Target = [u8]>>,
) -> Result<(f64, u64)> {
    let each = seconds_of_a_turn();
    let mut alone = Seen::default();
    let (_, rounds) = timed(comm, setup, plan, |rounds| {
        alone = sends(comm, role, rounds, 0, &mut buffers)?;
        Ok(())
    })?;
    let pure = alone.send / rounds as f64;
    let turns = (COMPUTES * pure / each) as u64;
    comm.barrier()?;
    let both = sends(comm, role, rounds, turns, &mut buffers)?;
    let share = hidden_share(alone.send, both.send, both.compute);
    Ok((share, rounds))
}

fn sends<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    turns: u64,
    buffers: &mut Buffers<impl DerefMut<Target = [u8]>>,
) -> Result<Seen> {
    let (send, receive) = buffers.both();
    let mut seen = Seen::default();
    match role {
        Role::Starts { peer } => {
            let mut window = Window::new(comm, 1, [send], [&mut [][..]]);
            for _ in 0..rounds {
                comm.recv_into(&mut [0_u8; 4], peer, READY)?;
                let begun = comm.wtime();
                window.send(peer, MESSAGE)?;
                let started = comm.wtime();
                compute(turns);
                let computed = comm.wtime();
                window.wait()?;
                seen.send += comm.wtime() - begun;
                seen.compute += computed - started;
            }
        }
        Role::Answers { peer } => {
            for _ in 0..rounds {
                comm.send(&[0_u8; 4], peer, READY)?;
                comm.recv_into(receive, peer, MESSAGE)?;
            }
        }
        Role::Rests => {}
    }
    Ok(seen)
}

/// The processor time of a waiting rank, in percent of the time that it waits.
pub(crate) fn idle<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    seconds: f64,
) -> Result<f64> {
    comm.barrier()?;
    let mut used = 0.0;
    match role {
        Role::Starts { peer } => {
            thread::sleep(Duration::from_secs_f64(seconds));
            comm.send(&[0_u8; 8], peer, MESSAGE)?;
        }
        Role::Answers { peer } => {
            let (begun, before) = (comm.wtime(), processor_seconds(Whose::Process));
            comm.recv_into(&mut [0_u8; 8], peer, MESSAGE)?;
            used = (processor_seconds(Whose::Process) - before) / (comm.wtime() - begun);
        }
        Role::Rests => {}
    }
    Ok(100.0 * used)
}

/// Milliseconds from the start of the job until this rank has received a message from a neighbour.
pub(crate) fn startup<L: Level, D: Device>(comm: &Comm<L, D>, begun: u64) -> Result<f64> {
    talk(comm, 1)?;
    let now = monotonic_nanoseconds();
    Ok(now.saturating_sub(begun) as f64 / 1e6)
}

/// Memory of this rank in KiB after it has exchanged messages.
pub(crate) fn memory<L: Level, D: Device>(comm: &Comm<L, D>, pattern: Pattern) -> Result<f64> {
    let farthest = match pattern {
        Pattern::MemoryAll => comm.size().saturating_sub(1),
        _ => 1.min(comm.size() - 1),
    };
    for distance in 1..=farthest {
        (0..TALKS).try_for_each(|_| talk(comm, distance))?;
    }
    meet(comm)?;
    let kib = proportional_kib().map_err(|error| {
        let what = format!("the system does not tell the memory of this process: {error}");
        Error::new(ErrorKind::Internal, what).on_rank(comm.rank())
    })?;
    // No rank leaves before all ranks have measured, because shared memory is divided among the
    // ranks that are there.
    meet(comm)?;
    Ok(kib)
}

/// Waits until all ranks are here: a message goes around the ring twice. In a barrier, ranks would
/// talk that otherwise do not, and would need memory for each other.
fn meet<L: Level, D: Device>(comm: &Comm<L, D>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let (above, below) = ((rank + 1) % size, (rank + size - 1) % size);
    for _ in 0..2 {
        if rank > 0 {
            comm.recv_into(&mut [0_u8], below, MESSAGE)?;
        }
        if size > 1 {
            comm.send(&[0_u8], above, MESSAGE)?;
        }
        if rank == 0 && size > 1 {
            comm.recv_into(&mut [0_u8], below, MESSAGE)?;
        }
    }
    Ok(())
}

/// Sends a message to the rank `distance` above, and receives one from the rank `distance` below,
/// both modulo the number of ranks.
fn talk<L: Level, D: Device>(comm: &Comm<L, D>, distance: u32) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let (above, below) = ((rank + distance) % size, (rank + size - distance) % size);
    let (out, mut back) = ([rank], [u32::MAX]);
    comm.sendrecv(&out, above, MESSAGE, &mut back, below, MESSAGE)?;
    if back[0] == below {
        return Ok(());
    }
    let what = format!(
        "a message from rank {below} says that it is from rank {}",
        back[0]
    );
    Err(Error::new(ErrorKind::Internal, what).on_rank(rank))
}
