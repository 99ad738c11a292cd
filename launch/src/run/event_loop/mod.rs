//! Serves a running job until all of it has ended.
//!
//! Here is the loop itself; what it does about processes, requests and the end is in its parts.

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
use crate::os::{self, Guard, Interest, Signals};

/// How often a launcher in the background looks whether it may read the terminal again.
const FOREGROUND: Duration = Duration::from_millis(300);

/// A job whose ranks have been started.
pub(super) struct Job {
    pub(super) ranks: Vec<Rank>,
    pub(super) server: Server,
    pub(super) board: Board,
    pub(super) signals: Signals,
    /// Until the ranks have ended.
    pub(super) guard: Option<Guard>,
    pub(super) strangers: Strangers,
    pub(super) output: Output,
    pub(super) terminal: Option<Terminal>,
    pub(super) on_failure: OnFailure,
    pub(super) timeout: Option<Duration>,
}

/// Serves the job to its end; the result is the launcher's exit code.
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
        inner: Vec::new(),
    };
    while !state.is_over() {
        if let Err(error) = state.turn() {
            // Without `poll` nothing can be served; the guard ends what runs.
            state.job.guard.take().into_iter().for_each(Guard::finish);
            verdict::say(&format!("cannot watch the job any more: {error}"));
            return 125;
        }
    }
    state.code
}

/// What the launcher is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The ranks run, with all the time there is or until then.
    Running { timeout: Option<Instant> },
    /// They took too long, and have until then to say what they wait for.
    Reporting { until: Instant },
    /// They have been told to end, and are killed at that time.
    Ending { kill_at: Option<Instant> },
    /// They have ended; the rest of their output is awaited.
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
    /// That of the first failure; 0 while there is none.
    code: u8,
    /// Why the job was ended, to be said when it has.
    last_words: Option<String>,
    /// The last signal from outside that asks for the end, passed on to the ranks.
    passed_on: Option<i32>,
    /// Processes that ranks' scripts have started, by whose numbers what they leave is found.
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
        // Ends of processes first: what they explain is not blamed on others.
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

    /// How long nothing has to be done unless something happens.
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
