//! Which options a kind of measurement has. An option that it does not have would be ignored, and
//! the output would say that it was followed, so it is refused.

use portolan_benches::{Axis, Pattern};

use super::args::{BenchArgs, BenchKind};

/// Upper limit of the entries that wait. Each has a tag of its own, and some MPI implementations
/// have no more tags than this.
const MOST_WAITING: usize = 100_000_000;

impl BenchArgs {
    /// The number of ranks to start, or an error that names the arguments that make no sense.
    pub(super) fn ranks(&self) -> Result<u32, String> {
        let usual = match self.kind {
            BenchKind::Of(Pattern::Barrier) => 8,
            BenchKind::Failure => 4,
            BenchKind::Of(Pattern::Startup | Pattern::MemoryRing | Pattern::MemoryAll) => 64,
            _ => 2,
        };
        let name = self.kind.name();
        let ranks = self.pairs.map(|pairs| 2 * pairs).or(self.ranks);
        let ranks = ranks.unwrap_or(usual);
        if ranks < 2 {
            return Err(format!(
                "{name} needs two ranks or more, not {ranks}: use --ranks 2"
            ));
        }
        self.check_launcher()?;
        self.check_sizes()?;
        if matches!(self.kind, BenchKind::Failure | BenchKind::Tune) {
            self.check_plain()?;
        }
        self.check_rounds()?;
        self.check_buffers()?;
        if let Some(pin) = &self.pin {
            // Otherwise the launcher would refuse it, after the machine has been measured.
            pin.plan(ranks, "--pin")?;
        }
        Ok(ranks)
    }

    /// Refuses the options that failures and the choice of algorithms do not have.
    fn check_plain(&self) -> Result<(), String> {
        let tune = self.kind == BenchKind::Tune;
        let given = [
            (self.peers, "is not compared", "--peers"),
            (self.map.is_some(), "does not map partners", "--map"),
            (self.busy > 0, "has no other work alongside", "--busy"),
            (tune && self.report.is_some(), "makes no report", "--report"),
            (tune && self.json, "prints a table of rules", "--json"),
        ];
        let name = self.kind.name();
        if let Some((_, why, option)) = given.iter().find(|(given, ..)| *given) {
            return Err(format!("{name} {why}: leave {option} out"));
        }
        if tune && self.transport.len() > 1 {
            return Err(format!(
                "{name} makes the table of one transport: name one with --transport"
            ));
        }
        Ok(())
    }

    /// Refuses another launcher for what can run as one of its jobs, and one without a name.
    fn check_launcher(&self) -> Result<(), String> {
        match &self.launcher {
            Some(command) if self.kind != BenchKind::Tune => {
                let name = self.kind.name();
                Err(format!(
                    "{name} is measured in one job: start `{command} -n N portolan bench {name}` instead of \
                     giving --launcher"
                ))
            }
            Some(_) if self.launcher().is_empty() => Err(
                "--launcher names no command: use --launcher \"mpiexec -hosts a,b -ppn 8\""
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// Refuses arguments that make no sense in a job that a launcher has started: there this
    /// command is a rank, and starts nothing.
    pub(super) fn check_in_a_job(&self) -> Result<(), String> {
        let given = [
            ("--ranks", self.ranks.is_some()),
            ("--pairs", self.pairs.is_some()),
            ("--transport", !self.transport.is_empty()),
            ("--pin", self.pin.is_some()),
            ("--map", self.map.is_some()),
            ("--launcher", self.launcher.is_some()),
            ("--busy", self.busy > 0),
            ("--peers", self.peers),
            ("--report", self.report.is_some()),
            ("--dry-run", self.dry_run),
        ];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            let instead = match *option {
                "--transport" => "set PORTOLAN_TRANSPORT",
                _ => "leave it out",
            };
            return Err(format!(
                "{option} is for jobs that this command starts, and a launcher has started this one: {instead}, or \
                 start this without a launcher"
            ));
        }
        self.check_sizes()?;
        self.check_rounds()?;
        self.check_buffers()
    }

    /// Refuses sizes that this kind cannot have.
    fn check_sizes(&self) -> Result<(), String> {
        let name = self.kind.name();
        let axis = match self.kind {
            BenchKind::Collectives(_) | BenchKind::Tune => Axis::Bytes,
            kind => kind.pattern().map_or(Axis::None, Pattern::axis),
        };
        if axis == Axis::None && !self.sizes.is_empty() {
            return Err(format!("{name} has no sizes: leave --sizes out"));
        }
        let drains = matches!(
            self.kind,
            BenchKind::Of(Pattern::DrainReverse | Pattern::DrainRandom)
        );
        if drains && self.sizes.contains(&0) {
            return Err(format!("{name} of no messages has no time: use --sizes 10"));
        }
        let most = self.sizes.iter().copied().max().unwrap_or(0);
        if axis == Axis::Waiting && most > MOST_WAITING {
            return Err(format!(
                "no more than {MOST_WAITING} can wait, and not {most}: use smaller --sizes"
            ));
        }
        Ok(())
    }

    /// Refuses the options about rounds, windows and threads that this kind does not have.
    fn check_rounds(&self) -> Result<(), String> {
        use Pattern::{Idle, MemoryAll, MemoryRing, Multithread, Startup};
        let pattern = self.kind.pattern();
        // One event is a sample.
        let once = self.kind == BenchKind::Failure
            || matches!(pattern, Some(Startup | MemoryRing | MemoryAll));
        let idle = pattern == Some(Idle);
        let windows = pattern.is_some_and(Pattern::has_windows);
        let threads = pattern == Some(Multithread);
        let needless = [
            (
                self.iterations.is_some() && (once || idle),
                "has no rounds",
                "--iterations",
            ),
            (
                self.seconds.is_some() && once,
                "has no rounds that take long",
                "--seconds",
            ),
            (
                self.window.is_some() && !windows,
                "has no windows of messages",
                "--window",
            ),
            (
                self.threads.is_some() && !threads,
                "has one thread in a rank",
                "--threads",
            ),
        ];
        let name = self.kind.name();
        match needless.iter().find(|(given, ..)| *given) {
            Some((_, why, option)) => Err(format!("{name} {why}: leave {option} out")),
            None => Ok(()),
        }
    }

    /// Refuses more buffers than a window has messages, or fewer where each needs one, and buffers
    /// of the library or on GPUs where there is no choice.
    fn check_buffers(&self) -> Result<(), String> {
        self.check_cuda()?;
        if self.alloc && !self.kind.pattern().is_some_and(Pattern::allocates) {
            let name = self.kind.name();
            return Err(format!(
                "{name} has no buffers that the library could allocate: leave --alloc out"
            ));
        }
        let (buffers, window) = (self.buffers(), self.window());
        let windows = self.kind.pattern().is_some_and(Pattern::has_windows);
        if self.scope && !windows {
            let name = self.kind.name();
            return Err(format!(
                "{name} has no windows, which could be scopes: leave --scope out"
            ));
        }
        if self.scope && buffers < window {
            return Err(format!(
                "the {window} messages of a scope have a buffer each, and cannot use {buffers}: leave --buffers out"
            ));
        }
        if buffers > 1 && !windows {
            let name = self.kind.name();
            return Err(format!(
                "{name} has no windows, whose messages would use several buffers: leave --buffers out"
            ));
        }
        if buffers > window {
            return Err(format!(
                "the {window} messages of a window cannot use {buffers} buffers: use --buffers {window}, \
                 or a larger --window"
            ));
        }
        Ok(())
    }

    /// Refuses buffers on GPUs for what cannot have them.
    fn check_cuda(&self) -> Result<(), String> {
        if !self.cuda {
            return Ok(());
        }
        if !self.kind.pattern().is_some_and(Pattern::has_gpu_buffers) {
            let name = self.kind.name();
            return Err(format!(
                "{name} has no buffers that could be on a GPU: leave --cuda out"
            ));
        }
        if self.peers {
            return Err(
                "the peers' programs have their buffers in the host's memory: leave --peers or --cuda out"
                    .to_owned(),
            );
        }
        Ok(())
    }
}
