//! Atomic operations on words of any PE's memory.

use portolan_core::Result;

use super::Shmem;
use crate::machine::{Addr, Atomic, Call};

impl Shmem {
    /// Changes a word of 8 bytes in memory of `pe` in one step and returns its old value.
    ///
    /// # Errors
    /// [`InvalidRank`](portolan_core::ErrorKind::InvalidRank) if there is no such PE,
    /// [`RemoteAccess`](portolan_core::ErrorKind::RemoteAccess) if it has no such word.
    pub fn atomic(&mut self, pe: u32, addr: Addr, op: Atomic) -> Result<u64> {
        self.word(Call::Atomic { pe, addr, op })
    }

    /// Adds one to a word (`shmem_long_finc`).
    ///
    /// # Errors
    /// As [`atomic`](Self::atomic).
    pub fn fetch_increment(&mut self, pe: u32, addr: Addr) -> Result<u64> {
        self.atomic(pe, addr, Atomic::FetchIncrement)
    }

    /// Adds a number to a word, wrapping (`shmem_long_fadd`).
    ///
    /// # Errors
    /// As [`atomic`](Self::atomic).
    pub fn fetch_add(&mut self, pe: u32, addr: Addr, n: u64) -> Result<u64> {
        self.atomic(pe, addr, Atomic::FetchAdd(n))
    }

    /// Replaces a word (`shmem_swap`).
    ///
    /// # Errors
    /// As [`atomic`](Self::atomic).
    pub fn swap(&mut self, pe: u32, addr: Addr, new: u64) -> Result<u64> {
        self.atomic(pe, addr, Atomic::Swap(new))
    }

    /// Replaces a word if it is `expected` (`shmem_long_cswap`).
    ///
    /// # Errors
    /// As [`atomic`](Self::atomic).
    pub fn compare_swap(&mut self, pe: u32, addr: Addr, expected: u64, new: u64) -> Result<u64> {
        self.atomic(pe, addr, Atomic::CompareSwap { expected, new })
    }

    /// Replaces those bits of a word that are set in `mask` (`shmem_mswap`).
    ///
    /// # Errors
    /// As [`atomic`](Self::atomic).
    pub fn masked_swap(&mut self, pe: u32, addr: Addr, mask: u64, new: u64) -> Result<u64> {
        self.atomic(pe, addr, Atomic::MaskedSwap { mask, new })
    }
}
