//! The parts that this program plays as a rank.

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::ExitCode;

use portolan_core::job::{self, Bootstrap, JobError};

/// The variable with the name of an existing file to which ranks write.
pub(crate) const SAYS: &str = "TEST_SAYS_IT_THERE";

/// Plays a rank to its end.
pub(crate) fn play(role: &str) -> ExitCode {
    if role == "noise" {
        return noise();
    }
    if role == "refused" {
        return portolan::run(|_| -> portolan::Result<()> { Ok(()) });
    }
    if role == "fails" {
        // Hydra sends this signal to the other ranks after one has failed.
        // SAFETY: to ignore a signal runs no code.
        unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
        say_it_there();
        return portolan::run(fails);
    }
    let result = job::from_environment(false).and_then(|job| act(role, job));
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(99)
        }
    }
}

/// Makes the file that [`SAYS`] names the standard error of this process.
fn say_it_there() {
    let name = std::env::var_os(SAYS).expect("the test names a file");
    let file = std::fs::File::options().append(true).open(name);
    let file = file.expect("the test has made it");
    // SAFETY: both descriptors are open, and the standard error is nobody's.
    unsafe { libc::dup2(file.as_raw_fd(), 2) };
}

/// The last rank ends with an error while the others wait for a message from it.
fn fails(world: portolan::World) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let comm = world.comm();
    comm.barrier()?;
    let last = comm.size() - 1;
    if comm.rank() == last {
        return Err("out of paper".into());
    }
    comm.recv_one::<u8>(last, 0)?;
    Ok(())
}

fn act(role: &str, mut job: Box<dyn Bootstrap>) -> Result<ExitCode, JobError> {
    let rank = job.rank();
    match role {
        "abort" => {
            if rank == 1 {
                job.abort(33, "no luck today");
            }
            // The others wait for a rank that never comes; the launcher ends the rank that aborts.
            job.fence()?;
        }
        "duplicate" => duplicate(&mut *job)?,
        "exchange" => exchange(&mut *job)?,
        "exit-early" => {
            // All ranks have joined before one leaves.
            job.fence()?;
            if rank == 2 {
                return Ok(ExitCode::SUCCESS);
            }
            match job.fence() {
                Err(error @ JobError::RankGone { .. }) => println!("{error}"),
                other => other?,
            }
        }
        "leave-early" => {
            if rank == 1 {
                job.finalize()?;
                // The process stays alive, so that the launcher can notice only that the rank has
                // left.
                wait_for_ever();
            }
            job.fence()?;
        }
        "notice" => notice(&mut *job)?,
        "twice" => match job::from_environment(false) {
            Err(JobError::BadVariable { name, .. }) if name == "PMI_FD" => {
                println!("rank {rank}: refused");
            }
            _ => println!("rank {rank}: joined twice"),
        },
        other => panic!("there is no role `{other}`"),
    }
    job.finalize()?;
    Ok(ExitCode::SUCCESS)
}

fn exchange(job: &mut dyn Bootstrap) -> Result<(), JobError> {
    let (rank, size) = (job.rank(), job.size());
    let texts = |rank: u32, round: u32| {
        [
            String::new(),
            format!("rank {rank}; round={round}\tödd %41\n"),
            // Longer than any launcher's limit, and of a different length on each rank.
            format!("{rank}.{round} ").repeat(3000 + rank as usize),
        ]
    };
    for round in 0..3 {
        for (i, text) in texts(rank, round).iter().enumerate() {
            job.put(&format!("{round}.{rank}.{i}"), text)?;
        }
        job.fence()?;
        for peer in 0..size {
            for (i, text) in texts(peer, round).iter().enumerate() {
                let got = job.get(&format!("{round}.{peer}.{i}"))?;
                assert!(got == *text, "rank {rank} got {got:.40?} from {peer}");
            }
        }
    }
    assert!(matches!(
        job.get("never-put"),
        Err(JobError::KeyMissing { .. })
    ));
    // Only Portolan's launcher passes on the memory file.
    assert_eq!(
        job.inherited("shm").is_some(),
        job.kind() == "pmi-1 (portolan run)"
    );
    println!("rank {rank} of {size} under {}: exchanged", job.kind());
    Ok(())
}

fn duplicate(job: &mut dyn Bootstrap) -> Result<(), JobError> {
    if job.rank() == 0 {
        job.put("key", "0")?;
    }
    job.fence()?;
    if job.rank() == 1 {
        match job.put("key", "1") {
            Err(JobError::DuplicateKey { rank: 1, .. }) => println!("rank 1: refused"),
            other => other?,
        }
    }
    job.fence()
}

/// Rank 1 kills itself. Rank 0 notices and aborts at once, as a device would.
fn notice(job: &mut dyn Bootstrap) -> Result<(), JobError> {
    if job.rank() == 1 {
        job.put("pid", &std::process::id().to_string())?;
    }
    job.fence()?;
    if job.rank() == 1 {
        // SAFETY: raise touches no memory.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    let pid: libc::pid_t = job.get("pid")?.parse().expect("a process number was put");
    // SAFETY: opens a descriptor for a process; if it has gone already the call fails.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd >= 0 {
        let mut ended = libc::pollfd {
            fd: fd as i32,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry is given, and it is there.
        unsafe { libc::poll(&raw mut ended, 1, -1) };
    }
    job.abort(1, "rank 1 has died");
    wait_for_ever()
}

/// Sends something other than PMI on the launcher's connection.
fn noise() -> ExitCode {
    let fd = std::env::var("PMI_FD")
        .expect("a launcher")
        .parse()
        .expect("a number");
    // SAFETY: the launcher left this descriptor for this process, and nobody else here uses it.
    let mut stream = unsafe { std::fs::File::from_raw_fd(fd) };
    if std::env::var("PMI_RANK").as_deref() == Ok("0") {
        stream
            .write_all(b"GET / HTTP/1.1\n")
            .expect("the launcher listens");
    }
    wait_for_ever()
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}
