//! Messages to a rank that has left the job in good order.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libfabric_sys::{FI_ECONNRESET, fi_msg_tagged, fid_ep};
use portolan_core::SendMode;
use portolan_core::engine::Beside;
use portolan_core::matching::Envelope;

use super::outcasts::{Receive, replace};
use super::*;
use crate::native::leavers::Matching;
use crate::ofi::FAREWELL;
use crate::ofi::tests::{apart, long_ago, often};
use crate::peer::WINDOW;
use crate::send::insert;

type Rank = Native<Single>;

fn synchronous(args: SendArgs) -> SendArgs {
    SendArgs {
        mode: SendMode::Synchronous,
        ..args
    }
}

/// Nobody will match it, and nobody reports that.
#[test]
fn a_synchronous_send_to_a_rank_that_has_left_fails() {
    let Some([zero, one]) = opened() else {
        return; // The skip has been printed.
    };
    let zero = Native::<Single>::new(zero, &Settings::default()).unwrap();
    drop(one);
    let to = synchronous(args(1, 0));
    let blocking = zero.send_contig(&to, b"x");
    // SAFETY: the byte lives as long as the program.
    let request = unsafe { zero.isend_contig(&to, b"x".as_ptr(), 1) }.unwrap();
    for outcome in [blocking, zero.wait(request).map(drop)] {
        let error = outcome.unwrap_err();
        let whose = (error.kind(), error.peer());
        assert_eq!(whose, (ErrorKind::PeerFailed, Some(1)), "{error}");
        let text = error.to_string();
        assert!(text.contains("world rank 1 has left the job"), "{text}");
    }
    // Another message is lost, which is its receiver's affair, unless it had to be asked for.
    zero.send_contig(&args(1, 0), b"x").unwrap();
    assert_left(zero.send_contig(&args(1, 0), &vec![7; 4 << 20]));
}

/// The provider has taken the message, and reports an error for it, because the receiver has left
/// meanwhile.
#[test]
fn so_does_one_that_the_provider_could_not_deliver() {
    let long = vec![7; 4 << 20];
    let mut room = vec![0; long.len()];
    for (mode, bytes, fails) in [
        (SendMode::Synchronous, &b"x"[..], true),
        (SendMode::Standard, b"x", false),
        (SendMode::Standard, &long, true),
    ] {
        let Some([mut zero, mut one]) = pair() else {
            return; // The skip has been printed.
        };
        let data = Data::Contig(ContigBuf::from_bytes(bytes));
        let to = SendArgs { mode, ..args(1, 0) };
        let Core { ofi, tags } = &mut zero;
        // SAFETY: the bytes outlive the ranks.
        unsafe { tags.start_send(ofi, request(1), &to, data).unwrap() };
        // The provider waits for a receive before it sends all of a long message.
        let Core { ofi, tags } = &mut one;
        let data = Data::Contig(ContigBuf::from_bytes_mut(&mut room));
        // SAFETY: the room outlives the ranks.
        unsafe { tags.start_receive(ofi, request(2), &from(0), data).unwrap() };
        until("the provider does not end it", || {
            one.serve();
            let Core { ofi, tags } = &mut zero;
            tags.send_waiting(ofi);
            ofi.poll(&mut Nobody);
            !ofi.tagged.is_empty()
        });
        // Pretend that the connection has broken.
        zero.ofi.shared.roster.leave(1);
        zero.ofi.tagged[0].error = FI_ECONNRESET;
        zero.collect();
        match zero.end() {
            Some(End::Left(1)) => assert!(fails),
            Some(End::Over(status)) => assert!(!fails && status.error.is_none(), "{status:?}"),
            end => panic!("{mode:?}: {end:?}"),
        }
        assert_eq!(zero.ofi.shared.deaths.count(), 0, "it has not died");
    }
}

/// Two ranks that wait in this way, or, with `hasty`, look who has left before anything else. A
/// wait without end ends the process.
fn ranks(wait: &str) -> Option<[Rank; 2]> {
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
        let rank = Rank::new(ofi, &settings).expect("a device");
        rank.on_stuck(Box::new(|waits| assert!(waits.is_empty(), "{waits:?}")));
        rank
    };
    Some(opened()?.map(rank))
}

/// Makes progress on both ranks until that is so.
fn both(why: &str, zero: &Rank, one: &Rank, mut done: impl FnMut() -> bool) {
    until(why, || {
        zero.engine.poll();
        one.engine.poll();
        done()
    });
}

/// Starts a send of bytes that live as long as the program.
fn isend(rank: &Rank, to: &SendArgs, bytes: &'static [u8]) -> Request {
    // SAFETY: the bytes are there for ever.
    unsafe { rank.isend_contig(to, bytes.as_ptr(), bytes.len()) }.unwrap()
}

/// Starts a receive into memory that is never used for anything else.
fn irecv(rank: &Rank, pattern: &Pattern) -> Request {
    let room = Box::leak(Box::new([0; 8]));
    // SAFETY: the memory is there for ever.
    unsafe { rank.irecv_contig(pattern, room.as_mut_ptr(), room.len()) }.unwrap()
}

/// The provider of rank 0 has delivered a message that nobody has matched, and rank 1 can send.
fn delivered(zero: &Rank, one: &Rank) -> Request {
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
fn assert_left<R: std::fmt::Debug>(outcome: portolan_core::Result<R>) {
    let error = outcome.unwrap_err();
    let whose = (error.kind(), error.peer());
    assert_eq!(whose, (ErrorKind::PeerFailed, Some(1)), "{error}");
    let text = error.to_string();
    assert!(text.contains("world rank 1 has left the job"), "{text}");
}

/// Rank 0 has noticed long ago that rank 1 has left, and has not polled since. Receives that wait
/// in the device look for their messages again and again, so that there is always something to
/// read.
fn noticed_long_ago(zero: &Rank, posted: bool) {
    let Core { ofi, .. } = &mut *zero.shared.lock();
    ofi.has_left(1);
    long_ago(ofi, 1, Duration::from_secs(10));
    if !posted {
        often(ofi, 1);
    }
}

/// Rank 1 sends many messages that rank 0 does not receive, and that its provider has to read
/// before it reads anything else.
fn flood(one: &Rank) {
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
fn left(zero: &Rank) {
    Matching(Arc::clone(&zero.shared)).has_left(1);
}

/// Nobody reports that the message was matched, and the provider reports no error.
#[test]
fn so_does_one_that_nobody_has_matched_by_then() {
    for wait in ["auto", "spin", "park"] {
        let Some([zero, one]) = ranks(wait) else {
            return; // The skip has been printed.
        };
        let send = delivered(&zero, &one);
        let number = zero.shared.lock().tags.numbers[&send.to_bits()];
        drop(one);
        assert_left(zero.wait(send));
        let free = |slot: &mut Slot| matches!(slot.what, What::Free);
        assert!(free(zero.shared.lock().tags.slots.at(number)), "{wait}");
        // From then on the departure is known.
        assert_left(zero.send_contig(&args(1, 0), b"x"));
        assert!(zero.failure_of(ProcId::new(1)).is_some());
    }
}

/// The provider still has the message: it has announced it, and nobody has asked for it.
#[test]
fn so_does_one_that_was_only_announced() {
    static MESSAGE: [u8; 4 << 20] = [7; 4 << 20];
    for mode in [SendMode::Synchronous, SendMode::Standard] {
        let Some([zero, one]) = ranks("auto") else {
            return; // The skip has been printed.
        };
        let send = isend(&zero, &SendArgs { mode, ..args(1, 0) }, &MESSAGE);
        let mut polls = 0;
        both("", &zero, &one, || {
            polls += 1;
            polls > 10_000
        });
        assert!(zero.test(send).unwrap().is_none(), "nobody has matched it");
        drop(one);
        assert_left(zero.wait(send));
        let another = isend(&zero, &SendArgs { mode, ..args(1, 0) }, &MESSAGE);
        assert!(zero.test(another).is_err(), "the departure is known");
        let start = Instant::now();
        drop(zero);
        assert!(start.elapsed() < FAREWELL, "the provider never ends it");
    }
}

/// Nothing is left to wait for.
#[test]
fn it_does_so_at_once_when_the_departure_is_known() {
    static MESSAGE: [u8; 4 << 20] = [7; 4 << 20];
    let Some([zero, one]) = ranks("auto") else {
        return; // The skip has been printed.
    };
    let sends = [delivered(&zero, &one), isend(&zero, &args(1, 0), &MESSAGE)];
    zero.engine.poll();
    drop(one);
    left(&zero);
    zero.engine.poll();
    assert!(sends.iter().all(|&send| zero.is_complete(send)));
}

/// The report that the message was matched is on its way when the receiver leaves, perhaps behind
/// other messages that the provider keeps to itself.
#[test]
fn one_that_was_matched_in_time_does_not() {
    for flooded in [false, true] {
        let Some([zero, one]) = ranks("hasty") else {
            return; // The skip has been printed.
        };
        let send = delivered(&zero, &one);
        if flooded {
            flood(&one);
        }
        one.recv_contig(&from(0), &mut [0]).unwrap();
        drop(one);
        noticed_long_ago(&zero, true);
        zero.wait(send).unwrap();
    }
}

/// What a rank has sent before it leaves is received. Nothing else is waited for.
#[test]
fn receives_from_a_rank_that_has_left_end() {
    for (flooded, posted) in [(false, true), (true, true), (false, false)] {
        let Some([zero, one]) = ranks("hasty") else {
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

/// The message arrives while the probe looks, and then the departure is known.
#[test]
fn a_probe_finds_what_arrives_meanwhile() {
    let Some([zero, one]) = ranks("auto") else {
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

/// A receive that waits in the device: the look for its message begins before that has arrived, and
/// ends when the departure is known.
#[test]
fn a_look_that_began_too_early_ends_no_receive() {
    let Some([zero, one]) = ranks("auto") else {
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

#[test]
fn so_do_probes() {
    for flooded in [false, true] {
        let Some([zero, one]) = ranks("hasty") else {
            return; // The skip has been printed.
        };
        delivered(&zero, &one);
        if flooded {
            flood(&one);
        }
        one.send_contig(&args(0, FROM), b"x").unwrap();
        drop(one);
        noticed_long_ago(&zero, true);
        assert_eq!(zero.probe(&from(FROM)).unwrap().bytes, 1);
        zero.recv_contig(&from(FROM), &mut [0]).unwrap();
        assert_left(zero.probe(&from(FROM)));
        assert_left(zero.mprobe_unchecked(&from(FROM)));
        assert_left(zero.iprobe(&from(FROM)));
    }
}

/// A rank of another node says how many packets it has sent, but not how many messages. So it sends
/// a packet behind them.
#[test]
fn the_last_packet_to_another_node_comes_behind_all_messages() {
    let Some([mut zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    let data = Data::Contig(ContigBuf::from_bytes(b"x"));
    until("the message does not leave", || {
        zero.step();
        one.step();
        let Core { ofi, tags } = &mut one;
        // SAFETY: the byte lives as long as the program.
        unsafe { tags.launch(ofi, &args(0, FROM), &data) }
    });
    one.send_last_packets(Instant::now());
    assert_eq!(one.ofi.peers[0].sent, 0, "it is on the same node");
    for (rank, packets) in [(&mut zero, 0), (&mut one, 1)] {
        apart(&mut rank.ofi);
        rank.send_last_packets(Instant::now());
        let sent: u32 = rank.ofi.peers.iter().map(|peer| peer.sent).sum();
        assert_eq!(sent, packets, "only to those to which it has sent messages");
    }
    zero.ofi.shared.counts.hear_last(1, 1);
    zero.ofi.shared.roster.leave(1);
    assert!(!zero.ofi.has_left(1), "its packet is under way");
    until("the packet does not come", || {
        zero.step();
        zero.ofi.has_left(1)
    });
    let look = zero.tags.look(&mut zero.ofi, &from(FROM), false).unwrap();
    until("the look is not answered", || {
        zero.step();
        match zero.tags.seen(look) {
            Seen::Later => false,
            seen => {
                assert!(matches!(seen, Seen::Message(_)), "the packet came first");
                true
            }
        }
    });
}

/// For a time as long as packets may take, nobody takes it for granted that all is there.
#[test]
fn a_last_packet_that_does_not_leave_counts() {
    let Some([_zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    let Core { ofi, .. } = &mut one;
    assert!(insert(ofi, 0));
    ofi.peers[0].acked = 0_u32.wrapping_sub(WINDOW);
    apart(ofi);
    let long_ago = Instant::now().checked_sub(2 * FAREWELL);
    one.send_last_packets(long_ago.expect("a while"));
    assert_eq!(one.ofi.peers[0].sent, 1);
}

/// It says nothing.
#[test]
fn the_last_packet_does_nothing() {
    let Some([zero, one]) = ranks("auto") else {
        return; // The skip has been printed.
    };
    delivered(&zero, &one);
    apart(&mut one.shared.lock().ofi);
    drop(one);
    until("the packet does not come", || {
        zero.engine.poll();
        zero.shared.lock().ofi.peers[1].expected == 1
    });
    assert_eq!(zero.shared.lock().ofi.shared.deaths.count(), 0);
    let received = |(name, count): (&str, u64)| name == "active_received" && count == 1;
    assert!(zero.counters().into_iter().any(received));
}
