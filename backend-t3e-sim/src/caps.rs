//! What the device can do, and the sizes of its packets.

use portolan_core::config::Settings;
use portolan_core::device::{Attributes, Caps};
use portolan_core::transport::{Limits, TransportCaps};

/// Largest payload of a packet of the device's own: of active messages and the like. MP_Lite's
/// messages know no packets.
const PACKET: usize = 32 << 10;

/// Nothing beyond moving packets; a sleeping PE is woken by what reaches it.
pub(crate) fn transport(processes: bool) -> TransportCaps {
    let mut caps = TransportCaps::SLEEP;
    caps.set(TransportCaps::PROCESSES, processes);
    caps
}

pub(crate) fn limits() -> Limits {
    Limits {
        short: 1024,
        bulk: PACKET,
        eager: PACKET / 2,
        piece: PACKET,
        bundle: 0,
    }
}

/// The attributes of the device, given those of the engine that carries its active messages.
///
/// - A posted receive is written by its sender, so a cancel only starts (no `CANCEL_LOCAL`).
/// - What has left is in the receiver's queue (no `CANCEL_SEND`).
/// - Memory lies inside of the machine (no `DIRECT`), and thread level Multiple does not exist
///   there.
pub(crate) fn attributes(engine: &Attributes, settings: &Settings) -> Attributes {
    let mut caps = engine.caps;
    caps.remove(Caps::CANCEL_LOCAL | Caps::CANCEL_SEND | Caps::DIRECT | Caps::THREAD_MULTIPLE);
    caps.remove(Caps::DRIVEN);
    caps.insert(Caps::NATIVE_MATCHING);
    let version = env!("CARGO_PKG_VERSION");
    Attributes {
        version: format!("Portolan {version}, MP_Lite on an emulated Cray T3E"),
        wtime_is_global: true,
        eager_max: engine.eager_max.min(settings.eager_max()),
        caps,
        ..engine.clone()
    }
}
