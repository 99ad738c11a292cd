//! The model implementation of the device interface, over any transport.
//!
//! | where | what |
//! | --- | --- |
//! | `device.rs` | [`Device`](crate::Device): each entry takes the lock, calls the parts below, waits |
//! | `short/` | sending and receiving, the two hot paths; unexpected messages; packets without room |
//! | `long/` | messages that are offered and then moved, or that leave in pieces |
//! | `one_sided/` | put, get and atomics, and the regions they act on |
//! | `upper/` | active messages and hooks of the crates above |
//! | `progress.rs` | the poll: handles what has arrived, sends what is queued |
//! | `waiting/` | spinning, giving the core away, sleeping |
//! | `deaths/` | how the end of a peer, or of the job, affects operations under way |
//! | `entry.rs`, `data.rs`, `complete.rs` | request slots, operations' buffers, completion |
//! | `state.rs`, `shared.rs` | the state behind the lock; the state that any thread may read |
//!
//! **Invariants**
//! - All state is behind one lock ([`Level`]), except `Shared`, which any thread may read.
//! - During a poll the transport is borrowed. Work that needs the transport is noted and done right
//!   after the poll.
//! - Tagged messages to one peer leave in the order in which they were started, each completely
//!   before the next. While messages to a peer wait for room, the peer has a flag set that keeps
//!   later messages from overtaking them.
//! - A peer's packet names this rank's requests in short form. The engine checks that form against
//!   the slot's generation and operation before it acts on the packet.

mod complete;
mod data;
mod deaths;
mod device;
mod entry;
mod long;
mod one_sided;
mod progress;
mod shared;
mod short;
mod state;
mod upper;
mod waiting;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

pub use data::Data;
pub use deaths::beside::Beside;
pub use deaths::finish::AbortHook;
pub use waiting::stuck::StuckHook;

use crate::config::Settings;
use crate::device::{Attributes, Caps, Which};
use crate::error::Result;
use crate::level::{Level, StateLock};
use crate::observe::{Counters, Tracer, of_rank};
use crate::transport::{Transport, TransportCaps};
use shared::Shared;
use state::State;
use waiting::cores;
use waiting::patience::Patience;
use waiting::wait::Policy;

/// The model implementation of [`Device`](crate::Device): matching, protocols and requests over a
/// transport.
///
/// ```
/// use portolan_core::config::Settings;
/// use portolan_core::level::Single;
/// use portolan_core::matching::Pattern;
/// use portolan_core::transport::memory;
/// use portolan_core::{Adi, Engine, ProcId, SendArgs};
///
/// let mut ranks = memory::network(2).into_iter();
/// let settings = Settings::default();
/// let zero: Engine<_, Single> = Engine::new(ranks.next().unwrap(), &settings)?;
/// let one: Engine<_, Single> = Engine::new(ranks.next().unwrap(), &settings)?;
///
/// zero.send_contig(&SendArgs::new(ProcId::new(1), 0, 0, 7), b"ahoy")?;
/// let mut text = [0; 4];
/// let status = one.recv_contig(&Pattern { context: 0, source: Some(0), tag: None }, &mut text)?;
/// assert_eq!((&text, status.tag), (b"ahoy", 7));
/// # Ok::<(), portolan_core::Error>(())
/// ```
pub struct Engine<T: Transport, L: Level> {
    shared: Arc<Shared>,
    attributes: Attributes,
    policy: Policy,
    patience: Patience,
    hooks: Box<Hooks>,
    state: L::Lock<State<T>>,
}

/// Callbacks for rare events. Kept behind a pointer, so that the engine itself stays small.
#[derive(Default)]
struct Hooks {
    abort: Mutex<Option<AbortHook>>,
    stuck: Mutex<Option<StuckHook>>,
}

impl<T: Transport, L: Level> Engine<T, L> {
    /// Makes progress once and returns whether there was anything to do. For devices that are built
    /// on an engine and do their own waiting.
    pub fn poll(&self) -> bool {
        self.state.lock().progress() != 0
    }

    /// A device over `transport`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the trace file that the settings
    /// name cannot be written.
    pub fn new(transport: T, settings: &Settings) -> Result<Self> {
        let rank = transport.rank();
        let size = transport.size();
        let shared = Arc::new(Shared::new(rank, transport.bell()));
        let node = transport.node_of(rank);
        let one_node = (0..size).all(|peer| transport.node_of(peer) == node);
        let policy = Policy::new(settings, cores::crowded(&transport), transport.caps());
        let mut state = State::new(transport, settings, Arc::clone(&shared));
        let attributes = attributes::<T, L>(&state, one_node);
        if let Some(path) = settings.trace() {
            let name = of_rank(path, rank, size);
            state.proto.tracer = Some(Tracer::create(&name, rank)?);
            state.proto.traced = true;
        }
        let state = L::Lock::new(state);
        Ok(Self {
            shared,
            attributes,
            policy,
            patience: Patience::new(),
            hooks: Box::default(),
            state,
        })
    }

    /// This rank's counters so far.
    pub fn snapshot(&self) -> Counters {
        let state = self.state.lock();
        Counters {
            chunks_lost: state.proto.flows.lost(),
            ..state.proto.counters
        }
    }

    /// Facts about the transport and the waiting policy, for people to read.
    pub fn facts(&self) -> Vec<(String, String)> {
        let mut facts = self.state.lock().transport.describe();
        facts.push(("waiting".to_owned(), self.policy.describe()));
        facts
    }

    /// Bytes of shared or pinned memory that this rank currently uses for its peers.
    pub fn transport_memory(&self) -> u64 {
        let state = self.state.lock();
        state.transport.memory_used() + state.proto.flows.memory()
    }
}

fn attributes<T: Transport, L: Level>(state: &State<T>, one_node: bool) -> Attributes {
    let transport = &state.transport;
    let below = transport.caps();
    let mut caps = Caps::CANCEL_LOCAL;
    caps.set(Caps::CANCEL_SEND, below.contains(TransportCaps::OFFER_WORD));
    caps.set(Caps::DIRECT, below.contains(TransportCaps::DIRECT));
    caps.set(Caps::PROCESSES, below.contains(TransportCaps::PROCESSES));
    caps.set(Caps::SLEEP, below.contains(TransportCaps::SLEEP));
    caps.set(Caps::PULL, below.contains(TransportCaps::PULL));
    caps.insert(Caps::DRIVEN);
    caps.set(Caps::THREAD_MULTIPLE, L::MULTIPLE);
    let version = env!("CARGO_PKG_VERSION");
    Attributes {
        name: transport.name(),
        version: format!("Portolan {version}, transport {}", transport.name()),
        node_name: transport.node_name(),
        world_rank: transport.rank(),
        world_size: transport.size(),
        tag_ub: i32::MAX as u32,
        max_context_id: 0xffff_feff,
        io: Which::All,
        stdin: Which::One(0),
        host: Which::None,
        wtime_is_global: one_node,
        heterogeneous: false,
        caps,
        active_max: state.proto.limits.bulk,
        eager_max: state.proto.limits.eager,
    }
}

impl<T: Transport, L: Level> std::fmt::Debug for Engine<T, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("device", &self.attributes.name)
            .field("rank", &self.attributes.world_rank)
            .field("size", &self.attributes.world_size)
            .finish_non_exhaustive()
    }
}
