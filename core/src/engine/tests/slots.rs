//! The last free request slots, and messages that go unasked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Scripted, arrives, engine, scripted};
use crate::buffer::ContigBuf;
use crate::config::Settings;
use crate::device::{Device, Turn, Upper};
use crate::engine::Data;
use crate::engine::Engine;
use crate::engine::long::unasked::STREAMED;
use crate::engine::short::send::{Launched, UNPOLLED};
use crate::level::{Single, StateLock};
use crate::matching::Pattern;
use crate::request::State as Stage;
use crate::transport::packet::flags;
use crate::transport::{Header, PacketKind};
use crate::{Adi, ErrorKind, ProcId, Request, SendArgs, TypedBuf};

/// A request that a hook holds; it is over when the hook says so.
struct Held;

impl Upper for Held {}

/// An engine all of whose slots but one are taken, with a hook that tries to take one more in the
/// next poll.
fn nearly_exhausted() -> (Engine<Scripted, Single>, Arc<AtomicU32>) {
    let engine = engine();
    let mut state = engine.state.lock();
    for _ in 2..Request::MAX_ACTIVE {
        state.proto.table.claim(Stage::Active).unwrap();
    }
    drop(state);
    let refused = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&refused);
    engine.register_hook(Box::new(move |port| {
        let outcome = port.upper_request(Box::new(Held));
        if outcome.is_err_and(|error| error.kind() == ErrorKind::Exhausted) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Turn::Sleep
    }));
    (engine, refused)
}

/// A message that has left has its request: a hook that runs in the poll that is then due finds no
/// free slot.
#[test]
fn what_has_left_is_not_refused() {
    // A message in one packet, and one in pieces as part of a window.
    for (len, window, packets) in [(8, 0, 1), (1000, 3, 2)] {
        let (engine, refused) = nearly_exhausted();
        let to = SendArgs::new(ProcId::new(1), 3, 0, 5);
        let bytes = vec![7_u8; len];
        let polls = engine.shared.polls();
        for _ in 0..window {
            engine.state.lock().proto.unasked.in_window(1, 1, polls);
        }
        engine.state.lock().proto.unpolled = UNPOLLED - 1;
        // SAFETY: the bytes outlive the engine's use of them, which is over when this returns.
        let request = unsafe { engine.isend_contig(&to, bytes.as_ptr(), len) };
        assert_eq!(engine.state.lock().transport.sent.len(), packets);
        assert!(engine.is_complete(request.expect("it has left")));
        assert_eq!(
            refused.load(Ordering::Relaxed),
            1,
            "the hook has run, too late"
        );
    }
}

/// Messages that find no room do not count as sent, so they do not use up what was learnt about
/// their receiver.
#[test]
fn what_finds_no_room_spends_nothing() {
    for waited in [true, false] {
        let mut transport = scripted();
        transport.pulled = Some(Vec::new());
        let engine: Engine<_, Single> = Engine::new(transport, &Settings::default()).unwrap();
        let mut state = engine.state.lock();
        for _ in 0..STREAMED {
            state.proto.offer_was_taken(1, 1000, waited, true);
        }
        let to = SendArgs::new(ProcId::new(1), 3, 0, 5);
        let bytes = [7_u8; 1000];
        let data = Data::Contig(ContigBuf::from_bytes(&bytes));
        // SAFETY: the bytes outlive the engine's use of them: the test ends with both.
        let mut launch = |full| unsafe {
            state.transport.full = full;
            state.try_unasked(&to, &data, waited)
        };
        for _ in 0..5000 {
            assert!(launch(true) == Launched::No);
        }
        assert!(launch(false) == Launched::Yes, "waited: {waited}");
    }
}

/// A matched message is not lost when no slot is free to receive it. To discard it takes no slot.
#[test]
fn a_taken_message_waits_for_a_slot() {
    let engine = engine();
    let mut state = engine.state.lock();
    let mut slot = None;
    for _ in 1..Request::MAX_ACTIVE {
        slot = Some(state.proto.table.claim(Stage::Active).unwrap());
    }
    drop(state);
    let header = |kind: PacketKind, tag, flags| Header {
        kind: kind as u8,
        flags,
        context: 3,
        source: 1,
        tag,
        cookie: 40 + tag,
        ..Header::default()
    };
    let mut offer = [0; 48];
    offer[0] = 200;
    arrives(&engine, header(PacketKind::Eager, 0, 0), &[7; 8]);
    arrives(
        &engine,
        header(PacketKind::Eager, 1, flags::SYNCHRONOUS),
        &[7; 8],
    );
    arrives(&engine, header(PacketKind::Offer, 2, 0), &offer);
    let [received, synchronous, offered] = [0, 1, 2].map(|tag| {
        let from = Pattern {
            context: 3,
            source: Some(1),
            tag: Some(tag),
        };
        engine
            .improbe_unchecked(&from)
            .unwrap()
            .expect("it has come")
            .0
    });
    let mut bytes = [0_u8; 8];
    let layout = portolan_datatype::Layout::of::<u8>();
    let mut receive = || {
        // SAFETY: the bytes outlive the request, which is over when the call returns.
        unsafe {
            let buf = TypedBuf {
                ptr: bytes.as_mut_ptr(),
                count: 8,
                layout: &layout,
                memory: crate::buffer::MemoryKind::Host,
            };
            engine.imrecv_unchecked(received, buf)
        }
    };
    for _ in 0..2 {
        assert_eq!(receive().unwrap_err().kind(), ErrorKind::Exhausted);
    }
    for message in [synchronous, offered] {
        engine.discard(message).unwrap();
        let again = engine.discard(message).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::InvalidRequest);
    }
    let mut state = engine.state.lock();
    let told = |header: &Header| (header.kind == PacketKind::Done as u8, header.cookie);
    let sent: Vec<_> = state.transport.sent.iter().map(told).collect();
    assert_eq!(sent, [(true, 41), (true, 42)], "both senders know");
    state.proto.table.release(slot.unwrap().index());
    drop(state);
    let request = receive().expect("a slot is free");
    assert_eq!(engine.wait(request).unwrap().bytes, 8);
    let stale = receive().unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::InvalidRequest);
    assert_eq!(bytes, [7; 8]);
    assert!(
        engine.state.lock().proto.table.has_room(),
        "its slot is free again"
    );
}

/// An offer needs a slot to be received. If none is free, the blocking receive that matches it
/// ends; it does not receive the message that comes after it.
#[test]
fn no_message_overtakes_an_offer_for_want_of_a_slot() {
    let engine = engine();
    let mut state = engine.state.lock();
    for _ in 1..Request::MAX_ACTIVE {
        state.proto.table.claim(Stage::Active).unwrap();
    }
    drop(state);
    let header = |kind: PacketKind, tag| Header {
        kind: kind as u8,
        context: 3,
        source: 1,
        tag,
        ..Header::default()
    };
    let from = |tag| Pattern {
        context: 3,
        source: Some(1),
        tag: Some(tag),
    };
    let mut offer = [0; 48];
    offer[0] = 200;
    arrives(&engine, header(PacketKind::Offer, 4), &offer);
    arrives(&engine, header(PacketKind::Offer, 5), &offer);
    arrives(&engine, header(PacketKind::Eager, 5), &[7; 8]);
    arrives(&engine, header(PacketKind::Eager, 6), &[8; 8]);
    let mut bytes = [0; 8];
    let error = engine.recv_contig(&from(5), &mut bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert_eq!(bytes, [0; 8]);
    for (tag, len) in [(4, 200), (5, 200), (6, 8)] {
        let status = engine.iprobe(&from(tag)).unwrap();
        assert_eq!(status.map(|status| status.bytes), Some(len), "tag {tag}");
    }
}
