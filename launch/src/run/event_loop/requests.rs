//! The ranks' requests, and fences that cannot complete.

use std::time::{Duration, Instant};

use portolan_core::config::OnFailure;

use super::EventLoop;
use crate::os;
use crate::run::pmi::Reaction;
use crate::run::rank::Rank;
use crate::run::stuck::Standing;
use crate::run::verdict::Failure;

/// How long to wait for a process that has begun to exit. If its other threads continue, it never
/// ends.
const DYING: Duration = Duration::from_millis(100);

impl EventLoop {
    pub(super) fn serve(&mut self, rank: usize) {
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

    pub(super) fn act(&mut self, reactions: Vec<Reaction>) {
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
                Reaction::Joins(rank) => self.find_processes(rank),
                Reaction::Abort {
                    rank,
                    code,
                    failed,
                    reason,
                } => {
                    // The rank may abort because it has seen another rank die. Then that other rank
                    // is to blame.
                    self.await_the_dying(rank);
                    self.judge_first(failed);
                    let pid = self.job.ranks[rank as usize].pid;
                    let failure = Failure::abort(rank, pid, code, reason.as_deref());
                    self.fail(failure, Some(rank as usize));
                }
                Reaction::Waits { rank, report } => {
                    self.job.board.take(rank, report, Instant::now());
                }
                Reaction::Violation { rank, why } => {
                    let pid = self.job.ranks[rank as usize].pid;
                    self.job.ranks[rank as usize].pmi = None;
                    self.fail(Failure::violation(rank, pid, &why), Some(rank as usize));
                }
            }
        }
    }

    /// If a script has started the rank, the rank's process is not the launcher's child but a
    /// descendant of it. It is alive now, since it waits for an answer, so it is among the child's
    /// descendants.
    fn find_processes(&mut self, rank: u32) {
        let child = self.job.ranks[rank as usize].pid;
        for pid in os::descendants(child) {
            if let Some(guard) = &self.job.guard {
                guard.tell_of_inner(pid);
            }
            self.inner.push(pid);
        }
    }

    /// Waits for, and handles, the end of processes that are already exiting, except that of
    /// `rank`. Other ranks can see a death, for example by a closed descriptor, a little before the
    /// process can be reaped.
    fn await_the_dying(&mut self, rank: u32) {
        let until = Instant::now() + DYING;
        loop {
            self.reap();
            let mut others = self.job.ranks.iter().filter(|other| other.number != rank);
            let dying = others.any(|other| other.running && os::is_exiting(other.pid));
            if !dying || Instant::now() >= until {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Shows which rank waits for which, if there is news. `last`: the job has taken too long.
    pub(super) fn show_waits(&mut self, last: bool) {
        let server = &self.job.server;
        let standing = |rank: &Rank| match rank.running {
            false => Standing::Ended,
            true if server.is_in_fence(rank.number) => Standing::InFence,
            true => Standing::Running,
        };
        let standings: Vec<_> = self.job.ranks.iter().map(standing).collect();
        let board = &mut self.job.board;
        let picture = match last {
            true => board.show_last(&standings),
            false => board.show(&standings, Instant::now()),
        };
        if let Some(picture) = picture {
            self.job.output.say(&picture);
        }
    }

    /// Handles a fence in which ranks wait for a rank that will never enter it.
    pub(super) fn check_fence(&mut self) {
        let waiting = self.job.server.in_fence();
        self.job.board.watch_fence(waiting, Instant::now());
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
