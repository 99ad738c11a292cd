//! Makes the bindings of C libraries again.
//!
//! What makes them is a test of the crate that has them, which at other times compares: so there is
//! one description of what they contain, and bindgen is no dependency of anything that people use.

use crate::{Failure, Repo};

/// The crates, and the variable that makes their test write.
const CRATES: &[(&str, &str)] = &[("libfabric-sys", "LIBFABRIC_SYS_WRITE")];

/// Runs the tests that write.
pub(crate) fn main(repo: &Repo) -> Result<std::process::ExitCode, Failure> {
    for (package, variable) in CRATES {
        let test = [
            "test",
            "--quiet",
            "--package",
            package,
            "--test",
            "bindings",
        ];
        let mut command = repo.cargo(&test);
        command.args(["--", "--nocapture"]).env(variable, "1");
        if !command.status()?.success() {
            return Err(format!("the bindings in {package} could not be made").into());
        }
    }
    Ok(std::process::ExitCode::SUCCESS)
}
