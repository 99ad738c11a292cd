//! A program whose allocator is the shared one. Each test is a process of its own, because there is
//! one arena per process.

mod common;

use std::io::Write as _;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use common::files::{Files, Job};
use common::{Numbers, exchange};
use portolan_core::job::Bootstrap;
use portolan_core::transport::Transport;
use portolan_shm::{Config, SharedAllocator, Shm, open_with};

#[global_allocator]
static ALLOCATOR: SharedAllocator = SharedAllocator::new();

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Not a test of its own: each process of a job runs this.
#[test]
fn child() {
    let Some((mut job, role)) = Files::from_environment() else {
        return;
    };
    match role.as_str() {
        "places" => places(&mut job),
        "traffic" => traffic(&mut job),
        "back" => back(&mut job),
        "forked" => forked(&mut job),
        "bound" => bound(&mut job),
        "dumped" => dumped(&mut job),
        "no-room" => no_room(&mut job),
        "crowded" => crowded(&mut job),
        "second" => second(&mut job),
        role => panic!("no role {role}"),
    }
}

fn attach(job: &mut Files) -> Shm {
    open_with(job, &Config::default()).unwrap()
}

fn is_shared<T>(shm: &Shm, values: &[T]) -> bool {
    shm.shares(values.as_ptr().cast(), size_of_val(values))
}

fn held(shm: &Shm) -> Option<String> {
    let mut facts = shm.describe().into_iter();
    let fact = facts.find(|(name, _)| name == "the program's allocator");
    fact.map(|(_, value)| value)
}

/// Which allocations are shared, and that values stay when they move there and back.
fn places(job: &mut Files) {
    let mut early = vec![7_u8; 100 * KIB];
    let shm = attach(job);
    assert!(!is_shared(&shm, &early), "it was there before the job");
    assert!(!is_shared(&shm, &vec![1_u8; 8 * KIB - 1]));
    assert!(is_shared(&shm, &vec![1_u8; 8 * KIB]));
    assert!(is_shared(&shm, &vec![0_u64; 2 * KIB]), "zeroed");

    early.resize(200 * KIB, 8);
    assert!(is_shared(&shm, &early), "it has moved");
    assert!(early[..100 * KIB].iter().all(|&byte| byte == 7));
    let place = early.as_ptr();
    early.truncate(150 * KIB);
    early.shrink_to_fit();
    assert_eq!(
        (early.as_ptr(), early.capacity()),
        (place, 150 * KIB),
        "shorter, where it is"
    );
    early.truncate(1000);
    early.shrink_to_fit();
    assert!(!is_shared(&shm, &early), "it has moved back");
    assert_eq!(early, [7; 1000]);

    let mut grown = Vec::new();
    for number in 0..1_000_000_u64 {
        grown.push(number);
    }
    assert!(is_shared(&shm, &grown));
    assert!(
        grown
            .iter()
            .zip(0..)
            .all(|(&value, number)| value == number)
    );

    // What has been used before is zeroed for who wants zeros.
    for _ in 0..4 {
        drop(vec![0xff_u8; MIB]);
        assert!(vec![0_u8; MIB].iter().all(|&byte| byte == 0));
    }
    #[repr(align(16384))]
    struct Aligned([u8; 16384]);
    let aligned: Vec<Box<Aligned>> = (0..8).map(|n| Box::new(Aligned([n; 16384]))).collect();
    for (boxed, n) in aligned.iter().zip(0..) {
        assert!((&raw const **boxed).addr().is_multiple_of(16384));
        assert!(is_shared(&shm, &boxed.0) && boxed.0 == [n; 16384]);
    }
}

/// A block whose bytes can be checked.
fn block(number: u64, len: usize) -> (u64, Vec<u8>) {
    (number, vec![number as u8; len])
}

fn check((number, bytes): &(u64, Vec<u8>)) {
    let good = bytes.iter().all(|&byte| byte == *number as u8);
    assert!(good, "block {number} of {} bytes", bytes.len());
}

/// Threads allocate, grow, shrink and free blocks of all lengths, their own and each other's.
fn traffic(job: &mut Files) {
    const THREADS: u64 = 4;
    let shm = attach(job);
    let (sends, receives): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel()).unzip();
    thread::scope(|scope| {
        for (seed, receive) in (0..THREADS).zip(receives) {
            let sends = sends.clone();
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                let mut blocks = Vec::new();
                for number in 0..3000 {
                    let most = 1 << (10 + numbers.below(10));
                    let len = numbers.below(most) as usize;
                    blocks.push(block(number, len));
                    let at = numbers.below(blocks.len() as u64) as usize;
                    check(&blocks[at]);
                    let (number, mut bytes) = blocks.swap_remove(at);
                    match number % 4 {
                        0 => drop(bytes),
                        1 => {
                            bytes.resize(numbers.below(300 << 10) as usize, number as u8);
                            bytes.shrink_to_fit();
                            blocks.push((number, bytes));
                        }
                        2 => {
                            let to = numbers.below(THREADS) as usize;
                            sends[to].send((number, bytes)).unwrap();
                        }
                        _ => blocks.push((number, bytes)),
                    }
                    if blocks.len() > 100 {
                        blocks.drain(..50).for_each(|block| check(&block));
                    }
                    receive.try_iter().for_each(|block| check(&block));
                }
                drop(sends);
                blocks
                    .iter()
                    .chain(&receive.iter().collect::<Vec<_>>())
                    .for_each(check);
            });
        }
        drop(sends);
    });
    assert!(
        held(&shm)
            .unwrap()
            .ends_with(", 0 allocations found no room")
    );
}

/// Memory that is freed goes back to the system, but for 64 MiB.
fn back(job: &mut Files) {
    let shm = attach(job);
    let before = shm.memory_used();
    let used = || (shm.memory_used().saturating_sub(before)) as usize;
    for _ in 0..6 {
        let many: Vec<_> = (0..30).map(|number| block(number, 10 * MIB)).collect();
        assert!(many.iter().all(|(_, bytes)| is_shared(&shm, bytes)));
        assert!(used() >= 300 * MIB);
        many.iter().for_each(check);
        drop(many);
        // What is kept, and extents of which it has not been noticed yet that they are free.
        assert!((60 * MIB..200 * MIB).contains(&used()), "{} held", used());
    }
    // So does what a vector that gets shorter does not need.
    let mut long = vec![7_u8; 400 * MIB];
    assert!(is_shared(&shm, &long));
    long.truncate(MIB);
    long.shrink_to_fit();
    assert!(used() < 200 * MIB, "{} held", used());
    assert!(long.iter().all(|&byte| byte == 7));
    drop(long);
    // A vector that comes and goes finds its memory again.
    let mut places = Vec::new();
    for _ in 0..10 {
        places.push(vec![1_u8; 20 * MIB].as_ptr());
    }
    places.dedup();
    assert_eq!(places.len(), 1);
    assert!(used() < 200 * MIB, "{} held", used());
}

/// A child neither writes into its parent's vectors nor disturbs what is free there.
fn forked(job: &mut Files) {
    let shm = attach(job);
    let mut values = vec![1_u64; 100_000];
    let mut kept = vec![1_u8; 100 * KIB];
    let spare: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 50 * KIB]).collect();
    // SAFETY: the child has one thread, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert!(values.iter().all(|&value| value == 1));
            values.fill(2);
            drop(spare);
            let own = vec![3_u8; MIB];
            assert!(!is_shared(&shm, &own), "a child is no rank");
            values.resize(200_000, 4);
            assert!(!is_shared(&shm, &values));
            assert_eq!((values[99_999], values[100_000]), (2, 4));
            grandchild(&mut kept);
            drop(shm);
        }));
        // SAFETY: ends the child without running the test harness's code.
        unsafe { libc::_exit(i32::from(good.is_err())) }
    }
    await_child(child);
    assert_eq!(kept, vec![1; 100 * KIB]);
    assert!(values.iter().all(|&value| value == 1));
    let more: Vec<Vec<u8>> = (0..20).map(|n| vec![100 + n; 50 * KIB]).collect();
    for (block, n) in spare.iter().zip(0..).chain(more.iter().zip(100..)) {
        assert!(is_shared(&shm, block) && block.iter().all(|&byte| byte == n));
    }
    // Commands are children, too.
    let output = Command::new("echo").arg("ahoy").output().unwrap();
    assert_eq!(output.stdout, b"ahoy\n");
}

/// Says what is not tested, where a process of a job can say it: its standard output is dropped.
fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
}

fn await_child(child: libc::pid_t) {
    let mut status = -1;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "how the child ended");
}

/// A child of a child sees what its own parent has written.
fn grandchild(kept: &mut [u8]) {
    kept.fill(5);
    // SAFETY: the child has one thread, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let good = kept.iter().all(|&byte| byte == 5);
        // SAFETY: ends the child without running the test harness's code.
        unsafe { libc::_exit(i32::from(!good)) }
    }
    await_child(child);
}

/// Where the system has no room for a child's copy, the child reads, and its first write ends it.
fn bound(job: &mut Files) {
    // It runs before the allocator's own handler, to which the system then refuses private memory
    // that can be written (Linux 4.7 and later). And it leaves no core.
    extern "C" fn limit() {
        for what in [libc::RLIMIT_DATA, libc::RLIMIT_CORE] {
            let limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: reads two numbers.
            unsafe { libc::setrlimit(what, &raw const limit) };
        }
    }
    // SAFETY: the function makes system calls only.
    assert_eq!(unsafe { libc::pthread_atfork(None, None, Some(limit)) }, 0);
    let shm = attach(job);
    let mut values = vec![1_u64; 100_000];
    assert!(is_shared(&shm, &values));
    // SAFETY: the child has one thread, and allocates nothing.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a value of this vector; the child ends without running the harness's code.
        unsafe {
            if !values.iter().all(|&value| value == 1) {
                libc::_exit(2);
            }
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            let flags = flags | libc::MAP_ANONYMOUS;
            let page = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
            if page != libc::MAP_FAILED {
                libc::_exit(4);
            }
            (&raw mut values[0]).write_volatile(2);
            libc::_exit(3)
        }
    }
    let mut status = -1;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 4 {
        return skipped(
            "a child without room for a copy",
            "the system limits no data",
        );
    }
    let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV;
    // The address sanitizer reports the signal and exits.
    let reported = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1;
    assert!(killed || reported, "the child ended with {status:#x}");
    assert!(values.iter().all(|&value| value == 1));
}

/// Core dumps have vectors, although they leave out the rest of the segment.
fn dumped(job: &mut Files) {
    let shm = attach(job);
    let values = vec![1_u8; MIB];
    assert!(is_shared(&shm, &values));
    let place = values.as_ptr().addr();
    let (mut of_values, mut left_out, mut here) = (None, 0, 0..0);
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    if !maps.contains("VmFlags:") {
        return skipped("core dumps", "the system does not tell what they have");
    }
    for line in maps.lines() {
        let address = |text| usize::from_str_radix(text, 16).ok();
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let range = range.and_then(|(start, end)| Some(address(start)?..address(end)?));
        here = range.unwrap_or(here);
        let Some(flags) = line.strip_prefix("VmFlags:") else {
            continue;
        };
        // "sh" are shared mappings, "dd" are those that dumps do not have.
        let has = |flag| flags.split_whitespace().any(|word| word == flag);
        if here.contains(&place) {
            assert!(here.contains(&(place + MIB - 1)), "all of them in one");
            of_values = Some(has("dd"));
        } else if has("sh") && has("dd") {
            left_out += here.len();
        }
    }
    assert_eq!(of_values, Some(false), "dumps have them");
    assert!(left_out > MIB, "{left_out} bytes are left out");
}

/// Vectors leave as much of the segment as messages need.
fn crowded(job: &mut Files) {
    let config = Config {
        max: 16 * MIB,
        ..Config::default()
    };
    let mut shm = open_with(job, &config).unwrap();
    let mut many = Vec::new();
    while many.len() < 100 {
        many.push(vec![1_u8; MIB / 2]);
    }
    assert!(!is_shared(&shm, &many[99]), "the segment is full");
    job.fence().unwrap();
    exchange(&mut shm, 100);
    job.fence().unwrap();
}

/// What does not fit into the segment is there all the same.
fn no_room(job: &mut Files) {
    let config = Config {
        max: 32 * MIB,
        ..Config::default()
    };
    let shm = open_with(job, &config).unwrap();
    let first = block(1, 20 * MIB);
    let second = block(2, 20 * MIB);
    assert!(is_shared(&shm, &first.1) && !is_shared(&shm, &second.1));
    let mut third = block(3, 4 * MIB);
    third.1.resize(100 * MIB, 3);
    assert!(!is_shared(&shm, &third.1), "it has moved out");
    for block in [&first, &second, &third] {
        check(block);
    }
    let fact = held(&shm).unwrap();
    assert!(
        fact.ends_with(" found no room") && !fact.contains(", 0 "),
        "{fact}"
    );
    drop(first);
    // The segment is asked again a moment after a refusal, and kept memory at once.
    assert!(is_shared(&shm, &block(4, 10 * MIB).1));
}

/// A second job of the process does not get the vectors of the first, which stay.
fn second(job: &mut Files) {
    let first = attach(job);
    let values = vec![5_u8; MIB];
    let other = attach(job);
    assert!(is_shared(&first, &values) && !is_shared(&other, &values));
    drop(first);
    assert!(values.iter().all(|&value| value == 5));
    let more = vec![6_u8; MIB];
    assert!(!is_shared(&other, &more));
    assert_eq!(held(&other), None, "it is the first job's");
}

fn alone(role: &str) {
    Job::start(role, 1, false).succeed();
}

#[test]
fn long_allocations_of_a_rank_are_shared() {
    alone("places");
}

#[test]
fn blocks_of_many_threads_keep_their_values() {
    alone("traffic");
}

#[test]
fn freed_memory_goes_back() {
    alone("back");
}

#[test]
fn a_child_has_its_own_copy() {
    alone("forked");
}

#[test]
fn a_child_without_room_for_a_copy_cannot_write() {
    alone("bound");
}

#[test]
fn core_dumps_have_vectors() {
    alone("dumped");
}

#[test]
fn what_finds_no_room_comes_from_the_allocator_underneath() {
    alone("no-room");
}

#[test]
fn messages_find_room_beside_vectors() {
    Job::start("crowded", 3, false).succeed();
}

#[test]
fn the_first_job_keeps_the_vectors() {
    alone("second");
}

#[test]
fn two_ranks_have_an_arena_each() {
    Job::start("places", 2, false).succeed();
    Job::start("traffic", 2, true).succeed();
}
