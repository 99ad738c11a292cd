//! Operations over boards, with ranks that are threads.

mod agree;
mod ahead;
mod along;
mod counts;
mod differ;
mod flight;
mod gaps;
mod in_place;
mod lent;
pub(super) mod lingering;
mod mixed;
mod model;
mod neighbours;
mod nested;
mod numbers;
mod pair;
mod parts;
mod pulled;
pub(super) mod quick;
mod roots;
mod tracks;
mod turn;
mod types;
mod under_way;
mod wakes;

use std::sync::Arc;

use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{Engine, MemoryKind, TypedBuf};
use portolan_datatype::Layout;

use crate::{Counters, Options, configure, counted, state};

pub(super) type World = Communicator<Engine<InMemory, Single>>;

/// Runs `body` on `n` ranks, which are threads and end together: once on boards whose lines are
/// taken, and once without.
fn on_all(n: u32, body: impl Fn(&World) + Sync) {
    for takes in [false, true] {
        let options = Options {
            takes,
            ..Options::default()
        };
        on_network(memory::network(n), &options, |world| {
            // If a rank takes lines too early, a delay of their owner reveals it.
            lingering::begin(if takes { 3 } else { 0 });
            body(world);
            world.barrier().unwrap();
        });
    }
}

/// Runs `body` on ranks of which not all reach the end.
pub(super) fn on_some(n: u32, body: impl Fn(&World) + Sync) {
    on_network(memory::network(n), &Options::default(), body);
}

fn on_network(ranks: Vec<InMemory>, options: &Options, body: impl Fn(&World) + Sync) {
    std::thread::scope(|scope| {
        for transport in ranks {
            let body = &body;
            scope.spawn(move || {
                let engine = Engine::new(transport, &Settings::default()).unwrap();
                let world = Communicator::world(Arc::new(engine)).unwrap();
                configure(&world, options.clone()).unwrap();
                body(&world);
            });
        }
    });
}

fn buf<'a, T>(data: &mut [T], layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: data.as_mut_ptr().cast(),
        count: data.len(),
        layout,
        memory: MemoryKind::Host,
    }
}

/// Whether a communicator has boards.
fn has_boards(comm: &World) -> bool {
    matches!(state::of(comm).direct.boards.get(), Some(Some(_)))
}

/// The numbers of signals, looks and messages so far.
fn costs(comm: &World) -> [u64; 3] {
    [Counters::Signals, Counters::Looks, Counters::Messages].map(|what| counted(comm, what))
}
