//! What a rank does with a peer's memory without the peer: pulling, and what it can say of it.

use portolan_core::transport::{Exposure, Pulled};

use crate::config::Cma;
use crate::pull::{Access, Puller, Read};
use crate::ring::CELL;
use crate::shm::Shm;
use crate::sync::Ordering::Relaxed;

/// # Safety
/// As for `Transport::pull`.
pub(crate) unsafe fn pull(
    shm: &mut Shm,
    peer: u32,
    exposure: &Exposure,
    offset: u64,
    target: *mut u8,
    len: usize,
) -> Pulled {
    if peer >= shm.segment.ranks() || peer == shm.rank {
        return Pulled::Stream;
    }
    if shm.segment.life(peer).dead() {
        return Pulled::Gone;
    }
    let area = shm.segment.rank(peer);
    let streams = area.present.0.load(Relaxed) != 0;
    let wanted = match shm.config.cma {
        Cma::Auto => !streams,
        Cma::On => true,
        Cma::Off => false,
    };
    if !wanted {
        return Pulled::Stream;
    }
    let probe_at = area.identity.probe_at.load(Relaxed);
    // SAFETY: the caller's promise.
    match unsafe {
        shm.puller
            .read(peer, exposure, offset, target, len, probe_at)
    } {
        // A number may have been given to another process after the rank's death: what was read is
        // the rank's only if it still lives.
        Read::Done if shm.watches_dead(peer) || shm.segment.life(peer).dead() => Pulled::Gone,
        Read::Done => Pulled::Done,
        Read::No if shm.segment.life(peer).dead() => Pulled::Gone,
        Read::No => Pulled::Stream,
    }
}

/// One line per fact that a user may want to know.
pub(crate) fn describe(shm: &Shm) -> Vec<(String, String)> {
    let kib = |bytes: u64| format!("{} KiB", bytes >> 10);
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact(
            "segment",
            format!("{} MiB of address space", shm.segment.total() >> 20),
        ),
        fact(
            "ring per pair",
            kib(u64::from(shm.geometry.ring_cells) * CELL as u64),
        ),
        fact("bulk area per pair", kib(shm.geometry.bulk_bytes)),
        fact("large copies", large_copies(shm)),
        fact("wake-up", wake_up(shm).to_owned()),
    ]
}

fn wake_up(shm: &Shm) -> &'static str {
    if shm.fenced {
        "futex, a fence in every send (membarrier is not allowed)"
    } else {
        "futex, a membarrier before sleeping"
    }
}

fn large_copies(shm: &Shm) -> String {
    let way = match (&shm.puller, shm.config.cma) {
        (_, Cma::Off) => return "through shared chunks (PORTOLAN_SHM_CMA=off)".to_owned(),
        (Puller::Within(_), _) => "direct copies",
        (Puller::Across { .. }, _) => "process_vm_readv",
    };
    let when = if shm.config.cma == Cma::On {
        ""
    } else {
        " while the sender is outside, else through shared chunks"
    };
    let refused = (0..shm.segment.ranks())
        .filter(|&peer| peer != shm.rank)
        .find_map(|peer| match shm.puller.access(peer) {
            Access::Refused(why) => Some(format!("; refused for rank {peer}: {why}")),
            _ => None,
        });
    format!("{way}{when}{}", refused.unwrap_or_default())
}
