//! A job on three hosts, which are network namespaces. The cable of one host is cut: nothing on it
//! dies, and only its silence tells the others.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::common::{finish, is_alive, of_ours, said_until, started, wait_until};
use crate::roles;

/// What the lost rank and the others do: they wait and have never talked, or a long message is
/// under way.
const ROLES: [&str; 2] = ["asleep", "sending-large"];

/// Seconds between heartbeats; the others notice after four to five times as long. On a machine
/// that is full of other work, less would be too short for ranks that live.
const HEARTBEAT: &str = "2";

/// The tests. If hosts cannot be made, the tests are ignored, and the reason is printed.
pub(crate) fn trials() -> Vec<Trial> {
    let asked = Command::new(script()).arg("can").output();
    let why = match asked {
        Ok(outcome) if outcome.status.success() => None,
        Ok(outcome) => Some(String::from_utf8_lossy(&outcome.stdout).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = &why {
        eprintln!("ignored: a job on several hosts: {why}");
    }
    let trial = |role: &'static str| {
        let test = Trial::test(format!("lost_host_{role}"), move || lost(role));
        test.with_ignored_flag(why.is_some())
    };
    ROLES.map(trial).into()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failure/hosts")
}

/// Three hosts. They are removed when this is dropped, with everything that runs there.
struct Hosts(String);

impl Hosts {
    fn up(role: &str) -> Self {
        let hosts = Self(format!("{}-{role}", std::process::id()));
        hosts.tell(&["up", &hosts.0]);
        hosts
    }

    fn tell(&self, words: &[&str]) {
        let outcome = Command::new(script()).args(words).output();
        let outcome = outcome.expect("the script starts");
        assert!(outcome.status.success(), "{words:?}: {outcome:?}");
    }

    /// This program as a job of three ranks, one on each host.
    fn start(&self, role: &str) -> Command {
        let me = std::env::current_exe().expect("a program knows its own file");
        let mut command = of_ours(Command::new(script()));
        command.args(["run", &self.0, "3"]).arg(me);
        command.arg(format!("role:lost-{role}"));
        for (name, value) in [
            ("OFI_PROVIDER", "tcp"),
            ("OFI_INTERFACE", "dat"),
            ("OFI_HEARTBEAT", HEARTBEAT),
            ("ON_FAILURE", "return"),
        ] {
            command.env(format!("PORTOLAN_{name}"), value);
        }
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = Command::new(script()).args(["down", &self.0]).status();
    }
}

/// The other ranks get an error about the host that cannot be reached, and continue.
fn lost(role: &str) -> Result<(), Failed> {
    const VICTIM: u32 = 2;
    let hosts = Hosts::up(role);
    let (mut child, said) = started(hosts.start(role), 3);
    let pids = (0..VICTIM).map(|rank| {
        let begin = format!("ready {rank} ");
        let pid = said.iter().find_map(|line| line.strip_prefix(&begin));
        pid.unwrap_or_else(|| panic!("`{begin}`: {said:?}"))
            .to_owned()
    });
    let pids: Vec<String> = pids.collect();
    hosts.tell(&["cut", &hosts.0, "3"]);
    // The output of the ranks passes through the launcher, which ends with the hosts.
    let told = said_until(&mut child, |told| {
        (0..VICTIM).all(|rank| told.contains(&format!("done {rank}")))
    });
    let ended = std::panic::catch_unwind(|| {
        let over = || !pids.iter().any(|pid| is_alive(pid));
        wait_until("the others to end", over);
    });
    drop(hosts);
    let outcome = finish(child);
    assert!(ended.is_ok(), "somebody waits for ever: {outcome:#?}");
    for rank in 0..VICTIM {
        for call in roles::calls(role, rank) {
            let begin = format!("told {rank} {call}: PeerFailed: rank {rank}");
            let line = told.iter().find(|line| line.starts_with(&begin));
            let line = line.unwrap_or_else(|| panic!("`{begin}`: {told:#?}"));
            for part in ["world rank 2 has failed", " heartbeat", "10.211.0.13:"] {
                assert!(line.contains(part), "`{part}` is not in `{line}`");
            }
        }
    }
    Ok(())
}
