//! From an operation to a schedule: lower it, choose an algorithm, and let the algorithm write.

use portolan_core::comm::Communicator;
use portolan_core::{Device, Result};

use crate::algorithms::{self, Ask};
use crate::args::{Name, Operation};
use crate::check::check;
use crate::compare::{Form, Stamp, prelude};
use crate::exact;
use crate::lower::{Lowered, Problem, lower};
use crate::neighbour;
use crate::options::Options;
use crate::schedule::{Builder, Schedule};
use crate::select::Table;
use crate::state;
use crate::team::Team;

/// A schedule, and the addresses for which it was written.
pub(crate) struct Plan {
    pub(crate) schedule: Schedule,
    pub(crate) bases: [*mut u8; 2],
    /// The algorithm that wrote it.
    #[allow(dead_code, reason = "for the trace")]
    pub(crate) algorithm: &'static str,
}

/// Validates an operation and plans it, in the memory of a schedule that is not used any more.
pub(crate) fn plan<D: Device>(
    comm: &Communicator<D>,
    options: &Options,
    operation: &Operation<'_>,
    form: Form,
    schedule: Schedule,
) -> Result<Plan> {
    check(comm, operation)?;
    Ok(plan_checked(comm, options, operation, form, schedule))
}

/// Plans an operation that has been validated.
pub(crate) fn plan_checked<D: Device>(
    comm: &Communicator<D>,
    options: &Options,
    operation: &Operation<'_>,
    form: Form,
    schedule: Schedule,
) -> Plan {
    let team = Team::all(comm.rank(), comm.size());
    let mut b = Builder::reusing(team, schedule);
    b.set_name(operation.name());
    b.set_levels(state::of(comm).levels(comm));
    if form != Form::Blocking {
        b.leave_unattended();
    }
    if options.compare {
        // The ranks compared a persistent operation when they made it.
        if form != Form::Persistent {
            prelude(
                &mut b,
                &Stamp::new(operation, (comm.rank(), comm.size()), form),
            );
        }
        b.keep_empty();
    }
    let Lowered {
        problem,
        ask,
        bases,
    } = match operation {
        Operation::NeighbourAllgather { .. } | Operation::NeighbourAlltoall { .. } => {
            let neighbours = state::of(comm).neighbours(comm);
            let neighbours = neighbours.expect("that the topology fits has been checked");
            neighbour::lower(&mut b, neighbours, operation)
        }
        _ => lower(&mut b, operation),
    };
    let (table, name) = (&options.table, operation.name());
    let algorithm = match exact::reduction(operation).filter(|_| options.reproducible) {
        Some(reduction) => exact::write(&mut b, table, name, &problem, &ask, reduction),
        None => write(&mut b, table, name, &problem, &ask),
    };
    Plan {
        schedule: b.finish(),
        bases,
        algorithm,
    }
}

/// Chooses an algorithm for a problem and lets it write the schedule; returns its name.
pub(crate) fn write(
    b: &mut Builder,
    table: &Table,
    name: Name,
    problem: &Problem,
    ask: &Ask,
) -> &'static str {
    macro_rules! by {
        ($list:expr, $problem:expr) => {{
            let chosen = table.choose(name, $list, $problem, ask, b.levels().is_some());
            b.set_radix(chosen.radix);
            (chosen.algorithm.build)(b, $problem);
            chosen.algorithm.name
        }};
    }
    match problem {
        Problem::Barrier(problem) => by!(algorithms::BARRIER, problem),
        Problem::Bcast(problem) => by!(algorithms::BCAST, problem),
        Problem::Gather(problem) => by!(algorithms::GATHER, problem),
        Problem::Scatter(problem) => by!(algorithms::SCATTER, problem),
        Problem::Allgather(problem) => by!(algorithms::ALLGATHER, problem),
        Problem::Alltoall(problem) => by!(algorithms::ALLTOALL, problem),
        Problem::Neighbour(problem) => by!(algorithms::NEIGHBOUR, problem),
        Problem::Reduce(problem) => by!(algorithms::REDUCE, problem),
        Problem::Allreduce(problem) => by!(algorithms::ALLREDUCE, problem),
        Problem::ReduceScatter(problem) => by!(algorithms::REDUCE_SCATTER, problem),
        Problem::Scan(problem) => by!(algorithms::SCAN, problem),
    }
}
