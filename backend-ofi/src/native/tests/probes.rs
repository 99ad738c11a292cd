//! Probes of a rank that has left the job in good order.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libfabric_sys::{FI_EAGAIN, fi_msg_tagged, fid_ep};
use portolan_core::matching::Envelope;

use super::leavers::{Rank, assert_left, delivered, flood, irecv, left, noticed_long_ago, ranks};
use super::outcasts::{Receive, replace};
use super::*;

/// With a receive that waits in the device, no poll is ever in vain.
#[test]
fn probes_of_a_rank_that_has_left_end() {
    for (flooded, posted) in [(false, true), (true, true), (false, false)] {
        let Some([zero, one]): Option<[Rank; 2]> = ranks("hasty") else {
            return; // The skip has been printed.
        };
        delivered(&zero, &one);
        if flooded {
            flood(&one);
        }
        if !posted {
            zero.shared.lock().tags.most_posted = 0;
        }
        let [queued, never] = [2, 3].map(|more| Pattern {
            tag: Some(TAG + more),
            ..from(FROM)
        });
        let receive = irecv(&zero, &queued);
        one.send_contig(&args(0, FROM), b"x").unwrap();
        drop(one);
        noticed_long_ago(&zero, posted);
        assert_eq!(zero.probe(&from(FROM)).unwrap().bytes, 1);
        assert_left(zero.probe(&never));
        zero.recv_contig(&from(FROM), &mut [0]).unwrap();
        assert_left(zero.probe(&from(FROM)));
        assert_left(zero.mprobe_unchecked(&from(FROM)));
        assert_left(zero.iprobe(&from(FROM)));
        assert_left(zero.wait(receive));
    }
}

/// The message arrives while the probe looks, and then the departure is known.
#[test]
fn a_probe_finds_what_arrives_meanwhile() {
    let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
        return; // The skip has been printed.
    };
    delivered(&zero, &one);
    one.send_contig(&args(0, FROM), b"x").unwrap();
    drop(one);
    left(&zero);
    let real = replace(&zero, misses_once);
    REAL.get_or_init(|| real);
    assert_eq!(zero.probe(&from(FROM)).unwrap().bytes, 1);
    assert!(MISSED.load(Ordering::Relaxed), "it has looked once only");
}

static REAL: OnceLock<Receive> = OnceLock::new();
static MISSED: AtomicBool = AtomicBool::new(false);

/// The first look is for another tag.
unsafe extern "C" fn misses_once(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: the caller's message.
    let mut msg = unsafe { msg.read() };
    if !MISSED.swap(true, Ordering::Relaxed) {
        msg.tag ^= 1;
    }
    let real = REAL.get().expect("it is set");
    // SAFETY: the caller's promise; the tag may be any.
    unsafe { real(ep, &raw const msg, flags) }
}

/// The earliest messages are promised to receives that wait in the device. The one behind them is
/// there, too.
#[test]
fn a_probe_finds_the_message_behind_those_that_are_promised() {
    let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
        return; // The skip has been printed.
    };
    delivered(&zero, &one);
    let last = Pattern {
        tag: Some(TAG + 1),
        ..from(FROM)
    };
    let to_last = SendArgs {
        envelope: Envelope {
            tag: TAG + 1,
            ..args(0, FROM).envelope
        },
        ..args(0, FROM)
    };
    for _ in 0..PROMISED {
        one.send_contig(&args(0, FROM), b"x").unwrap();
    }
    one.send_contig(&to_last, b"xy").unwrap();
    until("the messages do not arrive", || {
        one.engine.poll();
        zero.iprobe(&last).unwrap().is_some()
    });
    drop(one);
    zero.shared.lock().tags.most_posted = 0;
    let any_tag = Pattern {
        tag: None,
        ..from(FROM)
    };
    let receives = [(); PROMISED].map(|()| irecv(&zero, &any_tag));
    left(&zero);
    until("the message is not found", || {
        let found = zero.iprobe(&any_tag).expect("the last one is there");
        found.is_some_and(|status| status.bytes == 2)
    });
    for receive in receives {
        assert_eq!(zero.wait(receive).unwrap().bytes, 1);
    }
    assert_eq!(zero.probe(&any_tag).unwrap().bytes, 2);
    zero.recv_contig(&any_tag, &mut [0; 2]).unwrap();
    // (Its engine does not know the reason.)
    let error = zero.probe(&any_tag).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
}

/// More messages than a probe looks at before it fails.
const PROMISED: usize = 20;

/// Whether a message is there, a probe without room for a look does not know.
#[test]
fn a_probe_without_room_does_not_fail() {
    let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
        return; // The skip has been printed.
    };
    delivered(&zero, &one);
    one.send_contig(&args(0, FROM), b"x").unwrap();
    until("the message does not arrive", || {
        one.engine.poll();
        zero.iprobe(&from(FROM)).unwrap().is_some()
    });
    drop(one);
    left(&zero);
    let real = replace(&zero, has_no_room);
    UNCROWDED.get_or_init(|| real);
    assert!(zero.iprobe(&from(FROM)).unwrap().is_none());
    assert_eq!(zero.probe(&from(FROM)).unwrap().bytes, 1);
    assert!(CROWDED.load(Ordering::Relaxed) >= MANY);
}

static UNCROWDED: OnceLock<Receive> = OnceLock::new();
static CROWDED: AtomicU32 = AtomicU32::new(0);
/// More looks than a probe tries twice.
const MANY: u32 = 3000;

/// The first looks find no room.
unsafe extern "C" fn has_no_room(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    if CROWDED.fetch_add(1, Ordering::Relaxed) < MANY {
        return -(FI_EAGAIN as isize);
    }
    let real = UNCROWDED.get().expect("it is set");
    // SAFETY: the caller's promise.
    unsafe { real(ep, msg, flags) }
}
