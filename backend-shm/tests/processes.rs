//! Ranks that are processes: how they come together, traffic, death, and reading each other's
//! memory.

mod common;

use std::time::Instant;

use common::files::{Files, GUARD, Job, die};
use common::{Checker, exchange, send};
use portolan_core::job::Bootstrap;
use portolan_core::transport::{Exposure, Header, Payload, Pulled, Pulls, Sent, Sink, Transport};
use portolan_shm::{Config, Shm, open_with};

/// Not a test of its own: each rank of a job runs this.
#[test]
fn child() {
    let Some((mut job, role)) = Files::from_environment() else {
        return;
    };
    match role.as_str() {
        "traffic" | "inherited" | "alone" => traffic(&mut job),
        "sending" | "receiving" => killed_in_traffic(&mut job, &role),
        "waiting" => killed_asleep(&mut job),
        "leaving" => leaving(&mut job),
        "closing" => closed_under_pushes(&mut job),
        "short-files" => may_make_short_files(&mut job),
        "first-fence" => killed_at_fence(job, 1),
        "second-fence" => killed_at_fence(job, 2),
        "shared" => shared(&mut job),
        "pull" => pull(&mut job, None),
        "pull-undumpable" => {
            become_nobody();
            pull(&mut job, Some("PR_SET_DUMPABLE"));
        }
        "pull-filtered" => {
            forbid(libc::SYS_process_vm_readv);
            pull(&mut job, Some("seccomp filter"));
        }
        "no-membarrier" => {
            // One rank is enough to make all of them fence.
            if job.rank() == 1 {
                forbid(libc::SYS_membarrier);
            }
            let shm = traffic_of(&mut job);
            let facts = shm.describe();
            assert!(
                facts
                    .iter()
                    .any(|(_, fact)| fact.contains("membarrier is not allowed")),
                "{facts:?}"
            );
        }
        "other-file" => other_file(job),
        role => panic!("no role {role}"),
    }
}

fn attach(job: &mut Files) -> Shm {
    open_with(job, &Config::default()).unwrap()
}

/// All-to-all traffic; a rank sleeps while it has nothing to do.
fn traffic(job: &mut Files) {
    drop(traffic_of(job));
}

fn traffic_of(job: &mut Files) -> Shm {
    let mut shm = attach(job);
    exchange(&mut shm, 200);
    job.fence().unwrap();
    assert_eq!(shm.failures(), 0);
    shm
}

#[test]
fn processes_meet_over_a_socket() {
    for size in [2, 5] {
        Job::start("traffic", size, false).succeed();
    }
}

#[test]
fn processes_meet_over_an_inherited_file() {
    Job::start("inherited", 4, true).succeed();
}

#[test]
fn a_job_of_one_needs_nobody() {
    Job::start("alone", 1, false).succeed();
}

#[test]
fn a_rank_without_membarrier_makes_all_fence() {
    Job::start("no-membarrier", 3, false).succeed();
}

/// A rank that may not make files as long as the segment reports this. (A signal ends a process
/// that makes one all the same.)
fn may_make_short_files(job: &mut Files) {
    let limit = libc::rlimit {
        rlim_cur: 1 << 20,
        rlim_max: 1 << 20,
    };
    // SAFETY: a limit of this process, which is the test's own.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    assert_eq!(set, 0);
    let error = open_with(job, &Config::default()).map(drop).unwrap_err();
    assert_eq!(error.kind(), portolan_core::ErrorKind::Exhausted, "{error}");
    let probed = portolan_shm::probe().unwrap_err();
    for text in [error.to_string(), probed] {
        assert!(
            text.contains("raise ulimit -f, or lower PORTOLAN_SHM_MAX"),
            "{text}"
        );
    }
    let short = Config {
        max: 1 << 20,
        ..Config::default()
    };
    assert!(
        portolan_shm::in_process_with(2, &short).is_ok(),
        "this one may be made"
    );
}

#[test]
fn a_segment_that_is_longer_than_files_may_be_is_an_error() {
    Job::start("short-files", 1, false).succeed();
}

/// Sleeps until some rank is dead. Returns which, and why.
fn await_death(shm: &mut Shm) -> (u32, String) {
    let (start, bell) = (Instant::now(), shm.bell());
    while shm.failures() == 0 {
        assert!(start.elapsed() < GUARD, "nobody noticed");
        let seen = bell.seen();
        shm.arm();
        if shm.failures() == 0 {
            bell.sleep(seen, Some(GUARD));
        }
        shm.disarm();
    }
    (0..shm.size())
        .find_map(|rank| Some((rank, shm.failure_of(rank)?)))
        .expect("a dead rank")
}

fn expect_death_of_last(shm: &mut Shm, sink: &mut Checker) {
    let (rank, why) = await_death(shm);
    assert_eq!(rank, shm.size() - 1);
    assert!(
        why.contains(&format!("the process of rank {rank} (pid ")) && why.contains("has died"),
        "{why}"
    );
    // The messages that it sent before are delivered, in order and whole.
    while shm.poll(sink) > 0 {}
    assert_eq!(send(shm, rank, 0, 8), Sent::Gone);
}

/// The last rank is killed while it sends or receives without pause.
fn killed_in_traffic(job: &mut Files, role: &str) {
    let mut shm = attach(job);
    let (own, last) = (shm.rank(), shm.size() - 1);
    let mut sink = Checker::new(own, shm.size());
    let mut number = 0;
    let victim_sends = role == "sending";
    loop {
        shm.poll(&mut sink);
        let to = if own == last { 0 } else { last };
        if (own == last) == victim_sends
            && send(&mut shm, to, number, (number as usize * 37) % 9000) == Sent::Done
        {
            number += 1;
        }
        if own == last && number.max(sink.arrived as u32) > 500 {
            die();
        }
        if own != last && shm.failures() != 0 {
            break;
        }
    }
    expect_death_of_last(&mut shm, &mut sink);
}

#[test]
fn a_rank_killed_while_sending_is_noticed() {
    check_killed("sending", 3);
}

#[test]
fn a_rank_killed_while_receiving_is_noticed() {
    check_killed("receiving", 3);
}

fn check_killed(role: &str, size: usize) {
    let mut job = Job::start(role, size as u32, false);
    assert_eq!(job.wait(size - 1), -libc::SIGKILL);
    for rank in 0..size - 1 {
        assert_eq!(job.wait(rank), 0, "rank {rank}");
    }
    nothing_is_left();
}

/// Memory files have no names, so none can appear in `/dev/shm`.
fn nothing_is_left() {
    let names = std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten();
    let ours: Vec<_> = names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("portolan"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}

/// The last rank is killed from outside while all ranks sleep.
fn killed_asleep(job: &mut Files) {
    let mut shm = attach(job);
    std::fs::write(job.path(&format!("asleep.{}", shm.rank())), "").unwrap();
    let mut sink = Checker::new(shm.rank(), shm.size());
    expect_death_of_last(&mut shm, &mut sink);
}

#[test]
fn a_rank_killed_while_waiting_is_noticed_by_sleepers() {
    let mut job = Job::start("waiting", 4, false);
    (0..4).for_each(|rank| job.await_file(&format!("asleep.{rank}")));
    job.ranks[3].kill().unwrap();
    let start = Instant::now();
    for rank in 0..3 {
        assert_eq!(job.wait(rank), 0, "rank {rank}");
    }
    assert!(start.elapsed() < GUARD);
    nothing_is_left();
}

/// Rank 1 leaves in an orderly way; the others see no failure, however its process ends.
fn leaving(job: &mut Files) {
    let shm = attach(job);
    if shm.rank() == 1 {
        drop(shm);
        std::fs::write(job.path("left"), "").unwrap();
        die();
    }
    let start = Instant::now();
    while !job.path("dead").exists() {
        assert!(start.elapsed() < GUARD);
        std::thread::yield_now();
    }
    assert_eq!(shm.failures(), 0);
}

#[test]
fn a_rank_that_leaves_is_not_a_failure() {
    let mut job = Job::start("leaving", 2, false);
    assert_eq!(job.wait(1), -libc::SIGKILL);
    std::fs::write(job.dir.join("dead"), "").unwrap();
    assert_eq!(job.wait(0), 0);
}

/// The last rank is killed before the job has come together.
fn killed_at_fence(mut job: Files, fence: u32) {
    if job.rank() == job.size() - 1 {
        job.die_at_fence = Some(fence);
    }
    let error = open_with(&mut job, &Config::default())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), portolan_core::ErrorKind::Job, "{error}");
}

#[test]
fn a_rank_killed_while_attaching_ends_the_start() {
    for role in ["first-fence", "second-fence"] {
        let mut job = Job::start(role, 3, true);
        assert_eq!(job.wait(2), -libc::SIGKILL);
        // The launcher does this when a rank ends before its fence.
        std::fs::write(job.dir.join("aborted"), "").unwrap();
        for rank in 0..2 {
            assert_eq!(job.wait(rank), 0, "{role}: rank {rank}");
        }
        nothing_is_left();
    }
}

/// Rank 1 was handed a different file from rank 0.
fn other_file(mut job: Files) {
    let error = open_with(&mut job, &Config::default()).map(drop);
    if job.rank() == 1 {
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("is not the shared memory of this job"),
            "{error}"
        );
        std::fs::write(job.path("aborted"), "").unwrap();
    } else {
        assert!(error.is_err());
    }
}

#[test]
fn a_wrong_file_is_refused() {
    let mut job = Job::start_with_wrong_file("other-file", 2);
    for rank in 0..2 {
        assert_eq!(job.wait(rank), 0, "rank {rank}");
    }
}

struct Keep(Vec<Vec<u8>>);

impl Sink for Keep {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }
    fn packet(&mut self, _peer: u32, _header: &Header, payload: Payload<'_>) {
        self.0.push(payload.to_vec());
    }
}

/// Rank 1 loads what rank 0 has in memory of `alloc`, and rank 0 stores into such memory of rank 1.
/// Neither uses `process_vm_readv`, which a filter forbids.
fn shared(job: &mut Files) {
    const LEN: usize = 3_000_000;
    forbid(libc::SYS_process_vm_readv);
    forbid(libc::SYS_process_vm_writev);
    let mut shm = attach(job);
    let memory = shm.alloc(LEN).unwrap();
    // SAFETY: the memory has that length, and the other rank reads and writes it only between the
    // fences below.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory.ptr, LEN) };
    assert!(shm.shares(memory.ptr, LEN));
    assert!(!shm.shares(memory.ptr.wrapping_sub(8), usize::MAX));
    assert!(!shm.shares(job as *const Files as *const u8, 8));
    if shm.rank() == 0 {
        for (byte, n) in bytes.iter_mut().zip(0_u32..) {
            *byte = (n % 251) as u8;
        }
        // SAFETY: the memory lives until the end of this function.
        let exposure = unsafe { shm.expose(bytes[100..].as_ptr(), LEN - 100) }.unwrap();
        tell(&mut shm, 1, &exposure);
        job.fence().unwrap();
        shm.withdraw(&exposure);
        let buffer = told(&mut shm);
        // SAFETY: a part of the memory.
        let pushed = unsafe { shm.push(1, &buffer, 3, bytes[9..].as_ptr(), 500_000) };
        assert_eq!(pushed, Pulled::Done);
        job.fence().unwrap();
        job.fence().unwrap();
        return;
    }
    let exposure = told(&mut shm);
    assert_eq!(shm.pulls(0, &exposure, LEN, true), Pulls::Shared);
    assert_eq!(shm.pulls(0, &exposure, LEN, false), Pulls::Whole, "outside");
    let mut target = vec![0; 1_000_000];
    // SAFETY: a vector of that length.
    let mut pull = |exposure: &Exposure, offset| unsafe {
        shm.pull(0, exposure, offset, target.as_mut_ptr(), target.len())
    };
    assert_eq!(pull(&exposure, u64::MAX), Pulled::Stream);
    let made_up = Exposure([0xff; 32]);
    assert_eq!(pull(&made_up, 0), Pulled::Stream, "outside of the segment");
    assert_eq!(pull(&exposure, 7), Pulled::Done);
    let expected = (107_u32..).map(|n| (n % 251) as u8);
    assert!(target.iter().copied().eq(expected.take(target.len())));
    // SAFETY: the memory lives until the end of this function, and is left alone until then.
    let buffer = unsafe { shm.expose_mut(memory.ptr, LEN) }.unwrap();
    tell(&mut shm, 0, &buffer);
    job.fence().unwrap();
    job.fence().unwrap();
    shm.withdraw(&buffer);
    // SAFETY: as above; rank 0 has stored.
    let bytes = unsafe { std::slice::from_raw_parts(memory.ptr, LEN) };
    let expected = (9_u32..).map(|n| (n % 251) as u8);
    assert!(
        bytes[3..]
            .iter()
            .copied()
            .take(500_000)
            .eq(expected.take(500_000))
    );
    assert_eq!((bytes[2], bytes[500_003]), (0, 0));
    job.fence().unwrap();
}

/// Rank 1 reads a buffer of rank 0, which is outside the library; then rank 0 writes into a buffer
/// of rank 1.
fn pull(job: &mut Files, refused: Option<&str>) {
    let mut shm = attach(job);
    let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    if shm.rank() == 0 {
        // SAFETY: the vector lives until the end of this function.
        let exposure = unsafe { shm.expose(data.as_ptr(), data.len()) }.unwrap();
        tell(&mut shm, 1, &exposure);
        job.fence().unwrap();
        shm.withdraw(&exposure);
        if refused.is_none() {
            let buffer = told(&mut shm);
            // SAFETY: the vector is that long.
            let pushed = unsafe { shm.push(1, &buffer, 3, data[9..].as_ptr(), 500_000) };
            assert_eq!(pushed, Pulled::Done);
        }
        job.fence().unwrap();
        return;
    }
    let exposure = told(&mut shm);
    let mut target = vec![0; 1_000_000];
    // SAFETY: a vector of that length.
    let pulled = unsafe { shm.pull(0, &exposure, 7, target.as_mut_ptr(), target.len()) };
    let facts = shm.describe();
    let copies = facts
        .iter()
        .find(|(name, _)| name == "large copies")
        .unwrap();
    match refused {
        None => {
            assert_eq!(pulled, Pulled::Done, "{copies:?}");
            assert_eq!(target, data[7..1_000_007]);
        }
        Some(why) => {
            assert_eq!(pulled, Pulled::Stream);
            assert_eq!(
                shm.pulls(0, &exposure, 1 << 20, true),
                Pulls::Never,
                "it is remembered"
            );
            assert!(
                copies.1.contains("refused for rank 0") && copies.1.contains(why),
                "{copies:?}"
            );
        }
    }
    job.fence().unwrap();
    // SAFETY: the vector lives until the end of this function, and is looked at after the fence.
    let buffer = unsafe { shm.expose_mut(target.as_mut_ptr(), target.len()) }.unwrap();
    if refused.is_none() {
        tell(&mut shm, 0, &buffer);
    }
    job.fence().unwrap();
    shm.withdraw(&buffer);
    if refused.is_none() {
        assert_eq!(target[3..500_003], data[9..500_009]);
        assert_eq!(target[500_003..], data[500_010..1_000_007]);
    }
}

/// Rank 1 writes into a buffer of rank 0 again and again, until rank 0 closes its transport.
/// Nothing is written after that.
fn closed_under_pushes(job: &mut Files) {
    const LEN: usize = 100_000;
    let mut shm = attach(job);
    if shm.rank() == 1 {
        let buffer = told(&mut shm);
        let data = vec![1_u8; LEN];
        let outcome = loop {
            // SAFETY: the vector is that long.
            match unsafe { shm.push(0, &buffer, 0, data.as_ptr(), LEN) } {
                Pulled::Done => {}
                outcome => break outcome,
            }
        };
        assert_eq!(outcome, Pulled::Gone);
        assert!(shm.failure_of(0).unwrap().contains("has left the job"));
        job.fence().unwrap();
        return;
    }
    let mut target = vec![0_u8; LEN];
    let bytes = target.as_mut_ptr();
    // SAFETY: the vector lives until the end of this function.
    let buffer = unsafe { shm.expose_mut(bytes, LEN) }.unwrap();
    tell(&mut shm, 1, &buffer);
    // SAFETY: `at` is inside the vector. Another process writes there, so the read is volatile.
    let byte = |at: usize| unsafe { bytes.add(at).read_volatile() };
    while byte(LEN - 1) == 0 {
        std::hint::spin_loop();
    }
    shm.close();
    // SAFETY: as above, and from now on it is this process's alone.
    unsafe { bytes.write_bytes(0, LEN) };
    job.fence().unwrap();
    assert!((0..LEN).all(|at| byte(at) == 0), "written after the end");
}

#[test]
fn nothing_is_written_into_a_rank_that_has_closed() {
    for _ in 0..5 {
        Job::start("closing", 2, false).succeed();
    }
}

/// Sends an exposure to another rank.
fn tell(shm: &mut Shm, peer: u32, exposure: &Exposure) {
    let (header, bytes) = (Header::default(), &exposure.0);
    // SAFETY: 32 bytes to another rank.
    let sent = unsafe { shm.send_short(peer, &header, bytes.as_ptr(), bytes.len()) };
    assert_eq!(sent, Sent::Done);
}

/// Waits for an exposure.
fn told(shm: &mut Shm) -> Exposure {
    let mut keep = Keep(Vec::new());
    while keep.0.is_empty() {
        shm.poll(&mut keep);
    }
    Exposure(keep.0[0].as_slice().try_into().unwrap())
}

#[test]
fn a_receiver_reads_the_sender_s_memory() {
    Job::start("pull", 2, false).succeed();
}

#[test]
fn a_process_that_may_not_be_traced_refuses_and_is_streamed_from() {
    Job::start("pull-undumpable", 2, false).succeed();
}

#[test]
fn a_system_call_filter_refuses_and_the_sender_is_streamed_from() {
    Job::start("pull-filtered", 2, false).succeed();
}

#[test]
fn memory_of_alloc_is_loaded_and_stored_without_system_calls() {
    Job::start("shared", 2, false).succeed();
}

/// Gives up root's rights, with which it could trace any process, and forbids being traced.
fn become_nobody() {
    // SAFETY: integers only; the only other threads at this point are those of the test harness.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setgid(65534), 0);
            assert_eq!(libc::setuid(65534), 0);
        }
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
    }
}

/// From now on this thread's system call `number` fails with EPERM.
fn forbid(number: libc::c_long) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD, 0, 0, 0),
        step(EQUAL, 0, 1, number as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: a valid program of that length.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}
