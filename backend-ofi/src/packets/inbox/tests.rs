//! Receive buffers under strain, between endpoints of this process.

use portolan_core::transport::{Header, Sent, Transport};

use super::*;
use crate::ofi::Ofi;
use crate::packets::arrival::Form;
use crate::packets::wire::Wire;
use crate::testing::opened_or_skipped;

/// More polls than any arrival takes.
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

/// Accepts the packets of all ranks but one.
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
    // A whole window arrives, four times as much as there is room for, and is refused.
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
    // Another peer's packets arrive.
    let mut number = 0;
    while sink.taken.len() < 100 {
        number += u8::from(number < 100 && send(two, 1, number, 2048));
        for rank in [&mut *zero, &mut *two, &mut *one] {
            rank.poll(&mut sink);
        }
        polls += 1;
        assert!(polls < 2 * MANY, "{} have arrived", sink.taken.len());
    }
    // The refused packets are still there, in order.
    sink.refused = u32::MAX;
    while sink.taken.len() < 100 + WINDOW as usize {
        one.poll(&mut sink);
    }
    assert!(sink.taken[100..].iter().all(|&peer| peer == 0));
}

#[test]
fn buffers_with_messages_that_broke_off_are_replaced() {
    for has_broken in [true, false] {
        buffers_are_replaced(has_broken);
    }
}

/// Fills all buffers: in each, the last message has landed, and one before it never will.
fn fill(inbox: &mut Inbox) {
    for index in 0..inbox.buffers.len() {
        inbox.close(index);
        inbox.buffers[index].reach = 1000;
        inbox.reuse(index);
    }
}

/// At once if a connection has broken, else after a while.
fn buffers_are_replaced(has_broken: bool) {
    let Some(mut ranks) = ranks(1) else { return };
    let link = &mut *ranks[0].link;
    let inbox = &mut link.inbox;
    let count = inbox.buffers.len();
    assert_eq!((inbox.open, inbox.is_low()), (count, false));
    fill(inbox);
    assert!(!inbox.has_unposted() && inbox.is_low());
    inbox.relieve(&link.domain).unwrap();
    assert!(!inbox.has_unposted(), "they may be landing");
    assert!(inbox.spares.is_empty() && inbox.is_low());
    match has_broken {
        true => inbox.broke(),
        false => inbox.shut_since = Instant::now().checked_sub(PATIENCE),
    }
    inbox.relieve(&link.domain).unwrap();
    assert_eq!(inbox.post(&link.ep), Ok(false));
    assert_eq!((inbox.spares.len(), inbox.open), (count, count));
    let (ops, slab, part) = inbox.locate(count);
    // SAFETY: the context is that of existing operations.
    let number = unsafe { Ops::of(ops.context(part)) };
    assert_eq!((number, part), ((Kind::Receive, count), 0));
    assert_eq!(slab.part_len(), inbox.slab.part_len());
    // No more buffers are added, and one whose message lands after all is used again.
    inbox.relieve(&link.domain).unwrap();
    assert_eq!(inbox.spares.len(), count);
    inbox.buffers[0].bytes = 1000;
    inbox.reuse(0);
    assert_eq!(inbox.unposted, [0]);
}

/// Without a buffer nothing arrives that would wake a sleeper, and it is a poll that gives the
/// filled ones up after a while.
#[test]
fn a_rank_without_buffers_sleeps_briefly() {
    let Some(mut ranks) = ranks(1) else { return };
    let rank = &mut ranks[0];
    if rank.link.domain.wait.is_none() {
        return crate::testing::skipped("sleeps without buffers", "the provider wakes nobody");
    }
    let mut sink = Picky {
        refused: 0,
        taken: Vec::new(),
    };
    rank.arm();
    rank.poll(&mut sink);
    assert!(!rank.bell.is_brief(), "what arrives wakes it");
    fill(&mut rank.link.inbox);
    rank.poll(&mut sink);
    assert!(rank.bell.is_brief(), "nothing would wake it");
    // Pretend that it has waited for long enough.
    rank.link.inbox.shut_since = Instant::now().checked_sub(PATIENCE);
    rank.poll(&mut sink);
    assert_eq!(rank.link.inbox.open, rank.link.inbox.spares.len());
    assert!(!rank.bell.is_brief(), "it has other buffers");
    rank.disarm();
}

/// Any sender that knows the address may send anything. A message that is no packet still takes up
/// its bytes of a buffer.
#[test]
fn what_is_too_short_to_be_a_packet_keeps_no_buffer() {
    let Some(mut ranks) = ranks(1) else { return };
    let inbox = &mut ranks[0].link.inbox;
    if !inbox.hasty {
        return crate::testing::skipped(
            "messages that are no packets",
            "the provider is not hasty",
        );
    }
    for (index, lens) in [[10, 100], [100, 10], [10, 10]].into_iter().enumerate() {
        let start = inbox.slab.part(index);
        let arrived: Vec<Arrival> = [(0, lens[0], 0), (lens[0], lens[1], FI_MULTI_RECV)]
            .into_iter()
            .filter_map(|(offset, len, flags)| {
                // SAFETY: numbers and null pointers, for which zero is a value.
                let mut entry = unsafe { std::mem::zeroed::<fi_cq_tagged_entry>() };
                entry.buf = start.wrapping_add(offset).cast();
                (entry.len, entry.flags) = (len, FI_RECV | flags);
                inbox.arrived(index, &entry)
            })
            .collect();
        assert_eq!(
            arrived.len(),
            lens.iter().filter(|&&len| len == 100).count()
        );
        for arrival in &arrived {
            inbox.read(arrival);
        }
        assert_eq!(inbox.unposted.last(), Some(&(index as u32)), "{lens:?}");
    }
}

/// A part that is followed by another, and the last one, both with a header.
const MORE: Form = Form {
    bare: false,
    more: true,
};
const LAST: Form = Form {
    bare: false,
    more: false,
};

/// A part of `len` bytes at `offset` of `buffer`, after its header if it has one.
fn part(buffer: &mut [u8], offset: usize, len: usize, fill: u8, form: Form) -> Arrival {
    let place = &mut buffer[offset + form.front()..][..len];
    place.fill(fill);
    Arrival {
        wire: Wire {
            header: Header::default(),
            job: 1,
            from: 3,
            seq: 0,
            ack: 0,
        },
        form,
        data: place.as_mut_ptr(),
        len: len as u32,
        span: len as u32,
        buffer: 5,
        copy: None,
    }
}

fn bytes(arrival: &Arrival) -> Vec<u8> {
    // SAFETY: the bytes lie in the buffer of the test, or in their own copy.
    unsafe { std::slice::from_raw_parts(arrival.data, arrival.len as usize) }.to_vec()
}

#[test]
fn parts_that_lie_side_by_side_are_moved_and_others_copied() {
    let mut buffer = vec![0_u8; 1000];
    let expected = [vec![1; 100], vec![2; 30], vec![3; 7]].concat();
    let second = 100 + Wire::LEN;
    for apart in [0, 1] {
        let mut parts = Parts::new(200);
        let at = [0, second, second + 30 + Wire::LEN + apart];
        let all = [(100, MORE), (30, MORE), (7, LAST)];
        let mut spent = 0;
        let mut whole = None;
        // All parts are there before any is looked at, as when they arrive.
        let arrived: Vec<Arrival> = all
            .iter()
            .zip(at)
            .zip(1..)
            .map(|((&(len, form), at), fill)| part(&mut buffer, at, len, fill, form))
            .collect();
        for arrival in arrived {
            assert!(parts.concern(&arrival));
            let joined = parts.join(arrival);
            spent += joined.spent.into_iter().flatten().count();
            whole = joined.whole;
        }
        let whole = whole.expect("that was all");
        assert!(parts.is_empty() && bytes(&whole) == expected);
        // One message less is needed for each part that was moved, and for all three parts where
        // the packet was copied.
        assert_eq!((whole.lies_in().is_none(), spent), (apart == 1, 2 + apart));
    }
}

#[test]
fn parts_without_headers_lie_where_they_are_needed() {
    let bare = Form { bare: true, ..MORE };
    let mut buffer = vec![0_u8; 1000];
    let start = buffer.as_ptr();
    let mut parts = Parts::new(300);
    let first = part(&mut buffer, 0, 100, 1, bare);
    let second = part(&mut buffer, 100, 100, 2, bare);
    // The provider had no more room, so the rest has a header.
    let third = part(&mut buffer, 200, 50, 3, LAST);
    assert!(parts.join(first).whole.is_none() && parts.join(second).whole.is_none());
    let whole = parts.join(third).whole.expect("that was all");
    assert!(std::ptr::eq(whole.data, start) && whole.lies_in().is_some());
    assert!(bytes(&whole) == [vec![1; 100], vec![2; 100], vec![3; 50]].concat());
}

#[test]
fn parts_of_more_than_a_packet_are_refused() {
    let mut buffer = vec![0_u8; 1000];
    let mut parts = Parts::new(150);
    let first = part(&mut buffer, 0, 100, 1, MORE);
    assert!(!parts.join(first).too_long);
    let joined = parts.join(part(&mut buffer, 200, 51, 1, MORE));
    assert!(joined.too_long && joined.whole.is_none() && parts.is_empty());
    assert_eq!(joined.spent, [Some(5); 2]);
}

#[test]
fn parts_of_the_dead_are_thrown_away() {
    let Some(mut ranks) = ranks(1) else { return };
    let inbox = &mut ranks[0].link.inbox;
    let mut buffer = vec![0_u8; 1000];
    for from in [3, 4] {
        let mut arrival = part(&mut buffer, 0, 100, 1, MORE);
        (arrival.wire.from, arrival.buffer) = (from, 0);
        inbox.buffers[0].unread += 1;
        let _ = inbox.parts.join(arrival);
    }
    inbox.forget(|rank| rank == 3);
    assert_eq!((inbox.buffers[0].unread, inbox.held.len()), (1, 0));
    assert_eq!(inbox.parts.open()[0].wire.from, 4);
    // Parts of living ranks do not keep a buffer that is needed.
    inbox.copy_held();
    assert_eq!(inbox.buffers[0].unread, 0);
    inbox.parts.open().clear();
}

/// Over TCP, no packet overtakes an earlier one.
#[test]
fn whoever_loses_a_packet_with_a_connection_has_failed() {
    let Some(mut ranks) = ranks(3) else { return };
    let mut sink = Picky {
        refused: 2,
        taken: Vec::new(),
    };
    let [zero, one, two] = &mut ranks[..] else {
        unreachable!("three were made")
    };
    // As on a provider where no packet goes in parts.
    one.gap.get_or_insert_default();
    // Pretend that rank 0's first packet was lost with a connection; rank 2's packets are not
    // accepted.
    zero.peers[1].sent += 1;
    let mut sent = [false; 2];
    let mut polls = 0;
    while one.link.inbox.held.len() < 4 {
        for (sent, rank) in sent.iter_mut().zip([&mut *zero, &mut *two]) {
            if !*sent {
                *sent = send(rank, 1, 1, 8) && send(rank, 1, 2, 8);
            }
            rank.poll(&mut sink);
        }
        one.poll(&mut sink);
        polls += 1;
        assert!(polls < MANY, "nothing arrives");
    }
    one.poll(&mut sink);
    assert_eq!(one.link.inbox.missing(&one.peers), Some((0, 0)));
    assert_eq!(one.shared.deaths.count(), 0, "it may come still");
    let gap = one.gap.as_mut().expect("it is TCP");
    assert!(gap.is_open());
    gap.pretend_to_wait();
    while one.failures() == 0 {
        one.poll(&mut sink);
        polls += 1;
        assert!(polls < MANY, "it is waited for without an end");
    }
    let why = one.failure_of(0).expect("rank 0 has failed");
    assert!(why.contains("packet 0 of it was lost"), "{why}");
    assert!(one.gap.as_ref().is_some_and(|gap| !gap.is_open()));
    for _ in 0..100 {
        one.poll(&mut sink);
    }
    assert_eq!(one.failures(), 1, "what is not wanted is not lost");
    assert_eq!(one.link.inbox.missing(&one.peers), None);
}
