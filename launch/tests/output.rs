//! The output, input and environment of ranks.

mod common;

use common::{outcome, portolan, run_script};

#[test]
fn output_passes_through_unchanged() {
    let outcome = run_script(
        3,
        &[],
        "echo rank $PMI_RANK of $PMI_SIZE; echo e$PMI_RANK >&2",
    );
    outcome.expect_code(0);
    assert_eq!(
        outcome.sorted(),
        ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]
    );
    let mut err: Vec<_> = outcome.err.lines().collect();
    err.sort_unstable();
    assert_eq!(err, ["e0", "e1", "e2"]);
}

#[test]
fn labels_are_before_every_line_also_the_last_without_end() {
    let outcome = run_script(2, &["--label"], "echo a; echo; printf b; echo c >&2");
    outcome.expect_code(0);
    assert_eq!(
        outcome.sorted(),
        ["[0] ", "[0] a", "[0] b", "[1] ", "[1] a", "[1] b"]
    );
    let mut err: Vec<_> = outcome.err.lines().collect();
    err.sort_unstable();
    assert_eq!(err, ["[0] c", "[1] c"]);
}

#[test]
fn labelled_lines_of_many_ranks_do_not_mix_and_none_is_lost() {
    let script = "i=0; while [ $i -lt 2000 ]; do echo line $i of rank $PMI_RANK xxxxxxxxxxxxxxxxxxx; \
                  i=$((i+1)); done";
    let outcome = run_script(4, &["--label"], script);
    outcome.expect_code(0);
    let mut next = [0; 4];
    for line in outcome.out.lines() {
        let rank: usize = line[1..2].parse().unwrap();
        let i = next[rank];
        assert_eq!(
            line,
            format!("[{rank}] line {i} of rank {rank} xxxxxxxxxxxxxxxxxxx")
        );
        next[rank] += 1;
    }
    assert_eq!(next, [2000; 4]);
}

#[test]
fn a_reader_that_leaves_ends_the_ranks_output_and_not_the_launcher() {
    let script = format!(
        "{} run -n 2 --label -- yes | head -n 1; echo reader $?",
        env!("CARGO_BIN_EXE_portolan")
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let outcome = outcome(command, b"");
    assert!(outcome.out.ends_with("y\nreader 0\n"), "{outcome:#?}");
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = portolan(&["run", "-n", "2", "--label", "--", "echo", "lost"]);
    command.stdout(full);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        err.contains("cannot write the ranks' output: No space left"),
        "{err}"
    );
}

#[test]
fn standard_input_goes_to_rank_0_alone() {
    let script = "echo $PMI_RANK $(cat)";
    let args = ["run", "-n", "3", "--", "sh", "-c", script];
    let outcome = outcome(portolan(&args), b"given");
    outcome.expect_code(0);
    assert_eq!(outcome.sorted(), ["0 given", "1", "2"]);
}

#[test]
fn a_large_input_arrives_whole() {
    let input = vec![b'x'; 3 << 20];
    let args = [
        "run",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "[ $PMI_RANK = 0 ] && wc -c || true",
    ];
    let outcome = outcome(portolan(&args), &input);
    assert_eq!(outcome.out.trim(), (3 << 20).to_string());
}

#[cfg(feature = "ofi")]
#[test]
fn libraries_are_told_what_ranks_have_in_common_unless_somebody_has_said_otherwise() {
    let known = portolan::rank_variables();
    assert!(
        !known.is_empty(),
        "the transport over libfabric has something to tell"
    );
    for (name, value) in known {
        let script = format!("echo ${name}");
        let told = |outside: Option<&str>, options: &[&str]| {
            let mut command = portolan(&["run", "-n", "2"]);
            command.args(options).args(["--", "sh", "-c", &script]);
            command.env_remove(name);
            if let Some(value) = outside {
                command.env(name, value);
            }
            let outcome = outcome(command, b"");
            outcome.expect_code(0);
            outcome.out
        };
        let both = |value: &str| format!("{value}\n{value}\n");
        assert_eq!(told(None, &[]), both(value));
        assert_eq!(told(Some("7"), &[]), both("7"));
        let option = format!("{name}=8");
        assert_eq!(told(Some("7"), &["--env", &option]), both("8"));
    }
}

#[test]
fn variables_are_set_and_tell_each_rank_its_place() {
    let options = [
        "--env",
        "A=b c=d",
        "--env",
        "PMI_RANK=77",
        "--transport",
        "shm",
    ];
    let script =
        "echo $PMI_RANK/$PMI_SIZE $A $PORTOLAN_TRANSPORT $MPI_LOCALRANKID ${PMIX_RANK:-none}";
    let mut command = portolan(&["run", "-n", "2"]);
    command
        .args(options)
        .args(["--", "sh", "-c", script])
        .env("PMIX_RANK", "5");
    let outcome = outcome(command, b"");
    assert_eq!(
        outcome.sorted(),
        ["0/2 b c=d shm 0 none", "1/2 b c=d shm 1 none"]
    );
}

#[test]
fn all_ranks_share_one_memory_file_and_one_job() {
    let script = "readlink /proc/self/fd/$PORTOLAN_SHM_FD; stat -L -c %i /proc/self/fd/$PORTOLAN_SHM_FD; \
                  echo $PORTOLAN_JOB_ID";
    let outcome = run_script(3, &[], script);
    outcome.expect_code(0);
    let mut lines = outcome.sorted();
    lines.dedup();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("/memfd:portolan ")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("portolan-")),
        "{lines:?}"
    );
}

#[test]
fn ranks_hold_no_descriptor_of_the_launcher_but_theirs() {
    // The open descriptors, as `find` lists them. They include pipes and sockets of the launcher's
    // parent.
    let find = ["find", "/proc/self/fd", "-printf", "%l\\n"];
    let count = |out: &str, kind: &str| out.lines().filter(|line| line.starts_with(kind)).count();
    let mut alone = std::process::Command::new(find[0]);
    alone.args(&find[1..]).stdout(std::process::Stdio::piped());
    alone.stderr(std::process::Stdio::piped());
    let alone = outcome(alone, b"").out;
    let rank = outcome(
        portolan(&[&["run", "-n", "1", "--"], &find[..]].concat()),
        b"",
    )
    .out;
    assert_eq!(
        count(&rank, "socket:"),
        count(&alone, "socket:") + 1,
        "{alone}\n{rank}"
    );
    assert_eq!(
        count(&rank, "/memfd:"),
        count(&alone, "/memfd:") + 1,
        "{alone}\n{rank}"
    );
    assert_eq!(
        count(&rank, "pipe:"),
        count(&alone, "pipe:"),
        "{alone}\n{rank}"
    );
    assert_eq!(
        rank.lines().count(),
        alone.lines().count() + 2,
        "{alone}\n{rank}"
    );
}

#[test]
fn binding_is_honoured_or_refused() {
    let script = "grep Cpus_allowed_list /proc/self/status | cut -f 2";
    let all = run_script(1, &[], script);
    let first: String = all.out.chars().take_while(char::is_ascii_digit).collect();
    let outcome = run_script(2, &["--bind", &format!("{first},{first}")], script);
    assert_eq!(outcome.sorted(), [&first, &first]);
    run_script(9, &["--bind", "core"], "exit 0").expect_code(0);
    run_script(1, &["--bind", "60000"], "exit 0")
        .expect_code(125)
        .expect_err(&["processor 60000 is not one that this process may use"]);
}
