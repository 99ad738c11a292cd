//! The state and the limits of the machine during a measurement.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use portolan_benches::machine::{
    Limits, Phase, Relayed, copy_of_fresh_memory, pull_of_fresh_memory, relayed, same_phase,
    yield_to_each_other,
};
use portolan_benches::process::{Whose, processor_seconds};

use super::phases::Choice;
use super::place::{self, Spinners};
use super::record::{Machine, Taken};
use super::stats::Summary;
use crate::run::{self, Bind};

/// Sizes of the copies that are timed.
const COPIES: [usize; 8] = [
    256,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];

/// Sizes of the messages that are copied twice.
const RELAYS: [usize; 9] = [
    1 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];

/// Attempts to measure the machine's limits while it is in the phase of the samples. After that
/// many, the limits count as unknown.
const TRIALS: usize = 3;

/// The largest processor time that other processes and the host may use during a sample on the
/// processors of the ranks, as a fraction of one core.
const QUIET: f64 = 0.1;
/// What the kernel and the services of an idle machine may use in addition on each processor of the
/// ranks. Without it, hundreds of processors that are a thousandth busy would pass for disturbed.
const UPKEEP: f64 = 0.001;
/// The largest part of all processors that others may use if the ranks may run anywhere: on two
/// processors that is [`QUIET`].
const PART: f64 = QUIET / 2.0;
/// Tolerance of the kernel's accounting, in seconds: the kernel counts in hundredths of a second,
/// and the difference of two readings has that error at both ends.
pub(super) const TICKS: f64 = 0.02;

/// Measures the machine between samples.
#[derive(Debug)]
pub(super) struct Probe {
    /// The processors of rank 0 and its partner, which may be the same; `None` if the system does
    /// not tell.
    processors: Option<(usize, usize)>,
    /// The processors on which others disturb the ranks; empty if that may be any.
    affecting: Vec<usize>,
    cores: Vec<Vec<usize>>,
    load: Option<f64>,
    /// All looks in their order: each sample was taken between two neighbours.
    seen: Vec<Look>,
    /// Other work alongside the samples. It is stopped while the machine is measured.
    beside: Spinners,
}

/// What a [`Probe`] measures at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    limits: Option<Limits>,
    clock: Clock,
}

/// Processor time used up to a moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct Clock {
    wall: Instant,
    /// The use of the processors that are watched.
    all: Option<Used>,
    /// Whether these are the processors of the ranks, or all of the machine.
    ranks_only: bool,
    /// Time of this process, of the children for which it has waited, and of the spinning processes
    /// on those processors. Launchers are not bound: what they use elsewhere counts here as well,
    /// so that little work of others stays unnoticed.
    ours: f64,
}

/// Processor time used by all processes on some processors, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Used {
    worked: f64,
    /// Time that the host has taken from them (steal).
    stolen: f64,
    /// The number of these processors.
    processors: usize,
}

impl Probe {
    pub(super) fn new() -> Self {
        let cores = run::cores().unwrap_or_default();
        Self {
            processors: place::ends(&Bind::None, 2, true, &cores),
            affecting: Vec::new(),
            cores,
            load: load(),
            seen: Vec::new(),
            beside: Spinners::default(),
        }
    }

    /// This probe, with other work alongside the samples until [`finish`](Self::finish).
    pub(super) fn beside(self, beside: Spinners) -> Self {
        Self { beside, ..self }
    }

    /// This probe, measuring between the processors of the given ranks. If `paired`, the ranks of
    /// the first half talk to those of the second.
    pub(super) fn between(self, pin: &Bind, ranks: u32, paired: bool) -> Self {
        Self {
            processors: place::ends(pin, ranks, paired, &self.cores),
            affecting: place::affecting(pin, ranks, &self.cores, run::siblings),
            ..self
        }
    }

    /// This probe, which does not measure cache lines.
    pub(super) fn without_lines(self) -> Self {
        Self {
            processors: None,
            ..self
        }
    }

    /// The number of cores that ranks can use.
    pub(super) fn cores(&self) -> usize {
        self.cores.len()
    }

    /// The two processors, or `None` if they are the same: then no cache line travels between them.
    fn apart(&self) -> Option<(usize, usize)> {
        self.processors.filter(|(one, other)| one != other)
    }

    /// Measures how long a cache line travels now.
    fn measure(&self) -> Option<Limits> {
        let (one, other) = self.apart()?;
        Limits::measure(one, other).ok()
    }

    /// Measures the machine's present state.
    pub(super) fn look(&mut self) -> Look {
        let limits = self.beside.while_stopped(|| self.measure());
        let look = Look {
            limits,
            clock: Clock::now(&self.beside, &self.affecting),
        };
        self.seen.push(look);
        look
    }

    /// Ends the measurement and the other work. Returns the machine as it was measured beside the
    /// samples of `choice` (or at all times, if they have no phase), and as it was beside those of
    /// each of `also`. The latter have no figures for copies: the machine is no longer in those
    /// phases.
    pub(super) fn finish(mut self, choice: &Choice, also: &[Choice]) -> (Machine, Vec<Machine>) {
        // The machine's limits are measured on an otherwise idle machine.
        drop(std::mem::take(&mut self.beside));
        let machine = self.limits(choice);
        let seen = |choice: &Choice| Machine {
            load_store_ns: self.seen_in(choice, |limits| limits.load_store),
            one_line_ns: self.seen_in(choice, |limits| limits.one_line),
            compare_and_swap_ns: self.seen_in(choice, |limits| limits.compare_and_swap),
            copies: Vec::new(),
            relays: Vec::new(),
            relays_both: Vec::new(),
            pulls: Vec::new(),
            ..machine.clone()
        };
        let also = also.iter().map(seen).collect();
        (machine, also)
    }

    /// The median of what was measured beside the samples that count.
    fn seen_in(&self, choice: &Choice, of: fn(&Limits) -> f64) -> Option<f64> {
        let pairs = self.seen.windows(2);
        let taken: Vec<_> = pairs.map(|pair| pair[0].until(&pair[1])).collect();
        let limits =
            beside_counting(&taken, choice).filter_map(|look| self.seen.get(look)?.limits.as_ref());
        Some(Summary::of(limits.map(of).collect())?.median)
    }

    /// Measures the machine's limits, and adds what was measured between the samples.
    fn limits(&self, choice: &Choice) -> Machine {
        debug_assert!(self.beside.are_none(), "there is something else to do");
        let median = |of| self.seen_in(choice, of);
        let line = median(|limits| limits.load_store);
        let phase = choice.band.and(line);
        let rates = |seconds: fn(usize, usize, usize) -> Option<f64>| {
            let rate = |&bytes: &usize| {
                let (one, other) = self.apart()?;
                let rate = bytes as f64 / seconds(one, other, bytes)? / 1e6;
                rate.is_finite().then_some((bytes, rate))
            };
            COPIES.iter().filter_map(rate).collect()
        };
        let (copies, pulls) = self.while_in(phase, || -> (Vec<_>, Vec<_>) {
            (
                rates(|one, other, bytes| copy_of_fresh_memory(one, other, bytes).ok()),
                rates(|one, other, bytes| pull_of_fresh_memory(one, other, bytes).ok()),
            )
        });
        let relays = self.relays(phase);
        Machine {
            model: model(),
            system: system(),
            cores: self.cores.len(),
            processors: self.processors,
            load_before: self.load,
            load_after: load(),
            load_store_ns: line,
            one_line_ns: median(|limits| limits.one_line),
            compare_and_swap_ns: median(|limits| limits.compare_and_swap),
            yield_ns: self
                .processors
                .and_then(|(one, _)| yield_to_each_other(one).ok()),
            copies,
            relays: relays
                .iter()
                .map(|(bytes, twice)| (*bytes, twice.stream / 1e6, twice.one_way * 1e6))
                .collect(),
            relays_both: relays
                .iter()
                .map(|(bytes, twice)| (*bytes, twice.both / 1e6))
                .collect(),
            pulls,
            gpu: None,
        }
    }

    /// The result of `measure` while the machine is in the phase with the hand-over time `phase`,
    /// which is checked before and after. If `phase` is `None` the result counts unchecked. The
    /// default value if the machine stays in another phase.
    fn while_in<T: Default>(&self, phase: Option<f64>, measure: impl Fn() -> T) -> T {
        while_so(
            || {
                let Some(line) = phase else { return true };
                let now = self.measure();
                now.is_some_and(|now| same_phase(now.load_store, line))
            },
            measure,
        )
    }

    /// What two cores achieve for messages that are copied twice. Measured once per phase and
    /// processor pair: one run may print many tables, and this takes longer than all other limits.
    fn relays(&self, phase: Option<f64>) -> Vec<(usize, Relayed)> {
        static OF_THIS_RUN: Mutex<Vec<OfAPhase>> = Mutex::new(Vec::new());
        let Some((one, other)) = self.apart() else {
            return Vec::new();
        };
        let same = |of: Option<f64>| match (of, phase) {
            (Some(of), Some(phase)) => same_phase(of, phase),
            (of, phase) => of == phase,
        };
        let mut known = OF_THIS_RUN.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known
            .iter()
            .find(|(between, of, _)| *between == (one, other) && same(*of));
        if let Some((.., relays)) = found {
            return relays.clone();
        }
        let relay = |&bytes: &usize| {
            let twice = relayed(one, other, bytes).ok()?;
            Some((bytes, twice))
        };
        let relays: Vec<_> = self.while_in(phase, || RELAYS.iter().filter_map(relay).collect());
        if !relays.is_empty() {
            known.push(((one, other), phase, relays.clone()));
        }
        relays
    }
}

/// The looks right before and right after samples that count, or all looks if these samples have no
/// phase. Sample `i` was taken between looks `i` and `i + 1`.
///
/// Looks are not chosen by their own hand-over times: a phase begins with the mean of the two looks
/// beside a sample, so it would be seen without the shorter one of these.
fn beside_counting(taken: &[Taken], choice: &Choice) -> impl Iterator<Item = usize> {
    let all = choice.band.is_none();
    let counts = |sample: usize| taken.get(sample).is_some_and(|taken| choice.counts(taken));
    let is_beside = move |&look: &usize| all || counts(look) || look > 0 && counts(look - 1);
    (0..=taken.len()).filter(is_beside)
}

/// The result of `measure` if `so` holds before and after it, or the default value if that is not
/// the case in [`TRIALS`] attempts.
fn while_so<T: Default>(so: impl Fn() -> bool, measure: impl Fn() -> T) -> T {
    for _ in 0..TRIALS {
        if !so() {
            continue;
        }
        let found = measure();
        if so() {
            return found;
        }
    }
    T::default()
}

/// What two processors achieve for messages that are copied twice: the processors, the hand-over
/// time of the phase, and the results by message length.
type OfAPhase = ((usize, usize), Option<f64>, Vec<(usize, Relayed)>);

impl Look {
    /// The notes on a sample that was taken between this look and the next.
    pub(super) fn until(&self, after: &Self) -> Taken {
        let line = |look: &Self| Some(look.limits?.load_store);
        let taken = Taken {
            before_ns: line(self),
            after_ns: line(after),
            ..self.clock.work_until(&after.clock)
        };
        let phase = taken.line().map(Phase::of);
        Taken {
            phase: phase.map(|phase| phase.name().to_owned()),
            disturbed: taken.is_beside_work(),
            ..taken
        }
    }
}

impl Clock {
    /// Watches `processors`, or all processors if these are none or the system does not list them.
    fn now(beside: &Spinners, processors: &[usize]) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let of_ranks = used_on(&stat, processors);
        let watched = of_ranks.map_or(&[][..], |_| processors);
        Self {
            wall: Instant::now(),
            all: of_ranks.or_else(|| used(&stat)),
            ranks_only: of_ranks.is_some(),
            ours: processor_seconds(Whose::Process)
                + processor_seconds(Whose::Children)
                + beside.seconds(watched),
        }
    }

    /// The work of other processes and of the host in between. The spinning processes that this
    /// command started do not count as others.
    fn work_until(&self, after: &Self) -> Taken {
        let (others, stolen) = self.others_until(after).unzip();
        Taken {
            wall_s: Some((after.wall - self.wall).as_secs_f64()),
            others,
            stolen,
            quiet: Some(self.quiet()),
            ..Taken::default()
        }
    }

    /// The largest processor time of others that does not disturb, as a fraction of one core.
    fn quiet(&self) -> f64 {
        let processors = self.all.map_or(0, |used| used.processors) as f64;
        if self.ranks_only {
            QUIET + UPKEEP * processors
        } else {
            (PART * processors).max(QUIET)
        }
    }

    /// What other processes used and what the host took, as fractions of one core. `None` if the
    /// system does not tell or watches other processors than before.
    fn others_until(&self, after: &Self) -> Option<(f64, f64)> {
        let wall = (after.wall - self.wall).as_secs_f64();
        let (before, now) = (self.all?, after.all?);
        if (before.processors, self.ranks_only) != (now.processors, after.ranks_only) {
            return None;
        }
        let others = now.worked - before.worked - (after.ours - self.ours);
        let stolen = now.stolen - before.stolen;
        Some((others / wall, stolen / wall))
    }
}

/// The use of all processors, from the text of `/proc/stat`.
fn used(stat: &str) -> Option<Used> {
    let one = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let (worked, stolen) = seconds(stat.lines().next()?.strip_prefix("cpu ")?)?;
    Some(Used {
        worked,
        stolen,
        processors: stat.lines().filter(one).count(),
    })
}

/// The use of some processors. `None` if there are none, or if one of them has no line.
fn used_on(stat: &str, processors: &[usize]) -> Option<Used> {
    let all: BTreeMap<usize, &str> = stat
        .lines()
        .filter_map(|line| line.strip_prefix("cpu")?.split_once(' '))
        .filter_map(|(number, fields)| Some((number.parse().ok()?, fields)))
        .collect();
    let (mut worked, mut stolen) = (0.0, 0.0);
    for processor in processors {
        let of_one = seconds(all.get(processor)?)?;
        worked += of_one.0;
        stolen += of_one.1;
    }
    (!processors.is_empty()).then_some(Used {
        worked,
        stolen,
        processors: processors.len(),
    })
}

/// Seconds of work, and seconds that the host has taken, from the fields of a line of `/proc/stat`,
/// which counts in hundredths of a second.
fn seconds(line: &str) -> Option<(f64, f64)> {
    let field = |text: &str| text.parse::<f64>().ok();
    let fields: Vec<f64> = line.split_whitespace().map_while(field).collect();
    // user nice system idle iowait irq softirq steal
    let [user, nice, system, _, _, irq, softirq, steal, ..] = fields[..] else {
        return None;
    };
    Some((
        (user + nice + system + irq + softirq) / 100.0,
        steal / 100.0,
    ))
}

fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// The processor's name.
fn model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let name = field("model name")?;
    // Virtual machines hide the name but show the family and model numbers.
    let number = field("cpu family").zip(field("model\t"));
    let number = number.map(|(family, model)| format!(" (family {family}, model {model})"));
    Some(name + &number.unwrap_or_default())
}

/// The kernel's version, and whether it runs in a virtual machine.
fn system() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let guest = if flags.contains(" hypervisor") {
        ", in a virtual machine"
    } else {
        ""
    };
    Some(format!("Linux {}{guest}", release.trim()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::super::phases::{choose, tests::at};
    use super::super::place::tests::spinner;
    use super::*;
    use crate::os;

    #[test]
    fn a_probe_tells_what_it_saw() {
        let (spinners, pid) = spinner();
        let mut probe = Probe::new().beside(spinners);
        let (before, after) = (probe.look(), probe.look());
        let taken = before.until(&after);
        assert!(!os::has_gone(pid));
        let (machine, _) = probe.finish(&Choice::ALL, &[]);
        assert!(os::has_gone(pid), "limits are measured alone");
        assert!(machine.cores >= 1);
        assert_eq!(machine.load_store_ns.is_some(), taken.before_ns.is_some());
        let expected = |all: usize| if taken.before_ns.is_some() { all } else { 0 };
        // A copy of a few cache lines may take less time than the clock can tell, and is left out.
        let is_long = |&bytes: &usize| bytes >= 4 << 10;
        let copied = machine.copies.iter().map(|&(bytes, _)| bytes);
        let long = COPIES.iter().filter(|&bytes| is_long(bytes));
        assert_eq!(copied.filter(is_long).count(), expected(long.count()));
        assert_eq!(machine.relays.len(), expected(RELAYS.len()));
        assert_eq!(machine.relays_both.len(), expected(RELAYS.len()));
    }

    #[test]
    fn ranks_of_one_processor_have_no_line_between_them_but_a_yield() {
        let probe = Probe::new();
        let Some(&first) = probe.cores.iter().flatten().next() else {
            return;
        };
        let mut probe = probe.between(&Bind::List(vec![first, first]), 2, true);
        let (before, after) = (probe.look(), probe.look());
        assert_eq!(before.until(&after).line(), None);
        let (machine, _) = probe.finish(&Choice::ALL, &[]);
        assert_eq!(machine.processors, Some((first, first)));
        assert!(machine.load_store_ns.is_none() && machine.yield_ns.is_some());
        assert!(machine.copies.is_empty() && machine.relays.is_empty());
    }

    #[test]
    fn a_sample_is_disturbed_by_others_and_not_by_us_or_what_spins_beside() {
        let wall = Instant::now();
        let at = |seconds: f64, all: f64, stolen: f64, ours: f64| Clock {
            wall: wall + Duration::from_secs_f64(seconds),
            all: Some(Used {
                worked: 10.0 + all,
                stolen: 1.0 + stolen,
                processors: 2,
            }),
            ranks_only: false,
            ours,
        };
        let begin = at(0.0, 0.0, 0.0, 0.0);
        for (after, disturbed) in [
            (at(2.0, 4.0, 0.0, 3.9), false),
            (at(2.0, 4.0, 0.0, 3.7), true),
            (at(2.0, 4.0, 0.15, 3.9), true),
            // One tick is within the tolerance.
            (at(0.1, 0.2, 0.0, 0.18), false),
            (at(0.1, 0.2, 0.0, 0.16), true),
        ] {
            assert_eq!(
                begin.work_until(&after).is_beside_work(),
                disturbed,
                "{after:?}"
            );
        }
        let blind = Clock { all: None, ..begin };
        assert!(!blind.work_until(&at(1.0, 2.0, 0.0, 0.0)).is_beside_work());
    }

    #[test]
    fn the_hand_over_time_of_a_phase_is_that_beside_its_samples() {
        let lines = [46.0, 54.0, 56.0, 190.0, 47.0, 200.0, 195.0];
        let taken: Vec<_> = lines.windows(2).map(|pair| at(pair[0], pair[1])).collect();
        let all: Vec<Vec<&Taken>> = vec![taken.iter().collect()];
        let seen = |choice: &Choice| -> Vec<f64> {
            let looks = beside_counting(&taken, choice);
            looks.map(|look| lines[look]).collect()
        };
        // 46 is below the mean of its sample; 47 is between two samples of a changing phase.
        assert_eq!(seen(&choose(&all)), [46.0, 54.0, 56.0]);
        assert_eq!(seen(&Choice::ALL), lines);
    }

    #[test]
    fn many_idle_processors_do_not_disturb_and_one_busy_processor_of_ranks_does() {
        let wall = Instant::now();
        // Two clocks a second apart: all processes use `all` of a core on `processors` processors,
        // and ours 2.0.
        let disturbed = |processors: usize, ranks_only: bool, all: f64| {
            let at = |seconds: u64, worked: f64, ours: f64| Clock {
                wall: wall + Duration::from_secs(seconds),
                all: Some(Used {
                    worked,
                    stolen: 0.0,
                    processors,
                }),
                ranks_only,
                ours,
            };
            at(0, 0.0, 0.0)
                .work_until(&at(1, all, 2.0))
                .is_beside_work()
        };
        // 256 processors that are 0.05 % busy.
        assert!(!disturbed(256, false, 2.128) && !disturbed(256, true, 2.128));
        // Two ranks on two processors, with a tenth of another process on one of them.
        assert!(!disturbed(2, true, 2.09) && disturbed(2, true, 2.15));
        // Another process shares the processor of one of 256 ranks.
        assert!(disturbed(256, true, 2.5));
        // Ranks that may run anywhere avoid another process on 256 processors, but not thirty.
        assert!(!disturbed(256, false, 3.0) && disturbed(256, false, 32.0));
    }

    #[test]
    fn limits_are_of_the_phase_of_the_samples_or_not_there() {
        let of = |phases: &[bool]| {
            let (looks, measured) = (Cell::new(0), Cell::new(0));
            let so = || phases[looks.replace(looks.get() + 1)];
            let found = while_so(so, || measured.replace(measured.get() + 1) + 1);
            assert_eq!(looks.get(), phases.len());
            found
        };
        assert_eq!(of(&[true, true]), 1);
        assert_eq!(of(&[true, false, true, true]), 2);
        assert_eq!(of(&[false, false, true, true]), 1);
        assert_eq!(of(&[true, false, false, true, false]), 0);
    }

    #[test]
    fn use_is_read_as_the_kernel_writes_it() {
        let stat = "cpu  100 10 50 9999 7 1 2 30 0 0\ncpu0 60 5 25 9 7 0 1 10 0 0\n\
                    cpu10 40 5 25 9 0 1 1 20 0 0\nintr 12 0\n";
        let used_by = |worked, stolen, processors| {
            Some(Used {
                worked,
                stolen,
                processors,
            })
        };
        assert_eq!(used(stat), used_by(1.63, 0.3, 2));
        assert_eq!(used("cpu  100 10\n"), None);
        assert_eq!(used(""), None);
        assert_eq!(used_on(stat, &[10]), used_by(0.72, 0.2, 1));
        assert_eq!(used_on(stat, &[0, 10]).unwrap().processors, 2);
        // A processor has no line, as in some containers; or ranks may run anywhere.
        assert_eq!((used_on(stat, &[0, 1]), used_on(stat, &[])), (None, None));
        // All processors are watched then.
        let clock = Clock::now(&Spinners::default(), &[1 << 20]);
        assert!(!clock.ranks_only && clock.all.is_some());
    }
}
