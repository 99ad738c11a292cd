//! One-sided operations after a death, over libfabric's shared memory, where nothing ends
//! operations that are open with the dead.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portolan_core::config::Settings;
use portolan_core::device::{AtomicOp, AtomicWidth, Check, Region};
use portolan_core::level::Single;
use portolan_core::{Device, Engine, ErrorKind, ProcId, Request};
use portolan_ofi::{Config, Ofi, in_process_with, offers};

type Rank = Engine<Ofi, Single>;

/// More bytes than pass through the transport's own memory.
const LEN: usize = 1 << 20;

/// Polls until `done` returns something.
fn until<R>(ranks: &[&Rank], mut done: impl FnMut() -> Option<R>) -> R {
    for _ in 0..10_000_000 {
        if let Some(result) = done() {
            return result;
        }
        for rank in ranks {
            rank.device_check(Check::NonBlocking).expect("progress");
        }
    }
    panic!("it never ends");
}

/// The end of a request of the first of these ranks.
fn end(ranks: &[&Rank], request: Request) -> Option<ErrorKind> {
    until(ranks, || match ranks[0].test(request) {
        Ok(status) => Some(status?.error),
        Err(error) => Some(Some(error.kind())),
    })
}

fn region(rank: &Rank) -> Region {
    rank.alloc_region(LEN).expect("a region")
}

/// Operations of living ranks on each other's memory continue, by whichever means.
#[test]
fn the_living_reach_each_other_though_a_put_to_the_dead_never_ends() {
    let config = Config {
        provider: Some("shm".to_owned()),
        ..Config::default()
    };
    let offered = offers(&config)
        .is_ok_and(|(_, offers)| offers.iter().any(|offer| offer.unusable.is_none()));
    if !offered {
        let what = "one-sided operations after a death: there is no provider shm here";
        let _ = writeln!(std::io::stdout(), "skipped: {what}");
        return;
    }
    let ranks = in_process_with(3, &config).expect("an endpoint for each rank");
    let engine = |rank| Rank::new(rank, &Settings::default()).expect("an engine");
    let Ok([zero, one, two]) =
        <[Rank; 3]>::try_from(ranks.into_iter().map(engine).collect::<Vec<_>>())
    else {
        unreachable!("there are three");
    };
    let bytes: Vec<u8> = (0..LEN).map(|n| (n / 7) as u8).collect();
    let mut back = vec![0; LEN];
    let (of_one, of_two, own) = (region(&one), region(&two), region(&zero));
    // SAFETY: buffers and regions live until the requests are over.
    let put = |to: u32, region: &Region, len| unsafe {
        zero.put(ProcId::new(to), &region.key, 0, bytes.as_ptr(), len)
            .expect("a put")
    };
    assert_eq!(end(&[&zero, &one], put(1, &of_one, 8)), None);
    assert_eq!(end(&[&zero, &two], put(2, &of_two, 8)), None);
    let done = |rank: &Rank| {
        let counters = rank.counters();
        let mut counters = counters.into_iter();
        counters
            .find(|(name, _)| *name == "remote_operations")
            .expect("a counter")
            .1
    };
    // Rank 1 does not poll any more, and dies.
    let begun = done(&zero);
    let doomed = put(1, &of_one, LEN);
    until(&[&zero], || (done(&zero) > begun).then_some(()));
    let died = std::thread::spawn(move || {
        let _ends = one;
        std::panic::resume_unwind(Box::new("the rank panics"));
    });
    assert!(died.join().is_err());
    assert_eq!(end(&[&zero, &two], doomed), Some(ErrorKind::PeerFailed));
    // A put by packets waits for room within its call.
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let serves = std::thread::spawn(move || {
        // Relaxed: the flag publishes no other data.
        while !stop.load(Ordering::Relaxed) {
            two.device_check(Check::NonBlocking).expect("progress");
        }
    });
    let end = |request| end(&[&zero], request);
    assert_eq!(end(put(2, &of_two, LEN)), None);
    let (width, op) = (AtomicWidth::W64, AtomicOp::Add(1));
    let mut former = [0_u64; 2];
    for (to, region) in [(2, &of_two), (0, &own)] {
        for former in &mut former {
            // SAFETY: as above.
            let add = unsafe { zero.atomic(ProcId::new(to), &region.key, 8, width, op, former) };
            assert_eq!(end(add.expect("an operation")), None);
        }
        assert_eq!(former[1], former[0] + 1);
    }
    // SAFETY: as above.
    let get = unsafe { zero.get(ProcId::new(2), &of_two.key, 0, back.as_mut_ptr(), LEN) };
    assert_eq!(end(get.expect("a get")), None);
    let word = u64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes"));
    assert_eq!(back[8..16], (word + 2).to_ne_bytes());
    assert!(back[..8] == bytes[..8] && back[16..] == bytes[16..]);
    over.store(true, Ordering::Relaxed);
    serves.join().expect("rank 2");
}
