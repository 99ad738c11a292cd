//! The exit code of `portolan run`, and the rank that it names.

mod common;

use common::{run, run_script};

#[test]
fn success_is_zero_and_silent() {
    for ranks in [1, 2, 5, 8] {
        let outcome = run_script(ranks, &[], "exit 0");
        outcome.expect_code(0);
        assert_eq!(outcome.err, "");
    }
}

#[test]
fn the_code_is_that_of_the_rank_that_failed() {
    let outcome = run_script(4, &[], "[ $PMI_RANK = 2 ] && exit 42; exec sleep 1000");
    outcome.expect_code(42);
    outcome.expect_err(&[
        "portolan run: rank 2 (pid ",
        "exited with code 42",
        "ended the other 3 ranks",
    ]);
}

#[test]
fn a_rank_killed_by_a_signal_gives_128_and_its_number() {
    let outcome = run_script(4, &[], "[ $PMI_RANK = 1 ] && kill -9 $$; exec sleep 1000");
    outcome.expect_code(137);
    outcome.expect_err(&[
        "rank 1 (pid ",
        "was killed by signal 9 (SIGKILL); ended the other 3 ranks",
    ]);
    let outcome = run_script(
        2,
        &[],
        "[ $PMI_RANK = 1 ] && kill -SEGV $$; exec sleep 1000",
    );
    outcome.expect_code(139);
    outcome.expect_err(&["signal 11 (SIGSEGV)", "; ended the other rank"]);
}

#[test]
fn ranks_that_ignore_sigterm_are_killed() {
    let script = "trap '' TERM; [ $PMI_RANK = 0 ] && exit 5; while :; do sleep 1000; done";
    run_script(3, &[], script)
        .expect_code(5)
        .expect_err(&["rank 0", "ended the other 2 ranks"]);
}

#[test]
fn stopped_ranks_are_ended_too() {
    // Rank 0 waits until rank 1 has stopped: state T in its /proc entry.
    let script = "
        if [ $PMI_RANK = 1 ]; then echo $$ >$FILE.new; mv $FILE.new $FILE; kill -STOP $$; exec sleep 1000; fi
        until [ -s $FILE ] && grep -q 'State:.T' /proc/$(cat $FILE)/status; do :; done
        exit 6";
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/stopped-pid");
    let _ = std::fs::remove_file(file);
    run_script(2, &["--env", &format!("FILE={file}")], script).expect_code(6);
}

#[test]
fn with_return_the_others_go_on_and_the_failure_still_counts() {
    let script = "[ $PMI_RANK = 1 ] && exit 9; echo $PORTOLAN_ON_FAILURE";
    let outcome = run_script(3, &["--on-failure", "return"], script);
    outcome
        .expect_code(9)
        .expect_err(&["rank 1", "exited with code 9"]);
    assert_eq!(outcome.sorted(), ["return", "return"]);
}

#[test]
fn the_environment_decides_unless_the_option_does() {
    let script = "[ $PMI_RANK = 1 ] && exit 9; \
                  [ $PORTOLAN_ON_FAILURE = return ] || exec sleep 1000; echo went on";
    let set = ["--env", "PORTOLAN_ON_FAILURE=return"];
    let go_on = run_script(2, &set, script);
    go_on.expect_code(9);
    assert_eq!(go_on.out.trim(), "went on");
    let ended = run_script(2, &[&set[..], &["--on-failure", "abort"]].concat(), script);
    ended.expect_code(9).expect_err(&["ended the other rank"]);
}

#[test]
fn a_setting_that_no_rank_could_use_is_refused_once() {
    let outcome = run_script(4, &["--env", "PORTOLAN_WAIT=maybe"], "echo started");
    outcome
        .expect_code(125)
        .expect_err(&["PORTOLAN_WAIT=maybe", "one of auto, spin"]);
    assert_eq!(
        (&*outcome.out, outcome.err.matches("PORTOLAN_WAIT").count()),
        ("", 1)
    );
}

#[test]
fn a_program_that_is_not_there_is_127() {
    run(&["-n", "2", "--", "no-such-program-anywhere"])
        .expect_code(127)
        .expect_err(&["cannot start `no-such-program-anywhere`: no such program in PATH"]);
    run(&["-n", "2", "--", "./nor/here"])
        .expect_code(127)
        .expect_err(&["there is no such file"]);
}

#[test]
fn a_file_that_is_no_program_is_126() {
    run(&["-n", "2", "--", "/etc/passwd"])
        .expect_code(126)
        .expect_err(&["may not be executed"]);
    run(&["-n", "2", "--", "/tmp"])
        .expect_code(126)
        .expect_err(&["it is a folder"]);
}

#[test]
fn a_script_whose_interpreter_is_missing_says_so() {
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/lost-interpreter");
    std::fs::write(file, "#!/no/such/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(file, mode).unwrap();
    run(&["-n", "3", "--", file])
        .expect_code(127)
        .expect_err(&["cannot start rank 0", "not the interpreter or loader"]);
}

#[test]
fn a_job_that_takes_too_long_is_124() {
    let outcome = run_script(
        3,
        &["--timeout", "0.2"],
        "[ $PMI_RANK = 1 ] && exit 0; exec sleep 1000",
    );
    outcome.expect_code(124);
    outcome.expect_err(&[
        "did not end within 0.2 s",
        "still running: ranks 0, 2; ended all 2 ranks",
    ]);
}

#[test]
fn ranks_that_can_report_are_asked_before_the_time_is_up() {
    let script = "trap 'echo rank $PMI_RANK waits; exit 0' USR1; while :; do sleep 0.01; done";
    let outcome = run_script(2, &["--timeout", "0.5"], script);
    assert_eq!(outcome.sorted(), ["rank 0 waits", "rank 1 waits"]);
}

#[test]
fn wrong_use_is_2() {
    run(&["--", "true"]).expect_code(2);
    run(&["-n", "0", "--", "true"]).expect_code(2);
    run(&["-n", "2", "--bind", "7-3", "--", "true"])
        .expect_code(2)
        .expect_err(&["0,2,4-7"]);
}
