//! The lanes of the stable toolchain.

use super::counts::Dialect;
use super::lane::Run;
use crate::{Failure, instructions, layout};

/// What the unit tests and the programs for ranks are built from. The same choice of packages for both:
/// features of dependencies follow from it, and with other features everything is built again.
pub(super) const EVERYTHING: &[&str] =
    &["--workspace", "--exclude", "portolan-examples", "--locked"];

pub(super) fn fmt(run: &mut Run<'_>) -> Result<(), Failure> {
    let command = run
        .repo
        .cargo(&["fmt", "--all", "--check", "--", "--color", "never"]);
    run.step("cargo fmt", Dialect::ExitCode, command)?;
    Ok(())
}

pub(super) fn layout(run: &mut Run<'_>) -> Result<(), Failure> {
    for (rule, problems) in layout::check(run.repo)? {
        run.check(rule, &problems);
    }
    Ok(())
}

pub(super) fn clippy(run: &mut Run<'_>) -> Result<(), Failure> {
    let words = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    run.step("cargo clippy", Dialect::ExitCode, run.repo.cargo(&words))?;
    Ok(())
}

pub(super) fn unit(run: &mut Run<'_>) -> Result<(), Failure> {
    tests(run, "cargo test", EVERYTHING)
}

pub(super) fn examples(run: &mut Run<'_>) -> Result<(), Failure> {
    tests(
        run,
        "the examples",
        &["--package", "portolan-examples", "--locked"],
    )
}

/// How many instructions a small message costs.
pub(super) fn instructions(run: &mut Run<'_>) -> Result<(), Failure> {
    if let Some(why) = instructions::missing() {
        run.not_here(why);
        return Ok(());
    }
    if run.prepare("the program that is counted", instructions::build(run.repo))? {
        let counted = instructions::count(run.repo)?;
        let problems = instructions::compare(run.repo, &counted)?;
        run.check("instructions", &problems);
    }
    Ok(())
}

pub(super) fn docs(run: &mut Run<'_>) -> Result<(), Failure> {
    let mut command = run
        .repo
        .cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run.step("cargo doc", Dialect::ExitCode, command)?;
    Ok(())
}

/// Tests as cargo runs them.
fn tests(run: &mut Run<'_>, what: &str, words: &[&str]) -> Result<(), Failure> {
    let mut command = run.repo.cargo(&["test"]);
    command.args(words);
    // Tests that pass keep to themselves why they had nothing to do, unless they are asked.
    command.args(["--no-fail-fast", "--", "--show-output"]);
    if run.all {
        command.arg("--include-ignored");
    }
    run.thorough(&mut command);
    run.step(what, Dialect::Libtest, command)?;
    Ok(())
}
