//! That the commands in the documents are commands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::common::{outcome, portolan};

/// `README.md` and the pages of `docs/`. The records of decisions are left out: they tell of the
/// commands of their time.
fn documents() -> Vec<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let pages = fs::read_dir(project.join("docs")).unwrap();
    let pages = pages.map(|page| page.unwrap().path());
    let mut all: Vec<_> = pages
        .filter(|page| page.extension().is_some_and(|end| end == "md"))
        .collect();
    all.push(project.join("README.md"));
    all
}

/// The arguments of a line that is a measurement's command, after settings and before a comment or
/// a redirection.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let line = line.split(['#', '>']).next()?;
    let setting = |word: &&str| word.contains('=') && word.starts_with(|c: char| c.is_uppercase());
    let mut words = line.split_whitespace().skip_while(setting);
    (words.next() == Some("portolan") && words.next() == Some("bench")).then(|| words.collect())
}

/// Without what the test adds, and without the peers: each of many commands would look for them.
fn without_peers<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut words = words.iter().copied();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--peers" | "--tuned" | "--dry-run" => (),
            "--only" | "--peer-dir" => drop(words.next()),
            word => kept.push(word),
        }
    }
    kept
}

#[test]
fn every_measurement_of_the_documents_is_accepted() {
    let texts = documents().into_iter().map(fs::read_to_string);
    let texts: Vec<_> = texts.map(Result::unwrap).collect();
    let commands: BTreeSet<_> = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(arguments)
        .map(|words| without_peers(&words))
        .collect();
    assert!(commands.len() > 50, "{}", commands.len());
    for words in commands {
        let told = outcome(
            portolan(&[&["bench", "--dry-run"], &words[..]].concat()),
            b"",
        );
        assert_eq!(told.code, Some(0), "{words:?}: {}", told.err);
        let name = words[0].trim_start_matches("neighbor");
        assert!(
            told.out.contains(name) || name.contains("coll"),
            "{words:?}: {}",
            told.out
        );
    }
}
