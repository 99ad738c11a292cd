//! `portolan bench`: that it measures and reports; what it measures is nobody's test.

mod common;

use std::path::{Path, PathBuf};

use common::{Outcome, outcome, portolan};
use serde_json::Value;

/// As little as there is to measure, with the cache of the peers' programs among the tests' files.
fn bench(arguments: &[&str]) -> Outcome {
    let least = ["--repeat", "2", "--iterations", "3"];
    let mut command = portolan(&[&["bench"], arguments, &least].concat());
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    outcome(command, b"")
}

/// The JSON lines with figures, and the others.
fn rows(outcome: &Outcome) -> (Vec<Value>, Vec<Value>) {
    outcome.expect_code(0);
    let lines = outcome.out.lines();
    let all = lines.map(|line| serde_json::from_str::<Value>(line).expect(line));
    all.partition(|row| row.get("value").is_some())
}

fn expect_row(row: &Value, bench: &str, ranks: u64, unit: &str) {
    assert_eq!(row["bench"], bench);
    assert_eq!(row["ranks"], ranks, "{row}");
    assert_eq!(row["unit"], unit, "{row}");
    assert!(row["samples"].as_u64().unwrap() >= 1, "{row}");
    let field = |name: &str| {
        row[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {row}"))
    };
    assert!(field("value") > 0.0 && field("best") > 0.0, "{row}");
    assert!(
        field("low") <= field("value") && field("value") <= field("high"),
        "{row}"
    );
}

#[test]
fn json_has_one_object_per_size_with_value_and_unit() {
    for (kind, unit) in [
        ("latency", "us"),
        ("bandwidth", "MB/s"),
        ("bibandwidth", "MB/s"),
        ("rate", "messages/s"),
    ] {
        for ranks in [2, 3, 4] {
            let count = ranks.to_string();
            let words = [
                kind,
                "-n",
                &count,
                "--json",
                "--sizes",
                "8,64k",
                "--transport",
                "shm",
            ];
            let (rows, others) = rows(&bench(&words));
            let sizes: Vec<_> = rows
                .iter()
                .map(|row| row["bytes"].as_u64().unwrap())
                .collect();
            assert_eq!(sizes, [8, 65536]);
            for row in rows {
                expect_row(&row, kind, ranks, unit);
                assert_eq!(row["transport"], "shm");
                assert_eq!(row["rounds"], 3);
            }
            let [machine] = &others[..] else {
                panic!("one line about the machine was expected: {others:?}");
            };
            assert!(machine["machine"]["cores"].as_u64().unwrap() >= 1);
        }
    }
}

#[test]
fn a_barrier_is_measured_with_more_ranks_than_cores_too() {
    let (rows, _) = rows(&bench(&["barrier", "--json"]));
    assert_eq!(rows.len(), 1);
    expect_row(&rows[0], "barrier", 8, "us");
}

#[test]
fn depth_has_a_row_for_each_number_of_waiting_receives() {
    let (rows, _) = rows(&bench(&["depth", "--sizes", "0,1000", "--json"]));
    let waiting: Vec<_> = rows.iter().map(|row| row["waiting"].as_u64()).collect();
    assert_eq!(waiting, [Some(0), Some(1000)]);
    for row in &rows {
        expect_row(row, "depth", 2, "us");
        assert_eq!(row["bytes"], 8);
    }
}

#[test]
fn pairs_are_twice_as_many_ranks() {
    let (rows, _) = rows(&bench(&["rate", "--pairs", "2", "--window", "7", "--json"]));
    expect_row(&rows[0], "rate", 4, "messages/s");
    assert_eq!(rows[0]["window"], 7);
}

#[test]
fn the_table_has_a_row_per_size_and_says_what_the_machine_did() {
    let outcome = bench(&["latency", "--sizes", "0,8,1k"]);
    outcome.expect_code(0);
    let (notes, table): (Vec<&str>, Vec<&str>) =
        outcome.out.lines().partition(|line| line.starts_with('#'));
    assert_eq!(notes[0], "# latency over shm, 2 ranks");
    assert!(
        notes.iter().any(|note| note.starts_with("# machine: ")),
        "{outcome:#?}"
    );
    let first = |line: &&str| line.split_whitespace().next().unwrap().to_owned();
    let firsts: Vec<_> = table.iter().map(first).collect();
    assert_eq!(firsts, ["bytes", "0", "8", "1024"]);
}

#[test]
fn transports_stand_side_by_side() {
    let outcome = bench(&["latency", "--sizes", "8", "--transport", "shm,shm"]);
    outcome.expect_code(0);
    let head = outcome
        .out
        .lines()
        .find(|line| line.contains("bytes"))
        .unwrap();
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["bytes", "shm", "shm"]
    );
}

#[test]
fn a_death_is_noticed_by_everybody() {
    let words = ["bench", "failure", "-n", "3", "--repeat", "1", "--json"];
    let (rows, _) = rows(&outcome(portolan(&words), b""));
    expect_row(&rows[0], "failure", 3, "ms");
    assert_eq!(rows[0]["transport"], "shm");
}

#[test]
fn another_launcher_can_start_the_ranks() {
    let me = env!("CARGO_BIN_EXE_portolan");
    let words = [
        "run", "-n", "2", "--", me, "bench", "latency", "--sizes", "8", "--json",
    ];
    let least = ["--repeat", "2", "--iterations", "3"];
    let (rows, others) = rows(&outcome(portolan(&[&words[..], &least].concat()), b""));
    assert_eq!((rows.len(), others.len()), (1, 0));
    expect_row(&rows[0], "latency", 2, "us");
    assert_eq!(rows[0]["samples"], 2);
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
    let ours = rows
        .iter()
        .find(|row| row.get("transport").is_some())
        .unwrap();
    for name in ["mpich", "openmpi"] {
        match named(name) {
            (Some(row), None) => {
                expect_row(&row, "latency", 2, "us");
                assert!(
                    row["peer"].as_str().unwrap().contains('.'),
                    "no version: {row}"
                );
                assert!(ours["ratio"].as_f64().unwrap() > 0.0, "{ours}");
            }
            (None, Some(row)) => {
                assert!(
                    row["missing"].as_str().unwrap().contains("apt-get install"),
                    "{row}"
                );
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_peer_that_is_not_where_it_was_said_to_be_is_missing() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-peer-here");
    let mut command = portolan(&["bench", "latency", "--sizes", "8", "--iterations", "3"]);
    command
        .args(["--repeat", "1", "--peers", "--peer-dir"])
        .arg(&folder);
    // Nothing else is on this path, so nothing else is found.
    command.env("PATH", Path::new("/no/such/folder"));
    let outcome = outcome(command, b"");
    outcome.expect_code(0);
    let missing = |name: &str| outcome.out.contains(&format!("# {name} is missing: "));
    assert!(missing("mpich") && missing("openmpi"), "{outcome:#?}");
    assert!(missing(&folder.display().to_string()), "{outcome:#?}");
}

#[test]
fn a_transport_that_is_not_there_is_refused() {
    bench(&["latency", "--transport", "pigeon"])
        .expect_code(1)
        .expect_err(&["pigeon", "fix: "]);
}

#[test]
fn one_rank_is_refused() {
    for kind in ["latency", "bandwidth", "rate", "failure"] {
        let ours = format!("{kind} needs two ranks or more, not 1: use --ranks 2");
        bench(&[kind, "-n", "1"])
            .expect_code(2)
            .expect_err(&[&ours]);
    }
    let me = env!("CARGO_BIN_EXE_portolan");
    let alone = portolan(&["run", "-n", "1", "--", me, "bench", "latency"]);
    outcome(alone, b"")
        .expect_code(1)
        .expect_err(&["latency needs two ranks or more, and this job has one"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    bench(&["altitude"])
        .expect_code(2)
        .expect_err(&["altitude", "latency"]);
    bench(&["rate", "--sizes", "8q"])
        .expect_code(2)
        .expect_err(&["8q"]);
    bench(&["latency", "--tuned"])
        .expect_code(2)
        .expect_err(&["--peers"]);
    bench(&["barrier", "--sizes", "8"])
        .expect_code(2)
        .expect_err(&["barrier has no sizes"]);
    bench(&["failure", "--peers"])
        .expect_code(2)
        .expect_err(&["failure is not compared"]);
    bench(&["latency", "--sizes", "4096T"])
        .expect_code(2)
        .expect_err(&["4503599627370496 bytes", "are left here", "smaller --sizes"]);
}
