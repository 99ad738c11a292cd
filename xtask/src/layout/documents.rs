//! Rules about the documents.

use std::path::{Component, Path, PathBuf};

use super::file;
use crate::repo::{Repo, SourceFile};

/// Where the settings are declared.
const TABLE: &str = "core/src/config/table.rs";

/// Every setting of the table has its section in the manual page.
pub(super) fn settings_are_described(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let (Some(table), Some(page)) = (file(files, TABLE), file(files, "docs/settings.md")) else {
        return vec![format!("{TABLE} or docs/settings.md is missing")];
    };
    let names: Vec<_> = settings(&table.text).collect();
    if names.is_empty() {
        return vec![format!(
            "{TABLE}: no setting was found; has its form changed?"
        )];
    }
    let missing = names
        .iter()
        .filter(|name| !page.text.contains(&format!("### PORTOLAN_{name}\n")));
    missing
        .map(|name| format!("docs/settings.md: no PORTOLAN_{name}; run `cargo xtask docs`"))
        .collect()
}

/// The names in the entries `"NAME" => …` of the settings table.
fn settings(table: &str) -> impl Iterator<Item = &str> {
    let entries = table
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix('"'));
    entries
        .filter_map(|line| line.split_once("\" => "))
        .map(|(name, _)| name)
}

/// Every link to a file of the repository leads to an existing file.
pub(super) fn links_lead_somewhere(repo: &Repo, files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for page in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, number) in page.text.lines().zip(1..) {
            for link in links(line) {
                let target = resolve(&page.path, link);
                if !target.is_some_and(|target| repo.path(&target).exists()) {
                    problems.push(format!("{}:{number}: there is no {link}", page.path));
                }
            }
        }
    }
    problems
}

/// The links to files in a line of Markdown, without links to the web and within the page.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let ends = line
        .match_indices("](")
        .map(|(at, mark)| &line[at + mark.len()..]);
    let links = ends
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link);
    let links = links.map(|link| link.split('#').next().unwrap_or(""));
    links.filter(|link| !link.is_empty() && !link.contains("://") && !link.contains(' '))
}

/// The target of a link as a path in the repository; `None` if it leads out of the repository.
fn resolve(page: &str, link: &str) -> Option<String> {
    let mut path = PathBuf::new();
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    for part in folder.join(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => path.pop().then_some(())?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    path.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::made_up;

    #[test]
    fn settings_without_a_section_are_found() {
        let repo = Repo::find().unwrap();
        let table = made_up(
            TABLE,
            "settings! {\n    /// A.\n    \"A\" => a: T;\n  \"B\" => b: T;\n}",
        );
        let page = made_up("docs/settings.md", "### PORTOLAN_A\n");
        assert_eq!(settings_are_described(&repo, &[table, page]).len(), 1);
    }

    #[test]
    fn links_are_found_and_resolved() {
        let line = "a [b](c/d.md#e) [f](#g) [h](https://i.j/k) [l](../m.md)";
        assert_eq!(links(line).collect::<Vec<_>>(), ["c/d.md", "../m.md"]);
        assert_eq!(resolve("docs/a.md", "../b/c.md").as_deref(), Some("b/c.md"));
        assert_eq!(resolve("a.md", "../b.md"), None);
        assert_eq!(resolve("a.md", "/b.md"), None);
    }

    #[test]
    fn a_dead_link_is_found() {
        let repo = Repo::find().unwrap();
        let page = made_up("docs/x.md", "[a](../xtask/Cargo.toml) [b](nothing-here.md)");
        assert_eq!(
            links_lead_somewhere(&repo, &[page]),
            ["docs/x.md:1: there is no nothing-here.md"]
        );
    }
}
