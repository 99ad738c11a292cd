//! Writing into the memory of another process, and what keeps that from outliving a failure.
//!
//! A rank whose peer has failed gives its buffers back to the user, and so does one that leaves the
//! job. A process that ended writes no more; but a rank may also be *held* to be dead, because it
//! sent nonsense or gave itself up, while its process is still in the middle of
//! `process_vm_writev`. So a rank says in its word when it writes, and whoever takes a buffer back
//! because of a failure, or leaves, waits for that word.
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
    /// Says that `rank` is about to write into memory of `peer`; `false` if it may not, because one
    /// of them is held to be dead or has left. After `true`, [`end_push`](Self::end_push) must
    /// follow.
    pub(crate) fn begin_push(&self, rank: u32, peer: u32) -> bool {
        let word = &self.rank(rank).identity.pushing;
        word.store(peer + 1, Relaxed);
        // SYNC: pairs with the fence in `await_pushes`: either this rank sees the death or the
        // leaving, or the one who takes the buffer back sees the word.
        fence(SeqCst);
        let at_work = [rank, peer].map(|rank| self.life(rank)) == [Life::Running; 2];
        if !at_work {
            word.store(0, Relaxed);
        }
        at_work
    }

    /// `rank` has written.
    pub(crate) fn end_push(&self, rank: u32) {
        // SYNC: pairs with the Acquire load in `await_pushes`.
        self.rank(rank).identity.pushing.store(0, Release);
    }

    /// Waits until nobody writes into memory of `own` who might not know of a failure, or that
    /// `own` has left. `ended` says whether the process of a rank has ended. Everybody else writes
    /// only what `own` still expects.
    pub(crate) fn await_pushes(&self, own: u32, ended: impl Fn(u32) -> bool) {
        // SYNC: pairs with the fence in `begin_push`.
        fence(SeqCst);
        let given_up = self.life(own) != Life::Running;
        for rank in (0..self.ranks).filter(|&rank| rank != own) {
            if !given_up && !self.life(rank).dead() {
                continue;
            }
            let word = &self.rank(rank).identity.pushing;
            // A turn of a push takes less than a millisecond; a process that is stopped in it holds
            // this one up until it goes on or is ended.
            while word.load(Acquire) == own + 1 && !ended(rank) {
                std::thread::yield_now();
            }
        }
    }
}
