//! Helpers that the tests of this crate share.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use portolan::Level;
use portolan::{AnyDevice, Builder, Result, World};

/// The sizes of jobs at which everything is tested.
pub(crate) const SIZES: [u32; 6] = [1, 2, 3, 4, 5, 8];

/// The transports that are compiled in and connect threads of one process.
pub(crate) fn transports() -> Vec<&'static str> {
    let compiled = [
        ("shm", cfg!(feature = "shm")),
        ("memory", cfg!(feature = "memory")),
    ];
    let names: Vec<_> = compiled
        .into_iter()
        .filter_map(|(name, is)| is.then_some(name))
        .collect();
    assert!(
        !names.is_empty(),
        "compiled without any transport: nothing would be tested"
    );
    names
}

/// Runs `body` as jobs of these sizes over every transport; the test fails if a rank does.
#[track_caller]
pub(crate) fn jobs(sizes: &[u32], body: impl Fn(World) -> Result<()> + Sync) {
    jobs_with(Builder::new(), sizes, body);
}

/// As [`jobs`], with a builder.
#[track_caller]
pub(crate) fn jobs_with<L: Level>(
    builder: Builder<L>,
    sizes: &[u32],
    body: impl Fn(World<L>) -> Result<()> + Sync,
) where
    AnyDevice<L>: Send,
{
    for transport in transports() {
        for &n in sizes {
            let job = builder.clone().transport(transport);
            let results = job.try_threads(n, &body);
            assert_eq!(results.expect(transport).len(), n as usize);
        }
    }
}

/// A value that differs from rank to rank and place to place.
pub(crate) fn value(rank: u32, index: usize) -> u64 {
    u64::from(rank) << 32 | index as u64
}
