//! The rule about `docs/adi.md`: no row is empty, and every test that a row names exists.
//!
//! In the last column a test is `subject::case`, a case of the conformance suite, or
//! `path/to/file.rs::name`, any other test of the repository; `path/to/file.rs` alone stands for
//! the doc tests in that file, or for an example.

use super::file;
use crate::repo::{Repo, SourceFile};

const PAGE: &str = "docs/adi.md";

/// Checks every row of every table in the page.
pub(super) fn rows_are_whole(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let Some(page) = file(files, PAGE) else {
        return vec![format!("{PAGE} is missing")];
    };
    let mut problems = Vec::new();
    let mut rows = 0;
    for (line, number) in page.text.lines().zip(1..) {
        let Some(cells) = cells(line) else { continue };
        rows += 1;
        for problem in problems_of(&cells, files) {
            problems.push(format!("{PAGE}:{number}: {problem}"));
        }
    }
    if rows == 0 {
        problems.push(format!("{PAGE} has no rows"));
    }
    problems
}

/// The cells of a table's row; `None` for other lines and for the head of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<_> = inner.split('|').map(str::trim).collect();
    let rule = cells
        .iter()
        .all(|cell| !cell.is_empty() && cell.bytes().all(|b| b == b'-'));
    let head = cells.last() == Some(&"test");
    (!rule && !head).then_some(cells)
}

fn problems_of(cells: &[&str], files: &[SourceFile]) -> Vec<String> {
    let first = cells.first().copied().unwrap_or("");
    if cells.iter().any(|cell| cell.is_empty()) {
        return vec![format!("the row of {first} has an empty cell")];
    }
    let tests: Vec<_> = cells
        .last()
        .map_or("", |cell| cell)
        .split('`')
        .skip(1)
        .step_by(2)
        .collect();
    if tests.is_empty() {
        return vec![format!("the row of {first} names no test")];
    }
    let missing = tests.iter().filter(|test| !exists(test, files));
    missing
        .map(|test| format!("there is no test {test}"))
        .collect()
}

fn exists(test: &str, files: &[SourceFile]) -> bool {
    let (place, name) = match test.rsplit_once("::") {
        Some((place, name)) => (place, Some(name)),
        None => (test, None),
    };
    let places = if place.contains('/') {
        vec![place.to_owned()]
    } else {
        let folders = ["subjects", "jobs"];
        folders
            .map(|folder| format!("conformance/src/{folder}/{place}.rs"))
            .to_vec()
    };
    let mut found = places.iter().filter_map(|path| file(files, path));
    found.any(|file| match name {
        Some(name) => {
            let function = format!("fn {name}");
            let calls = |rest: &str| rest.starts_with(['(', '<']);
            let trial = file.text.contains(&format!("\"{name}\""));
            let mut functions = file.text.match_indices(&function);
            trial || functions.any(|(at, _)| calls(&file.text[at + function.len()..]))
        }
        None => file.text.contains("```") || file.text.contains("fn main("),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::made_up;

    fn problems(row: &str) -> Vec<String> {
        let repo = Repo::find().unwrap();
        let page = format!("| paper | here | how | test |\n| --- | --- | --- | --- |\n{row}\n");
        let files = [
            made_up(PAGE, &page),
            made_up(
                "conformance/src/subjects/probing.rs",
                "pub fn matched<D>() {}",
            ),
            made_up("core/src/level.rs", "/// ```\nfn re_entry() {}"),
        ];
        rows_are_whole(&repo, &files)
    }

    #[test]
    fn whole_rows_pass() {
        assert!(problems("| A | `a` | x | `probing::matched` |").is_empty());
        let row = "| A | `a` | x | `core/src/level.rs::re_entry`, `core/src/level.rs` |";
        assert!(problems(row).is_empty());
    }

    #[test]
    fn broken_rows_are_found() {
        for row in [
            "",
            "| A | | x | `probing::matched` |",
            "| A | `a` | x | none |",
            "| A | `a` | x | `probing::match` |",
            "| A | `a` | x | `nowhere::matched` |",
            "| A | `a` | x | `core/src/level.rs::other` |",
        ] {
            assert_eq!(problems(row).len(), 1, "{row}");
        }
    }
}
