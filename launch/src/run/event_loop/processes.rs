//! Processes that end, and signals from outside.

use std::io;

use portolan_core::config::OnFailure;

use super::{EventLoop, Phase};
use crate::os::{self, Status};
use crate::run::rank::Rank;
use crate::run::verdict::{self, Failure};

impl EventLoop {
    pub(super) fn take_signals(&mut self) -> io::Result<()> {
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

    /// Somebody wants the job to end. The first signal is passed on to the ranks; the second kills
    /// them.
    pub(super) fn pass_on(&mut self, signal: i32) {
        if matches!(self.phase, Phase::Draining { .. }) {
            // Only output is left, and the user does not want to wait for its reader.
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

    pub(super) fn reap(&mut self) {
        // Those that are about to be judged already, if this is called meanwhile.
        let before = self.ended.len();
        while let Some((pid, status)) = os::reap() {
            // Other pids are those of the guard and of adopted processes.
            if let Some(rank) = self
                .job
                .ranks
                .iter()
                .position(|r| r.running && r.pid == pid)
            {
                self.job.ranks[rank].running = false;
                self.ended.push((rank, status));
            }
            self.job.strangers.forget(pid);
        }
        // If several have ended at once, a rank that was killed is more likely the cause than one
        // that exited. It is judged first, before the messages of the others are read.
        let by_itself = |(_, status): &(_, Status)| matches!(status, Status::Code(_));
        self.ended[before..].sort_by_key(by_itself);
        while self.ended.len() > before {
            self.conclude(before);
        }
    }

    /// Judges the rank at this place among those that have ended.
    fn conclude(&mut self, place: usize) {
        let (rank, status) = self.ended.remove(place);
        // The last messages of the rank may explain why it ended.
        self.serve(rank);
        self.job.ranks[rank].pmi = None;
        let number = self.job.ranks[rank].number;
        self.job.server.gone(number);
        self.job.board.forget(number);
        self.judge(rank, status);
    }

    /// If this rank has ended together with the one that is being judged, it is judged first: the
    /// other one has asked for the job's end because of its failure.
    pub(super) fn judge_first(&mut self, failed: Option<u32>) {
        let ranks = &self.job.ranks;
        let is_it = |&(rank, _): &(usize, Status)| Some(ranks[rank].number) == failed;
        if let Some(place) = self.ended.iter().position(is_it) {
            self.conclude(place);
        }
    }

    pub(super) fn judge(&mut self, rank: usize, status: Status) {
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
    pub(super) fn note(&mut self, failure: &Failure) {
        if self.code == 0 {
            self.code = failure.code;
        }
    }
}
