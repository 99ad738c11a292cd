//! Ranks that are threads, over an engine on the memory transport.

use std::sync::Arc;

use portolan_coll::{Options, configure};
use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::transport::memory::InMemory;
use portolan_core::{Device, Engine};

pub(crate) type World = Communicator<Engine<InMemory, Single>>;

/// Runs `body` on every rank of `network`, with these options for collective operations.
pub(crate) fn on_ranks(network: Vec<InMemory>, options: &Options, body: impl Fn(&World) + Sync) {
    std::thread::scope(|scope| {
        for transport in network {
            let body = &body;
            scope.spawn(move || {
                let engine = Engine::new(transport, &Settings::default()).unwrap();
                let world = Communicator::world(Arc::new(engine)).unwrap();
                configure(&world, options.clone()).unwrap();
                body(&world);
                world.device().end().unwrap();
            });
        }
    });
}
