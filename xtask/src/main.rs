//! Repository chores: `cargo xtask test`, `cargo xtask check-layout`, `cargo xtask instructions`,
//! `cargo xtask stalls`, `cargo xtask goals`, `cargo xtask docs`, `cargo xtask bindgen`.
//!
//! - [`mod@test`]: runs the lanes that tell whether the tree is good, and counts their checks.
//! - [`layout`]: the house rules that a program can check.
//! - [`instructions`]: how many instructions a small message costs.
//! - [`stalls`]: which of its loads wait for earlier stores.
//! - [`goals`]: measures the project's goals, and tells which are met.
//! - [`docs`]: writes the pages of `docs/` that are generated from the source.
//! - [`bindgen`]: generates the bindings of C libraries again.
//! - [`wheel`]: finds a second libfabric.
//!
//! Nothing here is needed to build or use Portolan.

#![forbid(unsafe_code)]
// This is a program for people: its results are what it prints.
#![allow(clippy::print_stderr, clippy::print_stdout)]

mod bindgen;
mod docs;
mod goals;
mod instructions;
mod layout;
mod repo;
mod stalls;
mod test;
mod wheel;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use repo::Repo;

/// An error that stops a chore. Its text is shown to the user.
type Failure = Box<dyn Error + Send + Sync>;

/// Chores of Portolan's repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the test lanes and count what passed, failed and was skipped
    Test(test::Args),
    /// Check the rules of the house: folders, names, sizes, documents
    CheckLayout,
    /// Count the instructions of an 8-byte message and compare with what is recorded
    Instructions(instructions::Args),
    /// Find the loads of an 8-byte message that wait for earlier stores
    Stalls(stalls::Args),
    /// Measure the project's goals beside its peers, and say which are met (needs a quiet machine)
    Goals(goals::Args),
    /// Write the pages of docs/ that are made from the source
    Docs,
    /// Make the bindings of C libraries again, from their headers (needs libclang)
    Bindgen,
}

fn main() -> ExitCode {
    let outcome = Repo::find().and_then(|repo| match Cli::parse().command {
        Command::Test(args) => test::main(&repo, &args),
        Command::CheckLayout => layout::main(&repo),
        Command::Instructions(args) => instructions::main(&repo, &args),
        Command::Stalls(args) => stalls::main(&repo, &args),
        Command::Goals(args) => goals::main(&repo, &args),
        Command::Docs => docs::main(&repo),
        Command::Bindgen => bindgen::main(&repo),
    });
    outcome.unwrap_or_else(|failure| {
        eprintln!("xtask: {failure}");
        ExitCode::FAILURE
    })
}
