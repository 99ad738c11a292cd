//! Operation numbers that wrap around.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{Device, Engine, ErrorKind, MemoryKind, TypedBuf};
use portolan_datatype::{Layout, Op};

use super::tags::FIRST_TAG;
use super::*;
use crate::schedule::LANES;
use crate::{Operation, Persistent, configure, run, start};

type World = Communicator<Engine<InMemory, Single>>;

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

/// Goes on with the numbers that have the tags of the first ones.
fn go_around(world: &World) -> u32 {
    let state = of(world);
    let distinct = state.tags.distinct();
    state.started.store(distinct, Ordering::Relaxed);
    state.reserved.store(distinct, Ordering::Relaxed);
    distinct
}

/// An operation under way keeps its tags: the next one with these tags is refused if it may not
/// wait, and waits if it may.
#[test]
fn tags_of_an_operation_under_way_are_not_used_again() {
    let turn = std::sync::Barrier::new(3);
    after(0, |world| {
        // SAFETY: a barrier has no buffers, here and below.
        let begin = || unsafe { start(world, &Operation::Barrier) };
        let first = if world.rank() == 0 {
            let first = begin().unwrap();
            let number = go_around(world);
            let error = begin().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
            assert_eq!(of(world).upcoming(), number);
            turn.wait();
            first
        } else {
            turn.wait();
            let first = begin().unwrap();
            go_around(world);
            first
        };
        let (mut one, layout) = ([7], Layout::of::<u32>());
        let bcast = Operation::Bcast {
            data: TypedBuf {
                ptr: one.as_mut_ptr().cast(),
                count: 1,
                layout: &layout,
                memory: MemoryKind::Host,
            },
            root: 0,
        };
        // The root of a short broadcast waits for nobody else.
        // SAFETY: the buffer outlives the call.
        unsafe { run(world, &bcast) }.unwrap();
        assert!(world.device().is_complete(first));
        world.device().wait(first).unwrap();
        go_around(world);
        world.device().wait(begin().unwrap()).unwrap();
    });
}

#[test]
fn tags_of_a_persistent_operation_are_its_own_while_it_lives() {
    let turn = std::sync::Barrier::new(3);
    after(0, |world| {
        let make = || Persistent::new(world, &Operation::Barrier);
        let mut first = make().unwrap();
        let number = go_around(world);
        let error = make().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        assert_eq!(of(world).reserved.load(Ordering::Relaxed), number);
        // An operation that is under way is alive. That of rank 0 stays under way until the other
        // ranks have started theirs.
        if world.rank() != 0 {
            turn.wait();
        }
        // SAFETY: a barrier has no buffers, here and below.
        let request = unsafe { first.start() }.unwrap();
        drop(first);
        if world.rank() == 0 {
            let error = make().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
            turn.wait();
        }
        world.device().wait(request).unwrap();
        of(world).reserved.store(number, Ordering::Relaxed);
        let mut again = make().unwrap();
        // SAFETY: as above.
        let request = unsafe { again.start() }.unwrap();
        world.device().wait(request).unwrap();
    });
}
