//! What a rank does before it leaves the job.

use std::time::Instant;

use libfabric_sys::FI_ADDR_NOTAVAIL;

use super::leavers::{Rank, both, delivered, isend, left, ranks};
use super::*;
use crate::ofi::FAREWELL;
use crate::ofi::tests::apart;
use crate::peer::WINDOW;
use crate::send::insert;

/// A rank of another node says how many packets it has sent, but not how many messages. So it sends
/// a packet behind them.
#[test]
fn the_last_packet_to_another_node_comes_behind_all_messages() {
    let Some([mut zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    let data = Data::Contig(ContigBuf::from_bytes(b"x"));
    until("the message does not leave", || {
        zero.step();
        one.step();
        let Core { ofi, tags } = &mut one;
        // SAFETY: the byte lives as long as the program.
        unsafe { tags.launch(ofi, &args(0, FROM), &data) }
    });
    one.send_last_packets(Instant::now());
    assert_eq!(one.ofi.peers[0].sent, 0, "it is on the same node");
    for (rank, packets) in [(&mut zero, 0), (&mut one, 1)] {
        apart(&mut rank.ofi);
        rank.send_last_packets(Instant::now());
        let sent: u32 = rank.ofi.peers.iter().map(|peer| peer.sent).sum();
        assert_eq!(sent, packets, "only to those to which it has sent messages");
    }
    zero.ofi.shared.counts.hear_last(1, 1);
    zero.ofi.shared.roster.leave(1);
    assert!(!zero.ofi.has_left(1), "its packet is under way");
    until("the packet does not come", || {
        zero.step();
        zero.ofi.has_left(1)
    });
    let look = zero.tags.look(&mut zero.ofi, &from(FROM), false).unwrap();
    until("the look is not answered", || {
        zero.step();
        match zero.tags.seen(look) {
            Seen::Later => false,
            seen => {
                assert!(matches!(seen, Seen::Message(_)), "the packet came first");
                true
            }
        }
    });
}

/// For a time as long as packets may take, nobody takes it for granted that all is there.
#[test]
fn a_last_packet_that_does_not_leave_counts() {
    let Some([_zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    let Core { ofi, .. } = &mut one;
    assert!(insert(ofi, 0));
    ofi.peers[0].acked = 0_u32.wrapping_sub(WINDOW);
    apart(ofi);
    let long_ago = Instant::now().checked_sub(2 * FAREWELL);
    one.send_last_packets(long_ago.expect("a while"));
    assert_eq!(one.ofi.peers[0].sent, 1);
}

/// It says nothing.
#[test]
fn the_last_packet_does_nothing() {
    let Some([zero, one]): Option<[Rank; 2]> = ranks("auto") else {
        return; // The skip has been printed.
    };
    delivered(&zero, &one);
    apart(&mut one.shared.lock().ofi);
    drop(one);
    until("the packet does not come", || {
        zero.engine.poll();
        zero.shared.lock().ofi.peers[1].expected == 1
    });
    assert_eq!(zero.shared.lock().ofi.shared.deaths.count(), 0);
    let received = |(name, count): (&str, u64)| name == "active_received" && count == 1;
    assert!(zero.counters().into_iter().any(received));
}

/// The provider's own answer to a long message, which ends the send, comes before it as well.
#[test]
fn who_has_only_received_sends_a_last_packet_too() {
    let Some([mut zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    let mut room = [0];
    // SAFETY: buffer and byte outlive the ranks.
    unsafe {
        zero.receive(&mut room);
        let Core { ofi, tags } = &mut one;
        let data = Data::Contig(ContigBuf::from_bytes(b"x"));
        tags.start_send(ofi, request(2), &args(0, FROM), data)
            .unwrap();
    }
    until("the message does not arrive", || {
        one.step();
        zero.step();
        zero.end().is_some()
    });
    assert_eq!(zero.ofi.peers[1].addr, FI_ADDR_NOTAVAIL, "nothing was sent");
    apart(&mut zero.ofi);
    zero.send_last_packets(Instant::now());
    until("no packet comes", || {
        zero.step();
        one.step();
        one.ofi.peers[0].expected == 1
    });
}

/// What is for a rank that has left is not waited for; what is for another one is.
#[test]
fn a_departure_does_not_cut_the_farewell_to_the_living() {
    static MESSAGE: [u8; 4 << 20] = [7; 4 << 20];
    let Some([zero, one, two]): Option<[Rank; 3]> = ranks("auto") else {
        return; // The skip has been printed.
    };
    let send = isend(&zero, &args(2, 0), &MESSAGE);
    both("it is not announced", &zero, &two, || {
        zero.shared.lock().tags.is_under_way()
    });
    drop(one);
    left(&zero);
    zero.engine.poll();
    assert!(!zero.is_complete(send), "its receiver may still ask for it");
    let start = Instant::now();
    drop(zero);
    assert!(start.elapsed() >= FAREWELL);
}
