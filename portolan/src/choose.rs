//! The choice of the transport, from what is wanted, compiled in and usable; it is the same on
//! every rank.
//!
//! Every rank casts a [`Vote`]: the transport that it was asked for, and those that it can use. The
//! votes travel through the bootstrap before any transport exists. [`decide`] is a pure function of
//! all of them, so every rank makes the same choice, or fails with the same text.

mod nodes;
mod refusal;

use std::fmt::Write;
use std::sync::Arc;

use portolan_core::config::{Origin, Settings};
use portolan_core::job::{Bootstrap, JobError};
use portolan_core::{Error, ErrorKind, Result};

use nodes::{Node, rule_out};

/// Where the ranks of a job run.
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
    /// The name for messages.
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
    /// Why a job of processes cannot use it here, quoting the original error; `None` if it can.
    pub unusable: Option<String>,
    /// The alternatives that it has found to work over, the best first, and why each cannot be
    /// used; empty where there is only one. [`transports`] fills it in.
    pub found: Vec<(String, Option<String>)>,
    /// What else is to be said of it here, in sentences: who matches messages, for example.
    /// [`transports`] fills it in.
    pub facts: Vec<String>,
}

impl TransportInfo {
    #[allow(dead_code, reason = "without features there is none")]
    fn new(name: &'static str, unusable: Option<String>) -> Self {
        Self {
            name,
            unusable,
            found: Vec::new(),
            facts: Vec::new(),
        }
    }
}

/// The transports that this program was compiled with, the best first, and whether a job of
/// processes can use them here. The call tries each of them under the settings of the environment,
/// which takes some milliseconds.
#[must_use]
pub fn transports() -> Vec<TransportInfo> {
    let (settings, _) = Settings::inspect(std::env::vars_os());
    candidates(Place::Processes, &settings, Eager::Yes)
}

/// How the reason begins where a transport may be usable: a vote is a text.
const NOT_TRIED: &str = "it was not tried, because ";

/// Whether to try transports that are slow to try even if they are not going to be chosen.
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

/// libfabric. Trying it means querying providers, so it is tried only if it may be chosen.
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
        return TransportInfo::new("ofi", Some(format!("{NOT_TRIED}{other}")));
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
        let config = portolan_ofi::Config::from_settings(settings);
        info.facts.push(portolan_ofi::matching(&config));
        info.facts.extend(portolan_ofi::registration(&config));
        info.found.push(portolan_ofi::accelerators(&config));
    }
    info
}

/// The transport that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    name: String,
    /// How it was asked for, for messages.
    by: String,
}

/// How [`Builder::transport`](crate::Builder::transport) asks, for messages.
const BY_PROGRAM: &str = "by the program";

/// The votes of all ranks, by rank. Ranks in a row that vote the same share one vote, so that the
/// votes of a large job take little memory.
type Votes = Vec<Arc<Vote>>;

/// What one rank wants and can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    /// The node that it is on.
    node: Node,
    wanted: Option<Wanted>,
    /// The transports compiled in, the best first, and why each cannot be used.
    candidates: Vec<(String, Option<String>)>,
}

impl Vote {
    pub(crate) fn new(settings: &Settings, candidates: &[TransportInfo]) -> Self {
        let wanted = settings.transport().map(|name| {
            let by = match settings.origin("TRANSPORT") {
                Some(Origin::Builder) => BY_PROGRAM.to_owned(),
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

    /// Encodes the vote as lines of fields that are separated by tabs.
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
    /// Better transports that were to be expected here, each with the reason why not all ranks can
    /// use it.
    pub(crate) passed_over: Vec<String>,
}

/// Finds the transport that all ranks of a job of processes use. Collective.
pub(crate) fn agree(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Choice> {
    let vote = |eager| Vote::new(settings, &candidates(Place::Processes, settings, eager));
    let mut votes = poll(bootstrap, vote(Eager::No), "transport")?;
    let open = votes.iter().all(|vote| vote.wanted.is_none());
    if rule_out(&mut votes) && open {
        // The best transport within one node is ruled out. So each rank now tries those that it
        // skipped because of it.
        votes = poll(bootstrap, vote(Eager::Yes), "transport.across")?;
        rule_out(&mut votes);
    }
    let choice = decide(&votes);
    if choice.is_err() && votes.len() > 1 {
        // All ranks reach this error. Without this fence, a rank that has all its answers would
        // exit before the others have theirs. Hydra would then end those others, and lose the votes
        // if it was just about to answer one of them. If the launcher is gone, the error of the
        // votes is still the one to report.
        let _ = bootstrap.fence();
    }
    choice
}

/// Exchanges the votes of all ranks, under this name. Collective.
fn poll(bootstrap: &mut dyn Bootstrap, vote: Vote, name: &str) -> Result<Votes> {
    if bootstrap.size() == 1 {
        return Ok(vec![Arc::new(vote)]);
    }
    let (rank, size) = (bootstrap.rank(), bootstrap.size());
    let exchange = |bootstrap: &mut dyn Bootstrap| -> Result<Votes, JobError> {
        bootstrap.put(&format!("{name}.{rank}"), &vote.encode())?;
        bootstrap.fence()?;
        let mut votes = Votes::with_capacity(size as usize);
        for peer in 0..size {
            let vote = Vote::decode(&bootstrap.get(&format!("{name}.{peer}"))?);
            let same = votes.last().filter(|before| ***before == vote);
            let vote = same.map_or_else(|| Arc::new(vote), Arc::clone);
            votes.push(vote);
        }
        Ok(votes)
    };
    exchange(bootstrap).map_err(|error| Error::new(ErrorKind::Job, error.to_string()))
}

/// The choice that follows from the votes of all ranks, and from nothing else.
pub(crate) fn decide(votes: &[Arc<Vote>]) -> Result<Choice> {
    let first = &votes[0];
    if votes.iter().any(|vote| vote.wanted != first.wanted) {
        return Err(refusal::disagreement(votes));
    }
    let usable = |name: &str| {
        let vote_of =
            |vote: &Arc<Vote>| vote.candidates.iter().any(|c| c.0 == name && c.1.is_none());
        votes.iter().all(vote_of)
    };
    match &first.wanted {
        Some(Wanted { name, by }) if usable(name) => Ok(Choice {
            name: name.clone(),
            why: format!("asked for: {by}"),
            passed_over: Vec::new(),
        }),
        Some(wanted) => Err(refusal::wanted(votes, wanted, &usable)),
        None => match first.candidates.iter().position(|(name, _)| usable(name)) {
            Some(at) => Ok(Choice {
                name: first.candidates[at].0.clone(),
                why: "the best usable one".to_owned(),
                passed_over: passed_over(votes, &first.candidates[..at]),
            }),
            None => Err(refusal::none_usable(votes, &usable)),
        },
    }
}

/// Why each of these transports is not usable, unless the ranks are on several nodes, which is
/// reason enough.
fn passed_over(votes: &[Arc<Vote>], better: &[(String, Option<String>)]) -> Vec<String> {
    if votes
        .iter()
        .any(|vote| vote.node.identity != votes[0].node.identity)
    {
        return Vec::new();
    }
    let reasons = better.iter().flat_map(|(name, _)| {
        let reasons = refusal::reasons(votes, name);
        reasons.into_iter().map(move |why| format!("{name}: {why}"))
    });
    reasons.collect()
}

/// Variables of libraries below the transports, with the values that a launcher gives to every rank
/// of a job unless they are set already. The libraries read them once, and ranks with different
/// values do not work together.
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

    pub(super) fn vote(wanted: Option<&str>, candidates: &[(&str, Option<&str>)]) -> Arc<Vote> {
        Arc::new(Vote {
            node: Node::own(),
            wanted: wanted.map(|name| Wanted {
                name: name.to_owned(),
                by: format!("PORTOLAN_TRANSPORT={name}"),
            }),
            candidates: candidates
                .iter()
                .map(|(name, why)| ((*name).to_owned(), why.map(str::to_owned)))
                .collect(),
        })
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
            assert_eq!(Vote::decode(&vote.encode()), *vote);
        }
    }

    #[test]
    fn the_best_that_every_rank_can_use_is_chosen() {
        let here = vote(None, &[("shm", None), ("memory", None)]);
        let there = vote(None, &[("shm", Some("no memfd")), ("memory", None)]);
        assert_eq!(decide(&[here.clone(), here.clone()]).unwrap().name, "shm");
        let second = decide(&[here.clone(), there.clone()]).unwrap();
        assert_eq!(second.name, "memory");
        assert_eq!(second.passed_over, ["shm: no memfd (rank 1)"]);
        assert!(decide(&[here]).unwrap().passed_over.is_empty());
        let wanted = [("shm", Some("no memfd")), ("memory", None)];
        let wanted = decide(&[vote(Some("memory"), &wanted)]).unwrap();
        assert!(wanted.passed_over.is_empty(), "nobody wanted another");
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
        // The refusing rank may have all its answers now; this one has none yet.
        other.get("transport.0").unwrap();
        other.fence().expect("the other has not left");
        assert!(refused.join().unwrap().is_err());
    }
}
