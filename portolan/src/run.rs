//! The body of a rank's `main`: joins the job and leaves it in the right way.

use std::io::Write;
use std::process::ExitCode;

use portolan_core::ErrorKind;
use portolan_core::level::Level;

use crate::hosted::Leave;
use crate::program_error::describe;
use crate::{Builder, ProgramError, World};

/// Joins the job that this process was started for, runs `body`, and ends the rank's part in the
/// job: the body of a `main`.
///
/// If `body` fails, with an error of this crate or of the program's own, the error and its causes
/// are printed with the rank's number. [`ProgramError`] says which types `body` may return:
/// `Box<dyn Error>` is one of them. `run` then returns the exit code 1 at once, without waiting for
/// the other ranks; they notice the failure. By contrast, a program that calls
/// [`init`](crate::init) itself, and returns an error of its own from `main`, first waits for the
/// other ranks when its world is dropped.
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
/// A program with other errors, too:
///
/// ```
/// use std::error::Error;
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     portolan::run(program)
/// }
///
/// fn program(world: portolan::World) -> Result<(), Box<dyn Error>> {
///     let size: usize = std::env::var("SIZE").unwrap_or("16".into()).parse()?;
///     world.comm().bcast(&mut vec![0.0; size], 0)?;
///     Ok(())
/// }
/// ```
///
/// # Panics
/// If `body` does; the rank does not wait for the others then, either.
#[must_use = "return it from `main`: the launcher learns from it that the rank has failed"]
pub fn run<E, Kind>(body: impl FnOnce(World) -> Result<(), E>) -> ExitCode
where
    E: ProgramError<Kind>,
{
    Builder::new().run(body)
}

impl<L: Level> Builder<L> {
    /// Joins the job, runs `body` and leaves the job. See [`run`].
    ///
    /// # Panics
    /// If `body` does.
    #[must_use = "return it from `main`: the launcher learns from it that the rank has failed"]
    pub fn run<E, Kind>(self, body: impl FnOnce(World<L>) -> Result<(), E>) -> ExitCode
    where
        E: ProgramError<Kind>,
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
                let code = report(&describe(&*error.into_boxed(), rank));
                // This waits for no rank, and an error in it could not be handled.
                let _ = kept.leave(Leave::Failed);
                code
            }
        }
    }
}

#[cold]
fn report(text: &str) -> ExitCode {
    // One write, so that the lines of several ranks do not mix. Without a standard error the text
    // has no reader, so a failure is ignored.
    let _ = std::io::stderr().write_all(format!("error: {text}\n").as_bytes());
    ExitCode::FAILURE
}
