//! `cargo xtask check-layout`: checks the house rules that a program can check.
//!
//! Every rule is a function from the files of the repository to the list of violations, one line
//! each, which begins with the place. `CONTRIBUTING.md` has the rules in words.

mod correspondence;
mod documents;
mod house;
mod sources;

use std::process::ExitCode;

use crate::Failure;
use crate::repo::{Repo, SourceFile};

/// A rule: its name for people, and the function that finds violations.
type Rule = (&'static str, fn(&Repo, &[SourceFile]) -> Vec<String>);

const RULES: &[Rule] = &[
    (
        "every crate is named in ARCHITECTURE.md",
        house::crates_are_in_the_map,
    ),
    (
        "no crate depends on one above it",
        house::dependencies_point_down,
    ),
    (
        "no published crate needs an unpublished one",
        house::published_crates_need_no_others,
    ),
    ("backends have the common files", house::backends_are_alike),
    (
        "lib.rs has prose, mod and pub use only",
        house::library_roots_are_tables,
    ),
    ("files are short", sources::files_are_short),
    ("comments are narrow", sources::comments_are_narrow),
    ("libraries do not print", sources::libraries_do_not_print),
    (
        "above core the time comes from the device",
        sources::time_comes_from_the_device,
    ),
    (
        "MPI's names are found by a search",
        sources::names_of_mpi_are_aliases,
    ),
    ("nothing is left undone", sources::nothing_is_left_undone),
    (
        "unsafe code is argued for",
        sources::unsafe_code_is_argued_for,
    ),
    (
        "no path of somebody's machine",
        sources::no_machine_is_named,
    ),
    (
        "every setting is in docs/settings.md",
        documents::settings_are_described,
    ),
    ("links lead somewhere", documents::links_lead_somewhere),
    ("docs/adi.md is whole", correspondence::rows_are_whole),
];

/// Checks every rule and prints the violations.
pub(crate) fn main(repo: &Repo) -> Result<ExitCode, Failure> {
    let mut broken = 0;
    for (rule, problems) in check(repo)? {
        broken += usize::from(!problems.is_empty());
        println!(
            "{}: {rule}",
            if problems.is_empty() { "ok" } else { "BROKEN" }
        );
        problems
            .iter()
            .for_each(|problem| println!("    {problem}"));
    }
    Ok(if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Every rule with its violations.
pub(crate) fn check(repo: &Repo) -> Result<Vec<(&'static str, Vec<String>)>, Failure> {
    let files = repo.files()?;
    Ok(RULES
        .iter()
        .map(|(name, rule)| (*name, rule(repo, &files)))
        .collect())
}

/// The file with this path.
fn file<'a>(files: &'a [SourceFile], path: &str) -> Option<&'a SourceFile> {
    files.iter().find(|file| file.path == path)
}

/// A file with this path and text, for the tests of the rules.
#[cfg(test)]
fn made_up(path: &str, text: &str) -> SourceFile {
    SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}
