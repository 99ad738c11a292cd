//! Hooks and handlers that start messages, as collectives do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use portolan_core::device::{Adi, HandlerId, Port, Turn};
use portolan_core::{Device, Error, ErrorKind, ProcId, Request, SendArgs, Status};
use portolan_datatype::Layout;

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::pending::Pending;
use crate::rank::{Rank, fails};
use crate::rings::{Plan, Player, bytes};

/// Lengths of every protocol.
fn lens<D: Device>(rank: &Rank<'_, D>) -> [usize; 6] {
    [8, 0, 100_000, 8, 1, rank.long()]
}

/// Many rounds, of every length, behind one request that the program waits for.
pub fn ring<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let player = Player::new(rank.device);
    for tag in 0..3 {
        let plan = Plan::new(rank, tag, &lens(rank));
        let total = plan.lens.iter().sum::<usize>() as u64;
        let request = player.start(rank, plan);
        let status = rank.device.wait(request).expect("a ring");
        assert_eq!((status.tag, status.bytes), (tag, total));
        let again = rank.device.wait(request);
        fails(again, ErrorKind::InvalidRequest, "waiting twice");
    }
    Ok(())
}

/// Several rings at once, among the program's own messages, completed in every way.
pub fn several<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let player = Player::new(rank.device);
    let lens = lens(rank);
    let ordinary = rank.irecv(&rank.from(rank.previous(), 99), 5);
    let mut requests: Vec<_> = (0..6)
        .map(|tag| player.start(rank, Plan::new(rank, tag, &lens[..=tag as usize])))
        .collect();
    let tested = requests.pop().expect("there are six");
    let waited = requests.pop().expect("there are six");
    requests.push(ordinary.request);
    while rank.device.test(tested).expect("a ring").is_none() {
        std::thread::yield_now();
    }
    // The rings need no wait: they advance in any call of the program.
    rank.send(&rank.to(rank.next(), 99), b"hello")
        .expect("a small send");
    while !requests.is_empty() {
        let (found, outcome) = rank.device.wait_any(&requests).expect("there are some");
        outcome.expect("a ring, or the message");
        requests.remove(found);
    }
    assert_eq!(rank.reclaim(ordinary), b"hello");
    assert_eq!(rank.device.wait(waited).expect("a ring").tag, 4);
    Ok(())
}

/// A hook that sleeps is not called, and one that is woken goes on.
pub fn asleep<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let player = Player::new(rank.device);
    rank.until(|| player.turns() > 0);
    for tag in 0..2 {
        let before = player.turns();
        for round in 0..20 {
            let received = rank.irecv(&rank.from(rank.previous(), 50 + round), 100);
            rank.send(&rank.to(rank.next(), 50 + round), &content(1, 100))
                .expect("a send");
            rank.done(received);
            rank.progress();
        }
        rank.barrier();
        assert_eq!(player.turns(), before, "a hook that sleeps was run");
        let request = player.start(rank, Plan::new(rank, tag, &lens(rank)));
        rank.device.wait(request).expect("a ring");
        assert!(player.turns() > before);
    }
    Ok(())
}

/// An error inside a ring is returned by its one request, once, after all other operations of the
/// ring have ended.
pub fn truncated<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let player = Player::new(rank.device);
    for (tag, len) in (0..).zip([8, 2000, rank.long()]) {
        let plan = Plan {
            short: 3,
            ..Plan::new(rank, tag, &[8, len])
        };
        let request = player.start(rank, plan);
        let error = rank.device.wait(request).expect_err("a short receive");
        assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
        let status = error.status().expect("with the status of the receive");
        assert_eq!((status.bytes, status.sent), (len as u64 - 3, len as u64));
    }
    // The next ring is not disturbed.
    let request = player.start(rank, Plan::new(rank, 9, &lens(rank)));
    rank.device.wait(request).expect("a ring");
    Ok(())
}

/// A request of another crate's kind ends with exactly the error that its owner gives.
pub fn any_error<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    struct Mine;
    impl portolan_core::device::Upper for Mine {}
    let device = rank.device;
    let wrong = || Error::new(ErrorKind::InvalidCount, "a count of 17").remedy("count again");

    let request = device.upper_request(Box::new(Mine)).expect("a request");
    device.fail_upper(request, wrong()).expect("it is active");
    let again = device.fail_upper(request, wrong());
    fails(again, ErrorKind::InvalidRequest, "ending it twice");
    assert!(device.is_complete(request));
    let seen = device.peek(request).expect("peek").expect("it is complete");
    assert_eq!(seen.error, Some(ErrorKind::InvalidCount));
    let error = device
        .wait(request)
        .expect_err("it was ended with an error");
    assert!(error.to_string().contains("a count of 17"), "{error}");

    // So does one that a hook has made; the slot's next user sees nothing of it.
    let made = Arc::new(Mutex::new(None));
    let place = Arc::clone(&made);
    device.register_hook(Box::new(move |port| {
        let request = port.upper_request(Box::new(Mine)).expect("a request");
        port.fail_with(request, wrong()).expect("it is active");
        *place.lock().expect("nobody panics") = Some(request);
        Turn::Sleep
    }));
    let failed = || *made.lock().expect("nobody panics");
    rank.until(|| failed().is_some());
    let error = device
        .wait(failed().expect("it is there"))
        .expect_err("ended");
    assert_eq!(error.kind(), ErrorKind::InvalidCount);
    let request = device.upper_request(Box::new(Mine)).expect("a request");
    device
        .complete_upper(request, Status::EMPTY)
        .expect("it is active");
    device.wait(request).expect("no error is left");
    Ok(())
}

/// A receive that a hook has started can be cancelled by it.
pub fn cancelled<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let from = rank.from(rank.previous(), 1);
    let bits = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&bits);
    let mut receive: Option<(Request, usize)> = None;
    rank.device.register_hook(Box::new(move |port| {
        let (request, memory) = *receive.get_or_insert_with(|| {
            let memory = Pending::lend(vec![0; 8]);
            // SAFETY: lent memory stays until it is taken back, below.
            let request = unsafe { port.irecv(&from, bytes(memory, &Layout::byte())) };
            let request = request.expect("a request for a receive");
            assert_eq!(port.test(request).expect("test"), None);
            port.cancel(request).expect("cancel");
            (request, memory.cast::<u8>().expose_provenance())
        });
        let Some(status) = port.test(request).expect("test") else {
            return Turn::Idle;
        };
        let memory = std::ptr::with_exposed_provenance_mut::<u8>(memory);
        // SAFETY: the memory that was lent, which the receive is done with.
        drop(unsafe { Pending::take_back(std::ptr::slice_from_raw_parts_mut(memory, 8)) });
        assert!(status.cancelled);
        let gone = port.test(request);
        fails(gone, ErrorKind::InvalidRequest, "testing it twice");
        told.store(1, Ordering::Relaxed);
        Turn::Sleep
    }));
    rank.until(|| bits.load(Ordering::Relaxed) == 1);
    rank.barrier();
    // The cancelled receive takes no message from the next one.
    rank.send(&rank.to(rank.next(), 1), &[5])
        .expect("a small send");
    assert_eq!(rank.take(&rank.from(rank.previous(), 1), 1).1, [5]);
    Ok(())
}

/// The clock of a hook is that of the device's calls.
pub fn clock<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let shown = Arc::new(Mutex::new(None));
    let place = Arc::clone(&shown);
    let before = rank.device.wtime();
    rank.device.register_hook(Box::new(move |port| {
        *place.lock().expect("nobody panics") = Some(port.wtime());
        Turn::Sleep
    }));
    let shown = || *shown.lock().expect("nobody panics");
    rank.until(|| shown().is_some());
    let (shown, after) = (shown().expect("it has run"), rank.device.wtime());
    assert!(
        (before..=after).contains(&shown),
        "{shown} in a hook, between {before} and {after}"
    );
    Ok(())
}

/// A handler starts messages, too. It receives messages, short or long, that arrived before it or
/// are still to come, and sends them back. The program completes the requests.
pub fn by_handlers<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    let long = rank.long();
    let sizes = [0, 8, 3000, long];
    let id = HandlerId(HandlerId::OTHER + rank.unique(0));
    let started: Arc<Mutex<Vec<Begun>>> = Arc::default();
    let (place, context, me) = (Arc::clone(&started), rank.context(0), rank.me());
    device
        .register_handler(
            id,
            Box::new(move |port, message| {
                let n = message.args[0] as u32;
                let len = sizes[n as usize % sizes.len()];
                let begun = begin(port, message.from, context, me, n, len);
                place.lock().expect("nobody panics").extend(begun);
            }),
        )
        .expect("a fresh id");
    let mut sends = Vec::new();
    for (n, len) in (0..).zip(sizes.into_iter().chain(sizes)) {
        // The first half has arrived before it is asked for.
        if n < 4 {
            sends.push(rank.isend(&rank.to(rank.next(), n), content(n.into(), len)));
        }
        let to = ProcId::new(rank.next());
        device
            .active_send(to, id, [n.into(), 0], &[])
            .expect("an active message");
        if n >= 4 {
            sends.push(rank.isend(&rank.to(rank.next(), n), content(n.into(), len)));
        }
        let (_, back) = rank.take(&rank.from(rank.next(), 100 + n), len);
        check(&back, u64::from(n) + 100, "what a handler has sent");
    }
    rank.until(|| started.lock().expect("nobody panics").len() == 2 * sends.len());
    for send in sends {
        rank.done(send);
    }
    let begun = std::mem::take(&mut *started.lock().expect("nobody panics"));
    for Begun { pending, seed } in begun {
        let (status, bytes) = rank.done(pending);
        if let Some(seed) = seed {
            assert_eq!(status.bytes, bytes.len() as u64);
            check(&bytes, seed, "what a handler has received");
        }
    }
    Ok(())
}

/// An operation that a handler has started, and what a receive must get.
struct Begun {
    pending: Pending,
    seed: Option<u64>,
}

// SAFETY: only the pointer of its operation keeps it on its thread, and the operation owns the
// memory behind it.
unsafe impl Send for Begun {}

fn begin(
    port: &mut dyn Port,
    peer: ProcId,
    context: u32,
    me: u32,
    n: u32,
    len: usize,
) -> [Begun; 2] {
    let memory = Pending::lend(vec![0xee; len]);
    let from = portolan_core::matching::Pattern {
        context,
        source: Some(peer.index()),
        tag: Some(n),
    };
    // SAFETY: rank, tag and context are legal; lent memory stays until the operation is over.
    let request = unsafe { port.irecv(&from, bytes(memory, &Layout::byte())) };
    let receive = Begun {
        pending: Pending::new(request.expect("a request"), memory),
        seed: Some(n.into()),
    };
    let memory = Pending::lend(content(u64::from(n) + 100, len));
    let args = SendArgs::new(peer, context, me, 100 + n);
    // SAFETY: as above.
    let request = unsafe { port.isend(&args, bytes(memory, &Layout::byte())) };
    let send = Begun {
        pending: Pending::new(request.expect("a request"), memory),
        seed: None,
    };
    [receive, send]
}
