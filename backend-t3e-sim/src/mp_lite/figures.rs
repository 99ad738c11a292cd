//! The times of MP_Lite on the emulated machine, in virtual time: the curves of `docs/t3e.md`.
//!
//! The measuring loop is NetPIPE's: a message goes back and forth between two neighbours, and half
//! of a round trip is its time. Nothing here knows a published figure; the tests compare with
//! those.

use std::thread;

use portolan_core::{Error, ErrorKind, Result};

use super::calls::{MpId, MpLite};
use super::on_shmem::{OnShmem, statics};
use super::steps::StepCosts;
use crate::config::Config;
use crate::machine::Time;
use crate::open::in_process;

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The receive is preposted before the message is sent: NetPIPE with its option for that.
    Preposted,
    /// The receive comes after the message, which therefore goes through a buffer at its source.
    Buffered,
    /// The message goes by the simpler module that the paper rejects: nothing is preposted, and the
    /// destination does all transfers.
    ByDestination,
}

/// The number of round trips before the measured ones, and the number of measured ones.
const WARM: u32 = 2;
const MEASURED: u32 = 4;

/// Time of a message of `bytes` bytes between two neighbours of the machine that `config`
/// describes, if MP_Lite's own steps cost `steps`.
///
/// ```
/// use portolan_t3e_sim::Config;
/// use portolan_t3e_sim::mp_lite::{StepCosts, Way, time_of};
///
/// let config = Config::default();
/// let small = time_of(8, Way::Preposted, &config, StepCosts::FITTED)?;
/// let larger = time_of(16, Way::Preposted, &config, StepCosts::FITTED)?;
/// assert!(larger.as_us() - small.as_us() > 5.0, "more handshakes");
/// # Ok::<(), portolan_core::Error>(())
/// ```
///
/// # Errors
/// The errors of the machine.
pub fn time_of(bytes: usize, way: Way, config: &Config, steps: StepCosts) -> Result<Time> {
    let pool = 4 * bytes.max(1 << 10);
    let config = Config {
        statics: statics(2, pool),
        ..config.clone()
    };
    let body = |shmem| {
        let wire = OnShmem::new(shmem, pool).with_steps(steps);
        let mut pe = MpLite::new(wire);
        pe.prepost(way == Way::Preposted);
        let time = measure(&mut pe, bytes, way);
        time.and_then(|time| pe.settle().map(|()| time))
    };
    let pes = in_process(2, &config)?;
    let times: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = pes
            .into_iter()
            .map(|shmem| scope.spawn(move || body(shmem)))
            .collect();
        threads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect()
    });
    let first = times.into_iter().next().and_then(std::result::Result::ok);
    first.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "a PE's thread panicked")))
}

/// Measures half of a round trip, on average.
fn measure(pe: &mut MpLite<OnShmem>, bytes: usize, way: Way) -> Result<Time> {
    let me = pe.wire().shmem().my_pe();
    let mut next = prepare(pe, bytes, way)?;
    // Both have preposted their first receive before either sends.
    pe.wire().shmem().barrier_all()?;
    let mut start = Time::ZERO;
    for round in 0..WARM + MEASURED {
        if round == WARM {
            start = pe.wire().clock();
        }
        if me == 0 {
            send(pe, bytes, way)?;
            receive(pe, next, bytes, way)?;
            next = prepare(pe, bytes, way)?;
        } else {
            receive(pe, next, bytes, way)?;
            next = prepare(pe, bytes, way)?;
            send(pe, bytes, way)?;
        }
    }
    let elapsed = pe.wire().clock().since(start);
    // The receive that was prepared last gets a message, too, so that nothing is left behind.
    send(pe, bytes, way)?;
    receive(pe, next, bytes, way)?;
    Ok(elapsed.scaled(0.5 / f64::from(MEASURED)))
}

/// Posts the next receive, if it is to be posted early.
fn prepare(pe: &mut MpLite<OnShmem>, bytes: usize, way: Way) -> Result<Option<MpId>> {
    match way {
        Way::Preposted | Way::ByDestination => {
            let peer = 1 - pe.wire().shmem().my_pe();
            pe.mp_arecv(Some(peer), 0, bytes).map(Some)
        }
        Way::Buffered => Ok(None),
    }
}

fn send(pe: &mut MpLite<OnShmem>, bytes: usize, way: Way) -> Result<()> {
    let peer = 1 - pe.wire().shmem().my_pe();
    let data = vec![0; bytes];
    let id = match way {
        Way::ByDestination => pe.mp_asend_pulled(peer, 0, data)?,
        _ => pe.mp_asend(peer, 0, data)?,
    };
    pe.mp_wait(id).map(drop)
}

fn receive(pe: &mut MpLite<OnShmem>, prepared: Option<MpId>, bytes: usize, way: Way) -> Result<()> {
    let id = match prepared {
        Some(id) => id,
        None => {
            debug_assert_eq!(way, Way::Buffered);
            let peer = 1 - pe.wire().shmem().my_pe();
            // Wait, so that the message is here before its receive is posted.
            pe.await_message(peer, 0, bytes)?;
            pe.mp_arecv(Some(peer), 0, bytes)?
        }
    };
    pe.mp_wait(id).map(drop)
}
