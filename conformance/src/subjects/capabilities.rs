//! Capability bits, both ways: what is announced works, and what is not announced is absent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use portolan_core::device::{Caps, RegionKey};
use portolan_core::{Device, ProcId, SendMode};

use crate::bytes::{check, content};
use crate::case::{Skip, Verdict};
use crate::rank::Rank;

fn has<D: Device>(rank: &Rank<'_, D>, bit: Caps) -> bool {
    rank.device.attributes().caps.contains(bit)
}

/// `PROCESSES`: set exactly where the ranks are processes.
pub fn processes<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let ids = rank.all_gather(&std::process::id().to_le_bytes());
    let same = ids.iter().all(|id| *id == ids[0]);
    assert_eq!(has(rank, Caps::PROCESSES), !same, "{} processes", ids.len());
    Ok(())
}

/// `NATIVE_MATCHING`: an early message is stored by the device's own matching exactly where the bit
/// is not set.
pub fn native_matching<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let stored = || {
        let counters = rank.device.counters();
        let counter = counters.iter().find(|(name, _)| *name == "unexpected");
        counter.map_or(0, |(_, count)| *count)
    };
    let before = stored();
    // No message is early before every rank has read the counter.
    rank.barrier();
    rank.send(&rank.to(rank.next(), 1), b"early")
        .expect("a small send");
    let from = rank.from(rank.previous(), 1);
    rank.device.probe_unchecked(&from).expect("it is here");
    if has(rank, Caps::NATIVE_MATCHING) {
        assert_eq!(stored(), 0, "messages stored by the device's own matching");
    } else {
        assert!(stored() > before, "an early message was not stored");
    }
    rank.take(&from, 5);
    Ok(())
}

/// `DIRECT`: there is a pointer exactly where the bit is set, for every peer.
pub fn direct<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    let region = device.alloc_region(100).expect("a region");
    let keys = rank.all_gather(&region.key.0);
    for (peer, key) in (0..rank.size())
        .zip(keys)
        .filter(|(peer, _)| *peer != rank.me())
    {
        let key = RegionKey(key.try_into().expect("a key"));
        let pointer = device.direct(ProcId::new(peer), &key);
        assert_eq!(
            pointer.is_some(),
            has(rank, Caps::DIRECT),
            "memory of rank {peer}"
        );
    }
    rank.barrier();
    // SAFETY: no pointer was used, and none is kept.
    unsafe { device.free_region(region) }.expect("freeing a region");
    Ok(())
}

/// `CANCEL_SEND`: a long send that no receive has matched is cancelled exactly where the bit is
/// set.
pub fn cancel<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    for to in [rank.next(), rank.me()] {
        if to == rank.me() && !has(rank, Caps::CANCEL_SEND) {
            // A message to oneself is known to no other rank; the bit is about messages that have
            // left.
            continue;
        }
        let args = rank.to(to, 1).mode(SendMode::Synchronous);
        let sent = rank.isend(&args, content(1, rank.long()));
        rank.barrier();
        device.cancel(sent.request).expect("cancel");
        rank.barrier();
        let from = if to == rank.me() { to } else { rank.previous() };
        if has(rank, Caps::CANCEL_SEND) {
            let (status, _) = rank.done(sent);
            assert!(status.cancelled, "not cancelled, to rank {to}");
            let next = rank.isend(&rank.to(to, 1), content(2, 100));
            check(
                &rank.take(&rank.from(from, 1), rank.long()).1,
                2,
                "the next message",
            );
            rank.done(next);
        } else {
            let (_, bytes) = rank.take(&rank.from(from, 1), rank.long());
            check(&bytes, 1, "a message that cannot be cancelled");
            assert!(
                !rank.done(sent).0.cancelled,
                "cancelled without the capability"
            );
        }
        rank.barrier();
    }
    Ok(())
}

/// `PULL`: a long message is received while its sender is outside of the library, exactly where the
/// bit is set. The two ranks signal each other through directly reachable memory meanwhile.
pub fn pull<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    const LEN: usize = 8 << 20;
    const CHECKS: u32 = 2000;
    const SEEN: u64 = 1;
    const OUTSIDE: u64 = 2;
    const LOOKED: u64 = 3;
    let device = rank.device;
    if !has(rank, Caps::DIRECT) {
        let why = "needs directly reachable memory, to talk outside of the library";
        return Err(Skip(why.to_owned()));
    }
    let region = device.alloc_region(8).expect("a region");
    let keys = rank.all_gather(&region.key.0);
    let key = RegionKey(keys[0].clone().try_into().expect("a key"));
    let word = device.direct(ProcId::new(0), &key);
    let word = match (rank.me(), word) {
        (0, _) => region.ptr.cast::<u64>(),
        (_, Some(pointer)) => pointer.as_ptr().cast(),
        (_, None) => panic!("the device says that it has direct memory"),
    };
    // SAFETY: the region has eight bytes, page aligned, accessed as an atomic only, and lives
    // until the barrier below.
    let word = unsafe { AtomicU64::from_ptr(word) };
    if rank.me() == 0 {
        let sent = rank.isend(&rank.to(1, 1), content(1, LEN));
        // Release and Acquire pair with rank 1's below.
        rank.until(|| word.load(Ordering::Acquire) == SEEN);
        // Outside of the library from here on.
        word.store(OUTSIDE, Ordering::Release);
        while word.load(Ordering::Acquire) != LOOKED {
            thread::yield_now();
        }
        rank.done(sent);
    } else if rank.me() == 1 {
        let from = rank.from(0, 1);
        rank.until(|| device.iprobe_unchecked(&from).expect("iprobe").is_some());
        // Release and Acquire pair with rank 0's.
        word.store(SEEN, Ordering::Release);
        while word.load(Ordering::Acquire) != OUTSIDE {
            thread::yield_now();
        }
        let received = rank.irecv(&from, LEN);
        let mut alone = false;
        for _ in 0..CHECKS {
            rank.progress();
            thread::yield_now();
            alone = device.is_complete(received.request);
            if alone {
                break;
            }
        }
        // Release: pairs with rank 0's load.
        word.store(LOOKED, Ordering::Release);
        check(&rank.done(received).1, 1, "the long message");
        assert_eq!(
            alone,
            has(rank, Caps::PULL),
            "received without the sender: {alone}"
        );
    }
    rank.barrier();
    // SAFETY: no rank uses the word after the barrier.
    unsafe { device.free_region(region) }.expect("freeing a region");
    Ok(())
}
