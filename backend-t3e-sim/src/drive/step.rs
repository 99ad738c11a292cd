//! One host thread steps all PEs: no hand-over, no stack per PE.

use portolan_core::{Error, Result};

use crate::machine::{Call, Machine, Next, Reply, Time};

/// The program of a PE, cut into steps at its calls.
pub trait Program {
    /// Returns the PE's next call and how long the PE computes before it; `None` when the program
    /// is done. `reply` is the end of its last call; there is none at the start.
    fn next(&mut self, reply: Option<&Reply>) -> Option<(Time, Call)>;
}

/// Runs one program per PE to its end. Returns when each has ended.
///
/// # Errors
/// [`Aborted`](portolan_core::ErrorKind::Aborted) if all PEs that are left wait.
///
/// # Panics
/// If the number of programs is not the number of PEs.
pub fn step(machine: &mut Machine, programs: &mut [impl Program]) -> Result<Vec<Time>> {
    assert_eq!(programs.len(), machine.pes() as usize, "one program per PE");
    for (pe, program) in (0..).zip(programs.iter_mut()) {
        let (charged, call) = program.next(None).unwrap_or((Time::ZERO, Call::Leave));
        machine.submit(pe, charged, call);
    }
    loop {
        match machine.advance() {
            Next::Resume(pe, reply) => {
                // A PE that has left runs no more.
                if machine.running() == 0 {
                    continue;
                }
                let next = programs[pe as usize].next(Some(&reply));
                let (charged, call) = next.unwrap_or((Time::ZERO, Call::Leave));
                machine.submit(pe, charged, call);
            }
            Next::Finished => break,
            Next::Deadlock(text) => machine.stop(text, "see which PE should have acted first"),
            Next::Stopped(refusal) => return Err(Error::from(refusal)),
        }
    }
    Ok((0..machine.pes()).map(|pe| machine.clock(pe)).collect())
}
