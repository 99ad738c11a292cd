//! The parts of the ranks in the failure tests. The last rank is the victim; rank 0 is its partner.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use portolan::coll::Bcast;
use portolan::{Comm, Error, ErrorKind, Errors, Group, Op, Result, Source, World};
use portolan_core::device::RegionKey;
use portolan_core::{Device, ProcId, job};

const LARGE: usize = 4 << 20;

/// Plays a rank to its end.
pub(crate) fn play(role: &str) -> ExitCode {
    match role {
        "before" | "joined" | "mapped" => start(role),
        "failing" | "failing-loudly" => failing(role),
        "message" | "blocking" | "started" | "planned" | "created" => {
            portolan::run(|world| misuse(role, &world))
        }
        _ => portolan::run(|world| act(role, &world)),
    }
}

/// The calls in which a rank waits for the dead one, in order.
pub(crate) fn calls(role: &str, rank: u32) -> Vec<&str> {
    let first = match (role, rank) {
        ("barrier" | "outside", _) => "barrier",
        (role, _) if is_collective(role) => role,
        ("receiving" | "deaf", 0) => "send",
        ("putting", 0) => "put",
        ("getting", 0) => "get",
        ("asleep", 0) => "receive",
        (role, _) if is_in_the_middle(role) => "receive",
        (_, 0) => "receive",
        (_, 1) => "wildcard",
        (_, 2) => "ssend",
        _ => "broadcast",
    };
    // By the second call the death is known, and nothing waits.
    vec![first, "again"]
}

/// Whether all ranks, the victim included, repeat an operation together.
fn is_collective(role: &str) -> bool {
    role.starts_with("broadcasting") || matches!(role, "agreeing" | "summing")
}

/// Whether the ranks that are cut off are on three hosts, and each of the others waits for a rank
/// of the one in the middle.
fn is_in_the_middle(role: &str) -> bool {
    role.starts_with("middle")
}

/// Repetition number `round`.
fn collective(role: &str, comm: &Comm, large: &mut [u8], round: u32) -> Result<()> {
    // Every rank takes every place in the tree in turn.
    let root = round % comm.size();
    match role {
        "broadcasting" => comm.bcast(&mut large[..64], root),
        "broadcasting-large" => comm.bcast(large, root),
        // The root only sends, and never waits for another rank.
        "broadcasting-from-0" => comm.bcast(&mut large[..64], 0),
        "agreeing" => comm.dup().map(drop),
        _ => comm
            .allreduce_one(u64::from(comm.rank()), &Op::SUM)
            .map(drop),
    }
}

fn act(role: &str, world: &World) -> Result<()> {
    // `lost-N-ROLE`: the last N ranks are cut off.
    let (role, cut_off) = match role.strip_prefix("lost-").and_then(|it| it.split_once('-')) {
        Some((lost, role)) => (role, lost.parse().expect("a number of ranks")),
        None => (role, 0),
    };
    let comm = world.comm();
    let living = world.size() - cut_off.max(1);
    // The first rank of the middle host, and how many there are on each.
    let (middle, each) = (living + cut_off / 3, (cut_off / 3).max(1));
    let victim = match is_in_the_middle(role) {
        true => middle + world.rank() % each,
        false => world.size() - 1,
    };
    if is_collective(role) {
        // All ranks are in the middle of the repetitions when the victim is killed.
        let mut large = vec![0; LARGE];
        for round in 0..world.size() {
            collective(role, &comm, &mut large, round)?;
        }
    }
    let key = match role {
        "putting" | "getting" => share(&comm, victim)?,
        _ => None,
    };
    if is_in_the_middle(role) {
        talk_for_a_while(&comm, middle)?;
    }
    // The message that the victim has announced before it stops polling.
    let announced = match role {
        "announcing" if comm.rank() == victim => Some(
            comm.isend_owned(vec![1_u8; LARGE], 0, 1)
                .map_err(Error::from)?,
        ),
        _ => None,
    };
    say(format!("ready {} {}", world.rank(), std::process::id()));
    if world.rank() >= living {
        let _waits = announced;
        let outcome = match role {
            // The only one there that has talked to rank 0 before.
            "middle-sending-large" if world.rank() == middle => suffer("sending-large", &comm),
            _ => suffer(role, &comm),
        };
        if cut_off > 0 {
            // The rank lives, but no other rank can see that.
            loop {
                std::thread::park();
            }
        }
        return outcome;
    }
    for call in calls(role, world.rank()) {
        let error = until_it_fails(call, &comm, victim, key.as_ref());
        say(format!(
            "told {} {call}: {:?}: {error}",
            world.rank(),
            error.kind()
        ));
        if error.kind() != ErrorKind::PeerFailed {
            return Err(error);
        }
    }
    talk_among_the_living(&comm, living)?;
    say(format!("done {}", world.rank()));
    if cut_off > 0 {
        end_together(&comm, living)?;
    }
    Ok(())
}

/// Rank 0 makes a call with a wrong argument on a communicator whose errors end the job; the others
/// wait for it.
fn misuse(role: &str, world: &World) -> Result<()> {
    let comm = world.comm().dup()?;
    comm.set_name("strict");
    comm.set_errors(Errors::Abort);
    // A duplicate inherits the setting from its parent.
    let comm = comm.dup()?;
    if comm.rank() == 0 {
        let beyond = comm.size();
        let bcast = || Bcast::new(vec![0u8], beyond);
        // The error is not returned: it ends the job.
        match role {
            "message" => drop(comm.send_one(&1u8, beyond, 0)),
            "blocking" => drop(comm.run(bcast())),
            "started" => drop(comm.start_owned(bcast())),
            "planned" => drop(comm.persistent(bcast())),
            _ => drop(comm.create(&Group::new(vec![ProcId::new(beyond)]))),
        }
        say("went on".to_owned());
    }
    comm.barrier()
}

/// Rank 1 announces a long message and fails. Its process exits once rank 0, which then receives,
/// has ended or sleeps.
fn failing(role: &str) -> ExitCode {
    let (mut partner, mut left) = (None, None);
    let code = portolan::run(|world| {
        let comm = world.comm();
        if role == "failing-loudly" {
            // From here on the rank needs nothing of the launcher, which is going to be stopped.
            println!("{}", std::process::id());
            let launcher = std::os::unix::process::parent_id().to_string();
            wait_for(|| crate::state(&launcher) == Some('T'));
        }
        if comm.rank() == 0 {
            let left = left_by(std::process::id());
            comm.send_one(&std::process::id(), 1, 2)?;
            wait_for(|| left.exists());
            let _ = std::fs::remove_file(left);
            comm.recv_into(&mut vec![0_u8; LARGE], 1, 1)?;
            return Ok(());
        }
        let announced = comm.isend_owned(vec![1_u8; LARGE], 0, 1);
        let (pid, _) = comm.recv_one::<u32>(0, 2)?;
        partner = Some(pid);
        left = Some(left_by(pid));
        drop(announced);
        Err(Error::new(ErrorKind::Internal, "as a test"))
    });
    let (Some(partner), Some(left)) = (partner, left) else {
        return code;
    };
    std::fs::write(&left, "").expect("the folder of the tests is there");
    wait_for(|| !left.exists());
    let partner = partner.to_string();
    wait_for(|| !matches!(crate::state(&partner), Some(state) if state != 'S' && state != 'Z'));
    ExitCode::from(7)
}

/// The file that tells rank 0, in the process `pid`, that the other rank has left.
fn left_by(pid: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("left-{pid}"))
}

fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

/// What the victim does until it is killed.
fn suffer(role: &str, comm: &Comm) -> Result<()> {
    let mut large = vec![1_u8; LARGE];
    for round in comm.size().. {
        match role {
            role if is_collective(role) => collective(role, comm, &mut large, round)?,
            "sending-large" => comm.send(&large, 0, 1)?,
            "sending-small" => comm.send(&large[..8], 0, 1)?,
            "outside" | "putting" | "getting" | "announcing" | "deaf" => std::thread::park(),
            "receiving" => drop(comm.recv_into(&mut large, 0, 1)?),
            // No rank ever sends with this tag.
            _ => drop(comm.recv_into(&mut large, 0, 99)?),
        }
    }
    Ok(())
}

/// Repeats one call until it fails, and returns the error.
fn until_it_fails(call: &str, comm: &Comm, victim: u32, key: Option<&RegionKey>) -> Error {
    let mut large = vec![0_u8; LARGE];
    let mut round = comm.size();
    loop {
        let outcome = match call {
            call if is_collective(call) => collective(call, comm, &mut large, round),
            "barrier" => comm.barrier(),
            "put" | "get" => reach(call, comm, victim, key.expect("a region"), &mut large),
            "broadcast" => comm.bcast(&mut large[..64], victim),
            "receive" => comm.recv_into(&mut large, victim, 1).map(drop),
            "send" => comm.send(&large, victim, 1),
            "ssend" => comm.ssend(&large[..8], victim, 5),
            "wildcard" => comm.recv_into(&mut large, Source::Any, 6).map(drop),
            _ => comm.send(&large[..8], victim, 7),
        };
        if let Err(error) = outcome {
            return error;
        }
        round += 1;
    }
}

/// Rank 0 and another one send each other messages for longer than the time between heartbeats, so
/// that these have passed between them, too.
fn talk_for_a_while(comm: &Comm, other: u32) -> Result<()> {
    let heartbeat = std::env::var("PORTOLAN_OFI_HEARTBEAT").expect("seconds");
    let heartbeat: f64 = heartbeat.parse().expect("seconds");
    let start = Instant::now();
    let mut go_on = u8::from(comm.rank() == 0 || comm.rank() == other);
    while go_on != 0 {
        if comm.rank() == other {
            // First, so that it is the one that connects.
            comm.send_one(&0_u8, 0, 10)?;
            (go_on, _) = comm.recv_one(0, 10)?;
        } else {
            comm.recv_one::<u8>(other, 10)?;
            go_on = u8::from(start.elapsed().as_secs_f64() < 1.5 * heartbeat);
            comm.send_one(&go_on, other, 10)?;
        }
    }
    Ok(())
}

/// Shares the victim's memory with rank 0.
fn share(comm: &Comm, victim: u32) -> Result<Option<RegionKey>> {
    if comm.rank() == victim {
        // SAFETY: no request of the communicator's is touched.
        let device = unsafe { comm.communicator() }.device();
        let region = device.alloc_region(LARGE)?;
        comm.send(&region.key.0, 0, 9)?;
        // The victim polls until rank 0 has accessed the memory once in each way.
        comm.recv_one::<u8>(0, 9)?;
    }
    if comm.rank() != 0 {
        return Ok(None);
    }
    let mut key = [0_u8; 56];
    comm.recv_into(&mut key, victim, 9)?;
    let key = RegionKey(key);
    for call in ["put", "get"] {
        reach(call, comm, victim, &key, &mut [0; 8])?;
    }
    comm.send_one(&0_u8, victim, 9)?;
    Ok(Some(key))
}

/// Puts bytes into the victim's memory, or gets them from there.
fn reach(call: &str, comm: &Comm, victim: u32, key: &RegionKey, bytes: &mut [u8]) -> Result<()> {
    // SAFETY: only requests that are made here are completed.
    let device = unsafe { comm.communicator() }.device();
    let (to, at, len) = (ProcId::new(victim), bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the bytes are there until the request is over.
    let request = unsafe {
        match call {
            "put" => device.put(to, key, 0, at, len),
            _ => device.get(to, key, 0, at, len),
        }
    }?;
    device.wait(request)?;
    device.flush(to)
}

/// The surviving ranks still have a working communicator: a ring without the dead rank.
fn talk_among_the_living(comm: &Comm, living: u32) -> Result<()> {
    let me = comm.rank();
    let (right, left) = ((me + 1) % living, (me + living - 1) % living);
    if living > 1 {
        comm.send_one(&me, right, 8)?;
        let (number, _) = comm.recv_one::<u32>(left, 8)?;
        assert_eq!(number, left);
    }
    Ok(())
}

/// Returns when all surviving ranks have come here: a token goes round twice. (MPICH's launcher
/// signals all others when a rank ends in a job that has lost ranks, and the signal ends them.)
fn end_together(comm: &Comm, living: u32) -> Result<()> {
    let me = comm.rank();
    let (right, left) = ((me + 1) % living, (me + living - 1) % living);
    for _ in 0..2 {
        if me != 0 {
            comm.recv_one::<u8>(left, 11)?;
        }
        comm.send_one(&0_u8, right, 11)?;
        if me == 0 {
            comm.recv_one::<u8>(left, 11)?;
        }
    }
    Ok(())
}

/// Joins the job; the last rank kills itself during its start.
fn start(role: &str) -> ExitCode {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (rank, size): (u32, u32) = (number("PMI_RANK").unwrap(), number("PMI_SIZE").unwrap());
    if rank + 1 == size {
        match role {
            "before" => die(),
            "joined" => {
                let _job = job::from_environment(false).expect("the launcher is there");
                die();
            }
            _ => drop(std::thread::spawn(die_when_mapped)),
        }
    }
    // The job may have started before the victim died; then a barrier fails.
    let outcome = portolan::init().and_then(|world| {
        loop {
            world.comm().barrier()?;
        }
    });
    let error: Error = match outcome {
        Ok(()) => return ExitCode::FAILURE,
        Err(error) => error,
    };
    say(format!("told {rank}: {error}").replace('\n', " "));
    ExitCode::SUCCESS
}

/// Kills this process as soon as it has mapped the job's shared memory.
fn die_when_mapped() {
    loop {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        if maps.contains("/memfd:") {
            die();
        }
    }
}

fn die() -> ! {
    // SAFETY: kill touches no memory of this process; afterwards there is none.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("SIGKILL cannot be survived")
}

/// A single write, so that lines of several ranks do not mix.
fn say(line: String) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}
