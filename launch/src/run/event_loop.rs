//! Serves a running job until all of it has ended.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use portolan_core::config::OnFailure;

use super::output::{Output, Stream};
use super::pmi::{Reaction, Server};
use super::rank::Rank;
use super::stdin::Terminal;
use super::verdict::{self, Failure};
use crate::os::{self, Guard, Interest, Signals, Status};

/// Between `SIGTERM` and `SIGKILL`. With the time to notice and to die it stays below a second.
const GRACE: Duration = Duration::from_millis(700);
/// For ranks to say what they wait for, before a job that took too long is ended.
const REPORT: Duration = Duration::from_millis(1000);
/// For output of processes that have left the job and still hold its pipes.
const DRAIN: Duration = Duration::from_millis(500);

/// How often a launcher in the background looks whether it may read the terminal again.
const FOREGROUND: Duration = Duration::from_millis(300);

/// A job whose ranks have been started.
pub(super) struct Job {
    pub(super) ranks: Vec<Rank>,
    pub(super) server: Server,
    pub(super) signals: Signals,
    /// Until the ranks have ended.
    pub(super) guard: Option<Guard>,
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
        let terminal = self.job.terminal.as_ref();
        let background = terminal.filter(|terminal| terminal.interest().is_none());
        clock
            .into_iter()
            .chain(background.map(|_| FOREGROUND))
            .min()
    }
}

/// Processes that end, and signals from outside.
impl EventLoop {
    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = self.job.signals.next()? {
            match signal {
                libc::SIGCHLD => self.reap(),
                libc::SIGTSTP => {
                    self.signal_all(libc::SIGTSTP);
                    os::stop_self();
                }
                libc::SIGTTIN | libc::SIGTTOU => {}
                libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGTERM => self.pass_on(signal),
                other => self.signal_all(other),
            }
        }
        Ok(())
    }

    /// Somebody wants the job to end: politely the first time.
    fn pass_on(&mut self, signal: i32) {
        if matches!(self.phase, Phase::Draining { .. }) {
            // Only output is left, and whoever asks does not want to wait for its reader.
            self.close_pipes();
            self.job.output.discard();
            return;
        }
        if self.passed_on.is_some() {
            self.fail(Failure::killed_on_request(signal), None);
            self.kill_all();
            return;
        }
        self.passed_on = Some(signal);
        self.signal_all(signal);
    }

    fn reap(&mut self) {
        let mut ended = Vec::new();
        while let Some((pid, status)) = os::reap() {
            // Others are the guard and adopted processes.
            if let Some(rank) = self
                .job
                .ranks
                .iter()
                .position(|r| r.running && r.pid == pid)
            {
                self.job.ranks[rank].running = false;
                ended.push((rank, status));
            }
        }
        for &(rank, _) in &ended {
            // What it said before it ended may explain why.
            self.serve(rank);
            self.job.ranks[rank].pmi = None;
            self.job.server.gone(self.job.ranks[rank].number);
        }
        // Of several at once, one that was killed is rather the cause than one that gave up.
        ended.sort_by_key(|(_, status)| matches!(status, Status::Code(_)));
        for (rank, status) in ended {
            self.judge(rank, status);
        }
    }

    fn judge(&mut self, rank: usize, status: Status) {
        let Rank { number, pid, .. } = self.job.ranks[rank];
        let Some(failure) = Failure::of_status(number, pid, status, self.passed_on) else {
            return;
        };
        let ends_job = self.job.on_failure == OnFailure::Abort || self.passed_on.is_some();
        if ends_job || !matches!(self.phase, Phase::Running { .. }) {
            self.fail(failure, Some(rank));
            return;
        }
        let running = self.job.ranks.iter().filter(|rank| rank.running).count();
        let others = match running {
            0 => String::new(),
            1 => "; the other rank goes on (--on-failure return)".to_owned(),
            n => format!("; {} go on (--on-failure return)", verdict::others(n)),
        };
        self.job.output.say(&format!("{}{others}", failure.text));
        self.note(&failure);
    }

    /// The first failure gives the exit code.
    fn note(&mut self, failure: &Failure) {
        if self.code == 0 {
            self.code = failure.code;
        }
    }
}

/// The ranks' requests.
impl EventLoop {
    fn serve(&mut self, rank: usize) {
        let Rank {
            number,
            ref mut pmi,
            ..
        } = self.job.ranks[rank];
        let Some(stream) = pmi else { return };
        let (lines, open) = stream.receive();
        let mut reactions = Vec::new();
        while let Some(line) = lines.next_line() {
            let broken = line.is_err();
            reactions.extend(self.job.server.line(number, line));
            if broken {
                break;
            }
        }
        self.act(reactions);
        if !open {
            self.job.ranks[rank].pmi = None;
        }
    }

    fn act(&mut self, reactions: Vec<Reaction>) {
        for reaction in reactions {
            match reaction {
                Reaction::Reply(rank, message) => {
                    let rank = &mut self.job.ranks[rank as usize];
                    if rank
                        .pmi
                        .as_mut()
                        .is_some_and(|pmi| pmi.send(&message).is_err())
                    {
                        rank.pmi = None;
                    }
                }
                Reaction::Abort { rank, code, reason } => {
                    // A rank may abort because it has seen another die: that one is the culprit.
                    self.reap();
                    let pid = self.job.ranks[rank as usize].pid;
                    let failure = Failure::abort(rank, pid, code, reason.as_deref());
                    self.fail(failure, Some(rank as usize));
                }
                Reaction::Violation { rank, why } => {
                    let pid = self.job.ranks[rank as usize].pid;
                    self.job.ranks[rank as usize].pmi = None;
                    self.fail(Failure::violation(rank, pid, &why), Some(rank as usize));
                }
            }
        }
    }

    /// A fence in which ranks wait for one that will not come.
    fn check_fence(&mut self) {
        let Some(stuck) = self.job.server.stuck_fence() else {
            return;
        };
        if self.job.on_failure == OnFailure::Return {
            let told = self.job.server.fail_fence(stuck.missing);
            self.act(told);
        } else {
            let pid = self.job.ranks[stuck.missing as usize].pid;
            self.fail(Failure::missing(&stuck, pid), Some(stuck.missing as usize));
        }
    }
}

/// The end of the job.
impl EventLoop {
    /// Ends the job because of this failure, unless it is ending already.
    fn fail(&mut self, failure: Failure, culprit: Option<usize>) {
        if !matches!(self.phase, Phase::Running { .. } | Phase::Reporting { .. }) {
            return;
        }
        let others = (0..)
            .zip(&self.job.ranks)
            .filter(|(i, r)| r.running && Some(*i) != culprit);
        let others = others.count();
        self.note(&failure);
        self.last_words = Some(match (others, culprit) {
            (0, _) => failure.text,
            (1, None) => format!("{}; ended it", failure.text),
            (n, None) => format!("{}; ended all {n} ranks", failure.text),
            (n, Some(_)) => format!("{}; ended {}", failure.text, verdict::others(n)),
        });
        self.signal_all(libc::SIGTERM);
        // A stopped process gets SIGTERM when it runs again.
        self.signal_all(libc::SIGCONT);
        self.phase = Phase::Ending {
            kill_at: Some(Instant::now() + GRACE),
        };
    }

    fn check_clock(&mut self) {
        let now = Instant::now();
        match self.phase {
            Phase::Running {
                timeout: Some(timeout),
            } if timeout <= now => self.ask_for_reports(now),
            Phase::Reporting { until } if until <= now => self.time_out(),
            Phase::Ending {
                kill_at: Some(kill_at),
            } if kill_at <= now => self.kill_all(),
            Phase::Draining { until } if until <= now => self.stop_draining(now),
            _ => {}
        }
        let ended = self.job.ranks.iter().all(|rank| !rank.running);
        if ended && !matches!(self.phase, Phase::Draining { .. }) {
            self.clean_up(now);
        }
    }

    /// Asks ranks that can to say what they wait for.
    fn ask_for_reports(&mut self, now: Instant) {
        let running = self.job.ranks.iter().filter(|rank| rank.running);
        let able: Vec<_> = running
            .filter(|rank| os::catches(rank.pid, libc::SIGUSR1))
            .collect();
        for rank in &able {
            os::kill(rank.pid, libc::SIGUSR1);
        }
        if able.is_empty() {
            self.time_out();
        } else {
            self.phase = Phase::Reporting {
                until: now + REPORT,
            };
        }
    }

    fn time_out(&mut self) {
        let running = self.job.ranks.iter().filter(|rank| rank.running);
        let running: Vec<_> = running.map(|rank| rank.number).collect();
        let seconds = self.job.timeout.unwrap_or_default().as_secs_f64();
        self.fail(Failure::timeout(seconds, &running), None);
    }

    /// To the group of the ranks, and to ranks that have left it.
    fn signal_all(&self, signal: i32) {
        let Some(guard) = &self.job.guard else { return };
        os::kill_group(guard.group(), signal);
        for rank in self.job.ranks.iter().filter(|rank| rank.running) {
            if os::group_of(rank.pid) != Some(guard.group()) {
                os::kill(rank.pid, signal);
            }
        }
    }

    fn kill_all(&mut self) {
        self.signal_all(libc::SIGKILL);
        self.phase = Phase::Ending { kill_at: None };
    }

    /// All ranks have ended: ends what they have left, and says what there is to say.
    fn clean_up(&mut self, now: Instant) {
        self.job.guard.take().into_iter().for_each(Guard::finish);
        // A killed process hands its own children over, so look again until there are none. The
        // limit is for a kernel that refuses the signal: there is nothing more to be done then.
        for _ in 0..64 {
            let left = os::adopted_children();
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(os::kill_and_wait);
        }
        self.job.terminal = None;
        if let Some(text) = self.last_words.take() {
            self.job.output.say(&text);
        }
        self.phase = Phase::Draining { until: now + DRAIN };
    }

    /// Somebody outside the job holds its pipes open, or its output is read slowly.
    fn stop_draining(&mut self, now: Instant) {
        if [Stream::Out, Stream::Err]
            .into_iter()
            .all(|stream| self.job.output.has_room(stream))
        {
            self.close_pipes();
        } else {
            self.phase = Phase::Draining { until: now + DRAIN };
        }
    }

    fn close_pipes(&mut self) {
        for pipe in self.job.ranks.iter_mut().flat_map(|rank| &mut rank.pipes) {
            pipe.close(&mut self.job.output);
        }
    }
}
