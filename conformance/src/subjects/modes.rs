//! When a send is complete (MPI-4 section 3.4).

use portolan_core::device::Caps;
use portolan_core::{Adi, Device, ErrorKind, SendMode};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::Rank;

/// A synchronous send is not complete before its message is matched, and is afterwards.
pub fn synchronous<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for len in [0, 8, 1000, rank.long()] {
        let args = rank.to(rank.next(), 1).mode(SendMode::Synchronous);
        let sent = rank.isend(&args, content(1, len));
        // No rank receives before all ranks have been here.
        rank.barrier();
        for _ in 0..50 {
            rank.progress();
            assert!(
                !rank.device.is_complete(sent.request),
                "{len} bytes complete without a match"
            );
            let peeked = rank.device.peek(sent.request).expect("peek");
            assert_eq!(peeked, None, "{len} bytes");
        }
        rank.barrier();
        let (_, bytes) = rank.take(&rank.from(rank.previous(), 1), len);
        check(&bytes, 1, "a synchronous message");
        rank.done(sent);
    }
    Ok(())
}

/// Ready sends reach receives that are posted, and even those that are not; the latter are counted.
pub fn ready<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for len in [0, 8, 1000, rank.long()] {
        let args = rank.to(rank.next(), 2).mode(SendMode::Ready);
        let pattern = rank.from(rank.previous(), 2);
        let before = ready_unposted(rank);
        let received = rank.irecv(&pattern, len);
        rank.barrier();
        let sent = rank.isend(&args, content(2, len));
        check(&rank.done(received).1, 2, "a ready message");
        rank.done(sent);
        // A broken promise is not an error here: a counter records it.
        let sent = rank.isend(&args, content(3, len));
        rank.until(|| rank.device.iprobe(&pattern).expect("iprobe").is_some());
        check(&rank.take(&pattern, len).1, 3, "a ready message");
        rank.done(sent);
        rank.barrier();
        // Longer messages may be announced, and those of a rank to itself are not sent. The promise
        // does not matter to either.
        let matters = len <= 8.min(rank.eager_max()) && rank.next() != rank.me();
        if let (true, Some(before), Some(now)) = (matters, before, ready_unposted(rank)) {
            // Where the posted receive is told to its sender late, the first message counts, too.
            assert!(
                now > before,
                "{len} bytes: the broken promise does not count"
            );
        }
    }
    Ok(())
}

/// What counts ready messages whose receive is not posted, at their sender or at their receiver.
/// `None` where a network's library matches: it does not know the mode.
fn ready_unposted<D: Device>(rank: &Rank<'_, D>) -> Option<u64> {
    let caps = rank.device.attributes().caps;
    // Below a device that matches, the engine sees none of its messages.
    let engine = !caps.contains(Caps::NATIVE_MATCHING);
    let named = |name: &str| match name {
        "ready_unposted" => engine,
        other => other.ends_with("_ready_unposted"),
    };
    let counters = rank.device.counters().into_iter();
    counters
        .filter(|(name, _)| named(name))
        .map(|(_, count)| count)
        .next()
}

/// A buffered send returns at once: either it was sent, or it reports that it may block and nothing
/// was sent.
pub fn buffered<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    if rank.next() != rank.me() {
        // With nothing under way there is room for an empty message, sooner or later.
        let args = rank.to(rank.next(), 99).mode(SendMode::Buffered);
        rank.until(|| rank.send(&args, &[]).is_ok());
        rank.take(&rank.from(rank.previous(), 99), 0);
    }
    let mut sent = Vec::new();
    for (len, tag) in [0, 8, 1000, 100_000, 8 << 20].into_iter().zip(0_u32..) {
        let args = rank.to(rank.next(), tag).mode(SendMode::Buffered);
        // The receive is not posted, so this would hang if it waited.
        match rank.send(&args, &content(u64::from(tag), len)) {
            Ok(()) => sent.push(u8::from(true)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::MayBlock, "{error}");
                sent.push(u8::from(false));
            }
        }
    }
    let all = rank.all_gather(&sent);
    let theirs = &all[rank.previous() as usize];
    for (len, tag) in [0, 8, 1000, 100_000, 8 << 20].into_iter().zip(0_u32..) {
        let pattern = rank.from(rank.previous(), tag);
        if theirs[tag as usize] == 1 {
            check(
                &rank.take(&pattern, len).1,
                u64::from(tag),
                "a buffered message",
            );
        }
        rank.barrier(); // a message sent in spite of the error would be here by now
        assert_eq!(
            rank.device.iprobe_unchecked(&pattern).expect("iprobe"),
            None
        );
    }
    Ok(())
}

/// Small standard sends complete although no receive is posted. Programs commonly exchange messages
/// that way, and every device here has room for a few.
pub fn standard_completes_when_small<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for number in 0..8_u8 {
        rank.send(&rank.to(rank.next(), 3), &[number])
            .expect("a small send");
    }
    for number in 0..8_u8 {
        assert_eq!(rank.take(&rank.from(rank.previous(), 3), 1).1, [number]);
    }
    Ok(())
}
