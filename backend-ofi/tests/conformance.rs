//! The conformance suite over libfabric, with threads as ranks; over processes, at more sizes and with more
//! providers, see `examples/conformance_rank.rs`.
//!
//! Without a libfabric every test is skipped, and says so.

use portolan_conformance::{Job, Over, Transports, suite};
use portolan_ofi::{Config, Ofi, offers};

/// Why there is no such provider here.
fn missing(provider: &str) -> Option<String> {
    match offers(&Config::default()) {
        Err(why) => Some(why),
        Ok((version, offers)) => {
            let layered = |name: &str| name.split(';').any(|layer| layer == provider);
            let there = offers.iter().any(|offer| layered(&offer.provider));
            (!there).then(|| format!("libfabric {version} has no provider {provider} here"))
        }
    }
}

fn open(job: &Job, provider: &str) -> Vec<Ofi> {
    let job = job.clone().set("OFI_PROVIDER", provider);
    portolan_ofi::in_process(job.ranks, &job.settings).expect("an endpoint for each rank")
}

/// TCP over the loopback interface, by the provider that every libfabric has.
struct Tcp;

impl Transports for Tcp {
    type Transport = Ofi;

    const NAME: &'static str = "ofi, tcp";

    fn missing() -> Option<String> {
        missing("tcp")
    }

    fn open(job: &Job) -> Vec<Ofi> {
        open(&job.clone().set("OFI_INTERFACE", "lo"), "tcp")
    }
}

mod tcp {
    use super::*;
    suite!(Over<Tcp>, few);
}

/// libfabric's shared memory.
struct Shm;

impl Transports for Shm {
    type Transport = Ofi;

    const NAME: &'static str = "ofi, shm";

    fn missing() -> Option<String> {
        missing("shm")
    }

    fn open(job: &Job) -> Vec<Ofi> {
        open(job, "shm")
    }
}

mod shm {
    use super::*;
    suite!(Over<Shm>, few);
}
