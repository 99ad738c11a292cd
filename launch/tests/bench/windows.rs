//! How the messages of a window are sent: from how many buffers, and whether in a scope.

use std::path::PathBuf;

use crate::common::{outcome, portolan};
use crate::{bench, expect_row, rows};

#[test]
fn several_buffers_are_told_and_kept_apart() {
    let words = ["bandwidth", "--sizes", "1k", "--window", "7", "--json"];
    let (one, _) = rows(&bench(&words));
    assert!(one[0].get("buffers").is_none(), "{one:?}");
    let (several, _) = rows(&bench(&[&words[..], &["--buffers", "7"]].concat()));
    assert_eq!(several[0]["buffers"], 7);

    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("report-buffers-{}", std::process::id()));
    let report = ["--report", folder.to_str().unwrap()];
    for buffers in ["1", "7"] {
        let words = [
            "bandwidth",
            "--sizes",
            "1k",
            "--window",
            "7",
            "--buffers",
            buffers,
        ];
        let outcome = bench(&[&words[..], &report].concat());
        outcome.expect_code(0);
        let said = outcome.out.contains("windows of 7 in 7 buffers");
        assert_eq!(said, buffers == "7", "{outcome:#?}");
    }
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    let kept = [
        "bandwidth-2-window7.json",
        "bandwidth-2-window7-buffers7.json",
    ];
    assert!(kept.iter().all(|name| folder.join(name).is_file()));
    assert!(page.contains("windows of 7 in 7 buffers"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn windows_in_scopes_are_told_and_kept_apart() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("report-scope-{}", std::process::id()));
    let report = ["--report", folder.to_str().unwrap()];
    for (pattern, unit) in [
        ("bandwidth", "MB/s"),
        ("bibandwidth", "MB/s"),
        ("rate", "messages/s"),
    ] {
        let words = [pattern, "--sizes", "8,100k", "--window", "7", "--scope"];
        let (rows, _) = rows(&bench(&[&words[..], &["--json"]].concat()));
        assert_eq!(rows.len(), 2);
        for row in rows {
            expect_row(&row, pattern, 2, unit);
            assert_eq!((&row["scope"], &row["buffers"]), (&true.into(), &7.into()));
        }
        let table = bench(&[&words[..], &report].concat());
        table.expect_code(0);
        let head = table.out.lines().next().unwrap();
        let said = ", windows of 7 in 7 buffers, each in a scope";
        assert!(head.ends_with(said), "{table:#?}");
        let kept = format!("{pattern}-2-window7-buffers7-scope.json");
        assert!(folder.join(&kept).is_file(), "{kept}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let (plain, _) = rows(&bench(&["rate", "--sizes", "8", "--json"]));
    assert!(plain[0].get("scope").is_none(), "{plain:?}");
    let told = bench(&["rate", "--scope", "--dry-run", "--sizes", "8"]);
    told.expect_code(0);
    let said = ", windows in scopes; 1 each";
    assert!(told.out.contains(said), "{}", told.out);
}

#[test]
fn a_rank_of_another_launcher_has_windows_in_scopes_too() {
    let me = env!("CARGO_BIN_EXE_portolan");
    let rank = ["run", "-n", "2", "--", me, "bench", "rate", "--scope"];
    let least = ["--sizes", "8", "--json", "--repeat", "1"];
    let few = ["--iterations", "3"];
    let command = portolan(&[&rank[..], &least, &few].concat());
    let (rows, _) = rows(&outcome(command, b""));
    expect_row(&rows[0], "rate", 2, "messages/s");
    assert_eq!(
        (&rows[0]["scope"], &rows[0]["buffers"]),
        (&true.into(), &64.into())
    );
}

/// Only ranks whose windows are scopes need a buffer for each message.
#[test]
fn ranks_follow_the_option() {
    let me = env!("CARGO_BIN_EXE_portolan");
    let rank = ["run", "-n", "2", "--", me, "bench-rank", "rate"];
    let job = ["--window", "7", "--buffers", "3", "--limit", "1", "8:3:1"];
    let ran = |option: &[&str]| outcome(portolan(&[&rank[..], &job, option].concat()), b"");
    ran(&[]).expect_code(0);
    let said = "the 7 messages of a scope cannot have 3 buffers";
    ran(&["--scope"]).expect_code(1).expect_err(&[said]);
}

#[test]
fn scopes_that_cannot_be_are_refused() {
    let few = ["bandwidth", "--scope", "--buffers", "63"];
    for (words, said) in [
        (&["latency", "--scope"][..], "leave --scope out"),
        (&["coll", "--scope"], "coll has no windows"),
        (&["tune", "--scope"], "tune has no windows"),
        (&["failure", "--scope"], "failure has no windows"),
        (&["bandwidth", "--scope", "--cuda"], "cannot be used with"),
        (&few, "the 64 messages of a scope have a buffer each"),
        (&["rate", "--scope", "--buffers", "65"], "use --buffers 64"),
    ] {
        bench(words).expect_code(2).expect_err(&[said]);
    }
    let all = ["rate", "--scope", "--buffers", "64", "--dry-run"];
    bench(&all).expect_code(0);
}
