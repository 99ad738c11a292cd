//! Generates the bindings of C libraries again.
//!
//! A test of the crate that has the bindings generates them; normally that test only compares. So
//! there is one description of what the bindings contain, and no crate for users depends on
//! bindgen.

use crate::{Failure, Repo};

/// The crates, and the variable that makes each one's test write the bindings.
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
