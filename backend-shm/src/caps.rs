//! What this transport can do, and the sizes that the engine has to respect.

use portolan_core::transport::{Limits, TransportCaps};

use crate::bulk::ALIGN;
use crate::config::{Cma, Config};

/// Largest payload of a short packet. A payload that does not fit a cell is copied to the bulk
/// area; the engine packs longer ones straight into that area.
pub(crate) const SHORT: usize = 1024;
/// Largest payload of a bulk packet: small enough to be still in the first-level cache of the
/// sender's core when the receiver's core begins to read it.
pub(crate) const BULK: usize = 32 << 10;
/// Shortest piece of a stream: long enough that the transfer of a line and the poll for it cost
/// little beside the copy.
pub(crate) const PIECE: usize = 8 << 10;
/// Largest message that is sent eagerly rather than offered.
pub(crate) const EAGER: usize = 16 << 10;

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
        grows: bulk,
    }
}
