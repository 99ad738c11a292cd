//! One thread steps several ranks in an order of its choosing, so nothing depends on the timing of
//! threads.

mod common;

use common::{Checker, Numbers, send};
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::transport::{Exposure, Sent, Transport, TransportCaps};
use portolan_core::{Adi, Engine, ErrorKind, ProcId, SendArgs};
use portolan_shm::{Cma, Config, Shm, in_process_with};

fn job(n: u32) -> Vec<Shm> {
    in_process_with(n, &Config::default()).unwrap()
}

fn sinks(n: u32) -> Vec<Checker> {
    (0..n).map(|rank| Checker::new(rank, n)).collect()
}

#[test]
fn random_steps_keep_every_pair_in_order() {
    for seed in 0..30 {
        let n = 2 + (seed % 4) as u32;
        let config = Config {
            ring: 4096,
            bulk: 64 << 10,
            ..Config::default()
        };
        let mut ranks = in_process_with(n, &config).unwrap();
        let (mut sinks, mut numbers) = (sinks(n), Numbers(seed));
        let mut sent = vec![vec![0_u32; n as usize]; n as usize];
        let bulk = ranks[0].limits().bulk;
        for _ in 0..3000 {
            let from = numbers.below(n.into()) as u32;
            match numbers.below(3) {
                0 => {
                    ranks[from as usize].poll(&mut sinks[from as usize]);
                }
                1 => {
                    let peer = numbers.below(n.into()) as usize;
                    let closed = &mut sinks[from as usize].closed[peer];
                    *closed = !*closed && numbers.below(4) == 0;
                }
                _ => {
                    let to = numbers.below(n.into()) as u32;
                    let next = &mut sent[from as usize][to as usize];
                    if to != from
                        && send(&mut ranks[from as usize], to, *next, numbers.size(bulk))
                            == Sent::Done
                    {
                        *next += 1;
                    }
                }
            }
        }
        for (rank, sink) in sinks.iter_mut().enumerate() {
            sink.closed.fill(false);
            while ranks[rank].poll(sink) > 0 {}
            for (from, row) in sent.iter().enumerate() {
                assert_eq!(
                    sink.expected[from], row[rank],
                    "seed {seed}: {from} → {rank}"
                );
            }
        }
    }
}

#[test]
fn a_refused_sender_does_not_hold_up_others() {
    let (mut ranks, mut sinks) = (job(3), sinks(3));
    assert_eq!(send(&mut ranks[0], 2, 0, 8), Sent::Done);
    assert_eq!(send(&mut ranks[1], 2, 0, 8), Sent::Done);
    sinks[2].closed[0] = true;
    ranks[2].poll(&mut sinks[2]);
    assert_eq!(sinks[2].expected, [0, 1, 0]);
    sinks[2].closed[0] = false;
    ranks[2].poll(&mut sinks[2]);
    assert_eq!(sinks[2].expected, [1, 1, 0]);
}

#[test]
fn a_full_ring_refuses_and_recovers() {
    let (mut ranks, mut sinks) = (job(2), sinks(2));
    let mut sent = 0;
    // The first packets of the pair go one by one.
    for _ in 0..1_000_000 {
        match send(&mut ranks[0], 1, sent, 8) {
            Sent::Done => sent += 1,
            Sent::Full if sent < 3 => assert!(ranks[1].poll(&mut sinks[1]) > 0),
            Sent::Full => break,
            Sent::Gone => panic!("gone"),
        }
    }
    let full = sent;
    assert!((200..1_000_000).contains(&full), "{full}");
    while ranks[1].poll(&mut sinks[1]) > 0 {}
    assert_eq!(send(&mut ranks[0], 1, sent, 8), Sent::Done);
    while ranks[1].poll(&mut sinks[1]) > 0 {}
    assert_eq!(sinks[1].expected[0], full + 1);
}

#[test]
fn memory_grows_with_the_pairs_that_talk() {
    let (mut ranks, mut sinks) = (job(64), sinks(64));
    let before = ranks[0].memory_used();
    for round in 0..10 {
        while send(&mut ranks[0], 1, round, 8) != Sent::Done {
            ranks[1].poll(&mut sinks[1]);
        }
    }
    let with_one = ranks[0].memory_used();
    assert!(
        (8 << 10..80 << 10).contains(&(with_one - before)),
        "{}",
        with_one - before
    );
    assert_eq!(
        ranks[2].memory_used(),
        before,
        "a rank that talks to nobody has no rings"
    );
    assert_eq!(send(&mut ranks[0], 2, 0, 8), Sent::Done);
    assert_eq!(
        ranks[0].memory_used(),
        with_one,
        "a first packet needs no ring"
    );
}

/// Sends messages of all lengths from rank 0 to rank 1, the first of `first` bytes, in a segment of
/// `max` bytes. Returns why that failed, if it did.
fn traffic_in(max: usize, first: usize) -> Result<(), String> {
    let config = Config {
        max,
        ..Config::default()
    };
    let mut ranks = in_process_with(2, &config).map_err(|error| error.to_string())?;
    let (mut sinks, mut numbers) = (sinks(2), Numbers(max as u64));
    let bulk = ranks[0].limits().bulk;
    let (mut sent, mut len) = (0, first);
    while sent < 300 {
        match send(&mut ranks[0], 1, sent, len) {
            Sent::Done => (sent, len) = (sent + 1, numbers.size(bulk)),
            Sent::Full => assert!(ranks[1].poll(&mut sinks[1]) > 0, "it waits for nothing"),
            Sent::Gone => return Err(ranks[1].failure_of(0).expect("a reason")),
        }
    }
    while ranks[1].poll(&mut sinks[1]) > 0 {}
    assert_eq!((sinks[1].expected[0], ranks[0].failures()), (sent, 0));
    Ok(())
}

#[test]
fn a_pair_for_whose_larger_area_memory_is_missing_goes_on_with_the_small_one() {
    let full = Config::default().bulk;
    for first in [8, 5000, 32 << 10] {
        let steps = (4..60).map(|n| n * (16 << 10));
        let mut outcomes = steps.map(|max| (max, traffic_in(max, first)));
        let (mut least, mut why) = (0, String::new());
        for (max, outcome) in &mut outcomes {
            match outcome {
                Ok(()) => {
                    least = max;
                    break;
                }
                Err(text) => why = text,
            }
        }
        assert!((1..full).contains(&least), "{first}: {least}");
        assert!(
            why.contains("the bulk area of a pair of ranks needs"),
            "{why}"
        );
        assert!(
            outcomes.all(|(_, outcome)| outcome == Ok(())),
            "more is as good"
        );
    }
}

/// A rank that cannot send because its own memory has run out says so, and names no peer: its
/// peers live.
#[test]
fn a_rank_whose_memory_has_run_out_blames_itself() {
    let config = |max| Config {
        max,
        ..Config::default()
    };
    // The smallest segment that holds two ranks at all has no room for a ring.
    let ranks = (1..100).find_map(|pages| in_process_with(2, &config(pages * 4096)).ok());
    let ranks = ranks.expect("not much is needed").into_iter();
    let settings = Settings::default();
    let engine = |rank| Engine::<Shm, Single>::new(rank, &settings).expect("an engine");
    let [zero, one] = &ranks.map(engine).collect::<Vec<_>>()[..] else {
        unreachable!("two were made")
    };
    let to = SendArgs::new(ProcId::new(1), 0, 0, 5);
    let error = zero.send_contig(&to, &[7; 1000]).unwrap_err();
    let why = "the ring of a pair of ranks needs";
    assert_eq!((error.kind(), error.peer()), (ErrorKind::PeerFailed, None));
    for part in ["this rank was declared failed", why] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    // The other one hears who has failed, and why.
    let from = Pattern {
        context: 0,
        source: Some(0),
        tag: Some(5),
    };
    let error = one.recv_contig(&from, &mut [0; 1000]).unwrap_err();
    assert_eq!(
        (error.kind(), error.peer()),
        (ErrorKind::PeerFailed, Some(0))
    );
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn a_rank_that_left_takes_no_more() {
    let mut ranks = job(2);
    let last = ranks.pop().unwrap();
    drop(last);
    let mut outcome = Sent::Done;
    for number in 0..10_000 {
        outcome = send(&mut ranks[0], 1, number, 8);
        if outcome != Sent::Done {
            break;
        }
    }
    assert_eq!(outcome, Sent::Gone);
    assert!(ranks[0].failure_of(1).unwrap().contains("left the job"));
    assert_eq!(ranks[0].failures(), 0, "leaving is not a failure");
}

#[test]
fn a_declared_death_is_known_to_all_and_what_was_sent_still_arrives() {
    let (mut ranks, mut sinks) = (job(3), sinks(3));
    let mut sent = 0;
    while sent < 20 {
        match send(&mut ranks[1], 0, sent, 100) {
            Sent::Done => sent += 1,
            _ => assert!(ranks[0].poll(&mut sinks[0]) > 0),
        }
    }
    let (epoch, bell) = (ranks[0].failures(), ranks[0].bell());
    let seen = bell.seen();
    ranks[2].declare_failed(1, "it made no sense");
    assert_ne!(ranks[0].failures(), epoch);
    assert_ne!(bell.seen(), seen, "sleepers are woken");
    assert_eq!(ranks[0].failure_of(1).as_deref(), Some("it made no sense"));
    assert_eq!(ranks[0].failure_of(2), None);
    while ranks[0].poll(&mut sinks[0]) > 0 {}
    assert_eq!(sinks[0].expected[1], 20);
    assert_eq!(send(&mut ranks[0], 1, 0, 8), Sent::Gone);
    assert_eq!(send(&mut ranks[0], 2, 0, 8), Sent::Done);
    // A second reason does not replace the first.
    ranks[0].declare_failed(1, "something else");
    assert_eq!(ranks[2].failure_of(1).as_deref(), Some("it made no sense"));
}

#[test]
fn a_rank_whose_thread_panics_is_dead() {
    let mut ranks = job(2);
    let second = ranks.pop().unwrap();
    let thread = std::thread::spawn(move || {
        let _held = second;
        std::panic::resume_unwind(Box::new("as a test"));
    });
    assert!(thread.join().is_err());
    assert_eq!(ranks[0].failure_of(1).as_deref(), Some("it panicked"));
}

#[test]
fn a_sender_without_room_that_falls_asleep_is_woken() {
    let (mut ranks, mut sinks) = (job(2), sinks(2));
    let mut sent = 0;
    while send(&mut ranks[0], 1, sent, 8) == Sent::Done {
        sent += 1;
    }
    // In the inbox: delivery makes room.
    let bell = ranks[0].bell();
    let seen = bell.seen();
    ranks[0].arm();
    assert_eq!(bell.seen(), seen);
    ranks[1].poll(&mut sinks[1]);
    assert_ne!(bell.seen(), seen, "room in the inbox");
    ranks[0].disarm();
    // In the ring, and room that came before the sleep was announced.
    while send(&mut ranks[0], 1, sent, 8) == Sent::Done {
        sent += 1;
    }
    while ranks[1].poll(&mut sinks[1]) > 0 {}
    let seen = bell.seen();
    ranks[0].arm();
    assert_ne!(bell.seen(), seen, "room in the ring, made before");
    ranks[0].disarm();
}

#[test]
fn direct_memory_is_shared_zeroed_and_checked() {
    let mut ranks = job(3);
    let memory = ranks[0].alloc(10_000).unwrap();
    assert_eq!(memory.ptr as usize % 4096, 0);
    let (seen, len) = ranks[2].map(0, &memory.key).unwrap();
    assert_eq!(len, 10_000);
    // SAFETY: 10000 bytes of shared memory, used by this thread alone.
    unsafe {
        assert!((0..len).all(|at| *memory.ptr.add(at) == 0));
        memory.ptr.write_bytes(0xee, len);
        assert_eq!(*seen.add(9_999), 0xee);
    }
    assert_eq!(
        ranks[2].map(1, &memory.key),
        None,
        "it belongs to another rank"
    );
    for byte in 0..32 {
        let mut key = memory.key;
        key[byte] ^= 0x10;
        assert_eq!(ranks[1].map(0, &key), None, "byte {byte}");
    }
    // SAFETY: the memory is no longer used.
    unsafe { ranks[0].free(memory) };
    assert_eq!(ranks[2].map(0, &memory.key), None, "freed");
    let again = ranks[0].alloc(10_000).unwrap();
    assert_ne!(again.key, memory.key, "another generation");
    // SAFETY: as above.
    unsafe {
        assert!(
            (0..10_000).all(|at| *again.ptr.add(at) == 0),
            "zeroed on reuse"
        );
    };
}

#[test]
fn too_much_direct_memory_is_an_error_with_a_remedy() {
    let mut ranks = in_process_with(
        1,
        &Config {
            max: 8 << 20,
            ..Config::default()
        },
    )
    .unwrap();
    let error = ranks[0].alloc(64 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert!(error.to_string().contains("PORTOLAN_SHM_MAX"), "{error}");
    assert!(error.to_string().contains("rank 0"), "{error}");
    assert!(ranks[0].alloc(usize::MAX - 5000).is_err());
    assert!(ranks[0].alloc(1 << 20).is_ok(), "less is there");
}

#[test]
fn memory_is_within_reach_while_it_is_exposed() {
    use portolan_core::transport::Pulled;
    let mut ranks = job(2);
    let data = vec![42_u8; 100_000];
    let mut target = vec![0_u8; 50_000];
    let first = target.as_mut_ptr();
    // SAFETY: the vectors live until the exposures are withdrawn.
    let (source, buffer) = unsafe {
        let buffer = ranks[1].expose_mut(first, 25_000);
        (
            ranks[0].expose(data.as_ptr(), data.len()).unwrap(),
            buffer.unwrap(),
        )
    };
    let second = first.wrapping_add(25_000);
    // SAFETY: the other half of the target.
    let pull = |ranks: &mut Vec<Shm>| unsafe { ranks[1].pull(0, &source, 1000, second, 25_000) };
    // SAFETY: the data is that long.
    let push =
        |ranks: &mut Vec<Shm>| unsafe { ranks[0].push(1, &buffer, 0, data.as_ptr(), 25_000) };
    assert_eq!(pull(&mut ranks), Pulled::Done);
    assert_eq!(push(&mut ranks), Pulled::Done);
    ranks[0].withdraw(&source);
    ranks[1].withdraw(&buffer);
    assert_eq!(pull(&mut ranks), Pulled::Stream);
    assert_eq!(push(&mut ranks), Pulled::Stream);
    assert!(target.iter().all(|&byte| byte == 42));
}

/// A rank whose program has failed is neither at work nor has it left: nothing is copied, and no
/// rank is told before its process ends.
/// The others do not wait for such a rank any more, and use their memory again.
#[test]
fn a_rank_that_is_held_to_be_dead_copies_nothing() {
    use portolan_core::transport::Pulled;
    let mut ranks = job(2);
    let (data, mut target) = (vec![7_u8; 5000], vec![0_u8; 5000]);
    // SAFETY: the data outlives the ranks' copies.
    let exposure = unsafe { ranks[0].expose(data.as_ptr(), data.len()) }.unwrap();
    let mut pull = |reader: &mut Shm| {
        let (to, len) = (target.as_mut_ptr(), target.len());
        // SAFETY: the target is as long.
        unsafe { reader.pull(0, &exposure, 0, to, len) }
    };
    assert_eq!(pull(&mut ranks[1]), Pulled::Done);
    ranks[0].declare_failed(1, "on purpose");
    assert_ne!(pull(&mut ranks[1]), Pulled::Done);
}

#[test]
fn what_wants_something_of_a_rank_that_is_ending_waits_for_its_end() {
    use portolan_core::transport::Pulled;
    let mut ranks = job(2);
    let (data, mut target) = (vec![42_u8; 100_000], vec![0_u8; 100_000]);
    let first = target.as_mut_ptr();
    // SAFETY: the vectors live until the ranks are gone.
    let (source, buffer) = unsafe {
        (
            ranks[0].expose(data.as_ptr(), data.len()).unwrap(),
            ranks[0].expose_mut(first, target.len()).unwrap(),
        )
    };
    ranks[0].end_silently();
    ranks[0].close();
    let mut mine = vec![0_u8; 100_000];
    let place = mine.as_mut_ptr();
    // SAFETY: the vector is that long, and lives as long as the test.
    let pull = |ranks: &mut Vec<Shm>| unsafe { ranks[1].pull(0, &source, 0, place, 50_000) };
    // SAFETY: the same.
    let push = |ranks: &mut Vec<Shm>| unsafe { ranks[1].push(0, &buffer, 0, place, 50_000) };
    assert_eq!(pull(&mut ranks), Pulled::Stream);
    assert_eq!(push(&mut ranks), Pulled::Stream);
    let mut sent = 0;
    while send(&mut ranks[1], 0, sent, 20_000) == Sent::Done {
        sent += 1;
    }
    assert_eq!(send(&mut ranks[1], 0, sent, 20_000), Sent::Full);
    assert_eq!((ranks[1].failures(), ranks[1].failure_of(0)), (0, None));
    // As the watcher of its process does.
    ranks[1].declare_failed(0, "its process has died");
    assert_eq!(pull(&mut ranks), Pulled::Gone);
    assert_eq!(push(&mut ranks), Pulled::Gone);
    assert_eq!(ranks[1].failures(), 1);
    assert!(mine.iter().chain(&target).all(|&byte| byte == 0));
}

#[test]
fn what_is_measured_is_pulled_whole_while_the_sender_is_outside() {
    use portolan_core::transport::Pulls;
    let with = |cma, prepare: fn(&mut Shm), len| {
        let config = Config {
            cma,
            ..Config::default()
        };
        let mut ranks = in_process_with(2, &config).unwrap();
        prepare(&mut ranks[0]);
        ranks[1].pulls(0, &Exposure([0; 32]), len, false)
    };
    let pulls = |cma, present: bool| {
        let prepare = if present {
            |shm: &mut Shm| shm.set_present(true)
        } else {
            |shm: &mut Shm| shm.set_present(false)
        };
        with(cma, prepare, 1 << 20)
    };
    assert_eq!(pulls(Cma::Auto, true), Pulls::Measured);
    assert_eq!(pulls(Cma::On, true), Pulls::Always);
    assert_eq!(pulls(Cma::Off, true), Pulls::Never);
    assert_eq!(pulls(Cma::Auto, false), Pulls::Absent);
    assert_eq!(pulls(Cma::On, false), Pulls::Absent);
    assert_eq!(pulls(Cma::Off, false), Pulls::Never);
    let asleep = |len| with(Cma::Auto, Shm::arm, len);
    assert_eq!(asleep(1 << 20), Pulls::Measured, "it is woken");
    assert_eq!(asleep(1 << 16), Pulls::Absent, "not worth waking it");
}

#[test]
fn looks_in_passing_are_counted_for_the_one_that_looks() {
    let mut ranks = in_process_with(2, &Config::default()).unwrap();
    let seen = |ranks: &[Shm]| [ranks[1].looks(0), ranks[1].looks(1), ranks[1].looks(2)];
    assert_eq!(seen(&ranks), [0, 0, 0]);
    ranks[0].note_look();
    ranks[0].note_look();
    assert_eq!(seen(&ranks), [2, 0, 0], "nobody has the rank 2");
}

#[test]
fn capabilities_are_what_is_wired() {
    let mut off = in_process_with(
        1,
        &Config {
            cma: Cma::Off,
            ..Config::default()
        },
    )
    .unwrap();
    assert!(!off[0].caps().contains(TransportCaps::PULL));
    // SAFETY: nothing is read without the capability.
    assert_eq!(unsafe { off[0].expose(std::ptr::null(), 0) }, None);
    // SAFETY: nothing is written without the capability.
    assert_eq!(unsafe { off[0].expose_mut(std::ptr::null_mut(), 0) }, None);
    assert!(!off[0].caps().contains(TransportCaps::PUSH));
    let on = job(1);
    assert!(
        on[0]
            .caps()
            .contains(TransportCaps::PULL | TransportCaps::DIRECT)
    );
    assert!(!on[0].caps().contains(TransportCaps::PROCESSES));
    assert!(
        on[0]
            .describe()
            .iter()
            .any(|(name, _)| name == "large copies")
    );
}
