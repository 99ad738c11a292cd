//! Log messages and counters: where they go, and how many there are.
//!
//! Standard error belongs to the process, so every test runs this program again as a rank of its
//! own.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use portolan::coll::Counters;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Runs one of the ranks below as a process; returns its standard output and standard error.
fn rank(name: &str, log: Option<&str>) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    match log {
        Some(level) => command.env("PORTOLAN_LOG", level),
        None => command.env_remove("PORTOLAN_LOG"),
    };
    let output = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("1 passed"), "{name} has not run: {out}");
    (out, err)
}

const LEFT: &str = "portolan: rank 0: warning: left behind (leaks=1 communicator(s) not dropped)\n";

#[test]
fn a_warning_reaches_standard_error() {
    let (_, err) = rank("leaves_something_behind", None);
    assert_eq!(err, LEFT);
}

#[test]
fn the_setting_says_how_much() {
    for level in ["off", "error"] {
        let (_, err) = rank("leaves_something_behind", Some(level));
        assert_eq!(err, "");
    }
    let (_, err) = rank("leaves_something_behind", Some("debug"));
    assert!(err.contains(LEFT), "{err}");
}

#[test]
fn a_program_that_listens_gets_the_messages_itself() {
    let (out, err) = rank("listens", None);
    assert!(out.contains("heard: 1 of portolan::world"), "{out}");
    assert_eq!(err, "");
}

#[test]
fn the_most_talkative_world_of_a_process_decides() {
    let (_, err) = rank("has_a_silent_world_and_another", Some("off"));
    assert_eq!(err, LEFT);
}

/// The cost of collective operations is summed over all communicators, whether they still exist or
/// not.
#[test]
fn counters_are_of_all_communicators() {
    for name in ["counts", "counts_and_drops"] {
        let (_, err) = rank(name, None);
        assert!(
            err.contains("portolan: rank 0: collective_operations 5\n"),
            "{err}"
        );
    }
}

/// The warning about the communicator comes from its `World::finalize`.
fn leave_something_behind(builder: portolan::Builder) {
    let world = builder.build().unwrap();
    let _left = world.comm().dup().unwrap();
    world.finalize().unwrap();
}

#[test]
#[ignore = "a rank of another test"]
fn leaves_something_behind() {
    leave_something_behind(portolan::Builder::new());
}

#[test]
#[ignore = "a rank of another test"]
fn has_a_silent_world_and_another() {
    leave_something_behind(portolan::Builder::new());
    leave_something_behind(portolan::Builder::new().setting("LOG", "warn"));
    leave_quietly();
}

/// A later world with a lower log level does not silence the earlier one; it has nothing to log
/// itself.
fn leave_quietly() {
    let world = portolan::Builder::new().build().unwrap();
    world.finalize().unwrap();
}

/// Two operations on the world's communicator and three on another, which is gone at the end.
fn count() -> portolan::World {
    let builder = portolan::Builder::new().setting("COUNTERS", "on");
    let world = builder.build().unwrap();
    let (comm, other) = (world.comm(), world.comm().dup().unwrap());
    for (comm, times) in [(&comm, 2), (&other, 3)] {
        for _ in 0..times {
            comm.barrier().unwrap();
        }
        assert_eq!(comm.counted(Counters::Operations), times);
    }
    world
}

#[test]
#[ignore = "a rank of another test"]
fn counts() {
    count().finalize().unwrap();
}

#[test]
#[ignore = "a rank of another test"]
fn counts_and_drops() {
    drop(count());
}

#[test]
#[ignore = "a rank of another test"]
fn listens() {
    let world = portolan::init().unwrap();
    // After the start of the world, which has not installed a subscriber that would stand in the
    // way.
    tracing::subscriber::set_global_default(Listener::default()).unwrap();
    let _left = world.comm().dup().unwrap();
    world.finalize().unwrap();
}

/// A program's own subscriber.
#[derive(Default)]
struct Listener(AtomicUsize);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    #[expect(
        clippy::print_stdout,
        reason = "the test that started this rank reads it"
    )]
    fn event(&self, event: &Event<'_>) {
        let heard = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        println!("heard: {heard} of {}", event.metadata().target());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
