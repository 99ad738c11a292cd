//! When a send is complete (MPI-4 section 3.4).

use portolan_core::{Device, ErrorKind, SendMode};

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

/// Ready sends reach receives that are posted, and even those that are not.
pub fn ready<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for len in [0, 8, 1000, rank.long()] {
        let args = rank.to(rank.next(), 2).mode(SendMode::Ready);
        let received = rank.irecv(&rank.from(rank.previous(), 2), len);
        rank.barrier();
        let sent = rank.isend(&args, content(2, len));
        check(&rank.done(received).1, 2, "a ready message");
        rank.done(sent);
        // A broken promise is not an error here: a counter records it.
        let sent = rank.isend(&args, content(3, len));
        check(
            &rank.take(&rank.from(rank.previous(), 2), len).1,
            3,
            "a ready message",
        );
        rank.done(sent);
    }
    Ok(())
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
