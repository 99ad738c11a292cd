//! The report, for people, of which PE waits for what.

use std::fmt::Write;

use super::pe::{Doing, Pe};
use super::time::Time;

/// Most lines of a report.
const LINES: usize = 16;

/// The report for the case that all PEs wait: what each of them waits for.
pub(crate) fn deadlock(pes: &[Pe], now: Time) -> String {
    let left = pes
        .iter()
        .filter(|pe| matches!(pe.doing, Doing::Left))
        .count();
    let waiting = pes.len() - left;
    let mut text = format!(
        "deadlock at {now} of virtual time: {waiting} of {} PEs wait",
        pes.len()
    );
    if left > 0 {
        let _ = write!(text, ", {left} have left");
    }
    let lines = (0_u32..).zip(pes).filter_map(|(number, pe)| {
        let what = pe.waits_for()?;
        Some(format!("\n  PE {number}: since {} for {what}", pe.clock))
    });
    for (shown, line) in lines.enumerate() {
        if shown == LINES {
            let _ = write!(text, "\n  and {} more", waiting - LINES);
            break;
        }
        text.push_str(&line);
    }
    text
}

/// "PE 3", "PEs 0, 2, 3"; long lists are cut.
pub(crate) fn list(pes: &[u32]) -> String {
    let shown: Vec<_> = pes.iter().take(8).map(u32::to_string).collect();
    let plural = if pes.len() == 1 { "PE" } else { "PEs" };
    let more = match pes.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{plural} {}{more}", shown.join(", "))
}
