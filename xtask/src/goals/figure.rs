//! Reads the output of `portolan bench --json`. The head of `launch/src/bench/phases.rs` says what
//! its words mean: phase, line, disturbed.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Failure;

/// One run: several benches, each at several sizes, with Portolan's figures and the peers'.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Portolan's figures.
    pub(super) figures: Vec<Figure>,
    /// The peers' figures.
    pub(super) peers: Vec<Figure>,
    /// Peers that were not measured because they are not installed or cannot measure this.
    pub(super) missing: Vec<Absent>,
    /// Peers that were measured and failed, so that they have no figures.
    pub(super) failed: Vec<Absent>,
    /// The largest processor time that others used beside a contender, in cores.
    pub(super) others: f64,
    /// One way of a cache line between two cores, by storing and loading, in ns.
    pub(super) line: Option<f64>,
    /// For each size in bytes: what two cores achieve for a message that is copied twice, as 10⁶
    /// bytes per second and as µs one way.
    pub(super) relays: Vec<(u64, f64, f64)>,
    /// The same with messages in both directions at a time: bytes, and 10⁶ bytes per second of both
    /// together.
    pub(super) relays_both: Vec<(u64, f64)>,
    /// The processor's model, and the number of cores.
    pub(super) machine: Option<String>,
    /// The benches during which the machine was measured.
    looked_at: Vec<String>,
}

/// A peer that has no figures in a bench.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Absent {
    pub(super) bench: String,
    pub(super) peer: String,
    /// The reason; it may have several lines.
    pub(super) why: String,
}

/// One figure.
#[derive(Debug, Clone)]
pub(super) struct Figure {
    pub(super) bench: String,
    /// The transport of Portolan, or the peer, that was measured.
    pub(super) whose: String,
    /// Bytes of a message, or the number of waiting entries.
    pub(super) size: u64,
    pub(super) value: f64,
    /// The ratio to the best peer's figure, if there was a peer.
    pub(super) ratio: Option<f64>,
    /// The best peer.
    pub(super) peer: Option<String>,
    pub(super) samples: u64,
    pub(super) phase: Phase,
    /// One way of a cache line in the figure's phase, in ns.
    pub(super) line: Option<f64>,
    /// Whether others were at work during samples that count.
    pub(super) disturbed: bool,
}

/// The phase of the machine in which the samples of a figure, and those of all other contenders,
/// were taken: a name for people, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// All in one, of this name.
    One(String),
    /// In several, so that the figures cannot be compared.
    None,
    /// Unknown, because the machine could not be measured.
    Unknown,
}

/// How much longer a cache line may take at one moment than at another of the same phase: the
/// number of `benches/src/machine/`, which a test compares. (This crate builds without the others.)
const SAME: f64 = 1.25;

/// Whether two hand-over times are of one phase.
pub(super) fn same_phase(one: f64, other: f64) -> bool {
    one.max(other) <= SAME * one.min(other)
}

impl Figure {
    /// Whether another figure was taken in the same phase. The time of a cache line decides if it
    /// is known; the names of phases have fixed bounds.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        let same = match (self.line, other.line) {
            (Some(one), Some(other)) => same_phase(one, other),
            _ => self.phase == other.phase,
        };
        same && self.phase != Phase::None && other.phase != Phase::None
    }
}

impl Run {
    /// Reads the lines of a run.
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        let mut run = Self::default();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).map_err(|error| {
                format!("not a line of `portolan bench --json`: {error}: {line}")
            })?;
            run.take(&line);
        }
        run.find_phases();
        if run.figures.is_empty() {
            return Err("nothing was measured".into());
        }
        Ok(run)
    }

    fn take(&mut self, line: &Value) {
        let name = |field: &str| line[field].as_str().map(str::to_owned);
        let figure = |whose| {
            Some(Figure {
                bench: name("bench").unwrap_or_default(),
                whose,
                size: line["waiting"]
                    .as_u64()
                    .or(line["bytes"].as_u64())
                    .unwrap_or(0),
                value: line["value"].as_f64()?,
                ratio: line["ratio"].as_f64(),
                peer: name("best_peer"),
                samples: line["samples"].as_u64().unwrap_or(0),
                phase: name("phase").map_or(Phase::Unknown, Phase::One),
                line: line["line_ns"].as_f64(),
                disturbed: line["disturbed"] == true,
            })
        };
        self.figures.extend(name("transport").and_then(figure));
        self.peers.extend(name("peer").and_then(figure));
        let absent = |field: &str| {
            Some(Absent {
                bench: name("bench").unwrap_or_default(),
                peer: name("peer")?,
                why: name(field)?,
            })
        };
        self.missing.extend(absent("missing"));
        self.failed.extend(absent("failed"));
        self.others = self.others.max(line["others"].as_f64().unwrap_or(0.0));
        if let Some(machine) = line["machine"].as_object() {
            self.line = machine.get("load_store_ns").and_then(Value::as_f64);
            if self.line.is_some() {
                self.looked_at.extend(name("bench"));
            }
            let relays = machine["relays"].as_array().into_iter().flatten();
            self.relays = relays.filter_map(relay).collect();
            // Earlier records have no such figures.
            let both = machine.get("relays_both").and_then(Value::as_array);
            self.relays_both = both.into_iter().flatten().filter_map(rate).collect();
            let model = machine["model"].as_str().unwrap_or("unknown");
            self.machine = Some(format!("{model}, {} cores", machine["cores"]));
        }
    }
}

impl Run {
    /// Portolan's figures and the peers'.
    pub(super) fn all(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().chain(&self.peers)
    }

    /// The figures of all peers beside a figure: of its bench, its size and its phase.
    pub(super) fn peers_beside(&self, figure: &Figure) -> impl Iterator<Item = &Figure> {
        let same = |other: &&Figure| (&other.bench, other.size) == (&figure.bench, figure.size);
        self.peers
            .iter()
            .filter(move |other| same(other) && figure.is_beside(other))
    }

    /// Whether the best peer of a figure is the best of some peers only: another has failed, or has
    /// no figure there, or has it in so few of its samples that `portolan bench` passed it over.
    /// Empty messages are an exception: the tools (`ucx_perftest`, `fi_pingpong`) send none.
    pub(super) fn lacks_a_peer(&self, figure: &Figure) -> bool {
        let of_bench = |bench: &str| bench == figure.bench;
        // A contender's samples: those of the size that it has most often.
        let mut samples: BTreeMap<&str, u64> = BTreeMap::new();
        let all = self.all().filter(|other| of_bench(&other.bench));
        for other in all.filter(|other| figure.is_beside(other)) {
            let most = samples.entry(&other.whose).or_default();
            *most = other.samples.max(*most);
        }
        let least = samples.values().copied().min().unwrap_or(0);
        let is_out = |peer: &str| {
            let there = self.peers_beside(figure).find(|other| other.whose == peer);
            there.map_or(figure.size > 0, |there| there.samples < least)
        };
        let mut peers = self.peers.iter().filter(|other| of_bench(&other.bench));
        self.failed.iter().any(|absent| of_bench(&absent.bench))
            || peers.any(|peer| is_out(&peer.whose))
    }

    /// If the machine was measured and a figure has no phase, there was no phase in which every
    /// contender had samples.
    fn find_phases(&mut self) {
        for figure in self.figures.iter_mut().chain(&mut self.peers) {
            if figure.phase == Phase::Unknown && self.looked_at.contains(&figure.bench) {
                figure.phase = Phase::None;
            }
        }
    }
}

fn relay(line: &Value) -> Option<(u64, f64, f64)> {
    Some((line[0].as_u64()?, line[1].as_f64()?, line[2].as_f64()?))
}

fn rate(line: &Value) -> Option<(u64, f64)> {
    Some((line[0].as_u64()?, line[1].as_f64()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const LINES: &str = r#"{"bench":"latency","transport":"shm","ranks":2,"bytes":8,"value":0.08,"unit":"us","samples":3,"phase":"near","others":0.2,"ratio":0.8,"best_peer":"a-1"}
{"bench":"latency","transport":"shm","ranks":2,"bytes":64,"value":0.1,"unit":"us","samples":3,"phase":"near","ratio":0.95,"best_peer":"a-1"}
{"bench":"latency","peer":"a-1","ranks":2,"bytes":8,"value":0.1,"unit":"us","samples":3,"phase":"near"}
{"bench":"latency","peer":"a-1","ranks":2,"bytes":64,"value":0.11,"unit":"us","samples":3,"phase":"near"}
{"bench":"latency","transport":"shm","taken":[{"others":0.9,"counts":false}]}
{"bench":"latency","machine":{"model":"X","cores":2,"load_store_ns":55.0,"relays":[[8,50.0,0.04],[64,400.0,0.05]],"relays_both":[[64,500.0]]}}"#;

    pub(in super::super) const ABSENT: &str = r#"
{"bench":"latency","peer":"b-2","failed":"it had not ended after 630s\nPMI: no"}
{"bench":"latency","peer":"c","missing":"mpicc.c is not on the path"}"#;

    #[test]
    fn peers_without_figures_are_read() {
        let run = Run::read(&format!("{LINES}{ABSENT}")).unwrap();
        let absent = |peer: &str, why: &str| Absent {
            bench: "latency".to_owned(),
            peer: peer.to_owned(),
            why: why.to_owned(),
        };
        let why = "it had not ended after 630s\nPMI: no";
        assert_eq!(run.failed, [absent("b-2", why)]);
        assert_eq!(run.missing, [absent("c", "mpicc.c is not on the path")]);
        assert_eq!((run.figures.len(), run.peers.len()), (2, 2));
        let other = Figure {
            bench: "bandwidth".to_owned(),
            ..run.figures[0].clone()
        };
        assert!(run.lacks_a_peer(&run.figures[0]) && !run.lacks_a_peer(&other));
    }

    #[test]
    fn phases_are_as_wide_as_those_of_the_benches() {
        let theirs = include_str!("../../../benches/src/machine/mod.rs");
        assert!(theirs.contains(&format!("const SAME: f64 = {SAME};")));
    }

    #[test]
    fn a_lines_way_decides_about_phases_and_their_names_where_it_is_not_known() {
        let run = Run::read(LINES).unwrap();
        let of = |phase: &str, line: Option<f64>| Figure {
            phase: Phase::One(phase.to_owned()),
            line,
            ..run.figures[0].clone()
        };
        let beside = |one: &Figure, other: &Figure| one.is_beside(other);
        assert!(beside(&of("near", Some(88.0)), &of("far", Some(92.0))));
        assert!(!beside(
            &of("apart", Some(190.0)),
            &of("apart", Some(300.0))
        ));
        assert!(beside(&of("near", None), &of("near", Some(50.0))));
        assert!(!beside(&of("near", None), &of("far", Some(92.0))));
    }

    #[test]
    fn ours_and_the_machine_are_read_and_peers_are_not_ours() {
        let run = Run::read(LINES).unwrap();
        assert_eq!(run.figures.len(), 2);
        assert_eq!(run.figures[1].size, 64);
        assert_eq!(run.figures[1].ratio, Some(0.95));
        let whose = |figures: &[Figure]| figures[0].whose.clone();
        assert_eq!((run.peers.len(), run.peers[0].size), (2, 8));
        assert_eq!(
            (whose(&run.figures), whose(&run.peers)),
            ("shm".to_owned(), "a-1".to_owned())
        );
        let phase = |text: &str| Run::read(text).unwrap().figures[0].phase.clone();
        assert_eq!(phase(LINES), Phase::One("near".to_owned()));
        let without = LINES.replace("\"phase\":\"near\"", "\"dropped\":0");
        assert_eq!(phase(&without), Phase::None);
        assert_eq!(
            phase(&without.replace("load_store_ns", "x")),
            Phase::Unknown
        );
        assert!(
            (run.others - 0.2).abs() < 1e-9,
            "what does not count is left out"
        );
        assert_eq!(run.machine.as_deref(), Some("X, 2 cores"));
        assert_eq!(run.relays, [(8, 50.0, 0.04), (64, 400.0, 0.05)]);
        assert_eq!(run.relays_both, [(64, 500.0)]);
        let before = LINES.replace("relays_both", "x");
        assert_eq!(Run::read(&before).unwrap().relays_both, []);
        assert!(Run::read("").is_err() && Run::read("x").is_err());
    }
}
