//! The arithmetic of the C programs: with a clock that counts messages instead of time, their
//! figures are those that Portolan's formulas give for as many messages as a round has.

use std::path::{Path, PathBuf};
use std::process::Command;

use portolan_benches::Pattern;

use crate::common::{Outcome, of_ours, outcome};
use crate::peers::{HYDRA, OPEN, is_here};

/// What the clocks of `steady.c` and `steady_pair.c` advance by, in seconds.
const STEP: f64 = 1.0 / 1024.0;
const STEP_OF_PAIRS: f64 = 1e-3;

/// Two pairs of ranks, so that it matters how their figures are combined.
const RANKS: u32 = 4;
const WINDOW: u32 = 5;
const THREADS: u32 = 3;
const ROUNDS: u64 = 20;

/// Every pattern whose figure is computed from the time of some rounds.
const TIMED: [Pattern; 11] = [
    Pattern::Latency,
    Pattern::Bandwidth,
    Pattern::Bibandwidth,
    Pattern::Rate,
    Pattern::Multithread,
    Pattern::Barrier,
    Pattern::Depth,
    Pattern::DepthWildcard,
    Pattern::DepthUnexpected,
    Pattern::DrainReverse,
    Pattern::DrainRandom,
];

/// How many messages a rank that starts sends and receives in a round, or how many barriers it has:
/// docs/benchmarks.md tells what a round is.
fn steps(pattern: Pattern, size: usize) -> u64 {
    let window = u64::from(WINDOW);
    match pattern {
        Pattern::Bandwidth | Pattern::Rate => window + 1,
        Pattern::Bibandwidth => 2 * window,
        Pattern::Multithread => 2 * u64::from(THREADS),
        Pattern::Barrier => 1,
        // A message at the beginning says that the receives are there, and one that they are over.
        Pattern::DrainReverse | Pattern::DrainRandom => size as u64 + 2,
        _ => 2,
    }
}

/// The folder of the C programs.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/peers")
}

/// Builds a program of the peers with a clock that counts.
fn built(compiler: &str, name: &str, source: &str, clock: &str, defines: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = format!("steady-{compiler}-{name}-{}", std::process::id());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
    let built = Command::new(compiler)
        .args(["-O1", "-w", "-pthread"])
        .args(defines)
        .arg("-o")
        .arg(&program)
        .arg(sources().join(source))
        .arg(here.join("tests/bench").join(clock))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "{name}");
    program
}

/// Runs a program and removes it. `limit` is in seconds.
fn run(mut command: Command, program: &Path, limit: f64, plans: &[String]) -> Outcome {
    let [window, threads] = [WINDOW, THREADS].map(|number| number.to_string());
    command.args([&window, "2", &limit.to_string(), &threads, "0", "0"]);
    command.args(plans);
    let said = outcome(command, b"");
    let _ = std::fs::remove_file(program);
    said
}

/// The size, the figure and the rounds of each line.
fn figures(said: &Outcome) -> Vec<(usize, f64, u64)> {
    let lines = said.out.lines();
    let lines = lines.filter_map(|line| line.strip_prefix("portolan-sample "));
    let figure = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [size, value, rounds] => (
            size.parse().unwrap(),
            value.parse().unwrap(),
            rounds.parse().unwrap(),
        ),
        _ => panic!("{line}"),
    };
    lines.map(figure).collect()
}

/// The figures of a program of an MPI implementation.
fn of_mpi(
    (name, words): (&str, &[&str]),
    program: &Path,
    limit: f64,
    plans: &[String],
) -> Vec<(usize, f64, u64)> {
    let mut command = of_ours(Command::new(format!("mpiexec.{name}")));
    command.args(words).args(["-n", &RANKS.to_string()]);
    command.arg(program).env_remove("PEER_PROCESSORS");
    let said = run(command, program, limit, plans);
    said.expect_code(0);
    figures(&said)
}

/// Programs print nine digits.
fn expect_near(got: f64, expected: f64, what: &str) {
    let apart = (got / expected - 1.0).abs();
    assert!(apart < 1e-8, "{what}: {got} instead of {expected}");
}

#[test]
fn figures_of_the_c_programs_are_those_of_our_formulas() {
    for mpi in [HYDRA, OPEN] {
        if !is_here(mpi.0) {
            continue;
        }
        let compiler = format!("mpicc.{}", mpi.0);
        for pattern in TIMED {
            let source = format!("{}.c", pattern.name());
            let program = built(&compiler, pattern.name(), &source, "steady.c", &[]);
            let sizes = [8, 1000];
            let plans = sizes.map(|size| format!("{size}:{ROUNDS}:2"));
            let got = of_mpi(mpi, &program, 1e6, &plans);
            assert_eq!(got.len(), sizes.len(), "{got:?}");
            for ((size, value, rounds), expected) in got.into_iter().zip(sizes) {
                assert_eq!((size, rounds), (expected, ROUNDS), "{}", pattern.name());
                // The clock is read once more at the end.
                let time = STEP * (ROUNDS * steps(pattern, size) + 1) as f64;
                let of_pair = pattern.value(time, ROUNDS, size, WINDOW);
                // Bandwidths and rates of the pairs are added up, and other figures averaged.
                let pairs = if pattern.has_windows() { RANKS / 2 } else { 1 };
                expect_near(value, of_pair * f64::from(pairs), pattern.name());
            }
        }
    }
}

#[test]
fn the_c_programs_take_as_many_rounds_as_fit_into_the_time() {
    if !is_here(HYDRA.0) {
        return;
    }
    let program = built("mpicc.mpich", "limited", "latency.c", "steady.c", &[]);
    // The warm-up ends with two rounds of two messages, in which the clock is read once more: 2.5
    // steps each, of which 16 fit into 40.
    let plans = [format!("8:{ROUNDS}:2")];
    let got = of_mpi(HYDRA, &program, 40.0 * STEP, &plans);
    let time = STEP * (16.0 * 2.0 + 1.0);
    let [(8, value, 16)] = got[..] else {
        panic!("16 rounds were expected: {got:?}");
    };
    expect_near(
        value,
        Pattern::Latency.value(time, 16, 8, WINDOW),
        "latency",
    );
}

/// Their figures are means over operations and ranks, in µs, and a share in percent.
#[test]
fn figures_of_operations_that_are_timed_one_by_one_are_their_means() {
    if !is_here(HYDRA.0) {
        return;
    }
    let (blocking, nonblocking) = ("-DFORM=FORM_BLOCKING", "-DFORM=FORM_NONBLOCKING");
    let (bcast, barrier) = ("-DOPERATION=OP_BCAST", "-DOPERATION=OP_BARRIER");
    for (name, source, defines, expected) in [
        // The clock is read before and after each operation.
        ("bcast", "collective.c", &[bcast, blocking][..], STEP * 1e6),
        ("ibcast", "collective.c", &[bcast, nonblocking], STEP * 1e6),
        // This operation is one that the clock counts, too.
        (
            "barrier-alone",
            "collective.c",
            &[barrier, blocking],
            2.0 * STEP * 1e6,
        ),
        // A send takes four steps, and all but the one in the computation are not hidden.
        ("overlap", "overlap.c", &[], 25.0),
    ] {
        let program = built("mpicc.mpich", name, source, "steady.c", defines);
        let plans = [format!("64:{ROUNDS}:2")];
        let got = of_mpi(HYDRA, &program, 1e6, &plans);
        let [(64, value, ROUNDS)] = got[..] else {
            panic!("{name}: {got:?}");
        };
        expect_near(value, expected, name);
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
fn figures_of_loops_that_read_are_those_of_our_formulas() {
    let has_compiler = Command::new("cc").arg("--version").output().is_ok();
    if !has_compiler {
        eprintln!("skipped: loops that read: there is no cc");
        return;
    }
    for (pattern, reads) in [
        (Pattern::Latency, 1),
        (Pattern::Bandwidth, 0),
        (Pattern::Bibandwidth, u64::from(WINDOW)),
        (Pattern::Rate, 0),
    ] {
        let define = format!("-DPATTERN=PATTERN_{}", pattern.name().to_uppercase());
        let program = built("cc", pattern.name(), "readv.c", "steady_pair.c", &[&define]);
        let command = of_ours(Command::new(&program));
        let said = run(command, &program, 1e6, &[format!("1000:{ROUNDS}:2")]);
        if said.err.contains("not permitted") {
            eprintln!("skipped: process_vm_readv is forbidden here");
            return;
        }
        said.expect_code(0);
        let got = figures(&said);
        let [(1000, value, ROUNDS)] = got[..] else {
            panic!("{}: {said:#?}", pattern.name());
        };
        let time = STEP_OF_PAIRS * (ROUNDS * reads + 1) as f64;
        expect_near(
            value,
            pattern.value(time, ROUNDS, 1000, WINDOW),
            pattern.name(),
        );
    }
}
