//! The conformance suite over libfabric, with threads as ranks; over processes, see
//! `examples/conformance_rank.rs`.
//!
//! Without a libfabric every test is skipped, and says so.

// The reader of test results knows these lines.
#![allow(clippy::print_stdout)]

use portolan_conformance::{Job, Over, Transports, suite};
use portolan_ofi::Ofi;

fn open(job: &Job, provider: &str) -> Vec<Ofi> {
    let job = job.clone().set("OFI_PROVIDER", provider).set(
        "OFI_INTERFACE",
        if provider == "shm" { "shm" } else { "lo" },
    );
    portolan_ofi::in_process(job.ranks, &job.settings).expect("an endpoint for each rank")
}

/// TCP over the loopback interface, by the provider that every libfabric has.
struct Tcp;

impl Transports for Tcp {
    type Transport = Ofi;

    const NAME: &'static str = "ofi, tcp";

    fn open(job: &Job) -> Vec<Ofi> {
        open(job, "tcp")
    }
}

mod tcp {
    use super::*;
    suite!(Over<Tcp>);
}

/// libfabric's shared memory.
struct Shm;

impl Transports for Shm {
    type Transport = Ofi;

    const NAME: &'static str = "ofi, shm";

    fn open(job: &Job) -> Vec<Ofi> {
        open(job, "shm")
    }
}

mod shm {
    use super::*;
    suite!(Over<Shm>, few);
}
