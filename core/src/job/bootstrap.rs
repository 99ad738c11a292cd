//! The trait that every way of joining a job implements.

use std::os::fd::RawFd;

use super::JobError;

/// One rank's connection to the job it belongs to.
///
/// Used only while the job starts and ends. All calls may block; [`fence`](Self::fence) is the only
/// collective one: every rank calls it, in the same order.
///
/// Keys are written once: a second [`put`](Self::put) of a key is an error on every bootstrap,
/// because some launchers refuse it and the others would hide that.
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

    /// A name that no other job on this machine has at the same time; the same on every rank.
    fn job_id(&self) -> &str;

    /// Publishes a text under a key; visible to every rank after the next [`fence`](Self::fence).
    ///
    /// Values may hold any text of any length: what a launcher's protocol cannot carry is escaped
    /// and split. Keys are one to 48 characters from `A–Z a–z 0–9 . _ -`.
    ///
    /// # Errors
    /// [`JobError::BadKey`], [`JobError::DuplicateKey`], or the launcher's failure.
    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError>;

    /// The text that some rank has put under `key` before the last [`fence`](Self::fence).
    ///
    /// # Errors
    /// [`JobError::KeyMissing`] if nobody has put it, or the launcher's failure.
    fn get(&mut self, key: &str) -> Result<String, JobError>;

    /// Collective: returns when every rank has called it; all that was put before is visible.
    ///
    /// # Errors
    /// [`JobError::RankGone`] if a rank ended without calling it, [`JobError::Aborted`] if a rank
    /// ended the job, or the launcher's failure.
    fn fence(&mut self) -> Result<(), JobError>;

    /// Tells the launcher to end the whole job with this exit code, because of `message`.
    ///
    /// Returns, so that the caller can end its own process as it sees fit; a launcher will end it
    /// soon otherwise. Failure to reach the launcher is not reported: there is nobody to act on it.
    fn abort(&mut self, code: i32, message: &str);

    /// Tells the launcher something that it may put together with what other ranks say: `what`
    /// names the subject, without blanks. Not answered; launchers that do not understand it are not
    /// told.
    ///
    /// The one subject so far is `waiting`, whose text [`Waiting`](crate::Waiting) writes.
    fn report(&mut self, what: &str, text: &str) {
        let _ = (what, text);
    }

    /// Leaves the job in good order. Not collective; later calls give [`JobError::Finalized`].
    ///
    /// # Errors
    /// The launcher's failure. Calling it twice is allowed.
    fn finalize(&mut self) -> Result<(), JobError>;

    /// A descriptor that the launcher handed over under this name, such as `"shm"`.
    ///
    /// The descriptor stays the bootstrap's: duplicate it to keep it. `None` under launchers that
    /// hand nothing over.
    fn inherited(&self, what: &str) -> Option<RawFd>;

    /// What this bootstrap is, for people: `"pmi-1 (portolan run)"`, `"threads"`, `"single"`.
    fn kind(&self) -> &'static str;
}
