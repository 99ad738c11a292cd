//! What a transport reports about a rank that has left in good order, and how the engine handles
//! it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::transport::{Header, Payload, Sent, Sink};
use portolan_core::{Adi, Engine, ErrorKind, Transport};

use crate::case::Verdict;
use crate::over::{Over, Transports};
use crate::suite::run_job;
use crate::sut::Job;

/// Tests that a transport reports a rank that has left in good order ([`Transport::has_left`]),
/// that it does so only after everything that rank had sent has arrived, and that a wait for such a
/// rank ends. For transports that can tell; others may return `false`.
///
/// # Panics
/// If the test fails.
pub fn leaving<T: Transports>() {
    run_job::<Over<T>>("leaving", 2, leaves::<T>);
}

/// Counts the messages that arrive.
#[derive(Default)]
struct Count(u32);

impl Sink for Count {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {
        self.0 += 1;
    }
}

fn send(from: &mut impl Transport, to: u32) -> Sent {
    // SAFETY: there are two ranks, and no bytes to read.
    unsafe { from.send_short(to, &Header::default(), std::ptr::null(), 0) }
}

fn leaves<T: Transports>(ranks: u32) -> Verdict {
    const PACKETS: u32 = 3;
    let job = Job::new(ranks);
    let mut transports = T::open(&job);
    let (mut leaver, mut stays) = (transports.remove(1), transports.remove(0));
    let (mut here, mut none) = (Count::default(), Count::default());
    assert!(!stays.has_left(1), "it is there");
    let mut sent = 0;
    while sent < PACKETS {
        match send(&mut leaver, 0) {
            Sent::Done => sent += 1,
            Sent::Full => {}
            Sent::Gone => panic!("rank 0 is there"),
        }
        leaver.poll(&mut none);
        stays.poll(&mut here);
    }
    let gone = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            drop(leaver);
            gone.store(true, Ordering::Release);
        });
        // The leaving rank may need this one in order to deliver what it has sent.
        while !gone.load(Ordering::Acquire) {
            stays.poll(&mut here);
        }
    });
    while !stays.has_left(1) {
        stays.poll(&mut here);
    }
    while stays.poll(&mut here) > 0 {}
    assert_eq!(here.0, PACKETS, "it had sent so many");
    assert_eq!(stays.failures(), 0, "it has not died");
    for _ in 0..10_000 {
        if send(&mut stays, 1) == Sent::Gone {
            assert!(stays.has_left(1), "there is a reason");
            break;
        }
    }

    let engine = Engine::<_, Single>::new(stays, &job.settings).expect("an engine");
    let from = Pattern {
        context: 0,
        source: Some(1),
        tag: None,
    };
    let error = engine.recv_contig(&from, &mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
    let text = error.to_string();
    assert!(text.contains("world rank 1 has left the job"), "{text}");
    Ok(())
}
