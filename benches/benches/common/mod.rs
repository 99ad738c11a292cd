//! Shared parts of the benches between ranks.

// Each bench is a crate of its own and uses only some of these items.
#![allow(dead_code)]

use std::sync::OnceLock;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use portolan::{Comm, Result};
use portolan_benches::{Buffers, Pattern, Steps, threads};

/// Messages in a window, as in the OSU suite.
pub(crate) const WINDOW: u32 = 64;

/// Short measurements, so that the whole suite can be run between two changes of the code.
pub(crate) fn quick() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .without_plots()
}

/// Every device that can be compiled in.
const DEVICES: [&str; 4] = ["shm", "ofi", "t3e-sim", "memory"];
/// Devices that people look for, and that are not written.
const UNWRITTEN: [&str; 1] = ["ucx"];

/// The devices that are measured. If a filter names a device that is not among them, that is
/// reported, once.
pub(crate) fn transports() -> Vec<&'static str> {
    static HERE: OnceLock<Vec<&'static str>> = OnceLock::new();
    let found = || {
        let here = threads::transports();
        for filter in std::env::args().skip(1) {
            let all = DEVICES.iter().chain(&UNWRITTEN);
            let missing = all.filter(|name| filter.contains(*name) && !here.contains(name));
            missing.for_each(|name| say_missing(name));
        }
        here
    };
    HERE.get_or_init(found).clone()
}

#[expect(
    clippy::print_stderr,
    reason = "what is not measured is said to whoever asked for it"
)]
fn say_missing(name: &str) {
    if UNWRITTEN.contains(&name) {
        eprintln!(
            "{name} is missing: there is no such device; choose from {}",
            DEVICES.join(", ")
        );
        return;
    }
    let compiled = portolan::transports();
    match compiled.iter().find(|info| info.name == name) {
        None => eprintln!(
            "{name} is missing: it is not compiled in (cargo bench -p portolan-benches --features {name} -- {name})"
        ),
        Some(info) => eprintln!(
            "{name} is missing: {}",
            info.unusable
                .as_deref()
                .unwrap_or("it cannot join threads of one process here")
        ),
    }
}

/// Rounds of warm-up before `rounds` that count. Only one where criterion runs every bench once,
/// without measuring: it measures for `cargo bench`, which passes `--bench`.
pub(crate) fn warm_up(rounds: u64) -> u64 {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    if has("--bench") && !has("--test") {
        rounds / 10 + 10
    } else {
        1
    }
}

/// Measures a body on two ranks: `run(comm, rounds)` must do the same number of rounds on both.
pub(crate) fn between_two(
    transport: &str,
    rounds: u64,
    run: impl Fn(&Comm, u64) -> Result<()> + Sync,
) -> Duration {
    let timed = threads::timed(transport, 2, |comm| {
        run(comm, warm_up(rounds))?;
        comm.barrier()?;
        let begun = comm.wtime();
        run(comm, rounds)?;
        Ok(comm.wtime() - begun)
    });
    timed.unwrap_or_else(|error| panic!("{transport}: {error}"))
}

/// Measures a pattern over every transport, for messages of several sizes:
/// `PATTERN/TRANSPORT/BYTES`.
pub(crate) fn pattern(c: &mut Criterion, pattern: Pattern, sizes: &[usize]) {
    for transport in transports() {
        for &bytes in sizes {
            let mut group = c.benchmark_group(pattern.name());
            match pattern {
                Pattern::Bandwidth | Pattern::Bibandwidth => {
                    let window = bytes as u64 * u64::from(WINDOW);
                    group.throughput(Throughput::Bytes(window));
                }
                Pattern::Rate => {
                    group.throughput(Throughput::Elements(WINDOW.into()));
                }
                _ => {}
            }
            group.bench_function(BenchmarkId::new(transport, bytes), |bencher| {
                bencher.iter_custom(|rounds| {
                    let time = between_two(transport, rounds, |comm, rounds| {
                        let mut buffers = Buffers::new(bytes, comm.rank() as u8)?;
                        Steps::new(pattern, bytes, WINDOW).run(comm, rounds, &mut buffers)
                    });
                    // One way is half of a round trip.
                    if pattern == Pattern::Latency {
                        time / 2
                    } else {
                        time
                    }
                });
            });
            group.finish();
        }
    }
}
