//! Offer words: one word per rendezvous offer, which either side moves with a compare-and-swap.
//!
//! ```text
//!            open            take               close (sender)
//!   FREE ──────────▶ OPEN ──────────▶ TAKEN ──────────────────▶ FREE
//!                      │ cancel                close (receiver)  ▲
//!                      └──────────▶ CANCELLED ──────────────────┘
//! ```
//!
//! The number of an offer holds the place of its word and a generation; the word holds that
//! generation and the state. So a number that is used twice, or made up, takes nothing.

use std::collections::VecDeque;

use crate::segment::layout::{OFFERS, RankArea};
use crate::sync::AtomicU32;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

const FREE: u32 = 0;
const OPEN: u32 = 1;
const TAKEN: u32 = 2;
const CANCELLED: u32 = 3;

const PLACE_BITS: u32 = OFFERS.trailing_zeros();
const GENERATION: u32 = u32::MAX >> PLACE_BITS;

#[inline]
fn word(number: u32, state: u32) -> u32 {
    ((number >> PLACE_BITS) << 2) | state
}

#[inline]
fn place(number: u32) -> usize {
    number as usize % OFFERS
}

/// The sender's list of its own words.
#[derive(Debug)]
pub(crate) struct Offers {
    /// Numbers that may be given out.
    free: VecDeque<u32>,
    /// Cancelled numbers; the receiver may have closed some of their words by now.
    cancelled: Vec<u32>,
}

impl Offers {
    pub(crate) fn new() -> Self {
        Self {
            free: (0..OFFERS as u32).collect(),
            cancelled: Vec::new(),
        }
    }

    pub(crate) fn open(&mut self, own: &RankArea) -> Option<u32> {
        if self.free.is_empty() {
            self.reap(own);
        }
        let number = self.free.pop_front()?;
        // Relaxed: sending the packet that carries the number also publishes the word.
        own.offers.0[place(number)].store(word(number, OPEN), Relaxed);
        Some(number)
    }

    /// Collects the cancelled words that receivers have closed.
    #[cold]
    fn reap(&mut self, own: &RankArea) {
        let free = &mut self.free;
        self.cancelled.retain(|&number| {
            // Acquire: pairs with the Release in `take`; the receiver is done with the word.
            let open = own.offers.0[place(number)].load(Acquire) != word(number, FREE);
            if !open {
                free.push_back(next(number));
            }
            open
        });
    }

    pub(crate) fn cancel(&mut self, own: &RankArea, number: u32) -> bool {
        let done = swap(
            &own.offers.0[place(number)],
            word(number, OPEN),
            word(number, CANCELLED),
        );
        if done {
            self.cancelled.push(number);
        }
        done
    }

    pub(crate) fn close(&mut self, own: &RankArea, number: u32) {
        let at = &own.offers.0[place(number)];
        // Closes only a word of this generation that is open or taken: closing twice, or after a
        // cancel, must not give a number out twice.
        let state = at.load(Relaxed);
        if state == word(number, OPEN) || state == word(number, TAKEN) {
            at.store(word(number, FREE), Relaxed);
            self.free.push_back(next(number));
        }
    }
}

/// The number of the next generation for the same word.
fn next(number: u32) -> u32 {
    let generation = ((number >> PLACE_BITS) + 1) & GENERATION;
    (generation << PLACE_BITS) | (number % OFFERS as u32)
}

/// Receiver: takes an offer of the rank that owns `area`; closes the word if the offer was
/// cancelled.
pub(crate) fn take(area: &RankArea, number: u32) -> bool {
    let at = &area.offers.0[place(number)];
    if swap(at, word(number, OPEN), word(number, TAKEN)) {
        return true;
    }
    // Release: pairs with the Acquire in `reap`.
    let _ = at.compare_exchange(
        word(number, CANCELLED),
        word(number, FREE),
        Release,
        Relaxed,
    );
    false
}

/// AcqRel: either the cancel or the take wins, and the loser sees what the winner did before.
fn swap(at: &AtomicU32, from: u32, to: u32) -> bool {
    at.compare_exchange(from, to, AcqRel, Acquire).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> Box<RankArea> {
        // SAFETY: integers only; all zero is a fresh area.
        unsafe { crate::segment::layout::zeroed() }
    }

    #[test]
    fn of_take_and_cancel_one_wins() {
        let (area, mut offers) = (area(), Offers::new());
        let first = offers.open(&area).unwrap();
        assert!(take(&area, first));
        assert!(!offers.cancel(&area, first), "it was taken");
        assert!(!take(&area, first), "it can be taken once");
        offers.close(&area, first);
        let second = offers.open(&area).unwrap();
        assert!(offers.cancel(&area, second));
        assert!(!take(&area, second), "it was cancelled");
    }

    #[test]
    fn every_word_comes_back_and_with_another_number() {
        let (area, mut offers) = (area(), Offers::new());
        let numbers: Vec<u32> = (0..OFFERS).map(|_| offers.open(&area).unwrap()).collect();
        assert_eq!(offers.open(&area), None);
        for (n, &number) in numbers.iter().enumerate() {
            if n % 2 == 0 {
                assert!(offers.cancel(&area, number));
                assert!(!take(&area, number));
            } else {
                assert!(take(&area, number));
                offers.close(&area, number);
                offers.close(&area, number);
            }
        }
        for _ in 0..OFFERS {
            let number = offers.open(&area).unwrap();
            assert!(!numbers.contains(&number));
        }
        assert_eq!(offers.open(&area), None);
        assert!(!take(&area, numbers[0]), "an old number takes nothing");
    }

    #[test]
    fn a_cancelled_word_is_kept_until_the_receiver_has_met_it() {
        let (area, mut offers) = (area(), Offers::new());
        let held = offers.open(&area).unwrap();
        assert!(offers.cancel(&area, held));
        offers.close(&area, held);
        let others: Vec<u32> = std::iter::from_fn(|| offers.open(&area)).collect();
        assert_eq!(others.len(), OFFERS - 1);
        assert!(!take(&area, held));
        assert!(offers.open(&area).is_some());
    }
}
