//! Windows of long messages: many are on offer at once.

use super::{arrives, busy, piece};
use crate::device::{Check, Device};
use crate::level::StateLock;
use crate::transport::{Header, PacketKind};

/// What a receiver says that takes bytes of an offer.
fn take(cookie: u32, until: u64) -> (Header, [u8; 24]) {
    let mut body = [0_u8; 24];
    body[..4].copy_from_slice(&77_u32.to_le_bytes());
    body[16..].copy_from_slice(&until.to_le_bytes());
    let header = Header {
        kind: PacketKind::Take as u8,
        cookie,
        ..Header::default()
    };
    (header, body)
}

/// Behind a window of offers a sender may say what this rank's own messages wait for.
#[test]
fn all_offers_that_are_there_are_matched_in_one_step() {
    let busy = busy();
    let mut offer = [0_u8; 48];
    offer[..8].copy_from_slice(&50_u64.to_le_bytes());
    for tag in [5, 6, 9] {
        arrives(&busy.engine, piece(PacketKind::Offer, tag, 9), &offer);
    }
    let (header, body) = take(busy.requests[0].to_short(), 2000);
    arrives(&busy.engine, header, &body);
    let mut state = busy.engine.state.lock();
    state.progress();
    assert_eq!(state.transport.arriving.len(), 0);
    let count = |kind: PacketKind| {
        let sent = state.transport.sent.iter();
        sent.filter(|header| header.kind == kind as u8).count()
    };
    assert_eq!(count(PacketKind::Take), 3);
    assert_eq!(count(PacketKind::Data), 4);
}

/// What a stream has found to be full is full for the next one, too.
#[test]
fn streams_behind_one_without_room_are_not_tried() {
    let busy = busy();
    for (request, len) in busy.requests.iter().zip([2000, 900]) {
        let (header, body) = take(request.to_short(), len);
        arrives(&busy.engine, header, &body);
    }
    busy.engine.state.lock().transport.full = true;
    for steps in 1..4 {
        busy.engine.state.lock().progress();
        let refused = busy.engine.state.lock().transport.refused;
        assert_eq!(refused, steps, "one packet in a step");
    }
    busy.engine.state.lock().transport.full = false;
    busy.engine.device_check(Check::NonBlocking).unwrap();
    let state = busy.engine.state.lock();
    let data = |header: &&Header| header.kind == PacketKind::Data as u8;
    assert_eq!(state.transport.sent.iter().filter(data).count(), 8);
    for request in &busy.requests[..2] {
        let now = state.proto.table.state(request.index());
        assert_eq!(now, crate::request::State::Complete);
    }
}
