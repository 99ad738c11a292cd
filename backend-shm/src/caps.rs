//! What this transport can do, and the sizes that the engine has to respect.

use portolan_core::transport::{Limits, TransportCaps};

use crate::bulk::ALIGN;
use crate::config::{Cma, Config};

/// Largest payload of a short packet. What does not fit a cell is copied to the bulk area; beyond
/// this, whoever packs does so there.
pub(crate) const SHORT: usize = 1024;
/// Largest payload of a bulk packet: of a size that is still in the first-level cache of the
/// sender's core when the receiver's begins to read it.
pub(crate) const BULK: usize = 32 << 10;
/// Shortest piece of a stream: what a line's way and a look at it cost is little beside copying it.
const PIECE: usize = 8 << 10;
/// Largest message that is better sent eagerly than offered.
const EAGER: usize = 16 << 10;

const _: () = assert!(BULK.is_multiple_of(ALIGN as usize));

pub(crate) fn caps(config: &Config, processes: bool) -> TransportCaps {
    let mut caps = TransportCaps::OFFER_WORD | TransportCaps::DIRECT | TransportCaps::SLEEP;
    let reaches = TransportCaps::PULL | TransportCaps::PUSH;
    caps.set(reaches, config.cma != Cma::Off);
    caps.set(TransportCaps::PROCESSES, processes);
    caps
}

pub(crate) fn limits(config: &Config, bulk_bytes: u64) -> Limits {
    let bulk = BULK.min(bulk_bytes as usize / 4);
    let eager = if config.eager == 0 {
        EAGER
    } else {
        config.eager
    };
    Limits {
        short: SHORT,
        bulk,
        eager,
        piece: PIECE.min(bulk),
        bundle: 0,
    }
}
