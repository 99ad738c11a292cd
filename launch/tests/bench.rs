//! `portolan bench`: that it measures and reports. The figures themselves are not tested.

#[path = "bench/collectives.rs"]
mod collectives;
#[path = "bench/commands.rs"]
mod commands;
mod common;
#[path = "bench/cuda.rs"]
mod cuda;
#[path = "bench/loops.rs"]
mod loops;
#[path = "bench/peers.rs"]
mod peers;
#[path = "bench/steady.rs"]
mod steady;
#[path = "bench/windows.rs"]
mod windows;

use std::path::PathBuf;

use common::{Outcome, outcome, portolan};
use serde_json::Value;

/// Runs the smallest possible measurement, with the cache of the peers' programs among the tests'
/// files. Each sample may be taken a second time, because the tests that run alongside it count as
/// other work.
fn bench(arguments: &[&str]) -> Outcome {
    let once = ["idle", "startup", "memory-ring", "memory-all", "failure"];
    let rounds: &[&str] = match once.contains(&arguments[0]) {
        true => &[],
        false => &["--iterations", "3"],
    };
    let mut command = portolan(&[&["bench"], arguments, &["--repeat", "1"], rounds].concat());
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    outcome(command, b"")
}

/// The JSON lines with figures, and the other lines.
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
                // Three rounds, however slow the machine is.
                "--seconds",
                "600",
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
            let [samples, machine] = &others[..] else {
                panic!("lines about samples and machine were expected: {others:?}");
            };
            assert_eq!(samples["transport"], "shm");
            for taken in samples["taken"].as_array().unwrap() {
                assert_eq!(taken["values"].as_array().unwrap().len(), 2, "{taken}");
            }
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
fn depth_and_drain_have_a_row_for_each_number_that_waits() {
    for kind in [
        "depth",
        "depth-wildcard",
        "depth-unexpected",
        "drain-reverse",
        "drain-random",
    ] {
        let (rows, _) = rows(&bench(&[kind, "--sizes", "1,1000", "--json"]));
        let waiting: Vec<_> = rows.iter().map(|row| row["waiting"].as_u64()).collect();
        assert_eq!(waiting, [Some(1), Some(1000)]);
        for row in &rows {
            expect_row(row, kind, 2, "us");
            assert_eq!(row["bytes"], 8);
        }
    }
}

#[test]
fn what_has_no_sizes_has_one_row() {
    for (kind, unit) in [
        ("startup", "ms"),
        ("memory-ring", "KiB/rank"),
        ("memory-all", "KiB/rank"),
    ] {
        let (rows, _) = rows(&bench(&[kind, "-n", "5", "--json"]));
        assert_eq!(rows.len(), 1);
        expect_row(&rows[0], kind, 5, unit);
    }
}

/// A rank keeps something for each rank with which it has talked, and for others a few words.
#[test]
fn memory_of_a_rank_in_a_ring_does_not_grow_with_the_job() {
    /// KiB that each further rank may cost. 0.1 are needed (docs/limits.md); a place of what a rank
    /// keeps about its neighbours would take 0.23 more.
    const EACH: f64 = 0.15;
    /// KiB of pages of which the additional words may need a part only.
    const PAGES: f64 = 2.0 * 4.0;
    let [of_8, of_128] = ["8", "128"].map(|ranks| {
        let words = ["memory-ring", "-n", ranks, "--transport", "shm", "--json"];
        let (rows, _) = rows(&bench(&words));
        rows[0]["value"].as_f64().unwrap()
    });
    let most = of_8 + EACH * (128.0 - 8.0) + PAGES;
    assert!(of_128 <= most, "{of_128} KiB of 128, {of_8} KiB of 8");
}

#[test]
fn shares_are_shares() {
    // A rank that waits for two seconds uses a millisecond, whatever else the machine does. One
    // that woke up every millisecond, and did nothing then, would use 1 to 2 %.
    for (words, unit, most) in [
        (&["idle", "--seconds", "2"][..], "% of a core", 0.3),
        (&["overlap", "--sizes", "64k"], "% hidden", 100.0),
    ] {
        let (rows, _) = rows(&bench(&[words, &["--json"]].concat()));
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (&rows[0]["bench"], &rows[0]["unit"]),
            (&words[0].into(), &unit.into())
        );
        let value = rows[0]["value"].as_f64().unwrap();
        assert!((0.0..=most).contains(&value), "{words:?}: {value}");
    }
}

#[test]
fn threads_of_a_rank_talk_at_a_time() {
    let words = ["multithread", "--threads", "3", "--sizes", "8", "--json"];
    let (rows, _) = rows(&bench(&words));
    expect_row(&rows[0], "multithread", 2, "us");
    assert_eq!(rows[0]["threads"], 3);
}

#[test]
fn ranks_are_put_where_they_are_wanted_and_other_work_is_put_beside() {
    let words = [
        "latency", "-n", "4", "--sizes", "8", "--busy", "1", "--json",
    ];
    let half = 2;
    for map in ["together", "apart"] {
        let (rows, others) = rows(&bench(&[&words[..], &["--map", map]].concat()));
        expect_row(&rows[0], "latency", 4, "us");
        assert_eq!(rows[0]["busy"], 1);
        let pin = rows[0]["pin"].as_str().unwrap();
        let processors: Vec<&str> = pin.split(',').collect();
        assert_eq!(processors.len(), 4);
        // With a single core, all ranks are on it.
        let together = processors[..half] == processors[half..];
        let one_core = processors.iter().all(|p| *p == processors[0]);
        assert!(one_core || together == (map == "together"), "{map}: {pin}");
        // The machine is measured between rank 0 and its partner, wherever they are.
        let machine = others.iter().find_map(|row| row.get("machine")).unwrap();
        let [one, other] = [0, half].map(|rank| processors[rank].parse::<u64>().unwrap());
        assert_eq!(machine["processors"], serde_json::json!([one, other]));
        assert_eq!(
            machine["load_store_ns"].is_null(),
            one == other,
            "{machine}"
        );
    }
}

#[test]
fn a_report_is_a_page_of_all_that_was_measured_into_its_folder() {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{}", std::process::id()));
    let folder_name = folder.to_str().unwrap();
    for words in [
        &["latency", "--sizes", "0,8,1k"][..],
        &["barrier", "-n", "3"],
    ] {
        bench(&[words, &["--report", folder_name]].concat()).expect_code(0);
    }
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(page.matches("<section").count(), 2, "{page}");
    assert!(page.contains("<svg") && page.contains("portolan bench latency --sizes 0,8,1k"));
    // The page loads no other file.
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("<script"));
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_before_anything_is_measured() {
    let outcome = bench(&[
        "latency",
        "--sizes",
        "8",
        "--report",
        "/proc/no/such/folder",
    ]);
    outcome.expect_code(1).expect_err(&[
        "cannot write the report in /proc/no/such/folder",
        "name a folder with --report in which you may write files",
    ]);
    assert_eq!(outcome.out, "");
}

#[test]
fn pairs_are_twice_as_many_ranks() {
    let (rows, _) = rows(&bench(&["rate", "--pairs", "2", "--window", "7", "--json"]));
    expect_row(&rows[0], "rate", 4, "messages/s");
    assert_eq!(rows[0]["window"], 7);
}

#[test]
fn buffers_of_the_library_are_told_and_kept_apart() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("report-alloc-{}", std::process::id()));
    let report = ["--report", folder.to_str().unwrap()];
    for words in [&["latency"][..], &["bandwidth"], &["overlap"]] {
        let words = [words, &["--sizes", "64k", "--alloc"]].concat();
        let outcome = bench(&[&words[..], &report].concat());
        outcome.expect_code(0);
        assert!(
            outcome.out.contains("buffers of the library"),
            "{outcome:#?}"
        );
        let (told, _) = rows(&bench(&[&words[..], &["--json"]].concat()));
        assert_eq!(told[0]["alloc"], true);
    }
    let (heap, _) = rows(&bench(&["latency", "--sizes", "8", "--json"]));
    assert!(heap[0].get("alloc").is_none(), "{heap:?}");
    assert!(folder.join("latency-2-alloc.json").is_file());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn settings_are_told_and_kept_apart() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("report-settings-{}", std::process::id()));
    let words = |more: &[&str]| {
        let least = [
            "bench",
            "latency",
            "--sizes",
            "8",
            "--repeat",
            "1",
            "--iterations",
            "3",
        ];
        portolan(&[&least[..], more].concat())
    };
    for set in [false, true] {
        let mut command = words(&["--report", folder.to_str().unwrap()]);
        if set {
            command.env("PORTOLAN_SHM_CMA", "off");
        }
        let outcome = outcome(command, b"");
        outcome.expect_code(0);
        assert_eq!(
            outcome.out.contains(", PORTOLAN_SHM_CMA=off\n"),
            set,
            "{outcome:#?}"
        );
    }
    let files = std::fs::read_dir(&folder).unwrap();
    let names: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json"))
        .collect();
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(
        names.iter().any(|name| name == "latency-2.json"),
        "{names:?}"
    );
    assert!(page.contains(">portolan bench latency"), "{page}");
    assert!(
        page.contains(">PORTOLAN_SHM_CMA=off portolan bench latency"),
        "{page}"
    );

    let mut command = words(&["--json"]);
    command.env("PORTOLAN_SHM_CMA", "off");
    let (set, _) = rows(&outcome(command, b""));
    assert_eq!(set[0]["settings"]["PORTOLAN_SHM_CMA"], "off");
    // Variables that a launcher sets for its ranks do not count as settings.
    let me = env!("CARGO_BIN_EXE_portolan");
    let rank = [
        "run", "-n", "2", "--", me, "bench", "latency", "--sizes", "8", "--json",
    ];
    let least = ["--repeat", "1", "--iterations", "3"];
    let (plain, _) = rows(&outcome(portolan(&[&rank[..], &least].concat()), b""));
    assert!(plain[0].get("settings").is_none(), "{plain:?}");
}

#[test]
fn the_table_has_a_row_per_size_and_says_what_the_machine_did() {
    let outcome = bench(&["latency", "--sizes", "0,8,1k"]);
    outcome.expect_code(0);
    let (notes, table): (Vec<&str>, Vec<&str>) =
        outcome.out.lines().partition(|line| line.starts_with('#'));
    assert!(notes[0].starts_with("# latency over shm, 2 ranks"));
    assert!(
        notes.iter().any(|note| note.starts_with("# machine: ")),
        "{outcome:#?}"
    );
    let first = |line: &&str| line.split_whitespace().next().unwrap().to_owned();
    let firsts: Vec<_> = table.iter().map(first).collect();
    assert_eq!(firsts, ["bytes", "0", "8", "1024"]);
}

#[test]
#[cfg(feature = "t3e-sim")]
fn transports_stand_side_by_side() {
    let words = ["latency", "--sizes", "8", "--transport", "shm,t3e-sim"];
    let table = bench(&words);
    table.expect_code(0);
    let head = table.out.lines().find(|line| line.contains("bytes"));
    let head: Vec<_> = head.unwrap().split_whitespace().collect();
    assert_eq!(head, ["bytes", "shm", "t3e-sim", "(virtual", "time)"]);
    let (rows, _) = rows(&bench(&[&words[..], &["--json"]].concat()));
    let transports: Vec<_> = rows.iter().map(|row| row["transport"].as_str()).collect();
    assert_eq!(transports, [Some("shm"), Some("t3e-sim")]);
    let clocks: Vec<_> = rows.iter().map(|row| row["virtual"].as_bool()).collect();
    assert_eq!(clocks, [None, Some(true)]);
    for row in &rows {
        expect_row(row, "latency", 2, "us");
    }
}

#[test]
fn ranks_may_be_on_one_processor() {
    let here = portolan_benches::allowed_processors()[0];
    let pin = format!("{here},{here}");
    let (rows, others) = rows(&bench(&[
        "latency", "--sizes", "8", "--pin", &pin, "--json",
    ]));
    expect_row(&rows[0], "latency", 2, "us");
    assert_eq!(rows[0]["pin"], *pin);
    let machine = others.iter().find_map(|row| row.get("machine")).unwrap();
    assert_eq!(machine["processors"], serde_json::json!([here, here]));
    // No line travels between the caches of one processor.
    assert!(machine["load_store_ns"].is_null(), "{machine}");
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
fn a_rank_of_another_launcher_refuses_what_it_would_not_do() {
    let me = env!("CARGO_BIN_EXE_portolan");
    for (words, said) in [
        (&["latency", "--peers"][..], "--peers is for jobs that"),
        (&["latency", "--report", "x"], "--report is for jobs that"),
        (&["latency", "--busy", "2"], "--busy is for jobs that"),
        (&["latency", "--pin", "0,0"], "--pin is for jobs that"),
        (&["latency", "--transport", "ofi"], "set PORTOLAN_TRANSPORT"),
        (&["latency", "-n", "4"], "--ranks is for jobs that"),
        (&["barrier", "--sizes", "8"], "barrier has no sizes"),
        (&["drain-random", "--sizes", "0"], "of no messages"),
        (&["latency", "--sizes", "8,4096T"], "use smaller --sizes"),
        (&["latency", "--window", "7"], "latency has no windows"),
        (&["idle", "--iterations", "7"], "idle has no rounds"),
    ] {
        let job = portolan(&[&["run", "-n", "2", "--", me, "bench"], words].concat());
        let outcome = outcome(job, b"");
        outcome.expect_code(2).expect_err(&[said]);
        assert_eq!(outcome.out, "");
    }
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dry");
    let page = page.to_str().unwrap();
    let told = bench(&[
        "latency",
        "--dry-run",
        "--sizes",
        "8,1k",
        "--pin",
        "none",
        "--report",
        page,
    ]);
    told.expect_code(0);
    assert_eq!(
        told.out,
        "latency: 2 ranks, --pin none; 1 each of portolan\n  \
         8 bytes: 3 rounds after 1\n  1024 bytes: 3 rounds after 1\n"
    );
    assert!(!std::fs::exists(page).unwrap(), "{page} was made");
    let (both, each) = if cfg!(feature = "ofi") {
        ("shm,ofi", "each of shm, ofi")
    } else {
        ("shm", "each of shm")
    };
    let told = bench(&["depth", "--dry-run", "--transport", both, "--sizes", "10"]);
    told.expect_code(0);
    for part in ["depth: 2 ranks", each, "10 waiting: 3 rounds"] {
        assert!(told.out.contains(part), "{}", told.out);
    }
    let told = bench(&["failure", "--dry-run"]);
    told.expect_code(0);
    assert_eq!(told.out, "failure: 4 ranks\n");
    // What makes no sense is refused all the same.
    bench(&["startup", "--dry-run", "--seconds", "3"])
        .expect_code(2)
        .expect_err(&["startup has no rounds that"]);
    for kind in ["latency", "failure"] {
        bench(&[kind, "--dry-run", "--transport", "shm,pigeon"])
            .expect_code(2)
            .expect_err(&["pigeon is no transport; choose from shm"]);
    }
}

#[test]
fn a_transport_that_is_not_there_is_refused() {
    bench(&["latency", "--transport", "shm,shm"])
        .expect_code(2)
        .expect_err(&["--transport: shm is named twice"]);
    let said = bench(&["latency", "--transport", "pigeon"]);
    said.expect_code(2)
        .expect_err(&["--transport: pigeon is no transport; choose from shm"]);
    // Once, and not by each rank; nor is what no rank of processes can use offered.
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(!said.err.contains("memory"), "{}", said.err);
    let mut command = portolan(&["bench", "latency"]);
    command.env("PORTOLAN_TRANSPORT", "pigeon");
    let said = outcome(command, b"");
    said.expect_code(2).expect_err(&[
        "PORTOLAN_TRANSPORT: pigeon is no",
        "or unset PORTOLAN_TRANSPORT",
    ]);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
}

#[test]
fn one_rank_is_refused() {
    for kind in [
        "latency",
        "rate",
        "overlap",
        "idle",
        "depth-unexpected",
        "startup",
        "failure",
    ] {
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
    bench(&["bandwidth", "--buffers", "0"])
        .expect_code(2)
        .expect_err(&["--buffers", "0 is not in 1..=65536"]);
    bench(&["bandwidth", "--buffers", "65"])
        .expect_code(2)
        .expect_err(&[
            "64 messages of a window cannot use 65 buffers",
            "--buffers 64",
        ]);
    bench(&["latency", "--buffers", "2"])
        .expect_code(2)
        .expect_err(&["latency has no windows", "leave --buffers out"]);
    bench(&["depth", "--alloc"])
        .expect_code(2)
        .expect_err(&["depth has no buffers", "leave --alloc out"]);
    bench(&["rate", "--cuda"]).expect_code(2).expect_err(&[
        "rate has no buffers that could be on a GPU",
        "leave --cuda out",
    ]);
    bench(&["latency", "--cuda", "--alloc"])
        .expect_code(2)
        .expect_err(&["'--cuda' cannot be used with '--alloc'"]);
    bench(&["latency", "--cuda", "--peers"])
        .expect_code(2)
        .expect_err(&["in the host's memory", "leave --peers or --cuda out"]);
    bench(&["coll", "--buffers", "2"])
        .expect_code(2)
        .expect_err(&["coll has no windows"]);
    // The longest of the default sizes counts, and a short message counts as a page.
    let many = ["--window", "65536", "--buffers", "65536"];
    bench(&[&["bandwidth"], &many[..]].concat())
        .expect_code(2)
        .expect_err(&["several --buffers for messages of 4194304 bytes"]);
    bench(&[&["rate", "--sizes", "8", "--pairs", "2048"], &many[..]].concat())
        .expect_code(2)
        .expect_err(&["several --buffers for messages of 8 bytes"]);
    bench(&["bandwidth", "--sizes", "1T", "--buffers", "64"])
        .expect_code(2)
        .expect_err(&[
            "several --buffers for messages of 1099511627776 bytes",
            "smaller --sizes",
        ]);
    bench(&["drain-random", "--sizes", "0"])
        .expect_code(2)
        .expect_err(&["drain-random of no messages"]);
    bench(&["depth", "--sizes", "1T"])
        .expect_code(2)
        .expect_err(&["no more than 100000000 can wait"]);
    bench(&["depth", "--sizes", "100000000", "-n", "4096"])
        .expect_code(2)
        .expect_err(&["queues of 100000000 entries", "smaller --sizes"]);
    bench(&["latency", "--map", "nowhere"])
        .expect_code(2)
        .expect_err(&["nowhere", "together", "apart"]);
    bench(&["latency", "--only", "mpich"])
        .expect_code(2)
        .expect_err(&["--peers"]);
    for (words, said) in [
        (&["failure", "--peers"][..], "failure is not compared"),
        (
            &["failure", "--map", "apart"],
            "failure does not map partners",
        ),
        (&["failure", "--busy", "1"], "failure has no other work"),
        (&["failure", "--iterations", "3"], "failure has no rounds"),
        (&["failure", "--seconds", "3"], "failure has no rounds that"),
        (&["idle", "--iterations", "3"], "idle has no rounds"),
        (&["startup", "--iterations", "3"], "startup has no rounds"),
        (&["startup", "--seconds", "3"], "startup has no rounds that"),
        (
            &["memory-all", "--iterations", "3"],
            "memory-all has no rounds",
        ),
        (&["latency", "--window", "64"], "latency has no windows"),
        (&["coll", "--window", "7"], "coll has no windows"),
        (&["tune", "--window", "7"], "tune has no windows"),
        (&["latency", "--threads", "2"], "latency has one thread"),
        (&["icoll", "--threads", "4"], "icoll has one thread"),
        (&["tune", "--report", "x"], "tune makes no report"),
        (&["tune", "--map", "together"], "tune does not map partners"),
        (&["tune", "--busy", "1"], "tune has no other work"),
        (&["tune", "--json"], "tune prints a table of rules"),
        (&["tune", "--transport", "shm,ofi"], "of one transport"),
    ] {
        bench(words).expect_code(2).expect_err(&[said, words[1]]);
    }
    // Refused by the name of the option that was given, and before anything is measured.
    bench(&["latency", "--pin", "0"])
        .expect_code(2)
        .expect_err(&["--pin: the list has 1 processor for 2 ranks"]);
    bench(&["failure", "--pin", "60000,60000"])
        .expect_code(2)
        .expect_err(&[
            "--pin: processor 60000 is not one that this process may use",
            "choose from ",
        ]);
    for seconds in ["-1", "0", "soon"] {
        bench(&["latency", "--seconds", seconds])
            .expect_code(2)
            .expect_err(&["--seconds", seconds, "not a time in seconds above 0"]);
    }
    bench(&["tune", "--sizes", "8,4096T"])
        .expect_code(2)
        .expect_err(&[
            "operations on blocks of 4503599627370496 bytes",
            "smaller --sizes",
        ]);
    bench(&["latency", "--sizes", "4096T"])
        .expect_code(2)
        .expect_err(&["4503599627370496 bytes", "are left here", "smaller --sizes"]);
}
