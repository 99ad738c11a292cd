//! Packets without a header, where the previous one had the same.
//!
//! Messages of exactly 16 KiB are common, and 16 KiB is what the layered providers send at once:
//! with a header, such a message would go in two parts, which takes far longer. And a message of a
//! few bytes is much shorter than its header. Therefore both sides remember the header of the
//! pair's last packet that had a header and data. The next packet with the same header goes without
//! it, and its number travels as the data word of its completion. It goes in one message, or, where
//! the provider copies each within the call, in parts. Without a header in front of it, the payload
//! is copied directly from the program's memory.
//!
//! ```text
//! data    job's lower half 16 | acknowledged 8 | number 8 | sender's rank 32, with `Wire::MORE` in front of others
//! ```
//!
//! The lower 8 bits of the numbers are enough, because fewer than 256 packets are under way. Of the
//! job's 32 bits only the lower 16 are compared: one packet in 65536 that an earlier job sent to
//! the same address would pass for one of this job's.

use std::ops::Range;

use libfabric_sys::{FI_EAGAIN, fi_injectdata, fi_senddata};
use portolan_core::transport::{Header, Sent};

use crate::ofi::Ofi;
use crate::packets::wire::Wire;
use crate::peer::{Peer, WINDOW};
use crate::send::refused;

const _: () = assert!(2 * WINDOW <= 256);

/// Payload bytes of the shortest packet whose header is remembered. (For 8 bytes over libfabric's
/// shared memory, the header would lie in a cache line of its own, which costs a fifth of the
/// latency.)
pub(crate) const LEAST: usize = 1;

/// The data word of a packet.
fn word(job: u32, from: u32, seq: u32, ack: u32) -> u64 {
    u64::from(job & 0xffff) << 48
        | u64::from(ack & 0xff) << 40
        | u64::from(seq & 0xff) << 32
        | u64::from(from)
}

/// Decodes a word, as far as its bits allow.
pub(crate) fn wire(word: u64) -> Wire {
    Wire {
        header: Header::default(),
        job: (word >> 48) as u32,
        from: word as u32,
        seq: (word >> 32) as u32 & 0xff,
        ack: (word >> 40) as u32 & 0xff,
    }
}

/// Completes a decoded word with what is known about this job and the sender.
pub(crate) fn complete(wire: &mut Wire, job: u32, peer: &Peer) {
    // An acknowledgement ahead of the last one covers at most the packets under way, which may be a
    // whole window. A larger distance means that it is behind: a packet that acknowledged more has
    // overtaken it. (If as many as 256 - `open` more were acknowledged before it came, it would
    // pass for one ahead. So nothing goes without a header where packets overtake each other:
    // `caps::words`.)
    let open = peer.sent.wrapping_sub(peer.acked);
    let nearest = |low: u32, known: u32| match low.wrapping_sub(known) & 0xff {
        ahead if ahead <= open => known.wrapping_add(ahead),
        behind => known.wrapping_sub(256 - behind),
    };
    wire.job = if wire.job == job & 0xffff { job } else { !job };
    // The number is never before the expected one.
    wire.seq = peer
        .expected
        .wrapping_add((wire.seq.wrapping_sub(peer.expected)) & 0xff);
    wire.ack = nearest(wire.ack, peer.acked);
}

/// Has the provider copy (inject) a packet whose header the peer remembers, and which is not longer
/// than the provider injects.
///
/// # Safety
/// `len` bytes must be initialised at `data`, and the peer must be in the provider's address
/// vector.
#[inline]
pub(crate) unsafe fn inject(ofi: &mut Ofi, data: *const u8, peer: u32, len: usize) -> Sent {
    let state = &mut ofi.peers[peer as usize];
    let (addr, ack) = (state.addr, state.expected);
    let word = word(ofi.job, ofi.rank, state.sent, ack);
    // SAFETY: an open endpoint; the caller promises the bytes and the address.
    match unsafe { fi_injectdata(ofi.link.ep.get(), data.cast(), len, word, addr) } {
        0 => {
            state.injected = true;
            state.has_left(ack);
            Sent::Done
        }
        result if result == -(FI_EAGAIN as isize) => Sent::Full,
        error => refused(ofi, peer, error),
    }
}

/// Sends the packet at `place` without its header, if the peer remembers that: in one message, or
/// in several that the provider copies at once. Returns how many bytes have left: 0 if the packet
/// cannot go without a header, and less than `len` if the provider has no more room. If `place` is
/// not in a slot, the provider has to copy everything at once.
///
/// # Safety
/// `len` bytes must be initialised at `place`. If a slot is given, `place` is in it, after the room
/// for a header.
#[inline]
pub(crate) unsafe fn send(
    ofi: &mut Ofi,
    place: *const u8,
    slot: Option<usize>,
    peer: u32,
    header: &Header,
    len: usize,
) -> Result<usize, Sent> {
    let most = ofi.link.part + Wire::LEN;
    let copied = most.min(len) <= ofi.inject;
    let fits = if len <= most {
        slot.is_some() || copied
    } else {
        copied
    };
    if !fits || !ofi.words || !ofi.peers.remembers(peer, header) {
        return Ok(0);
    }
    let mut left = 0;
    while left < len {
        let size = most.min(len - left);
        // SAFETY: the caller's promise.
        match unsafe { send_part(ofi, place, slot, peer, left..left + size, left + size < len) } {
            Sent::Done => left += size,
            // Parts with a header can wait.
            Sent::Full => break,
            Sent::Gone => return Err(Sent::Gone),
        }
    }
    Ok(left)
}

/// Sends a part of the bytes at `place`; `more` says that others follow. If the provider does not
/// copy it at once, the part is all of the bytes, and these are in a slot.
///
/// # Safety
/// As for [`send`].
unsafe fn send_part(
    ofi: &mut Ofi,
    place: *const u8,
    slot: Option<usize>,
    peer: u32,
    part: Range<usize>,
    more: bool,
) -> Sent {
    let state = &ofi.peers[peer as usize];
    let (addr, ack, len) = (state.addr, state.expected, part.len());
    let from = ofi.rank | if more { Wire::MORE } else { 0 };
    let data = word(ofi.job, from, state.sent, ack);
    let (ep, large) = (ofi.link.ep.get(), &mut ofi.link.large);
    // The caller has made sure that there is a slot if one is needed.
    let lent = slot.filter(|_| len > ofi.inject);
    let injected = lent.is_none();
    // SAFETY: an open endpoint, an address of its vector, initialised bytes. If these are not
    // copied within the call, they stay in place, in a slot, with the context, until the
    // completion.
    let result = unsafe {
        let place = place.add(part.start).cast();
        if let Some(slot) = lent {
            large.ops.note(slot, peer, len);
            let (desc, context) = (large.slab.desc(), large.ops.context(slot));
            fi_senddata(ep, place, len, desc, data, addr, context)
        } else {
            fi_injectdata(ep, place, len, data, addr)
        }
    };
    match result {
        0 => {
            if !injected {
                ofi.link.large.take();
            }
            ofi.peers[peer as usize].injected = injected;
            ofi.peers[peer as usize].has_left(ack);
            Sent::Done
        }
        result if result == -(FI_EAGAIN as isize) => Sent::Full,
        error => refused(ofi, peer, error),
    }
}

#[cfg(test)]
mod tests {
    use libfabric_sys::fi_cq_read;
    use portolan_core::transport::{Payload, Sink, Transport};

    use super::*;
    use crate::config::Config;
    use crate::testing::opened_or_skipped;

    /// More polls than any arrival takes.
    const MANY: usize = 2_000_000;

    #[test]
    fn numbers_are_completed_across_their_ends() {
        for (expected, acked) in [(0, 0), (250, 3), (u32::MAX - 1, u32::MAX - 100)] {
            let mut peer = Peer::default();
            (peer.expected, peer.acked) = (expected, acked);
            peer.sent = acked.wrapping_add(WINDOW);
            for ahead in [0, 1, WINDOW - 1] {
                let (seq, ack) = (expected.wrapping_add(ahead), acked.wrapping_add(ahead));
                let mut wire = wire(word(0x1234_5678, 7, seq, ack));
                complete(&mut wire, 0x1234_5678, &peer);
                assert_eq!((wire.job, wire.from), (0x1234_5678, 7));
                assert_eq!((wire.seq, wire.ack), (seq, ack));
            }
            let mut full = wire(word(1, 7, expected, acked.wrapping_add(WINDOW)));
            complete(&mut full, 1, &peer);
            assert_eq!(full.ack, acked.wrapping_add(WINDOW), "a whole window");
            // An overtaken acknowledgement remains valid.
            let mut old = wire(word(1, 0, expected, acked.wrapping_sub(5)));
            complete(&mut old, 2, &peer);
            assert_eq!(old.ack, acked.wrapping_sub(5));
            assert_ne!(old.job, 2, "another job's");
        }
    }

    #[test]
    fn an_acknowledgement_that_was_overtaken_by_many_stays_one() {
        for open in [0, 1, WINDOW] {
            let mut peer = Peer::default();
            (peer.acked, peer.sent) = (1000, 1000 + open);
            for behind in 0..256 - open {
                let mut old = wire(word(1, 7, 0, 1000 - behind));
                complete(&mut old, 1, &peer);
                assert_eq!(old.ack, 1000 - behind, "{open} are under way");
                assert!({ peer }.acknowledged(old.ack));
            }
        }
    }

    /// Keeps the packets that arrive.
    #[derive(Default)]
    struct Keep(Vec<(u32, Header, Vec<u8>)>);

    impl Sink for Keep {
        fn accepts(&mut self, _peer: u32) -> bool {
            true
        }

        fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
            self.0.push((peer, *header, payload.to_vec()));
        }
    }

    fn ranks(provider: &str) -> Option<Vec<Ofi>> {
        ranks_with(provider, Config::default())
    }

    fn ranks_with(provider: &str, config: Config) -> Option<Vec<Ofi>> {
        let config = Config {
            provider: Some(provider.to_owned()),
            interface: (provider == "tcp").then(|| "lo".to_owned()),
            ..config
        };
        let ranks = opened_or_skipped("packets in parts", 3, &config)?;
        if ranks[0].link.part == ranks[0].link.limits.bulk {
            crate::testing::skipped("packets in parts", "this provider sends them at once");
            return None;
        }
        Some(ranks)
    }

    /// The bytes of a message of `len` bytes, different in each part.
    fn bytes(number: u32, len: usize) -> Vec<u8> {
        (0..len)
            .map(|at| (at / 7 + at + number as usize) as u8)
            .collect()
    }

    /// Polls until `done` returns true.
    fn poll_until(ranks: &mut [Ofi], sink: &mut Keep, done: impl Fn(&[Ofi], &Keep) -> bool) {
        for _ in 0..MANY {
            if done(ranks, sink) {
                return;
            }
            for rank in &mut *ranks {
                rank.poll(sink);
            }
        }
        panic!("it does not happen; {} packets have come", sink.0.len());
    }

    /// Sends a message as soon as there is room.
    fn send_one(ranks: &mut [Ofi], sink: &mut Keep, from: usize, number: u32, len: usize) {
        let header = Header {
            tag: number / 3,
            ..Header::default()
        };
        let what = bytes(number, len);
        for _ in 0..MANY {
            // SAFETY: rank 2 exists and is another rank; the closure writes as many bytes.
            let sent = unsafe {
                match number % 3 {
                    0 => ranks[from].send_bulk(2, &header, len, |place| {
                        place.copy_from_nonoverlapping(what.as_ptr(), len);
                    }),
                    _ => ranks[from].send_bulk_from(2, &header, what.as_ptr(), len),
                }
            };
            if sent == Sent::Done {
                return;
            }
            ranks.iter_mut().for_each(|rank| {
                rank.poll(sink);
            });
        }
        panic!("there is never room for message {number}");
    }

    fn whole_whatever_its_way(provider: &str) {
        if let Some(mut ranks) = ranks(provider) {
            all_whole(&mut ranks);
        }
    }

    fn all_whole(ranks: &mut [Ofi]) {
        let (part, bulk) = (ranks[0].link.part, ranks[0].link.limits.bulk);
        let lens = [
            LEAST - 1,
            LEAST,
            part - 1,
            part,
            part + 1,
            part + Wire::LEN,
            part + Wire::LEN + 1,
            bulk,
        ];
        let mut sink = Keep::default();
        // Headers change with every third message, and two senders alternate.
        let sent: Vec<(u32, usize)> = (0..60)
            .map(|number| (number, lens[(number / 6) as usize % lens.len()].min(bulk)))
            .collect();
        for &(number, len) in &sent {
            send_one(ranks, &mut sink, (number % 2) as usize, number, len);
        }
        poll_until(ranks, &mut sink, |_, sink| sink.0.len() == sent.len());
        for sender in 0..2 {
            let theirs = sent.iter().filter(|(number, _)| number % 2 == sender);
            let came = sink.0.iter().filter(|(from, ..)| *from == sender);
            assert_eq!(came.clone().count(), 30, "of rank {sender}");
            for ((number, len), (_, header, data)) in theirs.zip(came) {
                assert_eq!(header.tag, number / 3);
                assert!(
                    *data == bytes(*number, *len),
                    "message {number} of {len} bytes"
                );
            }
        }
        assert!(ranks[2].link.inbox.all_whole());
    }

    #[test]
    fn packets_are_whole_whatever_their_way_over_tcp() {
        whole_whatever_its_way("tcp");
    }

    #[test]
    fn packets_are_whole_whatever_their_way_over_shared_memory() {
        whole_whatever_its_way("shm");
    }

    #[test]
    fn ranks_whose_parts_differ_understand_each_other() {
        for provider in ["tcp", "shm"] {
            // Buffers that are soon too full for another packet.
            let config = Config {
                receive: 20 << 10,
                ..Config::default()
            };
            let Some(mut ranks) = ranks_with(provider, config) else {
                continue;
            };
            // As if the provider reported another size to one of the ranks. One such message fits
            // into a buffer.
            ranks[1].link.part = match provider {
                "shm" => ranks[1].link.limits.bulk,
                _ => 12_000,
            };
            let mut sink = Keep::default();
            for number in 0..20 {
                send_one(&mut ranks, &mut sink, 1, number, 12_000);
            }
            poll_until(&mut ranks, &mut sink, |_, sink| sink.0.len() == 20);
            for (number, (from, _, data)) in (0..).zip(&sink.0) {
                assert!(*from == 1 && *data == bytes(number, 12_000), "{number}");
            }
            all_whole(&mut ranks);
        }
    }

    #[test]
    fn buffers_have_room_for_a_packet_however_short_they_are_wished() {
        for provider in ["tcp", "shm"] {
            let config = Config {
                receive: 4 << 10,
                ..Config::default()
            };
            if let Some(mut ranks) = ranks_with(provider, config) {
                all_whole(&mut ranks);
            }
        }
    }

    #[test]
    fn few_slots_are_enough_for_all_parts_of_a_packet() {
        for provider in ["tcp", "shm"] {
            let config = Config {
                slots: 1,
                ..Config::default()
            };
            if let Some(mut ranks) = ranks_with(provider, config) {
                all_whole(&mut ranks);
            }
        }
    }

    /// Far more arrives before the receiver polls than the receive buffers hold. The short messages
    /// in between go without headers, unless the provider would not report the word of a message
    /// that it keeps (`caps::words`).
    #[test]
    fn nothing_is_lost_where_no_buffer_is_free() {
        for provider in ["sockets", "tcp", "shm"] {
            let config = Config {
                provider: Some(provider.to_owned()),
                interface: (provider != "shm").then(|| "lo".to_owned()),
                receive: 4 << 10,
                ..Config::default()
            };
            let Some(mut ranks) = opened_or_skipped("full receive buffers", 3, &config) else {
                continue;
            };
            let (mut sink, mut left) = (Keep::default(), Vec::new());
            // Once something has arrived, there is a connection.
            send_one(&mut ranks, &mut sink, 0, 0, 1);
            poll_until(&mut ranks, &mut sink, |_, sink| sink.0.len() == 1);
            sink.0.clear();
            for number in 0..WINDOW / 2 {
                let len = [ranks[0].link.part, 5][number as usize % 2];
                let what = bytes(number, len);
                // SAFETY: rank 2 exists and is another rank; as many bytes are readable.
                let sent =
                    unsafe { ranks[0].send_bulk_from(2, &Header::default(), what.as_ptr(), len) };
                if sent == Sent::Done {
                    left.push(what);
                }
                // Only the sender polls.
                ranks[0].poll(&mut sink);
            }
            assert!(left.len() >= 16, "{} have left over {provider}", left.len());
            // The provider takes what arrives as long as there are buffers, and keeps the rest.
            let queue = ranks[2].link.domain.cq.get();
            for _ in 0..10_000 {
                // SAFETY: an open queue, of which nothing is read.
                unsafe { fi_cq_read(queue, std::ptr::null_mut(), 0) };
            }
            poll_until(&mut ranks, &mut sink, |_, sink| sink.0.len() == left.len());
            for (number, (what, (.., data))) in left.iter().zip(&sink.0).enumerate() {
                assert!(what == data, "packet {number} over {provider}");
            }
        }
    }

    #[test]
    fn a_header_that_the_peer_knows_is_left_out() {
        let Some(mut ranks) = ranks("tcp") else {
            return;
        };
        let len = ranks[0].link.part + Wire::LEN;
        let mut sink = Keep::default();
        send_one(&mut ranks, &mut sink, 0, 0, 8);
        poll_until(&mut ranks, &mut sink, |_, sink| sink.0.len() == 1);
        // Message 3 is the first with another header.
        for (number, packets) in [(0, 2), (1, 3), (2, 4), (3, 6), (4, 7)] {
            send_one(&mut ranks, &mut sink, 0, number, len);
            assert_eq!(ranks[0].peers[2].sent, packets, "after message {number}");
            // Nothing is under way when the next message leaves, so the provider has room for it.
            let arrived = number as usize + 2;
            poll_until(&mut ranks, &mut sink, |ranks, sink| {
                sink.0.len() == arrived && !ranks[0].link.large.concern(|_| true)
            });
        }
    }

    #[test]
    fn what_the_provider_copies_goes_from_where_it_lies() {
        let Some(mut ranks) = ranks("shm") else {
            return;
        };
        let part = ranks[0].link.part;
        if ranks[0].inject < part + Wire::LEN {
            return crate::testing::skipped("bytes without a copy", "the provider copies less");
        }
        leave_from_where_they_lie(&mut ranks, &[LEAST, part, 3 * part]);
    }

    #[test]
    fn so_do_datagrams() {
        let config = Config {
            provider: Some("udp;ofi_rxd".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        let Some(mut ranks) = opened_or_skipped("bytes without a copy", 3, &config) else {
            return; // The skip has been printed.
        };
        let inject = ranks[0].inject;
        if inject < LEAST {
            return crate::testing::skipped("bytes without a copy", "the provider copies less");
        }
        leave_from_where_they_lie(&mut ranks, &[LEAST, inject]);
    }

    /// Sends two messages of each length: the first goes with its header, the second directly from
    /// where it lies.
    fn leave_from_where_they_lie(ranks: &mut [Ofi], lens: &[usize]) {
        let mut sink = Keep::default();
        // Three messages in a row have the same header; the first of them goes with it.
        for (first, &len) in (0..).step_by(3).zip(lens) {
            for number in first..first + 2 {
                let sent = ranks[0].peers[2].sent;
                let slot = ranks[0].link.large.next().expect("a free slot");
                let place = ranks[0].link.large.slab.part(slot);
                // SAFETY: the slot is free.
                unsafe { place.write_bytes(0xee, Wire::LEN + len) };
                send_one(ranks, &mut sink, 0, number + 1, len);
                // SAFETY: initialised above; nothing is under way from there, as the provider has
                // copied it.
                let slot = unsafe { std::slice::from_raw_parts(place, Wire::LEN + len) };
                let untouched = slot.iter().all(|&byte| byte == 0xee);
                assert_eq!(
                    untouched,
                    number != first,
                    "message {number} of {len} bytes"
                );
                assert_ne!(ranks[0].peers[2].sent, sent);
            }
        }
        poll_until(ranks, &mut sink, |_, sink| sink.0.len() == 2 * lens.len());
        let numbers = (0..).step_by(3).flat_map(|first| [first + 1, first + 2]);
        let lens = lens.iter().flat_map(|&len| [len; 2]);
        for ((number, len), (_, _, data)) in numbers.zip(lens).zip(&sink.0) {
            assert!(*data == bytes(number, len), "message {number}");
        }
    }

    #[test]
    fn all_parts_go_without_a_header_that_the_peer_knows() {
        let Some(mut ranks) = ranks("shm") else {
            return;
        };
        let len = ranks[0].link.limits.bulk;
        let most = ranks[0].link.part + Wire::LEN;
        if ranks[0].inject < most || len <= most {
            return crate::testing::skipped("parts without headers", "the provider copies less");
        }
        let (with, without) = (len.div_ceil(ranks[0].link.part), len.div_ceil(most));
        assert!(without < with, "{len} bytes in {with} parts, or {without}");
        let mut sink = Keep::default();
        let mut packets = ranks[0].peers[2].sent;
        for (number, parts) in [(0, with), (1, without), (2, without), (3, with)] {
            send_one(&mut ranks, &mut sink, 0, number, len);
            packets += parts as u32;
            assert_eq!(ranks[0].peers[2].sent, packets, "after message {number}");
            let arrived = number as usize + 1;
            poll_until(&mut ranks, &mut sink, |_, sink| sink.0.len() == arrived);
            assert!(sink.0[number as usize].2 == bytes(number, len));
        }
    }

    #[test]
    fn who_leaves_out_a_header_that_was_never_sent_is_a_liar() {
        let Some(mut ranks) = ranks("tcp") else {
            return;
        };
        let len = ranks[0].link.part + Wire::LEN;
        let mut sink = Keep::default();
        // Once something has arrived, there is a connection; the header of an empty packet is not
        // remembered.
        send_one(&mut ranks, &mut sink, 0, 0, 0);
        poll_until(&mut ranks, &mut sink, |ranks, sink| {
            sink.0.len() == 1 && !ranks[0].link.large.concern(|_| true)
        });
        ranks[0].peers.has_left_with(2, &Header::default());
        send_one(&mut ranks, &mut sink, 0, 0, len);
        poll_until(&mut ranks, &mut sink, |ranks, _| {
            ranks[2].shared.deaths.is_dead(0)
        });
        assert_eq!(sink.0.len(), 1, "it was not believed");
    }
}
