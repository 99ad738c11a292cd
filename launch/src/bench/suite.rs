//! Samples of everybody in turn, and what they come to.

use portolan_benches::Sample;
use portolan_benches::machine::Phase;

use super::job::{Contender, Job, Outcome};
use super::machine::Probe;
use super::record::{Entry, Figure, Machine, Taken};
use super::stats::Summary;

/// Everything that was found out by taking samples.
#[derive(Debug)]
pub(super) struct Conducted {
    pub(super) entries: Vec<Entry>,
    pub(super) machine: Machine,
    /// The machine's phase in the samples that count, if they have one in common.
    pub(super) phase: Option<Phase>,
    /// What our own ranks remarked, and which sizes tools cannot do.
    pub(super) remarks: String,
}

/// The samples of one contender.
#[derive(Debug, Default)]
struct Record {
    name: String,
    peer: bool,
    /// Each with the phase that the machine was in, if it was the same before and after, and notes.
    taken: Vec<(Option<Phase>, Vec<Option<Sample>>, Taken)>,
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
) -> Result<Conducted, String> {
    let mut records: Vec<_> = contenders.iter().map(Record::new).collect();
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
            let notes = before.until(&after);
            let phase = before.phase_until(&after);
            before = after;
            match outcome {
                Ok(outcome) => record.add(phase, notes, outcome, &mut remarks),
                Err(why) if !record.peer => return Err(why),
                Err(why) => record.failed = Some(why),
            }
        }
    }
    let phase = common_phase(&records);
    Ok(Conducted {
        entries: records
            .into_iter()
            .map(|record| record.entry(phase))
            .collect(),
        machine: probe.finish(phase),
        phase,
        remarks,
    })
}

/// Of one job that took all samples itself: each of `samples` has all sizes.
pub(super) fn of_one(transport: &str, samples: Vec<Vec<Sample>>) -> Entry {
    let note = |samples: Vec<Sample>| {
        let samples: Vec<_> = samples.into_iter().map(Some).collect();
        let notes = Taken {
            values: values(&samples),
            ..Taken::default()
        };
        (None, samples, notes)
    };
    let record = Record {
        name: transport.to_owned(),
        peer: false,
        taken: samples.into_iter().map(note).collect(),
        failed: None,
    };
    record.entry(None)
}

/// A value for each size, where there is one.
fn values(samples: &[Option<Sample>]) -> Vec<Option<f64>> {
    let value = |sample: &Option<Sample>| sample.map(|sample| sample.value);
    samples.iter().map(value).collect()
}

impl Record {
    fn new(contender: &Contender) -> Self {
        Self {
            name: contender.name(),
            peer: contender.is_peer(),
            taken: Vec::new(),
            failed: None,
        }
    }

    fn add(
        &mut self,
        phase: Option<Phase>,
        mut notes: Taken,
        outcome: Outcome,
        remarks: &mut String,
    ) {
        if self.taken.is_empty() {
            // Once is enough: every sample would say the same.
            remarks.push_str(&outcome.remarks);
        }
        if !self.peer && self.taken.is_empty() {
            self.name = outcome.transport.unwrap_or(std::mem::take(&mut self.name));
        }
        notes.values = values(&outcome.samples);
        self.taken.push((phase, outcome.samples, notes));
    }

    fn in_phase(&self, phase: Phase) -> usize {
        self.taken
            .iter()
            .filter(|(p, ..)| *p == Some(phase))
            .count()
    }

    /// What the samples of that phase come to; all of them if there is none.
    fn entry(mut self, phase: Option<Phase>) -> Entry {
        let counts = |of: Option<Phase>| phase.is_none() || of == phase;
        for (of, _, notes) in &mut self.taken {
            notes.counts = counts(*of);
        }
        let counting = || self.taken.iter().filter(|(of, ..)| counts(*of));
        let sizes = counting().next().map_or(0, |(_, samples, _)| samples.len());
        let figure = |at: usize| {
            let of_size = counting().filter_map(|(_, samples, _)| samples[at]);
            Some(Figure {
                bytes: of_size.clone().next()?.bytes,
                summary: Summary::of(of_size.clone().map(|sample| sample.value).collect())?,
                samples: of_size.clone().count(),
                dropped: self.taken.len() - counting().count(),
                rounds: of_size.map(|sample| sample.rounds).min()?,
            })
        };
        let figures = match self.failed {
            None => (0..sizes).filter_map(figure).collect(),
            Some(_) => Vec::new(),
        };
        Entry {
            name: self.name,
            peer: self.peer,
            figures,
            failed: self.failed,
            taken: self.taken.into_iter().map(|(_, _, notes)| notes).collect(),
        }
    }
}

/// Whether every contender has its samples in one phase.
fn enough(records: &[Record], repeat: usize) -> bool {
    let mut taken = records.iter().flat_map(|record| &record.taken);
    let unknown = taken.all(|(phase, _, notes)| phase.is_none() && notes.before_ns.is_none());
    let alive = || records.iter().filter(|record| record.failed.is_none());
    // Where phases cannot be told, there is nothing to wait for.
    unknown
        || Phase::ALL
            .iter()
            .any(|&phase| alive().all(|record| record.in_phase(phase) >= repeat))
}

/// The phase in which every contender has samples: that in which who has the fewest has most, and of several such the one
/// of which there are most in total.
fn common_phase(records: &[Record]) -> Option<Phase> {
    let alive = || records.iter().filter(|record| record.failed.is_none());
    let fewest = |phase| {
        alive()
            .map(|record| record.in_phase(phase))
            .min()
            .unwrap_or(0)
    };
    let total = |phase| -> usize { alive().map(|record| record.in_phase(phase)).sum() };
    // The last of equals is taken: the nearest.
    Phase::ALL
        .into_iter()
        .rev()
        .filter(|&phase| fewest(phase) > 0)
        .max_by_key(|&phase| (fewest(phase), total(phase)))
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
        let each =
            |&(phase, value): &(_, f64)| (phase, vec![Some(sample(value))], Taken::default());
        Record {
            name: name.to_owned(),
            peer: true,
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
        let [a, b] = &records()
            .into_iter()
            .map(|record| record.entry(NEAR))
            .collect::<Vec<_>>()[..]
        else {
            unreachable!("there are two")
        };
        let facts = |entry: &Entry| {
            let figure = entry.figures[0];
            (figure.summary.median, figure.samples, figure.dropped)
        };
        assert_eq!((facts(a), facts(b)), ((2.0, 2, 2), (3.0, 2, 2)));
        let counting: Vec<_> = a.taken.iter().map(|taken| taken.counts).collect();
        assert_eq!(counting, [true, false, true, false]);
    }

    #[test]
    fn without_a_common_phase_all_samples_count() {
        let records = vec![record("a", &[(NEAR, 1.0)]), record("b", &[(FAR, 2.0)])];
        assert_eq!(common_phase(&records), None);
        assert!(!enough(&records, 1));
        let figure = |record: Record| record.entry(None).figures[0];
        let counts: Vec<_> = records.into_iter().map(|r| figure(r).samples).collect();
        assert_eq!(counts, [1, 1]);
        assert!(enough(&[record("a", &[(None, 1.0)])], 1));
    }

    #[test]
    fn of_phases_with_as_many_samples_of_everybody_the_one_with_most_in_total_counts() {
        let mine = [(NEAR, 1.0), (NEAR, 1.0), (FAR, 2.0)];
        let records = [record("a", &mine), record("b", &[(NEAR, 1.0), (FAR, 2.0)])];
        assert_eq!(common_phase(&records), NEAR);
        let even = [record("a", &mine[1..]), record("b", &mine[1..])];
        assert_eq!(common_phase(&even), NEAR);
    }

    #[test]
    fn samples_are_taken_again_where_the_machine_changed_in_all_of_them() {
        let mut changing = record("a", &[(None, 1.0)]);
        changing.taken[0].2.before_ns = Some(50.0);
        assert!(!enough(&[changing], 1));
    }

    #[test]
    fn a_size_that_a_sample_does_not_have_is_left_out_of_its_figure() {
        let mut record = record("a", &[(NEAR, 1.0), (NEAR, 3.0), (NEAR, 5.0)]);
        for (_, samples, _) in &mut record.taken[..2] {
            samples.insert(0, None);
        }
        let small = Sample {
            bytes: 1,
            value: 7.0,
            rounds: 10,
        };
        record.taken[2].1.insert(0, Some(small));
        let figures = record.entry(NEAR).figures;
        let facts: Vec<_> = figures
            .iter()
            .map(|figure| (figure.bytes, figure.summary.median, figure.samples))
            .collect();
        assert_eq!(facts, [(1, 7.0, 1), (8, 3.0, 3)]);
    }

    #[test]
    fn a_peer_that_fails_has_no_figures() {
        let mut failing = record("a", &[(NEAR, 1.0)]);
        failing.failed = Some("it crashed".to_owned());
        assert_eq!(common_phase(&[record("b", &[(FAR, 1.0)]), failing]), FAR);
        let mut failing = record("a", &[(NEAR, 1.0)]);
        failing.failed = Some("it crashed".to_owned());
        let entry = failing.entry(NEAR);
        assert_eq!((entry.figures.len(), entry.failed.is_some()), (0, true));
    }
}
