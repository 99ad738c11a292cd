//! Signals from outside, and what is left when processes die.
//!
//! A test reads the output to its end, which comes only when every process that holds it has ended.
//! That shows that no process is left.

// A skip prints why.
#![allow(clippy::print_stderr)]

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use common::{finish, is_alive, of_ours, outcome, portolan, signal, started, wait_until};

const WAIT: &str = "echo up $$; exec sleep 1000";

fn running(options: &[&str], script: &str, ranks: usize) -> (Child, Vec<String>) {
    let count = ranks.to_string();
    let args = [&["run", "-n", &count], options, &["--", "sh", "-c", script]].concat();
    started(portolan(&args), ranks)
}

fn pid(line: &str) -> &str {
    line.rsplit(' ').next().unwrap()
}

#[test]
fn ending_signals_are_passed_on_and_give_their_code() {
    for (number, name) in [
        (libc::SIGINT, "SIGINT"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGHUP, "SIGHUP"),
    ] {
        let (child, _) = running(&[], WAIT, 3);
        signal(child.id(), number);
        let outcome = finish(child);
        outcome.expect_code(128 + number);
        outcome.expect_err(&[&format!("signal {number} ({name}), which was passed on")]);
    }
}

#[test]
fn a_rank_may_end_well_after_a_signal() {
    let script = "trap 'echo done; exit 0' TERM; echo up $$; while :; do sleep 0.01; done";
    let (child, _) = running(&[], script, 2);
    signal(child.id(), libc::SIGTERM);
    let outcome = finish(child);
    outcome.expect_code(0);
    assert_eq!(outcome.out, "done\ndone\n");
}

#[test]
fn asking_twice_kills() {
    let script = "trap 'echo no' INT; echo up $$; while :; do sleep 0.01; done";
    let (mut child, _) = running(&[], script, 1);
    signal(child.id(), libc::SIGINT);
    // The rank must have handled the first signal before the second is sent; two at once would be
    // merged into one.
    let mut out = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut out, &mut [0; 3]).unwrap();
    child.stdout = Some(out);
    signal(child.id(), libc::SIGINT);
    finish(child)
        .expect_code(130)
        .expect_err(&["got SIGINT again and killed the job"]);
}

#[test]
fn reports_can_be_asked_for() {
    let script =
        "trap 'echo report $PMI_RANK; exit 0' USR1; echo up $$; while :; do sleep 0.01; done";
    let (child, _) = running(&[], script, 2);
    signal(child.id(), libc::SIGUSR1);
    let outcome = finish(child);
    outcome.expect_code(0);
    assert_eq!(outcome.sorted(), ["report 0", "report 1"]);
}

#[test]
fn nothing_outlives_a_killed_launcher() {
    // PR_SET_PDEATHSIG does not reach the background process.
    let script = "sleep 1000 & echo up $$; exec sleep 1000";
    for options in [&[][..], &["--label"]] {
        let (child, _) = running(options, script, 3);
        signal(child.id(), libc::SIGKILL);
        let outcome = finish(child);
        assert_eq!(outcome.code, None);
    }
}

#[test]
fn ranks_that_have_left_the_group_do_not_outlive_a_killed_launcher() {
    let args = ["run", "-n", "2", "--", "setsid", "sh", "-c", WAIT];
    let (child, _) = started(portolan(&args), 2);
    signal(child.id(), libc::SIGKILL);
    assert_eq!(finish(child).code, None);
}

#[test]
fn what_a_rank_leaves_behind_ends_with_the_job() {
    let (child, said) = running(&[], "sleep 1000 & echo up $!", 3);
    finish(child).expect_code(0);
    for line in said {
        assert!(!is_alive(pid(&line)), "{line}");
    }
}

/// Makes a command run as if the kernel had no `close_range`, which Linux has since 5.9.
fn without_close_range(command: &mut Command) {
    const fn step(code: u32, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf,
            k,
        }
    }
    let load_number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let is_it = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    let unknown = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let mut filter = [
        load_number,
        step(is_it, 1, libc::SYS_close_range as u32),
        step(end, 0, unknown),
        step(end, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the kernel reads the filter, which has that length, in the second call only.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0
        };
        match installed {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec the closure makes system calls, with memory that it owns.
    unsafe { command.pre_exec(install) };
}

#[test]
fn an_older_kernel_ends_jobs_as_well() {
    let script = "sleep 1000 & echo up $!";
    let mut command = portolan(&["run", "-n", "2", "--", "sh", "-c", script]);
    without_close_range(&mut command);
    match command.spawn() {
        Ok(child) => {
            finish(child).expect_code(0);
        }
        Err(why) => eprintln!("skipped: a kernel without close_range: {why}"),
    }
}

#[test]
fn what_has_left_the_process_group_ends_too() {
    let script = "setsid sleep 1000 & echo up $!; wait $!";
    let (child, said) = running(&[], script, 2);
    signal(child.id(), libc::SIGTERM);
    finish(child).expect_code(143);
    assert!(said.iter().all(|line| !is_alive(pid(line))), "{said:?}");
}

#[test]
fn ranks_in_groups_of_their_own_are_reached() {
    // `timeout` puts itself into a process group of its own.
    let args = ["run", "-n", "2", "--", "timeout", "1000", "sh", "-c", WAIT];
    let (child, _) = started(portolan(&args), 2);
    signal(child.id(), libc::SIGTERM);
    let code = finish(child).code;
    assert!(matches!(code, Some(124 | 143)), "{code:?}");
}

#[test]
fn the_death_of_one_rank_from_outside_is_named() {
    let (child, said) = running(&[], "echo up $PMI_RANK $$; exec sleep 1000", 4);
    let victim = said.iter().find(|line| line.starts_with("up 3 ")).unwrap();
    signal(pid(victim).parse().unwrap(), libc::SIGKILL);
    let outcome = finish(child);
    outcome.expect_code(137);
    let pid = format!("rank 3 (pid {}, node ", pid(victim));
    outcome.expect_err(&[
        &pid,
        "was killed by signal 9 (SIGKILL); ended the other 3 ranks",
    ]);
}

#[test]
fn a_job_stops_and_goes_on_with_its_launcher() {
    let script = "echo up $$; read go; echo went $go";
    let mut command = portolan(&["run", "-n", "1", "--", "sh", "-c", script]);
    command.stdin(std::process::Stdio::piped());
    let (mut child, said) = started(command, 1);
    let stopped = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/status"))
            .is_ok_and(|s| s.contains("State:\tT"))
    };
    signal(child.id(), libc::SIGTSTP);
    // The launcher stops itself last.
    let launcher = child.id().to_string();
    wait_until("the launcher to stop", || stopped(&launcher));
    wait_until("the rank to stop", || stopped(pid(&said[0])));
    signal(child.id(), libc::SIGCONT);
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"on\n").unwrap();
    let outcome = finish(child);
    outcome.expect_code(0);
    assert_eq!(outcome.out, "went on\n");
}

/// A launcher that replaces the shell after this script; returns after `lines` lines of output.
fn behind(script: &str, options: &[&str], rank: &str, lines: usize) -> (Child, Vec<String>) {
    let mut command = of_ours(Command::new("sh"));
    let shell = format!("{script}; exec \"$@\"");
    command.args(["-c", &shell, "sh", env!("CARGO_BIN_EXE_portolan"), "run"]);
    command.args(options).args(["--", "sh", "-c", rank]);
    started(command, lines)
}

#[test]
fn children_from_before_the_launcher_are_left_alone() {
    let other = "sleep 1000 > /dev/null 2>&1 & echo other $!";
    let (child, said) = behind(other, &["-n", "2"], "exit 0", 1);
    finish(child).expect_code(0);
    let other = pid(&said[0]);
    assert!(
        is_alive(other),
        "the launcher has ended what it did not start"
    );
    signal(other.parse().unwrap(), libc::SIGKILL);
}

/// As with `> >(filter | tee log)`: the shell between them ends first, and its child becomes the
/// launcher's child.
#[test]
fn what_children_from_before_the_launcher_leave_is_left_alone_too() {
    let quiet = "> /dev/null 2>&1";
    let stranger = format!(
        "sh -c 'sleep 1000 {quiet} & exec sleep 1000 {quiet}' & STRANGER=$!; export STRANGER"
    );
    // The stranger's child exists and is then adopted. A process of the rank's own has left the
    // ranks' group.
    let rank = format!(
        "until [ \"$other\" ]; do set -- $(cat /proc/$STRANGER/task/$STRANGER/children); other=$1; done; \
         kill -9 $STRANGER; \
         until grep -q \"^PPid:[[:space:]]*$PPID\\$\" /proc/$other/status; do :; done; echo other $other; \
         setsid sleep 1000 {quiet} & own=$!; \
         until grep -q \"^NSsid:[[:space:]]*$own\\$\" /proc/$own/status; do :; done; echo own $own"
    );
    let (child, said) = behind(&stranger, &["-n", "1"], &rank, 2);
    finish(child).expect_code(0);
    let [other, own] = [0, 1].map(|line: usize| pid(&said[line]));
    let lives = is_alive(other);
    if lives {
        signal(other.parse().unwrap(), libc::SIGKILL);
    }
    assert!(
        lives,
        "the launcher has ended what it did not start: {said:?}"
    );
    assert!(!is_alive(own), "what the rank has left goes on: {said:?}");
}

/// As under `nohup`, and as for interrupts of a script's background processes.
#[test]
fn signals_that_are_to_be_ignored_are() {
    let rank = "trap 'echo done; exit 7' TERM; echo up $$; while :; do sleep 0.01; done";
    let (child, _) = behind("trap '' HUP INT", &["-n", "1"], rank, 1);
    for number in [libc::SIGHUP, libc::SIGINT, libc::SIGHUP, libc::SIGINT] {
        signal(child.id(), number);
    }
    // This is the first signal that is not ignored, so it is passed on.
    signal(child.id(), libc::SIGTERM);
    let outcome = finish(child);
    assert_eq!(outcome.out, "done\n", "{outcome:#?}");
}

#[test]
fn a_parent_that_does_not_care_for_its_children_does_no_harm() {
    let mut command = of_ours(Command::new("env"));
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_portolan")]);
    command.args([
        "run",
        "--timeout",
        "60",
        "-n",
        "1",
        "--",
        "sh",
        "-c",
        "echo up $$; exit 3",
    ]);
    let (child, _) = started(command, 1);
    finish(child).expect_code(3);

    let mut command = of_ours(Command::new("env"));
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_portolan")]);
    let least = ["--repeat", "1", "--iterations", "3"];
    command
        .args(["bench", "latency", "--sizes", "8"])
        .args(least);
    outcome(command, b"").expect_code(0);
}

#[test]
fn a_job_that_is_being_started_can_be_ended() {
    // So many take seconds to start.
    const RANKS: &str = "2000";
    let child = portolan(&["run", "-n", RANKS, "--", "sleep", "60"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let children = format!("/proc/{pid}/task/{pid}/children");
    // The guard, and at least one rank.
    wait_until("it starts ranks", || {
        let children = std::fs::read_to_string(&children);
        children.is_ok_and(|pids| pids.split_whitespace().count() > 1)
    });
    signal(pid, libc::SIGTERM);
    let outcome = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(
        said.contains("got SIGTERM when ") && said.contains(" of 2000 ranks"),
        "{said}"
    );
    assert_eq!(outcome.status.code(), Some(128 + libc::SIGTERM), "{said}");
}
