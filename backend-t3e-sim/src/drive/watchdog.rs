//! The host's watchdog. It is needed because a PE whose program makes no call holds up the whole
//! machine.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use portolan_core::{Error, ErrorKind, Result};

use super::threads::Baton;
use crate::machine::Machine;

/// Watches a machine of threads until its last link is dropped.
pub(super) fn watch(baton: &Arc<Baton>, patience: Duration) -> Result<()> {
    let baton = Arc::downgrade(baton);
    let dog = thread::Builder::new()
        .name("t3e-watchdog".to_owned())
        .stack_size(64 << 10)
        .spawn(move || guard(&baton, patience));
    dog.map(drop).map_err(|error| {
        Error::new(
            ErrorKind::Exhausted,
            format!("the watchdog's thread did not start: {error}"),
        )
        .remedy("start fewer threads, or set PORTOLAN_T3E_WATCHDOG=0")
        .on_device("t3e-sim")
    })
}

fn guard(baton: &Weak<Baton>, patience: Duration) {
    let tick = (patience / 4).clamp(Duration::from_millis(1), Duration::from_secs(1));
    let (mut calls, mut since) = (u64::MAX, Instant::now());
    let mut stopped = false;
    loop {
        thread::sleep(tick);
        let Some(baton) = baton.upgrade() else {
            return;
        };
        let so_far = baton.calls.load(Ordering::Relaxed);
        if so_far != calls {
            (calls, since) = (so_far, Instant::now());
            continue;
        }
        if since.elapsed() < patience {
            continue;
        }
        let mut machine = baton.machine();
        if machine.running() == 0 {
            continue;
        }
        if stopped {
            give_up(&machine, patience);
        }
        let text = complaint(&machine, patience);
        baton.stop(&mut machine, text, REMEDY);
        (stopped, since) = (true, Instant::now());
    }
}

/// The remedy for a program that makes no calls.
pub(super) const REMEDY: &str =
    "call the device in loops that wait, or raise PORTOLAN_T3E_WATCHDOG (0 switches it off)";

/// The text that names the PEs which hold up the machine.
pub(super) fn complaint(machine: &Machine, patience: Duration) -> String {
    let runners: Vec<u32> = machine.runners().collect();
    let who: Vec<_> = runners
        .iter()
        .take(8)
        .map(|pe| format!("PE {pe} (at {} of virtual time)", machine.clock(*pe)))
        .collect();
    let more = match runners.len().saturating_sub(8) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "no call for {} s of the host's time from {}{more}: all other PEs wait for it",
        patience.as_secs_f64(),
        who.join(", ")
    )
}

/// Ends the process: the other PEs have been told, but the one that makes no call cannot be.
fn give_up(machine: &Machine, patience: Duration) -> ! {
    let words = format!(
        "portolan: t3e-sim: {}; {REMEDY}\n",
        complaint(machine, patience)
    );
    // The last message of a process that nothing else can end. If standard error is closed, it is
    // lost.
    let _ = std::io::stderr().write_all(words.as_bytes());
    std::process::exit(EXIT_CODE)
}

/// The exit code of a process that the watchdog ends: `EX_SOFTWARE`.
pub(super) const EXIT_CODE: i32 = 70;
