//! What the C programs have in common: they run where they are told, and do the same as Portolan's
//! patterns.

use std::path::{Path, PathBuf};
use std::process::Command;

use portolan_benches::{allowed_processors, shuffled};

use crate::common::{of_ours, outcome};

/// The name of an MPI implementation whose compiler and launcher may be on the path, with the
/// options of its launcher.
const HYDRA: (&str, &[&str]) = ("mpich", &["-bind-to", "none"]);
const OPEN: (&str, &[&str]) = (
    "openmpi",
    &[
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
        "-x",
        "PEER_PROCESSORS",
    ],
);

/// Whether an MPI implementation is installed; if not, a skip is printed.
#[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
fn is_here(name: &str) -> bool {
    let starts = |command: String| {
        let said = Command::new(command).arg("--version").output();
        said.is_ok_and(|said| said.status.success())
    };
    let here = starts(format!("mpicc.{name}")) && starts(format!("mpiexec.{name}"));
    if !here {
        eprintln!("skipped: programs of the peers: there is no mpicc.{name} with its mpiexec");
    }
    here
}

/// Builds a program from a source in this folder, which includes the peers' headers.
fn told(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("told-{name}"));
    let built = Command::new(format!("mpicc.{name}"))
        .args(["-O1", "-w", "-pthread", "-I"])
        .arg(here.join("../benches/peers"))
        .arg("-o")
        .arg(&program)
        .arg(here.join("tests/bench/told.c"))
        .status();
    assert!(built.is_ok_and(|status| status.success()));
    program
}

#[test]
fn ranks_of_a_peer_are_where_they_are_told_and_shuffle_as_ours_do() {
    let all = allowed_processors();
    let (first, last) = (all[0], all[all.len() - 1]);
    let mut both = vec![first, last];
    both.dedup();
    for (name, words) in [HYDRA, OPEN] {
        if !is_here(name) {
            continue;
        }
        let program = told(name);
        for (told, places) in [
            (format!("{last},{first}"), [&[last][..], &[first]]),
            (format!("{last},{first}+{last}"), [&[last], &both]),
        ] {
            let mut command = of_ours(Command::new(format!("mpiexec.{name}")));
            command.args(words).args(["-n", "2"]).arg(&program);
            command.args(["64", "1", "1", "1", "0", "0", "1000:1:1"]);
            command.env("PEER_PROCESSORS", told);
            let said = outcome(command, b"");
            said.expect_code(0);
            let numbers = |what: &str| -> Vec<usize> {
                let line = said.out.lines().find_map(|line| line.strip_prefix(what));
                let words = line.unwrap_or_else(|| panic!("no {what}: {said:#?}"));
                let number = |word: &str| word.parse().unwrap();
                words.split_whitespace().map(number).collect()
            };
            for (rank, place) in places.into_iter().enumerate() {
                assert_eq!(numbers(&format!("early {rank} ")), place, "{name}");
                assert_eq!(numbers(&format!("placed {rank} ")), place, "{name}");
            }
            let ours = shuffled(1000).into_iter().map(|at| at as usize);
            assert_eq!(numbers("order "), ours.collect::<Vec<_>>());
        }
    }
}
