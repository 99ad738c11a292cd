//! Operation numbers that wrap around.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::transport::memory::{self, Memory};
use portolan_core::{Device, Engine, MemoryKind, TypedBuf};
use portolan_datatype::{Layout, Op};

use super::*;
use crate::{Operation, Persistent, configure, run, start};

type World = Communicator<Engine<Memory, Single>>;

/// Runs `body` on three ranks after `before` operations of each kind.
fn after(before: u32, body: impl Fn(&World) + Sync) {
    std::thread::scope(|scope| {
        for transport in memory::network(3) {
            let body = &body;
            scope.spawn(move || {
                let engine = Engine::new(transport, &Settings::default()).unwrap();
                let world = Communicator::world(Arc::new(engine)).unwrap();
                let options = Options {
                    direct: false,
                    ..Options::default()
                };
                configure(&world, options).unwrap();
                of(&world).started.store(before, Ordering::Relaxed);
                of(&world).reserved.store(before, Ordering::Relaxed);
                body(&world);
                world.device().end().unwrap();
            });
        }
    });
}

/// Many operations under way while their numbers wrap around: each receives only its own messages.
#[test]
fn operations_go_on_when_their_numbers_begin_again() {
    for before in [u32::MAX - 5, u32::MAX, 0] {
        after(before, |world| {
            let layout = Layout::of::<u32>();
            let op = Op::SUM;
            let mut data: Vec<[u32; 4]> = (0..12).map(|at| [at + world.rank(); 4]).collect();
            let sum = |data: &mut [u32; 4]| TypedBuf {
                ptr: data.as_mut_ptr().cast(),
                count: 4,
                layout: &layout,
                memory: MemoryKind::Host,
            };
            let mut started = Vec::new();
            let mut kept = Vec::new();
            for (at, data) in data.iter_mut().enumerate() {
                let allreduce = Operation::Allreduce {
                    send: None,
                    recv: sum(data),
                    op: &op,
                };
                // SAFETY: the buffers live until all operations are over.
                unsafe {
                    match at % 3 {
                        0 => run(world, &allreduce).unwrap(),
                        1 => started.push(start(world, &allreduce).unwrap()),
                        _ => kept.push(Persistent::new(world, &allreduce).unwrap()),
                    }
                }
            }
            // Not in the order in which they were made.
            for kept in kept.iter_mut().rev() {
                // SAFETY: as above.
                started.push(unsafe { kept.start() }.unwrap());
            }
            for request in started {
                world.device().wait(request).unwrap();
            }
            for (at, data) in (0..).zip(data) {
                assert_eq!(data, [3 * at + 3; 4]);
            }
            let next = of(world).started.load(Ordering::Relaxed);
            assert_eq!(next, before.wrapping_add(8));
        });
    }
}

#[test]
fn neighbouring_numbers_have_tags_of_their_own() {
    for tag_ub in [FIRST_TAG + 4 * LANES, 32_767, 1 << 20, u32::MAX] {
        let tags = Tags::new(tag_ub);
        for number in [u32::MAX - 1, u32::MAX, 0, 1, 77] {
            let own = [tags.started(number), tags.reserved(number)];
            let next = number.wrapping_add(1);
            let others = [tags.started(next), tags.reserved(next)];
            let all = own.map(|tags| tags.0);
            assert!(all.iter().all(|tag| (FIRST_TAG..=tag_ub).contains(tag)));
            assert_ne!(all[0], all[1]);
            assert!(
                others.iter().all(|other| !all.contains(&other.0)),
                "{tag_ub} {number}"
            );
        }
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let mut scratch = Scratch::default();
    assert!(!scratch.at_least(100).unwrap().is_null());
    for len in [1 << 62, usize::MAX] {
        let error = scratch.at_least(len).unwrap_err();
        assert_eq!(error.kind(), portolan_core::ErrorKind::Exhausted, "{error}");
    }
    scratch.at_least(100).unwrap();
    assert_eq!(scratch.len(), 128);
}
