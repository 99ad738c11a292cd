//! Serves a running job until all of it has ended.
//!
//! This file has the loop itself. Its submodules handle processes, requests and the end.

mod ending;
mod processes;
mod requests;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use portolan_core::config::OnFailure;

use super::output::{Output, Stream};
use super::pmi::Server;
use super::rank::Rank;
use super::stdin::Terminal;
use super::strangers::Strangers;
use super::stuck::Board;
use super::verdict::{self, Failure};
use crate::os::{self, Guard, Interest, Signals, Status};

/// How often a launcher in the background checks whether it may read the terminal again.
const FOREGROUND: Duration = Duration::from_millis(300);

/// A job whose ranks have been started.
pub(super) struct Job {
    pub(super) ranks: Vec<Rank>,
    pub(super) server: Server,
    pub(super) board: Board,
    pub(super) signals: Signals,
    /// `None` once the ranks have ended.
    pub(super) guard: Option<Guard>,
    pub(super) strangers: Strangers,
    pub(super) output: Output,
    pub(super) terminal: Option<Terminal>,
    pub(super) on_failure: OnFailure,
    pub(super) timeout: Option<Duration>,
}

/// Serves the job to its end and returns the launcher's exit code.
pub(super) fn run(job: Job) -> u8 {
    let timeout = job
        .timeout
        .and_then(|time| Instant::now().checked_add(time));
    let phase = Phase::Running { timeout };
    let mut state = EventLoop {
        job,
        phase,
        code: 0,
        last_words: None,
        passed_on: None,
        ended: Vec::new(),
        inner: Vec::new(),
    };
    while !state.is_over() {
        if let Err(error) = state.turn() {
            // Without `poll` nothing can be served. The guard ends the processes that still run.
            state.job.guard.take().into_iter().for_each(Guard::finish);
            verdict::say(&format!("cannot watch the job any more: {error}"));
            return 125;
        }
    }
    state.code
}

/// The state of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The ranks run, without a time limit or until `timeout`.
    Running { timeout: Option<Instant> },
    /// The ranks took too long. They have until `until` to report what they wait for.
    Reporting { until: Instant },
    /// The ranks have been told to end, and are killed at `kill_at`; `None` if that has happened.
    Ending { kill_at: Option<Instant> },
    /// The ranks have ended. The rest of their output is awaited until `until`.
    Draining { until: Instant },
}

/// Something that `poll` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Pmi(usize),
    Pipe(usize, usize),
    Sink(Stream),
    Terminal,
}

struct EventLoop {
    job: Job,
    phase: Phase,
    /// The exit code of the first failure; 0 if there is none.
    code: u8,
    /// The reason why the job was ended, printed after its end.
    last_words: Option<String>,
    /// The last signal from outside that asked for the end, which has been passed on to the ranks.
    passed_on: Option<i32>,
    /// Ranks that have ended and are still to be judged.
    ended: Vec<(usize, Status)>,
    /// Processes that ranks' scripts have started. Files that they leave behind are found by pid.
    inner: Vec<i32>,
}

impl EventLoop {
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
            && self
                .job
                .ranks
                .iter()
                .all(|rank| rank.pipes.iter().all(|pipe| pipe.fd().is_none()))
            && self.job.output.waiting().next().is_none()
    }

    fn turn(&mut self) -> io::Result<()> {
        let ready = os::poll(&self.watched(), self.patience())?;
        // Ends of processes come first, so that a failure is blamed on the process that died and
        // not on the ranks that noticed it.
        if ready.contains(&Source::Signals) {
            self.take_signals()?;
        }
        for source in ready {
            match source {
                Source::Signals => {}
                Source::Pmi(rank) => self.serve(rank),
                Source::Pipe(rank, pipe) => {
                    self.job.ranks[rank].pipes[pipe].read_some(&mut self.job.output);
                }
                Source::Sink(stream) => self.write_some(stream),
                Source::Terminal => {
                    self.job.terminal = self.job.terminal.take().and_then(Terminal::turn);
                }
            }
        }
        self.check_fence();
        self.check_clock();
        Ok(())
    }

    fn write_some(&mut self, stream: Stream) {
        self.job.output.sink(stream).write_some();
        if let Some(error) = self.job.output.take_error() {
            let failure = Failure::launcher(&format!("cannot write the ranks' output: {error}"));
            self.job.output.say(&failure.text);
            self.note(&failure);
        }
    }

    fn watched(&self) -> Vec<(BorrowedFd<'_>, Interest, Source)> {
        let job = &self.job;
        let mut watched = vec![(job.signals.fd(), Interest::Read, Source::Signals)];
        for (i, rank) in job.ranks.iter().enumerate() {
            watched.extend(
                rank.pmi
                    .as_ref()
                    .map(|pmi| (pmi.fd(), Interest::Read, Source::Pmi(i))),
            );
            for (k, pipe) in rank.pipes.iter().enumerate() {
                let readable = pipe.fd().filter(|_| job.output.has_room(pipe.stream));
                watched.extend(readable.map(|fd| (fd, Interest::Read, Source::Pipe(i, k))));
            }
        }
        let sinks = job.output.waiting();
        watched.extend(sinks.map(|(fd, stream)| (fd, Interest::Write, Source::Sink(stream))));
        let terminal = job.terminal.as_ref().and_then(Terminal::interest);
        watched.extend(terminal.map(|(fd, interest)| (fd, interest, Source::Terminal)));
        watched
    }

    /// How long the loop may wait if no event occurs.
    fn patience(&self) -> Option<Duration> {
        let until = match self.phase {
            Phase::Running { timeout } => timeout,
            Phase::Reporting { until } | Phase::Draining { until } => Some(until),
            Phase::Ending { kill_at } => kill_at,
        };
        let clock = until.map(|until| until.saturating_duration_since(Instant::now()));
        let picture = self.job.board.due();
        let picture = picture.map(|due| due.saturating_duration_since(Instant::now()));
        let terminal = self.job.terminal.as_ref();
        let background = terminal.filter(|terminal| terminal.interest().is_none());
        clock
            .into_iter()
            .chain(background.map(|_| FOREGROUND))
            .chain(picture)
            .min()
    }
}
