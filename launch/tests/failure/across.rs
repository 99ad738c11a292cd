//! A job on three hosts, which are network namespaces. The cable of one host is cut: nothing on it
//! dies, and only its silence tells the others.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::common::{finish, is_alive, of_ours, said_until, started, wait_until};
use crate::roles;

/// What a lost rank and the others do, how many ranks each host has, and who matches: they wait and
/// have never talked, or a long message is under way.
const CASES: [(&str, u32, &str); 6] = [
    ("asleep", 1, "software"),
    ("sending-large", 1, "software"),
    ("asleep", 2, "software"),
    ("sending-large", 2, "software"),
    ("asleep", 1, "native"),
    ("sending-large", 2, "native"),
];

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
    let trial = |(role, each, matching): (&'static str, u32, &'static str)| {
        let mut name = match each {
            1 => format!("lost_host_{role}"),
            _ => format!("lost_host_of_{each}_ranks_{role}"),
        };
        if matching == "native" {
            name.push_str("_where_the_provider_matches");
        }
        let test = Trial::test(name, move || lost(role, each, matching));
        test.with_ignored_flag(why.is_some())
    };
    CASES.map(trial).into()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failure/hosts")
}

/// Three hosts. They are removed when this is dropped, with everything that runs there.
struct Hosts(String);

impl Hosts {
    fn up(role: &str, each: u32, matching: &str) -> Self {
        let hosts = Self(format!("{}-{role}-{each}-{matching}", std::process::id()));
        hosts.tell(&["up", &hosts.0]);
        hosts
    }

    fn tell(&self, words: &[&str]) {
        let outcome = Command::new(script()).args(words).output();
        let outcome = outcome.expect("the script starts");
        assert!(outcome.status.success(), "{words:?}: {outcome:?}");
    }

    /// This program as a job with this many ranks on each host.
    fn start(&self, role: &str, each: u32, matching: &str) -> Command {
        let me = std::env::current_exe().expect("a program knows its own file");
        let mut command = of_ours(Command::new(script()));
        let ranks = (3 * each).to_string();
        command.args(["run", &self.0, &ranks]).arg(me);
        command.arg(format!("role:lost-{each}-{role}"));
        command.env("HOSTS_EACH", each.to_string());
        for (name, value) in [
            ("OFI_PROVIDER", "tcp"),
            ("OFI_INTERFACE", "dat"),
            ("OFI_HEARTBEAT", HEARTBEAT),
            ("ON_FAILURE", "return"),
            ("MATCH", matching),
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
fn lost(role: &str, each: u32, matching: &str) -> Result<(), Failed> {
    let (living, victim) = (2 * each, 3 * each - 1);
    let hosts = Hosts::up(role, each, matching);
    let (mut child, said) = started(hosts.start(role, each, matching), 3 * each as usize);
    let pids = (0..living).map(|rank| {
        let begin = format!("ready {rank} ");
        let pid = said.iter().find_map(|line| line.strip_prefix(&begin));
        pid.unwrap_or_else(|| panic!("`{begin}`: {said:?}"))
            .to_owned()
    });
    let pids: Vec<String> = pids.collect();
    hosts.tell(&["cut", &hosts.0, "3"]);
    // The output of the ranks passes through the launcher, which ends with the hosts.
    let told = said_until(&mut child, move |told| {
        (0..living).all(|rank| told.contains(&format!("done {rank}")))
    });
    let ended = std::panic::catch_unwind(|| {
        let over = || !pids.iter().any(|pid| is_alive(pid));
        wait_until("the others to end", over);
    });
    drop(hosts);
    let outcome = finish(child);
    assert!(ended.is_ok(), "somebody waits for ever: {outcome:#?}");
    for rank in 0..living {
        for call in roles::calls(role, rank) {
            let begin = format!("told {rank} {call}: PeerFailed: rank {rank}");
            let line = told.iter().find(|line| line.starts_with(&begin));
            let line = line.unwrap_or_else(|| panic!("`{begin}`: {told:#?}"));
            // A receive from any rank ends with the first loss that is noticed.
            let failed = (living..=victim).map(|lost| format!("world rank {lost} has failed"));
            assert!(
                failed.into_iter().any(|part| line.contains(&part)),
                "`{line}`"
            );
            for part in [" heartbeat", "10.211.0.13:"] {
                assert!(line.contains(part), "`{part}` is not in `{line}`");
            }
        }
    }
    Ok(())
}
