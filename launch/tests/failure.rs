//! A rank is killed in every kind of situation. The others either end with it, or get an error and
//! continue. No process is left running.
//!
//! The tests check in two ways that no process is left: they read the job's output to its end,
//! which comes when the last process that holds it has ended, and they check the pids that the
//! ranks have printed. `--timeout` ends a job that hangs, with a code that no test expects.

// Ranks talk to the tests through their output.
#![allow(clippy::print_stderr, clippy::print_stdout)]

#[path = "failure/across.rs"]
mod across;
mod common;
#[path = "common/rank.rs"]
mod rank;
#[path = "failure/roles.rs"]
mod roles;

use std::process::{Command, ExitCode};

use common::{Outcome, finish, is_alive, signal, started, wait_until};
use libtest_mimic::{Failed, Trial};

/// Sizes of the jobs. The last rank is the one that dies.
const SIZES: [u32; 3] = [2, 3, 5];

/// What the dying rank does when it is killed.
const RUNNING: [&str; 5] = [
    "sending-large",
    "sending-small",
    "receiving",
    "asleep",
    "barrier",
];

/// Collective operations that all ranks repeat when one is killed, and the sizes of the jobs: large
/// enough that some ranks wait only for ranks that live.
const COLLECTIVES: [&str; 5] = [
    "broadcasting",
    "broadcasting-large",
    "broadcasting-from-0",
    "agreeing",
    "summing",
];
const LARGER: [u32; 3] = [3, 5, 8];

/// The same over libfabric, with fewer sizes and only some of the collective operations.
const OVER_OFI: [(&[&str], [u32; 2]); 2] = [
    (&RUNNING, [2, 3]),
    (&["broadcasting-large", "summing"], [3, 5]),
];

/// Over libfabric's shared memory: what is under way with the dying rank, which no longer polls.
/// There is no connection whose end would end the operation.
const ON_SHM: [&str; 4] = ["putting", "getting", "announcing", "deaf"];

/// The variable with the path of a second version of libfabric. `cargo xtask test` sets it if there
/// is one.
const NEWER: &str = "PORTOLAN_TEST_LIBFABRIC";

/// The moment in its start at which a rank kills itself.
const ATTACHING: [&str; 3] = ["before", "joined", "mapped"];

fn main() -> ExitCode {
    rank::main(roles::play, trials)
}

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for size in SIZES {
        for role in RUNNING {
            for on_failure in ["abort", "return"] {
                trials.push(Trial::test(
                    format!("killed_{role}_{size}_ranks_{on_failure}"),
                    move || killed(role, size, on_failure),
                ));
            }
        }
        for role in ATTACHING {
            for on_failure in ["abort", "return"] {
                trials.push(Trial::test(
                    format!("killed_attaching_{role}_{size}_ranks_{on_failure}"),
                    move || attaching(role, size, on_failure),
                ));
            }
        }
    }
    for size in LARGER {
        for role in COLLECTIVES {
            for on_failure in ["abort", "return"] {
                trials.push(Trial::test(
                    format!("killed_{role}_{size}_ranks_{on_failure}"),
                    move || killed(role, size, on_failure),
                ));
            }
        }
    }
    for role in ["message", "blocking", "started", "planned", "created"] {
        trials.push(Trial::test(
            format!("errors_that_end_the_job_{role}"),
            move || strict(role),
        ));
    }
    let hears = "the_launcher_hears_of_a_failure_from_who_has_failed";
    trials.push(Trial::test(hears, failing));
    trials.push(Trial::test(
        "a_launcher_that_hears_late_blames_who_has_failed",
        failing_unheard,
    ));
    trials.push(Trial::test(
        "killed_launcher_of_scripts_that_have_left_the_group",
        outside_of_the_group,
    ));
    trials.extend(over_ofi());
    trials
}

/// A rank's program fails after it has announced a long message and while another rank wants that
/// message.
fn failing() -> Result<(), Failed> {
    let outcome = rank::play(&["--timeout", "30"], 2, "failing");
    outcome.expect_code(7);
    outcome.expect_err(&["portolan run: rank 1 (pid ", "exited with code 7"]);
    nothing_in_shared_memory()
}

/// The same while the launcher is stopped: it finds that both ranks have ended, the one that failed
/// and the one that has seen that, and has asked for the job's end.
fn failing_unheard() -> Result<(), Failed> {
    let (child, pids) = started(rank::command(&["--timeout", "30"], 2, "failing-loudly"), 2);
    signal(child.id(), libc::SIGSTOP);
    for line in pids {
        let pid = line.trim().to_owned();
        // Its first thread may be the first that has ended.
        let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        wait_until("the end of a rank", || !is_alive(&pid) && threads() < 2);
    }
    signal(child.id(), libc::SIGCONT);
    let outcome = finish(child);
    outcome.expect_code(7);
    outcome.expect_err(&["portolan run: rank 1 (pid ", "exited with code 7"]);
    nothing_in_shared_memory()
}

/// The launcher is killed. Only its guard knows the ranks' processes, which scripts have started in
/// other sessions.
fn outside_of_the_group() -> Result<(), Failed> {
    let script = "\"$0\" \"$1\"; exit $?";
    let mut command = common::portolan(&["run", "-n", "2", "setsid", "sh", "-c", script]);
    command.arg(std::env::current_exe()?).arg("role:asleep");
    let (child, _) = started(command, 2);
    signal(child.id(), libc::SIGKILL);
    // The output ends only if the ranks do.
    assert_eq!(finish(child).code, None);
    nothing_in_shared_memory()
}

/// An error on a communicator whose errors end the job ends the job on every rank, and is printed.
fn strict(role: &str) -> Result<(), Failed> {
    let outcome = rank::play(&["--timeout", "30"], 3, role);
    outcome.expect_code(1);
    let what = if role == "created" {
        "process 3 of the new group"
    } else {
        "outside of"
    };
    outcome.expect_err(&["rank 0", what]);
    assert_eq!(outcome.out, "", "the call returned");
    Ok(())
}

/// The tests over libfabric: over TCP on the loopback interface, and over shared memory.
fn over_ofi() -> Vec<Trial> {
    let offered = portolan::transports();
    let ofi = offered.iter().find(|transport| transport.name == "ofi");
    if let Some(why) = ofi.map_or(Some("it is not compiled in"), |ofi| ofi.unusable.as_deref()) {
        eprintln!("skipped: deaths over libfabric: {why}");
        return Vec::new();
    }
    let mut trials = Vec::new();
    for (roles, sizes) in OVER_OFI {
        for size in sizes {
            for &role in roles {
                for on_failure in ["abort", "return"] {
                    trials.push(Trial::test(
                        format!("killed_over_ofi_{role}_{size}_ranks_{on_failure}"),
                        move || {
                            let words =
                                [&options(on_failure)[..], &["--transport", "ofi"]].concat();
                            let mut command = rank::command(&words, size, role);
                            command.env("PORTOLAN_OFI_INTERFACE", "lo");
                            killed_in(command, role, size, on_failure)
                        },
                    ));
                }
            }
        }
    }
    for role in ["asleep", "sending-large"] {
        trials.push(Trial::test(
            format!("killed_over_ofi_where_the_provider_matches_{role}"),
            move || killed_where_the_provider_matches(role),
        ));
    }
    trials.extend(across::trials());
    let newer = std::env::var_os(NEWER);
    if newer.is_none() {
        eprintln!("skipped: deaths over a second version of libfabric: {NEWER} names none");
    }
    for role in ON_SHM {
        for size in [2, 3] {
            trials.push(Trial::test(
                format!("killed_on_shm_of_libfabric_{role}_{size}_ranks"),
                move || killed_in(on_shm(role, size), role, size, "return"),
            ));
            let Some(library) = newer.clone() else {
                continue;
            };
            trials.push(Trial::test(
                format!("killed_on_shm_of_newer_libfabric_{role}_{size}_ranks"),
                move || {
                    let mut command = on_shm(role, size);
                    command.env("PORTOLAN_OFI_LIBRARY", &library);
                    killed_in(command, role, size, "return")
                },
            ));
        }
    }
    if let Some(library) = newer {
        for role in ["putting", "deaf"] {
            let mut command = on_shm(role, 3);
            command.env("PORTOLAN_OFI_PROVIDER", "sm2");
            command.env("PORTOLAN_OFI_LIBRARY", &library);
            trials.push(Trial::test(
                format!("killed_on_sm2_of_newer_libfabric_{role}"),
                move || killed_in(command, role, 3, "return"),
            ));
        }
    }
    // The launcher must remove the victim's files.
    trials.push(Trial::test("killed_over_ofi_on_shm", || {
        killed_in(on_shm("outside", 3), "outside", 3, "return")
    }));
    trials.push(Trial::test("killed_launcher_over_ofi_on_shm", || {
        killed_launcher(on_shm("asleep", 3))
    }));
    // The guard must have been told of processes that the launcher has not started.
    trials.push(Trial::test(
        "killed_launcher_of_scripts_over_ofi_on_shm",
        || killed_launcher(behind_a_script()?),
    ));
    trials.push(Trial::test(
        "killed_behind_a_script_over_ofi_on_shm",
        killed_behind_a_script,
    ));
    trials.push(Trial::test("killed_in_the_provider_shm", || {
        let (outcome, pids) = end_of(on_shm("barrier", 3), "barrier", 3)?;
        // No rank hangs, not even in a lock that the dead rank held.
        for rank in 0..2 {
            let told = outcome.out.contains(&format!("done {rank}\n"));
            let stuck =
                format!("rank {rank}: a call of libfabric's provider shm has not come back");
            let named =
                outcome.err.contains(&stuck) && outcome.err.contains("PORTOLAN_TRANSPORT=shm");
            assert!(
                told || named || was_told_of_the_other(&outcome, rank),
                "{outcome:#?}"
            );
        }
        nothing_is_left(&outcome, &pids)
    }));
    trials
}

/// The provider matches. The first error of each rank has the reason of the death, which the
/// device knows before the engine counts the rank as dead.
fn killed_where_the_provider_matches(role: &str) -> Result<(), Failed> {
    let words = [&options("return")[..], &["--transport", "ofi"]].concat();
    let mut command = rank::command(&words, 3, role);
    command.env("PORTOLAN_OFI_INTERFACE", "lo");
    command.env("PORTOLAN_OFI_PROVIDER", "tcp");
    command.env("PORTOLAN_MATCH", "native");
    let (outcome, pids) = end_of(command, role, 3)?;
    everybody_was_told(&outcome, role, 2);
    let told = outcome.out.lines().filter(|line| line.starts_with("told "));
    for line in told {
        // The words for a death whose reason is not known.
        let bare = "has failed: it has died";
        assert!(!line.contains(bare), "`{line}`: {outcome:#?}");
    }
    nothing_is_left(&outcome, &pids)
}

/// A job on libfabric's shared memory. A polling rank holds a lock of its queue there most of the
/// time.
fn on_shm(role: &str, size: u32) -> Command {
    let words = [&options("return")[..], &["--transport", "ofi"]].concat();
    let mut command = rank::command(&words, size, role);
    command.env("PORTOLAN_OFI_PROVIDER", "shm");
    command
}

/// Whether this rank, of the first two, survived the other one and got an error because of it.
fn was_told_of_the_other(outcome: &Outcome, rank: u32) -> bool {
    let told = format!("rank {rank} (ofi): world rank {} has failed", 1 - rank);
    outcome.err.contains(&told)
}

fn options(on_failure: &str) -> [&str; 4] {
    ["--timeout", "30", "--on-failure", on_failure]
}

/// Every rank reports that it is ready; then the last one is killed.
fn killed(role: &str, size: u32, on_failure: &str) -> Result<(), Failed> {
    let command = rank::command(&options(on_failure), size, role);
    killed_in(command, role, size, on_failure)
}

/// The same with a given command as the job.
fn killed_in(command: Command, role: &str, size: u32, on_failure: &str) -> Result<(), Failed> {
    let (outcome, pids) = end_of(command, role, size)?;
    if on_failure == "return" {
        everybody_was_told(&outcome, role, size - 1);
    }
    nothing_is_left(&outcome, &pids)
}

/// A job on libfabric's shared memory whose ranks are the children of scripts.
fn behind_a_script() -> Result<Command, Failed> {
    let job = ["--transport", "ofi", "-n", "3", "sh", "-c"];
    let script = ["\"$0\" \"$1\"; exit $?"];
    let mut command = common::portolan(&[&["run"], &options("abort")[..], &job, &script].concat());
    command.arg(std::env::current_exe()?).arg("role:asleep");
    command.env("PORTOLAN_OFI_PROVIDER", "shm");
    Ok(command)
}

/// The ranks are the children of scripts. Everything that they leave is removed, although the
/// launcher has started only the scripts.
fn killed_behind_a_script() -> Result<(), Failed> {
    let (child, said) = started(behind_a_script()?, 3);
    let pids: Vec<&str> = said.iter().filter_map(|l| l.rsplit(' ').next()).collect();
    for pid in &pids {
        assert_ne!(rank::files_of(pid), [""; 0], "nothing to remove");
    }
    signal(pids[0].parse()?, libc::SIGKILL);
    let outcome = finish(child);
    // The code of the script, or of a rank that noticed the death before the script did.
    assert!(matches!(outcome.code, Some(137 | 1)), "{outcome:#?}");
    for pid in pids {
        assert!(!is_alive(pid), "{pid} is left: {outcome:#?}");
        assert_eq!(rank::files_of(pid), [""; 0], "of {pid}");
    }
    Ok(())
}

/// The launcher is killed, and so cannot remove what its three ranks leave.
fn killed_launcher(command: Command) -> Result<(), Failed> {
    let (child, said) = started(command, 3);
    let pids = said.iter().filter_map(|line| line.rsplit(' ').next());
    let pids: Vec<String> = pids.map(str::to_owned).collect();
    for pid in &pids {
        assert_ne!(rank::files_of(pid), [""; 0], "nothing to remove");
    }
    signal(child.id(), libc::SIGKILL);
    let outcome = finish(child);
    assert_eq!(outcome.code, None, "{outcome:#?}");
    // The guard removes them. It does not hold the output, so the test must wait.
    wait_until("the files of the ranks to go", || {
        pids.iter().all(|pid| rank::files_of(pid).is_empty())
    });
    for pid in pids {
        assert!(!is_alive(&pid), "{pid} is left");
    }
    Ok(())
}

/// The outcome of that job, which names the victim, and the ranks' pids.
fn end_of(command: Command, role: &str, size: u32) -> Result<(Outcome, Vec<String>), Failed> {
    let (child, said) = started(command, size as usize);
    let pid_of = |rank: u32| {
        let line = said
            .iter()
            .find(|line| line.starts_with(&format!("ready {rank} ")));
        line.and_then(|line| line.rsplit(' ').next())
            .expect("every rank says that it is ready")
            .to_owned()
    };
    let pids: Vec<String> = (0..size).map(pid_of).collect();
    let victim = size - 1;
    let pid = &pids[victim as usize];
    if role == "asleep" {
        // The rank has spun and yielded before. A kill in those states would serve as well.
        wait_until("the rank to sleep", || state(pid) == Some('S'));
    }
    signal(pid.parse()?, libc::SIGKILL);
    let outcome = finish(child);
    named(&outcome, victim, Some(pid));
    Ok((outcome, pids))
}

/// No process of the ranks is left, and no file of theirs.
fn nothing_is_left(outcome: &Outcome, pids: &[String]) -> Result<(), Failed> {
    for (rank, pid) in pids.iter().enumerate() {
        assert!(!is_alive(pid), "rank {rank} is left: {outcome:#?}");
        assert_eq!(rank::files_of(pid), [""; 0], "of rank {rank}");
    }
    nothing_in_shared_memory()
}

/// The last rank dies during its start.
fn attaching(role: &str, size: u32, on_failure: &str) -> Result<(), Failed> {
    let outcome = rank::play(&options(on_failure), size, role);
    named(&outcome, size - 1, None);
    if on_failure == "return" {
        for rank in 0..size - 1 {
            let told = format!("told {rank}: ");
            assert!(outcome.out.contains(&told), "`{told}`: {outcome:#?}");
        }
        let culprit = format!("rank {} ", size - 1);
        for line in outcome.out.lines() {
            assert!(line.contains(&culprit), "`{line}`: {outcome:#?}");
        }
    }
    nothing_in_shared_memory()
}

/// The launcher has ended with the code of the killed rank, and has named that rank.
fn named(outcome: &Outcome, victim: u32, pid: Option<&str>) {
    outcome.expect_code(137);
    let pid = pid.map_or("(pid ".to_owned(), |pid| format!("(pid {pid}, node "));
    outcome.expect_err(&[
        &format!("portolan run: rank {victim} {pid}"),
        "was killed by signal 9 (SIGKILL)",
    ]);
}

/// Each of the other ranks got the error in each call that needed the dead rank, and continued.
fn everybody_was_told(outcome: &Outcome, role: &str, victim: u32) {
    let culprit = format!(": world rank {victim} has failed");
    for rank in 0..victim {
        for call in roles::calls(role, rank) {
            let begin = format!("told {rank} {call}: PeerFailed: rank {rank}");
            let line = outcome.out.lines().find(|line| line.starts_with(&begin));
            let named = line.is_some_and(|line| line.contains(&culprit));
            assert!(named, "`{begin}`: {outcome:#?}");
        }
        let done = format!("done {rank}\n");
        assert!(outcome.out.contains(&done), "`{done}`: {outcome:#?}");
    }
    // A rank that got the error and continued exits with 0; the launcher reports every other code.
    let code = "exited with code";
    assert!(!outcome.err.contains(code), "`{code}`: {outcome:#?}");
}

fn nothing_in_shared_memory() -> Result<(), Failed> {
    match rank::shared_files() {
        files if files.is_empty() => Ok(()),
        files => Err(format!("in /dev/shm is left: {files:?}").into()),
    }
}

fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
