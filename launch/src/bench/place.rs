//! The processors of ranks and of other work.

use std::fs;
use std::process::{Child, Command, Stdio};

use clap::ValueEnum;

use crate::os;
use crate::run::{self, Bind};

/// Which ranks share a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Map {
    /// Partners are on the same core
    Together,
    /// Partners are on different cores
    Apart,
}

impl Map {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Together => "partners on one core",
            Self::Apart => "partners on different cores",
        }
    }

    /// The processor of each of `ranks` ranks. Rank *i* of the first half and rank *i* of the
    /// second half are partners. `None` if the cores are not known.
    pub(super) fn list(self, ranks: u32) -> Option<Bind> {
        let cores = first_processors()?;
        Some(Bind::List(self.spread(ranks as usize, &cores)))
    }

    fn spread(self, ranks: usize, cores: &[usize]) -> Vec<usize> {
        let half = (ranks / 2).max(1);
        let shift = match self {
            Self::Together => 0,
            Self::Apart => 1,
        };
        let core = |rank: usize| (rank % half + rank / half * shift) % cores.len();
        (0..ranks).map(|rank| cores[core(rank)]).collect()
    }
}

/// The first processor of each core.
fn first_processors() -> Option<Vec<usize>> {
    let cores = run::cores().ok()?;
    let firsts: Vec<_> = cores
        .iter()
        .filter_map(|core| core.first().copied())
        .collect();
    (!firsts.is_empty()).then_some(firsts)
}

/// The processors between which the machine is measured: that of rank 0, and that of its partner if
/// ranks are paired, else that of the first rank on another processor. Both are the same if the
/// ranks share one. If the system places the ranks, these are the first processors of the first two
/// cores. `None` if the cores are not known.
pub(super) fn ends(
    pin: &Bind,
    ranks: u32,
    paired: bool,
    cores: &[Vec<usize>],
) -> Option<(usize, usize)> {
    let first_of = |core: usize| cores.get(core)?.first().copied();
    let first_two = || Some((first_of(0)?, first_of(1).or_else(|| first_of(0))?));
    if ranks < 2 {
        return first_two();
    }
    let pair = |of: &dyn Fn(usize) -> usize| {
        let here = of(0);
        let partner = if paired { ranks as usize / 2 } else { 1 };
        let elsewhere = (1..ranks as usize).map(of).find(|&there| there != here);
        let there = elsewhere.filter(|_| !paired);
        (here, there.unwrap_or_else(|| of(partner)))
    };
    match pin {
        Bind::List(list) if list.len() >= ranks as usize => Some(pair(&|rank| list[rank])),
        Bind::Core if !cores.is_empty() => match pair(&|rank| rank % cores.len()) {
            // Both ranks may use all hardware threads of one core.
            (one, other) if one == other => {
                let last = cores[one].get(1).or(cores[one].first()).copied();
                first_of(one).zip(last)
            }
            (one, other) => first_of(one).zip(first_of(other)),
        },
        _ => first_two(),
    }
}

/// The processors on which work of others slows the ranks down: those of the ranks, and the other
/// hardware threads of their cores. Empty if the ranks may run anywhere.
pub(super) fn affecting(
    pin: &Bind,
    ranks: u32,
    cores: &[Vec<usize>],
    siblings: impl Fn(usize) -> Vec<usize>,
) -> Vec<usize> {
    let ranks = ranks as usize;
    let of_ranks: Vec<usize> = match pin {
        Bind::None => Vec::new(),
        // The cores are reused in turn if there are more ranks.
        Bind::Core => cores.iter().take(ranks).flatten().copied().collect(),
        Bind::List(list) => list.iter().take(ranks).copied().collect(),
    };
    let mut all: Vec<usize> = of_ranks.iter().copied().flat_map(siblings).collect();
    all.extend(of_ranks);
    all.sort_unstable();
    all.dedup();
    all
}

/// Processes that spin until this is dropped, each with its processor if it has one.
#[derive(Debug, Default)]
pub(super) struct Spinners(Vec<(Child, Option<usize>)>);

impl Spinners {
    /// Starts `count` processes, each on a core; with more processes than cores, the cores are
    /// reused in turn.
    pub(super) fn start(count: u32) -> Result<Self, String> {
        let mut spinners = Self::default();
        let cores = first_processors().unwrap_or_default();
        let program = std::env::current_exe()
            .map_err(|error| format!("cannot find this program's own file: {error}"))?;
        for at in 0..count as usize {
            let mut command = Command::new(&program);
            command.arg("bench-spin");
            let processor = cores.get(at % cores.len().max(1)).copied();
            if let Some(processor) = processor {
                command.arg(processor.to_string());
            }
            command.stdin(Stdio::null());
            os::end_with_this_process(&mut command, libc::SIGKILL);
            let child = command
                .spawn()
                .map_err(|error| format!("cannot start a process that spins: {error}"))?;
            spinners.0.push((child, processor));
        }
        Ok(spinners)
    }

    /// Whether there are no such processes.
    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The time that they have used on the given processors, in seconds. On all processors if none
    /// are given.
    pub(super) fn seconds(&self, processors: &[usize]) -> f64 {
        let of = |child: &Child| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
            seconds(&stat)
        };
        let is_there = |at: &Option<usize>| {
            processors.is_empty() || at.is_none_or(|at| processors.contains(&at))
        };
        let there = self.0.iter().filter(|(_, at)| is_there(at));
        there.filter_map(|(child, _)| of(child)).sum()
    }

    /// The result of `look` while the processes are stopped.
    pub(super) fn while_stopped<T>(&self, look: impl FnOnce() -> T) -> T {
        let all = || {
            self.0
                .iter()
                .filter_map(|(child, _)| i32::try_from(child.id()).ok())
        };
        all().for_each(os::stop);
        let found = look();
        all().for_each(|pid| os::kill(pid, libc::SIGCONT));
        found
    }
}

/// The processor time of a process in seconds, from `/proc/PID/stat`, which counts in hundredths.
fn seconds(stat: &str) -> Option<f64> {
    // The fields are counted after the process's name, which may contain anything. The state is
    // field 3, the times are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11);
    let mut next = || times.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / 100.0)
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // If it has ended already, the error does not matter.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `portolan bench-spin`: other work, in a session of its own, as if another user had started it.
pub(crate) fn spin(processor: Option<usize>) -> ! {
    portolan_benches::process::begin_session();
    if let Some(processor) = processor {
        // If the binding fails, it is other work all the same.
        let _ = portolan_benches::pin(processor);
    }
    loop {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn partners_share_a_core_or_do_not() {
        let cores = [4, 6];
        assert_eq!(Map::Together.spread(2, &cores), [4, 4]);
        assert_eq!(Map::Apart.spread(2, &cores), [4, 6]);
        assert_eq!(Map::Together.spread(4, &cores), [4, 6, 4, 6]);
        assert_eq!(Map::Apart.spread(4, &cores), [4, 6, 6, 4]);
        assert_eq!(Map::Apart.spread(8, &cores), [4, 6, 4, 6, 6, 4, 6, 4]);
    }

    #[test]
    fn the_ends_are_where_rank_0_and_its_partner_are() {
        let cores = [vec![0, 8], vec![1, 9], vec![2], vec![3]];
        let at = |pin: &Bind, ranks, paired| ends(pin, ranks, paired, &cores).unwrap();
        let list = |list: &[usize]| Bind::List(list.to_vec());
        assert_eq!(at(&list(&[0, 32]), 2, true), (0, 32));
        assert_eq!(at(&list(&[5, 5]), 2, true), (5, 5));
        assert_eq!(at(&list(&[4, 4, 6, 6]), 4, true), (4, 6));
        assert_eq!(at(&list(&[4, 6, 4, 6]), 4, true), (4, 4));
        // All ranks talk to all: the measurement is between two processors if there are several.
        assert_eq!(at(&list(&[4, 4, 6, 6]), 4, false), (4, 6));
        assert_eq!(at(&list(&[4, 4]), 2, false), (4, 4));
        assert_eq!(at(&Bind::Core, 2, true), (0, 1));
        assert_eq!(at(&Bind::Core, 4, true), (0, 2));
        assert_eq!(at(&Bind::Core, 8, true), (0, 8), "threads of one core");
        assert_eq!(at(&Bind::Core, 8, false), (0, 1));
        assert_eq!(
            ends(&Bind::Core, 4, true, &[vec![0], vec![1]]),
            Some((0, 0))
        );
        assert_eq!(at(&Bind::None, 8, true), (0, 1));
        assert_eq!(at(&list(&[7]), 1, true), (0, 1));
        assert_eq!(ends(&Bind::None, 2, true, &[vec![3]]), Some((3, 3)));
        assert_eq!(ends(&Bind::Core, 2, true, &[]), None);
    }

    #[test]
    fn ranks_are_slowed_down_on_their_processors_and_on_the_other_threads_of_their_cores() {
        // Processors i and i + 8 are of one core; this process may not use processor 9.
        let cores = [vec![0, 8], vec![1], vec![2, 10]];
        let siblings = |cpu: usize| vec![cpu % 8, cpu % 8 + 8];
        let at = |pin: &Bind, ranks| affecting(pin, ranks, &cores, siblings);
        assert_eq!(at(&Bind::Core, 2), [0, 1, 8, 9]);
        assert_eq!(at(&Bind::Core, 7), [0, 1, 2, 8, 9, 10]);
        assert_eq!(at(&Bind::List(vec![5, 5, 6]), 2), [5, 13]);
        assert!(at(&Bind::None, 2).is_empty());
        // The kernel does not tell.
        let alone = |cpu: usize| vec![cpu];
        assert_eq!(affecting(&Bind::Core, 2, &cores, alone), [0, 1, 8]);
    }

    #[test]
    fn the_time_of_a_process_is_read_as_the_kernel_writes_it() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 90 0 0 0 120 30 0 0 20 0 1 0 5 1 1";
        assert_eq!(seconds(stat), Some(1.5));
        assert_eq!(seconds("7 (a) R 1"), None);
        assert!(Spinners::default().seconds(&[]).abs() < 1e-9);
    }

    /// A process that spins. The test program has no `bench-spin` command, so it starts another
    /// program.
    pub(in crate::bench) fn spinner() -> (Spinners, i32) {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        os::end_with_this_process(&mut command, libc::SIGKILL);
        let child = command.spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        (Spinners(vec![(child, None)]), pid)
    }

    fn is_stopped(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    }

    #[test]
    fn spinners_stand_still_while_somebody_looks_and_end() {
        let (spinners, pid) = spinner();
        assert!(!is_stopped(pid));
        assert!(spinners.while_stopped(|| is_stopped(pid)));
        assert!(!is_stopped(pid));
        assert!(spinners.while_stopped(|| is_stopped(pid)), "once more");
        drop(spinners);
        assert!(os::has_gone(pid));
        assert!(first_processors().is_none_or(|cores| !cores.is_empty()));
    }
}
