//! The forms of a call between two groups: blocking, nonblocking, persistent.

use portolan_core::comm::InterCommunicator;
use portolan_core::{Device, Request, Result};

use super::{Groups, InterOperation, write};
use crate::blocking::run_planned;
use crate::check::check_inter;
use crate::compare::{Form, Stamp, prelude};
use crate::options::Options;
use crate::plan::Plan;
use crate::schedule::{Builder, Schedule};
use crate::start::{Persistent, start_planned};
use crate::team::Team;
use crate::units;

/// Performs a collective operation between two groups and returns when this rank's part in it is
/// over.
///
/// # Errors
/// As [`run`](crate::run()), and those of [`check_inter`].
///
/// # Safety
/// As [`run`](crate::run()).
pub unsafe fn run<D: Device>(
    comm: &InterCommunicator<D>,
    operation: &InterOperation<'_>,
) -> Result<()> {
    let mut counts = Vec::new();
    let units = units::between(comm, operation, &mut counts);
    let operation = units.as_ref().unwrap_or(operation);
    // SAFETY: from the caller.
    unsafe {
        run_planned(comm.merged(), |options, old| {
            plan(comm, options, operation, Form::Blocking, old)
        })
    }
}

/// Starts a collective operation between two groups, as [`start`](crate::start()).
///
/// # Errors
/// As [`start`](crate::start()), and those of [`check_inter`].
///
/// # Safety
/// As [`start`](crate::start()).
pub unsafe fn start<D: Device>(
    comm: &InterCommunicator<D>,
    operation: &InterOperation<'_>,
) -> Result<Request> {
    let mut counts = Vec::new();
    let units = units::between(comm, operation, &mut counts);
    let operation = units.as_ref().unwrap_or(operation);
    // SAFETY: from the caller.
    unsafe {
        start_planned(comm.merged(), |options, old| {
            plan(comm, options, operation, Form::Nonblocking, old)
        })
    }
}

/// Plans a collective operation between two groups that can be started again and again. Collective,
/// as [`Persistent::new`].
///
/// # Errors
/// As [`Persistent::new`], and those of [`check_inter`].
pub fn persistent<D: Device>(
    comm: &InterCommunicator<D>,
    operation: &InterOperation<'_>,
) -> Result<Persistent<D>> {
    check_inter(comm, operation)?;
    let mut counts = Vec::new();
    let units = units::between(comm, operation, &mut counts);
    let operation = units.as_ref().unwrap_or(operation);
    let both = comm.merged();
    Persistent::planned(
        both,
        |options, old| plan(comm, options, operation, Form::Persistent, old),
        || Stamp::between(comm, operation, Form::Persistent),
    )
}

fn plan<D: Device>(
    comm: &InterCommunicator<D>,
    options: &Options,
    operation: &InterOperation<'_>,
    form: Form,
    schedule: Schedule,
) -> Result<Plan> {
    check_inter(comm, operation)?;
    let both = comm.merged();
    let mut b = Builder::reusing(Team::all(both.rank(), both.size()), schedule);
    b.set_name(operation.name());
    if form != Form::Blocking {
        b.leave_unattended();
    }
    if options.compare {
        // As in `crate::plan`.
        if form != Form::Persistent {
            prelude(&mut b, &Stamp::between(comm, operation, form));
        }
        b.keep_empty();
    }
    let bases = write(&mut b, options, &Groups::of(comm), operation);
    Ok(Plan {
        schedule: b.finish(),
        bases,
        algorithm: "between groups",
    })
}
