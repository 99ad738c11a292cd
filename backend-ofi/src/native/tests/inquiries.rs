//! Receives from any source that have matched a message when a rank dies, while others are alive.

use std::sync::atomic::{AtomicBool, Ordering};

use portolan_core::SendMode;
use portolan_core::device::{ActiveMessage, Check};
use portolan_core::matching::Envelope;
use portolan_core::transport::Payload;

use super::*;
use crate::native::bits::{Label, Mark};
use crate::native::inquiries::{ASKED, NAMED, Note};
use crate::native::slots::Arrival;

/// Longer than the provider sends at once.
const ANNOUNCED: usize = 1 << 20;

fn any() -> Pattern {
    Pattern {
        source: None,
        ..from(FROM)
    }
}

/// Delivers the devices' messages to each other. Returns how many there were.
fn carry(cores: &mut [Core]) -> usize {
    let mut count = 0;
    for from in 0..cores.len() {
        while let Some(note) = cores[from].tags.next_note() {
            let peer = from as u32;
            cores[note.peer as usize].tags.hear(&Note { peer, ..note });
            count += 1;
        }
    }
    count
}

/// # Safety
/// The buffer must outlive the ranks.
unsafe fn receive(core: &mut Core, number: u64, from: &Pattern, room: &mut [u8]) {
    let Core { ofi, tags } = core;
    let data = Data::Contig(ContigBuf::from_bytes_mut(room));
    // SAFETY: the caller's promise.
    unsafe {
        tags.start_receive(ofi, request(number), from, data)
            .unwrap();
    };
}

/// Sends to rank 0.
///
/// # Safety
/// The message must outlive the ranks.
unsafe fn send(core: &mut Core, number: u64, mode: SendMode, message: &[u8]) {
    let Core { ofi, tags } = core;
    let args = SendArgs {
        mode,
        ..args(0, ofi.rank)
    };
    let data = Data::Contig(ContigBuf::from_bytes(message));
    // SAFETY: the caller's promise.
    unsafe { tags.start_send(ofi, request(number), &args, data).unwrap() };
}

/// Makes a receive of rank 0 match a message of rank 1, whose first bytes have arrived.
///
/// # Safety
/// Message and buffer must outlive the ranks.
unsafe fn meet(cores: &mut [Core; 3], message: &[u8], room: &mut [u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        receive(&mut cores[0], 1, &any(), room);
        cores[0].mark();
        send(&mut cores[1], 2, SendMode::Standard, message);
    }
    until("nothing arrives", || {
        cores[1].step();
        cores[0].step();
        cores[0].has_begun()
    });
    assert!(cores[0].end().is_none(), "all of it has arrived at once");
}

/// Waits until a message of `source` has arrived that has matched no receive. With `sends`,
/// `source` makes progress meanwhile.
fn shown(cores: &mut [Core; 3], source: u32, sends: bool) {
    until("it does not come", || {
        if sends {
            cores[source as usize].step();
        }
        cores[0].serve();
        let Core { ofi, tags } = &mut cores[0];
        let look = tags.look(ofi, &from(source), false);
        let Some(look) = look else { return false };
        loop {
            cores[0].serve();
            match cores[0].tags.seen(look) {
                Seen::Later => {}
                seen => return seen != Seen::Nothing,
            }
        }
    });
}

/// Messages of living ranks that no receive has matched do not keep the receive from ending, and
/// remain there for later receives.
fn a_receive_ends_in_front_of(unmet: &[(u32, SendMode, usize)]) {
    let message = vec![7; LEN];
    let mut room = vec![0; LEN];
    let others: Vec<Vec<u8>> = unmet
        .iter()
        .zip(10..)
        .map(|(&(_, _, len), byte)| vec![byte; len])
        .collect();
    let mut rooms: Vec<Vec<u8>> = unmet.iter().map(|&(_, _, len)| vec![0; len]).collect();
    let Some(mut cores) = cores::<3>() else {
        return; // The skip has been printed.
    };
    // SAFETY: the buffers were made before the ranks, and outlive them.
    unsafe { meet(&mut cores, &message, &mut room) };
    for (number, (&(source, mode, _), other)) in (20..).zip(unmet.iter().zip(&others)) {
        // SAFETY: as above.
        unsafe { send(&mut cores[source as usize], number, mode, other) };
        shown(&mut cores, source, true);
    }
    let ended = |core: &mut Core| {
        core.tags
            .next_end()
            .map(|(number, end)| (number.to_bits() >> 32, end))
    };
    while ended(&mut cores[0]).is_some() {}
    cores[0].ofi.shared.deaths.declare(1, "its node is gone");
    until("the receive never ends", || {
        cores[0].step();
        cores[2].step();
        carry(&mut cores);
        matches!(ended(&mut cores[0]), Some((1, End::Failed(1))))
    });
    for (number, (&(source, ..), room)) in (30..).zip(unmet.iter().zip(&mut rooms)) {
        // SAFETY: as above.
        unsafe { receive(&mut cores[0], number, &from(source), room) };
        until("a message is lost", || {
            cores[0].step();
            cores[2].step();
            carry(&mut cores);
            match ended(&mut cores[0]) {
                Some((which, End::Over(status))) if which == number => status.error.is_none(),
                Some((_, End::Failed(peer))) => panic!("failed because of {peer}"),
                _ => false,
            }
        });
    }
    drop(cores);
    assert!(rooms == others, "what has come is not what was sent");
}

#[test]
fn a_receive_ends_when_the_living_have_sent_nothing() {
    a_receive_ends_in_front_of(&[]);
}

#[test]
fn a_receive_ends_although_the_living_send_something_else() {
    a_receive_ends_in_front_of(&[
        (2, SendMode::Standard, 8),
        (2, SendMode::Standard, ANNOUNCED),
        (0, SendMode::Standard, ANNOUNCED),
    ]);
}

#[test]
fn a_receive_ends_although_the_living_wait_for_another() {
    a_receive_ends_in_front_of(&[(2, SendMode::Synchronous, ANNOUNCED)]);
}

/// A message that a probe has taken cannot have matched a receive.
#[test]
fn a_receive_ends_although_a_probe_has_taken_another() {
    let (message, other) = (vec![7; LEN], vec![8; LEN]);
    let (mut room, mut taken) = (vec![0; LEN], vec![0; LEN]);
    let Some(mut cores) = cores::<3>() else {
        return; // The skip has been printed.
    };
    // SAFETY: the buffers were made before the ranks, and outlive them.
    unsafe {
        meet(&mut cores, &message, &mut room);
        send(&mut cores[2], 2, SendMode::Standard, &other);
    }
    shown(&mut cores, 2, true);
    let Core { ofi, tags } = &mut cores[0];
    let look = tags.look(ofi, &from(2), true).expect("there is room");
    until("the probe is not answered", || {
        cores[0].serve();
        match cores[0].tags.seen(look) {
            Seen::Later => false,
            seen => {
                assert_ne!(seen, Seen::Nothing, "it was shown");
                true
            }
        }
    });
    let handle = cores[0].tags.keep(look);
    cores[0].ofi.shared.deaths.declare(1, "its node is gone");
    until("the receive never ends", || {
        cores[0].step();
        cores[2].step();
        carry(&mut cores);
        failed(cores[0].end())
    });
    let data = Data::Contig(ContigBuf::from_bytes_mut(&mut taken));
    let Core { ofi, tags } = &mut cores[0];
    // SAFETY: as above.
    assert!(unsafe { tags.receive_taken(ofi, handle, request(3), data).unwrap() });
    until("the message that was taken is lost", || {
        cores[0].step();
        cores[2].step();
        match cores[0].end() {
            None => false,
            Some(End::Over(status)) => status.error.is_none(),
            Some(end) => panic!("{end:?}"),
        }
    });
    drop(cores);
    assert!(taken == other);
}

/// A rank leaves before the look for a message of it is answered. The look's number then belongs to
/// the next look: a probe that takes that message.
#[test]
fn a_rank_that_leaves_during_a_look_takes_no_answer_from_a_probe() {
    let message = vec![7; LEN];
    let mut room = vec![0; LEN];
    let Some(mut cores) = cores::<3>() else {
        return; // The skip has been printed.
    };
    // SAFETY: the buffers were made before the ranks, and outlive them.
    unsafe {
        meet(&mut cores, &message, &mut room);
        send(&mut cores[2], 2, SendMode::Standard, b"x");
    }
    shown(&mut cores, 2, true);
    let zero = &mut cores[0];
    let looking = |zero: &Core| {
        let mut slots = zero.tags.slots.iter();
        slots.any(|slot| matches!(slot.what, What::Look(_)))
    };
    zero.ofi.shared.deaths.declare(1, "its node is gone");
    until("nobody is looked at", || {
        zero.step();
        looking(zero)
    });
    // Rank 2 is the first that is looked at.
    zero.ofi.shared.roster.leave(2);
    until("the look is never answered", || {
        zero.step();
        !looking(zero)
    });
    let Core { ofi, tags } = &mut *zero;
    let look = tags.look(ofi, &from(2), true).expect("there is room");
    let mut seen = Seen::Later;
    until("the probe is not answered", || {
        zero.step();
        seen = zero.tags.seen(look);
        seen != Seen::Later
    });
    assert_ne!(seen, Seen::Nothing, "the inquiry has taken the answer");
    drop(cores);
}

/// A message of a living rank arrives, however long its sender does not poll, and whatever it has
/// sent after it.
fn what_the_living_send_arrives(later: Option<SendMode>) {
    let (message, short) = (vec![7; LEN], [8; 8]);
    let mut room = vec![0; LEN];
    let Some(mut cores) = cores::<3>() else {
        return; // The skip has been printed.
    };
    // SAFETY: the buffers outlive the ranks.
    unsafe { send(&mut cores[2], 2, SendMode::Standard, &message) };
    shown(&mut cores, 2, true);
    // SAFETY: as above.
    unsafe { receive(&mut cores[0], 1, &any(), &mut room) };
    if let Some(mode) = later {
        // SAFETY: as above.
        unsafe { send(&mut cores[2], 3, mode, &short) };
        shown(&mut cores, 2, false);
    }
    assert!(cores[0].end().is_none(), "all of it has arrived at once");
    cores[0].ofi.shared.deaths.declare(1, "its node is gone");
    let mut said = 0;
    until("nobody is asked", || {
        cores[0].step();
        said += carry(&mut cores);
        assert!(
            cores[0].end().is_none(),
            "a message of the living is given up"
        );
        said >= 10
    });
    until("it does not arrive", || {
        cores[0].step();
        cores[2].step();
        carry(&mut cores);
        match cores[0].end() {
            None => false,
            Some(End::Over(status)) => status.error.is_none() && status.bytes == LEN as u64,
            Some(end) => panic!("{end:?}"),
        }
    });
    drop(cores);
    assert!(room == message);
}

#[test]
fn a_message_of_the_living_is_not_given_up() {
    what_the_living_send_arrives(None);
}

#[test]
fn nor_is_it_when_a_later_one_has_met_no_receive() {
    what_the_living_send_arrives(Some(SendMode::Standard));
    what_the_living_send_arrives(Some(SendMode::Synchronous));
}

#[test]
fn devices_ask_each_other() {
    devices_ask(&[]);
}

/// The question is about a long message, and its answer comes after that message.
#[test]
fn devices_ask_about_a_long_message_that_no_receive_has_met() {
    devices_ask(&[8; ANNOUNCED]);
}

/// A device that receives from any source asks another one, which has sent it something else
/// meanwhile if `unmet` is not empty.
fn devices_ask(unmet: &[u8]) {
    let message = vec![7; LEN];
    let (mut room, mut other) = (vec![0; LEN], vec![0; unmet.len()]);
    let Some(ranks) = opened::<3>() else {
        return; // The skip has been printed.
    };
    let settings = Settings::default();
    let [zero, one, two] = ranks.map(|ofi| Native::<Multiple>::new(ofi, &settings).unwrap());
    let (over, met) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed, here and below: the flags publish no other data.
            while !met.load(Ordering::Relaxed) {
                two.device_check(Check::NonBlocking).unwrap();
            }
            if !unmet.is_empty() {
                two.send_contig(&args(0, 2), unmet).unwrap();
            }
            while !over.load(Ordering::Relaxed) {
                two.device_check(Check::NonBlocking).unwrap();
            }
        });
        let received = scope.spawn(|| zero.recv_contig(&any(), &mut room));
        let posted = |core: &Core| core.tags.slots.iter().any(|slot| slot.under_way);
        while !posted(&zero.shared.lock()) {
            std::thread::yield_now();
        }
        zero.shared.lock().mark();
        {
            let mut core = one.shared.lock();
            // SAFETY: the message outlives the ranks.
            unsafe { send(&mut core, 2, SendMode::Standard, &message) };
        }
        until("nothing arrives", || {
            one.shared.lock().step();
            zero.shared.lock().has_begun()
        });
        met.store(true, Ordering::Relaxed);
        if !unmet.is_empty() {
            until("the other one does not come", || {
                zero.iprobe(&from(2)).unwrap().is_some()
            });
        }
        zero.shared
            .lock()
            .ofi
            .shared
            .deaths
            .declare(1, "its node is gone");
        let outcome = received.join().expect("the thread ends");
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PeerFailed);
        if !unmet.is_empty() {
            zero.recv_contig(&from(2), &mut other).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(other == unmet);
}

#[test]
fn what_a_question_names_is_heard() {
    let taken = vec![Mark::Turn(0x12_3456), Mark::Awaited(2), Mark::Turn(0)];
    let note = Note {
        taken,
        ..Note::plain(1, ASKED, [3, 4])
    };
    let payload = note.payload();
    let bytes = [[0x56, 0x34, 0x12, 0], [2, 0, 0x80, 0], [0; 4]];
    assert_eq!(payload, bytes.as_flattened());
    let heard = |payload: &[u8]| {
        let message = ActiveMessage {
            from: ProcId::new(note.peer),
            args: note.args,
            payload: Payload::from_slice(payload),
        };
        Note::heard(note.handler, &message)
    };
    assert_eq!(heard(&payload), note);
    // A peer that names more is not believed, and does not fill the memory.
    assert_eq!(heard(&[1; 4 * NAMED + 6]).taken.len(), NAMED);
}

#[test]
fn a_question_names_the_longest_messages() {
    let Some([mut zero, _one]) = pair() else {
        return; // The skip has been printed.
    };
    let mark = |len: usize| Mark::turn(len as u64);
    let lens = 0..NAMED + 9;
    for len in lens.clone() {
        let arrival = Arrival {
            envelope: Envelope {
                context: 0,
                source: FROM,
                tag: TAG,
            },
            label: Label {
                signature: 0,
                rep: 0,
                mark: mark(len),
            },
            len,
        };
        zero.tags.slots.add(What::Taken(arrival), Request::NULL);
    }
    let named = zero.tags.taken_of(1, &any());
    let longest: Vec<Mark> = lens.rev().take(NAMED).map(mark).collect();
    assert_eq!(named, longest);
}
