//! Starts the ranks.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use portolan_core::config::{OnFailure, Settings};
use portolan_core::job::JOB_ID_VARIABLE;

use super::event_loop::Job;
use super::output::{LabelledPipe, Output, Stream};
use super::rank::{PmiStream, Rank};
use super::strangers::Strangers;
use super::stuck::Board;
use super::verdict::Failure;
use super::{leftovers, pmi, shm, stdin};
use crate::cli::RunArgs;
use crate::os::{self, ChildSetup, CpuSet, Guard, SignalMask, Signals};

/// Variables of other launchers' protocols, which would contradict Portolan's in a rank.
const FOREIGN: &[&str] = &[
    "PMI_PORT",
    "PMI_ID",
    "PMI_SPAWNED",
    "PMI_SUBVERSION",
    "PMI_VERSION",
];
const FOREIGN_PREFIXES: &[&str] = &["PMIX_", "OMPI_COMM_WORLD_"];

/// Starts every rank, or none.
pub(super) fn start(args: &RunArgs) -> Result<Job, Failure> {
    let program = find_program(&args.command[0])?;
    let settings = settings_of_ranks(args)?;
    let on_failure = args.on_failure.unwrap_or(settings.on_failure());
    let stuck_after = args.stuck_after.unwrap_or(settings.stuck_after());
    let cpus = args
        .bind
        .plan(args.ranks, "--bind")
        .map_err(|why| Failure::launcher(&why))?;
    let cannot = |what: &'static str| {
        move |error: io::Error| Failure::launcher(&format!("cannot {what}: {error}"))
    };
    let output = Output::open().map_err(cannot("use the standard output"))?;
    let memory = shm::create().map_err(cannot("make the job's memory file"))?;
    let (stdin, terminal) = stdin::for_rank_0().map_err(cannot("use the standard input"))?;
    let job_id = job_id();
    // Everything that ranks start has the mark in its environment, unless it removes the mark.
    let mark = format!("{JOB_ID_VARIABLE}={job_id}");
    let strangers = Strangers::find(&mark);
    os::adopt_orphans().map_err(cannot("adopt the ranks' processes"))?;
    let signals = Signals::watch().map_err(cannot("watch for signals"))?;
    let guard =
        Guard::start(leftovers::remove, &mark).map_err(cannot("start the guard process"))?;

    let plan = Plan {
        args,
        program: &program,
        job_id: &job_id,
        on_failure,
        memory: &memory,
        group: guard.group(),
        mask: signals.before(),
    };
    let mut ranks = Vec::new();
    let mut stdin = Some(stdin);
    for (number, cpus) in (0..).zip(cpus) {
        // Starting many ranks takes a while.
        if let Some(signal) = signals.end_is_asked_for() {
            guard.finish();
            // Taken, so that they do not end the launcher before that has said why.
            while let Ok(Some(_)) = signals.next() {}
            return Err(Failure::not_started(signal, number, args.ranks));
        }
        match plan.start_rank(number, cpus, stdin.take().unwrap_or_else(Stdio::null)) {
            Ok(rank) => {
                guard.tell(rank.pid);
                ranks.push(rank);
            }
            Err(failure) => {
                // This also ends the ranks that have been started before this one.
                guard.finish();
                return Err(failure);
            }
        }
    }
    Ok(Job {
        server: pmi::Server::new(&job_id, args.ranks),
        board: Board::new(stuck_after),
        ranks,
        signals,
        guard: Some(guard),
        strangers,
        output,
        terminal,
        on_failure,
        timeout: args.timeout,
    })
}

/// The properties that all ranks share.
struct Plan<'a> {
    args: &'a RunArgs,
    program: &'a Path,
    job_id: &'a str,
    on_failure: OnFailure,
    memory: &'a OwnedFd,
    group: i32,
    mask: SignalMask,
}

impl Plan<'_> {
    fn start_rank(&self, number: u32, cpus: Option<CpuSet>, stdin: Stdio) -> Result<Rank, Failure> {
        let failed = |error| self.cannot_start(number, &error);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(self.program);
        command.args(&self.args.command[1..]).stdin(stdin);
        let pipes = if self.args.label {
            let (out, to_out) = io::pipe().map_err(failed)?;
            let (err, to_err) = io::pipe().map_err(failed)?;
            command.stdout(to_out).stderr(to_err);
            vec![
                LabelledPipe::new(Stream::Out, out, number),
                LabelledPipe::new(Stream::Err, err, number),
            ]
        } else {
            Vec::new()
        };
        self.set_variables(&mut command, number, theirs.as_raw_fd());
        let keep = vec![theirs.as_raw_fd(), self.memory.as_raw_fd()];
        ChildSetup {
            group: self.group,
            mask: self.mask,
            keep,
            cpus,
        }
        .apply(&mut command);
        let child = command.spawn().map_err(failed)?;
        Ok(Rank {
            number,
            // The kernel's pids are positive and fit.
            pid: i32::try_from(child.id())
                .map_err(|_| failed(io::ErrorKind::InvalidData.into()))?,
            running: true,
            pmi: Some(PmiStream::new(ours).map_err(failed)?),
            pipes,
        })
    }

    fn set_variables(&self, command: &mut Command, rank: u32, pmi: i32) {
        for (name, _) in std::env::vars_os() {
            if is_foreign(&name) {
                command.env_remove(name);
            }
        }
        let size = self.args.ranks.to_string();
        if let Some(transport) = &self.args.transport {
            command.env("PORTOLAN_TRANSPORT", transport);
        }
        for (name, value) in portolan::rank_variables() {
            if std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        for (name, value) in &self.args.variables {
            command.env(name, value);
        }
        if let Some(time) = self.args.stuck_after {
            command.env("PORTOLAN_STUCK_AFTER", time.as_secs_f64().to_string());
        }
        command.env("PORTOLAN_ON_FAILURE", self.on_failure.to_string());
        // The variables that tell a rank its identity come last, so that nothing can contradict
        // them.
        command
            .env("PMI_FD", pmi.to_string())
            .env("PMI_RANK", rank.to_string())
            .env("PMI_SIZE", &size)
            .env("MPI_LOCALRANKID", rank.to_string())
            .env("MPI_LOCALNRANKS", &size)
            .env(JOB_ID_VARIABLE, self.job_id)
            .env(shm::VARIABLE, self.memory.as_raw_fd().to_string());
    }

    fn cannot_start(&self, rank: u32, error: &io::Error) -> Failure {
        let program = self.program.display();
        let hint = match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                let limit = os::limit_open_files().map_or("none".to_owned(), |n| n.to_string());
                format!(
                    "\n  fix: fewer ranks, or a higher limit of open files (now {limit}: ulimit -n)"
                )
            }
            Some(libc::EAGAIN) => {
                "\n  fix: fewer ranks, or a higher limit of processes (ulimit -u, pids.max)"
                    .to_owned()
            }
            Some(libc::ENOEXEC) => {
                "\n  fix: a script needs a first line such as #!/bin/sh".to_owned()
            }
            Some(libc::ENOENT) => {
                "\n  the file is there, but not the interpreter or loader that it asks for"
                    .to_owned()
            }
            _ => String::new(),
        };
        let code = match error.raw_os_error() {
            Some(libc::ENOENT) => 127,
            Some(libc::EACCES | libc::ENOEXEC) => 126,
            _ => 125,
        };
        Failure {
            code,
            text: format!("cannot start rank {rank} ({program}): {error}{hint}"),
        }
    }
}

/// The settings in the ranks' environment.
///
/// Those that no rank could use are refused here, once, instead of by every rank.
fn settings_of_ranks(args: &RunArgs) -> Result<Settings, Failure> {
    let inherited = std::env::vars_os();
    let given = args
        .variables
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    // If a name occurs several times, the last value counts, as in a rank's environment.
    let variables: BTreeMap<OsString, OsString> = inherited.chain(given).collect();
    let settings = Settings::from_variables(variables);
    settings.map_err(|error| Failure::launcher(&error.to_string()))
}

fn is_foreign(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    FOREIGN.contains(&&*name)
        || FOREIGN_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// A unique name for the job, which is also the name of its PMI key-value space.
fn job_id() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // std seeds every RandomState differently, from the operating system's randomness.
    let random = RandomState::new().build_hasher().finish();
    format!("portolan-{}-{random:016x}", std::process::id())
}

/// The file to run, found as a shell finds it, so that errors are known before anything runs.
fn find_program(program: &OsStr) -> Result<PathBuf, Failure> {
    let shown = program.display();
    let here = Path::new(program);
    if program.as_encoded_bytes().contains(&b'/') {
        return match usable(here) {
            Ok(()) => Ok(here.to_owned()),
            Err((code, why)) => Err(Failure {
                code,
                text: format!("cannot start `{shown}`: {why}"),
            }),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    let candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    if let Some(found) = candidates.into_iter().find(|file| usable(file).is_ok()) {
        return Ok(found);
    }
    let hint = if usable(here).is_ok() {
        format!("\n  fix: it is in this folder: ./{shown}")
    } else {
        String::new()
    };
    let text = format!("cannot start `{shown}`: no such program in PATH{hint}");
    Err(Failure { code: 127, text })
}

fn usable(file: &Path) -> Result<(), (u8, String)> {
    match file.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err((127, "there is no such file".to_owned()))
        }
        Err(error) => Err((126, error.to_string())),
        Ok(data) if data.is_dir() => Err((126, "it is a folder".to_owned())),
        Ok(data) if data.permissions().mode() & 0o111 == 0 => {
            Err((126, "it may not be executed (chmod +x)".to_owned()))
        }
        Ok(_) => Ok(()),
    }
}
