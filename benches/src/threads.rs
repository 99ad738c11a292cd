//! Jobs of pinned threads, as criterion's loops need them.

use std::time::Duration;

use portolan::{Builder, Comm, Error, ErrorKind, Result};

use crate::{allowed_processors, pin};

/// The transports that are compiled in and can connect threads of this process, the best first.
#[must_use]
pub fn transports() -> Vec<&'static str> {
    let joins = |name: &&str| {
        Builder::new()
            .transport(name)
            .try_threads(1, |_| Ok(()))
            .is_ok()
    };
    let all = portolan::transports();
    all.iter().map(|info| info.name).filter(joins).collect()
}

/// Runs `body` on `ranks` threads over a transport and returns the time that rank 0's `body`
/// returns. The body warms up, meets the other ranks at a barrier, and times what it measures.
///
/// Each rank has a processor of its own if there are enough.
///
/// ```
/// use std::time::Duration;
///
/// let time = portolan_benches::threads::timed("shm", 2, |comm| {
///     comm.barrier()?;
///     let begun = comm.wtime();
///     comm.barrier()?;
///     Ok(comm.wtime() - begun)
/// })?;
/// assert!(time > Duration::ZERO);
/// # Ok::<(), portolan::Error>(())
/// ```
///
/// # Errors
/// Those of `body` and of [`Builder::try_threads`];
/// [`Internal`](ErrorKind::Internal) if rank 0's time is none.
pub fn timed(
    transport: &str,
    ranks: u32,
    body: impl Fn(&Comm) -> Result<f64> + Sync,
) -> Result<Duration> {
    let processors = allowed_processors();
    let seconds = Builder::new()
        .transport(transport)
        .try_threads(ranks, |world| {
            let rank = world.rank() as usize;
            if ranks as usize <= processors.len() {
                // If pinning fails, the figure is less reliable, but still a figure.
                let _ = pin(processors[rank]);
            }
            body(&world.comm())
        })?;
    Duration::try_from_secs_f64(seconds[0]).map_err(|error| {
        let what = format!("rank 0 measured {} seconds: {error}", seconds[0]);
        Error::new(ErrorKind::Internal, what).on_rank(0)
    })
}
