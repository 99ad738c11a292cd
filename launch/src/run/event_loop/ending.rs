//! The end of the job: asking for it, enforcing it, cleaning up afterwards.

use std::time::{Duration, Instant};

use super::{EventLoop, Phase};
use crate::os::{self, Guard};
use crate::run::leftovers;
use crate::run::output::Stream;
use crate::run::verdict::{self, Failure};

/// Time between `SIGTERM` and `SIGKILL`. With the time to notice the failure and to die, the end of
/// a job takes less than a second.
const GRACE: Duration = Duration::from_millis(700);
/// Time for ranks to report what they wait for, before a job that took too long is ended.
const REPORT: Duration = Duration::from_millis(1000);
/// Time for output of processes that have left the job and still hold its pipes.
const DRAIN: Duration = Duration::from_millis(500);

impl EventLoop {
    /// Ends the job because of this failure, unless it is ending already.
    pub(super) fn fail(&mut self, failure: Failure, culprit: Option<usize>) {
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
        // A stopped process handles SIGTERM only after it continues.
        self.signal_all(libc::SIGCONT);
        self.phase = Phase::Ending {
            kill_at: Some(Instant::now() + GRACE),
        };
    }

    pub(super) fn check_clock(&mut self) {
        let now = Instant::now();
        if self.job.board.due().is_some_and(|due| due <= now) {
            self.show_waits(false);
        }
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

    /// Asks the ranks that have a handler for it to report what they wait for.
    pub(super) fn ask_for_reports(&mut self, now: Instant) {
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

    pub(super) fn time_out(&mut self) {
        self.show_waits(true);
        let running = self.job.ranks.iter().filter(|rank| rank.running);
        let running: Vec<_> = running.map(|rank| rank.number).collect();
        let seconds = self.job.timeout.unwrap_or_default().as_secs_f64();
        self.fail(Failure::timeout(seconds, &running), None);
    }

    /// Sends a signal to the group of the ranks, and to ranks that have left the group.
    pub(super) fn signal_all(&self, signal: i32) {
        let Some(guard) = &self.job.guard else { return };
        os::kill_group(guard.group(), signal);
        for rank in self.job.ranks.iter().filter(|rank| rank.running) {
            if os::group_of(rank.pid) != Some(guard.group()) {
                os::kill(rank.pid, signal);
            }
        }
    }

    pub(super) fn kill_all(&mut self) {
        self.signal_all(libc::SIGKILL);
        self.phase = Phase::Ending { kill_at: None };
    }

    /// After all ranks have ended: ends the processes that they have left behind, and prints the
    /// final message.
    pub(super) fn clean_up(&mut self, now: Instant) {
        self.job.guard.take().into_iter().for_each(Guard::finish);
        // Children of a killed process become children of this one, so it looks again until there
        // are none. The number of attempts is limited in case the kernel refuses the signal, where
        // nothing more can be done.
        for _ in 0..64 {
            let mut left = os::adopted_children();
            left.retain(|&pid| !self.job.strangers.have(pid));
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(os::kill_and_wait);
        }
        let mut pids = std::mem::take(&mut self.inner);
        pids.extend(self.job.ranks.iter().map(|rank| rank.pid));
        leftovers::remove(&pids);
        self.job.terminal = None;
        if let Some(text) = self.last_words.take() {
            self.job.output.say(&text);
        }
        self.phase = Phase::Draining { until: now + DRAIN };
    }

    /// Called when the time for output is over: either a process outside the job holds its pipes
    /// open, or the output is read slowly. In the latter case the launcher waits on.
    pub(super) fn stop_draining(&mut self, now: Instant) {
        if [Stream::Out, Stream::Err]
            .into_iter()
            .all(|stream| self.job.output.has_room(stream))
        {
            self.close_pipes();
        } else {
            self.phase = Phase::Draining { until: now + DRAIN };
        }
    }

    pub(super) fn close_pipes(&mut self) {
        for pipe in self.job.ranks.iter_mut().flat_map(|rank| &mut rank.pipes) {
            pipe.close(&mut self.job.output);
        }
    }
}
