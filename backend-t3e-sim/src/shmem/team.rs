//! Active sets: the PEs that take part in a collective call, and the flags by which they meet.

use portolan_core::{Error, ErrorKind, Result};

use super::Shmem;
use crate::machine::{Addr, Condition};

/// Every `2^log_stride`-th PE from `start` on, `size` of them (`PE_start`, `logPE_stride` and
/// `PE_size`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveSet {
    /// The first PE.
    pub start: u32,
    /// The distance between two neighbours in the set is 2 to this power.
    pub log_stride: u32,
    /// The number of PEs.
    pub size: u32,
}

/// Words of 8 bytes that a collective call needs for its flags (`_SHMEM_BARRIER_SYNC_SIZE` and the
/// others).
///
/// They must be zero at first. The same words serve any number of calls of one kind over one active
/// set, and nothing else: unlike in the T3E's library, calls leave behind in them the number of
/// calls so far.
pub const SYNC_WORDS: usize = 36;

/// The flag by which a PE beyond the largest power of two says that its part is there; [`UNFOLD`]
/// is the flag by which it is told of the result.
pub(super) const FOLD: usize = 32;
/// See [`FOLD`].
pub(super) const UNFOLD: usize = 33;

impl ActiveSet {
    /// The active set of all PEs.
    #[must_use]
    pub fn all(pes: u32) -> Self {
        Self {
            start: 0,
            log_stride: 0,
            size: pes,
        }
    }

    /// The PE at place `index`.
    #[must_use]
    pub fn pe(&self, index: u32) -> u32 {
        self.start + (index << self.log_stride)
    }

    /// The place of a PE in the set, if it takes part.
    #[must_use]
    pub fn index(&self, pe: u32) -> Option<u32> {
        let stride = 1_u32.checked_shl(self.log_stride)?;
        let distance = pe.checked_sub(self.start)?;
        let index = distance / stride;
        (distance.is_multiple_of(stride) && index < self.size).then_some(index)
    }
}

/// The place of a PE in a collective call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) set: ActiveSet,
    pub(super) me: u32,
    sync: Addr,
    /// The number of calls over these flags so far, including this one.
    pub(super) epoch: u64,
}

impl Shmem {
    /// Enters a collective call: finds the PE's place, and counts the call.
    pub(super) fn enter(&mut self, set: ActiveSet, sync: Addr) -> Result<Place> {
        let (pe, pes) = (self.my_pe(), self.n_pes());
        let wrong = |what: String| {
            Error::new(ErrorKind::InvalidArgument, what)
                .remedy("call it on the PEs of the active set, and on those only")
                .on_rank(pe)
                .on_device("t3e-sim")
        };
        let last = u64::from(set.start)
            + (u64::from(set.size.saturating_sub(1)) << set.log_stride.min(32));
        if set.size == 0 || last >= u64::from(pes) {
            return Err(wrong(format!("{set:?} has PEs that are not among {pes}")));
        }
        let Some(me) = set.index(pe) else {
            return Err(wrong(format!("PE {pe} does not take part in {set:?}")));
        };
        let epoch = self.load_u64(sync)? + 1;
        self.store_u64(sync, epoch)?;
        Ok(Place {
            set,
            me,
            sync,
            epoch,
        })
    }

    /// Tells the PE at place `to` that this one has reached step `flag`, after everything that has
    /// been put there.
    pub(super) fn raise(&mut self, place: &Place, to: u32, flag: usize) -> Result<()> {
        self.fence()?;
        self.put64(place.set.pe(to), place.flag(flag), &[place.epoch])
    }

    /// Waits until another PE has reached step `flag` of this call.
    pub(super) fn await_flag(&mut self, place: &Place, flag: usize) -> Result<()> {
        let epoch = place.epoch.cast_signed();
        self.wait_until(place.flag(flag), Condition::GreaterEqual(epoch))
    }

    /// Waits for all PEs of the active set, and for this PE's puts (`shmem_barrier`). Takes as many
    /// steps as the binary logarithm of the set's size, rounded up, each with another PE.
    ///
    /// `sync` has [`SYNC_WORDS`] words of symmetric memory.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if this PE does not take part or some do not
    /// exist; as [`put`](Self::put) and [`wait_until`](Self::wait_until).
    pub fn barrier_set(&mut self, set: ActiveSet, sync: Addr) -> Result<()> {
        self.quiet()?;
        let place = self.enter(set, sync)?;
        self.disseminate(&place)
    }

    /// A dissemination barrier: tells ever more distant PEs that this one is here, and waits to
    /// hear the same.
    pub(super) fn disseminate(&mut self, place: &Place) -> Result<()> {
        let size = place.set.size;
        for round in 0..size.next_power_of_two().trailing_zeros() {
            self.raise(place, (place.me + (1 << round)) % size, round as usize)?;
            self.await_flag(place, round as usize)?;
        }
        Ok(())
    }
}

impl Place {
    fn flag(&self, number: usize) -> Addr {
        self.sync + 8 * (1 + number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_pes_belong_together() {
        let set = ActiveSet {
            start: 3,
            log_stride: 2,
            size: 4,
        };
        for index in 0..4 {
            assert_eq!(set.index(set.pe(index)), Some(index));
        }
        assert_eq!(set.pe(3), 15);
        for pe in [0, 2, 4, 19] {
            assert_eq!(set.index(pe), None);
        }
        assert_eq!(ActiveSet::all(5).index(4), Some(4));
    }
}
