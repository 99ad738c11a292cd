//! The known deaths: any thread that finds one writes it down, and each rank adopts it when it is
//! ready.
//!
//! # The states of a death
//!
//! - *Left* ([`Roster`](roster::Roster)): the rank has written that it leaves in good order. This
//!   is no death. The engine asks for it (`Transport::has_left`), and hears of it once everything
//!   that the rank had sent has arrived ([`leaver`]).
//! - *Declared* ([`Deaths::declare`]): there is a reason to hold the rank to be dead. The watching
//!   thread declares it when a process of this node ends without having left ([`watch`]), or when
//!   heartbeats stay away or report a loss ([`pulse`]). Progress declares it when the provider
//!   cannot reach the rank, when a packet of it is impossible or missing, or when this rank's own
//!   endpoint fails. The engine declares it through `Transport::declare_failed`. A rank that panics
//!   declares itself. The first reason stays. From then on nothing is sent to the rank
//!   (`send::absent`).
//! - *Ended* ([`Deaths::note_end`]): the rank's process has ended, or its transport in a job of
//!   threads, whether the rank had left or was dead. The watching thread notes it, or the transport
//!   when it is dropped. From then on the rank copies no data.
//! - *Adopted* (or *believed*): each rank counts the declared deaths that it acts upon
//!   (`Ofi::adopted`). Packets of a dead rank may still be on their way, so `progress::adopt` first
//!   waits for some polls that bring nothing. `progress::believe` then adopts all declared deaths,
//!   except those with which the provider may still access memory of the program in some operation
//!   (`Ofi::held`): these are adopted later, and keep no other death back. The engine sees only
//!   adopted deaths (`Transport::failures`), and ends what they concern.
//! - *Noticed*: where the provider matches, `native::deaths` ends the tagged operations that
//!   adopted deaths concern, and counts these deaths (`Tags::failures_seen`).
//!
//! Over libfabric's shared memory, operations on memory of a rank that has ended never end. For
//! these, [`abandon`] keeps two more counts in each rank, of ranks that have ended: how many there
//! were when it last found such operations (`Memory::seen`), after which it gives the provider some
//! more polls, and how many are settled (`Memory::settled`), because no such operation is left.

pub(crate) mod abandon;
pub(crate) mod counts;
pub(crate) mod datagram;
pub(crate) mod leaver;
pub(crate) mod pulse;
pub(crate) mod roster;
pub(crate) mod sever;
pub(crate) mod watch;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use portolan_core::transport::Bell;

/// In the word of the deaths: the watching thread calls for counts of packets. The call shares a
/// word with the number of deaths, which every poll compares anyway.
const CALL: u32 = 1 << 31;

/// The deaths that the ranks of this process know of, in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    /// How many, so that a poll need not lock; with [`CALL`].
    word: AtomicU32,
    list: Mutex<Vec<(u32, String)>>,
    /// Ranks whose process or transport has ended, so that nothing of them copies data any more.
    ended: Mutex<Vec<u32>>,
    /// The length of `ended`.
    ends: AtomicU32,
    bells: Mutex<Vec<Weak<crate::endpoint::bell::EventBell>>>,
}

impl Deaths {
    /// How many deaths are known.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.word() & !CALL
    }

    /// What a poll compares with the number of deaths that the rank has adopted: they differ if
    /// there is another death, or a call.
    #[inline]
    pub(crate) fn word(&self) -> u32 {
        // Acquire: pairs with the Release in `declare`: a thread that sees the number finds the
        // entry.
        self.word.load(Ordering::Acquire)
    }

    /// Has the rank publish and compare [`counts`] of packets in its next poll. Only for processes
    /// with one rank. Relaxed, here and in `take_call`: the call publishes no other data.
    pub(crate) fn call(&self) {
        self.word.fetch_or(CALL, Ordering::Relaxed);
        self.ring();
    }

    /// Whether there is a call, which is then over.
    pub(crate) fn take_call(&self) -> bool {
        self.word() & CALL != 0 && self.word.fetch_and(!CALL, Ordering::Relaxed) & CALL != 0
    }

    /// Notes that `rank` is dead. Later reasons for the same rank are not kept.
    pub(crate) fn declare(&self, rank: u32, why: &str) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.iter().any(|(dead, _)| *dead == rank) {
            return;
        }
        list.push((rank, why.to_owned()));
        // Release: pairs with the Acquire in `word`. The lock keeps the number that of the entries.
        self.word.fetch_add(1, Ordering::Release);
        drop(list);
        self.ring();
    }

    fn ring(&self) {
        let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        for bell in bells.iter().filter_map(Weak::upgrade) {
            bell.ring();
        }
    }

    /// Notes that the process of a rank has ended which has left or is known to be dead. In a job
    /// of threads: its transport has ended.
    pub(crate) fn note_end(&self, rank: u32) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !ended.contains(&rank) {
            ended.push(rank);
            // Release: pairs with the Acquire in `ends`.
            self.ends.store(ended.len() as u32, Ordering::Release);
        }
    }

    /// Notes that the process of a rank that has not left has ended, or is ending.
    pub(crate) fn died(&self, rank: u32, pid: u32) {
        let why = format!("the process of rank {rank} (pid {pid}) has died");
        self.declare(rank, &why);
        // Last: now that the death is declared, no new operations begin that this would have to
        // end.
        self.note_end(rank);
    }

    /// How many ranks have ended.
    #[inline]
    pub(crate) fn ends(&self) -> u32 {
        // Acquire: pairs with the Release in `note_end`: everything that the ended rank wrote comes
        // before.
        self.ends.load(Ordering::Acquire)
    }

    /// The ranks that are known to have ended.
    pub(crate) fn ended(&self) -> Vec<u32> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.clone()
    }

    /// Why `rank` is dead, if it is among the first `known`.
    pub(crate) fn reason(&self, rank: u32, known: u32) -> Option<String> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = list.iter().take(known as usize);
        known
            .find(|(dead, _)| *dead == rank)
            .map(|(_, why)| why.clone())
    }

    /// The deaths after the first `known`.
    pub(crate) fn list(&self, known: usize) -> Vec<(u32, String)> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.get(known..).unwrap_or_default().to_vec()
    }

    /// Whether `rank` is dead, adopted or not.
    pub(crate) fn is_dead(&self, rank: u32) -> bool {
        if self.count() == 0 {
            return false;
        }
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().any(|(dead, _)| *dead == rank)
    }

    /// Has every death from now on ring `bell`.
    pub(crate) fn tell(&self, bell: &Arc<crate::endpoint::bell::EventBell>) {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.push(Arc::downgrade(bell));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let deaths = Deaths::default();
        deaths.declare(3, "it panicked");
        deaths.declare(3, "its process has ended");
        deaths.declare(1, "gone");
        assert_eq!(deaths.count(), 2);
        assert_eq!(deaths.reason(3, 1).as_deref(), Some("it panicked"));
        assert_eq!(deaths.reason(1, 1), None, "not adopted yet");
        assert!(deaths.is_dead(1) && !deaths.is_dead(0));
    }

    #[test]
    fn a_call_is_no_death() {
        let deaths = Deaths::default();
        assert!(!deaths.take_call());
        deaths.call();
        assert!(deaths.count() == 0 && deaths.word() != 0 && !deaths.is_dead(0));
        deaths.declare(3, "it panicked");
        assert_eq!(deaths.count(), 1);
        assert!(deaths.take_call() && !deaths.take_call());
        assert_eq!(deaths.word(), 1);
    }
}
