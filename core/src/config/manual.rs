//! The manual page of the settings, made from the table.

use std::fmt::Write;

use super::{PREFIX, SETTINGS, Setting};
use crate::observe::Counters;

const HEAD: &str = "\
# Settings

<!-- Made from the table in core/src/config/table.rs by `portolan info --manual`. Do not edit. -->

Every setting is an environment variable and can also be given by the program, which then wins.
A value that cannot be used is an error. (Names of presets, providers and the like, and what
depends on the machine, are checked by the transport that uses them.) A variable that begins with
`PORTOLAN_` and is not in this list gives a warning with the nearest name that is. `portolan info`
shows every value and where it came from.

Sizes are in bytes and may end in `k`, `M`, `G` or `T` (powers of 1024); times are in seconds. A
switch that is only `on` or `off` also takes `1`, `true`, `yes`, `0`, `false` and `no`.

";

const COUNTERS: &str = "
## Counters

`PORTOLAN_COUNTERS=on` prints these when a rank ends, and `World::counters` returns them. All count
what this rank has done, from the start of its job.

| counter | what it counts |
| --- | --- |
";

/// Those of parts of Portolan that this crate does not know.
const MORE_COUNTERS: &str = "\
| `collective_…` | What collective operations have cost, of all communicators together; only printed. `Comm::counted` gives the same of one communicator, and `coll::Counters` says what is counted |
| `tagged_…` | Messages that libfabric matches (`PORTOLAN_MATCH=native`): sent by a call that copies the data at once (`injected`), sent otherwise, received, and receives that waited until libfabric took them |
| `lite_…` | What the emulated T3E's own layer did: `portolan_t3e_sim::mp_lite::Stats` |
";

/// The text of `docs/settings.md`.
#[must_use]
pub fn manual() -> String {
    let mut page = String::from(HEAD);
    page.push_str("| variable | default | unit | accepts |\n| --- | --- | --- | --- |\n");
    for row in SETTINGS {
        let default = row.default_shown();
        let (variable, unit, accepts) = (row.variable(), row.unit, accepts(row));
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| [`{variable}`](#{}) | {default} | {unit} | {accepts} |",
            anchor(row)
        );
    }
    for row in SETTINGS {
        let meaning = row.meaning.trim();
        let _ = write!(page, "\n### {PREFIX}{}\n\n{meaning}\n", row.name);
    }
    page.push_str(COUNTERS);
    for (name, meaning) in Counters::DESCRIBED {
        let _ = writeln!(
            page,
            "| `{name}` | {} |",
            meaning.trim().trim_end_matches('.')
        );
    }
    page.push_str(MORE_COUNTERS);
    page
}

fn accepts(row: &Setting) -> String {
    let expected = row.expected();
    expected.strip_prefix("a ").unwrap_or(&expected).to_owned()
}

fn anchor(row: &Setting) -> String {
    row.variable().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/settings.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == manual(),
            "docs/settings.md is not what the table says; run \
             `cargo run -- info --manual > docs/settings.md` and look at the difference"
        );
    }

    #[test]
    fn the_page_has_every_setting() {
        let page = manual();
        for row in SETTINGS {
            assert!(
                page.contains(&format!("### {PREFIX}{}\n", row.name)),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn the_page_has_every_counter() {
        let page = manual();
        for (name, _) in Counters::default().by_name() {
            assert!(page.contains(&format!("\n| `{name}` | ")), "{name}");
        }
    }
}
