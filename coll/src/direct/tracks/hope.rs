//! Looks for others in the call that starts an operation: how often is worth it.
//!
//! Ranks that start an operation together come within the time that a cache line takes from one to
//! the other. What is over in its start never comes to the hook, which costs more than some looks.
//! Where the others have come later several times in a row, a start looks once, and only now and
//! then longer.

use std::sync::atomic::{AtomicU32, Ordering};

/// Looks of a start: they take about as long as it does to leave an operation to the hook.
const LOOKS: u32 = 16;
/// Starts in vain in a row after which a start looks once.
const VAIN: u32 = 4;
/// One start in so many looks longer all the same.
const AGAIN: u32 = 32;

/// How it went lately. Threads that start operations at a time may count wrong: nothing depends on
/// it.
#[derive(Debug, Default)]
pub(in crate::direct) struct Hope {
    /// Starts in a row for which the others came too late.
    vain: AtomicU32,
}

impl Hope {
    /// Looks until the others have come, for a bounded while.
    #[inline]
    pub(in crate::direct) fn look(&self, mut look: impl FnMut() -> bool) -> bool {
        look() || self.look_again(look)
    }

    /// The same where they were not there at once.
    #[inline(never)]
    fn look_again(&self, mut look: impl FnMut() -> bool) -> bool {
        let vain = self.vain.load(Ordering::Relaxed);
        let more = if vain < VAIN || vain.is_multiple_of(AGAIN) {
            LOOKS - 1
        } else {
            0
        };
        for _ in 0..more {
            std::hint::spin_loop();
            if look() {
                self.vain.store(0, Ordering::Relaxed);
                return true;
            }
        }
        self.vain.store(vain.wrapping_add(1), Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a start looks whose others come at look number `come`, counted from 1.
    fn looks(hope: &Hope, come: u32) -> u32 {
        let mut looks = 0;
        let seen = hope.look(|| {
            looks += 1;
            looks >= come
        });
        assert_eq!(seen, looks >= come);
        looks
    }

    #[test]
    fn a_start_looks_for_a_while_as_long_as_that_helps() {
        let hope = Hope::default();
        for _ in 0..100 {
            assert_eq!(looks(&hope, 1), 1);
            assert_eq!(looks(&hope, 9), 9);
        }
        for _ in 0..VAIN {
            assert_eq!(looks(&hope, u32::MAX), LOOKS);
        }
        assert_eq!(looks(&hope, u32::MAX), 1);
    }

    #[test]
    fn it_looks_longer_again_now_and_then_and_takes_it_up_where_that_helps() {
        let hope = Hope::default();
        let long = (0..10 * AGAIN).filter(|_| looks(&hope, u32::MAX) > 1);
        assert_eq!(long.count() as u32, VAIN + 9);
        while looks(&hope, 5) == 1 {}
        assert_eq!(looks(&hope, 5), 5);
    }
}
