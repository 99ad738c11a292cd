//! Drivers: what lets the PEs of a machine run as threads, as processes, or step by step.
//!
//! The machine itself has no threads and waits for nothing. A driver hands it one call after the
//! other, and gives the baton to the PE that the machine names: exactly one PE's program runs.

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
    /// What the machine says of itself and of this PE.
    fn welcome(&self) -> &Welcome;

    /// Hands a call to the machine, `charged` after the end of the last one, and waits for its end.
    ///
    /// # Errors
    /// When the machine has stopped: all PEs wait, or a PE made no call for too long, or the
    /// process that emulates the machine has gone. A call that was refused is not an error here:
    /// see [`Answer::Refused`](crate::machine::Answer::Refused).
    fn call(&mut self, charged: Time, call: Call) -> Result<Reply>;
}

/// What a PE is told when it joins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Its number.
    pub pe: u32,
    /// How many there are.
    pub pes: u32,
    /// Bytes of symmetric heap.
    pub heap: usize,
    /// By how much this PE is slower than it should be; 1 for a sound one.
    pub slowness: f64,
    /// What things cost.
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
