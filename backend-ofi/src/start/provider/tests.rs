//! What providers are not asked for, and why.

use libfabric_sys::FI_RM_ENABLED;
use portolan_core::config::MatchMode;
use portolan_core::transport::{Header, Sent, Transport};

use super::{Offer, choose, offers, reason, wanted};
use crate::config::Config;
use crate::start::info::Info;
use crate::start::interfaces::Interfaces;
use crate::testing::{Count, opened_or_skipped, skipped};

/// More polls than any step here takes.
const POLLS: u32 = 5_000_000;

#[test]
fn what_waits_for_a_peer_is_not_stopped_by_what_overtakes_it() {
    const LEN: usize = 1 << 16;
    const EARLY: usize = 24;
    const LATE: usize = 11;
    let config = Config {
        provider: Some("ofi_rxd".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let (source, mut target) = (vec![7_u8; LEN], vec![0_u8; 2 * LEN]);
    let what = "messages beside reads over datagrams";
    let Some(mut ranks) = opened_or_skipped(what, 2, &config) else {
        return; // The skip has been printed.
    };
    let [zero, one] = &mut *ranks else {
        unreachable!("two ranks")
    };
    // With as few packets as are sent at once since, they would end even if reads were used.
    assert!(!zero.link.domain.rma, "reads are not asked for");
    // SAFETY: the buffers outlive the ranks.
    unsafe {
        if let Some(exposure) = one.expose(source.as_ptr(), LEN) {
            for place in [0, LEN] {
                let _ = zero.pull(1, &exposure, 0, target.as_mut_ptr().add(place), LEN);
            }
        }
    }
    let len = zero.limits().bulk;
    // Sends as many of these packets as there is room for. Returns how many are left.
    let send = |zero: &mut crate::Ofi, count: usize| {
        let fill = |place: *mut u8| {
            // SAFETY: there is room for as many bytes.
            unsafe { place.write_bytes(1, len) };
        };
        // SAFETY: another rank, which exists; as many bytes are written as there is room for.
        let mut one = || unsafe { zero.send_bulk(1, &Header::default(), len, fill) };
        (1..=count).rev().find(|_| one() != Sent::Done).unwrap_or(0)
    };
    // These wait for a connection, and so do the reads. The next ones leave when the first read has
    // left.
    let early = send(zero, EARLY);
    assert!(early < EARLY);
    let (mut nothing, mut count) = (Count(0), Count(0));
    one.poll(&mut count);
    zero.poll(&mut nothing);
    let mut left = send(zero, early + LATE);
    let mut polls = 0;
    while count.0 < EARLY + LATE {
        one.poll(&mut count);
        zero.poll(&mut nothing);
        left = send(zero, left);
        polls += 1;
        assert!(polls < POLLS, "{} have arrived, and no more will", count.0);
    }
}

#[test]
fn packets_to_who_has_left_are_not_waited_for() {
    let config = Config {
        provider: Some("ofi_rxd".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let Some(mut ranks) = opened_or_skipped("leaving after others", 2, &config) else {
        return; // The skip has been printed.
    };
    let (one, mut zero) = (ranks.remove(1), ranks.remove(0));
    let len = zero.limits().bulk;
    let fill = |place: *mut u8| {
        // SAFETY: there is room for as many bytes.
        unsafe { place.write_bytes(1, len) };
    };
    // SAFETY: another rank, which exists; as many bytes are written as there is room for.
    let sent = unsafe { zero.send_bulk(1, &Header::default(), len, fill) };
    assert_eq!(sent, Sent::Done);
    assert!(!zero.has_nothing_to_say(), "it has not been acknowledged");
    drop(one);
    assert!(zero.has_nothing_to_say());
}

/// `ofi_rxd` gives up packets that a peer does not acknowledge; for injected packets, nothing would
/// tell which peer they were for.
#[test]
fn short_packets_over_datagrams_name_their_peer_if_they_are_lost() {
    let config = Config {
        provider: Some("ofi_rxd".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let Some(mut ranks) = opened_or_skipped("packets that are lost", 2, &config) else {
        return; // The skip has been printed.
    };
    let [zero, _one] = &mut *ranks else {
        unreachable!("two ranks")
    };
    for len in [0, 8, 64] {
        // SAFETY: another rank, which exists; as many bytes are readable.
        let sent = unsafe { zero.send_short(1, &Header::default(), [7; 64].as_ptr(), len) };
        assert_eq!(sent, Sent::Done, "{len} bytes");
        assert!(!zero.peers[1].injected, "{len} bytes are copied");
    }
    assert!(zero.link.small.concern(|peer| peer == 1));
}

#[test]
fn who_lets_queues_overflow_is_not_used_and_is_told() {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let Ok((library, mut info)) = choose(&config) else {
        return skipped("queues that overflow", "there is no tcp over lo");
    };
    let hints = Info::hints(library, 0).expect("hints");
    assert_eq!(hints.domain_attr().resource_mgmt, FI_RM_ENABLED);
    let interfaces = Interfaces::now();
    assert!(!reason(&info, &config, &interfaces).contains("FI_RM_ENABLED"));
    info.let_overflow();
    assert!(reason(&info, &config, &interfaces).contains("FI_RM_ENABLED"));
}

/// Like `verbs`, which has adapters for domains, and the addresses of interfaces.
#[test]
fn an_interface_is_found_by_its_address_where_the_domain_has_another_name() {
    let on = |interface: &str| Config {
        interface: Some(interface.to_owned()),
        provider: Some("tcp".to_owned()),
        ..Config::default()
    };
    let Ok((_, mut info)) = choose(&on("lo")) else {
        return skipped("an interface by its address", "there is no tcp over lo");
    };
    info.set_domain("mlx5_7");
    let address = info.ip().expect("an address of IP").to_string();
    let interfaces = Interfaces::now();
    for (wish, is) in [
        ("lo", true),
        (&*address, true),
        ("mlx5_7", true),
        ("ib7", false),
    ] {
        assert_eq!(wanted(&info, &on(wish), &interfaces), is, "{wish}");
    }
}

#[test]
fn tcp_goes_without_a_layer_where_it_needs_none() {
    for (matching, best) in [
        (MatchMode::Software, ["tcp", "tcp;ofi_rxm"]),
        (MatchMode::Native, ["tcp;ofi_rxm", "tcp"]),
    ] {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            matching,
            ..Config::default()
        };
        let (Ok((_, offers)), Ok((_, chosen))) = (offers(&config), choose(&config)) else {
            return skipped("the provider tcp", "it is not there");
        };
        let usable = |name: &&str| {
            let this = |offer: &Offer| offer.provider == *name && offer.unusable.is_none();
            offers.iter().any(this)
        };
        assert_eq!(Some(&*chosen.provider()), best.into_iter().find(usable));
    }
}
