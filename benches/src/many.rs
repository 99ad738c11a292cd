//! Several threads of a rank at a time.

use std::panic::resume_unwind;
use std::thread;

use portolan::Multiple;
use portolan::{Comm, Device, Result};

use crate::pattern::ping_pong;
use crate::{Buffers, Role};

/// Runs ping-pongs of `rounds` rounds, one for each of `buffers`, each in a thread of its own and
/// with a tag of its own.
pub(crate) fn run<D: Device + Sync>(
    comm: &Comm<Multiple, D>,
    role: Role,
    rounds: u64,
    buffers: &mut [Buffers],
) -> Result<()>
where
    Comm<Multiple, D>: Sync,
{
    thread::scope(|scope| {
        let each = |(tag, buffers): (usize, _)| {
            scope.spawn(move || ping_pong(comm, role, rounds, tag as u32, buffers))
        };
        let threads: Vec<_> = buffers.iter_mut().enumerate().map(each).collect();
        // All threads are joined, whichever fails first.
        let outcomes: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect();
        outcomes.into_iter().collect()
    })
}
