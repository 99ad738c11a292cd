//! Portolan's ranks under MPICH's launcher, and MPICH's ranks under Portolan's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};

use super::common::{Outcome, no_libfabric, outcome, portolan};
use super::roles::SAYS;
use super::{SIZES, exchange, play};

/// Checks what ranks tell each other; aborts with code 7 if its argument is its rank.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, sum, left;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 5, &left, 1, MPI_INT,
                 (rank + size - 1) % size, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (argc > 1 && atoi(argv[1]) == rank) MPI_Abort(MPI_COMM_WORLD, 7);
    if (argc > 1) MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d: sum %d, left %d\n", rank, size, sum, left);
    MPI_Finalize();
    return 0;
}
"#;

pub(crate) fn trials() -> Vec<Trial> {
    let hydra = find(&["mpiexec.hydra", "mpiexec.mpich"]);
    let compiler = find(&["mpicc.mpich"]);
    if hydra.is_none() || compiler.is_none() {
        eprintln!("ignored: tests with MPICH (mpiexec.hydra, mpicc.mpich: package mpich)");
    }
    let mut trials = Vec::new();
    for ranks in SIZES {
        let launcher = hydra.clone();
        let name = format!("exchange_under_hydra_{ranks}");
        let test = move || exchange(under_hydra(&launcher, &[]), ranks, "hydra");
        trials.push(Trial::test(name, test).with_ignored_flag(hydra.is_none()));
        let compiler_here = compiler.clone();
        let name = format!("mpich_program_under_portolan_run_{ranks}");
        let test = move || mpich_program(&compiler_here, ranks);
        trials.push(Trial::test(name, test).with_ignored_flag(compiler.is_none()));
    }
    let launcher = hydra.clone();
    let test = move || exchange(under_hydra(&launcher, &["-pmi-port"]), 3, "hydra");
    trials.push(Trial::test("exchange_over_pmi_port", test).with_ignored_flag(hydra.is_none()));
    let launcher = hydra.clone();
    let test = move || {
        play(under_hydra(&launcher, &[]), 3, "abort").expect_code(33);
        Ok(())
    };
    trials.push(Trial::test("abort_under_hydra", test).with_ignored_flag(hydra.is_none()));
    let launcher = hydra.clone();
    let test = move || refusal_is_heard(&launcher);
    let trial = Trial::test("refusal_under_hydra_is_heard", test);
    trials.push(trial.with_ignored_flag(hydra.is_none()));
    trials.extend(failures(&hydra));
    let compiler_here = compiler.clone();
    let test = move || {
        let outcome = run_mpich(&compiler_here, 3, &["1"]);
        outcome
            .expect_code(7)
            .expect_err(&["rank 1 (pid ", "aborted the job with code 7"]);
        Ok(())
    };
    let trial = Trial::test("mpich_abort_under_portolan_run", test);
    trials.push(trial.with_ignored_flag(compiler.is_none()));
    trials
}

/// Over the default transport, and over libfabric, where either side may match messages.
fn failures(hydra: &Option<PathBuf>) -> Vec<Trial> {
    let no_libfabric = no_libfabric();
    if let Some(why) = &no_libfabric {
        eprintln!("skipped: failures over libfabric under Hydra: {why}");
    }
    let trial = |name: &str, settings: Vec<(&'static str, &'static str)>, ignored| {
        let launcher = hydra.clone();
        let name = format!("failure_where_nobody_ends_the_job_is_noticed{name}");
        let said = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&name);
        let test = move || failure_is_noticed(&launcher, &settings, &said);
        Trial::test(name, test).with_ignored_flag(hydra.is_none() || ignored)
    };
    let mut trials = vec![trial("", Vec::new(), false)];
    for matching in ["software", "native"] {
        let settings = vec![
            ("PORTOLAN_TRANSPORT", "ofi"),
            ("PORTOLAN_OFI_INTERFACE", "lo"),
            ("PORTOLAN_MATCH", matching),
        ];
        let name = format!("_over_ofi_matched_by_{matching}");
        trials.push(trial(&name, settings, no_libfabric.is_some()));
    }
    trials
}

/// Ranks that cannot start report why, although Hydra kills all ranks as soon as one closes its
/// connection. Before that was solved, the first rank to close it was killed before it had printed
/// anything in about every second job.
fn refusal_is_heard(launcher: &Option<PathBuf>) -> Result<(), Failed> {
    for _ in 0..8 {
        let mut command = under_hydra(launcher, &[]);
        command.env("PORTOLAN_TRANSPORT", "pigeons");
        let outcome = play(command, 2, "refused");
        assert_ne!(outcome.code, Some(0), "{outcome:#?}");
        outcome.expect_err(&["transport `pigeons`"]);
    }
    Ok(())
}

/// A rank whose program ends with an error need not abort, because its launcher sees the exit code.
/// If the launcher does not end the job then, the other ranks see that the process has ended, and
/// abort. (Hydra ends a job that hangs with another code. It does not always pass on the ranks'
/// output, because it kills all ranks as soon as the first aborts; so they write to a file.)
fn failure_is_noticed(
    launcher: &Option<PathBuf>,
    settings: &[(&str, &str)],
    said: &Path,
) -> Result<(), Failed> {
    let mut command = under_hydra(launcher, &["-disable-auto-cleanup"]);
    command.env("MPIEXEC_TIMEOUT", "60");
    command.envs(settings.iter().copied());
    std::fs::write(said, "")?;
    command.env(SAYS, said);
    let outcome = play(command, 3, "fails");
    outcome.expect_code(1);
    let said = std::fs::read_to_string(said)?;
    assert!(
        said.contains("rank 2: out of paper"),
        "{said}: {outcome:#?}"
    );
    Ok(())
}

fn mpich_program(compiler: &Option<PathBuf>, ranks: u32) -> Result<(), Failed> {
    let outcome = run_mpich(compiler, ranks, &[]);
    outcome.expect_code(0);
    let sum = ranks * (ranks - 1) / 2;
    let line = |rank| {
        let left = (rank + ranks - 1) % ranks;
        format!("rank {rank} of {ranks}: sum {sum}, left {left}")
    };
    assert_eq!(outcome.sorted(), (0..ranks).map(line).collect::<Vec<_>>());
    Ok(())
}

fn run_mpich(compiler: &Option<PathBuf>, ranks: u32, arguments: &[&str]) -> Outcome {
    let mut command = portolan(&["run", "-n", &ranks.to_string()]);
    command.arg(compile(compiler)).args(arguments);
    outcome(command, b"")
}

/// Compiles the C program. Each caller has its own file, because tests run side by side.
fn compile(compiler: &Option<PathBuf>) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("mpich-{number}.c"));
    let program = folder.join(format!("mpich-{number}"));
    std::fs::write(&source, PROGRAM).unwrap();
    let compiler = compiler.as_ref().expect("ignored without a compiler");
    let output = Command::new(compiler)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

fn under_hydra(launcher: &Option<PathBuf>, options: &[&str]) -> Command {
    let mut command = Command::new(launcher.as_ref().expect("ignored without Hydra"));
    command.args(options).stdin(Stdio::null());
    command
}

fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let files = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}
