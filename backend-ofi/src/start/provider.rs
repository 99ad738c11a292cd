//! Chooses the provider: lists what libfabric offers, which offers are usable, and the best of
//! these.

use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;

use libfabric_sys::{
    FI_ATOMIC, FI_EP_DGRAM, FI_EP_MSG, FI_EP_RDM, FI_HMEM, FI_MSG, FI_MULTI_RECV, FI_RM_ENABLED,
    FI_RMA, FI_TAGGED, Library,
};
use portolan_core::config::Switch;
use portolan_core::{Error, ErrorKind, Result};

use crate::config::Config;
use crate::memory::hmem::Accelerators;
use crate::start::info::Info;
use crate::start::interfaces::Interfaces;
use crate::start::library::{self, keeping_signals};

/// Providers that are not the first choice although libfabric may list them first, in order of
/// preference. A provider not named here is hardware of some kind, and preferred to all of these.
///
/// In 2.x, `tcp` has reliable datagrams of its own; libfabric names it first there as well, and it
/// takes less time than with a layer on top, less than half for 32 and 64 KiB. In 1.17 it has none.
const COMMON: &[&str] = &[
    "tcp",
    "tcp;ofi_rxm",
    "net",
    "net;ofi_rxm",
    "shm",
    "sm2",
    "sockets",
    "udp;ofi_rxd",
];

/// Layers whose remote operations are not used: they are not asked for `FI_RMA`.
///
/// `ofi_rxd` (1.17 to 2.5) walks through the operations that wait for a peer, and ends the walk at
/// a read request. A message that is sent next overtakes the operations after that request. If the
/// message is longer than the window of unacknowledged datagrams has room for, these operations
/// take the rest of the window. The receiver wants the rest of the message first, so neither side
/// ever continues.
const ONLY_MESSAGES: &[&str] = &["ofi_rxd"];

/// Providers that do their work in a thread of their own, unless they are asked to leave it to the
/// program's calls.
///
/// The thread of `sockets` polls without a pause, next to a rank that does the same: with one core
/// per rank, it only runs at the scheduler's ticks. With it, half a round trip of 8 bytes took 16
/// ms.
const THREADED: &[&str] = &["sockets"];

/// Something that libfabric offers, and why it is not usable if it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offer {
    /// Name of the provider; layers are separated by semicolons.
    pub provider: String,
    /// Name of the fabric: for IP networks the subnet.
    pub fabric: String,
    /// Name of the domain: for IP networks the interface.
    pub domain: String,
    /// Why it cannot be used; `None` if it can.
    pub unusable: Option<String>,
    /// Whether it takes accelerator memory (`FI_HMEM`), which otherwise goes through the host.
    pub hmem: bool,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} ({})", self.provider, self.domain, self.fabric)
    }
}

/// Everything that libfabric offers on this machine under these settings, the best first, and the
/// version of the library.
///
/// # Errors
/// Why there is no library, or the error that it returned instead of a list.
pub fn offers(config: &Config) -> Result<(String, Vec<Offer>), String> {
    let library = library::open(config)?;
    let (major, minor) = library.version();
    let usable = suited(library, config).unwrap_or_default();
    let all = keeping_signals(|| Info::list(library, None))?;
    let usable = usable.iter().map(|info| offer(info, None));
    let interfaces = Interfaces::now();
    let others = all
        .iter()
        .map(|info| offer(info, Some(reason(info, config, &interfaces))));
    let mut offers: Vec<Offer> = Vec::new();
    // The library repeats an offer for each combination of its attributes.
    for offer in usable.chain(others) {
        if !offers
            .iter()
            .any(|known| known.to_string() == offer.to_string())
        {
            offers.push(offer);
        }
    }
    let with = Info::hints(library, FI_HMEM)
        .and_then(|hints| keeping_signals(|| Info::list(library, Some(&hints))))
        .unwrap_or_default();
    for offer in &mut offers {
        let same = |info: &Info| {
            (info.provider(), info.domain()) == (offer.provider.clone(), offer.domain.clone())
        };
        offer.hmem = with.iter().any(same);
    }
    Ok((format!("{major}.{minor}"), offers))
}

fn offer(info: &Info, unusable: Option<String>) -> Offer {
    Offer {
        provider: info.provider(),
        fabric: info.fabric(),
        domain: info.domain(),
        unusable,
        hmem: false,
    }
}

/// Why an entry of the complete list is not usable.
fn reason(info: &Info, config: &Config, interfaces: &Interfaces) -> String {
    match info.ep_attr().type_ {
        FI_EP_MSG => {
            "it has connected endpoints only, without a layer of reliable datagrams".into()
        }
        FI_EP_DGRAM => "its datagrams may be lost".into(),
        FI_EP_RDM if info.get().caps & FI_MSG == 0 => "it has no plain messages".into(),
        FI_EP_RDM if info.domain_attr().resource_mgmt != FI_RM_ENABLED => {
            "it lets its queues overflow: it has no FI_RM_ENABLED".into()
        }
        FI_EP_RDM if let Some(name) = interfaces.below(info) => format!("interface {name} is down"),
        FI_EP_RDM if !wanted(info, config, interfaces) => {
            format!("it is not asked for: {}", config.wishes())
        }
        _ if config.hmem == Switch::On => {
            "it has no FI_HMEM, which is asked for: PORTOLAN_OFI_HMEM=on".into()
        }
        _ => "it wants modes of memory or completion that Portolan does not know".into(),
    }
}

/// The best usable provider, described with all capabilities of it that can be used.
pub(crate) fn choose(config: &Config) -> Result<(Library, Info)> {
    let library = library::open(config).map_err(|why| {
        Error::new(ErrorKind::TransportUnavailable, why)
            .remedy("install libfabric (package libfabric1), or name one with PORTOLAN_OFI_LIBRARY")
    })?;
    let mut all = suited(library, config)?;
    let best = all.swap_remove(0);
    // A provider reports only what it was asked for, not all that it has: ask for less and less.
    let accelerators = match config.hmem {
        // No driver is loaded for a provider that would not use it.
        Switch::Auto if !has_memory(library, &best) => None,
        setting => Accelerators::wanted(setting),
    };
    let tagged = if config.native() { FI_TAGGED } else { 0 };
    let some = [
        FI_RMA | FI_ATOMIC | FI_MULTI_RECV,
        FI_RMA | FI_MULTI_RECV,
        FI_RMA,
        FI_MULTI_RECV,
        0,
    ];
    let some = some.into_iter().filter(|caps| may_ask(&best, *caps));
    for caps in some.flat_map(|caps| with_memory(caps, accelerators.as_ref())) {
        let mut hints = Info::hints(library, caps | tagged).map_err(no_provider)?;
        hints.name(&best);
        if has_layer(&best, THREADED) {
            hints.ask_no_thread();
        }
        let ask = |hints: &Info| {
            let list = Info::list(library, Some(hints)).ok()?;
            list.into_iter().find(|info| same_place(info, &best))
        };
        if let Some(mut info) = ask(&hints) {
            hints.ask_delivery();
            info.delivers = caps & FI_RMA != 0 && ask(&hints).is_some();
            info.memory = accelerators.clone().filter(|_| caps & FI_HMEM != 0);
            return Ok((library, info));
        }
    }
    Ok((library, best))
}

/// How memory is registered over the provider that these settings choose, in words for users.
///
/// # Errors
/// Why no provider can be chosen.
pub fn registration(config: &Config) -> Result<String, String> {
    let (_, info) = choose(config).map_err(|why| why.to_string().replace('\n', " "))?;
    Ok(format!(
        "memory is registered over {} by {}",
        info.provider(),
        info.registration()
    ))
}

/// Whether a provider is to be asked for these capabilities.
fn may_ask(best: &Info, caps: u64) -> bool {
    caps & FI_RMA == 0 || !has_layer(best, ONLY_MESSAGES)
}

/// Whether a provider, or a layer of it, is one of these.
fn has_layer(info: &Info, names: &[&str]) -> bool {
    let provider = info.provider();
    provider.split(';').any(|layer| names.contains(&layer))
}

/// Whether a provider's descriptor signals what arrives. A provider that does its work in a thread
/// by default, but is asked not to, writes to the descriptor only within the program's calls, so it
/// never wakes a sleeping rank.
pub(crate) fn announces(info: &Info) -> bool {
    !has_layer(info, THREADED)
}

/// Whether a provider takes accelerator memory.
fn has_memory(library: Library, best: &Info) -> bool {
    let list = Info::hints(library, FI_HMEM).and_then(|mut hints| {
        hints.name(best);
        Info::list(library, Some(&hints))
    });
    list.is_ok_and(|list| list.iter().any(|info| same_place(info, best)))
}

/// The capabilities to ask for, the best first: with `FI_HMEM`, where that is wanted, and without
/// it, where it is not required.
fn with_memory(caps: u64, accelerators: Option<&Accelerators>) -> impl Iterator<Item = u64> {
    let with = accelerators.map(|_| caps | FI_HMEM);
    let without = (!accelerators.is_some_and(|wanted| wanted.always)).then_some(caps);
    with.into_iter().chain(without)
}

fn same_place(one: &Info, other: &Info) -> bool {
    one.provider() == other.provider() && one.ip() == other.ip()
}

/// The usable offers, the best first; at least one.
fn suited(library: Library, config: &Config) -> Result<Vec<Info>> {
    let memory = config.hmem == Switch::On;
    let (caps, also) = match memory {
        true => (FI_HMEM, " and FI_HMEM (PORTOLAN_OFI_HMEM=on)"),
        false => (0, ""),
    };
    let hints = Info::hints(library, caps).map_err(no_provider)?;
    let listed = keeping_signals(|| Info::list(library, Some(&hints)));
    let listed = listed.map_err(|why| {
        no_provider(format!(
            "no provider of libfabric has reliable datagrams{also}: {why}"
        ))
    })?;
    let there = inventory(&listed);
    let interfaces = Interfaces::now();
    let (mut suited, dead): (Vec<Info>, Vec<Info>) = listed
        .into_iter()
        .filter(|info| wanted(info, config, &interfaces))
        .partition(|info| interfaces.below(info).is_none());
    if suited.is_empty() {
        let wish = config.interface.as_deref().or(config.domain.as_deref());
        let wished = wish.and_then(|wish| interfaces.wished(wish));
        if let Some(name) = wished.or_else(|| dead.first().and_then(|info| interfaces.below(info)))
        {
            return Err(is_down(name, &there));
        }
        return Err(no_provider(format!(
            "no provider of libfabric is as wanted ({}); there are: {there}",
            config.wishes(),
        )));
    }
    suited.sort_by_key(|info| merit(info, config));
    Ok(suited)
}

/// The providers of a list, each with its domains: `tcp;ofi_rxm (eth0, lo), shm`.
fn inventory(listed: &[Info]) -> String {
    let mut providers: Vec<(String, Vec<String>)> = Vec::new();
    for info in listed {
        let (provider, domain) = (info.provider(), info.domain());
        let at = match providers.iter().position(|(known, _)| *known == provider) {
            Some(at) => at,
            None => {
                providers.push((provider, Vec::new()));
                providers.len() - 1
            }
        };
        let (provider, domains) = &mut providers[at];
        if domain != *provider && !domains.contains(&domain) {
            domains.push(domain);
        }
    }
    let texts = providers
        .iter()
        .map(|(provider, domains)| match domains.is_empty() {
            true => provider.clone(),
            false => format!("{provider} ({})", domains.join(", ")),
        });
    texts.collect::<Vec<_>>().join(", ")
}

/// The error for an interface that is the only one wanted.
fn is_down(name: &str, there: &str) -> Error {
    let what = format!("interface {name} is down, and no other is as wanted; there are: {there}");
    Error::new(ErrorKind::TransportUnavailable, what).remedy(format!(
        "bring it up (ip link set {name} up), or name another with PORTOLAN_OFI_INTERFACE (`portolan info` lists them)"
    ))
}

fn no_provider(why: String) -> Error {
    Error::new(ErrorKind::TransportUnavailable, why).remedy(
        "unset PORTOLAN_OFI_PROVIDER, PORTOLAN_OFI_DOMAIN, PORTOLAN_OFI_INTERFACE and PORTOLAN_OFI_HMEM, \
         or set them to one of what `portolan info` lists",
    )
}

/// Whether an entry is what the settings want. An interface is given by its domain, or by having
/// the entry's address: the domain of `verbs` is an adapter (`mlx5_0`), whose interface (`ib0`)
/// only has the address.
fn wanted(info: &Info, config: &Config, interfaces: &Interfaces) -> bool {
    let provider = info.provider();
    let named = |wish: &str| provider == wish || provider.split(';').any(|layer| layer == wish);
    let on = |wish: &str| {
        let address = wish.parse::<IpAddr>().ok();
        let there = info.ip();
        info.domain() == wish
            || (address.is_some() && there == address)
            || there.is_some_and(|there| interfaces.has(wish, there))
    };
    config.provider.as_deref().is_none_or(named)
        && config
            .domain
            .as_deref()
            .is_none_or(|wish| info.domain() == wish)
        && config.interface.as_deref().is_none_or(on)
}

/// A sort key, smallest for the best: first the provider, then how widely its network can be
/// reached.
///
/// Where the provider matches, `tcp` comes after `tcp;ofi_rxm`: the plain `tcp` of 2.5 loses
/// messages that no receive waits for.
fn merit(info: &Info, config: &Config) -> (usize, bool, Reverse<u8>) {
    let provider = info.provider();
    let behind = config.native() && provider == "tcp";
    let named = if behind { "tcp;ofi_rxm" } else { &provider };
    let place = COMMON.iter().position(|&name| name == named);
    let reach = match info.ip() {
        None => 4,
        Some(address) if address.is_loopback() => 1,
        Some(IpAddr::V4(_)) => 3,
        Some(IpAddr::V6(address)) if address.is_unicast_link_local() => 0,
        Some(IpAddr::V6(_)) => 2,
    };
    (place.map_or(0, |place| place + 1), behind, Reverse(reach))
}

#[cfg(test)]
mod tests;
