//! A peer that takes no packets any more, and of which nobody says that it is dead.

use super::*;
use crate::transport::PacketKind;

/// A send that is refused for good, of a short message or of a long one, and a receive from the same peer.
fn refused(len: usize) -> (Engine<Scripted, Single>, [Request; 2]) {
    static BYTES: [u8; 4096] = [7; 4096];
    let engine = engine();
    engine.state.lock().transport.gone = true;
    let from = Pattern {
        context: 3,
        source: Some(1),
        tag: Some(5),
    };
    let buffer = vec![0_u8; 8].leak();
    // SAFETY: both are there for ever, and nobody else uses the second.
    let requests = unsafe {
        let receive = engine.irecv_contig(&from, buffer.as_mut_ptr(), buffer.len());
        let to = SendArgs::new(ProcId::new(1), 3, 0, 0);
        let send = engine.isend_contig(&to, BYTES.as_ptr(), len);
        [receive, send].map(Result::unwrap)
    };
    (engine, requests)
}

fn progress(engine: &Engine<Scripted, Single>) {
    engine.state.lock().progress();
}

fn is_over(engine: &Engine<Scripted, Single>, request: Request) -> bool {
    !matches!(engine.peek(request), Ok(None))
}

/// The transport may have lent memory for what is under way with it, and says so when that is over.
#[test]
fn nothing_ends_before_the_transport_says_why() {
    for len in [8, 4096] {
        let (engine, requests) = refused(len);
        (0..10).for_each(|_| progress(&engine));
        assert!(!requests.iter().any(|&request| is_over(&engine, request)));
        engine.state.lock().transport.why_gone = Some("it has gone home".to_owned());
        for request in requests {
            let error = engine.wait(request).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerFailed);
            assert!(error.to_string().contains("it has gone home"), "{error}");
        }
    }
}

/// What it had sent is delivered.
#[test]
fn nothing_ends_before_its_packets_are_here() {
    let (engine, [receive, send]) = refused(8);
    progress(&engine);
    engine.state.lock().transport.why_gone = Some("it has gone home".to_owned());
    let header = Header {
        kind: PacketKind::Eager as u8,
        context: 3,
        source: 1,
        tag: 5,
        ..Header::default()
    };
    arrives(&engine, header, &[1; 8]);
    assert_eq!(engine.wait(receive).unwrap().bytes, 8);
    let error = engine.wait(send).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed);
}

/// An answer that it does not take is nothing that this rank waits for.
#[test]
fn answers_that_nobody_takes_end_nothing() {
    let engine = engine();
    progress(&engine);
    engine.state.lock().transport.gone = true;
    engine.state.lock().transport.why_gone = Some("it has gone home".to_owned());
    let done = Header {
        kind: PacketKind::Done as u8,
        ..Header::default()
    };
    engine.state.lock().proto.queue_control(1, done, &[]);
    (0..10).for_each(|_| progress(&engine));
    assert!(engine.state.lock().proto.failed.is_empty());
}
