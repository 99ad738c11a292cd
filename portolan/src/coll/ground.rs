//! What an operation runs on: a communicator, or two groups that talk to each other.

use portolan_core::comm::NoUnwind;
use portolan_core::{Device, Request, Result};

use super::call::{Buffers, Collective};
use super::sides::{Private, Sides};
use crate::Level;
use crate::comm::{Comm, InterComm};
use crate::hosted::Hosted;

/// A plan of an operation that is started often.
pub(super) type Plan<D> = portolan_coll::Persistent<Hosted<D>>;

/// What an operation runs on.
pub(super) trait Ground {
    type Level: Level;
    type Device: Device;

    /// The communicator that errors are raised on.
    fn comm(&self) -> &Comm<Self::Level, Self::Device>;

    /// # Safety
    /// Any bits are values in the buffer that is received into.
    unsafe fn run<C: Collective>(&self, call: &C) -> Result<()>;

    /// # Safety
    /// The buffers are left alone until the request is over, and any bits are values in them.
    unsafe fn start<C: Collective>(&self, call: &C) -> Result<Request>;

    fn plan<C: Collective>(&self, call: &C) -> Result<Plan<Self::Device>>;

    /// Runs an operation and gives its buffers back; errors are not raised yet.
    fn run_checked<C: Collective>(&self, mut call: C) -> Result<Buffers<C>> {
        self.run_lent(&mut call)?;
        Ok(call.into_sides().into_buffers())
    }

    /// Runs an operation where it is, because its buffers are lent and nobody wants them back;
    /// errors are not raised yet.
    #[inline]
    fn run_lent<C: Collective>(&self, call: &mut C) -> Result<()> {
        let any_bits = <C::Sides as Private>::ANY_BITS;
        if !any_bits {
            call.sides_mut().shelter(self.comm())?;
        }
        // SAFETY: any bits are values in the buffer, or a copy of it has taken its place.
        unsafe { self.run(call) }?;
        match any_bits {
            true => Ok(()),
            false => call.sides_mut().adopt(self.comm()),
        }
    }
}

// In all three: `operation` and `between` have checked the lengths against the buffers, which
// `call` keeps. What operators combine are bytes: those of `Op::new` look at them first, and of
// those made by hand their maker has promised that any will do. (Not moved out of their `Result`:
// they are large, and a move behind the stores that made them stalls the processor for longer than
// a short operation takes to start.)

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
