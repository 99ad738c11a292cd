//! Buffers under strain: between endpoints in this process.

use portolan_core::transport::{Header, Sent, Transport};

use super::*;
use crate::ofi::Ofi;
use crate::testing::opened_or_skipped;

/// Polls after which something that has to arrive will not.
const MANY: usize = 2_000_000;

/// Ranks over TCP on the loopback interface, or nothing where there is no libfabric.
fn ranks(n: u32) -> Option<Vec<Ofi>> {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        receive: 64 << 10,
        ..Config::default()
    };
    opened_or_skipped("buffers under strain", n, &config)
}

/// Takes packets of all ranks but one.
struct Picky {
    refused: u32,
    taken: Vec<u32>,
}

impl Sink for Picky {
    fn accepts(&mut self, peer: u32) -> bool {
        peer != self.refused
    }

    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        assert_eq!(
            payload.to_vec(),
            vec![header.tag as u8; payload.to_vec().len()]
        );
        self.taken.push(peer);
    }
}

fn send(from: &mut Ofi, to: u32, number: u8, len: usize) -> bool {
    let header = Header {
        tag: number.into(),
        ..Header::default()
    };
    // SAFETY: the rank exists and is another one; the closure writes as many bytes.
    let sent = unsafe { from.send_bulk(to, &header, len, |place| place.write_bytes(number, len)) };
    sent == Sent::Done
}

#[test]
fn one_peer_whose_packets_are_not_wanted_keeps_nobody_else_out() {
    let Some(mut ranks) = ranks(3) else { return };
    let mut sink = Picky {
        refused: 0,
        taken: Vec::new(),
    };
    let [zero, one, two] = &mut ranks[..] else {
        unreachable!("three were made")
    };
    // A whole window, four times as much as there is room for, arrives and is refused.
    let mut sent = 0;
    let mut polls = 0;
    while one.link.inbox.held.len() < WINDOW as usize {
        sent += u8::from(sent < WINDOW as u8 && send(zero, 1, sent, 2048));
        for rank in [&mut *zero, &mut *two] {
            rank.poll(&mut sink);
        }
        one.poll(&mut sink);
        polls += 1;
        assert!(
            polls < MANY,
            "{} of {sent} have arrived",
            one.link.inbox.held.len()
        );
    }
    // Another peer's arrive.
    let mut number = 0;
    while sink.taken.len() < 100 {
        number += u8::from(number < 100 && send(two, 1, number, 2048));
        for rank in [&mut *zero, &mut *two, &mut *one] {
            rank.poll(&mut sink);
        }
        polls += 1;
        assert!(polls < 2 * MANY, "{} have arrived", sink.taken.len());
    }
    // What was refused is still there, in order.
    sink.refused = u32::MAX;
    while sink.taken.len() < 100 + WINDOW as usize {
        one.poll(&mut sink);
    }
    assert!(sink.taken[100..].iter().all(|&peer| peer == 0));
}

#[test]
fn buffers_with_messages_that_broke_off_are_replaced() {
    let Some(mut ranks) = ranks(1) else { return };
    let link = &mut *ranks[0].link;
    let inbox = &mut link.inbox;
    let count = inbox.buffers.len();
    assert_eq!((inbox.open, inbox.is_low()), (count, false));
    // The last message in each has landed, and one before it never will.
    for index in 0..count {
        inbox.close(index);
        inbox.buffers[index].reach = 1000;
        inbox.reuse(index);
    }
    assert!(
        !inbox.has_unposted() && !inbox.is_low(),
        "they may be landing"
    );
    inbox.broke();
    assert!(inbox.is_low());
    inbox.relieve(&link.domain).unwrap();
    assert_eq!(inbox.post(&link.ep), Ok(false));
    assert_eq!((inbox.spares.len(), inbox.open), (count, count));
    let (ops, slab, part) = inbox.place(count);
    // SAFETY: of operations that are there.
    let number = unsafe { Ops::of(ops.context(part)) };
    assert_eq!((number, part), ((Kind::Receive, count), 0));
    assert_eq!(slab.part_len(), inbox.slab.part_len());
    // Nothing more is added, and what lands after all is used again.
    inbox.relieve(&link.domain).unwrap();
    assert_eq!(inbox.spares.len(), count);
    inbox.buffers[0].bytes = 1000;
    inbox.reuse(0);
    assert_eq!(inbox.unposted, [0]);
}
