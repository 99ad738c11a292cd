//! Test programs that are their own ranks: with a first argument `role:NAME` they play a rank,
//! otherwise they run the tests.

// Each test file is a crate of its own and uses only some of these items.
#![allow(dead_code)]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::common::{Outcome, portolan, run};

/// The `main` of such a program.
pub(crate) fn main(play: fn(&str) -> ExitCode, trials: fn() -> Vec<Trial>) -> ExitCode {
    let first = std::env::args().nth(1).unwrap_or_default();
    match first.strip_prefix("role:") {
        Some(role) => play(role),
        None => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn words(options: &[&str], ranks: u32, role: &str) -> Vec<String> {
    let me = std::env::current_exe().expect("a program knows its own file");
    let me = me.to_str().expect("the tests' folder has a plain name");
    let (ranks, role) = (ranks.to_string(), format!("role:{role}"));
    let words = [options, &["-n", &ranks, "--", me, &role]].concat();
    words.into_iter().map(str::to_owned).collect()
}

/// Runs a job of this program to its end.
pub(crate) fn play(options: &[&str], ranks: u32, role: &str) -> Outcome {
    let words = words(options, ranks, role);
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The command that [`play`] runs.
pub(crate) fn command(options: &[&str], ranks: u32, role: &str) -> std::process::Command {
    let words = words(options, ranks, role);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    portolan(&[&["run"], &words[..]].concat())
}

/// Portolan's files in `/dev/shm`.
pub(crate) fn shared_files() -> Vec<String> {
    let mut names = all_shared_files();
    names.retain(|name| name.contains("portolan"));
    names
}

/// libfabric's files in `/dev/shm` for a process.
pub(crate) fn files_of(pid: &str) -> Vec<String> {
    let mut names = all_shared_files();
    names.retain(|name| name.starts_with(&format!("{pid}:")));
    names
}

fn all_shared_files() -> Vec<String> {
    let entries = std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

/// The bytes that this rank reads from the memory of others in `work`.
pub(crate) fn pulled(
    world: &portolan::World,
    work: impl FnOnce() -> portolan::Result<()>,
) -> portolan::Result<u64> {
    let count = || {
        let all = world.counters();
        let found = all.iter().find(|(name, _)| *name == "bytes_pulled");
        found.expect("there is such a counter").1
    };
    let before = count();
    work()?;
    Ok(count() - before)
}
