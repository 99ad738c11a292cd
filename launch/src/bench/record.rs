//! The result of one run of `portolan bench`: printed as a table or as lines, saved as a file,
//! shown as a page.

use portolan_benches::gpu::Copies;
use portolan_benches::machine::same_phase;
use serde::{Deserialize, Serialize};

use super::args::Settings;
use super::machine::TICKS;
use super::stats::Summary;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) bench: String,
    pub(super) unit: String,
    pub(super) less_is_better: bool,
    /// The meaning of the sizes: `bytes`, `waiting`, or empty.
    pub(super) axis: String,
    /// Length of a message, if the sizes do not give it.
    pub(super) message_bytes: usize,
    pub(super) ranks: u32,
    /// Messages in a window, if the pattern has windows.
    pub(super) window: Option<u32>,
    /// Buffers that the messages of a window use in turn, if there are several.
    #[serde(default)]
    pub(super) buffers: Option<u32>,
    /// Whether the buffers were the library's.
    #[serde(default)]
    pub(super) alloc: bool,
    /// Whether the buffers were on GPUs.
    #[serde(default)]
    pub(super) cuda: bool,
    /// Whether Portolan's windows were in scopes.
    #[serde(default)]
    pub(super) scope: bool,
    /// Threads of a rank, if there are several.
    pub(super) threads: Option<u32>,
    /// Where the ranks were bound; `None` if this command did not place them.
    pub(super) pin: Option<String>,
    /// How partners were placed, if that was asked for.
    pub(super) map: Option<String>,
    /// Processes that spun alongside the samples.
    pub(super) busy: u32,
    /// The settings in the environment, of Portolan and of other implementations.
    #[serde(default)]
    pub(super) settings: Settings,
    /// The command that measured the run, with its settings.
    pub(super) command: String,
    /// Portolan's version.
    pub(super) version: String,
    /// When the run began, in seconds since 1970.
    pub(super) began: u64,
    pub(super) entries: Vec<Entry>,
    /// Peers that were not found, and why.
    pub(super) missing: Vec<(String, String)>,
    /// The machine; `None` if it was not measured.
    pub(super) machine: Option<Machine>,
    /// The machine's phase in the samples that count, if they have one in common.
    pub(super) phase: Option<String>,
    /// The same run in other phases in which every contender has some samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) also: Vec<Run>,
}

/// All figures of one contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Whether the contender is another implementation.
    pub(super) peer: bool,
    pub(super) figures: Vec<Figure>,
    /// The reason, if the contender failed and has no figures.
    pub(super) failed: Option<String>,
    /// Its samples, in the order in which they were taken.
    pub(super) taken: Vec<Taken>,
}

/// The result of all samples of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    /// Length of the messages, or the value on the run's axis.
    pub(super) bytes: usize,
    pub(super) summary: Summary,
    /// The number of samples that count, and of those that do not.
    pub(super) samples: usize,
    pub(super) dropped: usize,
    /// Rounds in the sample with the fewest.
    pub(super) rounds: u64,
}

/// One sample: a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Taken {
    /// The machine's phase, if it was the same before and after the sample.
    pub(super) phase: Option<String>,
    /// Time of a cache line from core to core by load and store, in nanoseconds, before and after.
    pub(super) before_ns: Option<f64>,
    pub(super) after_ns: Option<f64>,
    /// How long the sample took in all, in seconds.
    #[serde(default)]
    pub(super) wall_s: Option<f64>,
    /// What others used during the sample (without the spinning processes) and what the host took,
    /// as fractions of a core; on the processors of the ranks and of their cores, or on all if the
    /// ranks were not bound. Slightly negative at times: the kernel counts all of them in ticks,
    /// and this command's own share in nanoseconds.
    pub(super) others: Option<f64>,
    pub(super) stolen: Option<f64>,
    /// What both may be together, as a fraction of a core, without any doubt about the figure.
    #[serde(default)]
    pub(super) quiet: Option<f64>,
    /// Whether others used so much that the sample says little about the contender.
    #[serde(default)]
    pub(super) disturbed: bool,
    /// Whether the sample is among those that are compared.
    pub(super) counts: bool,
    /// A value for each size; `None` where a tool cannot measure that size.
    pub(super) values: Vec<Option<f64>>,
}

/// The machine's limits, and its state during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    /// The processor's name.
    pub(super) model: Option<String>,
    pub(super) system: Option<String>,
    pub(super) cores: usize,
    /// The processors between which it was measured: those of rank 0 and its partner, which may
    /// share one.
    #[serde(default)]
    pub(super) processors: Option<(usize, usize)>,
    /// Processes that wanted to run, on average over the last minute (the load), before and after.
    pub(super) load_before: Option<f64>,
    pub(super) load_after: Option<f64>,
    /// Nanoseconds that a cache line takes from one core to another: by storing and loading with
    /// two lines, the same with one line, and by compare-and-swap.
    pub(super) load_store_ns: Option<f64>,
    pub(super) one_line_ns: Option<f64>,
    pub(super) compare_and_swap_ns: Option<f64>,
    /// Nanoseconds until another thread on the same core continues, by `sched_yield`.
    pub(super) yield_ns: Option<f64>,
    /// For each size in bytes: 10⁶ bytes per second at which a core copies what another has just
    /// written.
    pub(super) copies: Vec<(usize, f64)>,
    /// For each size in bytes: 10⁶ bytes per second, and µs one way, of messages that one core
    /// copies into shared memory and another copies out of it, with nothing else to do.
    #[serde(default)]
    pub(super) relays: Vec<(usize, f64, f64)>,
    /// As `relays`, in both directions at a time: bytes, and 10⁶ bytes per second of both together.
    #[serde(default)]
    pub(super) relays_both: Vec<(usize, f64)>,
    /// As `copies`, by `process_vm_readv`; empty where that is refused.
    pub(super) pulls: Vec<(usize, f64)>,
    /// The first GPU, if the buffers are on GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gpu: Option<Gpu>,
}

impl Machine {
    /// Whether any copy of the host's memory was measured.
    pub(super) fn has_copies(&self) -> bool {
        let relays = self.relays.len() + self.relays_both.len();
        self.copies.len() + relays + self.pulls.len() > 0
    }
}

/// The limits of messages between a GPU and the host: its driver's copies from and to locked memory
/// of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Gpu {
    pub(super) name: String,
    /// µs until a copy of 8 bytes has been waited for: from the GPU, and to it.
    pub(super) from_us: f64,
    pub(super) to_us: f64,
    /// Bytes of each of many copies that follow one another, and their 10⁶ bytes per second.
    pub(super) bytes: usize,
    pub(super) from_mb_s: f64,
    pub(super) to_mb_s: f64,
}

impl Gpu {
    pub(super) fn of(copies: Copies) -> Self {
        let rate = |seconds: f64| copies.bytes as f64 / seconds / 1e6;
        let ([short_from, short_to], [from, to]) = (copies.short, copies.long);
        Self {
            from_us: short_from * 1e6,
            to_us: short_to * 1e6,
            bytes: copies.bytes,
            from_mb_s: rate(from),
            to_mb_s: rate(to),
            name: copies.name,
        }
    }
}

impl Run {
    /// Time of a cache line from core to core in the phase of the samples that count, in
    /// nanoseconds.
    pub(super) fn line(&self) -> Option<f64> {
        self.phase.as_ref()?;
        self.machine.as_ref()?.load_store_ns
    }

    /// The figure of an entry for a size.
    pub(super) fn figure(entry: &Entry, bytes: usize) -> Option<&Figure> {
        entry.figures.iter().find(|figure| figure.bytes == bytes)
    }

    /// All sizes for which any contender has a figure.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let mut sizes = Vec::new();
        for figure in self.entries.iter().flat_map(|entry| &entry.figures) {
            if !sizes.contains(&figure.bytes) {
                sizes.push(figure.bytes);
            }
        }
        sizes
    }

    /// The phases in which the samples of each contender were taken, with the time of a cache line
    /// in ns: `shm: 3 near (50 to 56), 1 changing; a-1: 4 far (130)`.
    pub(super) fn phases_seen(&self) -> String {
        let of = |entry: &Entry| {
            let mut seen: Vec<(&str, usize, Vec<f64>)> = Vec::new();
            for taken in &entry.taken {
                let phase = taken.phase.as_deref().unwrap_or("changing");
                let at = seen.iter().position(|(name, ..)| *name == phase);
                let at = at.unwrap_or_else(|| {
                    seen.push((phase, 0, Vec::new()));
                    seen.len() - 1
                });
                seen[at].1 += 1;
                seen[at].2.extend(taken.line());
            }
            let told = seen.into_iter().map(|(name, count, lines)| {
                let lines = Summary::of(lines).map(|s| (s.least.round(), s.most.round()));
                match lines {
                    Some((least, most)) if least < most => {
                        format!("{count} {name} ({least} to {most})")
                    }
                    Some((line, _)) => format!("{count} {name} ({line})"),
                    None => format!("{count} {name}"),
                }
            });
            format!("{}: {}", entry.name, told.collect::<Vec<_>>().join(", "))
        };
        self.alive().map(of).collect::<Vec<_>>().join("; ")
    }

    /// The contenders that have not failed. The samples that a failed peer took before it failed
    /// are part of no figure, so they say nothing about the figures.
    pub(super) fn alive(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.failed.is_none())
    }

    /// The smallest and the largest number of samples of any figure.
    pub(super) fn samples(&self) -> (usize, usize) {
        let figures = || self.entries.iter().flat_map(|entry| &entry.figures);
        let counts = || figures().map(|figure| figure.samples);
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// The number of samples that do not count.
    pub(super) fn dropped(&self) -> usize {
        let taken = self.alive().flat_map(|entry| &entry.taken);
        taken.filter(|taken| !taken.counts).count()
    }

    /// The number of samples that count neither here nor in another phase that is shown.
    pub(super) fn left_out(&self) -> usize {
        let elsewhere = self.also.iter().flat_map(Run::alive);
        let taken = elsewhere.flat_map(|entry| &entry.taken);
        let shown = taken.filter(|taken| taken.counts).count();
        self.dropped().saturating_sub(shown)
    }

    /// The number of samples that count although others were at work, because some contender has no
    /// undisturbed ones.
    pub(super) fn disturbed(&self) -> usize {
        let taken = self.alive().flat_map(|entry| &entry.taken);
        taken
            .filter(|taken| taken.counts && taken.disturbed)
            .count()
    }

    /// What others used, and what the host took, as fractions of a core: during all samples that
    /// count of the contender beside which it was most.
    pub(super) fn disturbance(&self) -> (Option<f64>, Option<f64>) {
        let most = |of: fn(&Burden) -> f64| {
            let burdens = self.alive().filter_map(Entry::burden);
            burdens.map(|burden| of(&burden)).reduce(f64::max)
        };
        (most(Burden::others), most(Burden::stolen))
    }
}

/// Work of others during some samples, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burden {
    wall: f64,
    others: f64,
    stolen: f64,
    quiet: f64,
    samples: f64,
}

impl Burden {
    /// What others used, as a fraction of a core.
    pub(super) fn others(&self) -> f64 {
        (self.others / self.wall).max(0.0)
    }

    fn stolen(&self) -> f64 {
        self.stolen / self.wall
    }

    /// Whether this is more than there may be. The errors of several samples are partly opposite.
    fn is_too_much(&self) -> bool {
        self.others + self.stolen > self.quiet + TICKS * self.samples.sqrt()
    }
}

impl Entry {
    /// Whether others were at work during the samples that count: too much during one of them, or
    /// too much during all of them together. A short sample by itself tells little.
    pub(super) fn is_disturbed(&self) -> bool {
        let counting = || self.taken.iter().filter(|taken| taken.counts);
        counting().any(|taken| taken.disturbed)
            || self.burden().is_some_and(|burden| burden.is_too_much())
    }

    /// The work of others during the samples that count, as far as it is known.
    pub(super) fn burden(&self) -> Option<Burden> {
        let counting = self.taken.iter().filter(|taken| taken.counts);
        counting
            .filter_map(Taken::burden)
            .reduce(|sum, one| Burden {
                wall: sum.wall + one.wall,
                others: sum.others + one.others,
                stolen: sum.stolen + one.stolen,
                quiet: sum.quiet + one.quiet,
                samples: sum.samples + one.samples,
            })
    }
}

impl Taken {
    fn burden(&self) -> Option<Burden> {
        let wall = self.wall_s?;
        Some(Burden {
            wall,
            others: self.others? * wall,
            stolen: self.stolen? * wall,
            quiet: self.quiet? * wall,
            samples: 1.0,
        })
    }

    /// Whether others used so much during this sample alone that it says little.
    pub(super) fn is_beside_work(&self) -> bool {
        self.burden().is_some_and(|burden| burden.is_too_much())
    }

    /// Time of a cache line during the sample in nanoseconds, if it was in one phase before and
    /// after.
    pub(super) fn line(&self) -> Option<f64> {
        let (before, after) = (self.before_ns?, self.after_ns?);
        same_phase(before, after).then(|| (before * after).sqrt())
    }
}

impl Machine {
    /// 10⁶ bytes per second at which a core copies `bytes` bytes that another has just written.
    /// Between the measured sizes it is interpolated linearly over the logarithm of the size.
    pub(super) fn copy_rate(&self, bytes: f64) -> Option<f64> {
        let (&first, &last) = (self.copies.first()?, self.copies.last()?);
        let next = self.copies.iter().position(|copy| copy.0 as f64 >= bytes);
        let (below, above) = match next {
            Some(0) => (first, first),
            Some(at) => (self.copies[at - 1], self.copies[at]),
            None => (last, last),
        };
        if below.0 == above.0 {
            return Some(below.1);
        }
        let log = |bytes: usize| (bytes as f64).ln();
        let share = (bytes.ln() - log(below.0)) / (log(above.0) - log(below.0));
        Some(below.1 + share * (above.1 - below.1))
    }

    /// Approximate lower bound, in microseconds, for the latency of a message of `bytes` bytes that
    /// are new to its receiver: the time of a cache line, or of a copy if the message does not fit
    /// into a line, whichever is longer. Not the sum: the copy includes the transfer of its own
    /// lines, and the first of them may itself tell the receiver that the message is there.
    pub(super) fn least_latency(&self, bytes: usize) -> Option<f64> {
        let line = self.load_store_ns? / 1e3;
        let copy = if bytes > 64 {
            bytes as f64 / self.copy_rate(bytes as f64)?
        } else {
            0.0
        };
        Some(line.max(copy))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::bench) fn machine() -> Machine {
        Machine {
            model: Some("Abacus".to_owned()),
            system: None,
            cores: 2,
            processors: Some((0, 1)),
            load_before: Some(0.1),
            load_after: Some(0.2),
            load_store_ns: Some(50.0),
            one_line_ns: Some(40.0),
            compare_and_swap_ns: Some(30.0),
            yield_ns: Some(1200.0),
            copies: vec![(1024, 8000.0), (4096, 24_000.0)],
            relays: vec![(4096, 10_000.0, 0.3)],
            relays_both: vec![(4096, 12_300.0)],
            pulls: vec![(4096, 3500.0)],
            gpu: None,
        }
    }

    pub(in crate::bench) fn gpu() -> Gpu {
        Gpu::of(Copies {
            name: "Abacus 2".to_owned(),
            short: [8e-6, 7.5e-6],
            bytes: 4 << 20,
            long: [2e-4, 1.6e-4],
        })
    }

    fn entry(name: &str, peer: bool, median: f64) -> Entry {
        let summary = Summary::of(vec![median]).unwrap();
        Entry {
            name: name.to_owned(),
            peer,
            figures: vec![Figure {
                bytes: 8,
                summary,
                samples: 1,
                dropped: 1,
                rounds: 10,
            }],
            failed: None,
            taken: vec![
                Taken {
                    counts: true,
                    wall_s: Some(0.5),
                    others: Some(0.01),
                    stolen: Some(0.0),
                    quiet: Some(0.1),
                    values: vec![Some(median)],
                    ..Taken::default()
                },
                Taken::default(),
            ],
        }
    }

    pub(in crate::bench) fn run() -> Run {
        Run {
            bench: "latency".to_owned(),
            unit: "us".to_owned(),
            less_is_better: true,
            axis: "bytes".to_owned(),
            message_bytes: 0,
            ranks: 2,
            window: None,
            buffers: None,
            alloc: false,
            cuda: false,
            scope: false,
            threads: None,
            pin: Some("core".to_owned()),
            map: None,
            busy: 0,
            settings: Settings::new(),
            command: "portolan bench latency --peers".to_owned(),
            version: "0.1.0".to_owned(),
            began: 0,
            entries: vec![
                entry("shm", false, 0.5),
                entry("a-1", true, 1.0),
                entry("b-2", true, 2.0),
            ],
            missing: vec![("c".to_owned(), "it is not here".to_owned())],
            machine: Some(machine()),
            phase: Some("near".to_owned()),
            also: Vec::new(),
        }
    }

    /// A run whose ratios decide something, with samples enough.
    pub(in crate::bench) fn decided() -> Run {
        let mut run = run();
        for entry in &mut run.entries {
            entry.figures[0].samples = 3;
        }
        run
    }

    /// The same beside the emulator, which is far slower by its own clock.
    pub(in crate::bench) fn beside_the_emulator() -> Run {
        let mut run = decided();
        let mut emulated = entry("t3e-sim", false, 9.954);
        emulated.figures[0].samples = 3;
        run.entries.insert(1, emulated);
        run
    }

    /// A run with figures in two phases.
    pub(in crate::bench) fn run_in_two_phases() -> Run {
        let mut apart = run();
        apart.phase = Some("apart".to_owned());
        for entry in &mut apart.entries {
            entry.figures[0].summary.median *= 3.0;
            for taken in &mut entry.taken {
                taken.counts = !taken.counts;
            }
        }
        apart.machine = Some(Machine {
            load_store_ns: Some(190.0),
            copies: Vec::new(),
            relays: Vec::new(),
            relays_both: Vec::new(),
            pulls: Vec::new(),
            ..machine()
        });
        Run {
            also: vec![apart],
            ..run()
        }
    }

    #[test]
    fn samples_of_a_peer_that_failed_are_not_counted() {
        let mut run = run();
        let failing = &mut run.entries[2];
        failing.taken[0].disturbed = true;
        failing.taken[0].others = Some(1.5);
        let disturbed = (run.disturbed(), run.disturbance().0, run.dropped());
        assert_eq!(disturbed, (1, Some(1.5), 3));
        run.entries[2].failed = Some("it ended".to_owned());
        run.entries[2].figures.clear();
        let quiet = (run.disturbed(), run.disturbance().0, run.dropped());
        assert_eq!(quiet, (0, Some(0.01), 2));
    }

    #[test]
    fn short_samples_are_judged_together() {
        let mut entry = entry("shm", false, 0.5);
        // Half a core during 20 ms is within the error of the kernel's ticks.
        let one = Taken {
            counts: true,
            wall_s: Some(0.02),
            others: Some(0.5),
            stolen: Some(0.0),
            quiet: Some(0.1),
            ..Taken::default()
        };
        entry.taken = vec![one.clone()];
        assert!(!entry.is_disturbed());
        // During each of fifty such samples it is not.
        entry.taken = vec![one.clone(); 50];
        assert!(entry.is_disturbed() && !one.is_beside_work());
        // Errors in both directions cancel.
        for taken in entry.taken.iter_mut().step_by(2) {
            taken.others = Some(-0.5);
        }
        assert!(!entry.is_disturbed());
        assert!(entry.burden().unwrap().others() < 1e-9);
        // One long sample is enough.
        entry.taken.push(Taken {
            wall_s: Some(10.0),
            ..one
        });
        assert!(entry.is_disturbed());
    }

    #[test]
    fn copies_are_interpolated() {
        let machine = machine();
        let rates = [1.0, 1024.0, 2048.0, 4096.0, 1e6].map(|bytes| machine.copy_rate(bytes));
        assert_eq!(
            rates.map(Option::unwrap).map(f64::round),
            [8000.0, 8000.0, 16_000.0, 24_000.0, 24_000.0]
        );
        assert_eq!(machine.least_latency(8), Some(0.05));
        // The time of the copy includes that of the line.
        assert!((machine.least_latency(4096).unwrap() - 0.1707).abs() < 1e-3);
        // A short copy whose lines arrive together is no faster than one line.
        assert_eq!(machine.least_latency(65), Some(0.05));
    }

    #[test]
    fn a_run_is_the_same_after_it_was_kept() {
        for run in [run(), run_in_two_phases()] {
            let text = serde_json::to_string(&run).unwrap();
            assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run);
        }
    }
}
