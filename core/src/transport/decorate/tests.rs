//! Tests of the decorators, on the reference transport.

use super::*;
use crate::transport::memory::{self, InMemory};
use crate::transport::{Header, PacketKind, Payload, Sent, Sink, Transport};

#[derive(Default)]
struct Inbox(Vec<(u32, Header, Vec<u8>)>);

impl Sink for Inbox {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        self.0.push((peer, *header, payload.to_vec()));
    }
}

fn send<T: Transport>(rank: &mut T, to: u32, number: u32) -> Sent {
    let header = Header {
        kind: PacketKind::Eager as u8,
        cookie: number,
        ..Header::default()
    };
    let bytes = number.to_le_bytes();
    // SAFETY: the tests name ranks that exist and are not the sender; four bytes are readable.
    unsafe { rank.send_short(to, &header, bytes.as_ptr(), 4) }
}

/// `n` ranks, each under a hook.
fn ranks<H: Hook>(n: u32, hook: impl Fn(u32) -> H) -> Vec<Decorated<InMemory, H>> {
    let ranks = memory::network(n).into_iter();
    ranks
        .zip(0..)
        .map(|(rank, number)| Decorated::new(rank, hook(number)))
        .collect()
}

#[test]
fn delays_keep_the_order_of_a_pair_and_lose_nothing() {
    let mut ranks = ranks(3, |rank| Delay::new(u64::from(rank), 7));
    let (mut inbox, mut polls) = (Inbox::default(), 0);
    for number in 0..200 {
        for sender in [0, 1] {
            while send(&mut ranks[sender], 2, number) == Sent::Full {
                ranks[2].poll(&mut inbox);
                polls += 1;
            }
        }
    }
    while inbox.0.len() < 400 {
        let before = ranks[2].bell().seen();
        if ranks[2].poll(&mut inbox) == 0 {
            assert_ne!(
                ranks[2].bell().seen(),
                before,
                "held back, and free to fall asleep"
            );
        }
        polls += 1;
    }
    for sender in [0, 1] {
        let numbers = inbox.0.iter().filter(|p| p.0 == sender).map(|p| p.1.cookie);
        assert!(numbers.eq(0..200));
    }
    assert!(polls > 400, "nothing was delayed");
}

#[test]
fn refusals_look_like_a_full_transport() {
    let mut ranks = ranks(2, |rank| Refuse::new(u64::from(rank), 3));
    let (mut inbox, mut refused) = (Inbox::default(), 0);
    for number in 0..300 {
        while send(&mut ranks[0], 1, number) == Sent::Full {
            refused += 1;
        }
        ranks[1].poll(&mut inbox);
    }
    assert!((50..400).contains(&refused), "{refused} refusals");
    assert!(inbox.0.iter().map(|p| p.1.cookie).eq(0..300));
}

#[test]
fn the_same_seed_corrupts_the_same_packets_and_spares_the_first() {
    let run = |seed| {
        let mut ranks = ranks(2, |_| Corrupt::new(seed, 2, 10));
        let mut inbox = Inbox::default();
        for number in 0..200 {
            assert_eq!(send(&mut ranks[0], 1, number), Sent::Done);
            ranks[1].poll(&mut inbox);
        }
        inbox.0
    };
    let (first, second, other) = (run(1), run(1), run(2));
    assert_eq!(first, second);
    assert_ne!(first, other);
    let intact = |(number, packet): (u32, &(u32, Header, Vec<u8>))| {
        packet.1.cookie == number && packet.2 == number.to_le_bytes()
    };
    assert!((0..10).zip(&first).all(intact));
    let harmed = (0..200).zip(&first).filter(|pair| !intact(*pair)).count();
    assert!((50..150).contains(&harmed), "{harmed} packets were changed");
}

#[test]
fn a_peer_dies_after_its_last_packet() {
    let mut ranks = ranks(2, |rank| DropPeer::new(1 - rank, 3));
    for number in 0..5 {
        assert_eq!(send(&mut ranks[0], 1, number), Sent::Done);
    }
    let mut inbox = Inbox::default();
    while ranks[1].failures() == 0 {
        ranks[1].poll(&mut inbox);
    }
    assert_eq!(inbox.0.len(), 3);
    assert!(
        ranks[0]
            .failure_of(0)
            .unwrap()
            .contains("killed by the test")
    );
    assert_eq!(send(&mut ranks[1], 0, 0), Sent::Gone);
}

#[test]
fn traces_and_counts_say_what_passed() {
    let (trace, counts) = (Trace::new(), Count::new());
    let mut ranks = memory::network(2);
    let mut one = Decorated::new(ranks.pop().unwrap(), trace.clone());
    let mut zero = Decorated::new(ranks.pop().unwrap(), counts.clone());
    assert_eq!(send(&mut zero, 1, 7), Sent::Done);
    one.poll(&mut Inbox::default());
    assert_eq!(send(&mut one, 0, 8), Sent::Done);
    zero.poll(&mut Inbox::default());

    let records = trace.take();
    let seen: Vec<_> = records
        .iter()
        .map(|r| (r.direction, r.peer, r.header.cookie))
        .collect();
    assert_eq!(
        seen,
        [(Direction::In, 0, 7), (Direction::Out(Sent::Done), 0, 8)]
    );
    let expected = Tally {
        sent: 1,
        sent_bytes: 4,
        arrived: 1,
        arrived_bytes: 4,
        full: 0,
    };
    assert_eq!(
        (counts.of(PacketKind::Eager), counts.total()),
        (expected, expected)
    );
    assert_eq!(counts.of(PacketKind::Offer), Tally::default());
}
