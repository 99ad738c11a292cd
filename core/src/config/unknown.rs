//! Names that are not settings, and the settings that were probably meant.

use std::fmt;

use super::{PREFIX, SETTINGS};

/// An environment variable with Portolan's prefix that is not a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownName {
    /// The name, without the prefix.
    pub name: String,
    /// The nearest setting, if any is near enough.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown variable {PREFIX}{} ", self.name)?;
        match self.nearest {
            Some(name) => write!(f, "(did you mean {PREFIX}{name}?)"),
            None => f.write_str("(`portolan info` lists the known ones)"),
        }
    }
}

/// The setting whose name is closest to `name`, if it is close enough to be what was meant.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    nearest_of(name, SETTINGS.iter().map(|row| row.name))
}

/// The one of these names that is closest to `name`, whatever the case of their letters, if it is
/// close enough to be what was meant.
///
/// A third of the letters may differ (of a few letters, one), or half of them if the first word is
/// the same (`EAGER_LIMIT` for `EAGER_MAX`).
#[must_use]
pub fn nearest_of<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_uppercase();
    let candidates = known.into_iter().filter_map(|other| {
        let upper = other.to_ascii_uppercase();
        let same_word = name.contains('_') && first_word(&name) == first_word(&upper);
        let allowed = if same_word {
            name.len() / 2
        } else {
            (name.len() / 3).max(1)
        };
        let distance = distance(&name, &upper);
        (distance <= allowed && distance < upper.len()).then_some((distance, other))
    });
    candidates
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

fn first_word(name: &str) -> &str {
    name.split('_').next().unwrap_or(name)
}

/// Edit distance: insertions, deletions, substitutions, and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // rows[i][j] is the distance between the first i characters of a and the first j of b.
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = substituted.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_slips() {
        for (a, b, d) in [
            ("", "", 0),
            ("SPIN", "SPIN", 0),
            ("SPNI", "SPIN", 1),
            ("SPIN", "SPINS", 1),
            ("A", "", 1),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (d, d), "{a} {b}");
        }
    }

    #[test]
    fn likely_slips_are_recognised_and_strangers_are_not() {
        for (slip, meant) in [
            ("TRANSPROT", "TRANSPORT"),
            ("transport", "TRANSPORT"),
            ("EAGER_LIMIT", "EAGER_MAX"),
            ("EAGERMAX", "EAGER_MAX"),
            ("WIAT", "WAIT"),
        ] {
            assert_eq!(nearest(slip), Some(meant), "{slip}");
        }
        assert_eq!(nearest("QUITE_ANOTHER_THING"), None);
        assert_eq!(nearest("FOO"), None, "LOG has one letter of it");
        assert_eq!(nearest(""), None);
        let known = ["shm", "ofi", "t3e-sim"];
        for (slip, meant) in [("SHM", "shm"), ("of", "ofi"), ("t3e_sim", "t3e-sim")] {
            assert_eq!(nearest_of(slip, known), Some(meant), "{slip}");
        }
        assert_eq!(nearest_of("pigeons", known), None);
        assert_eq!(nearest_of("foo", known), None);
    }
}
