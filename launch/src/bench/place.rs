//! Where ranks run, and what else does.

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

    /// The processor of each of `ranks` ranks, of which rank *i* of the first half and rank *i* of
    /// the second are partners; `None` if the cores are not known.
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

/// A processor of each core.
fn first_processors() -> Option<Vec<usize>> {
    let cores = run::cores().ok()?;
    let firsts: Vec<_> = cores
        .iter()
        .filter_map(|core| core.first().copied())
        .collect();
    (!firsts.is_empty()).then_some(firsts)
}

/// Processes that only spin, until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Spinners(Vec<Child>);

impl Spinners {
    /// Starts so many, each on a core, in turn.
    pub(super) fn start(count: u32) -> Result<Self, String> {
        let mut spinners = Self::default();
        let cores = first_processors().unwrap_or_default();
        let program = std::env::current_exe()
            .map_err(|error| format!("cannot find this program's own file: {error}"))?;
        for at in 0..count as usize {
            let mut command = Command::new(&program);
            command.arg("bench-spin");
            if let Some(&processor) = cores.get(at % cores.len().max(1)) {
                command.arg(processor.to_string());
            }
            command.stdin(Stdio::null());
            os::end_with_this_process(&mut command);
            let child = command
                .spawn()
                .map_err(|error| format!("cannot start a process that spins: {error}"))?;
            spinners.0.push(child);
        }
        Ok(spinners)
    }

    /// Whether there are none.
    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// What `look` finds while they do nothing.
    pub(super) fn while_stopped<T>(&self, look: impl FnOnce() -> T) -> T {
        let all = || {
            self.0
                .iter()
                .filter_map(|child| i32::try_from(child.id()).ok())
        };
        all().for_each(os::stop);
        let found = look();
        all().for_each(|pid| os::kill(pid, libc::SIGCONT));
        found
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Whether it is there or has gone already, it is not there afterwards.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `portolan bench-spin`: other work, in a session of its own, as another user's would be.
pub(crate) fn spin(processor: Option<usize>) -> ! {
    portolan_benches::process::begin_session();
    if let Some(processor) = processor {
        // Elsewhere it is other work, too.
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

    /// A process that spins: the tests' own program has no command that does.
    pub(in crate::bench) fn spinner() -> (Spinners, i32) {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        os::end_with_this_process(&mut command);
        let child = command.spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        (Spinners(vec![child]), pid)
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
