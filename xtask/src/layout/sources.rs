//! Rules about the text of the sources.

use crate::repo::{Repo, SourceFile};

/// Longest source file, in lines. Most files should have less than 400.
const LONGEST: usize = 700;
/// Columns of the widest comment.
const WIDEST: usize = 100;

/// How many lines above an unsafe block its SAFETY comment may begin.
const REACH: usize = 12;

/// Words that must not be in a committed source. Each is written in two parts, because this file is
/// a source too.
const UNDONE: &[(&str, &str)] = &[
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("db", "g!("),
    ("unimpl", "emented!"),
    ("to", "do!"),
];

/// Folders that exist on one person's machine only.
const MACHINES: &[&str] = &["work", "home", "root", "Users", "tmp/target"];

/// Crates whose results are what they print.
const PROGRAMS: &[&str] = &["launch/", "xtask/", "examples/", "benches/"];

/// The Rust sources that are not generated.
fn rust(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    let made = |file: &SourceFile| file.text.starts_with("/* automatically generated");
    let sources = files.iter().filter(|file| file.path.ends_with(".rs"));
    sources.filter(move |file| !made(file))
}

/// The lines that are code, with their numbers.
fn code(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let numbered = file
        .text
        .lines()
        .zip(1..)
        .map(|(line, number)| (number, line));
    numbered.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// No source file is longer than [`LONGEST`] lines.
pub(super) fn files_are_short(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let long = rust(files).map(|file| (file, file.text.lines().count()));
    long.filter(|(_, lines)| *lines > LONGEST)
        .map(|(file, lines)| format!("{}: {lines} lines; at most {LONGEST}", file.path))
        .collect()
}

/// Comments are as narrow as the code, so that two versions can be read side by side. (Tables,
/// pictures and longer words stay as they are.)
pub(super) fn comments_are_narrow(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in rust(files) {
        let mut fenced = false;
        for (line, number) in file.text.lines().zip(1..) {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                continue;
            };
            let text = comment.trim_start_matches(['/', '!']);
            let words = text.trim_start();
            fenced ^= words.starts_with("```");
            let picture = words.starts_with('|') || text.starts_with("    ") || !words.is_ascii();
            if line.chars().count() > WIDEST && !fenced && !picture && words.contains(' ') {
                problems.push(format!("{}:{number}: wider than {WIDEST}", file.path));
            }
        }
    }
    problems
}

/// Libraries report through values and `portolan_core::log!`. They must not print, and must not
/// call `tracing` directly, because `log!` ensures that a message is seen.
pub(super) fn libraries_do_not_print(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let library = |file: &&SourceFile| {
        let own = !PROGRAMS
            .iter()
            .any(|program| file.path.starts_with(program));
        own && file.path.contains("/src/") && !file.path.contains("tests")
    };
    let mut problems = Vec::new();
    for file in rust(files).filter(library) {
        for (number, line) in code(file) {
            let words = line.trim_start();
            if ["println!(", "print!(", "eprintln!(", "eprint!("]
                .iter()
                .any(|p| words.starts_with(p))
            {
                problems.push(format!("{}:{number}: a library prints", file.path));
            }
            if ["trace!(", "debug!(", "info!(", "warn!(", "error!("]
                .iter()
                .any(|p| words.contains(&format!("tracing::{p}")))
            {
                problems.push(format!("{}:{number}: not by `log!`", file.path));
            }
        }
    }
    problems
}

/// Crates that take the time from the device.
const ABOVE_CORE: &[&str] = &["coll/src/", "portolan/src/"];

/// Crates above core take the time from the device, so that a machine with virtual time controls
/// them. Tests may pause and have deadlines.
pub(super) fn time_comes_from_the_device(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let above = |file: &&SourceFile| {
        let is_in = |folder: &&str| file.path.starts_with(folder);
        ABOVE_CORE.iter().any(is_in) && !file.path.contains("tests")
    };
    let mut problems = Vec::new();
    for file in rust(files).filter(above) {
        for (number, line) in code(file) {
            let clock = ["Instant", "SystemTime", "clock_gettime"]
                .iter()
                .find(|clock| has_word(line, clock));
            if let Some(clock) = clock {
                problems.push(format!("{}:{number}: {clock}", file.path));
            }
        }
    }
    problems
}

/// Crates whose documentation users search for names that they know from MPI.
const FOR_PROGRAMS: &[&str] = &["portolan/src/", "datatype/src/"];

/// If the first paragraph of an item's documentation names an MPI routine, the item has that name
/// as an alias, so that rustdoc's search finds it.
pub(super) fn names_of_mpi_are_aliases(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let searched = |file: &&SourceFile| {
        FOR_PROGRAMS
            .iter()
            .any(|folder| file.path.starts_with(folder))
    };
    let mut problems = Vec::new();
    for file in rust(files).filter(searched) {
        let mut lines = file.text.lines().map(str::trim_start).zip(1..).peekable();
        while let Some((line, number)) = lines.next() {
            let Some(first) = line.strip_prefix("///") else {
                continue;
            };
            let mut paragraph = first.to_owned();
            let mut ended = first.is_empty();
            while let Some((more, _)) = lines.next_if(|(line, _)| line.starts_with("///")) {
                ended |= more == "///";
                if !ended {
                    paragraph.push_str(&more[3..]);
                }
            }
            // Attributes may take several lines, and end with the item's first line.
            let mut attributes = String::new();
            while let Some((more, _)) = lines
                .next_if(|(line, _)| line.starts_with(['#', '"', ')']) || line.starts_with("alias"))
            {
                attributes.push_str(more);
            }
            for name in paragraph.split('`').skip(1).step_by(2) {
                let of_mpi = name.starts_with("MPI_") || name.starts_with("MPIX_");
                if of_mpi && !attributes.contains(&format!("\"{name}\"")) {
                    problems.push(format!("{}:{number}: no alias {name}", file.path));
                }
            }
        }
    }
    problems
}

/// No reminder of unfinished work, and no debugging aid.
pub(super) fn nothing_is_left_undone(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let words: Vec<_> = UNDONE.iter().map(|(a, b)| [*a, *b].concat()).collect();
    let texts = files
        .iter()
        .filter(|f| f.path.ends_with(".rs") || f.path.ends_with(".md"));
    let mut problems = Vec::new();
    for file in texts.filter(|file| file.path != "CONTRIBUTING.md") {
        for (line, number) in file.text.lines().zip(1..) {
            if let Some(word) = words.iter().find(|word| has_word(line, word)) {
                problems.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    problems
}

/// Whether `word` is in `line`, and not as a part of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let within = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        // A word that ends in a bracket may be followed by anything.
        let ends = word.ends_with(['(', '!']) || !after.is_some_and(within);
        !before.is_some_and(within) && ends
    })
}

/// Every unsafe block and implementation has a SAFETY comment above it. Clippy checks most of them;
/// this rule checks those in macros as well.
pub(super) fn unsafe_code_is_argued_for(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in rust(files) {
        let lines: Vec<_> = file.text.lines().collect();
        for (number, line) in code(file) {
            let needs = has_word(line, "unsafe {") || line.trim_start().starts_with("unsafe impl");
            let quoted = line.contains('"') || line.contains("=> {");
            let near = &lines[number.saturating_sub(REACH + 1)..number];
            let argued = near.iter().any(|line| line.contains("SAFETY"));
            if needs && !quoted && !argued {
                problems.push(format!("{}:{number}: no SAFETY comment", file.path));
            }
        }
    }
    problems
}

/// No committed file names a folder of the machine on which it was written.
pub(super) fn no_machine_is_named(_: &Repo, files: &[SourceFile]) -> Vec<String> {
    let folders: Vec<_> = MACHINES.iter().map(|name| format!("/{name}/")).collect();
    let mut problems = Vec::new();
    for file in files {
        for (line, number) in file.text.lines().zip(1..) {
            if let Some(folder) = folders.iter().find(|folder| has_path(line, folder)) {
                problems.push(format!("{}:{number}: a path in {folder}", file.path));
            }
        }
    }
    problems
}

/// Whether `line` has an absolute path into `folder`, as opposed to a part of a relative path.
fn has_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || "._-}>".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::made_up;

    fn repo() -> Repo {
        Repo::find().unwrap()
    }

    #[test]
    fn a_long_file_is_found() {
        let long = made_up("a.rs", &"\n".repeat(LONGEST + 1));
        assert_eq!(files_are_short(&repo(), &[long]).len(), 1);
        assert!(files_are_short(&repo(), &[made_up("a.rs", "\n")]).is_empty());
    }

    #[test]
    fn a_wide_comment_is_found() {
        let words = "a word ".repeat(20);
        let wide = |line: String| comments_are_narrow(&repo(), &[made_up("a.rs", &line)]).len();
        assert_eq!(wide(format!("    /// {words}\n// {words}\n")), 2);
        assert_eq!(
            wide(format!("//! | {words} |\nlet a = \"{words}\"; // a\n")),
            0
        );
        assert_eq!(wide(format!("/// ```\n/// {words}\n/// ```\n")), 0);
    }

    #[test]
    fn printing_is_found_in_libraries_only() {
        let text = "// println!(\n    println!(\"x\");\n";
        assert_eq!(
            libraries_do_not_print(&repo(), &[made_up("core/src/a.rs", text)]),
            ["core/src/a.rs:2: a library prints"]
        );
        let event = "    tracing::warn!(\"x\");\n";
        assert_eq!(
            libraries_do_not_print(&repo(), &[made_up("core/src/a.rs", event)]),
            ["core/src/a.rs:1: not by `log!`"]
        );
        assert!(libraries_do_not_print(&repo(), &[made_up("launch/src/a.rs", text)]).is_empty());
    }

    #[test]
    fn a_clock_of_the_host_is_found_above_core() {
        let text = "// Instant\nuse std::time::{Duration, Instant};\nlet t = Instantly;\n";
        let found = |path| time_comes_from_the_device(&repo(), &[made_up(path, text)]);
        for path in ["coll/src/direct/a.rs", "portolan/src/a.rs"] {
            assert_eq!(found(path), [format!("{path}:2: Instant")]);
        }
        for path in [
            "core/src/a.rs",
            "coll/tests/a.rs",
            "coll/src/direct/tests/a.rs",
        ] {
            assert!(found(path).is_empty(), "{path}");
        }
    }

    #[test]
    fn an_item_without_the_alias_that_it_names_is_found() {
        let item = |attribute: &str| {
            let text =
                format!("/// Sends (`MPI_Send`).\n///\n/// `MPI_Recv`\n{attribute}fn a() {{}}\n");
            names_of_mpi_are_aliases(&repo(), &[made_up("portolan/src/a.rs", &text)])
        };
        assert_eq!(item(""), ["portolan/src/a.rs:1: no alias MPI_Send"]);
        assert!(item("#[doc(alias = \"MPI_Send\")]\n").is_empty());
        assert!(item("#[doc(alias(\"MPI_Bsend\", \"MPI_Send\"))]\n").is_empty());
    }

    #[test]
    fn reminders_are_found() {
        let word = ["TO", "DO"].concat();
        let file = made_up("a.rs", &format!("x\n// {word}: y\nlet S{word} = 1;\n"));
        assert_eq!(
            nothing_is_left_undone(&repo(), &[file]),
            [format!("a.rs:2: {word}")]
        );
    }

    #[test]
    fn unargued_unsafe_code_is_found() {
        let block = ["unsafe", " { f() }"].concat();
        let bare = made_up("a.rs", &format!("fn a() {{\n    {block}\n}}\n"));
        assert_eq!(unsafe_code_is_argued_for(&repo(), &[bare]).len(), 1);
        let argued = made_up("a.rs", &format!("// SAFETY: because.\n{block}\n"));
        assert!(unsafe_code_is_argued_for(&repo(), &[argued]).is_empty());
    }

    #[test]
    fn absolute_paths_are_found() {
        let path = ["/wo", "rk/main"].concat();
        assert_eq!(
            no_machine_is_named(&repo(), &[made_up("a.md", &path)]).len(),
            1
        );
        assert!(no_machine_is_named(&repo(), &[made_up("a.md", &format!("at{path}"))]).is_empty());
    }
}
