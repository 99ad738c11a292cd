//! A bell that wakes a sleeping rank.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::transport::Bell;

/// A bell made of a condition variable.
#[derive(Debug, Default)]
pub(super) struct MemoryBell {
    word: Mutex<u32>,
    rung: Condvar,
}

impl MemoryBell {
    fn word(&self) -> MutexGuard<'_, u32> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell for MemoryBell {
    fn seen(&self) -> u32 {
        *self.word()
    }

    fn sleep(&self, seen: u32, limit: Option<Duration>) {
        let word = self.word();
        // A poisoned lock does no harm: any value of the word is valid.
        match limit {
            Some(limit) => drop(
                self.rung
                    .wait_timeout_while(word, limit, |word| *word == seen),
            ),
            None => drop(self.rung.wait_while(word, |word| *word == seen)),
        }
    }

    fn ring(&self) {
        let mut word = self.word();
        *word = word.wrapping_add(1);
        drop(word);
        self.rung.notify_all();
    }
}
