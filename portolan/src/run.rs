//! The body of a rank's `main`: joins the job and leaves it in the right way.

use std::error::Error as AnyError;
use std::io::Write;
use std::process::ExitCode;

use portolan_core::level::Level;
use portolan_core::{Error, ErrorKind};

use crate::hosted::Leave;
use crate::{Builder, World};

/// Joins the job that this process was started for, runs `body`, and ends the rank's part in the
/// job: the body of a `main`.
///
/// If `body` fails, with an error of this crate or of the program's own, the error is printed with
/// the rank's number. `run` then returns the exit code 1 at once, without waiting for the other
/// ranks; they notice the failure. By contrast, a program that calls [`init`](crate::init) itself,
/// and returns an error of its own from `main`, first waits for the other ranks when its world is
/// dropped.
///
/// Under `on_failure = return`, a rank may learn from one of its calls that another rank has
/// failed, and go on until `body` returns `Ok`. Such a rank has succeeded: the exit code is 0. If
/// it learns of the failure only at the end, that is an error of this rank, too. The launcher exits
/// with the code of the first rank that failed.
///
/// ```
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     portolan::run(program)
/// }
///
/// fn program(world: portolan::World) -> portolan::Result<()> {
///     world.comm().barrier()?;
///     println!("rank {} of {}", world.rank(), world.size());
///     Ok(())
/// }
/// ```
///
/// # Panics
/// If `body` does; the rank does not wait for the others then, either.
pub fn run<E>(body: impl FnOnce(World) -> Result<(), E>) -> ExitCode
where
    E: Into<Box<dyn AnyError + Send + Sync>>,
{
    Builder::new().run(body)
}

impl<L: Level> Builder<L> {
    /// Joins the job, runs `body` and leaves the job. See [`run`].
    ///
    /// # Panics
    /// If `body` does.
    pub fn run<E>(self, body: impl FnOnce(World<L>) -> Result<(), E>) -> ExitCode
    where
        E: Into<Box<dyn AnyError + Send + Sync>>,
    {
        // Kept open until the error has been printed: the launcher may end this process when the
        // connection closes.
        let mut connection = None;
        let world = match self.join(&mut connection).and_then(World::host) {
            Ok(world) => world,
            Err(error) => return report(&error.to_string()),
        };
        // Outlives the handles that `body` drops, because a rank that fails must not wait for the
        // others there.
        let kept = world.keep();
        let rank = world.rank();
        match body(world) {
            Ok(()) => match kept.leave(Leave::Orderly) {
                Ok(()) => ExitCode::SUCCESS,
                // Not an error: the program has dealt with the failure, and its own part of the job
                // went well.
                Err(error) if error.kind() == ErrorKind::PeerFailed && kept.hosted().was_told() => {
                    ExitCode::SUCCESS
                }
                Err(error) => report(&error.on_rank(rank).to_string()),
            },
            Err(error) => {
                // Print before the other ranks hear of the error: they may end the job, and this
                // process with it.
                let code = report(&describe(error.into(), rank));
                // This waits for no rank, and an error in it could not be handled.
                let _ = kept.leave(Leave::Failed);
                code
            }
        }
    }
}

/// The error as text, with the rank.
fn describe(error: Box<dyn AnyError + Send + Sync>, rank: u32) -> String {
    match error.downcast::<Error>() {
        Ok(ours) => ours.on_rank(rank).to_string(),
        Err(theirs) => format!("rank {rank}: {theirs}"),
    }
}

#[cold]
fn report(text: &str) -> ExitCode {
    // One write, so that the lines of several ranks do not mix. Without a standard error the text
    // has no reader, so a failure is ignored.
    let _ = std::io::stderr().write_all(format!("error: {text}\n").as_bytes());
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_names_its_rank_once() {
        let ours = Error::new(ErrorKind::InvalidTag, "tag 7 is wrong");
        assert_eq!(describe(ours.into(), 3), "rank 3: tag 7 is wrong");
        let elsewhere = Error::new(ErrorKind::InvalidTag, "tag 7 is wrong").on_rank(2);
        assert_eq!(describe(elsewhere.into(), 3), "rank 2: tag 7 is wrong");
        assert_eq!(describe("no input".into(), 3), "rank 3: no input");
    }
}
