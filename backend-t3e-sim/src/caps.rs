//! The capabilities of the device, and the sizes of its packets.

use portolan_core::config::Settings;
use portolan_core::device::{Attributes, Caps};
use portolan_core::transport::{Limits, TransportCaps};

/// Largest payload of one of the device's own packets, which carry active messages and the like.
/// MP_Lite's messages do not use packets.
const PACKET: usize = 32 << 10;

/// The transport only moves packets. A sleeping PE is woken by a packet that reaches it.
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
        grows: 0,
    }
}

/// The attributes of the device, given those of the engine that carries its active messages.
///
/// - A sender writes into a posted receive, so a cancel only starts here (no `CANCEL_LOCAL`).
/// - A message that has left is in the receiver's queue (no `CANCEL_SEND`).
/// - Memory lies inside the machine (no `DIRECT`), and the machine has no thread level Multiple.
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
