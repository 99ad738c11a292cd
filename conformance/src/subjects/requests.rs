//! Requests: their life cycle, and that stale ones can do no harm.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use portolan_core::device::Completion;
use portolan_core::transport::decorate::Random;
use portolan_core::{Device, ErrorKind, Request, Status};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::{Rank, fails};

/// Every call refuses a request that is gone.
fn refused<D: Device>(device: &D, request: Request) {
    let kind = ErrorKind::InvalidRequest;
    fails(device.test(request), kind, "test");
    fails(device.wait(request), kind, "wait");
    fails(device.peek(request), kind, "peek");
    fails(device.cancel(request), kind, "cancel");
    fails(device.free(request), kind, "free");
    fails(device.start(request), kind, "start");
    let completion = Completion {
        keep: Box::new(()),
        then: None,
    };
    fails(device.attach(request, completion), kind, "attach");
    fails(
        device.complete_upper(request, Status::EMPTY),
        kind,
        "complete_upper",
    );
}

/// A request that was completed is stale, even when its slot is in use again.
pub fn stale<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let mut gone = Vec::new();
    for round in 0..30_u8 {
        let received = rank.irecv(&rank.from(rank.previous(), 1), 1);
        let sent = rank.isend(&rank.to(rank.next(), 1), vec![round]);
        for &request in &gone {
            refused(rank.device, request);
            assert!(
                rank.device.is_complete(request),
                "a stale request never completes"
            );
        }
        let requests = [received.request, sent.request];
        assert!(
            gone.iter().all(|old| !requests.contains(old)),
            "a request was given out twice"
        );
        assert_eq!(rank.done(received).1, [round]);
        rank.done(sent);
        gone.extend(requests);
    }
    Ok(())
}

/// Requests that were never handed out are refused, whatever their bits, and requests that were
/// handed out are not disturbed.
pub fn forged<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let pending = rank.irecv(&rank.from(rank.previous(), 1), 4);
    let mut random = Random::new(4);
    let real = pending.request.to_bits();
    let near = (0..64).map(|bit| real ^ 1 << bit);
    let bits: Vec<_> = near.chain((0..500).map(|_| random.bits())).collect();
    // These three are legal.
    let known = [Request::NULL, Request::DONE, pending.request];
    let handles = bits.into_iter().map(|bits| {
        // SAFETY: the rank's own requests are left out, and no call of its waits for another one.
        unsafe { Request::from_bits(bits) }
    });
    for forged in handles.filter(|request| !known.contains(request)) {
        refused(rank.device, forged);
    }
    assert!(!rank.device.is_complete(pending.request));
    rank.barrier();
    rank.send(&rank.to(rank.next(), 1), b"real")
        .expect("a small send");
    assert_eq!(rank.done(pending).1, b"real");
    Ok(())
}

/// The null request is complete and empty.
pub fn null<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    assert!(device.is_complete(Request::NULL));
    assert_eq!(device.wait(Request::NULL).expect("wait"), Status::EMPTY);
    assert_eq!(
        device.test(Request::NULL).expect("test"),
        Some(Status::EMPTY)
    );
    assert_eq!(
        device.peek(Request::NULL).expect("peek"),
        Some(Status::EMPTY)
    );
    fails(
        device.start(Request::NULL),
        ErrorKind::InvalidRequest,
        "starting nothing",
    );
    Ok(())
}

/// Testing completes a request, peeking does not.
pub fn test_and_peek<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    for len in [1, 5000, rank.long()] {
        let received = rank.irecv(&rank.from(rank.previous(), 1), len);
        assert_eq!(device.test(received.request).expect("test"), None);
        assert_eq!(device.peek(received.request).expect("peek"), None);
        rank.barrier();
        let sent = rank.isend(&rank.to(rank.next(), 1), content(1, len));
        let mut seen = None;
        rank.until(|| {
            seen = device.peek(received.request).expect("peek");
            seen.is_some()
        });
        assert!(device.is_complete(received.request));
        assert_eq!(
            device.peek(received.request).expect("peek"),
            seen,
            "peeking changed it"
        );
        assert_eq!(device.test(received.request).expect("test"), seen);
        fails(
            device.test(received.request),
            ErrorKind::InvalidRequest,
            "a second test",
        );
        check(&rank.reclaim(received), 1, "a tested receive");
        rank.until(|| device.test(sent.request).expect("test").is_some());
        rank.reclaim(sent);
    }
    Ok(())
}

/// An operation continues when its request is freed.
pub fn free_while_active<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for len in [1, 5000, rank.long(), 1 << 20] {
        let sent = rank.isend(&rank.to(rank.next(), 1), content(1, len));
        let request = rank.abandon(sent);
        refused(rank.device, request);
        check(
            &rank.take(&rank.from(rank.previous(), 1), len).1,
            1,
            "a freed send",
        );
        rank.until(|| rank.device.is_complete(request));
        rank.barrier();
    }
    Ok(())
}

/// Records what a completion does to the data attached to its operations.
struct Kept {
    completed: Arc<AtomicU32>,
    dropped: Arc<AtomicU32>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        assert_eq!(
            self.completed.load(Ordering::Relaxed),
            1,
            "dropped before it was complete"
        );
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn note(kept: &mut (dyn Any + Send), mut status: Status) -> Status {
    let kept = kept.downcast_ref::<Kept>().expect("what was attached");
    kept.completed.fetch_add(1, Ordering::Relaxed);
    status.tag = status.tag.wrapping_add(1000);
    status
}

/// Data attached to a request is kept until the operation is complete, whether its handle is waited
/// for or freed.
pub fn attached<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (len, freed) in [
        (5, false),
        (5, true),
        (rank.long(), false),
        (rank.long(), true),
    ] {
        let (completed, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let keep = Kept {
            completed: Arc::clone(&completed),
            dropped: Arc::clone(&dropped),
        };
        let received = rank.irecv(&rank.from(rank.previous(), 1), len);
        let completion = Completion {
            keep: Box::new(keep),
            then: Some(note),
        };
        rank.device
            .attach(received.request, completion)
            .expect("attach");
        assert_eq!(
            (
                completed.load(Ordering::Relaxed),
                dropped.load(Ordering::Relaxed)
            ),
            (0, 0)
        );
        let received = if freed {
            rank.abandon(received);
            None
        } else {
            Some(received)
        };
        rank.barrier();
        let sent = rank.isend(&rank.to(rank.next(), 1), content(1, len));
        match received {
            Some(pending) => {
                let (status, bytes) = rank.done(pending);
                assert_eq!(
                    status.tag, 1001,
                    "the status is what the completion made of it"
                );
                check(&bytes, 1, "with a completion");
            }
            None => rank.until(|| dropped.load(Ordering::Relaxed) > 0),
        }
        let counts = (
            completed.load(Ordering::Relaxed),
            dropped.load(Ordering::Relaxed),
        );
        assert_eq!(counts, (1, 1), "{len} bytes, freed: {freed}");
        rank.done(sent);
    }
    Ok(())
}

/// Many more operations than there are slots, one after the other.
pub fn many_in_turn<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for round in 0..3000_u32 {
        let received = rank.irecv(&rank.from(rank.previous(), 1), 4);
        let sent = rank.isend(&rank.to(rank.next(), 1), round.to_le_bytes().to_vec());
        assert_eq!(rank.done(received).1, round.to_le_bytes());
        rank.done(sent);
    }
    Ok(())
}

/// Many at once, completed in an order unrelated to that of their start.
pub fn any_order<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    const MANY: u32 = 2000;
    let mut pending: Vec<_> = (0..MANY)
        .map(|tag| (tag, rank.irecv(&rank.from(rank.previous(), tag), 4)))
        .collect();
    let sends: Vec<_> = (0..MANY)
        .rev()
        .map(|tag| rank.isend(&rank.to(rank.next(), tag), tag.to_le_bytes().to_vec()))
        .collect();
    let mut random = Random::new(8);
    while !pending.is_empty() {
        let chosen = random.below(pending.len() as u64) as usize;
        let (tag, receive) = pending.swap_remove(chosen);
        assert_eq!(rank.done(receive).1, tag.to_le_bytes());
    }
    for send in sends {
        rank.done(send);
    }
    Ok(())
}
