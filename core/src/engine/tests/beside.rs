//! Operations of a device that contains an engine and matches messages elsewhere.

use super::gone::{assert_left, eager, left_alone_at, progress};
use super::*;
use crate::device::{Turn, Upper};
use crate::engine::deaths::beside::Beside;
use crate::level::Multiple;

/// A request of a device that contains the engine.
struct Other;

impl Upper for Other {}

/// The operations of that device: the one of this request, which needs rank 1. `told` is who has
/// left, as the engine says.
struct Others {
    request: Request,
    told: Arc<AtomicU32>,
}

impl Beside for Others {
    fn needed(&self, request: Option<Request>) -> Vec<u32> {
        assert!(request.is_none_or(|request| request == self.request));
        vec![1]
    }

    fn has_left(&self, peer: u32) {
        assert_eq!(self.told.swap(peer, Ordering::Relaxed), 0, "told once");
    }
}

/// An engine whose peer, rank 1, has left, with a request of a device that contains it. A hook of
/// that device ends the request when it hears of the departure.
fn with_other<L: Level>(wait: &str) -> (Engine<Scripted, L>, Request) {
    let engine = left_alone_at(wait);
    let request = engine.upper_request(Box::new(Other)).unwrap();
    let told = Arc::new(AtomicU32::new(0));
    let heard = Arc::clone(&told);
    engine.register_hook(Box::new(move |port| {
        if heard.load(Ordering::Relaxed) == 1 && !port.is_complete(request) {
            port.fail(request, ProcId::new(1)).unwrap();
        }
        Turn::Idle
    }));
    engine.set_beside(Box::new(Others { request, told }));
    (engine, request)
}

/// The engine finds out for a device that contains it who has left.
#[test]
fn operations_of_a_device_around_the_engine_end_as_well() {
    they_end::<Single>();
    they_end::<Multiple>();
}

fn they_end<L: Level>() {
    for wait in ["auto", "spin", "yield", "park"] {
        let (engine, request) = with_other::<L>(wait);
        assert_left(engine.wait(request));
        let (engine, request) = with_other::<L>(wait);
        let epoch = engine.completion_epoch();
        engine.device_check(Check::Blocking(epoch)).unwrap();
        assert_left(engine.test(request).transpose().unwrap());
        // A device that waits in its own way asks.
        let (engine, request) = with_other::<L>(wait);
        engine.look_for_leaver(ProcId::new(1000));
        (0..10).for_each(|_| progress(&engine));
        assert!(!engine.is_complete(request));
        engine.look_for_leaver(ProcId::new(1));
        (0..10).for_each(|_| progress(&engine));
        assert!(engine.is_complete(request));
    }
}

/// Everything that the peer had sent is here first.
#[test]
fn they_do_not_end_before_its_packets_are_here() {
    let (engine, request) = with_other::<Single>("park");
    engine.look_for_leaver(ProcId::new(1));
    progress(&engine);
    for _ in 0..10 {
        arrives(&engine, eager(), &[7; 8]);
        progress(&engine);
        assert!(!engine.is_complete(request));
    }
    progress(&engine);
    assert!(engine.is_complete(request));
}

/// A thread that relies on another thread's polls finds out, too: those polls do not ask.
#[test]
fn so_do_those_that_a_parked_thread_waits_for() {
    let (engine, request) = with_other::<Multiple>("park");
    engine.state.lock().transport.left = false;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| assert_left(engine.wait(request)));
        let poll = || {
            let mut state = engine.state.lock();
            state.progress();
            let entry = state.proto.table.entry(request.index());
            let watched = entry.rare.as_ref().is_some_and(|rare| rare.watched);
            drop(state);
            std::thread::yield_now();
            watched
        };
        while !poll() {
            assert!(!waiter.is_finished(), "nobody has left yet");
        }
        engine.state.lock().transport.left = true;
        while !waiter.is_finished() {
            poll();
        }
    });
}
