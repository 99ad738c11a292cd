//! Jobs in which an algorithm of a collective operation is forced.

use std::process::Command;
use std::time::Duration;

use portolan_benches::Plan;
use portolan_coll::select::Place;

use super::job::{Job, Outcome, as_rank, listen, ours, own_file, whole_seconds};
use crate::os;

/// One algorithm of a collective operation, forced for every size, over messages.
#[derive(Clone, Debug)]
pub(super) struct Forced {
    pub(super) transport: Option<String>,
    /// The command that starts the job, in place of this one's launcher; empty if there is none.
    pub(super) launcher: Vec<String>,
    pub(super) algorithm: String,
    /// The rule that forces the algorithm.
    pub(super) table: String,
}

/// What a job says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// The name of its transport.
    pub(super) transport: String,
    /// Where its ranks are.
    pub(super) place: Place,
}

impl Forced {
    /// Time after which `portolan bench` itself ends a sample; `None` if the launcher does that.
    pub(super) fn limit(&self, patience: Duration) -> Option<Duration> {
        (!self.launcher.is_empty()).then_some(patience)
    }

    /// Takes a sample and calls `step` for each figure.
    pub(super) fn sample(
        &self,
        job: &Job,
        limit: Option<Duration>,
        step: &mut dyn FnMut(),
    ) -> Result<Outcome, String> {
        // The entry keeps the algorithm's name, not the transport's.
        Ok(Outcome {
            transport: None,
            ..listen(self.command(job)?, limit, step)?
        })
    }

    /// Runs a job that does hardly anything, to learn what its transport is and where its ranks
    /// are.
    pub(super) fn surroundings(
        &self,
        job: &Job,
        limit: Option<Duration>,
    ) -> Result<Surroundings, String> {
        let job = Job {
            plans: vec![Plan::with_rounds(0, 1)],
            ..job.clone()
        };
        let mut command = self.command(&job)?;
        command.arg("--about");
        let said = listen(command, limit, &mut || ())?;
        let transport = said.transport.ok_or("the job does not say its transport")?;
        let place = match said.levels {
            true => Place::Levels,
            false => Place::Flat,
        };
        Ok(Surroundings { transport, place })
    }

    fn command(&self, job: &Job) -> Result<Command, String> {
        let begun = os::monotonic_nanoseconds();
        let transport = self.transport.as_deref();
        let mut command = match &self.launcher[..] {
            [] => ours(job, transport, begun)?,
            [program, words @ ..] => {
                let mut command = Command::new(program);
                command.args(words).args(["-n", &job.ranks.to_string()]);
                command.arg(own_file()?);
                as_rank(&mut command, job, begun);
                if let Some(name) = transport {
                    command.env("PORTOLAN_TRANSPORT", name);
                }
                // Read by MPICH's. Others are ended from here.
                command.env("MPIEXEC_TIMEOUT", whole_seconds(job.patience()));
                command
            }
        };
        command.env("PORTOLAN_COLL_TABLE", &self.table);
        command.env("PORTOLAN_COLL_DIRECT", "off");
        Ok(command)
    }
}
