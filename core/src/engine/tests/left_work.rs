//! What a call leaves to the next progress step wakes a thread that sleeps, because the calling
//! thread may make no further step.

use super::windows::{offer, pulling};
use super::{Scripted, arrives, piece};
use crate::device::{Device, SendArgs};
use crate::engine::Engine;
use crate::level::{Single, StateLock};
use crate::matching::Pattern;
use crate::transport::packet::flags;
use crate::transport::{Header, PacketKind, Pulls};
use crate::{Adi, ProcId};

/// Whether `call` wakes a thread that sleeps in another call.
fn wakes(engine: &Engine<Scripted, Single>, call: impl FnOnce()) -> bool {
    let before = engine.completion_epoch();
    engine.shared.add_sleeper();
    call();
    engine.shared.remove_sleeper();
    engine.completion_epoch() != before
}

/// A receive that has to pull more than it does at once, or to wait for another one's turn.
#[test]
fn a_receive_that_leaves_a_pull() {
    let mut buffer = vec![0; 512 << 10];
    let (engine, _) = pulling(&mut buffer, 0);
    engine.state.lock().transport.pulls = Pulls::Absent;
    for tag in 0..3 {
        let (header, body) = offer(tag, if tag == 0 { 8 << 10 } else { 512 << 10 });
        arrives(&engine, header, &body);
        engine.state.lock().progress();
    }
    for (tag, leaves) in [(0, false), (1, true), (2, true)] {
        let from = Pattern {
            context: 3,
            source: Some(1),
            tag: Some(tag),
        };
        let (at, len) = (buffer.as_mut_ptr(), buffer.len());
        let woken = wakes(&engine, || {
            // SAFETY: the buffer outlives the engine; nobody reads the overlapping data.
            unsafe { engine.irecv_contig(&from, at, len) }.unwrap();
        });
        let state = engine.state.lock();
        let left = !state.proto.pulls.is_empty() || !state.proto.late.is_empty();
        assert_eq!(left, leaves, "message {tag}");
        assert!(woken || !left, "message {tag}");
    }
}

/// A receive whose acknowledgement finds no room.
#[test]
fn a_receive_that_leaves_an_acknowledgement() {
    let (engine, _) = pulling(&mut [], 0);
    let header = Header {
        flags: flags::SYNCHRONOUS,
        ..piece(PacketKind::Eager, 5, 9)
    };
    for full in [false, true] {
        arrives(&engine, header, &[]);
        engine.state.lock().progress();
        engine.state.lock().transport.full = full;
        let from = Pattern {
            context: 3,
            source: Some(1),
            tag: Some(5),
        };
        let acknowledged = engine.state.lock().transport.sent.len();
        let woken = wakes(&engine, || {
            engine.recv_contig(&from, &mut [0_u8; 0]).unwrap();
        });
        let acknowledged = engine.state.lock().transport.sent.len() > acknowledged;
        assert_eq!(acknowledged, !full);
        assert!(woken || acknowledged);
    }
}

/// A send that takes in what has arrived to make room, and leaves an acknowledgement to be handled:
/// the next step handles it, and says that it did something.
#[test]
fn a_send_that_takes_in_an_acknowledgement() {
    let mut buffer = vec![0; 64 << 10];
    let (engine, _) = pulling(&mut buffer, 0);
    engine.state.lock().transport.exposes = true;
    let to = SendArgs::new(ProcId::new(1), 3, 0, 5);
    // SAFETY: the buffer outlives the engine.
    let offered = unsafe { engine.isend_contig(&to, buffer.as_ptr(), buffer.len()) }.unwrap();
    let done = Header {
        kind: PacketKind::Done as u8,
        cookie: offered.to_short(),
        ..Header::default()
    };
    arrives(&engine, done, &[]);
    assert!(wakes(&engine, || {
        engine.state.lock().take_in(1);
    }));
    assert!(!engine.is_complete(offered), "what takes long is left");
    assert!(engine.state.lock().progress() > 0);
    assert!(engine.is_complete(offered));
}
