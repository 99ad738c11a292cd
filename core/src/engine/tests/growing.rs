//! Packets that arrive while their senders still write them.

use super::{arrives, engine};
use crate::config::Settings;
use crate::device::{Check, Device, SendArgs};
use crate::engine::Engine;
use crate::level::{Single, StateLock};
use crate::matching::Pattern;
use crate::transport::memory::{self, InMemory, Options};
use crate::transport::{Destination, Header, Limits, PacketKind, Payload, TransportCaps};
use crate::{Adi, ErrorKind, ProcId, Request};

/// Longest eager message.
const EAGER: usize = 1 << 10;

/// Two ranks between which packets grow, and go unasked.
fn pair() -> [Engine<InMemory, Single>; 2] {
    let all = Options::default();
    let options = Options {
        limits: Limits {
            eager: EAGER,
            grows: all.limits.bulk,
            ..all.limits
        },
        caps: all.caps - TransportCaps::PULL,
        ..all
    };
    let engine = |transport| Engine::new(transport, &Settings::default()).unwrap();
    let mut ranks = memory::network_with(2, options).into_iter().map(engine);
    [(); 2].map(|()| ranks.next().unwrap())
}

fn from_zero() -> Pattern {
    Pattern {
        context: 0,
        source: Some(0),
        tag: Some(7),
    }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

fn send(engine: &Engine<InMemory, Single>, bytes: &[u8]) {
    let to = SendArgs::new(ProcId::new(1), 0, 0, 7);
    engine.send_contig(&to, bytes).unwrap();
}

/// Every third packet stops in the middle: then the receive becomes an ordinary one.
#[test]
fn a_receive_in_hand_takes_a_packet_as_it_comes() {
    let [sender, receiver] = pair();
    let (mut total, mut count) = (0, 0);
    for seed in 0..6 {
        for len in [300, EAGER, EAGER + 1, 8000] {
            let sent = bytes(len, seed);
            send(&sender, &sent);
            let mut got = vec![0; len + seed];
            let status = receiver.recv_contig(&from_zero(), &mut got).unwrap();
            assert_eq!(
                (status.bytes, status.source, status.tag),
                (len as u64, 0, 7)
            );
            assert!(got[..len] == sent, "{len} bytes, seed {seed}");
            assert!(got[len..].iter().all(|&byte| byte == 0));
            (total, count) = (total + len as u64, count + 1);
        }
    }
    let counters = &receiver.state.lock().proto.counters;
    assert_eq!(counters.eager_received, count);
    assert_eq!(counters.bytes_received, total);
    let sent = sender.state.lock().proto.counters.eager_sent;
    assert_eq!(sent, count, "none is announced");
}

/// What a receive that was posted before has after each poll.
#[test]
fn a_posted_receive_takes_long_packets_in_parts_and_short_ones_whole() {
    for (len, halves) in [(EAGER, false), (EAGER + 2, true), (8000, true)] {
        let [sender, receiver] = pair();
        let mut got = vec![0; len];
        // SAFETY: the buffer outlives the request, which is waited for below.
        let request = unsafe { receiver.irecv_contig(&from_zero(), got.as_mut_ptr(), len) };
        let request = request.unwrap();
        let sent = bytes(len, 1);
        send(&sender, &sent);
        receiver.state.lock().progress();
        // SAFETY: the engine writes only during its calls.
        let here = |at: usize| unsafe { got.as_ptr().add(at).read_volatile() };
        assert_eq!(here(len / 2 - 1) == sent[len / 2 - 1], halves);
        assert_ne!(here(len - 1), sent[len - 1], "not all of it");
        assert_eq!(receiver.wait(request).unwrap().bytes, len as u64);
        assert!(got == sent, "{len} bytes");
    }
}

#[test]
fn what_nobody_waits_for_is_stored_and_what_does_not_fit_is_cut() {
    for len in [EAGER, 8000] {
        let [sender, receiver] = pair();
        let sent = bytes(len, 2);
        send(&sender, &sent);
        for _ in 0..3 {
            receiver.device_check(Check::NonBlocking).unwrap();
        }
        let status = receiver.iprobe(&from_zero()).unwrap();
        assert_eq!(status.map(|status| status.bytes), Some(len as u64));
        let mut got = vec![0; len];
        receiver.recv_contig(&from_zero(), &mut got).unwrap();
        assert!(got == sent);

        send(&sender, &sent);
        let mut short = vec![0; len - 5];
        let error = receiver.recv_contig(&from_zero(), &mut short).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated);
        assert!(short == sent[..len - 5]);
    }
}

/// The header of a message from rank 1.
fn eager() -> Header {
    Header {
        kind: PacketKind::Eager as u8,
        context: 3,
        source: 1,
        tag: 5,
        ..Header::default()
    }
}

/// A receive of what rank 1 sends.
fn receive(engine: &impl Device, buffer: &mut [u8]) -> Request {
    let from = Pattern {
        context: 3,
        source: Some(1),
        tag: Some(5),
    };
    // SAFETY: the buffers outlive the engines in the tests below.
    unsafe { engine.irecv_contig(&from, buffer.as_mut_ptr(), buffer.len()) }.unwrap()
}

#[test]
fn a_receive_ends_if_the_sender_dies_amid_a_packet() {
    let mut buffer = vec![0; 2000];
    let engine = engine();
    let request = receive(&engine, &mut buffer);
    let half = [9; 1000];
    {
        let proto = &mut engine.state.lock().proto;
        assert_eq!(proto.destination_of(1, &eager(), 2000), Destination::Parts);
        proto.on_part(1, &eager(), 2000, 0, Payload::from_slice(&half));
    }
    assert_eq!(engine.peek(request).unwrap(), None);
    engine.state.lock().transport.failed = Some("it is tired".to_owned());
    let error = engine.wait(request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed);
    let proto = &mut engine.state.lock().proto;
    assert_eq!(proto.destination_of(1, &eager(), 2000), Destination::Whole);
}

#[test]
fn packets_that_make_no_sense_grow_into_nothing() {
    let cases: [&[(usize, usize)]; 4] = [
        // Positions and lengths of the parts of a packet of 2000 bytes.
        &[(1000, 10)],
        &[(0, 1000), (0, 1000)],
        &[(0, 1000), (1000, 1001)],
        &[(0, 0)],
    ];
    for parts in cases {
        let mut buffer = vec![0; 2000];
        let engine = engine();
        let request = receive(&engine, &mut buffer);
        for &(at, len) in parts {
            let bytes = vec![9; len];
            let proto = &mut engine.state.lock().proto;
            proto.on_part(1, &eager(), 2000, at, Payload::from_slice(&bytes));
        }
        engine.device_check(Check::NonBlocking).unwrap();
        let error = engine.wait(request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{parts:?}");
    }
}

/// The first piece of a long message has come, and then, amid its pieces, a packet that grows.
#[test]
fn a_packet_amid_the_pieces_of_another_binds_no_receive() {
    let (mut long, mut next) = (vec![0; 3000], vec![0; 2000]);
    let engine = engine();
    let requests = [receive(&engine, &mut long), receive(&engine, &mut next)];
    let first = Header {
        kind: PacketKind::First as u8,
        cookie: 3000,
        ..eager()
    };
    arrives(&engine, first, &[1; 1000]);
    engine.state.lock().progress();
    let asked = || {
        let proto = &mut engine.state.lock().proto;
        proto.destination_of(1, &eager(), 2000)
    };
    assert_eq!(asked(), Destination::Whole);
    for piece in [[2; 1000], [3; 1000]] {
        let proto = &mut engine.state.lock().proto;
        proto.on_next(1, Payload::from_slice(&piece));
    }
    assert_eq!(asked(), Destination::Parts);
    assert_eq!(engine.wait(requests[0]).unwrap().bytes, 3000);
    assert_eq!(engine.peek(requests[1]).unwrap(), None);
}

/// Only tagged messages that bring their data grow; all other packets are handled as a whole.
#[test]
fn other_packets_are_waited_for() {
    let engine = engine();
    for kind in [PacketKind::First, PacketKind::Next, PacketKind::Active] {
        let header = Header {
            kind: kind as u8,
            ..eager()
        };
        let proto = &mut engine.state.lock().proto;
        let destination = proto.destination_of(1, &header, 9000);
        assert_eq!(destination, Destination::Whole, "{kind:?}");
    }
}
