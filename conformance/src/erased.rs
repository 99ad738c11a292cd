//! A device whose type has been erased.

use std::fmt;

use portolan_core::device::{Device, SendArgs, delegate_device};
use portolan_core::matching::Pattern;
use portolan_core::{Group, Request, Result, Status, TypedBuf};

/// A borrowed device of any type, whose methods are called through a table of pointers.
///
/// The cases are compiled once, for this type. There are some hundred of them, and with the
/// collectives that they run they would take the compiler twenty seconds for each device. The
/// device's own code stays the same.
pub struct Erased<'d>(&'d dyn Whole);

impl<'d> Erased<'d> {
    /// Erases the type of `device`, which may be any.
    pub fn new(device: &'d impl Device) -> Self {
        Self(device)
    }
}

impl fmt::Debug for Erased<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Erased({})", self.0.device().attributes().name)
    }
}

/// A device, with those of its methods that a table of pointers cannot hold.
trait Whole {
    fn device(&self) -> &dyn Device;

    /// # Safety
    /// As [`Device::send_datatype_unchecked`].
    unsafe fn send_datatype_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<()>;

    /// # Safety
    /// As [`Device::isend_datatype_unchecked`].
    unsafe fn isend_datatype_unchecked(
        &self,
        args: &SendArgs,
        buf: TypedBuf<'_>,
    ) -> Result<Request>;

    /// # Safety
    /// As [`Device::recv_datatype_unchecked`].
    unsafe fn recv_datatype_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Status>;

    /// # Safety
    /// As [`Device::irecv_datatype_unchecked`].
    unsafe fn irecv_datatype_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>)
    -> Result<Request>;

    fn wait_for(&self, group: &Group, ready: &mut dyn FnMut() -> bool) -> Result<()>;
}

impl<D: Device> Whole for D {
    fn device(&self) -> &dyn Device {
        self
    }

    unsafe fn send_datatype_unchecked(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<()> {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { Device::send_datatype_unchecked(self, args, buf) }
    }

    unsafe fn isend_datatype_unchecked(
        &self,
        args: &SendArgs,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { Device::isend_datatype_unchecked(self, args, buf) }
    }

    unsafe fn recv_datatype_unchecked(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Status> {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { Device::recv_datatype_unchecked(self, from, buf) }
    }

    unsafe fn irecv_datatype_unchecked(
        &self,
        from: &Pattern,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { Device::irecv_datatype_unchecked(self, from, buf) }
    }

    fn wait_for(&self, group: &Group, ready: &mut dyn FnMut() -> bool) -> Result<()> {
        Device::wait_for(self, group, ready)
    }
}

/// Calls the device through its table.
macro_rules! table {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = $self.0.device();
        $call
    }};
}

/// The methods that the device's table cannot hold.
macro_rules! whole {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = $self.0;
        $call
    }};
}

// SAFETY: every call is passed on to a device that keeps the contract.
unsafe impl Device for Erased<'_> {
    fn wait_for(&self, group: &Group, mut ready: impl FnMut() -> bool) -> Result<()> {
        self.0.wait_for(group, &mut ready)
    }

    delegate_device! { table:
        lifecycle, leaving, contiguous, driven, persistent, queues, requests, packing, active_messages,
        registrations, one_sided, notify, processor, give_way,
    }

    delegate_device! { whole: datatypes }
}
