//! `portolan bench`: that it measures and reports; what it measures is nobody's test.

mod common;

use common::{Outcome, outcome, portolan};

fn bench(arguments: &[&str]) -> Outcome {
    let args = [&["bench"], arguments, &["--seconds", "0.001"]].concat();
    outcome(portolan(&args), b"")
}

#[test]
fn json_has_one_object_per_size_with_value_and_unit() {
    for (kind, unit) in [
        ("latency", "us"),
        ("bandwidth", "MB/s"),
        ("rate", "messages/s"),
    ] {
        for ranks in ["2", "3", "4"] {
            let outcome = bench(&[
                kind,
                "-n",
                ranks,
                "--json",
                "--bytes",
                "8,64k",
                "--transport",
                "shm",
            ]);
            outcome.expect_code(0);
            let rows: Vec<serde_json::Value> = outcome
                .out
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let sizes: Vec<_> = rows
                .iter()
                .map(|row| row["bytes"].as_u64().unwrap())
                .collect();
            assert_eq!(sizes, [8, 65536]);
            for row in rows {
                assert_eq!(row["bench"], kind);
                assert_eq!(row["transport"], "shm");
                assert_eq!(row["ranks"].to_string(), ranks);
                assert_eq!(row["unit"], unit);
                assert!(row["value"].as_f64().unwrap() > 0.0, "{row}");
                assert!(row["best"].as_f64().unwrap() > 0.0, "{row}");
            }
        }
    }
}

#[test]
fn the_table_has_a_row_per_size() {
    let outcome = bench(&["latency", "--bytes", "0,8,1k"]);
    outcome.expect_code(0);
    let mut lines = outcome.out.lines();
    assert_eq!(lines.next(), Some("# latency over shm, 2 ranks"));
    let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    assert_eq!(
        lines.map(first).collect::<Vec<_>>(),
        ["bytes", "0", "8", "1024"]
    );
}

#[test]
fn a_transport_that_is_not_there_is_refused() {
    bench(&["latency", "--transport", "pigeon"])
        .expect_code(1)
        .expect_err(&["pigeon", "fix: "]);
}

#[test]
fn one_rank_is_refused() {
    bench(&["latency", "-n", "1"]).expect_code(2);
    let me = env!("CARGO_BIN_EXE_portolan");
    let alone = portolan(&["run", "-n", "1", "--", me, "bench", "latency"]);
    outcome(alone, b"")
        .expect_code(1)
        .expect_err(&["a bench needs two ranks or more"]);
}

#[test]
fn sizes_are_read_as_settings_are() {
    bench(&["rate", "--bytes", "8q"])
        .expect_code(2)
        .expect_err(&["8q"]);
}
