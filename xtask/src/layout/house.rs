//! Rules about crates and their folders.

use super::file;
use crate::repo::{Repo, SourceFile};

/// The files of a backend: a reader who knows one backend finds the same files in every other.
const BACKEND_FILES: &[&str] = &[
    "lib.rs",
    "config.rs",
    "caps.rs",
    "addr.rs",
    "send.rs",
    "progress.rs",
    "one_sided.rs",
];

/// Every crate has its line in the code map, by folder and package.
pub(super) fn crates_are_in_the_map(repo: &Repo, files: &[SourceFile]) -> Vec<String> {
    let Some(map) = file(files, "ARCHITECTURE.md") else {
        return vec!["ARCHITECTURE.md is missing".to_owned()];
    };
    let missing = repo.crates.iter().filter(|member| {
        let folder = format!("`{}/`", member.folder);
        !map.text.contains(&folder) || !map.text.contains(&format!("`{}`", member.package))
    });
    missing
        .map(|m| {
            format!(
                "ARCHITECTURE.md: no line for `{}/` (`{}`)",
                m.folder, m.package
            )
        })
        .collect()
}

/// A crate depends only on crates below it in the code map. Dependencies for tests are not counted.
pub(super) fn dependencies_point_down(repo: &Repo, files: &[SourceFile]) -> Vec<String> {
    let Some(map) = file(files, "ARCHITECTURE.md") else {
        return vec!["ARCHITECTURE.md is missing".to_owned()];
    };
    let place = |package: &str| map.text.find(&format!("| `{package}` |"));
    let mut problems = Vec::new();
    for member in &repo.crates {
        let path = format!("{}/Cargo.toml", member.folder);
        let Some(manifest) = file(files, &path) else {
            continue;
        };
        for other in repo
            .crates
            .iter()
            .filter(|other| depends(&manifest.text, &other.package))
        {
            if place(&other.package) <= place(&member.package) {
                problems.push(format!(
                    "{path}: depends on {}, which is above",
                    other.package
                ));
            }
        }
    }
    problems
}

/// Whether a manifest has `package` among its dependencies other than those for tests.
fn depends(manifest: &str, package: &str) -> bool {
    has_in(manifest, package, |section| {
        section.ends_with("dependencies]") && !section.contains("dev-dependencies")
    })
}

/// Whether a manifest has `package` in one of the sections that `count`.
fn has_in(manifest: &str, package: &str, count: impl Fn(&str) -> bool) -> bool {
    let mut counts = false;
    manifest.lines().any(|line| {
        if line.starts_with('[') {
            counts = count(line);
        }
        let name = line.split(['.', ' ', '=']).next();
        counts && name == Some(package)
    })
}

/// A crate that is published depends only on crates that are. Dependencies for tests count, because
/// the registry looks for them, too.
pub(super) fn published_crates_need_no_others(repo: &Repo, files: &[SourceFile]) -> Vec<String> {
    let manifests = repo.crates.iter().filter_map(|member| {
        let manifest = file(files, &format!("{}/Cargo.toml", member.folder))?;
        Some((member, manifest))
    });
    let (kept, published): (Vec<_>, Vec<_>) =
        manifests.partition(|(_, manifest)| manifest.text.lines().any(|l| l == "publish = false"));
    let mut problems = Vec::new();
    for (_, manifest) in published {
        let needs = |package: &str| {
            has_in(&manifest.text, package, |section| {
                section.ends_with("dependencies]")
            })
        };
        for (other, _) in kept.iter().filter(|(other, _)| needs(&other.package)) {
            problems.push(format!(
                "{}: depends on {}, which is not published",
                manifest.path, other.package
            ));
        }
    }
    problems
}

/// Every backend has the files that all backends have.
pub(super) fn backends_are_alike(repo: &Repo, files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for member in repo.backends() {
        for name in BACKEND_FILES {
            let path = format!("{}/src/{name}", member.folder);
            if file(files, &path).is_none() {
                problems.push(format!("{path}: missing; every backend has one"));
            }
        }
    }
    problems
}

/// The root of a library is a table of contents: prose, attributes, `mod` and `pub use`.
pub(super) fn library_roots_are_tables(repo: &Repo, files: &[SourceFile]) -> Vec<String> {
    let roots = repo
        .crates
        .iter()
        .map(|member| format!("{}/src/lib.rs", member.folder));
    let roots = roots.filter_map(|path| file(files, &path));
    roots.flat_map(logic_in_root).collect()
}

fn logic_in_root(root: &SourceFile) -> Vec<String> {
    // A procedural macro must be defined in the root of its crate.
    if root.text.contains("#[proc_macro") {
        return Vec::new();
    }
    let logic = |line: &str| {
        let words = line
            .trim_start_matches("pub ")
            .trim_start_matches("pub(crate) ");
        [
            "fn ",
            "unsafe fn ",
            "const fn ",
            "struct ",
            "enum ",
            "trait ",
            "impl ",
            "impl<",
        ]
        .iter()
        .any(|word| words.starts_with(word))
    };
    let numbered = root.text.lines().zip(1..);
    let found = numbered.filter(|(line, _)| logic(line));
    found
        .map(|(line, number)| format!("{}:{number}: {line}", root.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::made_up;

    #[test]
    fn logic_in_a_root_is_found() {
        let table = made_up(
            "a/src/lib.rs",
            "//! fn in prose\nmod a;\npub use a::{A, b};\n",
        );
        assert!(logic_in_root(&table).is_empty());
        for line in [
            "fn a() {}",
            "pub fn a() {}",
            "pub(crate) struct A;",
            "impl A {}",
        ] {
            assert_eq!(
                logic_in_root(&made_up("a/src/lib.rs", line)).len(),
                1,
                "{line}"
            );
        }
    }

    #[test]
    fn a_dependency_that_points_up_is_found() {
        let repo = Repo::find().unwrap();
        let map = "| `portolan` |\n| `portolan-core` |\n| `portolan-datatype` |\n";
        let files = |manifest: &str| {
            [
                made_up("ARCHITECTURE.md", map),
                made_up("core/Cargo.toml", manifest),
            ]
        };
        let down = files("[dependencies]\nportolan-datatype.workspace = true\n");
        assert!(dependencies_point_down(&repo, &down).is_empty());
        let up = files("[dependencies]\nportolan = { path = \"x\" }\n");
        assert_eq!(dependencies_point_down(&repo, &up).len(), 1);
        let test = files("[dev-dependencies]\nportolan.workspace = true\n");
        assert!(dependencies_point_down(&repo, &test).is_empty());
    }

    #[test]
    fn a_published_crate_that_needs_one_that_is_not_is_found() {
        let repo = Repo::find().unwrap();
        let found = |mark: &str, section: &str| {
            let files = [
                made_up("core/Cargo.toml", &format!("{section}\nxtask = \"1\"\n")),
                made_up("xtask/Cargo.toml", &format!("[package]\n{mark}\n")),
            ];
            published_crates_need_no_others(&repo, &files).len()
        };
        assert_eq!(found("publish = false", "[dependencies]"), 1);
        assert_eq!(found("publish = false", "[dev-dependencies]"), 1);
        assert_eq!(found("publish = false", "[features]"), 0);
        assert_eq!(found("", "[dependencies]"), 0);
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_is_found() {
        let repo = Repo::find().unwrap();
        let map = made_up("ARCHITECTURE.md", "| `core/` | `portolan-core` |");
        let problems = crates_are_in_the_map(&repo, &[map]);
        assert_eq!(problems.len(), repo.crates.len() - 1, "{problems:?}");
    }
}
