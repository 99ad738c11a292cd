//! SHMEM: the calls of a PE.
//!
//! Names follow the T3E's library without its prefix: [`Shmem::put64`] is `shmem_put64`. Each call
//! costs virtual time, and lets other PEs run. The computation of a PE in between takes no virtual
//! time unless it is [charged](Shmem::charge).

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
/// It is not shared between threads: this machine has no thread level Multiple.
pub struct Shmem {
    link: Box<dyn Link>,
    welcome: Welcome,
    /// The end of the last call.
    clock: Time,
    /// Computation charged since then.
    charged: Time,
    changes: u64,
    failures: u32,
    arrivals: Vec<Arrival>,
    left: bool,
    /// The machine, if this process emulates it; dropped after this PE has left.
    host: Option<Host>,
}

impl Shmem {
    /// Makes the PE at the other end of a link.
    #[must_use]
    pub fn new(link: Box<dyn Link>) -> Self {
        Self::hosted(link, None)
    }

    /// Like [`new`](Self::new), for a process that may emulate the machine (`host`): dropping the
    /// PE then waits for all other PEs.
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

    /// The number of PEs (`_num_pes`).
    #[must_use]
    pub fn n_pes(&self) -> u32 {
        self.welcome.pes
    }

    /// The costs of the machine's steps.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.welcome.costs
    }

    /// Reads the clock (`rtclock`). This costs time, so that a loop that waits for a moment lets
    /// other PEs run.
    ///
    /// # Errors
    /// If the machine has stopped.
    pub fn now(&mut self) -> Result<Time> {
        Ok(self.call(Call::Now)?.clock)
    }

    /// The clock at this moment. This is no call, and costs nothing.
    #[must_use]
    pub fn clock(&self) -> Time {
        self.clock + self.charged
    }

    /// Charges computation to the clock. This is no call: the machine hears of it with the next
    /// one.
    pub fn charge(&mut self, computation: Time) {
        self.charged += computation.scaled(self.welcome.slowness);
    }

    /// Charges a copy of `bytes` inside local memory.
    pub fn charge_copy(&mut self, bytes: usize) {
        self.charge(self.welcome.costs.copy(bytes));
    }

    /// Says what this PE is about to do, for the report of a deadlock. Costs next to no time.
    ///
    /// # Errors
    /// If the machine has stopped.
    pub fn note(&mut self, text: impl Into<String>) -> Result<()> {
        self.done(Call::Note { text: text.into() })
    }

    /// Declares a PE failed to all others, once. Their waits end, and [`failures`](Self::failures)
    /// counts the PE.
    ///
    /// # Errors
    /// If there is no such PE, or the machine has stopped.
    pub fn declare_failed(&mut self, pe: u32, why: &str) -> Result<()> {
        self.done(Call::Declare {
            pe,
            why: why.to_owned(),
        })
    }

    /// The number of PEs that had failed at the end of the last call.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Why a PE is held to be failed, if it is. Costs next to no time.
    ///
    /// # Errors
    /// If there is no such PE, or the machine has stopped.
    pub fn failure_of(&mut self, pe: u32) -> Result<Option<String>> {
        if self.failures == 0 && pe < self.n_pes() {
            // No PE had failed at the end of the last call, so there is no need to ask about this
            // one.
            return Ok(None);
        }
        match self.call(Call::FailureOf { pe })?.answer {
            Answer::Text(text) => Ok(text),
            other => Err(unexpected(&other)),
        }
    }

    /// Leaves the machine: other PEs no longer wait for this one in a barrier. Dropping the PE does
    /// the same.
    pub fn leave(&mut self) {
        if !self.left {
            self.left = true;
            // A PE has left a stopped machine, too.
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

/// The error for an answer of the wrong kind.
fn unexpected(answer: &Answer) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("the machine answered {answer:?}"),
    )
    .on_device("t3e-sim")
}
