//! How long ranks sleep.

use super::*;

/// `ofi_rxd` resends a lost datagram only within a call, and nothing reports that it is due. So a
/// rank with a packet under way must not sleep for long, although the message is complete for the
/// engine. `ofi_rxd` (1.17 and 2.5) has no descriptor, so ranks do not sleep over it at all; a
/// version that has one would need more than that.
#[test]
fn a_rank_whose_datagram_may_be_lost_does_not_sleep() {
    let config = Config {
        provider: Some("ofi_rxd".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let Some(mut ranks) = opened_or_skipped("sleeping over ofi_rxd", 2, &config) else {
        return; // The skip has been printed.
    };
    let [zero, one] = &mut ranks[..] else {
        panic!("two ranks");
    };
    // SAFETY: rank 1 exists and is not rank 0; no bytes are read.
    let sent = unsafe { zero.send_short(1, &Header::default(), std::ptr::null(), 0) };
    assert_eq!(sent, Sent::Done);
    // Rank 1 does not poll, so it cannot have acknowledged anything.
    zero.arm();
    zero.poll(&mut Nobody);
    assert!(zero.bell.is_brief(), "nothing would wake it");
    zero.disarm();
    // Otherwise rank 0 would wait for the acknowledgement when it leaves.
    while !zero.has_nothing_to_say() {
        one.poll(&mut Nobody);
        zero.poll(&mut Nobody);
    }
}

/// At level Multiple one thread sleeps while another sends. The provider has no room for its
/// packet yet, and nothing that arrives will show that it has.
#[test]
fn a_packet_that_has_to_wait_wakes_a_thread_that_sleeps() {
    let Some(mut ranks) = pair("tcp", Way::Asked) else {
        return; // The skip has been printed.
    };
    let [zero, one] = &mut ranks;
    let bell = zero.bell();
    zero.arm();
    let seen = bell.seen();
    zero.poll(&mut Nobody);
    assert!(!zero.bell.is_brief(), "there is nothing to do yet");
    assert_eq!(bell.seen(), seen);
    // The ranks are not connected yet. The packet is longer than what is copied in the call.
    let data = vec![7; zero.link.limits.bulk];
    // SAFETY: rank 1 exists and is not rank 0; as many bytes are readable.
    let sent = unsafe { zero.send_bulk_from(1, &Header::default(), data.as_ptr(), data.len()) };
    assert_eq!(sent, Sent::Done);
    assert!(!zero.waiting.is_empty(), "the provider has taken it");
    assert_ne!(bell.seen(), seen, "the other thread sleeps on");
    assert!(zero.bell.is_brief());
    let mut heard = Heard(0);
    while heard.0 == 0 {
        zero.poll(&mut Nobody);
        one.poll(&mut heard);
    }
    zero.disarm();
    assert_eq!(heard.0, data.len());
}
