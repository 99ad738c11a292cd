//! Messages to a rank that has left the job in good order.

use libfabric_sys::FI_ECONNRESET;
use portolan_core::SendMode;

use super::leavers::{
    Rank, assert_left, both, delivered, flood, isend, left, noticed_long_ago, ranks, synchronous,
};
use super::*;

/// Nobody will match it, and nobody reports that.
#[test]
fn a_synchronous_send_to_a_rank_that_has_left_fails() {
    let Some([zero, one]) = opened() else {
        return; // The skip has been printed.
    };
    let zero = Native::<Single>::new(zero, &Settings::default()).unwrap();
    drop(one);
    // What the provider would have sent before the message was matched is lost, which is its
    // receiver's affair.
    let at_once = zero.shared.lock().ofi.link.at_once;
    zero.send_contig(&args(1, 0), &vec![7; at_once]).unwrap();
    let announced = zero.send_contig(&args(1, 0), &vec![7; at_once + 1]);
    assert_left(announced);
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

/// Nobody reports that the message was matched, and the provider reports no error.
#[test]
fn so_does_one_that_nobody_has_matched_by_then() {
    for wait in ["auto", "spin", "park"] {
        let Some([zero, one]): Option<[Rank; 2]> = ranks(wait) else {
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
        let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
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
        // The provider never ends it, so the farewell must not wait for that.
        let living = zero.shared.lock().tags.is_under_way_with_the_living();
        assert!(!living && zero.shared.lock().tags.is_under_way());
    }
}

/// Nothing is left to wait for.
#[test]
fn it_does_so_at_once_when_the_departure_is_known() {
    static MESSAGE: [u8; 4 << 20] = [7; 4 << 20];
    let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
        return; // The skip has been printed.
    };
    let sends = [delivered(&zero, &one), isend(&zero, &args(1, 0), &MESSAGE)];
    zero.engine.poll();
    drop(one);
    left(&zero);
    zero.engine.poll();
    assert!(sends.iter().all(|&send| zero.is_complete(send)));
}

/// The rank knows up to what length the provider sends at once.
#[test]
fn longer_messages_wait_for_their_receiver() {
    static MESSAGE: [u8; 4 << 20] = [7; 4 << 20];
    let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
        return; // The skip has been printed.
    };
    let at_once = zero.shared.lock().ofi.link.at_once;
    let sends = [at_once, at_once + 1].map(|len| isend(&zero, &args(1, 0), &MESSAGE[..len]));
    both("it is announced", &zero, &one, || {
        zero.is_complete(sends[0])
    });
    let mut polls = 0;
    both("", &zero, &one, || {
        polls += 1;
        polls > 10_000
    });
    assert!(!zero.is_complete(sends[1]), "it is sent at once");
    one.recv_contig(&from(0), &mut vec![0; at_once]).unwrap();
    let mut room = vec![0; at_once + 1];
    // SAFETY: the memory is there until the receive is over, below.
    let receive = unsafe { one.irecv_contig(&from(0), room.as_mut_ptr(), room.len()) }.unwrap();
    both("it does not arrive", &zero, &one, || {
        zero.is_complete(sends[1]) && one.is_complete(receive)
    });
    one.wait(receive).unwrap();
}

/// The rule is the same whether the provider has the message or not, and whichever news comes
/// first: what it sends at once is lost without an error.
#[test]
fn a_send_under_way_ends_as_its_length_says() {
    static MESSAGE: [u8; 4 << 20] = [7; 4 << 20];
    for under_way in [false, true] {
        let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
            return; // The skip has been printed.
        };
        if under_way {
            delivered(&zero, &one);
        }
        let at_once = zero.shared.lock().ofi.link.at_once;
        let sends = [at_once, at_once + 1].map(|len| isend(&zero, &args(1, 0), &MESSAGE[..len]));
        let short = zero.shared.lock().tags.numbers[&sends[0].to_bits()];
        assert_eq!(zero.shared.lock().tags.slots.at(short).under_way, under_way);
        drop(one);
        left(&zero);
        zero.wait(sends[0]).unwrap();
        assert_left(zero.wait(sends[1]));
    }
}

/// The receiver has reported that it was matched, and the provider has not let go of it yet.
#[test]
fn a_send_under_way_that_was_matched_has_succeeded() {
    static MESSAGE: [u8; 4 << 20] = [7; 4 << 20];
    let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
        return; // The skip has been printed.
    };
    delivered(&zero, &one);
    let sends = [0, 1].map(|_| isend(&zero, &synchronous(args(1, 0)), &MESSAGE));
    {
        let tags = &mut zero.shared.lock().tags;
        let number = tags.numbers[&sends[0].to_bits()];
        assert!(tags.slots.at(number).under_way);
        tags.acknowledged(1, number);
    }
    drop(one);
    left(&zero);
    zero.wait(sends[0]).unwrap();
    assert_left(zero.wait(sends[1]));
}

/// The report that the message was matched is on its way when the receiver leaves, perhaps behind
/// other messages that the provider keeps to itself.
#[test]
fn one_that_was_matched_in_time_does_not() {
    for flooded in [false, true] {
        let Some([zero, one]): Option<[Rank; 2]> = ranks("hasty") else {
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
