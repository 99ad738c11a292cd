//! The communicator that an operation runs on: a plain one, or one between two groups.

use portolan_core::comm::NoUnwind;
use portolan_core::{Device, Request, Result};

use super::call::{Buffers, Collective};
use super::sides::{Private, Sides};
use crate::Level;
use crate::comm::{Comm, InterComm};
use crate::hosted::Hosted;

/// The plan of a persistent operation.
pub(super) type Plan<D> = portolan_coll::Persistent<Hosted<D>>;

/// A communicator that an operation can run on.
pub(super) trait Ground {
    type Level: Level;
    type Device: Device;

    /// The communicator that errors are raised on.
    fn comm(&self) -> &Comm<Self::Level, Self::Device>;

    /// # Safety
    /// Any bits are valid values in the receive buffer.
    unsafe fn run<C: Collective>(&self, call: &C) -> Result<()>;

    /// # Safety
    /// The buffers are left alone until the request is complete, and any bits are valid values in
    /// them.
    unsafe fn start<C: Collective>(&self, call: &C) -> Result<Request>;

    fn plan<C: Collective>(&self, call: &C) -> Result<Plan<Self::Device>>;

    /// Runs an operation and gives its buffers back, without applying the error mode.
    fn run_checked<C: Collective>(&self, mut call: C) -> Result<Buffers<C>> {
        self.run_lent(&mut call)?;
        Ok(call.into_sides().into_buffers())
    }

    /// Runs an operation without moving it, for borrowed buffers that need not be given back. Does
    /// not apply the error mode.
    #[inline]
    fn run_lent<C: Collective>(&self, call: &mut C) -> Result<()> {
        let any_bits = <C::Sides as Private>::ANY_BITS;
        if !any_bits {
            call.sides_mut().shelter(self.comm())?;
        }
        // SAFETY: any bits are valid values in the buffer, or a copy of it has taken its place.
        unsafe { self.run(call) }?;
        match any_bits {
            true => Ok(()),
            false => call.sides_mut().adopt(self.comm()),
        }
    }
}

// The safety argument of all three calls: `operation` and `between` have checked the lengths
// against the buffers, and `call` keeps the buffers. Operators combine bytes. Those made by
// `Op::new` check the bytes first; the maker of any other has promised that it accepts any
// bytes. (The operations stay inside their `Result`: they are large, and moving one right after the
// stores that built it stalls the processor for longer than a short operation takes to start.)

impl<L: Level, D: Device> Ground for Comm<L, D> {
    type Level = L;
    type Device = D;

    fn comm(&self) -> &Self {
        self
    }

    unsafe fn run<C: Collective>(&self, call: &C) -> Result<()> {
        match call.operation(self) {
            // SAFETY: as said above, until the call is over; the rest is the caller's promise.
            Ok(ref operation) => unsafe { portolan_coll::run(&self.inner, operation) },
            Err(error) => Err(error),
        }
    }

    unsafe fn start<C: Collective>(&self, call: &C) -> Result<Request> {
        match call.operation(self) {
            Ok(ref operation) => {
                let guard = NoUnwind::new("the start of a collective operation");
                // SAFETY: as said above; the rest is the caller's promise.
                let started = unsafe { portolan_coll::start(&self.inner, operation) };
                guard.done();
                started
            }
            Err(error) => Err(error),
        }
    }

    fn plan<C: Collective>(&self, call: &C) -> Result<Plan<D>> {
        let operation = call.operation(self)?;
        portolan_coll::Persistent::new(&self.inner, &operation)
    }
}

impl<L: Level, D: Device> Ground for InterComm<L, D> {
    type Level = L;
    type Device = D;

    fn comm(&self) -> &Comm<L, D> {
        self.remote()
    }

    unsafe fn run<C: Collective>(&self, call: &C) -> Result<()> {
        match call.between(self) {
            // SAFETY: as said above, until the call is over; the rest is the caller's promise.
            Ok(ref operation) => unsafe { portolan_coll::inter::run(&self.inner, operation) },
            Err(error) => Err(error),
        }
    }

    unsafe fn start<C: Collective>(&self, call: &C) -> Result<Request> {
        match call.between(self) {
            Ok(ref operation) => {
                let guard = NoUnwind::new("the start of a collective operation");
                // SAFETY: as said above; the rest is the caller's promise.
                let started = unsafe { portolan_coll::inter::start(&self.inner, operation) };
                guard.done();
                started
            }
            Err(error) => Err(error),
        }
    }

    fn plan<C: Collective>(&self, call: &C) -> Result<Plan<D>> {
        let operation = call.between(self)?;
        portolan_coll::inter::persistent(&self.inner, &operation)
    }
}
