//! The errors of jobs for which no transport can be chosen.
//!
//! They are the same on every rank, because their texts follow from all votes and do not name the
//! rank that reports them.

use std::fmt::Write;
use std::sync::Arc;

use portolan_core::config::nearest_of;
use portolan_core::{Error, ErrorKind};

use super::{BY_PROGRAM, NOT_TRIED, Vote, Wanted};

/// The names of all transports, compiled in or not, the best first.
const KNOWN: [&str; 4] = ["shm", "ofi", "memory", "t3e-sim"];

/// All ranks want the same transport, and not all of them can use it.
pub(super) fn wanted(votes: &[Arc<Vote>], wanted: &Wanted, usable: &dyn Fn(&str) -> bool) -> Error {
    let Wanted { name, by } = wanted;
    let mut text = format!("transport `{name}` was requested ({by}) but is not usable");
    text.push_str(&inventory(votes, usable));
    let others = votes[0].candidates.iter().map(|c| c.0.as_str());
    let others = others.filter(|other| other != name && !usable(other) && !untried(votes, other));
    for name in std::iter::once(name.as_str()).chain(others) {
        list_reasons(&mut text, votes, name);
    }
    let _ = write!(text, "\n  fix: {}", remedy(votes, wanted, usable));
    unavailable(text)
}

/// The choice is open, and there is no transport that all ranks can use.
pub(super) fn none_usable(votes: &[Arc<Vote>], usable: &dyn Fn(&str) -> bool) -> Error {
    let mut text = "no transport is usable".to_owned();
    text.push_str(&inventory(votes, usable));
    for (name, _) in &votes[0].candidates {
        list_reasons(&mut text, votes, name);
    }
    text.push_str("\n  fix: remove one of these causes; `portolan info` shows more");
    unavailable(text)
}

/// The ranks want different transports.
pub(super) fn disagreement(votes: &[Arc<Vote>]) -> Error {
    let mut groups: Vec<(Option<&Wanted>, Vec<usize>)> = Vec::new();
    for (rank, vote) in votes.iter().enumerate() {
        match groups
            .iter_mut()
            .find(|(wanted, _)| *wanted == vote.wanted.as_ref())
        {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((vote.wanted.as_ref(), vec![rank])),
        }
    }
    let mut text = format!("{} ranks disagree on the transport", votes.len());
    for (wanted, ranks) in groups {
        let wanted = match wanted {
            Some(Wanted { name, by }) => format!("{name} ({by})"),
            None => "the best usable one (nothing was asked for)".to_owned(),
        };
        let _ = write!(text, "\n  {}: {wanted}", rank_list(&ranks));
    }
    text.push_str("\n  fix: give every rank the same PORTOLAN_TRANSPORT, or none");
    unavailable(text)
}

fn unavailable(text: String) -> Error {
    Error::new(ErrorKind::TransportUnavailable, text)
}

fn inventory(votes: &[Arc<Vote>], usable: &dyn Fn(&str) -> bool) -> String {
    let compiled = || votes[0].candidates.iter().map(|c| c.0.as_str());
    let names = |which: &dyn Fn(&str) -> bool| {
        let names: Vec<&str> = compiled().filter(|name| which(name)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let or_none = |names: Option<String>| names.unwrap_or_else(|| "none".to_owned());
    let mut text = format!(
        "\n  compiled in: {}     usable here: {}",
        or_none(names(&|_| true)),
        or_none(names(usable)),
    );
    if let Some(names) = names(&|name| untried(votes, name)) {
        let _ = write!(text, "     not tried: {names}");
    }
    text
}

/// Whether no rank has tried it.
fn untried(votes: &[Arc<Vote>], name: &str) -> bool {
    let untried = |(other, why): &(String, Option<String>)| {
        other == name && why.as_ref().is_some_and(|why| why.starts_with(NOT_TRIED))
    };
    votes.iter().all(|vote| vote.candidates.iter().any(untried))
}

fn list_reasons(text: &mut String, votes: &[Arc<Vote>], name: &str) {
    for why in reasons(votes, name) {
        let _ = write!(text, "\n  {name}: {why}");
    }
}

/// Why `name` is not usable: each reason once, with the ranks that gave it.
pub(super) fn reasons(votes: &[Arc<Vote>], name: &str) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<usize>)> = Vec::new();
    for (rank, vote) in votes.iter().enumerate() {
        let why = match vote.candidates.iter().find(|c| c.0 == name) {
            None if KNOWN.contains(&name) => "not compiled into this program".to_owned(),
            None => "there is no transport of this name".to_owned(),
            Some((_, Some(why))) => why.clone(),
            Some((_, None)) => continue,
        };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, ranks)) => ranks.push(rank),
            None => reasons.push((why, vec![rank])),
        }
    }
    reasons
        .into_iter()
        .map(|(why, ranks)| match ranks.len() == votes.len() {
            true => why,
            false => format!("{why} ({})", rank_list(&ranks)),
        })
        .collect()
}

/// What to do about it, by who has asked.
fn remedy(votes: &[Arc<Vote>], wanted: &Wanted, usable: &dyn Fn(&str) -> bool) -> String {
    let Wanted { name, by } = wanted;
    let compiled = votes
        .iter()
        .all(|vote| vote.candidates.iter().any(|c| c.0 == *name));
    let open = match (votes[0].candidates.iter().any(|c| usable(&c.0)), &**by) {
        (false, _) => "",
        (true, BY_PROGRAM) => ", or leave the choice open (without `Builder::transport`)",
        (true, _) => ", or leave the choice open (unset PORTOLAN_TRANSPORT)",
    };
    if compiled {
        return format!("remove the cause{open}");
    }
    if KNOWN.contains(&&**name) {
        return format!("compile `portolan` with the feature `{name}`{open}");
    }
    let here: Vec<&str> = votes[0].candidates.iter().map(|c| c.0.as_str()).collect();
    let meant = match nearest_of(name, KNOWN) {
        Some(meant) if here.contains(&meant) => format!("did you mean `{meant}`? "),
        Some(meant) => format!("did you mean `{meant}`, which is not compiled in? "),
        None => String::new(),
    };
    format!("{meant}choose from {}{open}", here.join(", "))
}

/// "rank 3", "ranks 0, 2, 3"; long lists are cut.
fn rank_list(ranks: &[usize]) -> String {
    let shown: Vec<_> = ranks.iter().take(8).map(ToString::to_string).collect();
    let more = if ranks.len() > shown.len() {
        ", …"
    } else {
        ""
    };
    let plural = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{plural} {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::vote;
    use super::super::{Eager, Place, TransportInfo, candidates, decide};
    use super::*;
    use crate::Settings;

    #[test]
    fn an_explicit_choice_is_used_or_fails_and_says_why() {
        let all = [("ofi", Some("libfabric.so.1 was not found")), ("shm", None)];
        assert_eq!(decide(&[vote(Some("shm"), &all)]).unwrap().name, "shm");

        let error = decide(&[vote(Some("ofi"), &all), vote(Some("ofi"), &all)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TransportUnavailable);
        assert_eq!(
            error.to_string(),
            "transport `ofi` was requested (PORTOLAN_TRANSPORT=ofi) but is not usable\n  \
             compiled in: ofi, shm     usable here: shm\n  \
             ofi: libfabric.so.1 was not found\n  \
             fix: remove the cause, or leave the choice open (unset PORTOLAN_TRANSPORT)"
        );

        let error = decide(&[vote(Some("ofi"), &[("shm", None)])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "transport `ofi` was requested (PORTOLAN_TRANSPORT=ofi) but is not usable\n  \
             compiled in: shm     usable here: shm\n  \
             ofi: not compiled into this program\n  \
             fix: compile `portolan` with the feature `ofi`, or leave the choice open (unset \
             PORTOLAN_TRANSPORT)"
        );
    }

    #[test]
    fn unknown_names_are_told_which_there_are_and_what_else_was_not_tried() {
        let not_tried = format!("{NOT_TRIED}SHM is asked for");
        let all = [
            ("shm", None),
            ("ofi", Some(&*not_tried)),
            ("memory", Some("one process only")),
        ];
        let error = decide(&[vote(Some("SHM"), &all), vote(Some("SHM"), &all)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "transport `SHM` was requested (PORTOLAN_TRANSPORT=SHM) but is not usable\n  \
             compiled in: shm, ofi, memory     usable here: shm     not tried: ofi\n  \
             SHM: there is no transport of this name\n  \
             memory: one process only\n  \
             fix: did you mean `shm`? choose from shm, ofi, memory, or leave the choice \
             open (unset PORTOLAN_TRANSPORT)"
        );
        let error = decide(&[vote(Some("pigeons"), &all)]).unwrap_err();
        let fix = "\n  fix: choose from shm, ofi, memory, or leave";
        assert!(error.to_string().contains(fix), "{error}");
        let error = decide(&[vote(Some("t3esim"), &all)]).unwrap_err();
        let fix = "\n  fix: did you mean `t3e-sim`, which is not compiled in? choose from shm,";
        assert!(error.to_string().contains(fix), "{error}");
    }

    #[test]
    fn programs_are_told_what_a_program_can_do() {
        let error = crate::Builder::new().transport("pigeons").in_process(1);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("(by the program)"), "{error}");
        assert!(!error.contains("PORTOLAN_TRANSPORT"), "{error}");
        assert!(error.ends_with("(without `Builder::transport`)"), "{error}");
    }

    #[test]
    fn whatever_is_compiled_in_is_known() {
        let all = candidates(Place::Process, &Settings::default(), Eager::No);
        for TransportInfo { name, .. } in all {
            assert!(KNOWN.contains(&name), "{name}");
        }
    }

    #[test]
    fn ranks_that_cannot_are_named() {
        let can = vote(Some("shm"), &[("shm", None)]);
        let cannot = vote(Some("shm"), &[("shm", Some("memfd_create: EPERM"))]);
        let error = decide(&[can.clone(), cannot.clone(), can, cannot])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("\n  shm: memfd_create: EPERM (ranks 1, 3)\n"),
            "{error}"
        );
        assert!(error.contains("usable here: none"), "{error}");
    }

    #[test]
    fn ranks_that_want_different_things_are_told_so() {
        let all = [("shm", None), ("memory", None)];
        let votes = [
            vote(Some("shm"), &all),
            vote(None, &all),
            vote(Some("shm"), &all),
        ];
        assert_eq!(
            decide(&votes).unwrap_err().to_string(),
            "3 ranks disagree on the transport\n  \
             ranks 0, 2: shm (PORTOLAN_TRANSPORT=shm)\n  \
             rank 1: the best usable one (nothing was asked for)\n  \
             fix: give every rank the same PORTOLAN_TRANSPORT, or none"
        );
    }

    #[test]
    fn nothing_usable_is_an_error_and_never_a_fallback() {
        let error = decide(&[vote(None, &[("shm", Some("no memfd"))])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no transport is usable\n  compiled in: shm     usable here: none\n  shm: no memfd\n  \
             fix: remove one of these causes; `portolan info` shows more"
        );
    }
}
