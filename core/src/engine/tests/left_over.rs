//! Messages that wait in the contexts of a communicator when one of its members dies.

use super::*;
use crate::transport::PacketKind;
use crate::transport::packet::flags;

/// An engine among three ranks. A message of rank 2 waits in a point-to-point context, and a
/// synchronous one in the collective context of the same communicator, for which ranks 1 and 2 are
/// members. Then rank 1 dies, or leaves while something is still wanted of it.
fn bereft(left: bool) -> Engine<Scripted, Single> {
    let transport = Scripted {
        ranks: 3,
        ..scripted()
    };
    let engine: Engine<Scripted, Single> = Engine::new(transport, &Settings::default()).unwrap();
    let view = CommView {
        context: 3,
        contexts: 2,
        group: crate::Group::world(3),
        rank: 0,
    };
    engine.comm_init(None, &view).unwrap();
    for (context, flags) in [(3, 0), (4, flags::SYNCHRONOUS)] {
        let header = Header {
            kind: PacketKind::Eager as u8,
            flags,
            context,
            source: 2,
            tag: 5,
            cookie: 9,
            ..Header::default()
        };
        let packet = (2, header, vec![1; 100]);
        engine.state.lock().transport.arriving.push_back(packet);
    }
    engine.device_check(Check::NonBlocking).unwrap();
    assert_eq!(engine.state.lock().proto.unexpected.len(), 2);
    if left {
        engine.state.lock().transport.left = true;
        engine.state.lock().proto.note_gone(1);
    } else {
        engine.state.lock().transport.failed = Some("it fell over".to_owned());
    }
    for _ in 0..3 {
        engine.device_check(Check::NonBlocking).unwrap();
    }
    assert!(engine.failure_of(ProcId::new(1)).is_some());
    engine
}

#[test]
fn a_death_leaves_no_message_to_later_collectives() {
    let engine = bereft(false);
    let state = engine.state.lock();
    let left: Vec<u32> = state.proto.unexpected.iter().map(|m| m.1.context).collect();
    assert_eq!(left, [3], "of the point-to-point context");
    let done = |header: &Header| header.kind == PacketKind::Done as u8 && header.cookie == 9;
    assert!(state.transport.sent.iter().any(done), "the sender waits");
    // What is stored is the message that is left.
    let stored = state.proto.stored_bytes;
    drop(state);
    let mut bytes = [0; 100];
    engine.recv_contig(&Pattern::any(3), &mut bytes).unwrap();
    assert_eq!((bytes, stored > 0), ([1; 100], true));
    assert_eq!(engine.state.lock().proto.stored_bytes, 0);
}

/// A rank leaves when it has finished all operations. The others may still need their messages.
#[test]
fn a_departure_leaves_the_messages_of_the_last_operation() {
    let engine = bereft(true);
    let mut bytes = [0; 100];
    engine.recv_contig(&Pattern::any(4), &mut bytes).unwrap();
    assert_eq!(bytes, [1; 100]);
}
