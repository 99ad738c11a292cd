//! Collective operations in `portolan bench` and `portolan info`: that they are measured, and that
//! the output of `tune` is a table.

use std::path::PathBuf;

use serde_json::Value;

use crate::common::{outcome, portolan};
use crate::peers::is_skipped;
use crate::{bench, expect_row, rows};

/// Every operation with a choice of algorithms.
const OPERATIONS: [&str; 11] = [
    "barrier",
    "bcast",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
    "reduce",
    "allreduce",
    "reduce-scatter",
    "scan",
    "exscan",
];

#[test]
fn a_collective_operation_is_measured_beside_a_peer() {
    beside_peers("iallreduce", "us");
    beside_peers("exscan", "us");
    beside_peers("ialltoallw", "us");
    beside_peers("neighbor-alltoallw", "us");
    beside_peers("ineighbor-allgather", "us");
    beside_peers("ibcast-overlap", "% hidden");
    beside_peers("allreduce-init", "us");
    beside_peers("neighbor-allgatherv-init", "us");
}

/// MPI's operations, with and without counts, and the barrier.
const MEASURED: [&str; 22] = [
    "barrier",
    "bcast",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "reduce",
    "allreduce",
    "reduce-scatter",
    "reduce-scatter-block",
    "scan",
    "exscan",
    "neighbor-allgather",
    "neighbor-allgatherv",
    "neighbor-alltoall",
    "neighbor-alltoallv",
    "neighbor-alltoallw",
];

#[test]
fn every_collective_operation_is_measured_in_every_form() {
    let forms = [
        ("coll", "", "", "us"),
        ("icoll", "i", "", "us"),
        ("icoll-overlap", "i", "-overlap", "% hidden"),
        ("coll-init", "", "-init", "us"),
    ];
    for (all, before, behind, unit) in forms {
        // Three ranks, so that blocks and ranks are not multiples of each other.
        let (rows, _) = rows(&bench(&[all, "-n", "3", "--sizes", "20", "--json"]));
        assert_eq!(rows.len(), MEASURED.len(), "{rows:?}");
        for name in MEASURED {
            let name = format!("{before}{name}{behind}");
            let mut own = rows.iter().filter(|row| row["bench"] == *name);
            let row = own
                .next()
                .unwrap_or_else(|| panic!("no {name} in {rows:?}"));
            assert_eq!(
                (&row["ranks"], &row["unit"]),
                (&3.into(), &unit.into()),
                "{row}"
            );
            let value = row["value"].as_f64().unwrap();
            // The hidden part is a share.
            assert!(
                if unit == "us" {
                    value > 0.0
                } else {
                    (0.0..=100.0).contains(&value)
                },
                "{row}"
            );
        }
    }
}

fn beside_peers(pattern: &str, unit: &str) {
    let words = [
        pattern,
        "--peers",
        "--only",
        "mpich,openmpi",
        "--sizes",
        "8",
    ];
    let (rows, others) = rows(&bench(&[&words[..], &["--json"]].concat()));
    let (ours, theirs): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.get("transport").is_some());
    assert_eq!(ours.len(), 1, "{rows:?}");
    for name in ["mpich", "openmpi"] {
        let of = |row: &&Value| row["peer"].as_str().is_some_and(|p| p.starts_with(name));
        let measured = theirs.iter().filter(|row| of(row)).count();
        let missing = others.iter().filter(of);
        let missing = missing.filter_map(|row| row.get("missing")).count();
        assert_eq!(measured + missing, 1, "{name}: {rows:?} {others:?}");
        if missing > 0 {
            // Open MPI before 5 has no persistent operations.
            is_skipped(&format!("{pattern} of {name}"));
        }
    }
    for row in &rows {
        if unit == "us" {
            expect_row(row, pattern, 2, unit);
            continue;
        }
        assert_eq!(
            (&row["bench"], &row["unit"]),
            (&pattern.into(), &unit.into())
        );
        let hidden = row["value"].as_f64().unwrap();
        assert!((0.0..=100.0).contains(&hidden), "{row}");
    }
}

#[test]
#[ignore = "measures for 20 s: run with --include-ignored"]
fn what_tune_measures_is_a_table_that_the_runtime_reads() {
    let tuned = bench(&["tune", "-n", "3", "--sizes", "8,4k"]);
    tuned.expect_code(0);
    let rules: Vec<_> = tuned
        .out
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    for operation in OPERATIONS {
        let own = rules
            .iter()
            .filter(|rule| rule.split_whitespace().next() == Some(operation));
        // At most one rule for each size; the last is for all larger sizes.
        let own: Vec<_> = own.collect();
        let sizes = if operation == "barrier" { 1 } else { 2 };
        // On a machine with other work, or that changes its phase, there may be none.
        let none = tuned.out.contains(&format!("# {operation}, no rules: "));
        let expected = if none { 0..=0 } else { 1..=sizes };
        assert!(expected.contains(&own.len()), "{operation}: {tuned:#?}");
        let here = ["ranks<=3", " on=shm ", " flat "];
        let holds = |rule: &&&str| here.iter().all(|condition| rule.contains(condition));
        assert!(own.iter().all(holds), "{own:?}");
        let last = own.last();
        assert!(last.is_none_or(|rule| !rule.contains("bytes<=")), "{own:?}");
        let figures = format!("# {operation}, 3 ranks, ");
        let told = tuned.out.lines().filter(|line| line.starts_with(&figures));
        assert_eq!(told.count(), sizes, "{operation}: {tuned:#?}");
    }
    // Other programs accept the table as it is: the page shows its rules first, and a job runs with
    // it.
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tuned.table");
    std::fs::write(&file, &tuned.out).unwrap();
    let setting = format!("@{}", file.display());
    let mut info = portolan(&["info", "--collectives"]);
    info.env("PORTOLAN_COLL_TABLE", &setting);
    let page = outcome(info, b"");
    page.expect_code(0);
    let (_, table) = page.out.split_once("\nRules\n").unwrap();
    let shown = table.lines().take(rules.len()).map(words);
    assert!(shown.eq(rules.iter().map(|rule| words(rule))), "{page:#?}");
    let me = env!("CARGO_BIN_EXE_portolan");
    let bench = ["bench", "allreduce", "--sizes", "8", "--iterations", "3"];
    let mut job = portolan(&[&["run", "-n", "3", "--", me], &bench[..]].concat());
    job.env("PORTOLAN_COLL_TABLE", &setting);
    outcome(job, b"").expect_code(0);
}

/// Here another launcher is this command's own. One that starts ranks on several nodes makes rules
/// for several nodes, which a unit test shows.
#[test]
fn another_launcher_can_start_the_jobs_of_tune() {
    let me = env!("CARGO_BIN_EXE_portolan");
    let launcher = format!("{me} run --bind none");
    let quick = ["tune", "-n", "3", "--sizes", "8"];
    let tuned = bench(&[&quick[..], &["--launcher", &launcher]].concat());
    tuned.expect_code(0);
    // On a machine with other work there may be reasons in place of rules.
    let told = |operation: &str| {
        let none = tuned.out.contains(&format!("# {operation}, no rules: "));
        let of_it = |rule: &&str| rule.split_whitespace().next() == Some(operation);
        let rule = tuned.out.lines().find(of_it);
        none || rule.is_some_and(|rule| rule.contains(" on=shm flat "))
    };
    assert!(OPERATIONS.iter().all(|name| told(name)), "{tuned:#?}");
    let missing = bench(&[&quick[..], &["--launcher", "/there/is/no/mpiexec"]].concat());
    missing.expect_code(1);
    missing.expect_err(&["cannot start /there/is/no/mpiexec"]);
}

#[test]
fn a_launcher_is_only_for_tune() {
    for (words, told) in [
        (
            &["latency", "--launcher", "mpiexec"][..],
            "`mpiexec -n N portolan bench latency`",
        ),
        (&["tune", "--launcher", " "], "names no command"),
        (
            &["tune", "--launcher", "mpiexec", "--pin", "0,1"],
            "cannot be used with",
        ),
    ] {
        let refused = bench(words);
        refused.expect_code(2);
        refused.expect_err(&[told]);
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn the_page_of_collectives_has_the_rules_and_a_line_for_every_algorithm() {
    let mut info = portolan(&["info", "--collectives"]);
    info.env("PORTOLAN_COLL_TABLE", "bcast bytes<=7k linear")
        .env("PORTOLAN_COLL_DIRECT", "off");
    let page = outcome(info, b"");
    page.expect_code(0);
    assert!(page.out.contains("(PORTOLAN_COLL_DIRECT=off)"), "{page:#?}");
    let (_, rules) = page.out.split_once("\nRules\n").unwrap();
    let (rules, algorithms) = rules.split_once("\nAlgorithms\n").unwrap();
    assert_eq!(
        words(rules.lines().next().unwrap()),
        ["bcast", "bytes<=7k", "linear"]
    );
    for rule in rules.lines() {
        let words = words(rule);
        let operation = algorithms.split_once(&format!("{}\n", words[0]));
        let (_, listed) = operation.unwrap_or_else(|| panic!("{rule} is of no operation"));
        let mut listed = listed.lines().take_while(|line| line.starts_with("  "));
        let name = words[words.len() - 1];
        let known = |line: &str| line.split_whitespace().next() == Some(name);
        assert!(
            listed.any(known),
            "{rule} names no algorithm:\n{algorithms}"
        );
    }
    // A name and a description.
    let described = algorithms.lines().filter(|line| line.starts_with("  "));
    assert!(described.clone().count() > 30, "{algorithms}");
    assert!(
        described.clone().all(|line| words(line).len() > 4),
        "{algorithms}"
    );
    let mut wrong = portolan(&["info", "--collectives"]);
    wrong.env("PORTOLAN_COLL_TABLE", "bcast upwards");
    let refused = outcome(wrong, b"");
    assert_ne!(refused.code, Some(0));
    refused.expect_err(&["bcast has no algorithm \"upwards\"; use one of binomial"]);
}
