//! What the conformance suite cannot see from outside: an engine against a peer that sends
//! arbitrary packets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;

mod beside;
mod bundles;
mod gone;
mod growing;
mod in_hand;
mod left_over;
mod left_work;
mod naps;
mod queued;
mod scripted;
mod shared;
mod slots;
mod windows;

use self::scripted::{NoBell, Scripted, scripted};
use crate::config::Settings;
use crate::device::{Check, CommView, Completion, Device, SendMode};
use crate::engine::Engine;
use crate::level::{Level, Single, StateLock};
use crate::matching::Pattern;
use crate::transport::{
    Bell, Exposure, Header, Limits, Payload, Pulled, Pulls, Sent, Sink, Transport, TransportCaps,
};
use crate::{Adi, ErrorKind, ProcId, Request, SendArgs, Status};

fn engine() -> Engine<Scripted, Single> {
    engine_with(None)
}

/// An engine whose peer may have failed before it started.
fn engine_with(failed: Option<&str>) -> Engine<Scripted, Single> {
    let transport = Scripted {
        failed: failed.map(str::to_owned),
        ..scripted()
    };
    Engine::new(transport, &Settings::default()).expect("an engine over a script")
}

fn arrives<L: Level>(engine: &Engine<Scripted, L>, header: Header, bytes: &[u8]) {
    engine
        .state
        .lock()
        .transport
        .arriving
        .push_back((1, header, bytes.to_vec()));
}

/// A rank with one operation of every kind under way: two sends on offer, a synchronous send whose
/// message has left, and receives with and without wildcards.
struct Busy {
    engine: Engine<Scripted, Single>,
    requests: Vec<Request>,
    // Kept alive for the operations; the engine is dropped first.
    _buffers: Vec<Vec<u8>>,
}

fn busy() -> Busy {
    let engine = engine();
    let mut buffers: Vec<Vec<u8>> = (0..6).map(|_| vec![7_u8; 2000]).collect();
    let mut requests = Vec::new();
    let to = SendArgs::new(ProcId::new(1), 3, 0, 5);
    let patterns = [(Some(1), Some(5)), (None, Some(6)), (None, None)];
    let at: Vec<*mut u8> = buffers
        .iter_mut()
        .map(|buffer| buffer.as_mut_ptr())
        .collect();
    // SAFETY: the buffers have 2000 bytes each and outlive the engine, see `Busy`.
    unsafe {
        requests.push(engine.isend_contig(&to, at[0], 2000).unwrap());
        requests.push(engine.isend_contig(&to, at[1], 900).unwrap());
        requests.push(
            engine
                .isend_contig(&to.mode(SendMode::Synchronous), at[2], 8)
                .unwrap(),
        );
        for (i, (source, tag)) in patterns.into_iter().enumerate() {
            let from = Pattern {
                context: 3,
                source,
                tag,
            };
            requests.push(
                engine
                    .irecv_contig(&from, at[3 + i], 100 * (i + 1))
                    .unwrap(),
            );
        }
    }
    Busy {
        engine,
        requests,
        _buffers: buffers,
    }
}

/// Ranks that are given one name for their traces, without the rank in it, do not overwrite each
/// other's.
#[test]
fn ranks_trace_into_files_of_their_own() {
    let folder = std::env::temp_dir().join(format!("portolan-traces-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    let set = [("PORTOLAN_TRACE", folder.join("trace"))];
    let (settings, wrong) = Settings::inspect(set);
    assert!(wrong.is_empty(), "{wrong:?}");
    let ranks = crate::transport::memory::network(2).into_iter();
    let ranks = ranks.map(|rank| Engine::<_, Single>::new(rank, &settings).expect("an engine"));
    let ranks: Vec<_> = ranks.collect();
    for (rank, other) in ranks.iter().zip([1, 0]) {
        let to = SendArgs::new(ProcId::new(other), 3, 0, 5);
        rank.send_contig(&to, b"traced").expect("a small send");
    }
    drop(ranks); // This writes out what they have traced.
    for rank in 0..2 {
        let text = std::fs::read_to_string(folder.join(format!("trace.{rank}")));
        let text = text.expect("the trace of each rank");
        let own = format!("\"pid\":{rank},");
        let events: Vec<&str> = text.lines().skip(1).collect();
        assert!(
            !events.is_empty() && events.iter().all(|event| event.contains(&own)),
            "{text}"
        );
    }
    std::fs::remove_dir_all(folder).expect("removing the scratch folder");
}

#[test]
fn what_is_attached_to_a_complete_request_may_still_fail_it() {
    let engine = engine();
    let to = SendArgs::new(ProcId::new(1), 3, 0, 5);
    let byte = 7_u8;
    // SAFETY: the byte outlives the request, which is complete before this returns.
    let request = unsafe { engine.isend_contig(&to, &raw const byte, 1) }.unwrap();
    assert!(engine.is_complete(request), "it has left");
    let completion = Completion {
        keep: Box::new(()),
        then: Some(|_, status| Status {
            error: Some(ErrorKind::PeerMisbehaved),
            ..status
        }),
    };
    engine.attach(request, completion).unwrap();
    let outcome = engine.wait(request);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PeerMisbehaved);
    let again = engine.wait(request);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

/// Any header; half of the time with values that mean something to a busy engine.
fn headers(cookies: Vec<u32>) -> impl Strategy<Value = Header> {
    let word = |near: Vec<u32>| prop_oneof![any::<u32>(), prop::sample::select(near)];
    let small = || prop_oneof![any::<u8>(), 0_u8..13];
    (
        (small(), small(), small(), any::<u8>()),
        (word(vec![3]), word(vec![0, 1]), word(vec![5, 6])),
        (word(vec![0, 1]), word(cookies)),
    )
        .prop_map(
            |((kind, flags, rep, channel), (context, source, tag), (signature, cookie))| Header {
                kind,
                flags,
                rep,
                channel,
                context,
                source,
                tag,
                signature,
                cookie,
            },
        )
}

fn payloads(cookies: Vec<u32>) -> impl Strategy<Value = Vec<u8>> {
    // Bodies that look like those of offers and takes, and arbitrary bytes.
    let body = (prop::sample::select(cookies), 0_u64..3000, 0_u64..3000).prop_map(|(a, b, c)| {
        let mut bytes = u64::from(a).to_le_bytes().to_vec();
        bytes.extend(b.to_le_bytes());
        bytes.extend(c.to_le_bytes());
        bytes.resize(48, 0);
        bytes
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..1100), body]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever arrives, the engine neither panics nor writes outside of a buffer, and every
    /// request can still be queried, cancelled and given up.
    #[test]
    fn any_packets_are_survived(
        packets in {
            let busy = busy();
            let cookies: Vec<u32> = busy.requests.iter().map(|request| request.to_short()).collect();
            prop::collection::vec((headers(cookies.clone()), payloads(cookies)), 1..12)
        }
    ) {
        let busy = busy();
        for (header, bytes) in &packets {
            arrives(&busy.engine, *header, bytes);
        }
        for _ in 0..2 * packets.len() + 4 {
            busy.engine.device_check(Check::NonBlocking).unwrap();
        }
        let failed = busy.engine.failure_of(ProcId::new(1)).is_some();
        for &request in &busy.requests {
            busy.engine.cancel(request).unwrap();
            let outcome = busy.engine.test(request);
            // Once the peer is declared dead, no request is left waiting.
            prop_assert!(!failed || !matches!(outcome, Ok(None)));
        }
        prop_assert!(busy._buffers.iter().all(|buffer| buffer.len() == 2000));
    }
}

#[test]
fn a_peer_that_sends_nonsense_is_declared_failed() {
    let busy = busy();
    let nonsense = Header {
        kind: 200,
        ..Header::default()
    };
    arrives(&busy.engine, nonsense, &[]);
    busy.engine.device_check(Check::NonBlocking).unwrap();
    let error = busy.engine.wait(busy.requests[0]).unwrap_err();
    assert_eq!(
        (error.kind(), error.peer()),
        (ErrorKind::PeerFailed, Some(1))
    );
    assert!(
        error.to_string().contains("packet of no known kind"),
        "{error}"
    );
}

#[test]
fn a_peer_that_failed_before_the_engine_was_there_is_noticed() {
    let engine = engine_with(Some("it was in a hurry"));
    let mut buf = [0_u8; 8];
    // SAFETY: the buffer outlives the engine's use of it: the request ends below.
    let request = unsafe { engine.irecv_contig(&Pattern::any(0), buf.as_mut_ptr(), 8) }.unwrap();
    engine.device_check(Check::NonBlocking).unwrap();
    let error = engine.test(request).unwrap_err();
    assert_eq!(
        (error.kind(), error.peer()),
        (ErrorKind::PeerFailed, Some(1))
    );
}

#[test]
fn acknowledgements_of_others_messages_are_refused() {
    let busy = busy();
    let cookie = busy.requests[3].to_short(); // A receive, which nobody can acknowledge.
    let done = crate::transport::PacketKind::Done as u8;
    arrives(
        &busy.engine,
        Header {
            kind: done,
            cookie,
            ..Header::default()
        },
        &[],
    );
    busy.engine.device_check(Check::NonBlocking).unwrap();
    assert!(busy.engine.failure_of(ProcId::new(1)).is_some());
}

/// The first piece of a message of `total` bytes, or a later one.
fn piece(kind: crate::transport::PacketKind, tag: u32, total: u32) -> Header {
    Header {
        kind: kind as u8,
        context: 3,
        source: 1,
        tag,
        cookie: total,
        ..Header::default()
    }
}

#[test]
fn a_message_in_pieces_fails_with_its_sender() {
    let busy = busy();
    let first = crate::transport::PacketKind::First;
    arrives(&busy.engine, piece(first, 5, 90), &[1; 40]);
    busy.engine.device_check(Check::NonBlocking).unwrap();
    // The receive is matched, so it cannot be cancelled any more.
    busy.engine.cancel(busy.requests[3]).unwrap();
    assert!(busy.engine.test(busy.requests[3]).unwrap().is_none());
    busy.engine.state.lock().transport.failed = Some("it fell over".to_owned());
    let error = busy.engine.wait(busy.requests[3]).unwrap_err();
    assert_eq!(
        (error.kind(), error.peer()),
        (ErrorKind::PeerFailed, Some(1))
    );
    assert_eq!(busy._buffers[3][39..41], [1, 7], "what had come is there");
}

/// What the dead have sent is delivered, but a partial message binds no receive.
#[test]
fn a_message_that_breaks_off_behind_a_death_binds_no_receive() {
    use crate::transport::PacketKind::{First, Next};

    let engine = engine();
    let view = CommView {
        context: 3,
        contexts: 1,
        group: crate::Group::world(2),
        rank: 0,
    };
    engine.comm_init(None, &view).unwrap();
    let any = |tag| Pattern {
        context: 3,
        source: None,
        tag: Some(tag),
    };
    let mut bufs = [[0_u8; 100], [0; 100]];
    let receive = |tag, buf: &mut [u8; 100]| {
        // SAFETY: the buffers outlive the engine's use of them: both requests end below.
        unsafe { engine.irecv_contig(&any(tag), buf.as_mut_ptr(), 100) }.unwrap()
    };
    // Receives from any source are told of the death once; later ones wait for the living.
    let mut told = [0_u8; 8];
    // SAFETY: as above.
    let first = unsafe { engine.irecv_contig(&any(1), told.as_mut_ptr(), 8) }.unwrap();
    engine.state.lock().transport.failed = Some("it fell over".to_owned());
    let error = engine.wait(first).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed);
    let [whole, cut] = &mut bufs;
    let (whole, cut) = (receive(7, whole), receive(8, cut));
    arrives(&engine, piece(First, 7, 90), &[1; 40]);
    arrives(&engine, piece(Next, 7, 90), &[1; 50]);
    arrives(&engine, piece(First, 8, 90), &[2; 40]);
    for _ in 0..3 {
        engine.device_check(Check::NonBlocking).unwrap();
    }
    let status = engine.test(whole).unwrap().expect("a whole message");
    assert_eq!(status.bytes, 90);
    assert!(engine.test(cut).unwrap().is_none());
    engine.cancel(cut).unwrap();
    assert!(engine.test(cut).unwrap().expect("taken back").cancelled);
}

/// The form chosen before the peer said hold is chosen again if nothing has left.
#[test]
fn what_has_not_begun_is_held() {
    let engine = engine();
    let to = SendArgs::new(ProcId::new(1), 3, 0, 5);
    let bytes = [7_u8; 1200];
    let mut state = engine.state.lock();
    state.transport.full = true;
    let data = crate::engine::Data::Contig(crate::buffer::ContigBuf::from_bytes(&bytes));
    // SAFETY: the bytes outlive the engine's use of them: the test ends with both.
    let request = unsafe { state.start_waited_send(&to, data) }.unwrap();
    state.progress();
    state.transport.full = false;
    let hold = Header {
        kind: crate::transport::PacketKind::Hold as u8,
        cookie: 1,
        ..Header::default()
    };
    state.transport.arriving.push_back((1, hold, Vec::new()));
    state.progress();
    let kinds: Vec<u8> = state
        .transport
        .sent
        .iter()
        .map(|header| header.kind)
        .collect();
    assert_eq!(kinds, [crate::transport::PacketKind::Offer as u8]);
    assert_eq!(
        state.proto.table.state(request.index()),
        crate::request::State::Active
    );
}

/// If receivers cannot read messages in place, they are not asked; the length up to which that
/// holds follows the packet size.
#[test]
fn the_packet_size_governs_blocking_sends() {
    use crate::transport::PacketKind::{Eager, First, Next, Offer};

    let kinds = |packet_size: Option<usize>, len: usize| {
        let engine = engine();
        if let Some(bytes) = packet_size {
            engine.set_packet_size(bytes);
        }
        let to = SendArgs::new(ProcId::new(1), 3, 0, 5);
        let bytes = vec![7_u8; len];
        let mut state = engine.state.lock();
        let data = crate::engine::Data::Contig(crate::buffer::ContigBuf::from_bytes(&bytes));
        // SAFETY: the bytes outlive the engine's use of them: nothing runs after this.
        unsafe { state.start_waited_send(&to, data) }.unwrap();
        state.progress();
        let sent = state.transport.sent.iter();
        sent.map(|header| header.kind).collect::<Vec<u8>>()
    };
    assert_eq!(kinds(None, 512), [Eager as u8]);
    let pieces = [First, Next, Next, Next].map(|kind| kind as u8);
    assert_eq!(kinds(None, 1024), pieces);
    assert_eq!(kinds(None, 5000), [Offer as u8]);
    assert_eq!(kinds(Some(0), 100), [Offer as u8]);
    assert_eq!(kinds(Some(100), 400), [First as u8, Next as u8]);
}

#[test]
fn pieces_that_are_no_part_of_a_message_are_refused() {
    use crate::transport::PacketKind::{First, Next};

    let (begin, more) = ((piece(First, 5, 90), 40), |len| (piece(Next, 5, 90), len));
    let wrong: [&[(Header, usize)]; 6] = [
        &[more(10)],
        &[begin, begin],
        &[begin, more(51)],
        &[begin, more(0)],
        &[begin, more(50), more(1)],
        &[(piece(First, 99, 90), 91)],
    ];
    for packets in wrong {
        let busy = busy();
        for (header, len) in packets {
            arrives(&busy.engine, *header, &vec![1; *len]);
        }
        for _ in 0..2 {
            busy.engine.device_check(Check::NonBlocking).unwrap();
        }
        assert!(
            busy.engine.failure_of(ProcId::new(1)).is_some(),
            "{packets:?}"
        );
    }
}

#[test]
fn a_taken_offer_streams_what_was_asked_for() {
    let busy = busy();
    let cookie = busy.requests[0].to_short();
    let mut body = [0_u8; 24];
    body[..4].copy_from_slice(&77_u32.to_le_bytes());
    body[8..16].copy_from_slice(&500_u64.to_le_bytes());
    body[16..].copy_from_slice(&2000_u64.to_le_bytes());
    let take = crate::transport::PacketKind::Take as u8;
    arrives(
        &busy.engine,
        Header {
            kind: take,
            cookie,
            ..Header::default()
        },
        &body,
    );
    for _ in 0..3 {
        busy.engine.device_check(Check::NonBlocking).unwrap();
    }
    let sent = &busy.engine.state.lock().transport.sent;
    let data = crate::transport::PacketKind::Data as u8;
    let pieces: Vec<_> = sent.iter().filter(|header| header.kind == data).collect();
    assert_eq!(pieces.len(), 4, "1500 bytes in pieces of a quarter");
    assert!(pieces.iter().all(|header| header.cookie == 77));
    assert!(
        busy.engine.shared.words.state_of(busy.requests[0])
            == Some(crate::request::State::Complete)
    );
}

/// A peer that takes packets as fast as they leave never makes the transport full again. The
/// waiting sends leave in turns all the same, so that the peer's hold is heard between them.
#[test]
fn queued_sends_hear_that_they_are_to_hold() {
    const MANY: usize = 1000;
    let engine = engine();
    let to = SendArgs::new(ProcId::new(1), 3, 0, 5);
    let byte = 7_u8;
    engine.state.lock().transport.full = true;
    for _ in 0..MANY {
        // SAFETY: the byte outlives the engine's use of it: the test ends with both.
        let request = unsafe { engine.isend_contig(&to, &raw const byte, 1) };
        request.expect("a send that waits");
    }
    engine.state.lock().transport.full = false;
    engine.device_check(Check::NonBlocking).unwrap();
    let hold = Header {
        kind: crate::transport::PacketKind::Hold as u8,
        cookie: 1,
        ..Header::default()
    };
    arrives(&engine, hold, &[]);
    for _ in 0..MANY {
        engine.device_check(Check::NonBlocking).unwrap();
    }
    let sent = &engine.state.lock().transport.sent;
    let of_kind = |kind| {
        sent.iter()
            .filter(|header| header.kind == kind as u8)
            .count()
    };
    let eager = of_kind(crate::transport::PacketKind::Eager);
    assert!(
        eager < MANY / 4,
        "{eager} of {MANY} left before the word was heard"
    );
    assert_eq!(of_kind(crate::transport::PacketKind::Offer), MANY - eager);
}

/// If nothing is set, the transport's eager limit holds; a setting may lower it, but never raise
/// it.
#[test]
fn where_nothing_is_set_the_transport_says_what_is_eager() {
    for (set, eager) in [(None, 512), (Some("100"), 100), (Some("16k"), 512)] {
        let mut settings = Settings::default();
        if let Some(set) = set {
            settings.set("EAGER_MAX", set).unwrap();
        }
        let engine: Engine<_, Single> = Engine::new(scripted(), &settings).unwrap();
        assert_eq!(engine.attributes().eager_max, eager, "{set:?}");
    }
    let options = crate::transport::memory::Options {
        limits: Limits {
            short: 192,
            bulk: 64 << 10,
            eager: 32 << 10,
            piece: 2 << 10,
            bundle: 1 << 10,
            grows: 0,
        },
        ..Default::default()
    };
    let transport = crate::transport::memory::network_with(1, options).pop();
    let engine: Engine<_, Single> =
        Engine::new(transport.expect("one rank"), &Settings::default()).unwrap();
    assert_eq!(
        engine.attributes().eager_max,
        32 << 10,
        "beyond the default"
    );
}

#[test]
fn nothing_is_started_after_the_end() {
    let mut alone = crate::transport::memory::network(1);
    let transport = alone.pop().expect("one rank");
    let engine: Engine<_, Single> = Engine::new(transport, &Settings::default()).unwrap();
    engine.end().unwrap();
    let to = SendArgs::new(ProcId::new(0), 0, 0, 0);
    let from = Pattern::any(0);
    let kinds = [
        engine.send_contig(&to, b"x").unwrap_err().kind(),
        engine.recv_contig(&from, &mut [0]).unwrap_err().kind(),
        engine.iprobe(&from).unwrap_err().kind(),
        engine.improbe_unchecked(&from).unwrap_err().kind(),
        engine
            .flush(ProcId::new(0))
            .err()
            .map_or(ErrorKind::Finalized, |e| e.kind()),
        engine.end().unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Finalized; 6]);
}
