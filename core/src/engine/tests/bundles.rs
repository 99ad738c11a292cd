//! Bursts of short sends over a transport that wants them in bundles.

use super::*;
use crate::buffer::{MemoryKind, TypedBuf};
use crate::engine::short::outgoing::Peer;
use crate::level::Multiple;
use crate::transport::PacketKind;
use portolan_datatype::Layout;

/// Sends of a burst that leave at once.
const AT_ONCE: usize = 16;
/// Longest bundle.
const BUNDLE: usize = 1000;

/// The data of the messages: message `tag` takes its bytes from entry `tag`, all of that value.
static BYTES: [[u8; 200]; 256] = {
    let mut bytes = [[0; 200]; 256];
    let mut at = 0;
    while at < 256 {
        bytes[at] = [at as u8; 200];
        at += 1;
    }
    bytes
};

fn bundling() -> Engine<Scripted, Single> {
    bundling_with(&Settings::default())
}

fn bundling_with(settings: &Settings) -> Engine<Scripted, Single> {
    let transport = Scripted {
        bundle: BUNDLE,
        ..scripted()
    };
    Engine::new(transport, settings).expect("an engine over a script")
}

fn start(engine: &Engine<Scripted, Single>, mode: SendMode, tag: u32, len: usize) -> Request {
    let to = SendArgs::new(ProcId::new(1), 3, 0, tag).mode(mode);
    // SAFETY: the bytes are there for ever.
    unsafe { engine.isend_contig(&to, BYTES[tag as usize].as_ptr(), len) }.expect("a send")
}

/// A burst of sends with these tags; each has as many bytes as its tag says.
fn burst(engine: &Engine<Scripted, Single>, tags: std::ops::Range<u32>) -> Vec<Request> {
    tags.map(|tag| start(engine, SendMode::Standard, tag, tag as usize))
        .collect()
}

fn kinds(engine: &Engine<Scripted, Single>) -> Vec<PacketKind> {
    let sent = engine.state.lock().transport.sent.clone();
    let kind = |header: Header| PacketKind::from_wire(header.kind).expect("a kind");
    sent.into_iter().map(kind).collect()
}

fn progress(engine: &Engine<Scripted, Single>) {
    engine.state.lock().progress();
}

/// Receives all messages from rank 0 that have arrived; returns their tags, in order.
fn receive_all(engine: &Engine<Scripted, Single>) -> Vec<u32> {
    let mut tags = Vec::new();
    let from = Pattern {
        context: 3,
        source: Some(0),
        tag: None,
    };
    while engine.iprobe(&from).expect("a probe").is_some() {
        let mut buffer = [0_u8; 200];
        let status = engine.recv_contig(&from, &mut buffer).expect("a message");
        let len = status.bytes as usize;
        assert_eq!(buffer[..len], BYTES[status.tag as usize][..len]);
        tags.push(status.tag);
    }
    tags
}

/// The tags of all messages that have left, in the order in which another engine gets them.
fn delivered(engine: &Engine<Scripted, Single>) -> Vec<u32> {
    let receiver = bundling();
    {
        let state = engine.state.lock();
        let sent = &state.transport;
        for (header, payload) in sent.sent.iter().zip(&sent.payloads) {
            arrives(&receiver, *header, payload);
        }
    }
    receive_all(&receiver)
}

#[test]
fn a_burst_leaves_at_once_to_a_length_and_in_bundles_behind_it() {
    let engine = bundling();
    let requests = burst(&engine, 0..30);
    assert_eq!(kinds(&engine), [PacketKind::Eager; AT_ONCE]);
    progress(&engine);
    let sent = kinds(&engine);
    assert_eq!(sent[AT_ONCE..], [PacketKind::Bundle], "14 messages in one");
    for request in requests {
        assert_eq!(engine.wait(request).unwrap(), Status::EMPTY);
    }
    assert_eq!(delivered(&engine), (0..30).collect::<Vec<_>>());
    let counters = engine.state.lock().proto.counters;
    assert_eq!((counters.eager_sent, counters.bundles_sent), (30, 1));
    assert_eq!(counters.bytes_sent, (0..30).sum::<u64>());
}

#[test]
fn whoever_makes_progress_in_between_has_no_burst() {
    let engine = bundling();
    for tag in 0..3 * AT_ONCE as u32 {
        start(&engine, SendMode::Standard, tag, 8);
        if tag % 16 == 15 {
            progress(&engine);
        }
    }
    assert_eq!(kinds(&engine), [PacketKind::Eager; 3 * AT_ONCE]);
}

/// A rank that does nothing but send still sends bundles, and no message waits for more than 64
/// others.
#[test]
fn a_burst_without_an_end_leaves_as_it_goes() {
    let engine = bundling();
    for tag in 0..200 {
        start(&engine, SendMode::Standard, tag, 8);
    }
    let left = delivered(&engine);
    assert_eq!(left[..], (0..200).collect::<Vec<_>>()[..left.len()]);
    assert!(left.len() >= 200 - 64, "{} have left", left.len());
    assert!(kinds(&engine).len() < 80, "{:?}", kinds(&engine));
}

/// Equal headers are sent once, different ones each time; a full bundle is followed by the next
/// one.
#[test]
fn messages_of_all_lengths_and_headers_come_as_they_were() {
    let engine = bundling();
    let lens = |tag: u32| match tag % 5 {
        0 => 0,
        1 => 8,
        2 => 192,
        3 => 1,
        _ => 31,
    };
    let order = [1, 1, 1, 2, 2, 9, 0, 5, 5, 4, 7, 7, 2, 1, 3, 3];
    let tags: Vec<u32> = order.into_iter().cycle().take(60).collect();
    for &tag in &tags {
        start(&engine, SendMode::Standard, tag, lens(tag));
    }
    progress(&engine);
    assert_eq!(delivered(&engine), tags);
    let state = engine.state.lock();
    let longest = state.transport.payloads.iter().map(Vec::len).max();
    assert!(longest.is_some_and(|longest| longest > BUNDLE / 2 && longest <= BUNDLE));
    assert!(state.proto.counters.bundles_sent > 1);
}

#[test]
fn what_is_started_behind_a_burst_does_not_overtake_it() {
    let engine = bundling();
    burst(&engine, 0..20);
    // A message that is too long for a bundle, one that waits for its receiver, and a call that
    // waits.
    start(&engine, SendMode::Standard, 20, 200);
    start(&engine, SendMode::Synchronous, 21, 8);
    let to = SendArgs::new(ProcId::new(1), 3, 0, 22);
    engine.send_contig(&to, &BYTES[22][..8]).unwrap();
    assert_eq!(delivered(&engine), (0..23).collect::<Vec<_>>());
}

#[test]
fn a_burst_to_this_rank_itself_has_nothing_to_wait_for() {
    let engine = bundling();
    for tag in 0..40 {
        let to = SendArgs::new(ProcId::new(0), 3, 0, tag);
        // SAFETY: the bytes are there for ever.
        unsafe { engine.isend_contig(&to, BYTES[tag as usize].as_ptr(), 8) }.expect("a send");
    }
    assert_eq!(receive_all(&engine), (0..40).collect::<Vec<_>>());
}

#[test]
fn what_waits_for_a_bundle_can_be_cancelled_and_does_not_leave() {
    let engine = bundling();
    let requests = burst(&engine, 0..30);
    for &cancelled in &requests[20..23] {
        engine.cancel(cancelled).unwrap();
        let status = engine.test(cancelled).unwrap();
        assert!(status.expect("taken back").cancelled);
    }
    progress(&engine);
    let expected: Vec<u32> = (0..20).chain(23..30).collect();
    assert_eq!(delivered(&engine), expected);
}

#[test]
fn a_bundle_that_finds_no_room_is_tried_again() {
    let engine = bundling();
    let requests = burst(&engine, 0..30);
    engine.state.lock().transport.refuses = 3;
    for _ in 0..3 {
        progress(&engine);
        assert_eq!(kinds(&engine).len(), AT_ONCE);
    }
    for request in requests {
        engine.wait(request).unwrap();
    }
    assert_eq!(kinds(&engine)[AT_ONCE..], [PacketKind::Bundle]);
    assert_eq!(delivered(&engine), (0..30).collect::<Vec<_>>());
}

/// A thread that starts a burst may make no progress for long. A sleeping thread makes it instead,
/// and is woken for that.
#[test]
fn who_sleeps_is_woken_for_what_waits() {
    for (burst, rings) in [(AT_ONCE, 0), (AT_ONCE + 1, 1), (AT_ONCE + 9, 1)] {
        let bell = Arc::<NoBell>::default();
        let transport = Scripted {
            bundle: BUNDLE,
            has_bell: true,
            bell: Arc::clone(&bell),
            ..scripted()
        };
        let engine =
            Engine::<_, Multiple>::new(transport, &Settings::default()).expect("an engine");
        {
            // As a thread that goes to sleep does.
            let _state = engine.state.lock();
            engine.shared.add_sleeper();
        }
        for tag in 0..burst as u32 {
            let to = SendArgs::new(ProcId::new(1), 3, 0, tag);
            // SAFETY: the bytes are there for ever.
            unsafe { engine.isend_contig(&to, BYTES[0].as_ptr(), 8) }.expect("a send");
        }
        assert_eq!(bell.word.load(Ordering::Relaxed), rings, "{burst} sends");
        let _state = engine.state.lock();
        engine.shared.remove_sleeper();
    }
}

/// A peer that has no memory for unexpected messages gets an offer for each message.
#[test]
fn who_holds_gets_no_bundle() {
    let engine = bundling();
    burst(&engine, 0..30);
    engine.state.lock().proto.peers[1].flags |= Peer::HOLD;
    progress(&engine);
    assert_eq!(kinds(&engine)[AT_ONCE..], [PacketKind::Offer; 14]);
}

#[test]
fn what_waits_for_a_bundle_fails_with_its_receiver() {
    let engine = bundling();
    let requests = burst(&engine, 0..30);
    engine.state.lock().transport.gone = true;
    engine.state.lock().transport.failed = Some("the script says so".to_owned());
    let failed = |request| {
        engine
            .wait(request)
            .is_err_and(|e| e.kind() == ErrorKind::PeerFailed)
    };
    let (left, waiting) = requests.split_at(AT_ONCE);
    assert!(left.iter().all(|&request| engine.wait(request).is_ok()));
    assert!(waiting.iter().all(|&request| failed(request)));
}

#[test]
fn a_persistent_send_is_one_of_a_burst() {
    let engine = bundling();
    let byte = Layout::of::<u8>();
    let requests: Vec<Request> = (0..30)
        .map(|tag| {
            let to = SendArgs::new(ProcId::new(1), 3, 0, tag);
            let bytes = &BYTES[tag as usize];
            let buf = TypedBuf {
                ptr: bytes.as_ptr().cast_mut(),
                count: 8,
                layout: &byte,
                memory: MemoryKind::Host,
            };
            // SAFETY: the bytes are there for ever.
            unsafe { engine.send_init_unchecked(&to, buf) }.expect("a request")
        })
        .collect();
    for round in 1..3 {
        for &request in &requests {
            engine.start(request).unwrap();
        }
        for &request in &requests {
            engine.wait(request).unwrap();
        }
        assert_eq!(engine.state.lock().proto.counters.bundles_sent, round);
    }
    let twice: Vec<u32> = (0..30).chain(0..30).collect();
    assert_eq!(delivered(&engine), twice);
}

#[test]
fn who_wants_none_has_none() {
    let mut settings = Settings::default();
    settings.set("BUNDLE", "off").unwrap();
    let engine = bundling_with(&settings);
    burst(&engine, 0..30);
    assert_eq!(kinds(&engine), [PacketKind::Eager; 30]);
}

/// If a peer sends something invalid as a bundle, the valid messages at its front are delivered,
/// and the misbehaviour is reported.
#[test]
fn bundles_that_are_none_are_misbehaviour() {
    let sender = bundling();
    burst(&sender, 0..24);
    progress(&sender);
    let (header, good) = {
        let state = sender.state.lock();
        let last = state.transport.sent.len() - 1;
        (
            state.transport.sent[last],
            state.transport.payloads[last].clone(),
        )
    };
    let (first, front) = (AT_ONCE as u32, 4 + size_of::<Header>());
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    let of_no_kind = with(4, &[PacketKind::Offer as u8]);
    let too_long = with(0, &0x7fff_ffff_u32.to_le_bytes());
    let without_header = with(0, &(16_u32 | 1 << 31).to_le_bytes());
    let cut = |by: usize| good[..good.len() - by].to_vec();
    let cases = [
        ("empty", Vec::new(), 0),
        ("half a length", vec![1, 2], 0),
        ("half a header", good[..front - 1].to_vec(), 0),
        ("no such kind", of_no_kind, 0),
        ("longer than it is", too_long, 0),
        ("the header of none before", without_header, 0),
        ("the last cut", cut(1), 7),
        ("the last without data", cut(23), 7),
    ];
    for (what, bytes, believed) in cases {
        let receiver = bundling();
        arrives(&receiver, header, &bytes);
        assert_eq!(
            receive_all(&receiver),
            (first..first + believed).collect::<Vec<_>>(),
            "{what}"
        );
        progress(&receiver);
        let state = receiver.state.lock();
        let failed = state.transport.failed.as_deref().unwrap_or_default();
        assert!(
            failed.contains("a bundle of messages that is none"),
            "{what}: {failed}"
        );
    }
}
