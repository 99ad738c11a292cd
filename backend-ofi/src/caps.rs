//! What this transport can do, and the sizes that the engine has to respect.

use portolan_core::transport::{Limits, TransportCaps};

use crate::config::Config;
use crate::endpoint::Domain;
use crate::wire::Wire;

/// Largest payload of a short packet.
pub(crate) const SHORT: usize = 1024;

/// Largest payload of a bulk packet, where the provider allows it. With what goes in front of it it
/// stays below the 16 KiB up to which the layered providers send at once.
pub(crate) const BULK: usize = (16 << 10) - 512;

/// Capabilities over what a domain says of its provider.
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

/// Sizes over a provider with messages of at most `largest` bytes.
pub(crate) fn limits(config: &Config, largest: usize) -> Limits {
    let bulk = BULK.min(largest.saturating_sub(Wire::LEN));
    Limits {
        short: SHORT.min(bulk),
        bulk,
        eager: config.eager,
        piece: bulk,
    }
}
