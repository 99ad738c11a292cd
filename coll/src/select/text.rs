//! Tables as text: what settings and files say, and what people are shown.
//!
//! One rule per line or between semicolons: the operation, conditions in any order, the algorithm.
//! The condition `levels` holds where ranks are on several nodes, and some share one; `flat` holds
//! everywhere else; `on=ofi` holds over the device of this name. Algorithms of trees take their
//! `radix`. `#` begins a comment.
//!
//! ```text
//! bcast      ranks<=8  bytes<=32k  binomial
//! bcast      bytes<=1M             knomial radix=8
//! bcast                            chain
//! ```

use std::fmt;

use super::{Place, Rule, Table};
use crate::algorithms::{self, knomial};
use crate::args::Name;

/// Reads rules.
///
/// # Errors
/// What is wrong with the first rule that cannot be used, and what would be right.
pub fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let rules = lines.flat_map(|line| line.split(';')).map(str::trim);
    rules.filter(|rule| !rule.is_empty()).map(rule).collect()
}

fn rule(text: &str) -> Result<Rule, String> {
    let wrong = |what: String| format!("{what} in the rule \"{text}\"");
    let mut words = text.split_whitespace();
    let operation = words.next().unwrap_or_default();
    let spelt = operation.replace("neighbor-", "neighbour-");
    let Some(operation) = Name::ALL.into_iter().find(|name| name.text() == spelt) else {
        let known: Vec<_> = Name::ALL.iter().map(|name| name.text()).collect();
        let what = format!(
            "there is no operation {operation}; use one of {}",
            known.join(", ")
        );
        return Err(wrong(what));
    };
    let mut rule = Rule::always(operation, "");
    for word in words {
        if let Some(limit) = word.strip_prefix("ranks<=") {
            let limit = limit
                .parse()
                .map_err(|_| wrong(format!("{limit} is no number of ranks")))?;
            rule.ranks = limit;
        } else if let Some(limit) = word.strip_prefix("bytes<=") {
            let limit =
                bytes(limit).ok_or_else(|| wrong(format!("{limit} is no size (12, 64k, 4M)")))?;
            rule.bytes = limit;
        } else if let Some(radix) = word.strip_prefix("radix=") {
            let legal = radix
                .parse()
                .ok()
                .filter(|r| (2..=knomial::MOST).contains(r));
            let most = knomial::MOST;
            let what = || wrong(format!("{radix} is no radix (2 to {most})"));
            rule.radix = Some(legal.ok_or_else(what)?);
        } else if let Some(device) = word.strip_prefix("on=") {
            if device.is_empty() || rule.device.is_some() {
                return Err(wrong(format!("{word} does not name one device (on=shm)")));
            }
            rule.device = Some(device.to_owned());
        } else if let Some(place) = place(word) {
            if rule.place != Place::Anywhere && rule.place != place {
                return Err(wrong("levels and flat never hold together".to_owned()));
            }
            rule.place = place;
        } else if rule.algorithm.is_empty() && !word.contains('=') {
            rule.algorithm = word.to_owned();
        } else {
            return Err(wrong(format!(
                "{word} is no condition; use ranks<=N, bytes<=N, levels, flat, on=DEVICE, the name of one algorithm, and radix=K of a tree"
            )));
        }
    }
    let known = algorithms::names(operation);
    if !known.contains(&&*rule.algorithm) {
        return Err(wrong(format!(
            "{operation} has no algorithm \"{}\"; use one of {}",
            rule.algorithm,
            known.join(", ")
        )));
    }
    if rule.radix.is_some() && !algorithms::has_radix(&rule.algorithm) {
        return Err(wrong(format!(
            "{} has no radix ({} has)",
            rule.algorithm,
            knomial::NAME
        )));
    }
    Ok(rule)
}

fn place(word: &str) -> Option<Place> {
    let places = [Place::Levels, Place::Flat];
    places.into_iter().find(|place| place.text() == word)
}

impl Place {
    /// The condition's name; empty for the one that always holds.
    fn text(self) -> &'static str {
        match self {
            Self::Anywhere => "",
            Self::Levels => "levels",
            Self::Flat => "flat",
        }
    }
}

/// A size with a suffix of powers of 1024.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1usize << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// A size as [`parse`] reads it.
fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = match self.ranks {
            u32::MAX => String::new(),
            limit => format!("ranks<={limit}"),
        };
        let bytes = match self.bytes {
            usize::MAX => String::new(),
            limit => format!("bytes<={}", size(limit)),
        };
        let device = self.device.as_ref();
        let device = device.map_or(String::new(), |name| format!("on={name} "));
        let (operation, place, algorithm) =
            (self.operation.text(), self.place.text(), &self.algorithm);
        write!(
            f,
            "{operation:<20} {device}{place:<7} {ranks:<12} {bytes:<14} {algorithm}"
        )?;
        match self.radix {
            Some(radix) => write!(f, " radix={radix}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules()
            .iter()
            .try_for_each(|rule| writeln!(f, "{rule}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_reads_what_it_shows() {
        let table = Table::default();
        assert_eq!(parse(&table.to_string()).as_deref(), Ok(table.rules()));
    }

    #[test]
    fn neighbours_can_be_spelt_in_both_ways() {
        let algorithm = algorithms::names(Name::NeighbourAlltoall)[0];
        let rule = |operation: &str| parse(&format!("{operation} {algorithm}")).unwrap();
        assert_eq!(rule("neighbor-alltoall"), rule("neighbour-alltoall"));
    }

    #[test]
    fn errors_name_the_word_and_what_would_be_right() {
        let error = |text: &str| parse(text).unwrap_err();
        assert!(error("bcats chain").contains("no operation bcats; use one of barrier, bcast"));
        assert!(error("bcast bytes<=x chain").contains("x is no size"));
        assert!(error("bcast ranks<=-1 chain").contains("-1 is no number of ranks"));
        assert!(error("bcast chain tree").contains("tree is no condition"));
        assert!(error("bcast").contains("bcast has no algorithm \"\"; use one of binomial"));
        assert!(error("bcast knomial radix=1").contains("1 is no radix (2 to 65536)"));
        assert!(error("bcast radix=4 chain").contains("chain has no radix (knomial has)"));
        let rules = parse("bcast knomial radix=8; gather radix=3 bytes<=1k knomial").unwrap();
        assert_eq!((rules[0].radix, rules[1].radix), (Some(8), Some(3)));
        let shown: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
        assert_eq!(parse(&shown), Ok(rules));
        let rules = parse("bcast bytes<=64k ranks<=3 chain # why\n\n; barrier linear").unwrap();
        assert_eq!(
            (rules[0].bytes, rules[0].ranks, rules.len()),
            (64 << 10, 3, 2)
        );
        assert!(error("bcast on= chain").contains("on= does not name one device"));
        assert!(error("bcast on=shm on=ofi chain").contains("on=ofi does not name one"));
        assert!(error("bcast levels flat chain").contains("levels and flat never hold together"));
    }

    #[test]
    fn conditions_of_place_and_device_are_read_and_shown() {
        let rules =
            parse("reduce two-level levels; barrier linear; bcast on=ofi flat chain").unwrap();
        let told = rules
            .iter()
            .map(|rule| (rule.place, rule.device.as_deref()));
        let expected = [
            (Place::Levels, None),
            (Place::Anywhere, None),
            (Place::Flat, Some("ofi")),
        ];
        assert!(told.eq(expected), "{rules:?}");
        let shown: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
        assert_eq!(parse(&shown), Ok(rules));
    }
}
