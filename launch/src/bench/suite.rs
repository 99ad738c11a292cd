//! Samples of everybody in turn, and what they come to.

use portolan_benches::Sample;
use portolan_benches::machine::Phase;

use super::job::{Contender, Job, Taken};
use super::machine::{Machine, Probe};
use super::stats::Summary;

/// Whose figures they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// Portolan's, over this transport.
    Transport(String),
    /// Another implementation's.
    Peer(String),
}

impl Name {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Transport(name) | Self::Peer(name) => name,
        }
    }
}

/// What the samples of one size came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) bytes: usize,
    pub(super) summary: Summary,
    /// Samples that count, and those that were taken in another phase of the machine.
    pub(super) samples: usize,
    pub(super) dropped: usize,
    /// Rounds in a sample, in the shortest of them.
    pub(super) rounds: u64,
}

/// All figures of one contender, or why there are none.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) figures: Result<Vec<Figure>, String>,
}

/// Everything that was found out.
#[derive(Clone, Debug)]
pub(super) struct Results {
    pub(super) entries: Vec<Entry>,
    /// Peers that are not here, and why.
    pub(super) missing: Vec<(String, String)>,
    /// `None` if nobody looked.
    pub(super) machine: Option<Machine>,
    /// The machine's phase in the samples that count, if they have one in common.
    pub(super) phase: Option<Phase>,
    /// What our own ranks remarked.
    pub(super) remarks: String,
}

/// The samples of one contender.
#[derive(Debug, Default)]
struct Record {
    name: Option<Name>,
    /// Each with the phase that the machine was in, if it was the same before and after.
    taken: Vec<(Option<Phase>, Vec<Sample>)>,
    failed: Option<String>,
}

/// Takes `repeat` samples of each contender, in turn, and up to as many again while the machine
/// changes its phase. `step` is called for each figure.
///
/// # Errors
/// If one of ours fails. A peer that fails is left out.
pub(super) fn conduct(
    job: &Job,
    contenders: &[Contender],
    repeat: usize,
    mut probe: Probe,
    step: &mut dyn FnMut(),
) -> Result<Results, String> {
    let mut records: Vec<Record> = contenders.iter().map(|_| Record::default()).collect();
    let mut remarks = String::new();
    let mut before = probe.look();
    for round in 0..2 * repeat {
        if round >= repeat && enough(&records, repeat) {
            break;
        }
        for turn in 0..contenders.len() {
            // Nobody is always first.
            let which = (turn + round) % contenders.len();
            let record = &mut records[which];
            if record.failed.is_some() {
                continue;
            }
            let outcome = contenders[which].sample(job, step);
            let after = probe.look();
            let phase = before.filter(|_| before == after);
            before = after;
            match (outcome, &contenders[which]) {
                (Ok(taken), contender) => record.add(contender, phase, taken, &mut remarks),
                (Err(why), Contender::Ours(_)) => return Err(why),
                (Err(why), Contender::Peer(peer)) => {
                    record.name = Some(Name::Peer(peer.name()));
                    record.failed = Some(why);
                }
            }
        }
    }
    let phase = common_phase(&records);
    let machine = Some(probe.finish(phase));
    let entries = records.into_iter().filter_map(|r| r.entry(phase)).collect();
    Ok(Results {
        entries,
        missing: Vec::new(),
        machine,
        phase,
        remarks,
    })
}

impl Record {
    fn add(
        &mut self,
        contender: &Contender,
        phase: Option<Phase>,
        taken: Taken,
        remarks: &mut String,
    ) {
        self.name.get_or_insert_with(|| match contender {
            Contender::Ours(wanted) => {
                // Once is enough: every sample would say the same.
                remarks.push_str(&taken.remarks);
                let name = taken.transport.or_else(|| wanted.clone());
                Name::Transport(name.unwrap_or_else(|| "unknown".to_owned()))
            }
            Contender::Peer(peer) => Name::Peer(peer.name()),
        });
        self.taken.push((phase, taken.samples));
    }

    fn in_phase(&self, phase: Phase) -> usize {
        self.taken.iter().filter(|(p, _)| *p == Some(phase)).count()
    }

    /// What the samples of that phase come to; all of them if there is none.
    fn entry(self, phase: Option<Phase>) -> Option<Entry> {
        let name = self.name?;
        if let Some(why) = self.failed {
            let figures = Err(why);
            return Some(Entry { name, figures });
        }
        let (counting, others): (Vec<_>, Vec<_>) = self
            .taken
            .into_iter()
            .partition(|(p, _)| phase.is_none() || *p == phase);
        let sizes = counting.first().map_or(0, |(_, samples)| samples.len());
        let figure = |at: usize| {
            let of_size = counting.iter().map(|(_, samples)| samples[at]);
            Some(Figure {
                bytes: of_size.clone().next()?.bytes,
                summary: Summary::of(of_size.clone().map(|sample| sample.value).collect())?,
                samples: counting.len(),
                dropped: others.len(),
                rounds: of_size.map(|sample| sample.rounds).min()?,
            })
        };
        let figures = Ok((0..sizes).filter_map(figure).collect());
        Some(Entry { name, figures })
    }
}

impl Results {
    /// Of one job that took all samples itself: each of `taken` has all sizes.
    pub(super) fn of_one(transport: &str, taken: Vec<Vec<Sample>>) -> Self {
        let record = Record {
            name: Some(Name::Transport(transport.to_owned())),
            taken: taken.into_iter().map(|samples| (None, samples)).collect(),
            failed: None,
        };
        Self {
            entries: record.entry(None).into_iter().collect(),
            missing: Vec::new(),
            machine: None,
            phase: None,
            remarks: String::new(),
        }
    }

    /// The best peer's median for a size, and its name.
    pub(super) fn best_peer(&self, bytes: usize, less_is_better: bool) -> Option<(f64, &str)> {
        let of_size = |entry: &'_ Entry| {
            let figures = entry.figures.as_ref().ok()?;
            let figure = figures.iter().find(|figure| figure.bytes == bytes)?;
            Some(figure.summary.median)
        };
        let peers = self.entries.iter().filter_map(|entry| match &entry.name {
            Name::Peer(name) => Some((of_size(entry)?, name.as_str())),
            Name::Transport(_) => None,
        });
        let by_value = |a: &(f64, &str), b: &(f64, &str)| a.0.total_cmp(&b.0);
        if less_is_better {
            peers.min_by(by_value)
        } else {
            peers.max_by(by_value)
        }
    }
}

/// Whether every contender has its samples in one phase.
fn enough(records: &[Record], repeat: usize) -> bool {
    let unknown = records
        .iter()
        .all(|record| record.taken.iter().all(|(phase, _)| phase.is_none()));
    let alive = || records.iter().filter(|record| record.failed.is_none());
    // Where phases cannot be told, there is nothing to wait for.
    unknown
        || [Phase::Sibling, Phase::Near, Phase::Far]
            .iter()
            .any(|&phase| alive().all(|record| record.in_phase(phase) >= repeat))
}

/// The phase in which every contender has samples, and of which there are most.
fn common_phase(records: &[Record]) -> Option<Phase> {
    let alive = || records.iter().filter(|record| record.failed.is_none());
    let fewest = |phase| {
        alive()
            .map(|record| record.in_phase(phase))
            .min()
            .unwrap_or(0)
    };
    [Phase::Sibling, Phase::Near, Phase::Far]
        .into_iter()
        .filter(|&phase| fewest(phase) > 0)
        .max_by_key(|&phase| fewest(phase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, taken: &[(Option<Phase>, f64)]) -> Record {
        let sample = |value| Sample {
            bytes: 8,
            value,
            rounds: 10,
        };
        let each = |&(phase, value): &(_, f64)| (phase, vec![sample(value)]);
        Record {
            name: Some(Name::Peer(name.to_owned())),
            taken: taken.iter().map(each).collect(),
            failed: None,
        }
    }

    const NEAR: Option<Phase> = Some(Phase::Near);
    const FAR: Option<Phase> = Some(Phase::Far);

    #[test]
    fn only_samples_of_one_phase_are_compared() {
        let records = || {
            vec![
                record("a", &[(NEAR, 1.0), (FAR, 9.0), (NEAR, 3.0), (None, 50.0)]),
                record("b", &[(NEAR, 2.0), (FAR, 7.0), (FAR, 8.0), (NEAR, 4.0)]),
            ]
        };
        assert_eq!(common_phase(&records()), NEAR);
        assert!(enough(&records(), 2) && !enough(&records(), 3));
        let [a, b] = records()
            .into_iter()
            .map(|record| record.entry(NEAR).unwrap().figures.unwrap()[0])
            .collect::<Vec<_>>()[..]
        else {
            unreachable!("there are two")
        };
        assert_eq!((a.summary.median, a.samples, a.dropped), (2.0, 2, 2));
        assert_eq!((b.summary.median, b.samples, b.dropped), (3.0, 2, 2));
    }

    #[test]
    fn without_a_common_phase_all_samples_count() {
        let records = vec![record("a", &[(NEAR, 1.0)]), record("b", &[(FAR, 2.0)])];
        assert_eq!(common_phase(&records), None);
        assert!(!enough(&records, 1));
        let figure = |record: Record| record.entry(None).unwrap().figures.unwrap()[0];
        let counts: Vec<_> = records.into_iter().map(|r| figure(r).samples).collect();
        assert_eq!(counts, [1, 1]);
        assert!(enough(&[record("a", &[(None, 1.0)])], 1));
    }

    #[test]
    fn the_best_peer_has_the_least_latency_or_the_most_bandwidth() {
        let entry = |r: Record| r.entry(None);
        let mut results = Results::of_one("shm", Vec::new());
        results.entries = [record("a", &[(None, 1.0)]), record("b", &[(None, 2.0)])]
            .into_iter()
            .filter_map(entry)
            .collect();
        assert_eq!(results.best_peer(8, true), Some((1.0, "a")));
        assert_eq!(results.best_peer(8, false), Some((2.0, "b")));
        assert_eq!(results.best_peer(9, true), None);
    }
}
