//! Short sends that wait for room.

use super::*;
use crate::engine::short::outgoing::Peer;
use crate::engine::state::State;
use crate::transport::PacketKind;

const WAITING: u32 = 5;

/// An engine whose transport is full, and sends with the tags from 0 on that wait for room: the
/// first because it found none, the others behind it.
fn crowded(byte: &u8) -> (Engine<Scripted, Single>, Vec<Request>) {
    let engine = engine();
    engine.state.lock().transport.full = true;
    let requests = (0..WAITING)
        .map(|tag| {
            let to = SendArgs::new(ProcId::new(1), 3, 0, tag);
            // SAFETY: the byte outlives the engine.
            unsafe { engine.isend_contig(&to, byte, 1) }.expect("a send that waits")
        })
        .collect();
    (engine, requests)
}

fn left(engine: &Engine<Scripted, Single>) -> Vec<u32> {
    let state = engine.state.lock();
    state.transport.sent.iter().map(|sent| sent.tag).collect()
}

#[test]
fn what_waited_leaves_in_order_and_before_what_is_started_later() {
    let byte = 7;
    let (engine, requests) = crowded(&byte);
    assert_eq!(left(&engine), []);
    engine.state.lock().transport.full = false;
    let to = SendArgs::new(ProcId::new(1), 3, 0, WAITING);
    // SAFETY: the byte outlives the engine.
    let last = unsafe { engine.isend_contig(&to, &raw const byte, 1) }.unwrap();
    for request in requests.into_iter().chain([last]) {
        assert_eq!(engine.wait(request).unwrap(), Status::EMPTY);
        assert_eq!(
            engine.wait(request).unwrap_err().kind(),
            ErrorKind::InvalidRequest,
            "the slot is free"
        );
    }
    assert_eq!(left(&engine), (0..=WAITING).collect::<Vec<_>>());
}

#[test]
fn what_waits_can_be_cancelled_and_does_not_leave() {
    let byte = 7;
    let (engine, requests) = crowded(&byte);
    for &cancelled in &requests[1..3] {
        engine.cancel(cancelled).unwrap();
        let status = engine.test(cancelled).unwrap();
        assert!(status.expect("taken back").cancelled);
    }
    engine.state.lock().transport.full = false;
    for at in [0, 3, 4] {
        assert!(!engine.wait(requests[at]).unwrap().cancelled);
    }
    assert_eq!(left(&engine), [0, 3, 4]);
}

/// Changes made while a send waited are respected when it leaves.
#[test]
fn what_may_not_leave_unasked_any_more_is_announced() {
    let byte = 7;
    let shorter = |state: &mut State<Scripted>| state.proto.limits.eager = 0;
    let held = |state: &mut State<Scripted>| state.proto.peers[1].flags |= Peer::HOLD;
    for change in [shorter as fn(&mut State<Scripted>), held] {
        let (engine, requests) = crowded(&byte);
        change(&mut engine.state.lock());
        engine.state.lock().transport.full = false;
        assert_eq!(engine.test(requests[0]).unwrap(), None);
        let kinds = |header: &Header| header.kind == PacketKind::Offer as u8;
        let state = engine.state.lock();
        let sent = &state.transport.sent;
        assert_eq!(sent.len(), WAITING as usize);
        assert!(sent.iter().all(kinds), "{sent:?}");
    }
}

#[test]
fn what_waits_says_for_what_and_fails_with_its_receiver() {
    let byte = 7;
    let (engine, requests) = crowded(&byte);
    let lines = engine.state.lock().proto.describe();
    for tag in 0..WAITING {
        let line = format!(
            "send to world rank 1 (context 3, tag {tag}, 1 bytes): waits to leave, for room or for progress"
        );
        assert!(lines.contains(&line), "{lines:?}");
    }
    engine.state.lock().transport.failed = Some("the script says so".to_owned());
    for request in requests {
        let error = engine.wait(request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
    }
    assert_eq!(left(&engine), []);
}

/// A slot reports only the status of its current operation, not that of an earlier one.
#[test]
fn a_slot_of_a_send_that_waited_serves_a_receive() {
    let byte = 7;
    let (engine, requests) = crowded(&byte);
    engine.state.lock().transport.full = false;
    for request in requests {
        engine.wait(request).unwrap();
    }
    for tag in 0..WAITING {
        let mut room = 0_u8;
        let from = Pattern {
            context: 3,
            source: Some(1),
            tag: Some(tag),
        };
        // SAFETY: the receive ends within this turn.
        let request = unsafe { engine.irecv_contig(&from, &raw mut room, 1) }.unwrap();
        let header = Header {
            kind: PacketKind::Eager as u8,
            context: 3,
            source: 1,
            tag,
            ..Header::default()
        };
        arrives(&engine, header, &[9]);
        assert_eq!(engine.wait(request).unwrap(), Status::received(1, tag, 1));
        assert_eq!(room, 9);
    }
}
