//! How often the call that starts an operation looks for the other ranks.
//!
//! Ranks that start an operation together arrive within the time that a cache line takes from one
//! to another. An operation that finishes in the call that starts it never reaches the hook, which
//! costs more than a few looks. If the other ranks have come too late several times in a row, a
//! start looks only once, and only now and then for longer.

use std::sync::atomic::{AtomicU32, Ordering};

/// Looks of a start. They take about as long as leaving an operation to the hook.
const LOOKS: u32 = 16;
/// After this many unsuccessful starts in a row a start looks only once.
const VAIN: u32 = 4;
/// Even then, one start in this many looks for longer.
const AGAIN: u32 = 32;

/// The recent outcomes. Threads that start operations at the same time may miscount; nothing
/// depends on the exact number.
#[derive(Debug, Default)]
pub(in crate::direct) struct Hope {
    /// Starts in a row for which the others came too late.
    vain: AtomicU32,
}

impl Hope {
    /// Looks until the others have come, but at most a fixed number of times.
    #[inline]
    pub(in crate::direct) fn look(&self, mut look: impl FnMut() -> bool) -> bool {
        look() || self.look_again(look)
    }

    /// The same, if the first look did not succeed.
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

    /// How often a start looks if the others come at look number `come`, counted from 1.
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
