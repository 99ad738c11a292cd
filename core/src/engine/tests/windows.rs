//! Windows of long messages: many are on offer at once.

use super::{Scripted, arrives, busy, piece, scripted};
use crate::config::Settings;
use crate::device::{Check, Device, SendArgs, Turn};
use crate::engine::Engine;
use crate::engine::long::unasked::STREAMED;
use crate::engine::long::ways::Way;
use crate::level::{Single, StateLock};
use crate::matching::Pattern;
use crate::transport::packet::flags;
use crate::transport::{Header, PacketKind, Pulls};
use crate::{Adi, ProcId, Request};

/// A `Take`, by which a receiver asks for bytes of an offer.
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

/// An offer of `len` bytes that may be pulled.
pub(super) fn offer(tag: u32, len: usize) -> (Header, [u8; 48]) {
    let mut body = [0; 48];
    body[..8].copy_from_slice(&(len as u64).to_le_bytes());
    let header = Header {
        flags: flags::EXPOSED,
        ..piece(PacketKind::Offer, tag, 9)
    };
    (header, body)
}

/// A rank that can pull, with `count` receives into the same buffer.
pub(super) fn pulling(buffer: &mut [u8], count: u32) -> (Engine<Scripted, Single>, Vec<Request>) {
    let mut transport = scripted();
    transport.pulled = Some(Vec::new());
    transport.ranks = 3;
    let engine = Engine::new(transport, &Settings::default()).unwrap();
    let from = |tag| Pattern {
        context: 3,
        source: Some(1),
        tag: Some(tag),
    };
    let (at, len) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the buffer outlives the engine in the tests below; nobody reads the overlapping data.
    let receive = |tag| unsafe { engine.irecv_contig(&from(tag), at, len) }.unwrap();
    let requests = (0..count).map(receive).collect();
    (engine, requests)
}

/// A sender that offers again as soon as it has been served does not keep others from being served.
#[test]
fn new_offers_do_not_overtake_what_is_being_pulled() {
    let mut buffer = vec![0; 3 << 20];
    let (engine, requests) = pulling(&mut buffer, 20);
    for tag in 0..10 {
        let (header, body) = offer(tag, if tag == 0 { 3 << 20 } else { 5000 });
        arrives(&engine, header, &body);
        engine.state.lock().progress();
    }
    assert!(engine.test(requests[0]).unwrap().is_some());
    let pulled = engine.state.lock().transport.pulled.clone().unwrap();
    assert_eq!(pulled[..4], [1 << 20, 1 << 20, 1 << 20, 5000]);
}

/// Two messages of 512 KiB from an absent sender, for which streams are known to be the best way.
fn from_an_absent_sender(buffer: &mut [u8]) -> (Engine<Scripted, Single>, Vec<Request>) {
    let (engine, requests) = pulling(buffer, 2);
    {
        let mut state = engine.state.lock();
        state.transport.pulls = Pulls::Absent;
        let ways = &mut state.proto.ways;
        for _ in 0..100 {
            ways.begin(1, 512 << 10, false, 0, |way| way == Way::Stream);
            ways.end(1);
        }
    }
    for tag in 0..2 {
        let (header, body) = offer(tag, 512 << 10);
        arrives(&engine, header, &body);
    }
    (engine, requests)
}

/// If a sender announces a window and only then begins to listen, little of it is pulled.
#[test]
fn what_is_pulled_from_an_absent_sender_is_streamed_when_it_is_back() {
    let mut buffer = vec![0; 512 << 10];
    let (engine, _) = from_an_absent_sender(&mut buffer);
    engine.device_check(Check::NonBlocking).unwrap();
    let mut state = engine.state.lock();
    assert_eq!(state.transport.pulled, Some(vec![64 << 10]));
    assert!(state.transport.sent.is_empty());
    state.transport.pulls = Pulls::Measured;
    let _ = (0..4).map(|_| state.progress()).sum::<usize>();
    let takes = |header: &&Header| header.kind == PacketKind::Take as u8;
    assert_eq!(state.transport.sent.iter().filter(takes).count(), 2);
    let pulled: usize = state.transport.pulled.iter().flatten().sum();
    assert!(pulled <= 256 << 10, "{pulled} bytes");
}

/// The same for a sender that looks in passing, as a rank with a collective operation under way
/// does between parts of a computation. One look alone is that of the call that began the
/// operation.
#[test]
fn what_is_pulled_from_an_absent_sender_is_streamed_when_it_looks_now_and_then() {
    let mut buffer = vec![0; 512 << 10];
    let (engine, _) = from_an_absent_sender(&mut buffer);
    engine.device_check(Check::NonBlocking).unwrap();
    let mut state = engine.state.lock();
    state.transport.looks = 1;
    state.progress();
    let turns = [64 << 10, 192 << 10];
    assert_eq!(state.transport.pulled.as_deref(), Some(&turns[..]));
    assert!(state.transport.sent.is_empty());
    state.transport.looks = 2;
    let _ = (0..2).map(|_| state.progress()).sum::<usize>();
    let kinds = state.transport.sent.iter().map(|header| header.kind);
    assert!(kinds.eq([PacketKind::Take as u8]));
    // The second message begins; its sender's looks are counted anew from there.
    let turns = [64 << 10, 192 << 10, 64 << 10, 192 << 10];
    let pulled = state.transport.pulled.as_deref().unwrap();
    assert!(turns.starts_with(pulled), "{pulled:?}");
}

/// A rank announces its looks while it has a long message on offer and a hook is awake.
#[test]
fn who_has_an_operation_under_way_says_that_it_looks() {
    let mut buffer = vec![0; 512 << 10];
    let (engine, _) = pulling(&mut buffer, 1);
    engine.state.lock().transport.exposes = true;
    let look = || {
        let mut state = engine.state.lock();
        state.progress();
        state.transport.looked
    };
    let to = SendArgs::new(ProcId::new(1), 3, 0, 5);
    // SAFETY: the buffer outlives the engine.
    unsafe { engine.isend_contig(&to, buffer.as_ptr(), 512 << 10) }.unwrap();
    assert_eq!((look(), look()), (0, 0));
    let hook = engine.register_hook(Box::new(|_| Turn::Idle));
    engine.wake_hook(hook);
    assert_eq!((look(), look()), (1, 2));
    // Meanwhile messages from the other side are read in few turns, whether their sender looks or
    // not.
    let mut state = engine.state.lock();
    (state.transport.pulls, state.transport.looks) = (Pulls::Absent, 5);
    drop(state);
    let (header, body) = offer(0, 512 << 10);
    arrives(&engine, header, &body);
    look();
    let pulled = engine.state.lock().transport.pulled.clone();
    assert_eq!(pulled, Some(vec![512 << 10]));
}

/// A sender that does not come back is served all the same, one message after the other.
#[test]
fn what_an_absent_sender_has_announced_is_pulled() {
    let mut buffer = vec![0; 512 << 10];
    let (engine, requests) = from_an_absent_sender(&mut buffer);
    for request in requests {
        assert_eq!(engine.wait(request).unwrap().bytes, 512 << 10);
    }
    let turns = [64 << 10, 192 << 10, 256 << 10].repeat(2);
    assert_eq!(engine.state.lock().transport.pulled, Some(turns));
}

/// Senders that keep offering do not keep one that sleeps in a call from being served.
#[test]
fn an_absent_sender_is_served_while_others_go_on_offering() {
    let mut buffer = vec![0; 2 << 20];
    let (engine, requests) = pulling(&mut buffer, 20);
    engine.state.lock().transport.sleeps = true;
    for tag in 1..20 {
        let (header, body) = offer(tag, 2 << 20);
        arrives(&engine, header, &body);
        if tag == 1 {
            let (mut header, body) = offer(0, 512 << 10);
            header.flags |= flags::WAITED;
            arrives(&engine, header, &body);
        }
        engine.state.lock().progress();
    }
    let mut state = engine.state.lock();
    let now = state.proto.table.state(requests[0].index());
    assert_eq!(now, crate::request::State::Complete);
    assert!(!state.proto.pulls.is_empty(), "the others are not served");
    state.progress();
}

/// A sender that is back is served in the step that notices it, whichever others are still absent.
#[test]
fn who_is_back_is_not_behind_who_is_not() {
    let mut buffer = vec![0; 8 << 20];
    let (engine, _) = pulling(&mut buffer, 4);
    {
        let transport = &mut engine.state.lock().transport;
        transport.ranks = 4;
        transport.absent = vec![1, 2, 3];
    }
    let mut state = engine.state.lock();
    state.proto.peers.resize_with(4, Default::default);
    for (tag, peer) in [1, 2, 3, 3].into_iter().enumerate() {
        let (header, body) = offer(tag as u32, 8 << 20);
        let arriving = &mut state.transport.arriving;
        arriving.push_back((peer, header, body.to_vec()));
    }
    state.progress();
    assert_eq!(state.transport.pulled, Some(vec![64 << 10]), "the first");
    state.transport.absent = vec![1, 2];
    state.transport.pulls = Pulls::Never;
    state.progress();
    let takes = |header: &&Header| header.kind == PacketKind::Take as u8;
    assert_eq!(state.transport.sent.iter().filter(takes).count(), 2);
    assert_eq!(state.transport.pulled.as_ref().map(Vec::len), Some(2));
}

/// A receive that finds its message already announced does not put off the next receive's copy. But
/// calls that only begin receives do not copy a whole window: their caller may be about to send
/// one.
#[test]
fn receives_that_find_offers_pull_at_once() {
    for (len, at_once) in [(5000, 4), (512 << 10, 2), (1 << 20, 1)] {
        let mut buffer = vec![0; len];
        let (engine, _) = pulling(&mut buffer, 0);
        for tag in 0..4 {
            let (header, body) = offer(tag, len);
            arrives(&engine, header, &body);
        }
        engine.device_check(Check::NonBlocking).unwrap();
        let at = buffer.as_mut_ptr();
        let receive = |tag| {
            let from = Pattern {
                context: 3,
                source: Some(1),
                tag: Some(tag),
            };
            // SAFETY: the buffer outlives the engine.
            unsafe { engine.irecv_contig(&from, at, len) }.unwrap()
        };
        let requests = [0, 1, 2, 3].map(&receive);
        let pulled = || {
            let state = engine.state.lock();
            let lens = state.transport.pulled.as_ref();
            lens.map_or(0, Vec::len)
        };
        assert_eq!(pulled(), at_once, "messages of {len} bytes");
        for more in 1..=4 - at_once {
            engine.device_check(Check::NonBlocking).unwrap();
            assert_eq!(pulled(), at_once + more, "one in each step");
        }
        for request in requests {
            assert!(engine.test(request).unwrap().is_some());
        }
        // The next receives copy at once again.
        let (header, body) = offer(0, len);
        arrives(&engine, header, &body);
        engine.device_check(Check::NonBlocking).unwrap();
        receive(0);
        assert_eq!(pulled(), 5);
    }
}

/// Behind a window of offers, a sender may send what this rank's own messages wait for.
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

/// If one stream finds no room, the next stream to the same peer is not tried.
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

/// A rank amid windows of messages of middle length to two peers. The peers have taken such
/// messages as streams before, and their memory is full until this rank takes in what has arrived.
/// `both`: long messages have come from them before. `posted`: a receive is waiting.
fn amid_windows(buffer: &mut [u8], both: bool, posted: bool) -> Engine<Scripted, Single> {
    let (engine, _) = pulling(buffer, u32::from(posted));
    let mut state = engine.state.lock();
    state.transport.drains = true;
    for peer in [1, 2] {
        for _ in 0..STREAMED {
            state.proto.offer_was_taken(peer, 1000, false, true);
        }
        if both {
            state.proto.unasked.comes(peer);
        }
        for _ in 0..3 {
            let polls = engine.shared.polls();
            state.proto.unasked.in_window(peer, 1, polls);
        }
    }
    drop(state);
    engine
}

/// Starts the next message while the receiver's memory is full. Returns the kinds of the packets
/// that have left.
fn into_full_memory(engine: &Engine<Scripted, Single>, peer: u32) -> Vec<u8> {
    engine.state.lock().transport.full = true;
    let to = SendArgs::new(ProcId::new(peer), 3, 0, 5);
    let bytes = [1_u8; 1000];
    // SAFETY: an announced message is never requested here, so nobody reads the bytes later.
    unsafe { engine.isend_contig(&to, bytes.as_ptr(), bytes.len()) }.unwrap();
    let sent = std::mem::take(&mut engine.state.lock().transport.sent);
    sent.iter().map(|header| header.kind).collect()
}

/// The packets of a message of two pieces: in windows, pieces are twice as long as elsewhere.
const PIECES: [u8; 2] = [PacketKind::First as u8, PacketKind::Next as u8];

/// A rank that finds no room in a window that goes both ways takes in what has arrived, as the
/// other rank does, provided that receives wait for it.
#[test]
fn windows_both_ways_make_room_for_each_other() {
    let cases = [
        (true, true, &PIECES[..]),
        (true, false, &[]),
        (false, true, &[]),
    ];
    for (both, posted, expected) in cases {
        let mut buffer = vec![0; 8];
        let engine = amid_windows(&mut buffer, both, posted);
        arrives(&engine, piece(PacketKind::Eager, 0, 0), &[7; 8]);
        assert_eq!(into_full_memory(&engine, 1), expected, "{both} {posted}");
    }
}

/// A rank that has found that pulls are better both ways does not send windows unasked: the peer
/// may then pull, too.
#[test]
fn windows_are_announced_where_pulls_are_better_both_ways() {
    for both in [true, false] {
        let mut buffer = vec![0; 8];
        let engine = amid_windows(&mut buffer, both, true);
        {
            let mut state = engine.state.lock();
            state.transport.drains = false;
            for _ in 0..100 {
                let ways = &mut state.proto.ways;
                ways.begin(1, 1000, true, 0, |way| way == Way::Pull);
                ways.end(1);
            }
        }
        for peer in [1, 2] {
            let to = SendArgs::new(ProcId::new(peer), 3, 0, 5);
            let bytes = [1_u8; 1000];
            // SAFETY: an announced message is never requested here, so nobody reads the bytes
            // later.
            unsafe { engine.isend_contig(&to, bytes.as_ptr(), bytes.len()) }.unwrap();
            let sent = std::mem::take(&mut engine.state.lock().transport.sent);
            let kinds: Vec<u8> = sent.iter().map(|header| header.kind).collect();
            match both && peer == 1 {
                true => assert_eq!(kinds, [PacketKind::Offer as u8]),
                false => assert_eq!(kinds, PIECES, "to {peer}, both ways: {both}"),
            }
        }
    }
}

/// A search for room to one peer ends neither the windows to other peers nor the one to this peer.
#[test]
fn windows_to_two_peers_go_on_behind_looks_for_room() {
    let mut buffer = vec![0; 8];
    let engine = amid_windows(&mut buffer, true, true);
    for (tag, peer) in [1, 2, 1, 2].into_iter().enumerate() {
        // Messages that the waiting receive does not match.
        arrives(&engine, piece(PacketKind::Eager, 7 + tag as u32, 0), &[7]);
        assert_eq!(into_full_memory(&engine, peer), PIECES, "{tag}");
    }
}

/// A call that searches for room asks for announced messages that may be streamed, but neither
/// pulls nor lets hooks run.
#[test]
fn looks_for_room_copy_nothing_but_packets() {
    for (pulls, asks) in [(Pulls::Whole, false), (Pulls::Never, true)] {
        let mut buffer = vec![0; 2 << 20];
        let engine = amid_windows(&mut buffer, true, true);
        engine.register_hook(Box::new(|_| Turn::Idle));
        {
            let mut state = engine.state.lock();
            state.proto.exposed = 1;
            state.transport.pulls = pulls;
        }
        // The receive for the offer is not the last one.
        let from = Pattern {
            context: 3,
            source: Some(1),
            tag: Some(1),
        };
        // SAFETY: the buffer outlives the engine, and nothing is received into it here.
        unsafe { engine.irecv_contig(&from, buffer.as_mut_ptr(), 8) }.unwrap();
        let (header, body) = offer(0, 2 << 20);
        arrives(&engine, header, &body);
        let polls = engine.shared.polls();
        let mut sent = into_full_memory(&engine, 1);
        assert_eq!(sent.first() == Some(&(PacketKind::Take as u8)), asks);
        sent.retain(|&kind| kind != PacketKind::Take as u8);
        assert_eq!(sent, PIECES);
        let mut state = engine.state.lock();
        assert_eq!(state.transport.pulled.as_deref(), Some(&[][..]));
        assert_eq!((state.transport.looked, engine.shared.polls()), (0, polls));
        state.progress();
        let turns: &[usize] = if asks { &[] } else { &[1 << 20] };
        assert_eq!(state.transport.pulled.as_deref(), Some(turns));
        assert_eq!(state.transport.looked, 1);
        state.proto.exposed = 0;
    }
}
