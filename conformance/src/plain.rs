//! Devices that borrow one: as it is, and without its datatype operations.

use portolan_core::device::{Device, delegate_device};

/// The device inside, except that datatype operations are the defaults in terms of contiguous ones:
/// the paper's model implementation, run against every device.
#[derive(Debug)]
pub struct Plain<'d, D>(pub &'d D);

/// The device inside, as it is: for what wants to own its device, as communicators do.
#[derive(Debug)]
pub struct Lent<'d, D>(pub &'d D);

/// The device that is borrowed.
macro_rules! borrowed {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = $self.0;
        $call
    }};
}

// SAFETY: every call goes to a device that keeps the contract.
unsafe impl<D: Device> Device for Plain<'_, D> {
    delegate_device! { borrowed:
        lifecycle, leaving, contiguous, driven, persistent, queues, requests, active_messages,
        registrations, one_sided, stores,
    }
}

// SAFETY: every call goes to a device that keeps the contract.
unsafe impl<D: Device> Device for Lent<'_, D> {
    delegate_device! { borrowed: everything }
}
