//! Writing into the memory of another process, and making sure that no such write outlives a
//! failure.
//!
//! A rank whose peer has failed gives its buffers back to the user, and so does a rank that leaves
//! the job. A process that has ended writes no more. But a rank may also be *held* to be dead,
//! because it sent nonsense or gave itself up, while its process is still in the middle of
//! `process_vm_writev`. So a rank marks in its word `pushing` that it writes, and a rank that takes
//! a buffer back, because of a failure or because it leaves, waits for that word.
//!
//! ```text
//! pusher                                  owner of the buffer
//!   pushing := owner                        pusher's life := failed, or own life := finished
//!   fence                                   fence
//!   are both at work? ──no──▶ gives up      pushing = me? ──no──▶ the buffer is the user's
//!   writes                                  waits
//!   pushing := nobody ─────────────────────▶
//! ```

use std::sync::atomic::fence;

use super::Segment;
use super::layout::Life;
use crate::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};

impl Segment {
    /// Marks that `rank` is about to write into memory of `peer`. Returns `false` if it may not,
    /// because one of the two is held to be dead or has left. After `true`,
    /// [`end_push`](Self::end_push) must follow.
    pub(crate) fn begin_push(&self, rank: u32, peer: u32) -> bool {
        let word = &self.rank(rank).identity.pushing;
        word.store(peer + 1, Relaxed);
        // SYNC: pairs with the fence in `await_pushes`: either this rank sees that the other is
        // dead or has left, or the rank that takes the buffer back sees this word.
        fence(SeqCst);
        let at_work = [rank, peer].map(|rank| self.life(rank)) == [Life::Running; 2];
        if !at_work {
            word.store(0, Relaxed);
        }
        at_work
    }

    /// Marks that `rank` has finished writing.
    pub(crate) fn end_push(&self, rank: u32) {
        // SYNC: pairs with the Acquire load in `await_pushes`.
        self.rank(rank).identity.pushing.store(0, Release);
    }

    /// Waits for every write into memory of `own` by a rank that may not know of a failure, or that
    /// `own` has left. All other ranks write only what `own` still expects. `ended` says whether
    /// the process of a rank has ended.
    pub(crate) fn await_pushes(&self, own: u32, ended: impl Fn(u32) -> bool) {
        // SYNC: pairs with the fence in `begin_push`.
        fence(SeqCst);
        let given_up = self.life(own) != Life::Running;
        for rank in (0..self.ranks).filter(|&rank| rank != own) {
            if !given_up && !self.life(rank).dead() {
                continue;
            }
            let word = &self.rank(rank).identity.pushing;
            // One push takes less than a millisecond. A process that is stopped during it holds
            // this rank up until it continues or is ended.
            while word.load(Acquire) == own + 1 && !ended(rank) {
                std::thread::yield_now();
            }
        }
    }
}
