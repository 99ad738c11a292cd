//! Long messages, which pass through chunks.

use portolan_datatype::MsgRep;

use super::*;
use crate::Device;
use crate::transport::TransportCaps;
use crate::transport::memory::Options;

const LEN: usize = (3 << 20) + 17;
/// Bytes of a rank's two pools together.
const BOUND: u64 = 4 << 20;

/// Two ranks, each with an accelerator, over a transport whose receivers may or may not read from
/// their senders.
struct Pair {
    ranks: [Rank; 2],
    fakes: [Arc<Fake>; 2],
    staging: [Staging; 2],
}

impl Pair {
    fn new(pull: bool, len: usize) -> Self {
        let mut options = Options::default();
        options.caps.set(TransportCaps::PULL, pull);
        let mut ranks = memory::network_with(2, options).into_iter();
        let fakes = [Fake::new(len), Fake::new(len)];
        Self {
            ranks: std::array::from_fn(|_| {
                let transport = ranks.next().expect("two ranks");
                Engine::new(transport, &Settings::default()).expect("an engine")
            }),
            staging: fakes
                .each_ref()
                .map(|fake| Staging::new(vec![fake.clone()])),
            fakes,
        }
    }

    /// Rank 0 sends from its accelerator, from offset `at` on.
    fn send(&self, at: usize, len: usize) -> Request {
        let byte = Layout::primitive(Primitive::U8);
        // SAFETY: the accelerator outlives the request.
        let sent = unsafe {
            let data = buf(self.fakes[0].at(at), len, &byte);
            self.staging[0].isend(&self.ranks[0], &args(), data)
        };
        sent.expect("a send")
    }

    /// Rank 1 receives into its accelerator.
    fn receive(&self, at: usize, len: usize) -> Request {
        let byte = Layout::primitive(Primitive::U8);
        let any = Pattern {
            source: None,
            tag: None,
            ..from()
        };
        // SAFETY: the accelerator outlives the request.
        let received = unsafe {
            let room = buf(self.fakes[1].at(at), len, &byte);
            self.staging[1].irecv(&self.ranks[1], &any, room)
        };
        received.expect("a receive")
    }

    fn progress(&self) {
        for rank in &self.ranks {
            rank.device_check(Check::NonBlocking).expect("progress");
        }
    }

    fn over(&self, rank: usize, request: Request) -> Result<Status, ErrorKind> {
        for _ in 0..1_000_000 {
            self.progress();
            if let Some(outcome) = self.ranks[rank].test(request).transpose() {
                return outcome.map_err(|error| error.kind());
            }
        }
        panic!("it never ends: {:?}", self.ranks[rank].describe_state());
    }
}

#[test]
fn one_chunk_is_copied_while_another_is_sent() {
    for pull in [false, true] {
        let pair = Pair::new(pull, LEN);
        for fake in &pair.fakes {
            fake.delay_copies(3);
        }
        let data = bytes(LEN, 5);
        pair.fakes[0].write(0, &data);
        let (receive, send) = (pair.receive(0, LEN), pair.send(0, LEN));
        assert_eq!(pair.over(1, receive).unwrap().bytes, LEN as u64);
        pair.over(0, send).unwrap();
        assert!(pair.fakes[1].read(0, LEN) == data);
        for (rank, fake) in pair.ranks.iter().zip(&pair.fakes) {
            assert!(fake.most_moving() > 1, "one copy after the other");
            assert_eq!(fake.moving(), 0);
            let counted = rank.snapshot();
            assert_eq!(counted.chunks_staged, LEN.div_ceil(256 << 10) as u64);
            assert!(counted.pieces_overlapped > 0, "{counted:?}");
        }
    }
}

#[test]
fn from_and_to_the_host_by_reads_and_by_packets() {
    for pull in [false, true] {
        let pair = Pair::new(pull, LEN);
        let data = bytes(LEN, 5);
        pair.fakes[0].write(0, &data);
        let mut host = vec![0_u8; LEN];
        // SAFETY: both live until the requests are over, and nothing else uses them meanwhile.
        let from_host = unsafe {
            let room = ContigBuf::from_bytes_mut(&mut host);
            let receive = pair.ranks[1].irecv_contig_unchecked(&from(), room).unwrap();
            let send = pair.send(0, LEN);
            pair.over(1, receive).unwrap();
            pair.over(0, send).unwrap();
            assert!(host == data);
            ContigBuf::from_bytes(&host)
        };
        pair.fakes[1].delay_copies(2);
        let receive = pair.receive(0, LEN);
        // SAFETY: as above.
        let send = unsafe { pair.ranks[0].isend_contig_unchecked(&args(), from_host) };
        assert_eq!(pair.over(1, receive).unwrap().bytes, LEN as u64);
        pair.over(0, send.unwrap()).unwrap();
        assert!(pair.fakes[1].read(0, LEN) == data);
        let pulled = pair.ranks[1].snapshot().bytes_pulled;
        assert_eq!(pulled, if pull { LEN as u64 } else { 0 });
    }
}

#[test]
fn memory_of_the_host_is_bounded() {
    const EACH: usize = 1 << 20;
    const MANY: usize = 24;
    let pair = Pair::new(false, EACH * MANY);
    let before = pair.ranks.each_ref().map(|rank| rank.transport_memory());
    for fake in &pair.fakes {
        fake.delay_copies(5);
    }
    let data = bytes(EACH * MANY, 11);
    pair.fakes[0].write(0, &data);
    // All at once, so that there are more messages than chunks.
    let receives: Vec<_> = (0..MANY).map(|n| pair.receive(n * EACH, EACH)).collect();
    let sends: Vec<_> = (0..MANY).map(|n| pair.send(n * EACH, EACH)).collect();
    for receive in receives {
        pair.over(1, receive).unwrap();
    }
    for send in sends {
        pair.over(0, send).unwrap();
    }
    assert!(pair.fakes[1].read(0, EACH * MANY) == data);
    for (n, rank) in pair.ranks.iter().enumerate() {
        let more = rank.transport_memory() - before[n];
        assert!(0 < more && more <= BOUND, "{more} bytes");
        assert!(pair.fakes[n].pinned() <= 8, "of one direction");
        // All of it by chunks: no message goes without while others have them.
        let staged = rank.snapshot().chunks_staged;
        assert_eq!(staged, (MANY * EACH).div_ceil(256 << 10) as u64);
    }
    let Pair { ranks, fakes, .. } = pair;
    drop(ranks);
    assert_eq!(fakes.map(|fake| fake.pinned()), [0, 0]);
}

#[test]
fn a_driver_that_fails_ends_its_message_and_no_other() {
    for (culprit, good, delay) in [
        (0, 0, 0),
        (0, 2, 0),
        (0, 2, 4),
        (1, 0, 0),
        (1, 3, 0),
        (1, 3, 4),
    ] {
        let pair = Pair::new(false, LEN);
        let data = bytes(LEN, 3);
        pair.fakes[0].write(0, &data);
        for fake in &pair.fakes {
            fake.delay_copies(delay);
        }
        pair.fakes[culprit].fail_after(good);
        let (receive, send) = (pair.receive(0, LEN), pair.send(0, LEN));
        let failed = Err(ErrorKind::UnsupportedMemory);
        assert_eq!(pair.over(1, receive), failed, "{culprit} after {good}");
        let sent = pair.over(0, send);
        assert_eq!(sent.is_err(), culprit == 0, "{sent:?}");
        // Later messages arrive.
        pair.fakes[culprit].fail_after(usize::MAX);
        let (receive, send) = (pair.receive(0, LEN), pair.send(0, LEN));
        assert_eq!(pair.over(1, receive).unwrap().bytes, LEN as u64);
        pair.over(0, send).unwrap();
        assert!(pair.fakes[1].read(0, LEN) == data);
    }
}

#[test]
fn when_all_chunks_have_been_given_up_messages_arrive() {
    let pair = Pair::new(false, LEN);
    let data = bytes(LEN, 3);
    pair.fakes[0].write(0, &data);
    for fake in &pair.fakes {
        fake.delay_copies(4);
    }
    let lost = |rank: usize| pair.ranks[rank].snapshot().chunks_lost;
    for culprit in [0, 1] {
        for _ in 0..8 {
            pair.fakes[culprit].fail_after(0);
            let (receive, send) = (pair.receive(0, LEN), pair.send(0, LEN));
            pair.over(1, receive).unwrap_err();
            assert_eq!(pair.over(0, send).is_err(), culprit == 0);
            pair.fakes[culprit].fail_after(usize::MAX);
        }
        assert_eq!(lost(culprit), 8);
        let before = pair.ranks[1].snapshot().bytes_received;
        let (receive, send) = (pair.receive(0, LEN), pair.send(0, LEN));
        assert_eq!(pair.over(1, receive).unwrap().bytes, LEN as u64);
        pair.over(0, send).unwrap();
        assert!(pair.fakes[1].read(0, LEN) == data);
        let counted = pair.ranks[1].snapshot().bytes_received - before;
        assert_eq!(counted, LEN as u64, "what did not arrive is not counted");
    }
    assert_eq!(pair.ranks[1].snapshot().bytes_received, 2 * LEN as u64);
}

#[test]
fn the_words_of_a_driver_reach_the_caller() {
    let pair = Pair::new(false, LEN);
    pair.fakes[0].fail_after(1);
    let (receive, send) = (pair.receive(0, LEN), pair.send(0, LEN));
    while !pair.ranks[0].is_complete(send) || !pair.ranks[1].is_complete(receive) {
        pair.progress();
    }
    let error = pair.ranks[0].wait(send).unwrap_err().to_string();
    assert!(error.contains("the device has been lost"), "{error}");
    let error = pair.ranks[1].wait(receive).unwrap_err().to_string();
    assert!(
        error.contains("the driver of its sender, rank 0"),
        "{error}"
    );
}

#[test]
fn what_does_not_fit_is_cut() {
    const ROOM: usize = 300_000;
    for pull in [false, true] {
        let pair = Pair::new(pull, LEN);
        let data = bytes(LEN, 3);
        pair.fakes[0].write(0, &data);
        pair.fakes[1].write(0, &vec![9; LEN]);
        pair.fakes[1].delay_copies(2);
        let (receive, send) = (pair.receive(0, ROOM), pair.send(0, LEN));
        assert_eq!(pair.over(1, receive), Err(ErrorKind::Truncated));
        pair.over(0, send).unwrap();
        assert!(pair.fakes[1].read(0, ROOM) == data[..ROOM]);
        assert!(pair.fakes[1].read(ROOM, 1000) == [9; 1000]);
    }
}

#[test]
fn a_send_that_nobody_wants_is_cancelled() {
    let pair = Pair::new(false, LEN);
    let send = pair.send(0, LEN);
    pair.progress();
    pair.ranks[0].cancel(send).unwrap();
    assert!(pair.over(0, send).unwrap().cancelled);
    assert_eq!(pair.fakes[0].copies(), 0, "nothing was copied");
    let receive = pair.receive(0, LEN);
    pair.ranks[1].cancel(receive).unwrap();
    assert!(pair.over(1, receive).unwrap().cancelled);
}

#[test]
fn when_a_peer_dies_no_copy_goes_on() {
    for dead in [0, 1] {
        let pair = Pair::new(false, LEN);
        let alive = 1 - dead;
        // Its copies end only when they are waited for.
        pair.fakes[alive].delay_copies(1 << 30);
        let (receive, send) = (pair.receive(0, LEN), pair.send(0, LEN));
        let requests = [send, receive];
        while pair.fakes[alive].moving() == 0 {
            assert!(!pair.ranks[alive].is_complete(requests[alive]));
            pair.progress();
        }
        pair.ranks[dead].declare_self_failed("it has had enough");
        let outcome = pair.over(alive, requests[alive]);
        assert_eq!(outcome, Err(ErrorKind::PeerFailed));
        assert_eq!(pair.fakes[alive].moving(), 0);
    }
}

#[test]
fn a_rank_sends_to_itself() {
    let pair = Pair::new(false, 2 * LEN);
    let (fake, staging, rank) = (&pair.fakes[0], &pair.staging[0], &pair.ranks[0]);
    let (data, byte) = (bytes(LEN, 3), Layout::primitive(Primitive::U8));
    fake.write(0, &data);
    let to = SendArgs::new(ProcId::new(0), 1, 0, 5);
    for good in [usize::MAX, 0] {
        // SAFETY: the accelerator outlives the requests.
        let (send, receive) = unsafe {
            let send = staging.isend(rank, &to, buf(fake.at(0), LEN, &byte));
            fake.fail_after(good);
            let room = buf(fake.at(LEN), LEN, &byte);
            (send.unwrap(), staging.irecv(rank, &from(), room).unwrap())
        };
        let (sent, received) = (pair.over(0, send), pair.over(0, receive));
        assert_eq!(sent.is_ok(), good > 0);
        assert_eq!(received.is_ok(), good > 0);
    }
    assert!(fake.read(LEN, LEN) == data);
}

#[test]
fn another_representation_is_converted() {
    let pair = Pair::new(false, LEN);
    let wide = Layout::primitive(Primitive::U32);
    let count = LEN / 4;
    let data = bytes(4 * count, 3);
    pair.fakes[0].write(0, &data);
    let mut there = args();
    there.rep = MsgRep::External32;
    // SAFETY: the accelerators outlive the requests.
    let (receive, send) = unsafe {
        let room = buf(pair.fakes[1].at(0), count, &wide);
        let receive = pair.staging[1].irecv(&pair.ranks[1], &from(), room);
        let values = buf(pair.fakes[0].at(0), count, &wide);
        let send = pair.staging[0].isend(&pair.ranks[0], &there, values);
        (receive.unwrap(), send.unwrap())
    };
    assert_eq!(pair.over(1, receive).unwrap().bytes, 4 * count as u64);
    pair.over(0, send).unwrap();
    assert!(pair.fakes[1].read(0, 4 * count) == data);
}
