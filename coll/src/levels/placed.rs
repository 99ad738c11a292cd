//! Levels over an engine whose ranks are on made-up nodes: tests of what arrives, and of how many
//! messages that takes.

use std::sync::Arc;

use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{Device, Engine, MemoryKind, TypedBuf};
use portolan_datatype::Layout;

use crate::{Counters, Many, Operation, counted, run, start};

type World = Communicator<Engine<InMemory, Single>>;

/// Runs `body` on `n` ranks, which are threads, with `ranks_per_node` on a node.
fn on_nodes(n: u32, ranks_per_node: u32, body: impl Fn(&World) + Sync) {
    let options = memory::Options {
        ranks_per_node,
        ..memory::Options::default()
    };
    std::thread::scope(|scope| {
        for transport in memory::network_with(n, options) {
            let body = &body;
            scope.spawn(move || {
                let engine = Engine::new(transport, &Settings::default()).expect("an engine");
                let world = Communicator::world(Arc::new(engine)).expect("the world");
                body(&world);
                world.device().end().expect("the end");
            });
        }
    });
}

fn typed<'a>(items: &mut [u32], count: usize, layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: items.as_mut_ptr().cast(),
        count,
        layout,
        memory: MemoryKind::Host,
    }
}

/// Runs an operation in blocking and in nonblocking form; returns the number of messages that this
/// rank sent in one of them.
fn twice(world: &World, operation: &Operation<'_>) -> u64 {
    let before = counted(world, Counters::Messages);
    // SAFETY: the caller's buffers live until both operations are over.
    unsafe {
        run(world, operation).expect("the blocking form");
        let request = start(world, operation).expect("the nonblocking form");
        world.device().wait(request).expect("its end");
    }
    (counted(world, Counters::Messages) - before) / 2
}

/// The data from rank `from` for rank `to`.
fn word(from: u32, to: u32, len: usize) -> Vec<u32> {
    (0..len as u32)
        .map(|at| from * 10_000 + to * 100 + at % 100)
        .collect()
}

#[test]
fn blocks_go_from_node_to_node_by_their_leaders() {
    // Ranks 0 to 2, 3 to 5, and 6.
    const N: u32 = 7;
    on_nodes(N, 3, |world| {
        let (me, layout) = (world.rank(), Layout::of::<u32>());
        let of = |rank: u32| (rank / 3, rank.is_multiple_of(3));
        let ((node, leads), mates) = (of(me), if me == 6 { 0 } else { 2 });
        for len in [2_usize, 2_000] {
            let many = len * N as usize;
            // The trees and two-level forms are for short blocks.
            let short = len == 2;
            for root in 0..N {
                let mut all = vec![0; many];
                let mut mine = word(me, root, len);
                let gather = Operation::Gather {
                    send: Some(typed(&mut mine, len, &layout)),
                    recv: Some(Many::Equal(typed(&mut all, len, &layout))),
                    root,
                    uneven: false,
                };
                let sent = twice(world, &gather);
                assert_eq!(sent, u64::from(me != root));
                if me == root {
                    let expected: Vec<_> = (0..N).flat_map(|from| word(from, root, len)).collect();
                    assert_eq!(all, expected);
                }
                all = (0..N).flat_map(|to| word(root, to, len)).collect();
                mine.fill(0);
                let scatter = Operation::Scatter {
                    send: Some(Many::Equal(typed(&mut all, len, &layout))),
                    recv: Some(typed(&mut mine, len, &layout)),
                    root,
                    uneven: false,
                };
                let sent = twice(world, &scatter);
                assert_eq!(mine, word(root, me, len));
                let leads = if node == of(root).0 {
                    me == root
                } else {
                    leads
                };
                let expected = match (me == root, short) {
                    (true, true) => mates + 2,
                    (true, false) => u64::from(N) - 1,
                    (false, true) if leads => mates,
                    _ => 0,
                };
                assert_eq!(sent, expected, "rank {me}, root {root}, {len} words");
            }
            let mut all = vec![0; many];
            let mut mine = word(me, 0, len);
            let allgather = Operation::Allgather {
                send: Some(typed(&mut mine, len, &layout)),
                recv: Many::Equal(typed(&mut all, len, &layout)),
            };
            let sent = twice(world, &allgather);
            let expected: Vec<_> = (0..N).flat_map(|from| word(from, 0, len)).collect();
            assert_eq!(all, expected);
            let expected = match (short, leads) {
                // Two rounds among three leaders, and then one message to each other rank of the
                // node.
                (true, true) => 2 + mates,
                (true, false) => 1,
                (false, _) => u64::from(N) - 1,
            };
            assert_eq!(sent, expected, "allgather on rank {me}, {len} words");

            let mut outgoing: Vec<_> = (0..N).flat_map(|to| word(me, to, len)).collect();
            let alltoall = Operation::Alltoall {
                send: Some(Many::Equal(typed(&mut outgoing, len, &layout))),
                recv: Many::Equal(typed(&mut all, len, &layout)),
            };
            let sent = twice(world, &alltoall);
            let expected: Vec<_> = (0..N).flat_map(|from| word(from, me, len)).collect();
            assert_eq!(all, expected);
            let expected = match (short, leads) {
                (true, true) => 2 + mates,
                (true, false) => 1,
                (false, _) => u64::from(N) - 1,
            };
            assert_eq!(sent, expected, "alltoall on rank {me}, {len} words");
        }
    });
}
