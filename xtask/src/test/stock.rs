//! The lanes of the stable toolchain.

use std::process::Command;

use super::counts::Dialect;
use super::lane::Run;
use crate::wheel::newer_libfabric;
use crate::{Failure, instructions, layout, stalls};

/// The packages from which the unit tests and the programs for ranks are built. It must be the same
/// choice for both: the features of dependencies follow from it, and with other features everything
/// would be built again.
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
    let mut command = test(run, EVERYTHING);
    if let Some(library) = newer_libfabric() {
        command.env("PORTOLAN_TEST_LIBFABRIC", library);
    }
    run.step("cargo test", Dialect::Libtest, command)?;
    Ok(())
}

pub(super) fn examples(run: &mut Run<'_>) -> Result<(), Failure> {
    let words = ["--package", "portolan-examples", "--locked"];
    let mut command = test(run, &words);
    if let Some(library) = newer_libfabric() {
        command.env("PORTOLAN_TEST_LIBFABRIC", library);
    }
    run.step("the examples", Dialect::Libtest, command)?;
    Ok(())
}

/// Runs every bench once, without measuring.
pub(super) fn benches(run: &mut Run<'_>) -> Result<(), Failure> {
    let mut command = run.repo.cargo(&["test"]);
    command.args(EVERYTHING).args(["--bench", "*"]);
    // It matches every bench, and it names every device, so that a device which cannot be measured
    // here is reported.
    command.args(["--no-fail-fast", "--", "|shm|ofi|t3e-sim|memory"]);
    run.step("the benches", Dialect::Benches, command)?;
    Ok(())
}

/// Compares the number of instructions that a small message costs, and looks for loads in it that
/// wait for earlier stores.
pub(super) fn instructions(run: &mut Run<'_>) -> Result<(), Failure> {
    if let Some(why) = instructions::missing() {
        run.not_here(why);
        return Ok(());
    }
    if run.prepare("the program that is counted", instructions::build(run.repo))? {
        let counted = instructions::count(run.repo)?;
        let compared = instructions::compare(run.repo, &counted)?;
        run.check("instructions", &compared.problems);
        match compared.weaker {
            Some(why) => {
                println!("    instructions: {why}");
                run.leave_out("the usual bound on instructions", &why);
                run.leave_out("loads that wait for stores", &why);
            }
            // Which loads wait depends on the compiler, as the number of instructions does.
            None => {
                let problems = stalls::problems(run.repo, &["send", "recv"])?;
                run.check("loads that wait for stores", &problems);
            }
        }
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

/// Tests run by cargo.
fn test(run: &Run<'_>, words: &[&str]) -> Command {
    let mut command = run.repo.cargo(&["test"]);
    command.args(words);
    // Without this option libtest hides the output of passed tests, and with it the reasons why
    // tests did not apply.
    command.args(["--no-fail-fast", "--", "--show-output"]);
    if run.all {
        command.arg("--include-ignored");
    }
    run.thorough(&mut command);
    command
}
