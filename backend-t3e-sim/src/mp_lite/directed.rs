//! Tests of single situations, in a memory in which everything arrives at once.

use std::cell::RefCell;
use std::rc::Rc;

use super::lite::Mode;
use super::model::Oracle;
use super::stats::Stats;
use super::world::{Act, World};

/// Every word that is on its way has arrived when a PE loads it.
struct Prompt;

impl Oracle for Prompt {
    fn choose(&mut self, options: usize) -> usize {
        options - 1
    }
}

/// Runs the given steps of two PEs in order, each followed by a round of waiting of both PEs. Then
/// lets everything come to its end, and returns the counts of both.
fn run(steps: &[(usize, Act)]) -> Stats {
    let program = |pe| {
        let mine = steps.iter().filter(move |(of, _)| *of == pe);
        mine.map(|(_, act)| *act).collect::<Vec<_>>()
    };
    let programs = [program(0), program(1)];
    let mut world = World::new(&programs, Rc::new(RefCell::new(Prompt)), None);
    for &(pe, _) in steps {
        world.step(pe);
        for waiting in [2, 3] {
            world.step(waiting);
        }
    }
    world.finish();
    world.check_rest().expect("nothing is left");
    world.check_order().expect("all in order");
    world.stats()
}

fn send(tag: u32, len: usize) -> (usize, Act) {
    let mode = Mode::Standard;
    (
        0,
        Act::Send {
            to: 1,
            tag,
            len,
            mode,
        },
    )
}

fn receive(tag: u32, room: usize) -> (usize, Act) {
    let (from, tag) = (Some(0), Some(tag));
    (1, Act::Recv { from, tag, room })
}

#[test]
fn a_preposted_receive_gets_its_message_directly() {
    let stats = run(&[receive(7, 20), send(7, 20)]);
    assert_eq!((stats.preposted, stats.direct, stats.buffered), (1, 1, 0));
}

#[test]
fn a_late_receive_pulls_from_the_buffer() {
    let stats = run(&[send(7, 20), receive(7, 20)]);
    assert_eq!((stats.preposted, stats.direct, stats.buffered), (0, 0, 1));
    assert_eq!(stats.pulled, 1);
}

#[test]
fn a_receive_of_at_most_eight_bytes_is_not_preposted() {
    let stats = run(&[receive(7, 8), send(7, 8), receive(7, 0), send(7, 0)]);
    assert_eq!((stats.preposted, stats.in_header, stats.gaps), (0, 2, 0));
}

#[test]
fn a_small_message_may_meet_the_prepost_of_a_larger_receive() {
    let stats = run(&[receive(7, 20), send(7, 5)]);
    assert_eq!((stats.preposted, stats.direct, stats.in_header), (1, 1, 0));
}

#[test]
fn a_receive_from_anybody_is_never_preposted() {
    let anybody = Act::Recv {
        from: None,
        tag: Some(7),
        room: 20,
    };
    let stats = run(&[(1, anybody), send(7, 20)]);
    assert_eq!((stats.preposted, stats.buffered), (0, 1));
}

#[test]
fn a_receive_behind_one_from_anybody_waits_apart() {
    let anybody = Act::Recv {
        from: None,
        tag: None,
        room: 20,
    };
    let stats = run(&[(1, anybody), receive(7, 20), send(7, 20), send(7, 20)]);
    assert_eq!(stats.preposted, 0, "its sender would not know of the first");
    let stats = run(&[receive(7, 20), (1, anybody), send(7, 20), send(8, 20)]);
    assert_eq!((stats.preposted, stats.direct), (1, 1));
}

#[test]
fn messages_are_taken_from_the_middle_of_a_queue() {
    // Two headers stay in a queue of four; the third pushes the first out of it.
    let mut steps: Vec<_> = (0..3).map(|tag| send(tag, 5)).collect();
    steps.extend([receive(2, 8), receive(0, 8), receive(1, 8)]);
    assert_eq!(run(&steps).spilled, 1);
}

#[test]
fn a_full_queue_holds_its_sender_up_and_loses_nothing() {
    // The receiver does not look while eight messages are sent into a queue of four.
    let sends: Vec<_> = (0..8).map(|tag| send(tag, 5).1).collect();
    let receives: Vec<_> = (0..8).rev().map(|tag| receive(tag, 8).1).collect();
    let oracle = Rc::new(RefCell::new(Prompt));
    let mut world = World::new(&[sends, receives], oracle, None);
    for _ in 0..8 {
        world.step(0);
    }
    assert_eq!(world.stats().in_header, 4, "more than there is room for");
    for _ in 0..8 {
        world.step(1);
    }
    world.finish();
    world.check_rest().expect("nothing is left");
    world.check_order().expect("all in order");
    let stats = world.stats();
    assert_eq!(stats.in_header, 8);
    assert!(stats.held > 0);
}

#[test]
fn messages_without_a_buffer_are_announced() {
    // The pool of 512 bytes has room for six messages that no receive takes.
    let mut steps: Vec<_> = (0..8).map(|tag| send(tag, 40)).collect();
    steps.extend((0..8).rev().map(|tag| receive(tag, 40)));
    let stats = run(&steps);
    assert!(stats.announced >= 2, "{stats:?}");
    assert_eq!(stats.buffered + stats.announced + stats.direct, 8);
}
