//! Devices that borrow another: one passes everything on, one lacks its datatype operations.

use portolan_core::device::{Device, delegate_device};

/// The device inside, except that datatype operations are the default ones in terms of contiguous
/// operations. So the paper's model implementation runs against every device.
#[derive(Debug)]
pub struct Plain<'d, D>(pub &'d D);

/// The device inside, unchanged: for code that must own its device, such as communicators.
#[derive(Debug)]
pub struct Lent<'d, D>(pub &'d D);

/// The borrowed device.
macro_rules! borrowed {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = $self.0;
        $call
    }};
}

// SAFETY: every call is passed on to a device that keeps the contract.
unsafe impl<D: Device> Device for Plain<'_, D> {
    delegate_device! { borrowed:
        lifecycle, leaving, contiguous, driven, persistent, queues, requests, active_messages,
        registrations, one_sided, stores,
    }
}

// SAFETY: every call is passed on to a device that keeps the contract.
unsafe impl<D: Device> Device for Lent<'_, D> {
    delegate_device! { borrowed: everything }
}
