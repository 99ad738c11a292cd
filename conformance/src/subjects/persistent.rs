//! Persistent requests: one request, many operations.

use portolan_core::{Device, ErrorKind, SendMode, Status};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::pending::Pending;
use crate::rank::{Rank, fails};

/// Ends a persistent request and returns its memory.
fn retire<D: Device>(rank: &Rank<'_, D>, pending: Pending) {
    rank.device
        .free(pending.request)
        .expect("freeing an inactive request");
    fails(
        rank.device.wait(pending.request),
        ErrorKind::InvalidRequest,
        "waiting for a freed one",
    );
    rank.reclaim(pending);
}

/// A wildcard receive is a wildcard at every start, and the request keeps its value.
pub fn receive_with_wildcards<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let long = rank.long();
    let receive = rank.recv_init(&rank.from(None, None), long);
    for (round, len) in [4, 100, 0, long, 7]
        .into_iter()
        .zip(0..)
        .map(|(len, n)| (n, len))
    {
        rank.device.start(receive.request).expect("start");
        let sent = rank.isend(&rank.to(rank.next(), round), content(u64::from(round), len));
        let status = rank.device.wait(receive.request).expect("wait");
        assert_eq!((status.source, status.tag), (rank.previous(), round));
        assert_eq!(status.bytes, len as u64);
        // SAFETY: the request is inactive between `wait` and the next `start`.
        let bytes = unsafe { receive.read() };
        check(&bytes[..len], u64::from(round), "a persistent receive");
        rank.done(sent);
        // With one receive per round, a fast neighbour must not send for the next round into this
        // one.
        rank.barrier();
    }
    retire(rank, receive);
    Ok(())
}

/// A persistent send reads its buffer at every start.
pub fn send<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for mode in [SendMode::Standard, SendMode::Synchronous] {
        for len in [0, 8, 1000, rank.long()] {
            let mut send = rank.send_init(&rank.to(rank.next(), 1).mode(mode), vec![0; len]);
            for round in 0..4 {
                // SAFETY: the request is inactive.
                unsafe { send.refill(&content(round, len)) };
                rank.device.start(send.request).expect("start");
                let (_, bytes) = rank.take(&rank.from(rank.previous(), 1), len);
                check(&bytes, round, "a persistent send");
                rank.device.wait(send.request).expect("wait");
            }
            retire(rank, send);
        }
    }
    Ok(())
}

/// Inactive requests are complete and empty; active ones cannot be started; nonpersistent ones
/// never can.
pub fn misuse<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    let receive = rank.recv_init(&rank.from(rank.previous(), 1), 4);
    assert!(device.is_complete(receive.request));
    assert_eq!(
        device.test(receive.request).expect("test"),
        Some(Status::EMPTY)
    );
    assert_eq!(device.wait(receive.request).expect("wait"), Status::EMPTY);
    device.start(receive.request).expect("start");
    assert!(!device.is_complete(receive.request));
    fails(
        device.start(receive.request),
        ErrorKind::InvalidRequest,
        "starting an active request",
    );
    rank.barrier();
    rank.send(&rank.to(rank.next(), 1), b"once")
        .expect("a small send");
    assert_eq!(device.wait(receive.request).expect("wait").bytes, 4);
    assert_eq!(
        device.test(receive.request).expect("test"),
        Some(Status::EMPTY)
    );

    let once = rank.irecv(&rank.from(rank.previous(), 2), 4);
    fails(
        device.start(once.request),
        ErrorKind::InvalidRequest,
        "starting a receive",
    );
    rank.send(&rank.to(rank.next(), 2), b"once")
        .expect("a small send");
    rank.done(once);
    retire(rank, receive);
    Ok(())
}

/// Cancelling an active one ends that operation; the request can be started again.
pub fn cancelled<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let receive = rank.recv_init(&rank.from(None, 1), 4);
    for round in 0..5_u32 {
        rank.device.start(receive.request).expect("start");
        rank.device.cancel(receive.request).expect("cancel");
        assert!(rank.device.wait(receive.request).expect("wait").cancelled);
        rank.device.start(receive.request).expect("start");
        rank.barrier();
        rank.send(&rank.to(rank.next(), 1), &round.to_le_bytes())
            .expect("a small send");
        let status = rank.device.wait(receive.request).expect("wait");
        assert!(!status.cancelled && status.bytes == 4);
        // SAFETY: the request is inactive.
        assert_eq!(unsafe { receive.read() }, round.to_le_bytes());
    }
    retire(rank, receive);
    Ok(())
}
