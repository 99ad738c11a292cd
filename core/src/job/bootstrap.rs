//! The interface of every way of joining a job.

use std::os::fd::RawFd;

use super::JobError;

/// One rank's connection to the job it belongs to.
///
/// Used only while the job starts and ends. All calls may block. Only [`fence`](Self::fence) is
/// collective: every rank calls it, in the same order.
///
/// Keys are written once. A second [`put`](Self::put) of a key is an error with every bootstrap,
/// because some launchers refuse it and others would hide the mistake.
///
/// ```
/// use portolan_core::job::{self, Bootstrap};
///
/// let ranks = job::in_process(2).into_iter().map(|mut rank| {
///     std::thread::spawn(move || -> Result<String, job::JobError> {
///         rank.put(&format!("card-{}", rank.rank()), &format!("I am rank {}", rank.rank()))?;
///         rank.fence()?;
///         let card = rank.get(&format!("card-{}", (rank.rank() + 1) % rank.size()))?;
///         rank.finalize()?;
///         Ok(card)
///     })
/// });
/// let cards: Vec<_> = ranks.collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect();
/// assert_eq!(cards[0].as_ref().unwrap(), "I am rank 1");
/// assert_eq!(cards[1].as_ref().unwrap(), "I am rank 0");
/// ```
pub trait Bootstrap: Send {
    /// This rank: `0 ≤ rank < size`.
    fn rank(&self) -> u32;

    /// The number of ranks in the job; at least one.
    fn size(&self) -> u32;

    /// A name that is the same on every rank, and that no other job on this machine has at the same
    /// time.
    fn job_id(&self) -> &str;

    /// Publishes a text under a key; visible to every rank after the next [`fence`](Self::fence).
    ///
    /// Values may be any text of any length. What a launcher's protocol cannot carry is escaped,
    /// and long values are split. Keys have 1 to 48 characters from `A–Z a–z 0–9 . _ -`.
    ///
    /// # Errors
    /// [`JobError::BadKey`], [`JobError::DuplicateKey`], or the launcher's failure.
    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError>;

    /// The text that some rank put under `key` before the last [`fence`](Self::fence).
    ///
    /// # Errors
    /// [`JobError::KeyMissing`] if no rank has put it, or the launcher's failure.
    fn get(&mut self, key: &str) -> Result<String, JobError>;

    /// Collective: returns when every rank has called it. Everything put before is visible
    /// afterwards.
    ///
    /// # Errors
    /// [`JobError::RankGone`] if a rank ended without calling it, [`JobError::Aborted`] if a rank
    /// ended the job, or the launcher's failure.
    fn fence(&mut self) -> Result<(), JobError>;

    /// Tells the launcher to end the whole job with this exit code, because of `message`.
    ///
    /// Returns, so that the caller can end its own process as it sees fit; otherwise the launcher
    /// ends it soon. A failure to reach the launcher is only logged, because there is nothing else
    /// to do about it.
    fn abort(&mut self, code: i32, message: &str);

    /// The same, because rank `failed` has failed: a launcher that sees how that rank has ended
    /// blames it, and not this one.
    fn abort_because_of(&mut self, failed: u32, code: i32, message: &str) {
        let _ = failed;
        self.abort(code, message);
    }

    /// Tells the launcher something that it may combine with the reports of other ranks. `what`
    /// names the subject, without blanks. There is no answer. A launcher that does not support
    /// reports is not told.
    ///
    /// The only subject so far is `waiting`; [`Waiting`](crate::Waiting) writes its text.
    fn report(&mut self, what: &str, text: &str) {
        let _ = (what, text);
    }

    /// Leaves the job in good order. Not collective. Later calls return [`JobError::Finalized`],
    /// but a second `finalize` is allowed.
    ///
    /// # Errors
    /// The launcher's failure.
    fn finalize(&mut self) -> Result<(), JobError>;

    /// A descriptor that the launcher handed over under this name, such as `"shm"`.
    ///
    /// The bootstrap keeps owning the descriptor; duplicate it to keep it. `None` with launchers
    /// that hand over none.
    fn inherited(&self, what: &str) -> Option<RawFd>;

    /// The kind of bootstrap, for people: `"pmi-1 (portolan run)"`, `"threads"`, `"single"`.
    fn kind(&self) -> &'static str;
}
