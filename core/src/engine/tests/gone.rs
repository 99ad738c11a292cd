//! A peer that accepts no more packets, although nothing says that it is dead; and what a dead peer
//! had sent.

use super::*;
use crate::device::HandlerId;
use crate::engine::deaths::failure::DRAIN;
use crate::engine::one_sided::regions::KeyParts;
use crate::engine::one_sided::{one_sided, prefix, step};
use crate::transport::PacketKind;
use crate::transport::memory::{self, InMemory};
use crate::transport::packet::flags;

/// A send, of a short message or of a long one, that is refused for good, and a receive from the
/// same peer.
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

pub(super) fn progress<L: Level>(engine: &Engine<Scripted, L>) {
    engine.state.lock().progress();
}

fn is_over(engine: &Engine<Scripted, Single>, request: Request) -> bool {
    !matches!(engine.peek(request), Ok(None))
}

/// The transport may have lent memory for operations with the peer, and says so when that is over.
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

/// What the peer had sent before is delivered.
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

/// Other ranks that never stop sending do not hide the loss: after enough polls everything that the
/// peer had sent is here.
#[test]
fn who_is_gone_is_noticed_while_others_send() {
    let (engine, requests) = refused(8);
    progress(&engine);
    let hold = Header {
        kind: PacketKind::Hold as u8,
        ..Header::default()
    };
    {
        let mut state = engine.state.lock();
        state.transport.why_gone = Some("it has gone home".to_owned());
        state.transport.busy = Some((1, hold));
    }
    (0..DRAIN - 100).for_each(|_| progress(&engine));
    assert!(!requests.iter().any(|&request| is_over(&engine, request)));
    (0..200).for_each(|_| progress(&engine));
    for request in requests {
        let error = engine.test(request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
    }
}

/// The peer may send until the transport gives its reason, however long that takes.
#[test]
fn polls_before_the_reason_do_not_count() {
    let (engine, [receive, send]) = refused(8);
    let hold = Header {
        kind: PacketKind::Hold as u8,
        ..Header::default()
    };
    engine.state.lock().transport.busy = Some((1, hold));
    (0..5000).for_each(|_| progress(&engine));
    engine.state.lock().transport.why_gone = Some("it has gone home".to_owned());
    progress(&engine);
    arrives(&engine, eager(), &[1; 8]);
    progress(&engine);
    assert_eq!(engine.wait(receive).unwrap().bytes, 8);
    let error = engine.wait(send).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed);
}

/// A rank whose peer accepts no more packets, and whose transport gives a reason.
fn lonely() -> Engine<Scripted, Single> {
    let engine = engine();
    progress(&engine);
    engine.state.lock().transport.gone = true;
    engine.state.lock().transport.why_gone = Some("it has gone home".to_owned());
    engine
}

/// If the peer does not accept an answer, nothing of this rank waits for it.
#[test]
fn answers_that_nobody_takes_end_nothing() {
    let answer = |kind: PacketKind, flags| Header {
        kind: kind as u8,
        flags,
        ..Header::default()
    };
    let answers = [
        answer(PacketKind::Done, 0),
        answer(PacketKind::Active, flags::REPLY),
        one_sided(step::VALUE, 0, 0),
        one_sided(step::TOLD, 0, 0),
        one_sided(step::REFUSED, 0, 0),
        one_sided(step::WITHDRAWN, 0, 0),
        one_sided(step::FORGOTTEN, 0, 0),
    ];
    for header in answers {
        let engine = lonely();
        engine.state.lock().proto.queue_control(1, header, &[0; 40]);
        (0..10).for_each(|_| progress(&engine));
        assert!(engine.state.lock().proto.failed.is_empty(), "{header:?}");
    }
    let questions = [
        answer(PacketKind::Take, 0),
        answer(PacketKind::Active, 0),
        one_sided(step::PUT, 0, 0),
        one_sided(step::GET, 0, 0),
        one_sided(step::ATOMIC, 0, 0),
        one_sided(step::FLUSH, 0, 0),
        one_sided(step::ASK, 0, 0),
    ];
    for header in questions {
        let engine = lonely();
        engine.state.lock().proto.queue_control(1, header, &[0; 40]);
        (0..10).for_each(|_| progress(&engine));
        assert_eq!(engine.state.lock().proto.failed, [1], "{header:?}");
    }
}

/// Nor does anything wait for data that the peer wanted to read from this rank.
#[test]
fn a_get_that_nobody_waits_for_any_more_ends_nothing() {
    let engine = lonely();
    let region = engine.alloc_region(3000).unwrap();
    let get = prefix(&KeyParts::of(&region.key), 0, 3000, 0);
    arrives(&engine, one_sided(step::GET, 7, 0), &get);
    (0..10).for_each(|_| progress(&engine));
    let state = engine.state.lock();
    assert!(state.proto.failed.is_empty() && state.proto.streams.is_empty());
}

/// A message that has not left uses up no credit, which nobody would give back.
#[test]
fn an_active_message_that_nobody_takes_is_not_sent() {
    let engine = lonely();
    engine.state.lock().transport.why_gone = None;
    let to = ProcId::new(1);
    for _ in 0..300 {
        let tried = engine
            .state
            .lock()
            .try_active(to, HandlerId(7), [0; 2], &[]);
        assert!(!tried.unwrap());
    }
    let state = engine.state.lock();
    assert_eq!(state.proto.counters.active_sent, 0);
    assert_eq!(state.proto.active.without_credit().count(), 0);
    drop(state);
    engine.state.lock().transport.why_gone = Some("it has gone home".to_owned());
    let error = engine
        .active_send(to, HandlerId(7), [0; 2], &[])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
}

/// An engine with this waiting mode, whose peer has left in good order.
fn left_alone(wait: &str) -> Engine<Scripted, Single> {
    left_alone_at(wait)
}

/// The same, at any level.
pub(super) fn left_alone_at<L: Level>(wait: &str) -> Engine<Scripted, L> {
    let (settings, wrong) = Settings::inspect([("PORTOLAN_WAIT", wait)]);
    assert!(wrong.is_empty(), "{wrong:?}");
    let transport = Scripted {
        left: true,
        has_bell: true,
        ..scripted()
    };
    Engine::new(transport, &settings).expect("an engine over a script")
}

fn from(source: Option<u32>) -> Pattern {
    Pattern {
        context: 3,
        source,
        tag: None,
    }
}

pub(super) fn eager() -> Header {
    Header {
        kind: PacketKind::Eager as u8,
        context: 3,
        source: 1,
        tag: 5,
        ..Header::default()
    }
}

#[track_caller]
pub(super) fn assert_left<R: std::fmt::Debug>(outcome: crate::Result<R>) {
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.kind(), error.peer()),
        (ErrorKind::PeerFailed, Some(1))
    );
    let text = error.to_string();
    assert!(text.contains("world rank 1 has left the job; "), "{text}");
}

/// Nothing announces the departure: waits find out, however they wait, once everything that the
/// peer had sent is here.
#[test]
fn waits_for_who_has_left_end() {
    for wait in ["auto", "spin", "yield", "park"] {
        let engine = left_alone(wait);
        arrives(&engine, eager(), &[7; 8]);
        let mut bytes = [0_u8; 8];
        let status = engine.recv_contig(&from(Some(1)), &mut bytes).unwrap();
        assert_eq!((status.bytes, bytes), (8, [7; 8]), "{wait}");
        assert_left(engine.recv_contig(&from(Some(1)), &mut bytes));

        let engine = left_alone(wait);
        assert_left(engine.probe(&from(Some(1))));

        let engine = left_alone(wait);
        let to = SendArgs::new(ProcId::new(1), 3, 0, 0);
        assert_left(engine.send_contig(&to.mode(SendMode::Synchronous), &[7; 8]));
        // From then on the departure is known.
        assert_left(engine.send_contig(&to, &[7; 8]));
        assert_left(engine.recv_contig(&from(Some(1)), &mut bytes));
    }
}

/// Other ranks may still send.
#[test]
fn who_has_left_ends_no_receive_from_any_source() {
    let engine = left_alone("park");
    let mut bytes = [[0_u8; 8]; 2];
    let [first, second] = &mut bytes;
    let receive = |source, bytes: &mut [u8; 8]| {
        // SAFETY: the bytes outlive the engine's use of them: both requests end below.
        unsafe { engine.irecv_contig(&from(source), bytes.as_mut_ptr(), 8) }.unwrap()
    };
    let any = receive(None, first);
    assert_left(engine.wait(receive(Some(1), second)));
    assert!(engine.test(any).unwrap().is_none());
    let later = receive(None, second);
    assert!(engine.test(later).unwrap().is_none());
    for request in [any, later] {
        engine.cancel(request).unwrap();
        assert!(engine.wait(request).unwrap().cancelled);
    }
}

/// Messages to such a peer count as sent, but no report says that they were handled.
#[test]
fn active_messages_to_who_has_left_end() {
    let engine = left_alone("park");
    let send = || engine.active_send(ProcId::new(1), HandlerId(7), [0; 2], &[]);
    let outcomes: Vec<_> = (0..257).map(|_| send()).collect();
    let (last, sent) = outcomes.split_last().unwrap();
    assert!(sent.iter().all(Result::is_ok));
    assert_left(last.clone());
}

/// Of several ranks that store into this rank's memory, one may be done and have left. If only one
/// could store, nothing more comes after it has left.
#[test]
fn waits_for_stores_end_where_only_one_could_store() {
    let engine = left_alone("park");
    engine.state.lock().transport.left = false;
    let wait = |ranks| {
        let mut looks = 0;
        let group = crate::Group::world(ranks);
        engine.wait_for(&group, &mut || {
            looks += 1;
            looks > 100_000
        })
    };
    wait(2).expect("it is there");
    engine.state.lock().transport.left = true;
    wait(3).expect("another may store");
    assert_left(wait(2));
}

/// This rank, whose peer has sent `messages` of `len` bytes, with the tags from 0 on, and was then
/// found dead. This rank has polled for none of them, and a poll takes only a few.
fn bereaved(messages: u32, len: usize) -> Engine<InMemory, Single> {
    let options = memory::Options {
        packets: 256,
        per_poll: 16,
        ..memory::Options::default()
    };
    let settings = Settings::default();
    let mut ranks = memory::network_with(2, options).into_iter();
    let mut rank = || Engine::<_, Single>::new(ranks.next().unwrap(), &settings).unwrap();
    let (here, peer) = (rank(), rank());
    for tag in 0..messages {
        let to = SendArgs::new(ProcId::new(0), 3, 1, tag);
        let bytes = vec![tag as u8; len];
        // SAFETY: the bytes outlive the request: it is complete before this returns, because there
        // is room for all messages.
        let send = unsafe { peer.isend_contig(&to, bytes.as_ptr(), len) }.unwrap();
        assert!(peer.test(send).unwrap().is_some(), "it has left");
    }
    // The death is reported before this rank's next poll.
    peer.declare_self_failed("it is what this test is about");
    here
}

#[track_caller]
fn assert_dead<R: std::fmt::Debug>(outcome: crate::Result<R>) {
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.kind(), error.peer()),
        (ErrorKind::PeerFailed, Some(1)),
        "{error}"
    );
}

/// The transport holds more packets than one poll takes.
#[test]
fn all_that_the_dead_had_sent_is_received() {
    let tagged = |tag| Pattern {
        tag: Some(tag),
        ..from(Some(1))
    };
    for (messages, len) in [(100, 8), (30, 4000)] {
        let here = bereaved(messages, len);
        let mut bytes = vec![0; len];
        for tag in 0..messages {
            let status = here.recv_contig(&tagged(tag), &mut bytes).unwrap();
            assert_eq!(status.bytes, len as u64, "tag {tag}");
            assert!(bytes.iter().all(|&byte| byte == tag as u8), "tag {tag}");
        }
        assert_dead(here.recv_contig(&from(Some(1)), &mut bytes));

        // Receives that are posted before the first poll; the last one gets nothing.
        let here = bereaved(messages, len);
        let mut buffers = vec![vec![0; len]; messages as usize + 1];
        let receive = |(tag, bytes): (usize, &mut Vec<u8>)| {
            // SAFETY: the buffers outlive the requests, which all end below.
            unsafe { here.irecv_contig(&tagged(tag as u32), bytes.as_mut_ptr(), len) }.unwrap()
        };
        let receives: Vec<_> = buffers.iter_mut().enumerate().map(receive).collect();
        let (none, some) = receives.split_last().unwrap();
        for &receive in some {
            assert_eq!(here.wait(receive).unwrap().bytes, len as u64);
        }
        assert_dead(here.wait(*none));
    }
}

#[test]
fn all_that_the_dead_had_sent_is_found_by_probes() {
    let here = bereaved(100, 8);
    let mut bytes = [0; 8];
    for tag in 0..100 {
        let last = Pattern {
            tag: Some(99 - tag),
            ..from(Some(1))
        };
        here.probe(&last).unwrap();
        here.recv_contig(&last, &mut bytes).unwrap();
    }
    assert_dead(here.probe(&from(Some(1))));
    assert_dead(here.iprobe(&from(Some(1))));
}

/// A rank that only spins reports a long wait, too.
#[test]
fn who_only_spins_reports_what_it_waits_for() {
    let (settings, wrong) =
        Settings::inspect([("PORTOLAN_WAIT", "spin"), ("PORTOLAN_STUCK_AFTER", "0.001")]);
    assert!(wrong.is_empty(), "{wrong:?}");
    let engine = Engine::<_, Single>::new(scripted(), &settings).unwrap();
    let reports = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&reports);
    engine.on_stuck(Box::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let mut looks = 0_u32;
    let reported = || {
        looks += 1;
        reports.load(Ordering::Relaxed) > 0 || looks > 20_000_000
    };
    engine.wait_for(&crate::Group::world(2), reported).unwrap();
    assert_eq!(reports.load(Ordering::Relaxed), 2, "once, and its end");
}

/// The words of offers to a peer that has died are free again.
#[test]
fn a_death_frees_the_words_of_offers() {
    let options = memory::Options {
        offers: 3,
        ..memory::Options::default()
    };
    let settings = Settings::default();
    let mut ranks = memory::network_with(3, options).into_iter();
    let mut rank = || Engine::<_, Single>::new(ranks.next().unwrap(), &settings).unwrap();
    let (here, peer, other) = (rank(), rank(), rank());
    let bytes = vec![7_u8; 100_000];
    let offer = |to| {
        let to = SendArgs::new(ProcId::new(to), 3, 0, 0);
        // SAFETY: the bytes outlive the requests, which all end below.
        unsafe { here.isend_contig(&to, bytes.as_ptr(), bytes.len()) }.unwrap()
    };
    let doomed = [1, 1, 1].map(offer);
    peer.declare_self_failed("it is what this test is about");
    doomed.iter().for_each(|&send| assert_dead(here.wait(send)));
    let sends = [2, 2, 2].map(offer);
    for send in sends {
        here.cancel(send).unwrap();
        let outcome = here.test(send).unwrap();
        assert!(
            outcome.is_some_and(|status| status.cancelled),
            "the offer has a word"
        );
    }
    drop(other);
}

/// A wait that is never in vain, because something is always done for others, looks as well.
#[test]
fn who_has_left_is_found_while_others_send() {
    for wait in ["auto", "spin", "yield", "park"] {
        let engine = left_alone(wait);
        let hold = Header {
            kind: PacketKind::Hold as u8,
            ..Header::default()
        };
        engine.state.lock().transport.busy = Some((1, hold));
        assert_left(engine.recv_contig(&from(Some(1)), &mut [0]));
    }
}
