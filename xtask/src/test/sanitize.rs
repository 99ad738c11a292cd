//! The lanes with the model checker and the sanitizers.

use std::fs;

use super::counts::Dialect;
use super::lane::Run;
use crate::Failure;

/// The target must be named explicitly, so that build scripts and procedural macros, which run in
/// the compiler, are built without the flags.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Crates with `unsafe` code, and the suite that drives them.
const UNSAFE: &[&str] = &[
    "portolan-coll",
    "portolan-core",
    "portolan-datatype",
    "portolan-shm",
    "portolan-conformance",
    "portolan",
];

/// The tests of core and `portolan-shm` for the thread sanitizer. They are programs without
/// libtest, and use as little of the standard library as possible, because that is not
/// instrumented.
const TSAN_TEST: &str = "tsan_harness";

/// Parts of the names of tests that show nothing more under a sanitizer: the suite at more ranks,
/// and repeated in one job. They are left out unless the full matrix is asked for.
const AGAIN: &[&str] = &[
    "::ranks_1",
    "::ranks_4",
    "::ranks_5",
    "::ranks_8",
    "::one_job",
];

/// The build folder of the nightly toolchain. Both sanitizers share in it what runs in the
/// compiler.
const FOLDER: &str = "nightly";

/// Name of the tests that run the compiler. Its messages differ between toolchains.
const COMPILES: &str = "misuse_does_not_compile";

const NO_NIGHTLY: &str = "there is no nightly toolchain (rustup toolchain install nightly)";

/// Runs the lock-free structures under loom, in the crates that have models of them.
pub(super) fn loom(run: &mut Run<'_>) -> Result<(), Failure> {
    let has_models = |folder: &str| {
        fs::read_to_string(run.repo.path(&format!("{folder}/Cargo.toml")))
            .is_ok_and(|manifest| manifest.contains("cfg(loom)") && manifest.contains("loom ="))
    };
    let members = run
        .repo
        .crates
        .iter()
        .filter(|member| has_models(&member.folder));
    let packages: Vec<_> = members.map(|member| member.package.clone()).collect();
    for package in packages {
        let mut command = run
            .repo
            .cargo(&["test", "--package", &package, "--lib", "--locked"]);
        command.env("RUSTFLAGS", "--cfg loom");
        command.env(
            "CARGO_TARGET_DIR",
            run.repo.target().join("lanes").join("loom"),
        );
        run.step(&format!("models of {package}"), Dialect::Libtest, command)?;
    }
    Ok(())
}

/// Runs the tests of every crate with `unsafe` code under the address sanitizer.
pub(super) fn asan(run: &mut Run<'_>) -> Result<(), Failure> {
    let Some(mut command) = run.nightly(FOLDER) else {
        run.not_here(NO_NIGHTLY);
        return Ok(());
    };
    command.args([
        "test",
        "--target",
        TARGET,
        "--locked",
        "--no-fail-fast",
        "--tests",
    ]);
    for package in UNSAFE {
        command.args(["--package", package]);
    }
    command.args(["--", "--show-output", "--skip", COMPILES]);
    for name in AGAIN.iter().filter(|_| !run.all) {
        command.args(["--skip", name]);
    }
    command.env("RUSTFLAGS", "-Zsanitizer=address");
    // Leaks are safe in Rust, and some tests leak on purpose. Others ask for more memory than there
    // is, which is to be an error and not the end of the process.
    command.env(
        "ASAN_OPTIONS",
        "detect_leaks=0:detect_stack_use_after_return=1:allocator_may_return_null=1",
    );
    run.thorough(&mut command);
    run.step("address sanitizer", Dialect::Libtest, command)?;
    let left_out = if run.all { &[] } else { AGAIN };
    for name in left_out {
        let what = format!("every test with {name} in its name");
        run.leave_out(&what, "only in the full matrix, or without the sanitizer");
    }
    Ok(())
}

/// Runs the harness of the lock-free structures under the thread sanitizer.
pub(super) fn tsan(run: &mut Run<'_>) -> Result<(), Failure> {
    let Some(mut command) = run.nightly(FOLDER) else {
        run.not_here(NO_NIGHTLY);
        return Ok(());
    };
    command.args(["test", "--target", TARGET, "--locked"]);
    command.args([
        "--package",
        "portolan-core",
        "--package",
        "portolan-shm",
        "--test",
        TSAN_TEST,
    ]);
    // Without this flag the compiler refuses to mix instrumented code with other code.
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    command
        .env("RUSTFLAGS", flags)
        .env("TSAN_OPTIONS", "halt_on_error=1");
    run.step("thread sanitizer", Dialect::Cases, command)?;
    Ok(())
}
