//! The conformance suite on the emulated T3E, with threads as ranks; over processes, see
//! `examples/conformance_rank.rs`.

use portolan_conformance::{Job, Sut, on_threads, suite};
use portolan_core::Engine;
use portolan_core::level::Multiple;
use portolan_core::transport::memory::InMemory;
use portolan_t3e_sim::{T3e, device, in_process};

/// A T3E-900 that keeps everything in order.
struct InOrder;

impl Sut for InOrder {
    type Device = T3e;
    type Shared = Engine<InMemory, Multiple>;

    const NAME: &'static str = "t3e-sim";
    const NO_SHARED: Option<&'static str> = Some("the T3E has no thread level Multiple");

    fn run<R: Send>(job: &Job, body: impl Fn(&T3e) -> R + Sync) -> Vec<R> {
        let config = device::config(job.ranks, &job.settings).expect("a machine");
        let pes = in_process(job.ranks, &config).expect("the PEs of a job");
        let make = |pe| T3e::new(pe, &job.settings, false).expect("a device");
        on_threads(pes, make, body)
    }

    fn run_shared<R: Send>(_job: &Job, _body: impl Fn(&Self::Shared) -> R + Sync) -> Vec<R> {
        unreachable!("there is no thread level Multiple")
    }
}

mod full {
    use super::*;
    suite!(InOrder);
}

/// A machine that reorders everything that a T3E may reorder.
struct Reordering;

impl Sut for Reordering {
    type Device = T3e;
    type Shared = Engine<InMemory, Multiple>;

    const NAME: &'static str = "t3e-sim, reordering";
    const NO_SHARED: Option<&'static str> = InOrder::NO_SHARED;

    fn run<R: Send>(job: &Job, body: impl Fn(&T3e) -> R + Sync) -> Vec<R> {
        InOrder::run(&job.clone().set("T3E_SEED", "4711"), body)
    }

    fn run_shared<R: Send>(job: &Job, body: impl Fn(&Self::Shared) -> R + Sync) -> Vec<R> {
        InOrder::run_shared(job, body)
    }
}

mod reordering {
    use super::*;
    suite!(Reordering, few);
}
