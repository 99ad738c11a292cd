//! What this transport can do, and the sizes that the engine has to respect.

use libfabric_sys::{FI_MULTI_RECV, FI_ORDER_SAS};
use portolan_core::transport::{Limits, TransportCaps};

use crate::config::Config;
use crate::endpoint::Domain;
use crate::packets::wire::Wire;
use crate::start::info::Info;

/// Largest payload of a short packet.
pub(crate) const SHORT: usize = 1024;

/// Largest payload of a bulk packet, where the provider allows it.
const BULK: usize = 16 << 10;

/// The same, for a provider whose limit for messages sent at once is not known: that limit is often
/// 16 KiB, headers included.
const BULK_OF_UNKNOWN: usize = (16 << 10) - 512;

/// The same over TCP, where a longer packet costs a round trip. Longer messages are read just as
/// fast.
const BULK_OVER_TCP: usize = 64 << 10;

/// Longest bundle of short messages: about what the providers copy at once. Beyond that, the bytes
/// soon cost more than the packet itself does.
const BUNDLE: usize = 8 << 10;

/// How many bytes layers over connections send at once (`FI_OFI_RXM_BUFFER_SIZE`, unless a user
/// changes that).
const AT_ONCE: usize = 16 << 10;

/// How many bytes `ofi_rxm` sends at once over TCP, given the value of [`Config::RXM_AT_ONCE`],
/// which lists everything that depends on it.
fn at_once_over_tcp(told: Option<&str>) -> usize {
    let told = told.and_then(|told| told.trim().parse::<usize>().ok());
    told.unwrap_or(AT_ONCE).max(AT_ONCE)
}

/// The least room for the excess of a message that is too long for its buffer: providers whose
/// limit is not known send less than this in one packet.
const SINK: usize = 64 << 10;

/// By how many bytes a message that the provider matches may exceed its buffer without the provider
/// noticing: at least as many as it sends at once. The TCP provider of 1.17 gives up the connection
/// if more of such a message arrives than there is room for.
pub(crate) fn sink(config: &Config, info: &Info) -> usize {
    at_once(config, info).max(SINK)
}

/// How many bytes of a message that the provider matches it sends at once. A send of more is not
/// over before it is matched.
pub(crate) fn at_once(config: &Config, info: &Info) -> usize {
    match over(info, "ofi_rxm") {
        true => at_once_over_tcp(config.at_once.as_deref()),
        false => SINK,
    }
}

/// Whether no packet to a rank overtakes another. That is so over TCP, unless a layer above it
/// announces messages, as `ofi_rxm` does with those longer than its limit.
pub(crate) fn keeps_order(config: &Config, info: &Info) -> bool {
    over(info, "tcp") && (!over(info, "ofi_rxm") || at_once_is_enough(config.at_once.as_deref()))
}

fn at_once_is_enough(told: Option<&str>) -> bool {
    told.is_none_or(|told| told.trim().parse().is_ok_and(|told: usize| told >= AT_ONCE))
}

/// The limit set for `ofi_rxm`, in the words of the setting, where it takes effect: `ofi_rxm`
/// connects only to ranks with the same value.
pub(crate) fn told_of_rxm(config: &Config, info: &Info) -> Option<String> {
    let heeded = over(info, "tcp") && over(info, "ofi_rxm");
    heeded.then(|| {
        let told = config.at_once.as_deref().map_or("unset", str::trim);
        format!("{} {told}", Config::RXM_AT_ONCE)
    })
}

/// The longest payload of one message of `ofi_rxm`, and of a packet, where it sends `at_once` bytes
/// at once. A packet in several parts takes longer than one that is announced. So a packet is no
/// longer than a part, except for its last few bytes.
fn over_rxm(at_once: usize) -> (usize, usize) {
    let part = at_once - Wire::LEN;
    let bulk = match part >= BULK_OVER_TCP {
        true => BULK_OVER_TCP,
        false => BULK,
    };
    (part.min(bulk), bulk)
}

/// Bytes of a receive buffer over libfabric's shared memory, where this rank itself copies messages
/// into the buffer and out of it: at this size, all buffers stay in a cache of its own.
const RECEIVE_OVER_SHM: usize = 64 << 10;

/// Whether a layer of the provider has this name.
pub(crate) fn over(info: &Info, layer: &str) -> bool {
    info.provider().split(';').any(|name| name == layer)
}

/// Layers with a socket for each connection.
const CONNECTING: &[&str] = &["tcp", "net", "sockets"];

/// Whether an endpoint needs descriptors for each rank that it communicates with.
pub(crate) fn connects(info: &Info) -> bool {
    CONNECTING.iter().any(|layer| over(info, layer))
}

/// Bytes of a receive buffer over this provider.
fn receive(config: &Config, info: &Info) -> usize {
    match over(info, "shm") {
        true => config.receive.min(RECEIVE_OVER_SHM),
        false => config.receive,
    }
}

/// Providers that do not always report that a message came with a word. `sockets` keeps a message
/// for which it has no receive buffer. When it hands that message over later, the word is there,
/// but the flag that says so is not (seen with libfabric 1.17), so the message could not be told
/// from one with a header. `sm2` leaves the flag out where there is a receive buffer, too (seen
/// with 2.5).
const FORGETFUL: &[&str] = &["sockets", "sm2"];

/// Layers that give up packets they have injected, and report only that something was lost.
/// `ofi_rxd` does so with everything under way to a peer that has not answered for long. For an
/// operation with a context it reports the failure with that context, which names the peer; so
/// nothing is injected over such layers.
const SILENT: &[&str] = &["ofi_rxd"];

/// Longest packet that a provider may be asked to copy within the call.
pub(crate) fn inject(info: &Info) -> usize {
    match SILENT.iter().any(|layer| over(info, layer)) {
        true => 0,
        false => info.tx_attr().inject_size,
    }
}

/// Layers over datagrams that stop for good when too much is under way.
///
/// `ofi_rxd` (1.17) handles at most 1,000 events of the datagram provider in a call, before it
/// resends what has not been acknowledged. If more wait, it resends datagrams whose
/// acknowledgements lie among them, each of these is acknowledged once more, and the queue of 2,048
/// events fills up. Events are lost then, and datagrams whose events were lost stay in use for
/// ever. So only so much leaves at once, and only so many datagrams are taken from the network at
/// once, that the queue stays far from full. What else has come waits in the system, or is lost
/// and resent.
const FLOODED: &[&str] = &["ofi_rxd"];

/// Long packets on their way to one peer, over such layers; each takes several datagrams.
const SLOTS_OF_FLOODED: usize = 8;

/// Receives that such a layer has room for: it takes as many datagrams at once.
const RECEIVES_OF_FLOODED: usize = 256;

/// Most receive buffers that wait there, each for one message.
const BUFFERS_OF_FLOODED: usize = 64;

fn is_flooded(info: &Info) -> bool {
    FLOODED.iter().any(|layer| over(info, layer))
}

/// Layers that are not given buffers for many messages, although they offer that.
///
/// When such a buffer is posted, `ofi_rxd` (2.5) gives each message that has come before it a copy
/// of the buffer's receive, with its place in the list of receives. If the message is complete only
/// later, removing the copy damages the list: it becomes a circle, or holds what has been freed.
const COPYING: &[&str] = &["ofi_rxd"];

/// Whether a receive buffer takes many messages.
pub(crate) fn takes_many(info: &Info) -> bool {
    let copies = COPYING.iter().any(|layer| over(info, layer));
    info.get().caps & FI_MULTI_RECV != 0 && !copies
}

/// How many receive buffers there are for messages of at most `largest` bytes, and their bytes.
pub(crate) fn buffers(config: &Config, info: &Info, largest: usize) -> (usize, usize) {
    let wished = receive(config, info).max(largest);
    if takes_many(info) {
        return (Config::RECEIVES, wished);
    }
    let most = match is_flooded(info) {
        true => BUFFERS_OF_FLOODED,
        false => usize::MAX,
    };
    let count = (wished * Config::RECEIVES / largest).clamp(2, most);
    (count, largest)
}

/// Long packets that may be on their way to one peer, and how many more to other peers.
pub(crate) fn slots(config: &Config, info: &Info) -> (usize, usize) {
    match is_flooded(info) {
        // A quarter of so few would serve only two more peers.
        true => [config.slots.min(SLOTS_OF_FLOODED); 2].into(),
        false => (config.slots, config.slots.div_ceil(4)),
    }
}

/// How many receives a layer is to have room for, where its own choice would be too many.
pub(crate) fn receives(info: &Info) -> Option<usize> {
    (is_flooded(info) && info.rx_attr().size > RECEIVES_OF_FLOODED).then_some(RECEIVES_OF_FLOODED)
}

/// Whether packets may omit their headers: the provider transmits a word with each message, and
/// tells the receiver so. And it keeps the order of messages: a word has room for the lower bits of
/// an acknowledgement only, which many others must not overtake ([`complete`]).
///
/// [`complete`]: crate::packets::headerless::complete
pub(crate) fn words(info: &Info) -> bool {
    let forgets = FORGETFUL.iter().any(|layer| over(info, layer));
    let orders = info.tx_attr().msg_order & info.rx_attr().msg_order;
    info.domain_attr().cq_data_size >= 8 && orders & FI_ORDER_SAS != 0 && !forgets
}

/// Capabilities lost by a rank that is no longer told how operations on its peers' memory end.
pub(crate) const OF_REMOTES: TransportCaps = TransportCaps::REMOTE.union(TransportCaps::ATOMICS);

/// The capabilities that follow from a domain and its provider.
pub(crate) fn caps(domain: &Domain, processes: bool) -> TransportCaps {
    let mut caps = TransportCaps::empty();
    caps.set(TransportCaps::SLEEP, domain.wait.is_some());
    caps.set(TransportCaps::PULL, domain.rma);
    caps.set(TransportCaps::PULL_FAR, domain.rma);
    caps.set(TransportCaps::REMOTE, domain.remote);
    caps.set(TransportCaps::ATOMICS, domain.atomics);
    caps.set(TransportCaps::PROCESSES, processes);
    caps
}

/// The longest payload of one message over libfabric's shared memory: what the provider copies at
/// once. It reads longer messages from where they are. Where that size is very small, or unknown
/// (0), splitting packets into many parts gains nothing.
fn part_over_shm(injected: usize) -> usize {
    match injected {
        0..1024 => BULK,
        _ => injected.min(BULK + Wire::LEN) - Wire::LEN,
    }
}

/// The sizes over a provider, and the longest payload of one of its messages: packets may go in
/// parts. Ranks need not agree about the latter, because they accept any part that is not longer
/// than a packet.
pub(crate) fn limits(config: &Config, info: &Info) -> (Limits, usize) {
    let provider = info.provider();
    let (part, bulk) = if over(info, "ofi_rxm") {
        over_rxm(match over(info, "tcp") {
            true => at_once_over_tcp(config.at_once.as_deref()),
            false => AT_ONCE,
        })
    } else if over(info, "shm") {
        (part_over_shm(info.tx_attr().inject_size), BULK)
    } else if provider == "tcp" {
        (BULK_OVER_TCP, BULK_OVER_TCP)
    } else {
        (BULK_OF_UNKNOWN, BULK_OF_UNKNOWN)
    };
    let largest = info.ep_attr().max_msg_size.saturating_sub(Wire::LEN);
    let (part, bulk) = match part <= largest {
        true => (part, bulk),
        false => (largest, largest),
    };
    let limits = Limits {
        short: SHORT.min(part),
        bulk,
        eager: config.eager.min(bulk),
        piece: bulk,
        bundle: BUNDLE.min(part),
        grows: 0,
    };
    (limits, part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_over_tcp_are_as_long_as_they_leave_at_once() {
        for (told, part, bulk) in [
            (None, AT_ONCE - Wire::LEN, BULK),
            (Some("many"), AT_ONCE - Wire::LEN, BULK),
            (Some("100"), AT_ONCE - Wire::LEN, BULK),
            (Some("32768"), BULK, BULK),
            (Some("65575"), BULK, BULK),
            (Some("65576"), BULK_OVER_TCP, BULK_OVER_TCP),
            (Some(" 131072"), BULK_OVER_TCP, BULK_OVER_TCP),
        ] {
            assert_eq!(over_rxm(at_once_over_tcp(told)), (part, bulk), "{told:?}");
        }
    }

    #[test]
    fn layers_that_were_told_too_little_announce() {
        for (told, enough) in [
            (None, true),
            (Some(" 131072"), true),
            (Some("16384"), true),
            (Some("100"), false),
            (Some("many"), false),
        ] {
            assert_eq!(at_once_is_enough(told), enough, "{told:?}");
        }
    }

    #[test]
    fn parts_over_shared_memory_are_what_is_copied_at_once() {
        for (injected, part) in [
            (0, BULK),
            (500, BULK),
            (1023, BULK),
            (1024, 1024 - Wire::LEN),
            (4096, 4096 - Wire::LEN),
            (1 << 20, BULK),
        ] {
            assert_eq!(part_over_shm(injected), part, "{injected}");
        }
    }
}
