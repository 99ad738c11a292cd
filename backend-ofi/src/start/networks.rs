//! Checks whether the ranks' addresses can be on one network, as far as the addresses show.

use std::net::{IpAddr, SocketAddr};

use crate::addr::Card;
use crate::deaths::sever;

/// The network stack of a rank: its host's boot id and the network namespace. Containers may share
/// one even if each numbers its processes itself, which makes them different nodes in every other
/// respect.
fn stack(card: &Card) -> (&str, &str) {
    let mut parts = card.node.split(':');
    let boot = parts.next().unwrap_or_default();
    (boot, parts.next_back().unwrap_or_default())
}

/// The host and the address of a rank, for messages.
fn place(rank: usize, card: &Card) -> String {
    let address = match sever::parse(&card.address) {
        Some(address) => address.ip().to_string(),
        None => format!("an address of {} bytes", card.address.len()),
    };
    format!("rank {rank} (on {}) is at {address}", card.host)
}

/// Why the ranks' addresses, which are IP addresses, cannot be in one vector of a provider, which
/// takes one family and reads as many bytes as that has; `None` if they can. It does not matter on
/// which nodes the ranks are. Every rank comes to the same verdict.
pub(crate) fn mixed(cards: &[Card]) -> Option<String> {
    let kind = |card: &Card| {
        (
            card.address.len(),
            card.address.get(..2).map(<[u8]>::to_vec),
        )
    };
    let first = cards.first()?;
    let mut others = cards.iter().enumerate();
    let (rank, other) = others.find(|(_, card)| kind(card) != kind(first))?;
    Some(format!(
        "the ranks' addresses are of different families: {}; {}",
        place(0, first),
        place(rank, other)
    ))
}

/// Why ranks of different nodes cannot communicate; `None` if nothing shows that they cannot. Every
/// rank has the same cards and comes to the same verdict.
///
/// Addresses of different subnets are accepted, because networks are routed.
pub(crate) fn apart(cards: &[Card]) -> Option<String> {
    let known = cards.iter().enumerate();
    let known: Vec<(usize, &Card, SocketAddr)> = known
        .filter_map(|(rank, card)| Some((rank, card, sever::parse(&card.address)?)))
        .collect();
    let (first, own, _) = *known.first()?;
    let other = known
        .iter()
        .find(|(_, card, _)| stack(card) != stack(own))?;
    // A rank that can only be reached on its own node, while some other rank is on another node.
    let mut all = known.iter();
    let &(rank, card, _) = all.find(|(_, _, address)| is_inward(address.ip()))?;
    let elsewhere = match stack(card) == stack(own) {
        true => place(other.0, other.1),
        false => place(first, own),
    };
    Some(format!(
        "{}, which nobody on another node reaches; {elsewhere}",
        place(rank, card)
    ))
}

/// Layers that join processes of one node only, through its shared memory. They do not notice that
/// a peer is on another node, and wait for it for ever.
const OF_ONE_NODE: &[&str] = &["shm", "sm2"];

/// Why ranks of different nodes cannot communicate over their provider, which is the same for all;
/// `None` if it joins nodes, or if there is only one. Every rank comes to the same verdict.
pub(crate) fn confined(cards: &[Card]) -> Option<String> {
    let first = cards.first()?;
    let (rank, other) = cards
        .iter()
        .enumerate()
        .find(|(_, card)| card.node != first.node)?;
    let provider = first.provider();
    let mut layers = provider.split(';');
    layers.find(|layer| OF_ONE_NODE.contains(layer))?;
    Some(format!(
        "provider {provider} joins ranks of one node only, and rank 0 (on {}) and rank {rank} (on {}) are on \
         different ones",
        first.host, other.host
    ))
}

/// Whether an address refers to the own host on every host.
fn is_inward(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Process;

    /// An address as the system has it in memory.
    fn bytes(ip: &str) -> Vec<u8> {
        match ip.parse().unwrap() {
            IpAddr::V4(ip) => [
                &(libc::AF_INET as u16).to_ne_bytes()[..],
                &[4, 0],
                &ip.octets(),
            ]
            .concat(),
            IpAddr::V6(ip) => [
                &(libc::AF_INET6 as u16).to_ne_bytes()[..],
                &[4, 0, 0, 0, 0, 0],
                &ip.octets(),
            ]
            .concat(),
        }
    }

    fn card(node: &str, address: Vec<u8>) -> Card {
        Card {
            process: Process::own(),
            node: node.to_owned(),
            host: format!("host-of-{node}"),
            protocol: "tcp 1.1".to_owned(),
            address,
            roster: None,
            pulse: None,
        }
    }

    #[test]
    fn one_node_may_talk_by_any_address() {
        let cards = [card("a", bytes("127.0.0.1")), card("a", bytes("10.0.0.1"))];
        assert_eq!(apart(&cards), None);
        assert_eq!(apart(&[]), None);
    }

    #[test]
    fn containers_may_share_a_network() {
        let inside = |node| card(node, bytes("127.0.0.1"));
        assert_eq!(apart(&[inside("boot:1:7"), inside("boot:2:7")]), None);
        for other in ["boot:1:8", "toob:1:7"] {
            assert!(apart(&[inside("boot:1:7"), inside(other)]).is_some());
        }
    }

    #[test]
    fn networks_may_be_routed_and_other_addresses_are_not_judged() {
        let cards = [card("a", bytes("10.0.0.1")), card("b", bytes("10.9.0.1"))];
        assert_eq!(apart(&cards), None);
        let cards = [card("a", b"fi_shm://1".into()), card("b", bytes("::1"))];
        assert_eq!(apart(&cards), None, "there is nobody to compare it with");
    }

    #[test]
    fn whoever_is_at_home_only_is_named_with_somebody_elsewhere() {
        let outside = "10.0.0.1";
        for inside in ["127.0.0.1", "0.0.0.0"] {
            for swapped in [false, true] {
                let mut cards = [card("a", bytes(inside)), card("b", bytes(outside))];
                if swapped {
                    cards.reverse();
                }
                let why = apart(&cards).unwrap();
                for part in [inside, outside, "rank 0", "rank 1", "host-of-a"] {
                    assert!(why.contains(part), "{why}");
                }
            }
        }
    }

    #[test]
    fn shared_memory_joins_no_nodes() {
        let card = |node: &str, protocol: &str| Card {
            protocol: protocol.to_owned(),
            ..card(node, b"fi_shm://1".into())
        };
        for protocol in ["shm 1.2+atomics of libfabric 2.5", "tcp;sm2 1.1"] {
            let of = |node| card(node, protocol);
            assert_eq!(confined(&[of("a"), of("a")]), None);
            let why = confined(&[of("a"), of("a"), of("b")]).unwrap();
            let wanted = "rank 0 (on host-of-a) and rank 2 (on host-of-b)";
            assert!(why.contains(wanted), "{why}");
        }
        let (here, there) = (card("a", "tcp 1.2"), card("b", "tcp 1.2"));
        assert_eq!(confined(&[here, there]), None);
        assert_eq!(confined(&[]), None);
    }

    #[test]
    fn families_do_not_mix() {
        for node in ["a", "b"] {
            let cards = [
                card("a", bytes("10.0.0.1")),
                card(node, bytes("10.0.0.2")),
                card(node, bytes("fd00::1")),
            ];
            let why = mixed(&cards).unwrap();
            let wanted = format!(
                "rank 0 (on host-of-a) is at 10.0.0.1; rank 2 (on host-of-{node}) is at fd00::1"
            );
            assert!(why.contains(&wanted), "{why}");
            assert_eq!(mixed(&cards[..2]), None);
        }
        assert_eq!(mixed(&[]), None);
    }

    #[test]
    fn addresses_that_are_cut_off_are_found() {
        let whole = bytes("::1");
        let cards = [&whole[..], &whole[..16], &[]].map(|bytes| card("a", bytes.to_vec()));
        let why = mixed(&cards[..2]).unwrap();
        assert!(
            why.contains("rank 1 (on host-of-a) is at an address of 16 bytes"),
            "{why}"
        );
        assert!(mixed(&[cards[0].clone(), cards[2].clone()]).is_some());
    }
}
