//! Ends a test program that hangs, and says where.

use std::io::Write;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a case may take, in seconds, unless [`VARIABLE`] says otherwise. Far more than any
/// needs: it is there for deadlocks.
const LIMIT: u64 = 300;

/// The variable with another limit in seconds: for slow machines, and for people who hunt a hang.
const VARIABLE: &str = "PORTOLAN_TEST_LIMIT";

fn limit() -> Duration {
    let given = std::env::var(VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(LIMIT))
}

/// While it lives, the program is ended if it lives too long.
///
/// A test thread that hangs cannot be stopped in Rust, and the ranks it waits for cannot either: an
/// end with a message is all there is.
#[derive(Debug)]
pub struct Watchdog {
    done: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches over `what`.
    #[must_use]
    pub fn new(what: &str) -> Self {
        let what = what.to_owned();
        let (done, over) = mpsc::channel();
        let limit = limit();
        let watch = move || {
            if over.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                let mut out = std::io::stderr().lock();
                let seconds = limit.as_secs();
                // Nothing can be done about a standard error that is closed.
                let _ = writeln!(out, "hung: {what} has not ended after {seconds} s");
                std::process::abort();
            }
        };
        Self {
            done: Some(done),
            thread: Some(thread::spawn(watch)),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            // The thread has nothing to panic about.
            let _ = thread.join();
        }
    }
}
