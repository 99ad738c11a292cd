//! The repository: its root, its crates and files, and how to call cargo in it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// The repository to which this program belongs.
pub(crate) struct Repo {
    root: PathBuf,
    /// The members of the workspace, from the root's `Cargo.toml`.
    pub(crate) crates: Vec<Member>,
}

/// A crate of the workspace.
pub(crate) struct Member {
    /// Folder, relative to the root.
    pub(crate) folder: String,
    /// Name of the package.
    pub(crate) package: String,
}

/// A text file that git tracks, or would track if it were added.
pub(crate) struct SourceFile {
    /// Path relative to the root, with `/`.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
}

impl Repo {
    /// The repository around this program's sources.
    pub(crate) fn find() -> Result<Self, Failure> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest
            .parent()
            .ok_or("xtask is not in a folder of a workspace")?;
        let text = fs::read_to_string(root.join("Cargo.toml"))?;
        let crates = members(&text)
            .map(|folder| {
                let path = root.join(&folder).join("Cargo.toml");
                let manifest = fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                let package = package_name(&manifest)
                    .ok_or_else(|| format!("{} names no package", path.display()))?;
                Ok(Member { folder, package })
            })
            .collect::<Result<_, Failure>>()?;
        Ok(Self {
            root: root.to_owned(),
            crates,
        })
    }

    /// The absolute path of a file in the repository.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The folder in which cargo builds.
    pub(crate) fn target(&self) -> PathBuf {
        match env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
    }

    /// Folders of the backends.
    pub(crate) fn backends(&self) -> impl Iterator<Item = &Member> {
        self.crates
            .iter()
            .filter(|member| member.folder.starts_with("backend-"))
    }

    /// Every text file that git tracks, or would track if it were added. Files that are not UTF-8
    /// are left out.
    pub(crate) fn files(&self) -> Result<Vec<SourceFile>, Failure> {
        let output = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(&self.root)
            .output()
            .map_err(|error| format!("cannot run git to list the files: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        let names = String::from_utf8(output.stdout)?;
        let mut files = Vec::new();
        for path in names.split_terminator('\0') {
            // A tracked file that was removed, a dangling link and a picture are not text.
            if let Ok(text) = fs::read_to_string(self.root.join(path)) {
                files.push(SourceFile {
                    path: path.to_owned(),
                    text,
                });
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        Ok(files)
    }

    /// A command for a program in the root. It lacks the variables that cargo has set for this
    /// program, and Portolan's settings that would change what is tested.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        for (name, _) in env::vars_os() {
            let Some(name) = name.to_str() else { continue };
            let of_cargo = name == "CARGO"
                || name.starts_with("CARGO_PKG_")
                || name.starts_with("CARGO_MANIFEST_");
            let setting = name.starts_with("PORTOLAN_") && !name.starts_with("PORTOLAN_TEST_");
            if of_cargo || setting {
                command.env_remove(name);
            }
        }
        command
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_TERM_PROGRESS_WHEN", "never");
        command
    }

    /// A command for cargo in the root.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("cargo");
        command.args(arguments);
        command
    }
}

/// The members in a workspace's manifest: the quoted words between `members = [` and `]`.
fn members(manifest: &str) -> impl Iterator<Item = String> {
    let list = manifest
        .split_once("\nmembers = [")
        .map_or("", |(_, rest)| rest);
    let list = list.split_once(']').map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(str::to_owned)
}

/// The first `name = "…"` of a manifest.
fn package_name(manifest: &str) -> Option<String> {
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = \""))?;
    Some(line.trim_end().trim_end_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_understood() {
        let manifest = "[workspace]\nmembers = [\n  \"a\",\n  \"b/c\",\n]\nx = [\"d\"]\n";
        assert_eq!(members(manifest).collect::<Vec<_>>(), ["a", "b/c"]);
        assert_eq!(
            package_name("[package]\nname = \"p-q\"\n").as_deref(),
            Some("p-q")
        );
        assert_eq!(package_name("[package]\n"), None);
    }

    #[test]
    fn the_repository_has_this_crate() {
        let repo = Repo::find().unwrap();
        assert!(
            repo.crates
                .iter()
                .any(|m| m.folder == "xtask" && m.package == "xtask")
        );
    }
}
