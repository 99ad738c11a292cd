//! What the machine was doing while something was measured.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use portolan_benches::machine::{
    Limits, Phase, Relayed, copy_of_fresh_memory, pull_of_fresh_memory, relayed,
    yield_to_each_other,
};
use portolan_benches::process::{Whose, processor_seconds};

use super::place::Spinners;
use super::record::{Machine, Taken};
use super::stats::Summary;
use crate::run;

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

/// How often the machine's limits are measured before it is said that it stays in another phase than that of the samples.
const TRIALS: usize = 3;

/// Looks at the machine between samples.
#[derive(Debug)]
pub(super) struct Probe {
    /// Two processors on different cores, if there are any.
    processors: Option<(usize, usize)>,
    first: Option<usize>,
    cores: usize,
    load: Option<f64>,
    seen: Vec<Limits>,
    /// Other work beside the samples, which stands still while the machine is looked at.
    beside: Spinners,
}

/// What a [`Probe`] sees in one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    limits: Option<Limits>,
    clock: Clock,
}

/// What has been used until a moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct Clock {
    wall: Instant,
    /// Of all processors, by anybody; and taken by the host.
    all: Option<(f64, f64)>,
    /// By this process and by those for which it has waited.
    ours: f64,
}

impl Probe {
    pub(super) fn new() -> Self {
        let cores = run::cores().unwrap_or_default();
        let mut firsts = cores.iter().filter_map(|core| core.first().copied());
        let first = firsts.next();
        Self {
            processors: first.zip(firsts.next()),
            first,
            cores: cores.len(),
            load: load(),
            seen: Vec::new(),
            beside: Spinners::default(),
        }
    }

    /// The same with other work beside the samples, to the end.
    pub(super) fn beside(self, beside: Spinners) -> Self {
        Self { beside, ..self }
    }

    /// The cores that ranks can have.
    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// The machine now.
    pub(super) fn look(&mut self) -> Look {
        let measure = |(one, other)| Limits::measure(one, other).ok();
        let limits = self
            .beside
            .while_stopped(|| self.processors.and_then(measure));
        self.seen.extend(limits);
        Look {
            limits,
            clock: Clock::now(),
        }
    }

    /// The end, also of other work: what was seen, in that phase if there is one.
    pub(super) fn finish(mut self, phase: Option<Phase>) -> Machine {
        // What the machine can do at best it does with nothing else to do.
        drop(std::mem::take(&mut self.beside));
        self.limits(phase)
    }

    /// The machine's limits, and what was seen.
    fn limits(&self, phase: Option<Phase>) -> Machine {
        debug_assert!(self.beside.are_none(), "there is something else to do");
        let seen = self
            .seen
            .iter()
            .filter(|limits| phase.is_none_or(|phase| limits.phase() == phase));
        let median =
            |of: fn(&Limits) -> f64| Some(Summary::of(seen.clone().map(of).collect())?.median);
        let rates = |seconds: fn(usize, usize, usize) -> Option<f64>| {
            let rate = |&bytes: &usize| {
                let (one, other) = self.processors?;
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
            cores: self.cores,
            load_before: self.load,
            load_after: load(),
            load_store_ns: median(|limits| limits.load_store),
            one_line_ns: median(|limits| limits.one_line),
            compare_and_swap_ns: median(|limits| limits.compare_and_swap),
            yield_ns: self.first.and_then(|first| yield_to_each_other(first).ok()),
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
        }
    }

    /// What a measurement finds while the machine is in that phase, in which it is before and after; whatever it finds
    /// where there is no phase, and nothing if the machine is in another one.
    fn while_in<T: Default>(&self, phase: Option<Phase>, measure: impl Fn() -> T) -> T {
        while_so(
            || {
                let Some(phase) = phase else { return true };
                let limits = self
                    .processors
                    .map(|(one, other)| Limits::measure(one, other));
                limits.is_some_and(|limits| limits.is_ok_and(|limits| limits.phase() == phase))
            },
            measure,
        )
    }

    /// What two cores do for messages that are copied twice. Once a run for each phase: a run may have many tables,
    /// and this takes longer than the rest.
    fn relays(&self, phase: Option<Phase>) -> Vec<(usize, Relayed)> {
        static OF_THIS_RUN: Mutex<Vec<OfAPhase>> = Mutex::new(Vec::new());
        let mut known = OF_THIS_RUN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, relays)) = known.iter().find(|(of, _)| *of == phase) {
            return relays.clone();
        }
        let relay = |&bytes: &usize| {
            let (one, other) = self.processors?;
            let twice = relayed(one, other, bytes).ok()?;
            Some((bytes, twice))
        };
        let relays: Vec<_> = self.while_in(phase, || RELAYS.iter().filter_map(relay).collect());
        if !relays.is_empty() {
            known.push((phase, relays.clone()));
        }
        relays
    }
}

/// What a measurement finds if `so` holds before it and after; nothing if it does not in some trials.
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

/// What two cores do for messages that are copied twice, by their length, in a phase.
type OfAPhase = (Option<Phase>, Vec<(usize, Relayed)>);

impl Look {
    /// The phase of what was taken between two looks, if it was the same in both.
    pub(super) fn phase_until(&self, after: &Self) -> Option<Phase> {
        let phase = self.limits?.phase();
        (after.limits?.phase() == phase).then_some(phase)
    }

    /// Notes on a sample that was taken between two looks.
    pub(super) fn until(&self, after: &Self) -> Taken {
        let line = |look: &Self| Some(look.limits?.load_store);
        let (others, stolen) = self.clock.others_until(&after.clock).unzip();
        Taken {
            phase: self.phase_until(after).map(|phase| phase.name().to_owned()),
            before_ns: line(self),
            after_ns: line(after),
            others,
            stolen,
            counts: false,
            values: Vec::new(),
        }
    }
}

impl Clock {
    fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            wall: Instant::now(),
            all: used(&stat),
            ours: processor_seconds(Whose::Process) + processor_seconds(Whose::Children),
        }
    }

    /// What others have used and what the host took, in parts of a core.
    fn others_until(&self, after: &Self) -> Option<(f64, f64)> {
        let wall = (after.wall - self.wall).as_secs_f64();
        let (before, now) = (self.all?, after.all?);
        let others = now.0 - before.0 - (after.ours - self.ours);
        // The kernel counts the one in ticks and the other in nanoseconds.
        Some(((others / wall).max(0.0), (now.1 - before.1) / wall))
    }
}

/// What all processors have done, and what was taken from them, in seconds: the first line of
/// `/proc/stat`, in hundredths.
fn used(stat: &str) -> Option<(f64, f64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
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
    // Virtual machines hide the name, and tell the number.
    let number = field("cpu family").zip(field("model\t"));
    let number = number.map(|(family, model)| format!(" (family {family}, model {model})"));
    Some(name + &number.unwrap_or_default())
}

/// The kernel, and whether it is that of a virtual machine.
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

/// Memory that can still be had, in bytes: of the machine, and of the control group.
pub(super) fn memory_left() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.split_whitespace().next()?.parse::<u64>().ok()? << 10;
    Some(group_left().map_or(machine, |group| machine.min(group)))
}

/// What is left of the control group's limit; `None` if it has none.
fn group_left() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = format!("/sys/fs/cgroup{}", path.trim_end_matches('/'));
    let number = |name| {
        let text = fs::read_to_string(format!("{folder}/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

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
        let machine = probe.finish(None);
        assert!(os::has_gone(pid), "limits are measured alone");
        assert!(machine.cores >= 1);
        assert_eq!(machine.load_store_ns.is_some(), taken.before_ns.is_some());
        let expected = |all: usize| if taken.before_ns.is_some() { all } else { 0 };
        assert_eq!(machine.copies.len(), expected(COPIES.len()));
        assert_eq!(machine.relays.len(), expected(RELAYS.len()));
        assert_eq!(machine.relays_both.len(), expected(RELAYS.len()));
        assert!(memory_left().is_none_or(|bytes| bytes > 0));
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
        let stat = "cpu  100 10 50 9999 7 1 2 30 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(used(stat), Some((1.63, 0.3)));
        assert_eq!(used("cpu  100 10\n"), None);
        assert_eq!(used(""), None);
    }
}
