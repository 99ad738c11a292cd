//! What an operation on a track needs of the device, in the call that starts it and inside
//! progress.

use portolan_core::device::{Exposure, Port};
use portolan_core::{Device, ProcId};

use crate::direct::blocking::pulled::is_allowed;

/// The device, as a call or a hook has it.
pub(crate) trait Hands {
    /// Seconds on the device's clock.
    fn wtime(&self) -> f64;

    /// Wakes a rank that sleeps while it waits for a store.
    fn notify(&mut self, peer: ProcId);

    /// Ends an exposure of this rank.
    fn withdraw(&mut self, exposure: &Exposure);

    /// Copies the first `len` bytes of what a peer has exposed to `to`; `false` if that is not
    /// possible.
    ///
    /// # Safety
    /// `len` bytes at `to` are writable.
    unsafe fn pull(&mut self, peer: ProcId, exposure: &Exposure, to: *mut u8, len: usize) -> bool;
}

/// The hands of a call.
pub(crate) struct OfCall<'a, D>(pub(crate) &'a D);

/// The hands of a hook.
pub(crate) struct OfHook<'a>(pub(crate) &'a mut dyn Port);

impl<D: Device> Hands for OfCall<'_, D> {
    #[inline]
    fn wtime(&self) -> f64 {
        self.0.wtime()
    }

    #[inline]
    fn notify(&mut self, peer: ProcId) {
        self.0.notify(peer);
    }

    fn withdraw(&mut self, exposure: &Exposure) {
        if let Some(device) = self.0.exposing() {
            device.withdraw(exposure);
        }
    }

    unsafe fn pull(&mut self, peer: ProcId, exposure: &Exposure, to: *mut u8, len: usize) -> bool {
        let device = self.0.exposing();
        is_allowed()
            // SAFETY: from the caller.
            && device.is_some_and(|device| unsafe { device.pull(peer, exposure, 0, to, len) })
    }
}

impl Hands for OfHook<'_> {
    #[inline]
    fn wtime(&self) -> f64 {
        self.0.wtime()
    }

    #[inline]
    fn notify(&mut self, peer: ProcId) {
        self.0.notify(peer);
    }

    fn withdraw(&mut self, exposure: &Exposure) {
        self.0.withdraw(exposure);
    }

    unsafe fn pull(&mut self, peer: ProcId, exposure: &Exposure, to: *mut u8, len: usize) -> bool {
        // SAFETY: from the caller.
        is_allowed() && unsafe { self.0.pull(peer, exposure, 0, to, len) }
    }
}
