//! Requests of other crates' kinds (generalised requests).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use portolan_core::device::{Adi, Completion, Turn, Upper};
use portolan_core::{Device, ErrorKind, Request, Status};

use crate::case::Verdict;
use crate::rank::{Rank, fails};

/// Counts its callbacks, and marks its status.
struct Counted {
    queries: Arc<AtomicU32>,
    cancels: Arc<AtomicU32>,
    obeys: bool,
}

impl Upper for Counted {
    fn query(&mut self, mut status: Status) -> Status {
        self.queries.fetch_add(1, Ordering::Relaxed);
        status.tag = 4242;
        status
    }

    fn cancel(&mut self, complete: bool) -> bool {
        self.cancels
            .fetch_add(if complete { 100 } else { 1 }, Ordering::Relaxed);
        self.obeys
    }
}

fn counted(obeys: bool) -> (Counted, Arc<AtomicU32>, Arc<AtomicU32>) {
    let (queries, cancels) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let upper = Counted {
        queries: Arc::clone(&queries),
        cancels: Arc::clone(&cancels),
        obeys,
    };
    (upper, queries, cancels)
}

/// The request is active until it is completed, and reports the status that its query returns.
pub fn completed<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    let (upper, queries, _) = counted(false);
    let request = device.upper_request(Box::new(upper)).expect("a request");
    assert_eq!(device.test(request).expect("test"), None);
    assert!(!device.is_complete(request));
    device
        .complete_upper(request, Status::received(3, 1, 99))
        .expect("completing it");
    assert!(device.is_complete(request));
    let again = device.complete_upper(request, Status::EMPTY);
    fails(again, ErrorKind::InvalidRequest, "completing it twice");
    let status = device.wait(request).expect("wait");
    assert_eq!((status.source, status.tag, status.bytes), (3, 4242, 99));
    assert!(queries.load(Ordering::Relaxed) >= 1);
    fails(
        device.wait(request),
        ErrorKind::InvalidRequest,
        "waiting twice",
    );

    // Only requests of this kind can be completed this way.
    let receive = rank.irecv(&rank.from(rank.previous(), 1), 1);
    let wrong = device.complete_upper(receive.request, Status::EMPTY);
    fails(wrong, ErrorKind::InvalidRequest, "completing a receive");
    rank.send(&rank.to(rank.next(), 1), &[1])
        .expect("a small send");
    rank.done(receive);
    Ok(())
}

/// The request for operations that are complete at once stays complete, whatever is done with it
/// and however often. There is room for others as long as few are active.
pub fn done_at_once<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (device, done) = (rank.device, Request::DONE);
    assert!(device.has_request_room());
    let receive = rank.irecv(&rank.from(rank.previous(), 1), 1);
    for _ in 0..2 {
        assert!(device.is_complete(done));
        assert_eq!(device.test(done).expect("test"), Some(Status::EMPTY));
        assert_eq!(device.peek(done).expect("peek"), Some(Status::EMPTY));
        assert_eq!(device.wait(done).expect("wait"), Status::EMPTY);
        device.cancel(done).expect("cancel");
        device.free(done).expect("free");
        let found = device.wait_any(&[Request::NULL, done, receive.request]);
        let (at, status) = found.expect("one is complete");
        assert_eq!((at, status.expect("wait_any")), (1, Status::EMPTY));
    }
    let again = device.complete_upper(done, Status::EMPTY);
    fails(again, ErrorKind::InvalidRequest, "completing what is done");
    let kept = Arc::new(());
    let completion = Completion {
        keep: Box::new(Arc::clone(&kept)),
        then: None,
    };
    device.attach(done, completion).expect("attach");
    assert_eq!(Arc::strong_count(&kept), 1, "what was attached is let go");
    for outcome in [Some(ErrorKind::PeerMisbehaved), None] {
        let completion = Completion {
            keep: Box::new(outcome),
            then: Some(|outcome, mut status| {
                assert_eq!(status, Status::EMPTY, "nobody's status but its own");
                status.error = outcome.downcast_ref().copied().flatten();
                status
            }),
        };
        let attached = device.attach(done, completion);
        assert_eq!(attached.err().map(|error| error.kind()), outcome);
        assert_eq!(device.wait(done).expect("wait"), Status::EMPTY);
    }
    rank.send(&rank.to(rank.next(), 1), &[1])
        .expect("a small send");
    rank.done(receive);
    Ok(())
}

/// Its owner decides what a cancel does.
pub fn cancelled<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    let (upper, _, cancels) = counted(true);
    let request = device.upper_request(Box::new(upper)).expect("a request");
    device.cancel(request).expect("cancel");
    assert_eq!(cancels.load(Ordering::Relaxed), 1);
    assert!(device.wait(request).expect("wait").cancelled);

    let (upper, _, cancels) = counted(false);
    let request = device.upper_request(Box::new(upper)).expect("a request");
    device.cancel(request).expect("cancel");
    assert_eq!(cancels.load(Ordering::Relaxed), 1);
    assert_eq!(
        device.test(request).expect("test"),
        None,
        "the owner refused"
    );
    device
        .complete_upper(request, Status::EMPTY)
        .expect("completing it");
    device.cancel(request).expect("cancel");
    assert_eq!(
        cancels.load(Ordering::Relaxed),
        101,
        "not told that it was complete"
    );
    assert!(!device.wait(request).expect("wait").cancelled);
    Ok(())
}

/// A progress hook completes it while the caller waits.
pub fn completed_by_a_hook<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (upper, _, _) = counted(false);
    let request = rank
        .device
        .upper_request(Box::new(upper))
        .expect("a request");
    let mut left = 20;
    rank.device.register_hook(Box::new(move |port| {
        left -= i32::from(left >= 0);
        if left == 0 {
            port.complete(request, Status::received(1, 2, 3))
                .expect("completing it");
        }
        match left {
            0.. => Turn::Busy,
            _ => Turn::Sleep,
        }
    }));
    let status = rank.device.wait(request).expect("wait");
    assert_eq!((status.source, status.tag, status.bytes), (1, 4242, 3));
    Ok(())
}
