//! What the machine was doing while something was measured.

use std::fs;

use portolan_benches::machine::{Limits, Phase, copy_of_fresh_memory};
use serde::Serialize;

use super::stats::Summary;
use crate::run;

/// Sizes of the copies that are timed.
const COPIES: [usize; 3] = [16 << 10, 256 << 10, 4 << 20];

/// Looks at the machine between samples.
#[derive(Debug)]
pub(super) struct Probe {
    /// Two processors on different cores, if there are any.
    processors: Option<(usize, usize)>,
    cores: usize,
    load: Option<f64>,
    seen: Vec<Limits>,
}

/// What a [`Probe`] has seen, and the machine's limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Machine {
    pub(super) cores: usize,
    /// Processes that wanted to run, on average over the last minute, before and after.
    pub(super) load_before: Option<f64>,
    pub(super) load_after: Option<f64>,
    /// Nanoseconds of a cache line's way from one core to another: by storing and loading, and by
    /// compare-and-swap.
    pub(super) load_store_ns: Option<f64>,
    pub(super) compare_and_swap_ns: Option<f64>,
    /// Bytes, and 10⁶ bytes per second at which a core copies what another has just written.
    pub(super) copies: Vec<(usize, f64)>,
}

impl Probe {
    pub(super) fn new() -> Self {
        let cores = run::cores().unwrap_or_default();
        let mut firsts = cores.iter().filter_map(|core| core.first().copied());
        Self {
            processors: firsts.next().zip(firsts.next()),
            cores: cores.len(),
            load: load(),
            seen: Vec::new(),
        }
    }

    /// The cores that ranks can have.
    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// The machine's phase now, if it can be told.
    pub(super) fn look(&mut self) -> Option<Phase> {
        let (one, other) = self.processors?;
        let limits = Limits::measure(one, other).ok()?;
        self.seen.push(limits);
        Some(limits.phase())
    }

    /// The end: what was seen, in that phase if there is one.
    pub(super) fn finish(self, phase: Option<Phase>) -> Machine {
        let seen = self
            .seen
            .iter()
            .filter(|limits| phase.is_none_or(|phase| limits.phase() == phase));
        let median =
            |of: fn(&Limits) -> f64| Some(Summary::of(seen.clone().map(of).collect())?.median);
        let copies = self.processors.map_or_else(Vec::new, |(one, other)| {
            let rate =
                |&bytes: &usize| Some((bytes, copy_of_fresh_memory(one, other, bytes).ok()?));
            COPIES.iter().filter_map(rate).collect()
        });
        Machine {
            cores: self.cores,
            load_before: self.load,
            load_after: load(),
            load_store_ns: median(|limits| limits.load_store),
            compare_and_swap_ns: median(|limits| limits.compare_and_swap),
            copies,
        }
    }
}

fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
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
    use super::*;

    #[test]
    fn a_probe_tells_what_it_saw() {
        let mut probe = Probe::new();
        let phase = probe.look();
        let machine = probe.finish(phase);
        assert!(machine.cores >= 1);
        assert_eq!(machine.load_store_ns.is_some(), phase.is_some());
        assert_eq!(
            machine.copies.len(),
            if phase.is_some() { COPIES.len() } else { 0 }
        );
        assert!(memory_left().is_none_or(|bytes| bytes > 0));
    }
}
