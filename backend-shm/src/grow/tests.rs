//! One thread steps both ranks, so a packet can be left half written.

use super::*;
use crate::config::Config;
use crate::in_process_with;
use crate::ring::Polled;
use portolan_core::transport::{Room, Transport};

/// Gives packets that grow one destination after another, and notes what becomes of them.
struct Receiver {
    answers: Vec<Answer>,
    buffer: Vec<u8>,
    /// `placed` calls: how many bytes were there.
    placed: Vec<usize>,
    /// Parts: position and length.
    parts: Vec<(usize, usize)>,
    /// Bytes of whole packets.
    whole: Vec<Vec<u8>>,
    /// The header of the latest packet.
    header: Header,
}

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Here,
    Parts,
    Whole,
}

impl Receiver {
    fn new(answers: &[Answer]) -> Self {
        Self {
            answers: answers.iter().rev().copied().collect(),
            buffer: vec![0; 32 << 10],
            placed: Vec::new(),
            parts: Vec::new(),
            whole: Vec::new(),
            header: Header::default(),
        }
    }
}

impl Sink for Receiver {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, header: &Header, payload: Payload<'_>) {
        self.header = *header;
        self.whole.push(payload.to_vec());
    }

    fn grows(&mut self, _peer: u32, _header: &Header, _len: usize) -> Destination {
        match self.answers.pop().expect("one more question than expected") {
            // SAFETY: the buffer is as long as the longest packet, and used by nobody else.
            Answer::Here => Destination::Here(unsafe { Room::new(self.buffer.as_mut_ptr()) }),
            Answer::Parts => Destination::Parts,
            Answer::Whole => Destination::Whole,
        }
    }

    fn placed(&mut self, _peer: u32, _header: &Header, _len: usize, here: usize) {
        self.placed.push(here);
    }

    fn part(&mut self, _peer: u32, _header: &Header, _len: usize, at: usize, payload: Payload<'_>) {
        self.parts.push((at, payload.len()));
        // SAFETY: a packet is no longer than the buffer.
        unsafe { payload.copy_to(self.buffer.as_mut_ptr().add(at), payload.len()) };
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 3) as u8 | 1).collect()
}

/// Two ranks that have answered each other's packets one by one. `takes`: whether receivers take
/// lines.
fn pair(takes: bool) -> Vec<Shm> {
    let config = Config {
        take: takes,
        by_words: false,
        max: 64 << 20,
        ..Config::default()
    };
    let mut ranks = in_process_with(2, &config).unwrap();
    for _ in 0..4 {
        for (from, to) in [(0, 1), (1, 0)] {
            let bytes = [1; 2000];
            // SAFETY: another rank that exists, and a readable array.
            let sent = unsafe {
                ranks[from].send_bulk_from(to as u32, &Header::default(), bytes.as_ptr(), 2000)
            };
            assert_eq!(sent, Sent::Done);
            let mut sink = Receiver::new(&[]);
            while sink.whole.is_empty() {
                ranks[to].poll(&mut sink);
            }
        }
    }
    ranks
}

/// A header all of whose bytes say something.
fn header() -> Header {
    Header::from_words([0x0102_0304_0506_0708, u64::MAX, u64::MAX])
}

/// A packet that its sender is still writing.
struct Begun {
    piece: Piece,
    sent: Vec<u8>,
}

impl Begun {
    fn new(shm: &mut Shm, len: usize, first: usize) -> Self {
        let sent = bytes(len);
        assert!(matches!(send::slow_bulk(shm, 1, len), Ready::Yes));
        let out = &mut shm.outgoing[1];
        let (ring, bulk) = (out.ring.as_mut().unwrap(), out.bulk.as_mut().unwrap());
        let piece = bulk.piece(len, ring.ends()).unwrap();
        let piece = piece.expect("room for a packet");
        bulk.advance(&piece);
        // SAFETY: the piece has `len` bytes, which the receiver does not read yet.
        unsafe { copy(sent.as_ptr(), piece.ptr, first) };
        let descriptor = piece.descriptor.grows_from(first);
        let marked = Piece {
            descriptor,
            ..piece
        };
        // SAFETY: the first part has been written.
        let pushed = unsafe { send::push_descriptor(ring, &header(), &marked) };
        assert_eq!(pushed, Pushed::Done);
        Self { piece, sent }
    }

    /// Goes on up to position `to`.
    fn grow(&self, shm: &Shm, from: usize, to: usize) {
        let part = &self.sent[from..to];
        // SAFETY: the receiver reads these bytes only after it has been told of them.
        unsafe { copy(part.as_ptr(), self.piece.ptr.add(from), part.len()) };
        let ring = shm.outgoing[1].ring.as_ref().unwrap();
        let end = self.piece.descriptor.start() + to as u64;
        ring.ends().of_sender.filled.store(end, Release);
    }
}

#[test]
fn a_packet_that_is_alone_grows_and_others_do_not() {
    for takes in [false, true] {
        let mut ranks = pair(takes);
        let sent = bytes(9000);
        let mut sink = Receiver::new(&[Answer::Here]);
        for _ in 0..2 {
            // SAFETY: as in `pair`. The second packet is not alone.
            let done =
                unsafe { ranks[0].send_growing(1, &Header::default(), sent.as_ptr(), sent.len()) };
            assert_eq!(done, Sent::Done);
        }
        assert_eq!(ranks[1].poll(&mut sink), 2);
        assert_eq!((&sink.placed[..], sink.parts.len()), (&[9000][..], 0));
        assert!(sink.buffer[..9000] == sent && sink.whole == [sent]);
    }
}

#[test]
fn a_packet_may_be_asked_for_as_a_whole() {
    let mut ranks = pair(true);
    let packet = Begun::new(&mut ranks[0], 9000, 2048);
    let mut sink = Receiver::new(&[Answer::Whole; 3]);
    assert_eq!(ranks[1].poll(&mut sink), 0);
    packet.grow(&ranks[0], 2048, 4096);
    assert_eq!(ranks[1].poll(&mut sink), 0);
    packet.grow(&ranks[0], 4096, 9000);
    assert_eq!(ranks[1].poll(&mut sink), 1);
    assert!(sink.whole == [packet.sent] && sink.answers.is_empty());
}

/// In a poll that has delivered other packets, a receiver may take the lines of cells; not that of
/// a packet that stays there.
#[test]
fn what_grows_behind_another_packet_keeps_its_header() {
    let mut ranks = pair(true);
    // SAFETY: as in `pair`.
    let sent = unsafe { ranks[0].send_short(1, &Header::default(), [7; 8].as_ptr(), 8) };
    assert_eq!(sent, Sent::Done);
    let packet = Begun::new(&mut ranks[0], 9000, 2048);
    let mut sink = Receiver::new(&[Answer::Whole; 2]);
    assert_eq!(ranks[1].poll(&mut sink), 1);
    packet.grow(&ranks[0], 2048, 9000);
    assert_eq!(ranks[1].poll(&mut sink), 1);
    assert_eq!(sink.header, header());
    assert!(sink.whole[1] == packet.sent);
}

#[test]
fn packets_grow_by_what_is_copied_fast() {
    let parts = |by_words| [2048, 2049, 8192, 8193, EAGER].map(|len| part(len, true, by_words));
    let [short, long] = [Some(PART), Some(PART_BY_LIBRARY)];
    assert_eq!(parts(false), [None, short, short, short, short]);
    assert_eq!(parts(true), [None, None, None, long, long]);
    for (by_words, growing) in [(false, short), (true, long)] {
        assert_eq!(part(EAGER, false, by_words), None, "in a row of others");
        assert_eq!(part(EAGER + 1, false, by_words), growing);
    }
}

#[test]
fn parts_are_as_long_as_is_worth_while() {
    for takes in [false, true] {
        let mut ranks = pair(takes);
        let packet = Begun::new(&mut ranks[0], 30_000, 2048);
        let mut sink = Receiver::new(&[Answer::Parts; 2]);
        assert_eq!(ranks[1].poll(&mut sink), 0, "a part of 2 KiB is too short");
        packet.grow(&ranks[0], 2048, 10_240);
        assert_eq!(ranks[1].poll(&mut sink), 1);
        packet.grow(&ranks[0], 10_240, 29_000);
        assert_eq!(ranks[1].poll(&mut sink), 1);
        assert_eq!(ranks[1].poll(&mut sink), 0, "nothing new");
        packet.grow(&ranks[0], 29_000, 30_000);
        assert_eq!(ranks[1].poll(&mut sink), 1);
        assert_eq!(sink.parts, [(0, 10_240), (10_240, 18_760), (29_000, 1000)]);
        let turns = &mut ranks[1].outgoing[0].turns;
        turns.sends();
        assert!(turns.awaits_one(), "all parts are one packet");
        assert!(sink.buffer[..30_000] == packet.sent);
    }
}

/// The sender stops after a part. The receiver gives up after a while, and gets the rest in parts.
#[test]
fn a_receiver_does_not_wait_for_ever() {
    for takes in [false, true] {
        let mut ranks = pair(takes);
        let packet = Begun::new(&mut ranks[0], 9000, 2048);
        packet.grow(&ranks[0], 2048, 6144);
        let mut sink = Receiver::new(&[Answer::Here]);
        assert_eq!(ranks[1].poll(&mut sink), 1);
        assert_eq!(sink.placed, [6144]);
        assert_eq!(ranks[1].poll(&mut sink), 0);
        packet.grow(&ranks[0], 6144, 9000);
        assert_eq!(ranks[1].poll(&mut sink), 1);
        assert_eq!(sink.parts, [(6144, 2856)]);
        assert!(sink.buffer[..9000] == packet.sent);
        // The next packet is a new one.
        let next = Begun::new(&mut ranks[0], 5000, 2048);
        next.grow(&ranks[0], 2048, 5000);
        sink.answers.push(Answer::Here);
        assert_eq!(ranks[1].poll(&mut sink), 1);
        assert_eq!(sink.placed, [6144, 5000]);
        assert!(sink.buffer[..5000] == next.sent);
    }
}

/// What a lying sender says of a packet leads nowhere else, and is not waited for.
#[test]
fn nonsense_about_a_packet_harms_nobody() {
    for filled in [0, 3, u64::MAX] {
        let mut ranks = pair(true);
        let packet = Begun::new(&mut ranks[0], 9000, 2048);
        let ring = ranks[0].outgoing[1].ring.as_ref().unwrap();
        ring.ends().of_sender.filled.store(filled, Release);
        let mut sink = Receiver::new(&[Answer::Here]);
        ranks[1].poll(&mut sink);
        assert!(sink.placed[0] <= 9000, "{:?}", sink.placed);
        assert!(sink.buffer[..2048] == packet.sent[..2048]);
    }
}

/// The same of a packet that has begun to arrive.
#[test]
fn who_changes_a_packet_amid_its_parts_has_failed() {
    let mut ranks = pair(true);
    let packet = Begun::new(&mut ranks[0], 20_000, 2048);
    packet.grow(&ranks[0], 2048, 10_240);
    let mut sink = Receiver::new(&[Answer::Parts]);
    assert_eq!(ranks[1].poll(&mut sink), 1);
    let ring = &mut ranks[1].incoming[0].ring;
    let Polled::Message { index, .. } = ring.poll() else {
        panic!("the packet is still there");
    };
    // SAFETY: the length in its descriptor, which its sender may overwrite at any time.
    unsafe {
        let descriptor = ring.cells().payload(index).cast_mut();
        descriptor.add(16).cast::<u32>().write_unaligned(5000);
    }
    ranks[1].poll(&mut sink);
    let why = ranks[1].failure_of(0).expect("it has misbehaved");
    assert!(why.contains("begun to arrive"), "{why}");
}
