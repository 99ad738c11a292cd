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

/// The list of an option that places ranks, with processors that this process may use: the
/// documents are about machines that have processors 0 and 1. Equal ones stay equal, and different
/// ones different where there are enough.
fn on_allowed(list: &str, allowed: &[usize]) -> String {
    let numbers: Result<Vec<usize>, _> = list.split(',').map(str::parse).collect();
    let Ok(numbers) = numbers else {
        return list.to_owned();
    };
    let named: Vec<_> = BTreeSet::from_iter(numbers.iter().copied())
        .into_iter()
        .collect();
    let here = |number: &usize| {
        let at = named.iter().position(|one| one == number).unwrap();
        allowed[at % allowed.len()].to_string()
    };
    numbers.iter().map(here).collect::<Vec<_>>().join(",")
}

/// The words of a command with the processors of this machine.
fn placed_here(words: &[&str]) -> Vec<String> {
    let allowed = portolan_benches::allowed_processors();
    let mut before = "";
    let mut placed = Vec::new();
    for &word in words {
        placed.push(match before {
            "--pin" | "--bind" => on_allowed(word, &allowed),
            _ => word.to_owned(),
        });
        before = word;
    }
    placed
}

#[test]
fn processors_of_a_documented_command_are_replaced_by_allowed_ones() {
    assert_eq!(on_allowed("0,0", &[2, 3]), "2,2");
    assert_eq!(on_allowed("1,0", &[2, 3]), "3,2");
    assert_eq!(on_allowed("0,32", &[7]), "7,7");
    assert_eq!(on_allowed("core", &[2, 3]), "core");
}

#[test]
#[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
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
        let placed = placed_here(&words);
        let placed: Vec<_> = placed.iter().map(String::as_str).collect();
        let told = outcome(
            portolan(&[&["bench", "--dry-run"], &placed[..]].concat()),
            b"",
        );
        // The documents are about machines with enough memory.
        if told.code == Some(2) && told.err.contains("are left here") {
            eprintln!("skipped: {words:?}: {}", told.err.trim_end());
            continue;
        }
        let has_all = cfg!(all(feature = "shm", feature = "ofi", feature = "t3e-sim"));
        if !has_all && told.err.contains("is not compiled into this program") {
            eprintln!("skipped: {words:?}: {}", told.err.trim_end());
            continue;
        }
        assert_eq!(told.code, Some(0), "{words:?}: {}", told.err);
        let name = words[0].trim_start_matches("neighbor");
        assert!(
            told.out.contains(name) || name.contains("coll"),
            "{words:?}: {}",
            told.out
        );
    }
}
