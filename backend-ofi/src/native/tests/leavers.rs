//! Receives from a rank that has left the job in good order, and what tests of such ranks share.

use std::time::Duration;

use portolan_core::device::CommView;
use portolan_core::engine::Beside;
use portolan_core::level::Level;
use portolan_core::matching::Envelope;
use portolan_core::{Group, SendMode};

use super::*;
use crate::native::leavers::Matching;
use crate::ofi::tests::{long_ago, often};

pub(super) type Rank = Native<Single>;

pub(super) fn synchronous(args: SendArgs) -> SendArgs {
    SendArgs {
        mode: SendMode::Synchronous,
        ..args
    }
}

/// Ranks that wait in this way, or, with `hasty`, look who has left before anything else. A
/// wait without end ends the process.
pub(super) fn ranks<const N: usize, L: Level>(wait: &str) -> Option<[Native<L>; N]> {
    let (wait, spin) = match wait {
        "hasty" => ("park", "0"),
        wait => (wait, "2000"),
    };
    let (settings, wrong) = Settings::inspect([
        ("PORTOLAN_WAIT", wait),
        ("PORTOLAN_SPIN", spin),
        ("PORTOLAN_STUCK_AFTER", "30"),
    ]);
    assert!(wrong.is_empty(), "{wrong:?}");
    let rank = |ofi| {
        let rank = Native::new(ofi, &settings).expect("a device");
        rank.on_stuck(Box::new(|waits| assert!(waits.is_empty(), "{waits:?}")));
        rank
    };
    Some(opened()?.map(rank))
}

/// Makes progress on both ranks until that is so.
pub(super) fn both<L: Level>(
    why: &str,
    zero: &Native<L>,
    one: &Native<L>,
    mut done: impl FnMut() -> bool,
) {
    until(why, || {
        zero.engine.poll();
        one.engine.poll();
        done()
    });
}

/// Starts a send of bytes that live as long as the program.
pub(super) fn isend<L: Level>(rank: &Native<L>, to: &SendArgs, bytes: &'static [u8]) -> Request {
    // SAFETY: the bytes are there for ever.
    unsafe { rank.isend_contig(to, bytes.as_ptr(), bytes.len()) }.unwrap()
}

/// Starts a receive into memory that is never used for anything else.
pub(super) fn irecv<L: Level>(rank: &Native<L>, pattern: &Pattern) -> Request {
    let room = Box::leak(Box::new([0; 8]));
    // SAFETY: the memory is there for ever.
    unsafe { rank.irecv_contig(pattern, room.as_mut_ptr(), room.len()) }.unwrap()
}

/// The provider of rank 0 has delivered a message that nobody has matched, and rank 1 can send.
pub(super) fn delivered<L: Level>(zero: &Native<L>, one: &Native<L>) -> Request {
    let receive = irecv(zero, &from(FROM));
    let hello = isend(one, &args(0, FROM), b"x");
    both("they do not meet", zero, one, || {
        one.is_complete(hello) && zero.is_complete(receive)
    });
    one.wait(hello).unwrap();
    zero.wait(receive).unwrap();
    let send = isend(zero, &synchronous(args(1, 0)), b"x");
    both("it does not leave", zero, one, || {
        !zero.shared.lock().tags.is_under_way()
    });
    assert!(zero.test(send).unwrap().is_none(), "nobody has matched it");
    send
}

#[track_caller]
pub(super) fn assert_left<R: std::fmt::Debug>(outcome: portolan_core::Result<R>) {
    let error = outcome.unwrap_err();
    let whose = (error.kind(), error.peer());
    assert_eq!(whose, (ErrorKind::PeerFailed, Some(1)), "{error}");
    let text = error.to_string();
    assert!(text.contains("world rank 1 has left the job"), "{text}");
}

/// Rank 0 has noticed long ago that rank 1 has left, and has not polled since. Receives that wait
/// in the device look for their messages again and again, so that there is always something to
/// read.
pub(super) fn noticed_long_ago<L: Level>(zero: &Native<L>, posted: bool) {
    let Core { ofi, .. } = &mut *zero.shared.lock();
    ofi.has_left(1);
    long_ago(ofi, 1, Duration::from_secs(10));
    if !posted {
        often(ofi, 1);
    }
}

/// Rank 1 sends many messages that rank 0 does not receive, and that its provider has to read
/// before it reads anything else.
pub(super) fn flood<L: Level>(one: &Native<L>) {
    let envelope = Envelope {
        tag: TAG + 1,
        ..args(0, FROM).envelope
    };
    let to = SendArgs {
        envelope,
        ..args(0, FROM)
    };
    for _ in 0..2000 {
        one.send_contig(&to, b"").unwrap();
    }
}

/// Rank 0 has heard from its engine that rank 1 has left.
pub(super) fn left<L: Level>(zero: &Native<L>) {
    Matching(Arc::clone(&zero.shared)).has_left(1);
}

/// What a rank has sent before it leaves is received. Nothing else is waited for.
#[test]
fn receives_from_a_rank_that_has_left_end() {
    for (flooded, posted) in [(false, true), (true, true), (false, false)] {
        let Some([zero, one]): Option<[Rank; 2]> = ranks("hasty") else {
            return; // The skip has been printed.
        };
        delivered(&zero, &one);
        if !posted {
            // All receives wait in the device.
            zero.shared.lock().tags.most_posted = 0;
        }
        let receives = [0, 1].map(|_| irecv(&zero, &from(FROM)));
        let any = irecv(
            &zero,
            &Pattern {
                source: None,
                tag: Some(TAG + 2),
                ..from(FROM)
            },
        );
        if flooded {
            flood(&one);
        }
        one.send_contig(&args(0, FROM), b"x").unwrap();
        drop(one);
        noticed_long_ago(&zero, posted);
        assert_eq!(zero.wait(receives[0]).unwrap().bytes, 1, "{posted}");
        assert_left(zero.wait(receives[1]));
        // From then on the departure is known.
        assert_left(zero.recv_contig(&from(FROM), &mut [0]));
        assert!(zero.test(any).unwrap().is_none(), "rank 0 may send itself");
        zero.cancel(any).unwrap();
        assert!(zero.wait(any).unwrap().cancelled);
    }
}

/// All receives of collective operations end, also those from any source, and those that wait in
/// the device.
#[test]
fn so_does_a_collective_one_from_any_source() {
    for most_posted in [64, 0] {
        let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
            return; // The skip has been printed.
        };
        delivered(&zero, &one);
        let comm = CommView {
            context: 0,
            contexts: 2,
            group: Group::new((0..2).map(ProcId::new).collect::<Vec<_>>()),
            rank: 0,
        };
        zero.comm_init(None, &comm).unwrap();
        zero.shared.lock().tags.most_posted = most_posted;
        let any = Pattern {
            context: 1,
            source: None,
            tag: Some(TAG),
        };
        let receives = [0, 1].map(|_| irecv(&zero, &any));
        left(&zero);
        for receive in receives {
            until("a receive waits for ever", || {
                zero.engine.poll();
                zero.is_complete(receive)
            });
            let error = zero.wait(receive).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
        }
    }
}

/// A receive that waits in the device: the look for its message begins before that has arrived, and
/// ends when the departure is known.
#[test]
fn a_look_that_began_too_early_ends_no_receive() {
    let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
        return; // The skip has been printed.
    };
    delivered(&zero, &one);
    zero.shared.lock().tags.most_posted = 0;
    let receive = irecv(&zero, &from(FROM));
    zero.engine.poll();
    one.send_contig(&args(0, FROM), b"x").unwrap();
    drop(one);
    left(&zero);
    assert_eq!(zero.wait(receive).unwrap().bytes, 1);
    // It ends as well if there is room for it before a look was in vain.
    let receive = irecv(&zero, &from(FROM));
    zero.shared.lock().tags.most_posted = 64;
    zero.wait(receive).unwrap_err();
}

/// Each of two threads waits in its own way, and each asks who has left.
#[test]
fn two_threads_find_out_who_has_left() {
    for queued in [false, true] {
        let Some([zero, one]): Option<[Native<Multiple>; 2]> = ranks("hasty") else {
            return; // The skip has been printed.
        };
        delivered(&zero, &one);
        if queued {
            zero.shared.lock().tags.most_posted = 0;
        }
        let receive = irecv(&zero, &from(FROM));
        let other = Pattern {
            tag: Some(TAG + 1),
            ..from(FROM)
        };
        drop(one);
        noticed_long_ago(&zero, !queued);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_left(zero.wait(receive)));
            assert_left(zero.probe(&other));
        });
    }
}
