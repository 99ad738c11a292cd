//! Finds the launcher: an inherited socket (`PMI_FD`) or an address (`PMI_PORT`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use super::super::environment::Variables;
use super::super::{Bootstrap, JobError};
use super::client::{Client, Place};
use super::{MAX_LINE, Message};

/// Descriptors that `portolan run` hands over: the name for `Bootstrap::inherited`, and the
/// variable.
const INHERITED: &[(&str, &str)] = &[("shm", "PORTOLAN_SHM_FD")];

/// Connects to a PMI-1 launcher; `None` if the environment names none.
pub(in super::super) fn connect(
    variables: &Variables<'_>,
) -> Result<Option<Box<dyn Bootstrap>>, JobError> {
    let client = if let Some(fd) = variables.number("PMI_FD")? {
        connect_inherited(variables, fd)?
    } else if let Some(address) = variables.get("PMI_PORT") {
        connect_to(variables, &address)?
    } else {
        return Ok(None);
    };
    Ok(Some(Box::new(client)))
}

fn connect_inherited(variables: &Variables<'_>, fd: u32) -> Result<Client, JobError> {
    let rank = required(variables, "PMI_RANK")?;
    let size = required(variables, "PMI_SIZE")?;
    check_place(rank, size)?;
    let stream: File = take_over("PMI_FD", fd)?.into();
    Client::start(Box::new(stream), place(variables, rank, size))
}

/// With `PMI_PORT=host:port` and `PMI_ID`, the launcher answers with rank and size.
fn connect_to(variables: &Variables<'_>, address: &str) -> Result<Client, JobError> {
    let id = required(variables, "PMI_ID")?;
    let lost = |source| JobError::Connection {
        rank: id,
        doing: "connecting to PMI_PORT",
        source,
    };
    let mut stream = TcpStream::connect(address).map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    writeln!(stream, "{}", Message::new("initack").with("pmiid", id)).map_err(lost)?;

    // Bytes that remain in the buffered reader would be lost to the client. There are none, because
    // after these four lines the launcher sends nothing unasked.
    let mut reader = BufReader::new(stream);
    let mut next = |command: &str| -> Result<Message, JobError> {
        let message = read_message(&mut reader).map_err(lost)?;
        if message.command() == command {
            return Ok(message);
        }
        let why = format!("`{message}` where `{command}` was expected");
        Err(JobError::Protocol {
            rank: id,
            doing: "connecting to PMI_PORT",
            why,
        })
    };
    next("initack")?;
    let (mut rank, mut size) = (None, None);
    for _ in 0..3 {
        let message = next("set")?;
        let number = |name| {
            message
                .field(name)
                .and_then(|text| text.parse::<u32>().ok())
        };
        rank = rank.or(number("rank"));
        size = size.or(number("size"));
    }
    let (Some(rank), Some(size)) = (rank, size) else {
        let why = "it sent no rank or no size".to_owned();
        return Err(JobError::Protocol {
            rank: id,
            doing: "connecting to PMI_PORT",
            why,
        });
    };
    check_place(rank, size)?;
    Client::start(Box::new(reader.into_inner()), place(variables, rank, size))
}

fn read_message(reader: &mut impl BufRead) -> io::Result<Message> {
    let mut line = Vec::new();
    io::Read::take(&mut *reader, MAX_LINE as u64).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it ended within a line",
        ));
    }
    Message::parse(&line).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
}

fn place(variables: &Variables<'_>, rank: u32, size: u32) -> Place {
    let inherit = |&(what, variable): &(&'static str, &str)| {
        let fd = variables.number(variable).ok().flatten()?;
        // If the variable belongs to an outer job, its descriptor may be closed or taken.
        take_over(variable, fd)
            .ok()
            .map(|descriptor| (what, descriptor))
    };
    let claimed_job = variables.get(super::super::JOB_ID_VARIABLE);
    let inherited = match claimed_job {
        Some(_) => INHERITED.iter().filter_map(inherit).collect(),
        None => Vec::new(),
    };
    let other_launcher = if variables.get("SLURM_STEP_ID").is_some() {
        Some("pmi-1 (slurm)")
    } else if variables.get("FLUX_TASK_RANK").is_some() {
        Some("pmi-1 (flux)")
    } else {
        None
    };
    Place {
        rank,
        size,
        claimed_job,
        inherited,
        other_launcher,
    }
}

fn required(variables: &Variables<'_>, name: &str) -> Result<u32, JobError> {
    variables
        .number(name)?
        .ok_or_else(|| JobError::BadVariable {
            name: name.to_owned(),
            value: String::new(),
            why: "says nothing, though PMI_FD or PMI_PORT says that a launcher is there".to_owned(),
            remedy: "start the program with `portolan run`, or unset PMI_FD and PMI_PORT",
        })
}

fn check_place(rank: u32, size: u32) -> Result<(), JobError> {
    if rank < size {
        return Ok(());
    }
    Err(JobError::BadVariable {
        name: "PMI_RANK".to_owned(),
        value: rank.to_string(),
        why: format!("is not a rank of a job of PMI_SIZE={size}"),
        remedy: "start the program with `portolan run`, or unset PMI_FD, PMI_RANK and PMI_SIZE",
    })
}

/// Takes ownership of a descriptor that the launcher left open across `exec`.
///
/// A descriptor that is close-on-exec cannot have come across `exec`: something in this process has
/// taken it already, or opened it. So the flag also marks descriptors that have an owner.
fn take_over(variable: &str, fd: u32) -> Result<OwnedFd, JobError> {
    let bad = |why: &str, remedy| JobError::BadVariable {
        name: variable.to_owned(),
        value: fd.to_string(),
        why: why.to_owned(),
        remedy,
    };
    let not_open = || {
        bad(
            "is not an open descriptor: the launcher's rank is the program that started this one, \
             or this process has left its job already",
            "unset PMI_FD for a program that a rank starts for itself",
        )
    };
    let raw = RawFd::try_from(fd).map_err(|_| not_open())?;
    // Makes checking and setting the flag one step, in case several threads join at once.
    static TAKING: Mutex<()> = Mutex::new(());
    let _one = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: F_GETFD only reads the descriptor's flags; any number may be asked about.
    let flags = unsafe { libc::fcntl(raw, libc::F_GETFD) };
    if flags == -1 {
        return Err(not_open());
    }
    if flags & libc::FD_CLOEXEC != 0 || raw <= 2 {
        return Err(bad(
            "belongs to this process already, which can join its job only once",
            "share the first world, or use its dup",
        ));
    }
    // SAFETY: F_SETFD changes one flag of a descriptor that was found open above.
    unsafe { libc::fcntl(raw, libc::F_SETFD, flags | libc::FD_CLOEXEC) };
    // SAFETY: the descriptor is open, and has no owner in this process. It was inherited, because
    // it was not close-on-exec, as every descriptor made by Rust is. The launcher's variable gives
    // it to the first joiner, and the flag set above keeps out a second one.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
