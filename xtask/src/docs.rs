//! The pages of `docs/` that are generated from the source.

use std::fs;
use std::process::ExitCode;

use crate::{Failure, Repo};

/// Writes `docs/settings.md` from the settings table.
pub(crate) fn main(repo: &Repo) -> Result<ExitCode, Failure> {
    let mut command = repo.cargo(&["run", "--quiet", "--package", "portolan-launch", "--"]);
    let output = command.args(["info", "--manual"]).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("`portolan info --manual` failed: {said}").into());
    }
    let page = repo.path("docs/settings.md");
    let changed = fs::read(&page).unwrap_or_default() != output.stdout;
    fs::write(&page, &output.stdout)?;
    println!(
        "docs/settings.md: {}",
        if changed { "written" } else { "was current" }
    );
    Ok(ExitCode::SUCCESS)
}
