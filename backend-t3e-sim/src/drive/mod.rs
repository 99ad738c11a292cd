//! Drivers: they run the PEs of a machine as threads, as processes, or step by step.
//!
//! The machine itself has no threads and waits for nothing. A driver hands it one call after the
//! other, and passes the baton to the PE that the machine names, so that exactly one PE's program
//! runs.

pub(crate) mod frame;
mod processes;
mod step;
mod threads;
mod watchdog;

use portolan_core::Result;
use serde::{Deserialize, Serialize};

pub use processes::{Host, join};
pub use step::{Program, step};
pub use threads::threads;

use crate::machine::{Call, Costs, Machine, Reply, Time};

/// A PE's connection to its machine.
pub trait Link: Send {
    /// The facts about the machine and this PE that the PE was given when it joined.
    fn welcome(&self) -> &Welcome;

    /// Hands a call to the machine and waits for its end. The call starts `charged` after the end
    /// of the last one.
    ///
    /// # Errors
    /// When the machine has stopped: all PEs wait, a PE made no call for too long, or the process
    /// that emulates the machine has gone. A refused call is not an error here: see
    /// [`Answer::Refused`](crate::machine::Answer::Refused).
    fn call(&mut self, charged: Time, call: Call) -> Result<Reply>;
}

/// The facts that a PE is given when it joins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The number of this PE.
    pub pe: u32,
    /// The number of PEs.
    pub pes: u32,
    /// Bytes of symmetric heap.
    pub heap: usize,
    /// The factor by which this PE is slower than it should be; 1 for a sound one.
    pub slowness: f64,
    /// The costs of the machine's steps.
    pub costs: Costs,
}

impl Welcome {
    fn new(machine: &Machine, pe: u32) -> Self {
        Self {
            pe,
            pes: machine.pes(),
            heap: machine.heap_size(),
            slowness: machine.slowness(pe),
            costs: machine.costs().clone(),
        }
    }
}
