//! Ranks inside one process: threads, or one thread that steps all of them.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::single::unique_id;
use super::{Bootstrap, JobError, pmi1};

/// The `n` bootstraps of a job whose ranks are threads of this process; [`Bootstrap::fence`]
/// blocks.
///
/// # Panics
/// If `n` is zero.
#[must_use]
pub fn in_process(n: u32) -> Vec<Box<dyn Bootstrap>> {
    InProcess::new(n).bootstraps()
}

/// The `n` bootstraps of a job whose ranks are all stepped by one thread: [`Bootstrap::fence`] does
/// not wait.
///
/// The thread makes the ranks one after the other. A key that no rank has put *yet* gives
/// [`JobError::KeyMissing`], so a rank that needs another rank's key must ask for it later.
///
/// # Panics
/// If `n` is zero.
#[must_use]
pub fn stepwise(n: u32) -> Vec<Box<dyn Bootstrap>> {
    InProcess::new(n).stepwise().bootstraps()
}

/// Describes a job inside this process; [`bootstraps`](Self::bootstraps) makes its ranks.
///
/// ```
/// use portolan_core::job::{Bootstrap, InProcess};
///
/// let mut ranks = InProcess::new(2).stepwise().bootstraps();
/// ranks[0].put("colour", "blue").unwrap();
/// ranks[0].fence().unwrap(); // does not wait for rank 1
/// assert_eq!(ranks[1].get("colour").unwrap(), "blue");
/// assert_eq!(ranks[1].kind(), "in one thread");
/// ```
pub struct InProcess {
    size: u32,
    stepwise: bool,
    handed_over: HashMap<String, OwnedFd>,
}

impl InProcess {
    /// A job of `n` threads.
    ///
    /// # Panics
    /// If `n` is zero.
    #[must_use]
    pub fn new(n: u32) -> Self {
        assert!(n > 0, "a job has at least one rank");
        Self {
            size: n,
            stepwise: false,
            handed_over: HashMap::new(),
        }
    }

    /// One thread steps all ranks: fences do not wait.
    #[must_use]
    pub fn stepwise(mut self) -> Self {
        self.stepwise = true;
        self
    }

    /// Hands a descriptor to every rank, as a launcher hands the job's shared memory to its
    /// processes.
    ///
    /// The descriptor is closed with the last of the job's bootstraps.
    #[must_use]
    pub fn hand_over(mut self, what: &str, descriptor: OwnedFd) -> Self {
        self.handed_over.insert(what.to_owned(), descriptor);
        self
    }

    /// One bootstrap per rank, in rank order.
    #[must_use]
    pub fn bootstraps(self) -> Vec<Box<dyn Bootstrap>> {
        let shared = Arc::new(Shared {
            size: self.size,
            stepwise: self.stepwise,
            job_id: unique_id("threads"),
            handed_over: self.handed_over,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        let rank = |rank| Rank {
            rank,
            shared: Arc::clone(&shared),
            finalized: false,
        };
        (0..self.size)
            .map(|r| Box::new(rank(r)) as Box<dyn Bootstrap>)
            .collect()
    }
}

/// State shared by the ranks of one job.
struct Shared {
    size: u32,
    stepwise: bool,
    job_id: String,
    handed_over: HashMap<String, OwnedFd>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    keys: HashMap<String, String>,
    /// Number of ranks that wait in the current fence.
    arrived: u32,
    /// Number of fences completed. A rank that waits leaves when this has changed.
    fences: u64,
    /// The first rank that left, by `finalize` or by being dropped. After that, no fence can
    /// complete.
    gone: Option<u32>,
    aborted: Option<(u32, i32, String)>,
}

struct Rank {
    rank: u32,
    shared: Arc<Shared>,
    finalized: bool,
}

impl Rank {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every statement, so a rank that panicked with the lock held
        // has left nothing half done.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, state: &State) -> Result<(), JobError> {
        if self.finalized {
            return Err(JobError::Finalized { rank: self.rank });
        }
        match &state.aborted {
            Some((by, code, message)) => Err(JobError::Aborted {
                rank: self.rank,
                by: *by,
                code: *code,
                message: message.clone(),
            }),
            None => Ok(()),
        }
    }

    fn leave(&mut self) {
        if !self.finalized {
            self.finalized = true;
            self.state().gone.get_or_insert(self.rank);
            self.shared.changed.notify_all();
        }
    }
}

impl Bootstrap for Rank {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.shared.size
    }

    fn job_id(&self) -> &str {
        &self.shared.job_id
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        pmi1::check_key(self.rank, key)?;
        let mut state = self.state();
        self.check(&state)?;
        if state.keys.contains_key(key) {
            return Err(JobError::DuplicateKey {
                rank: self.rank,
                key: key.to_owned(),
            });
        }
        state.keys.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<String, JobError> {
        let state = self.state();
        self.check(&state)?;
        let missing = || JobError::KeyMissing {
            rank: self.rank,
            key: key.to_owned(),
        };
        state.keys.get(key).cloned().ok_or_else(missing)
    }

    fn fence(&mut self) -> Result<(), JobError> {
        let mut state = self.state();
        self.check(&state)?;
        if self.shared.stepwise {
            return Ok(());
        }
        if let Some(gone) = state.gone {
            // That rank will not come to this fence.
            return Err(JobError::RankGone {
                rank: self.rank,
                gone,
            });
        }
        let mine = state.fences;
        state.arrived += 1;
        if state.arrived == self.shared.size {
            state.arrived = 0;
            state.fences += 1;
            self.shared.changed.notify_all();
            return Ok(());
        }
        // A rank may leave as soon as its own fence is complete, so check the count first.
        while state.fences == mine {
            self.check(&state)?;
            if let Some(gone) = state.gone {
                return Err(JobError::RankGone {
                    rank: self.rank,
                    gone,
                });
            }
            state = self
                .shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn abort(&mut self, code: i32, message: &str) {
        self.state()
            .aborted
            .get_or_insert_with(|| (self.rank, code, message.to_owned()));
        self.shared.changed.notify_all();
    }

    fn finalize(&mut self) -> Result<(), JobError> {
        self.leave();
        Ok(())
    }

    fn inherited(&self, what: &str) -> Option<RawFd> {
        self.shared.handed_over.get(what).map(AsRawFd::as_raw_fd)
    }

    fn kind(&self) -> &'static str {
        if self.shared.stepwise {
            "in one thread"
        } else {
            "threads"
        }
    }
}

impl Drop for Rank {
    /// A thread that panics takes its rank out of the job, so that the others do not wait for ever.
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn on_threads<R: Send>(
        ranks: Vec<Box<dyn Bootstrap>>,
        body: impl Fn(Box<dyn Bootstrap>) -> R + Sync,
    ) -> Vec<R> {
        thread::scope(|scope| {
            let body = &body;
            let threads: Vec<_> = ranks
                .into_iter()
                .map(|rank| scope.spawn(move || body(rank)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_rank_sees_what_every_other_put_before_the_fence() {
        for n in [1, 2, 3, 8] {
            on_threads(in_process(n), |mut me| {
                for round in 0..20 {
                    me.put(&format!("{round}.{}", me.rank()), &me.rank().to_string())
                        .unwrap();
                    me.fence().unwrap();
                    for peer in 0..n {
                        assert_eq!(
                            me.get(&format!("{round}.{peer}")).unwrap(),
                            peer.to_string()
                        );
                    }
                }
                me.finalize().unwrap();
            });
        }
    }

    #[test]
    fn a_rank_that_is_dropped_fails_the_fence_of_the_others() {
        let outcomes = on_threads(in_process(3), |mut me| {
            if me.rank() == 1 {
                return Ok(());
            }
            // The next fence fails too, although as many calls have come as there are ranks.
            let first = me.fence().unwrap_err().to_string();
            let again = me.fence();
            assert_eq!(again.as_ref().unwrap_err().to_string(), first);
            again
        });
        assert!(outcomes[1].is_ok());
        for rank in [0, 2] {
            let text = outcomes[rank].as_ref().unwrap_err().to_string();
            assert!(text.starts_with(&format!("rank {rank}: rank ")), "{text}");
        }
    }

    #[test]
    fn an_abort_ends_the_fence_of_the_others_and_says_why() {
        let outcomes = on_threads(in_process(2), |mut me| {
            if me.rank() == 1 {
                me.abort(3, "out of luck");
                // Keep the rank alive, so that the other rank sees the abort and not the drop.
                std::mem::forget(me);
                return Ok(());
            }
            me.fence()
        });
        let error = outcomes[0].as_ref().unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 0: rank 1 aborted the job with code 3: out of luck"
        );
    }

    #[test]
    fn descriptors_reach_every_rank_and_close_with_the_last() {
        let (kept, given) = std::os::unix::net::UnixStream::pair().unwrap();
        let ranks = InProcess::new(2)
            .hand_over("shm", given.into())
            .bootstraps();
        assert!(ranks[0].inherited("shm").is_some());
        assert_eq!(ranks[0].inherited("shm"), ranks[1].inherited("shm"));
        assert_eq!(ranks[1].inherited("other"), None);
        drop(ranks);
        assert_eq!(
            std::io::Read::read(&mut &kept, &mut [0]).unwrap(),
            0,
            "the other end is open"
        );
    }

    #[test]
    #[should_panic(expected = "at least one rank")]
    fn a_job_of_nobody_is_refused() {
        let _ = in_process(0);
    }
}
