//! Which transport: what is wanted, what is compiled in, what is usable, the same on every rank.
//!
//! Every rank casts a [`Vote`]: what it was asked for, and what it can use. The votes travel
//! through the bootstrap before any transport exists, and [`decide`] is a pure function of all of
//! them, so that every rank chooses the same, or fails with the same text.

mod nodes;

use std::fmt::Write;

use portolan_core::config::{Origin, Settings};
use portolan_core::job::{Bootstrap, JobError};
use portolan_core::{Error, ErrorKind, Result};

use nodes::{Node, rule_out};

/// How the ranks of a job live together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Each rank is a process.
    Processes,
    /// All ranks are in this process, each in a thread of its own.
    Process,
    /// All ranks are in this process, and one thread steps them.
    OneThread,
}

impl Place {
    /// As people read it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Process => "threads",
            Self::OneThread => "in one thread",
        }
    }
}

/// A transport that this program was compiled with, and whether it can be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportInfo {
    /// Its name, as in `PORTOLAN_TRANSPORT`.
    pub name: &'static str,
    /// Why a job of processes cannot use it here, quoting the error seen; `None` if it can.
    pub unusable: Option<String>,
    /// What it has found to work over, the best first, and why each cannot be used; empty where
    /// there is no choice. [`transports`] fills it.
    pub found: Vec<(String, Option<String>)>,
}

impl TransportInfo {
    #[allow(dead_code, reason = "without features there is none")]
    fn new(name: &'static str, unusable: Option<String>) -> Self {
        Self {
            name,
            unusable,
            found: Vec::new(),
        }
    }
}

/// The transports that this program was compiled with, the best first, and whether a job of
/// processes can use them here. Tries each of them, under the settings that the environment gives:
/// takes some milliseconds.
#[must_use]
pub fn transports() -> Vec<TransportInfo> {
    let (settings, _) = Settings::inspect(std::env::vars_os());
    candidates(Place::Processes, &settings, Eager::Yes)
}

/// Whether to try what is slow to try and is not going to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eager {
    Yes,
    No,
}

/// All transports compiled in, the best first.
#[allow(
    clippy::vec_init_then_push,
    reason = "each is compiled in by its own feature"
)]
pub(crate) fn candidates(place: Place, settings: &Settings, eager: Eager) -> Vec<TransportInfo> {
    let _ = (place, settings, eager);
    #[allow(unused_mut, reason = "without features there is none")]
    let mut all = Vec::new();
    #[cfg(feature = "shm")]
    all.push(TransportInfo::new("shm", portolan_shm::probe().err()));
    #[cfg(feature = "ofi")]
    all.push(ofi(place, settings, eager, &all));
    #[cfg(feature = "memory")]
    all.push(TransportInfo::new(
        "memory",
        (place == Place::Processes).then(|| {
            "it joins threads of one process only, as portolan::threads starts them".into()
        }),
    ));
    #[cfg(feature = "t3e-sim")]
    all.push(TransportInfo::new(
        "t3e-sim",
        match place {
            Place::OneThread => Some(
                "its ranks wait for each other, so that one thread cannot step several of them"
                    .into(),
            ),
            Place::Processes | Place::Process => portolan_t3e_sim::probe().err(),
        },
    ));
    all
}

/// libfabric. It has providers to look at, so it is tried only if it may be chosen.
#[cfg(feature = "ofi")]
fn ofi(place: Place, settings: &Settings, eager: Eager, better: &[TransportInfo]) -> TransportInfo {
    if place == Place::OneThread {
        let why = "its ranks connect while both are in a call, so that one thread cannot step them";
        return TransportInfo::new("ofi", Some(why.into()));
    }
    let other = match settings.transport() {
        Some(wanted) => (wanted != "ofi").then(|| format!("{wanted} is asked for")),
        None => {
            let better = better.iter().find(|info| info.unusable.is_none());
            better.map(|info| format!("{} is usable", info.name))
        }
    };
    if let (Some(other), Eager::No) = (other, eager) {
        return TransportInfo::new("ofi", Some(format!("it was not tried, because {other}")));
    }
    let unusable = portolan_ofi::probe(settings).err();
    let mut info = TransportInfo::new("ofi", unusable);
    if eager == Eager::Yes
        && let Ok((version, offers)) =
            portolan_ofi::offers(&portolan_ofi::Config::from_settings(settings))
    {
        info.found = offers
            .into_iter()
            .map(|offer| {
                let memory = if offer.hmem { ", FI_HMEM" } else { "" };
                let what = format!("libfabric {version}: {offer}{memory}");
                (what, offer.unusable)
            })
            .collect();
        let matching = portolan_ofi::matching(&portolan_ofi::Config::from_settings(settings));
        info.found.push((matching, None));
        let registration =
            portolan_ofi::registration(&portolan_ofi::Config::from_settings(settings));
        info.found.extend(registration.ok().map(|how| (how, None)));
        let memory = portolan_ofi::accelerators(&portolan_ofi::Config::from_settings(settings));
        info.found.push(memory);
    }
    info
}

/// The transport that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    name: String,
    /// How, as people read it.
    by: String,
}

/// What one rank wants and can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    /// Where it is.
    node: Node,
    wanted: Option<Wanted>,
    /// What is compiled in, the best first, and why it cannot be used.
    candidates: Vec<(String, Option<String>)>,
}

impl Vote {
    pub(crate) fn new(settings: &Settings, candidates: &[TransportInfo]) -> Self {
        let wanted = settings.transport().map(|name| {
            let by = match settings.origin("TRANSPORT") {
                Some(Origin::Builder) => "by the program".to_owned(),
                _ => format!("PORTOLAN_TRANSPORT={name}"),
            };
            Wanted {
                name: name.to_owned(),
                by,
            }
        });
        let candidates = candidates
            .iter()
            .map(|info| (info.name.to_owned(), info.unusable.clone()))
            .collect();
        Self {
            node: Node::own(),
            wanted,
            candidates,
        }
    }

    /// As lines of fields that are separated by tabs.
    fn encode(&self) -> String {
        let clean = |text: &str| text.replace(['\t', '\n'], " ");
        let Node { identity, host } = &self.node;
        let mut text = format!("{}\t{}\n", clean(identity), clean(host));
        if let Some(Wanted { name, by }) = &self.wanted {
            let _ = write!(text, "{}\t{}", clean(name), clean(by));
        }
        for (name, unusable) in &self.candidates {
            let _ = write!(text, "\n{name}");
            if let Some(why) = unusable {
                let _ = write!(text, "\t{}", clean(why));
            }
        }
        text
    }

    fn decode(text: &str) -> Self {
        let field = |line: &str| match line.split_once('\t') {
            Some((name, rest)) => (name.to_owned(), Some(rest.to_owned())),
            None => (line.to_owned(), None),
        };
        let mut lines = text.lines();
        let (identity, host) = lines.next().map(field).unwrap_or_default();
        let wanted = lines
            .next()
            .map(field)
            .and_then(|(name, by)| Some(Wanted { name, by: by? }));
        Self {
            node: Node {
                identity,
                host: host.unwrap_or_default(),
            },
            wanted,
            candidates: lines.map(field).collect(),
        }
    }
}

/// The transport that all ranks are going to use, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) name: String,
    pub(crate) why: String,
}

/// The transport that all ranks of a job of processes choose. Collective.
pub(crate) fn agree(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Choice> {
    let vote = |eager| Vote::new(settings, &candidates(Place::Processes, settings, eager));
    let mut votes = poll(bootstrap, &vote(Eager::No), "transport")?;
    let open = votes.iter().all(|vote| vote.wanted.is_none());
    if rule_out(&mut votes) && open {
        // The best on one node is out: what was not tried because of it is tried now.
        votes = poll(bootstrap, &vote(Eager::Yes), "transport.across")?;
        rule_out(&mut votes);
    }
    let choice = decide(&votes);
    if choice.is_err() && votes.len() > 1 {
        // All ranks came to this. Who has its answers before the others would end, and Hydra, which
        // ends the others for it, loses what everybody had said where it was about to answer one of
        // them. If the launcher is gone, the error of the votes is still the one to tell.
        let _ = bootstrap.fence();
    }
    choice
}

/// Exchanges the votes of all ranks, under this name. Collective.
fn poll(bootstrap: &mut dyn Bootstrap, vote: &Vote, name: &str) -> Result<Vec<Vote>> {
    if bootstrap.size() == 1 {
        return Ok(vec![vote.clone()]);
    }
    let (rank, size) = (bootstrap.rank(), bootstrap.size());
    let exchange = |bootstrap: &mut dyn Bootstrap| -> Result<Vec<Vote>, JobError> {
        bootstrap.put(&format!("{name}.{rank}"), &vote.encode())?;
        bootstrap.fence()?;
        (0..size)
            .map(|peer| {
                bootstrap
                    .get(&format!("{name}.{peer}"))
                    .map(|text| Vote::decode(&text))
            })
            .collect()
    };
    exchange(bootstrap).map_err(|error| Error::new(ErrorKind::Job, error.to_string()))
}

/// What the votes of all ranks come to: a function of nothing else.
pub(crate) fn decide(votes: &[Vote]) -> Result<Choice> {
    let first = &votes[0];
    if votes.iter().any(|vote| vote.wanted != first.wanted) {
        return Err(unavailable(disagreement(votes)));
    }
    let usable = |name: &str| {
        let vote_of = |vote: &Vote| vote.candidates.iter().any(|c| c.0 == name && c.1.is_none());
        votes.iter().all(vote_of)
    };
    match &first.wanted {
        Some(Wanted { name, by }) if usable(name) => Ok(Choice {
            name: name.clone(),
            why: format!("asked for: {by}"),
        }),
        Some(Wanted { name, by }) => {
            let mut text = format!("transport `{name}` was requested ({by}) but is not usable");
            text.push_str(&inventory(votes, &usable));
            for why in reasons(votes, name) {
                let _ = write!(text, "\n  {name}: {why}");
            }
            let _ = write!(text, "\n  fix: {}", remedy(votes, name, &usable));
            Err(unavailable(text))
        }
        None => match first.candidates.iter().find(|(name, _)| usable(name)) {
            Some((name, _)) => Ok(Choice {
                name: name.clone(),
                why: "the best usable one".to_owned(),
            }),
            None => {
                let mut text = "no transport is usable".to_owned();
                text.push_str(&inventory(votes, &usable));
                for (name, _) in &first.candidates {
                    for why in reasons(votes, name) {
                        let _ = write!(text, "\n  {name}: {why}");
                    }
                }
                text.push_str("\n  fix: remove one of these causes; `portolan info` shows more");
                Err(unavailable(text))
            }
        },
    }
}

/// The same error on every rank: it names no rank of its own.
fn unavailable(text: String) -> Error {
    Error::new(ErrorKind::TransportUnavailable, text)
}

fn inventory(votes: &[Vote], usable: &dyn Fn(&str) -> bool) -> String {
    let names = |mut list: Vec<&str>| {
        if list.is_empty() {
            list.push("none");
        }
        list.join(", ")
    };
    let compiled: Vec<&str> = votes[0].candidates.iter().map(|c| c.0.as_str()).collect();
    let here = compiled
        .iter()
        .copied()
        .filter(|name| usable(name))
        .collect();
    format!(
        "\n  compiled in: {}     usable here: {}",
        names(compiled),
        names(here)
    )
}

/// Why `name` is not usable, each reason once, with the ranks that have it.
fn reasons(votes: &[Vote], name: &str) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<usize>)> = Vec::new();
    for (rank, vote) in votes.iter().enumerate() {
        let why = match vote.candidates.iter().find(|c| c.0 == name) {
            None => "not compiled into this program".to_owned(),
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

fn remedy(votes: &[Vote], name: &str, usable: &dyn Fn(&str) -> bool) -> String {
    let compiled = votes
        .iter()
        .all(|vote| vote.candidates.iter().any(|c| c.0 == name));
    let other = match votes[0].candidates.iter().any(|(name, _)| usable(name)) {
        true => ", or leave the choice open (unset PORTOLAN_TRANSPORT)",
        false => "",
    };
    match compiled {
        true => format!("remove the cause{other}"),
        false => format!("compile `portolan` with the feature `{name}`, if there is one{other}"),
    }
}

fn disagreement(votes: &[Vote]) -> String {
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
    text
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

/// Variables of libraries below the transports, and what a launcher gives every rank of a job in
/// them, unless they are set already: the libraries read them once, and ranks with different values
/// do not get on.
#[must_use]
pub fn rank_variables() -> &'static [(&'static str, &'static str)] {
    &[
        #[cfg(feature = "ofi")]
        (
            portolan_ofi::Config::RXM_AT_ONCE,
            portolan_ofi::Config::RXM_AT_ONCE_OF_RANKS,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(wanted: Option<&str>, candidates: &[(&str, Option<&str>)]) -> Vote {
        Vote {
            node: Node::own(),
            wanted: wanted.map(|name| Wanted {
                name: name.to_owned(),
                by: format!("PORTOLAN_TRANSPORT={name}"),
            }),
            candidates: candidates
                .iter()
                .map(|(name, why)| ((*name).to_owned(), why.map(str::to_owned)))
                .collect(),
        }
    }

    #[test]
    fn votes_survive_the_journey() {
        for vote in [
            vote(None, &[]),
            vote(None, &[("shm", None)]),
            vote(
                Some("ofi"),
                &[("shm", None), ("ofi", Some("libfabric.so.1: not found"))],
            ),
        ] {
            assert_eq!(Vote::decode(&vote.encode()), vote);
        }
    }

    #[test]
    fn the_best_that_every_rank_can_use_is_chosen() {
        let here = vote(None, &[("shm", None), ("memory", None)]);
        let there = vote(None, &[("shm", Some("no memfd")), ("memory", None)]);
        assert_eq!(decide(&[here.clone(), here.clone()]).unwrap().name, "shm");
        assert_eq!(decide(&[here, there]).unwrap().name, "memory");
    }

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

        let error = decide(&[vote(Some("pigeons"), &[("shm", None)])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "transport `pigeons` was requested (PORTOLAN_TRANSPORT=pigeons) but is not usable\n  \
             compiled in: shm     usable here: shm\n  \
             pigeons: not compiled into this program\n  \
             fix: compile `portolan` with the feature `pigeons`, if there is one, or leave the \
             choice open (unset PORTOLAN_TRANSPORT)"
        );
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

    #[test]
    fn who_refuses_waits_until_everybody_knows_why() {
        let mut ranks = portolan_core::job::in_process(2);
        let (mut other, mut refusing) = (ranks.remove(1), ranks.remove(0));
        let mut settings = Settings::default();
        settings.set("TRANSPORT", "pigeons").unwrap();
        let refused = std::thread::spawn(move || agree(refusing.as_mut(), &settings));
        let candidates = [("memory", None)];
        let own = vote(Some("pigeons"), &candidates);
        other.put("transport.1", &own.encode()).unwrap();
        other.fence().unwrap();
        // The one that refuses may have all its answers now; this one has none.
        other.get("transport.0").unwrap();
        other.fence().expect("the other has not left");
        assert!(refused.join().unwrap().is_err());
    }
}
