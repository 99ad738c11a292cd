//! Takes samples of all contenders in turn, and evaluates them.

use std::fmt::Write as _;

use portolan_benches::machine::Phase;
use portolan_benches::{Plan, Sample};

use super::job::{Contender, Job, OfSize, Outcome};
use super::machine::Probe;
use super::phases::{self, Choice};
use super::record::{Entry, Figure, Machine, Taken};
use super::stats::Summary;

/// The results of all samples.
#[derive(Debug)]
pub(super) struct Conducted {
    pub(super) entries: Vec<Entry>,
    pub(super) machine: Machine,
    /// The machine's phase in the samples that count, if they have one in common.
    pub(super) phase: Option<Phase>,
    /// The figures in other phases in which every contender has some samples, and the machine as it
    /// was measured in them.
    pub(super) also: Vec<(Vec<Entry>, Machine)>,
    /// The remarks of Portolan's ranks, and the sizes that tools cannot measure.
    pub(super) remarks: String,
}

/// The samples of one contender.
#[derive(Clone, Debug, Default)]
struct Record {
    name: String,
    peer: bool,
    /// The samples, each with its notes.
    taken: Vec<(Vec<OfSize>, Taken)>,
    failed: Option<String>,
}

/// Takes `repeat` samples of each contender, in turn. Takes up to as many again if too few can be
/// compared, because the machine has changed its phase or others were at work. Calls `step` for
/// each figure.
///
/// # Errors
/// If a sample of Portolan fails. A peer that fails is left out.
pub(super) fn conduct(
    job: &Job,
    contenders: &[Contender],
    repeat: usize,
    mut probe: Probe,
    step: &mut dyn FnMut(),
) -> Result<Conducted, String> {
    let mut records: Vec<_> = contenders.iter().map(Record::new).collect();
    let mut before = probe.look();
    let sample = |which: usize| {
        let outcome = contenders[which].sample(job, step);
        let after = probe.look();
        let notes = before.until(&after);
        before = after;
        (outcome, notes)
    };
    let mut remarks = in_turn(&mut records, repeat, sample)?;
    for record in records.iter().filter(|record| record.failed.is_none()) {
        remarks.push_str(&record.gaps(&job.plans));
    }
    let choice = phases::choose(&alive(&records));
    let also = phases::also(&alive(&records), &choice);
    let (machine, elsewhere) = probe.finish(&choice, &also);
    let line = choice.band.and(machine.load_store_ns);
    let entries = |choice: &Choice| {
        let records = records.iter().cloned();
        records.map(|record| record.entry(choice)).collect()
    };
    Ok(Conducted {
        entries: entries(&choice),
        machine,
        phase: line.map(Phase::of),
        also: also.iter().map(entries).zip(elsewhere).collect(),
        remarks,
    })
}

/// Has samples taken round by round, until each contender has `repeat` that can be compared, for up
/// to twice as many rounds. Each round has every contender once that has not failed; `sample` takes
/// the next sample of the one at a place. Returns the remarks.
fn in_turn(
    records: &mut [Record],
    repeat: usize,
    mut sample: impl FnMut(usize) -> (Result<Outcome, String>, Taken),
) -> Result<String, String> {
    let mut remarks = String::new();
    for round in 0..2 * repeat {
        if round >= repeat && phases::enough(&alive(records), repeat) {
            break;
        }
        for turn in 0..records.len() {
            // The order rotates, so that no contender is always first.
            let which = (turn + round) % records.len();
            if records[which].failed.is_some() {
                continue;
            }
            let (outcome, notes) = sample(which);
            let record = &mut records[which];
            match outcome {
                Ok(outcome) => record.add(notes, outcome, &mut remarks),
                Err(why) if !record.peer => return Err(why),
                Err(why) => record.failed = Some(why),
            }
        }
    }
    Ok(remarks)
}

/// The entry for one job that took all samples itself: each of `samples` has all sizes.
pub(super) fn of_one(transport: &str, samples: Vec<Vec<Sample>>) -> Entry {
    let note = |samples: Vec<Sample>| {
        let samples: Vec<_> = samples.into_iter().map(Ok).collect();
        let notes = Taken {
            values: values(&samples),
            ..Taken::default()
        };
        (samples, notes)
    };
    let record = Record {
        name: transport.to_owned(),
        peer: false,
        taken: samples.into_iter().map(note).collect(),
        failed: None,
    };
    record.entry(&Choice::ALL)
}

/// The notes of all contenders that have not failed.
fn alive(records: &[Record]) -> Vec<Vec<&Taken>> {
    let alive = records.iter().filter(|record| record.failed.is_none());
    alive
        .map(|record| record.taken.iter().map(|(_, notes)| notes).collect())
        .collect()
}

/// The value for each size, if there is one.
fn values(samples: &[OfSize]) -> Vec<Option<f64>> {
    let value = |sample: &OfSize| Some(sample.as_ref().ok()?.value);
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

    fn add(&mut self, mut notes: Taken, outcome: Outcome, remarks: &mut String) {
        if self.taken.is_empty() {
            // The remarks of the first sample are enough: every sample would repeat them.
            remarks.push_str(&outcome.remarks);
        }
        if !self.peer && self.taken.is_empty() {
            self.name = outcome.transport.unwrap_or(std::mem::take(&mut self.name));
        }
        notes.values = values(&outcome.samples);
        self.taken.push((outcome.samples, notes));
    }

    /// The message about sizes for which samples have no figure.
    fn gaps(&self, plans: &[Plan]) -> String {
        let mut said = String::new();
        for (at, plan) in plans.iter().enumerate() {
            let reasons = self.taken.iter().filter_map(|(samples, _)| {
                let sample = samples.get(at)?;
                sample.as_ref().err()
            });
            let Some(last) = reasons.clone().next_back() else {
                continue;
            };
            let (without, all) = (reasons.count(), self.taken.len());
            let name = &self.name;
            let some = if without < all {
                format!(" in {without} of {all} samples, the last")
            } else {
                String::new()
            };
            let _ = writeln!(
                said,
                "{name} has no figure for {} bytes{some}: {last}",
                plan.bytes
            );
        }
        said
    }

    /// The entry that follows from the samples that count.
    fn entry(mut self, choice: &Choice) -> Entry {
        for (_, notes) in &mut self.taken {
            notes.counts = choice.counts(notes);
        }
        let counting = || self.taken.iter().filter(|(_, notes)| notes.counts);
        let sizes = counting().next().map_or(0, |(samples, _)| samples.len());
        let figure = |at: usize| {
            let of_size = counting().filter_map(|(samples, _)| samples[at].as_ref().ok());
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
            taken: self.taken.into_iter().map(|(_, notes)| notes).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::phases::tests::at;
    use super::*;

    fn record(name: &str, taken: &[(Taken, f64)]) -> Record {
        let sample = |value| Sample {
            bytes: 8,
            value,
            rounds: 10,
        };
        let each = |(notes, value): &(Taken, f64)| (vec![Ok(sample(*value))], notes.clone());
        Record {
            name: name.to_owned(),
            peer: true,
            taken: taken.iter().map(each).collect(),
            failed: None,
        }
    }

    fn near() -> Taken {
        at(50.0, 52.0)
    }

    fn far() -> Taken {
        at(130.0, 125.0)
    }

    fn chosen(records: &[Record]) -> Choice {
        phases::choose(&alive(records))
    }

    /// Has samples of peers taken in turn: `take` tells how the `n`-th sample of the one at a place
    /// ends. Returns the places in the order of their samples, and the records.
    fn turns(
        peers: usize,
        repeat: usize,
        take: impl Fn(usize, usize) -> Result<Taken, String>,
    ) -> (Vec<usize>, Vec<Record>) {
        let mut records = vec![record("a", &[]); peers];
        let mut order = Vec::new();
        let sample = |which: usize| {
            let taken = take(which, order.iter().filter(|&&of| of == which).count());
            order.push(which);
            let outcome = taken.as_ref().map_err(String::clone).map(|_| Outcome {
                transport: None,
                levels: false,
                samples: Vec::new(),
                remarks: String::new(),
            });
            (outcome, taken.unwrap_or_default())
        };
        in_turn(&mut records, repeat, sample).unwrap();
        (order, records)
    }

    #[test]
    fn every_round_has_everybody_once_and_begins_with_another() {
        let (order, records) = turns(3, 4, |_, _| Ok(near()));
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]);
        assert!(records.iter().all(|record| record.taken.len() == 4));
    }

    #[test]
    fn a_peer_that_fails_is_left_out_from_then_on() {
        let fails = |which, nth| match (which, nth) {
            (1, 1) => Err("it crashed".to_owned()),
            _ => Ok(near()),
        };
        let (order, records) = turns(3, 3, fails);
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0]);
        let failed = records.iter().map(|record| record.failed.is_some());
        assert!(failed.eq([false, true, false]));
        // What it would have had to repeat is not waited for.
        assert_eq!(records[1].taken.len(), 1);
    }

    #[test]
    fn a_sample_of_portolan_that_fails_ends_the_measurement() {
        let mut records = vec![record("a", &[]), record("shm", &[])];
        records[1].peer = false;
        let mut order = Vec::new();
        let ended = in_turn(&mut records, 3, |which| {
            order.push(which);
            (Err(format!("{which} crashed")), Taken::default())
        });
        assert_eq!((ended, order), (Err("1 crashed".to_owned()), vec![0, 1]));
    }

    #[test]
    fn samples_are_taken_again_until_enough_can_be_compared_but_not_for_ever() {
        // The other one's second sample is of another phase.
        let once = |which, nth| {
            Ok(if (which, nth) == (1, 1) {
                far()
            } else {
                near()
            })
        };
        let (order, _) = turns(2, 2, once);
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        let (order, records) = turns(2, 2, |which, _| Ok(if which == 1 { far() } else { near() }));
        assert_eq!(order, [0, 1, 1, 0, 0, 1, 1, 0]);
        assert!(records.iter().all(|record| record.taken.len() == 4));
    }

    #[test]
    fn only_samples_of_one_phase_are_compared() {
        let changing = at(50.0, 130.0);
        let records = [
            record(
                "a",
                &[(near(), 1.0), (far(), 9.0), (near(), 3.0), (changing, 50.0)],
            ),
            record(
                "b",
                &[(near(), 2.0), (far(), 7.0), (far(), 8.0), (near(), 4.0)],
            ),
        ];
        let enough = |repeat| phases::enough(&alive(&records), repeat);
        assert!(enough(2) && !enough(3));
        let choice = chosen(&records);
        let entries = records.map(|record| record.entry(&choice));
        let facts = |entry: &Entry| {
            let figure = entry.figures[0];
            (figure.summary.median, figure.samples, figure.dropped)
        };
        assert_eq!(entries.each_ref().map(facts), [(2.0, 2, 2), (3.0, 2, 2)]);
        let counting: Vec<_> = entries[0].taken.iter().map(|taken| taken.counts).collect();
        assert_eq!(counting, [true, false, true, false]);
    }

    #[test]
    fn without_a_common_phase_all_samples_count() {
        let records = [record("a", &[(near(), 1.0)]), record("b", &[(far(), 2.0)])];
        let choice = chosen(&records);
        assert_eq!(choice, Choice::ALL);
        let counts = records.map(|record| record.entry(&choice).figures[0].samples);
        assert_eq!(counts, [1, 1]);
    }

    #[test]
    fn a_sample_that_others_disturbed_is_left_out() {
        let mut busy = near();
        busy.disturbed = true;
        let records = [record(
            "a",
            &[(busy, 9007.0), (near(), 21.6), (near(), 22.0)],
        )];
        assert!(!phases::enough(&alive(&records), 3));
        let choice = chosen(&records);
        let figure = records.map(|record| record.entry(&choice).figures[0])[0];
        assert_eq!((figure.summary.most, figure.dropped), (22.0, 1));
    }

    #[test]
    fn a_size_that_a_sample_does_not_have_is_left_out_of_its_figure() {
        let mut record = record("a", &[(near(), 1.0), (near(), 3.0), (near(), 5.0)]);
        for (samples, _) in &mut record.taken[..2] {
            samples.insert(0, Err("it is too short".to_owned()));
        }
        let small = Sample {
            bytes: 1,
            value: 7.0,
            rounds: 10,
        };
        record.taken[2].0.insert(0, Ok(small));
        let plans = [1, 8].map(|bytes| Plan::with_rounds(bytes, 10));
        let said = "a has no figure for 1 bytes in 2 of 3 samples, the last: it is too short\n";
        assert_eq!(record.gaps(&plans), said);
        let never = Record {
            taken: record.taken.drain(..1).collect(),
            ..Record::new(&Contender::Ours(Some("b".to_owned())))
        };
        let said = "b has no figure for 1 bytes: it is too short\n";
        assert_eq!(never.gaps(&plans), said);
        record.taken.splice(0..0, never.taken);
        let figures = record.entry(&Choice::ALL).figures;
        let facts: Vec<_> = figures
            .iter()
            .map(|figure| (figure.bytes, figure.summary.median, figure.samples))
            .collect();
        assert_eq!(facts, [(1, 7.0, 1), (8, 3.0, 3)]);
    }

    #[test]
    fn a_peer_that_fails_has_no_figures_and_no_say() {
        let failing = || Record {
            failed: Some("it crashed".to_owned()),
            ..record("a", &[(near(), 1.0)])
        };
        let choice = chosen(&[record("b", &[(far(), 1.0)]), failing()]);
        assert!(choice.counts(&far()) && !choice.counts(&near()));
        let entry = failing().entry(&Choice::ALL);
        assert_eq!((entry.figures.len(), entry.failed.is_some()), (0, true));
    }
}
