//! `portolan demo`: the main job, with real input, from one command.

// A skip prints why.
#![allow(clippy::print_stderr)]

mod common;

use std::path::Path;

use common::{outcome, portolan};

#[test]
fn the_demo_draws_says_what_it_chose_and_measures() {
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo.png");
    let _ = std::fs::remove_file(&picture);
    let mut command = portolan(&["demo", "--size", "96", "--steps", "50", "--output"]);
    command.arg(&picture);
    let outcome = outcome(command, b"");
    outcome.expect_code(0);
    let file = std::fs::read(&picture).expect("the picture is there");
    assert!(file.starts_with(b"\x89PNG\r\n"), "it is no picture");
    for part in [
        "# heat equation, 96 × 96 points, 50 steps, 4 ranks in 2 × 2 blocks",
        &format!("picture: {}", picture.display()),
        "large copies: ",
        "wake-up: ",
        "largest error against the analytic solution",
        "# latency over shm, 2 ranks",
        "# bandwidth over shm, 2 ranks",
    ] {
        assert!(
            outcome.out.contains(part),
            "`{part}` is missing: {outcome:#?}"
        );
    }
    // What was chosen and why is reported once.
    assert_eq!(outcome.err.matches("shm").count(), 1, "{outcome:#?}");
}

#[test]
fn over_libfabric_it_says_on_what_provider() {
    if let Some(why) = common::no_libfabric() {
        eprintln!("skipped: the demo over libfabric: {why}");
        return;
    }
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo-over-ofi.png");
    let mut command = portolan(&["demo", "--size", "64", "--steps", "10", "--output"]);
    command.arg(&picture).env("PORTOLAN_TRANSPORT", "ofi");
    let outcome = outcome(command, b"");
    let asked = "transport ofi (asked for: PORTOLAN_TRANSPORT=ofi)";
    outcome.expect_code(0).expect_err(&[asked]);
    for part in [
        "  libfabric: ",
        "  provider: ",
        "  network: ",
        "  registration: ",
        "largest error against the analytic solution",
        "# latency over ofi, 2 ranks",
    ] {
        assert!(
            outcome.out.contains(part),
            "`{part}` is missing: {outcome:#?}"
        );
    }
}

#[test]
fn a_demo_that_cannot_draw_fails_with_the_reason_and_measures_nothing() {
    let outcome = outcome(
        portolan(&[
            "demo",
            "--size",
            "32",
            "--steps",
            "5",
            "--output",
            "/no/such/folder/x.png",
        ]),
        b"",
    );
    outcome
        .expect_code(1)
        .expect_err(&["/no/such/folder/x.png"]);
    assert!(!outcome.out.contains("latency"), "{outcome:#?}");
}
