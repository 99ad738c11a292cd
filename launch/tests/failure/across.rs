//! A job on several hosts, which are network namespaces. The cables of one or more of them are cut:
//! nothing there dies, and only their silence tells the others.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::common::{finish, is_alive, of_ours, said_until, started, wait_until};
use crate::roles;

/// A job whose last hosts are cut off.
#[derive(Clone, Copy)]
struct Case {
    /// What a lost rank and the others do: they wait and have never talked, or a long message is
    /// under way.
    role: &'static str,
    hosts: u32,
    /// How many of the hosts are cut off.
    cut: u32,
    /// Ranks on each host.
    each: u32,
    /// Who matches.
    matching: &'static str,
}

/// One of three hosts is lost.
const fn one(role: &'static str, each: u32, matching: &'static str) -> Case {
    Case {
        role,
        hosts: 3,
        cut: 1,
        each,
        matching,
    }
}

/// Three of five hosts are lost. The neighbours on the ring of the ranks of the middle one are
/// lost, too: only a rank that has talked to one of these misses that one.
const fn three(role: &'static str, matching: &'static str) -> Case {
    Case {
        role,
        hosts: 5,
        cut: 3,
        each: 4,
        matching,
    }
}

const CASES: [Case; 11] = [
    one("asleep", 1, "software"),
    one("sending-large", 1, "software"),
    one("asleep", 2, "software"),
    one("sending-large", 2, "software"),
    one("asleep", 1, "native"),
    one("sending-large", 2, "native"),
    one("asleep", 4, "software"),
    one("sending-large", 4, "software"),
    three("middle", "software"),
    three("middle-sending-large", "software"),
    three("middle-sending-large", "native"),
];

/// Seconds between heartbeats; the others notice after four to five times as long. On a machine
/// that is full of other work, less would be too short for ranks that live.
const HEARTBEAT: u32 = 2;

/// Heartbeats within which all ranks of a host are lost to all that wait for them: five for each of
/// those that are watched, five more for the others of their hosts, and some until the machine has
/// come round to everybody. One after the other, those of the middle of three hosts would take 27.
const TIME: u32 = 18;

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
    let trial = |case: Case| {
        let Case { role, each, .. } = case;
        let mut name = match (case.cut, each) {
            (1, 1) => format!("lost_host_{role}"),
            (1, _) => format!("lost_host_of_{each}_ranks_{role}"),
            (cut, _) => format!("lost_{cut}_hosts_of_{each}_ranks_{role}"),
        };
        if case.matching == "native" {
            name.push_str("_where_the_provider_matches");
        }
        let test = Trial::test(name, move || lost(case));
        test.with_ignored_flag(why.is_some())
    };
    CASES.map(trial).into()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failure/hosts")
}

/// The hosts of a case. They are removed when this is dropped, with everything that runs there.
struct Hosts {
    name: String,
    case: Case,
}

impl Hosts {
    fn up(case: Case) -> Self {
        let Case {
            role,
            each,
            matching,
            ..
        } = case;
        let name = format!("{}-{role}-{each}-{matching}", std::process::id());
        let hosts = Self { name, case };
        hosts.tell("up", &[]);
        hosts
    }

    fn tell(&self, what: &str, words: &[String]) {
        let mut command = Command::new(script());
        command.env("HOSTS_COUNT", self.case.hosts.to_string());
        let outcome = command.args([what, &self.name]).args(words).output();
        let outcome = outcome.expect("the script starts");
        assert!(outcome.status.success(), "{what} {words:?}: {outcome:?}");
    }

    /// Cuts off the last hosts.
    fn cut(&self) {
        let Case { hosts, cut, .. } = self.case;
        let numbers = hosts - cut + 1..=hosts;
        let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
        self.tell("cut", &numbers);
    }

    /// This program as a job with so many ranks on each host.
    fn start(&self) -> Command {
        let Case {
            role,
            hosts,
            cut,
            each,
            matching,
        } = self.case;
        let me = std::env::current_exe().expect("a program knows its own file");
        let mut command = of_ours(Command::new(script()));
        let ranks = (hosts * each).to_string();
        command.args(["run", &self.name, &ranks]).arg(me);
        command.arg(format!("role:lost-{}-{role}", cut * each));
        command.env("HOSTS_EACH", each.to_string());
        command.env("HOSTS_COUNT", hosts.to_string());
        for (name, value) in [
            ("OFI_PROVIDER", "tcp"),
            ("OFI_INTERFACE", "dat"),
            ("OFI_HEARTBEAT", &HEARTBEAT.to_string()),
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
        let _ = Command::new(script()).args(["down", &self.name]).status();
    }
}

/// The other ranks get an error about a host that cannot be reached, and continue.
fn lost(case: Case) -> Result<(), Failed> {
    let ranks = case.hosts * case.each;
    let (living, victim) = (ranks - case.cut * case.each, ranks - 1);
    let hosts = Hosts::up(case);
    let (mut child, said) = started(hosts.start(), ranks as usize);
    let pids = (0..living).map(|rank| {
        let begin = format!("ready {rank} ");
        let pid = said.iter().find_map(|line| line.strip_prefix(&begin));
        pid.unwrap_or_else(|| panic!("`{begin}`: {said:?}"))
            .to_owned()
    });
    let pids: Vec<String> = pids.collect();
    hosts.cut();
    let start = Instant::now();
    // The output of the ranks passes through the launcher, which ends with the hosts.
    let told = said_until(&mut child, move |told| {
        (0..living).all(|rank| told.contains(&format!("done {rank}")))
    });
    let time = start.elapsed();
    let ended = std::panic::catch_unwind(|| {
        let over = || !pids.iter().any(|pid| is_alive(pid));
        wait_until("the others to end", over);
    });
    drop(hosts);
    let outcome = finish(child);
    assert!(ended.is_ok(), "somebody waits for ever: {outcome:#?}");
    // The host for whose ranks the others wait: the last, or the middle one of those that are lost.
    let host = format!("10.211.0.1{}:", case.hosts - case.cut / 2);
    for rank in 0..living {
        for call in roles::calls(case.role, rank) {
            let begin = format!("told {rank} {call}: PeerFailed: rank {rank}");
            let line = told.iter().find(|line| line.starts_with(&begin));
            let line = line.unwrap_or_else(|| panic!("`{begin}`: {told:#?}"));
            // A receive from any rank ends with the first loss that is noticed.
            let failed = (living..=victim).map(|lost| format!("world rank {lost} has failed"));
            assert!(
                failed.into_iter().any(|part| line.contains(&part)),
                "`{line}`"
            );
            for part in [" heartbeat", &host] {
                assert!(line.contains(part), "`{part}` is not in `{line}`");
            }
        }
    }
    let limit = Duration::from_secs((TIME * HEARTBEAT).into());
    assert!(time < limit, "it took {time:?}: {told:#?}");
    Ok(())
}
