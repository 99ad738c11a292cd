//! Memory that ranks expose to each other by hand.

use crate::device::ProcId;
pub use crate::transport::Exposure;

/// Copies from other ranks' memory, one call each, for callers that know when the memory is there:
/// [`Device::exposing`](crate::Device::exposing). Owners do nothing meanwhile, and nothing has to
/// be registered before. The callers hand exposures to each other.
pub trait Exposing {
    /// Lets peers copy from `len` bytes at `start` until [`withdraw`](Self::withdraw). `None` if
    /// they cannot. This takes no time worth mentioning.
    ///
    /// # Safety
    /// The bytes must stay readable, and not be written, until they are withdrawn. The caller knows
    /// by then that no peer is still copying, or does not care what the peer gets.
    unsafe fn expose(&self, start: *const u8, len: usize) -> Option<Exposure>;

    /// Ends an exposure of this rank.
    fn withdraw(&self, exposure: &Exposure);

    /// Copies `len` bytes at `offset` of what a peer has exposed to `target`. Returns `false` if
    /// that is not possible: the system forbids it, or the peer is dead. What is at `target` is
    /// unspecified then. Long copies make progress now and then.
    ///
    /// # Safety
    /// `len` bytes at `target` must be writable. (The exposure is not trusted: a wrong one gives
    /// wrong bytes or `false`.)
    unsafe fn pull(
        &self,
        peer: ProcId,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> bool;
}
