//! SHMEM: the calls of a PE.
//!
//! Names follow the T3E's library without its prefix: [`Shmem::put64`] is `shmem_put64`. Each call
//! costs virtual time and is a moment at which other PEs may run. What a PE computes in between
//! takes no virtual time unless it is [charged](Shmem::charge).

mod access;
mod atomics;
mod collective;
mod heap;
mod team;
mod wait;

pub use collective::{Reduction, work_words};
use portolan_core::{Error, ErrorKind, Result};
pub use team::{ActiveSet, SYNC_WORDS};

use crate::drive::{Host, Link, Welcome};
use crate::machine::{Answer, Arrival, Call, Costs, Reply, Time};

/// One PE.
///
/// Not shared between threads: thread level Multiple does not exist on this machine.
pub struct Shmem {
    link: Box<dyn Link>,
    welcome: Welcome,
    /// The end of the last call.
    clock: Time,
    /// Computation since then.
    charged: Time,
    changes: u64,
    failures: u32,
    arrivals: Vec<Arrival>,
    left: bool,
    /// The machine, where it lives in this process: dropped when this PE has left.
    host: Option<Host>,
}

impl Shmem {
    /// The PE at the other end of a link.
    #[must_use]
    pub fn new(link: Box<dyn Link>) -> Self {
        Self::hosted(link, None)
    }

    /// The same; dropping it waits for all other PEs of a machine that this process emulates.
    #[must_use]
    pub fn hosted(link: Box<dyn Link>, host: Option<Host>) -> Self {
        let welcome = link.welcome().clone();
        Self {
            link,
            welcome,
            clock: Time::ZERO,
            charged: Time::ZERO,
            changes: 0,
            failures: 0,
            arrivals: Vec::new(),
            left: false,
            host,
        }
    }

    /// This PE's number (`_my_pe`).
    #[must_use]
    pub fn my_pe(&self) -> u32 {
        self.welcome.pe
    }

    /// How many PEs there are (`_num_pes`).
    #[must_use]
    pub fn n_pes(&self) -> u32 {
        self.welcome.pes
    }

    /// What things cost on this machine.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.welcome.costs
    }

    /// Reads the clock (`rtclock`). Costs time, so that a loop that waits for a moment lets others
    /// run.
    ///
    /// # Errors
    /// When the machine has stopped.
    pub fn now(&mut self) -> Result<Time> {
        Ok(self.call(Call::Now)?.clock)
    }

    /// The clock as it is now, without a call: costs nothing.
    #[must_use]
    pub fn clock(&self) -> Time {
        self.clock + self.charged
    }

    /// Charges computation to the clock. No call: the machine hears of it with the next one.
    pub fn charge(&mut self, computation: Time) {
        self.charged += computation.scaled(self.welcome.slowness);
    }

    /// Charges a copy of `bytes` inside local memory.
    pub fn charge_copy(&mut self, bytes: usize) {
        self.charge(self.welcome.costs.copy(bytes));
    }

    /// Says what this PE is about to do, for the report of a deadlock. Costs no time.
    ///
    /// # Errors
    /// When the machine has stopped.
    pub fn note(&mut self, text: impl Into<String>) -> Result<()> {
        self.done(Call::Note { text: text.into() })
    }

    /// Declares a PE failed to all others, once; their waits end and [`failures`](Self::failures)
    /// counts it.
    ///
    /// # Errors
    /// If there is no such PE, or the machine has stopped.
    pub fn declare_failed(&mut self, pe: u32, why: &str) -> Result<()> {
        self.done(Call::Declare {
            pe,
            why: why.to_owned(),
        })
    }

    /// How many PEs had failed at the end of the last call.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Why a PE is held to be failed. Costs no time.
    ///
    /// # Errors
    /// If there is no such PE, or the machine has stopped.
    pub fn failure_of(&mut self, pe: u32) -> Result<Option<String>> {
        if self.failures == 0 && pe < self.n_pes() {
            // Nobody had failed at the end of the last call: no need to ask about everybody.
            return Ok(None);
        }
        match self.call(Call::FailureOf { pe })?.answer {
            Answer::Text(text) => Ok(text),
            other => Err(unexpected(&other)),
        }
    }

    /// Leaves the machine: other PEs no longer wait for this one in a barrier. Dropping does the
    /// same.
    pub fn leave(&mut self) {
        if !self.left {
            self.left = true;
            // A machine that has stopped has been left, too.
            let _ = self.call(Call::Leave);
        }
    }

    /// Makes a call; a refusal becomes an error.
    fn call(&mut self, call: Call) -> Result<Reply> {
        let charged = std::mem::take(&mut self.charged);
        let me = self.my_pe();
        let mut reply = self.link.call(charged, call).map_err(|e| e.on_rank(me))?;
        self.arrivals.append(&mut reply.arrivals);
        self.clock = reply.clock;
        self.changes = reply.changes;
        self.failures = reply.failures;
        match reply.answer {
            Answer::Refused(refusal) => Err(Error::from(refusal).on_rank(me)),
            _ => Ok(reply),
        }
    }

    fn done(&mut self, call: Call) -> Result<()> {
        self.call(call).map(drop)
    }

    fn bytes(&mut self, call: Call) -> Result<Vec<u8>> {
        match self.call(call)?.answer {
            Answer::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    fn word(&mut self, call: Call) -> Result<u64> {
        match self.call(call)?.answer {
            Answer::Word(word) => Ok(word),
            other => Err(unexpected(&other)),
        }
    }
}

impl Drop for Shmem {
    fn drop(&mut self) {
        self.leave();
        drop(self.host.take());
    }
}

impl std::fmt::Debug for Shmem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "PE {} of {} at {}",
            self.my_pe(),
            self.n_pes(),
            self.clock()
        )
    }
}

/// The machine answered something else than was asked.
fn unexpected(answer: &Answer) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("the machine answered {answer:?}"),
    )
    .on_device("t3e-sim")
}
