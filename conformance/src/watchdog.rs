//! Ends a test program that hangs, and says where.

use std::io::Write;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a case may take, in seconds, unless [`VARIABLE`] says otherwise. It is far more than
/// any case needs, because it only serves to catch deadlocks.
const LIMIT: u64 = 300;

/// The variable for another limit in seconds: for slow machines, and for debugging a hang.
const VARIABLE: &str = "PORTOLAN_TEST_LIMIT";

fn limit() -> Duration {
    let given = std::env::var(VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(LIMIT))
}

/// Ends the program if this value lives too long.
///
/// A Rust test thread that hangs cannot be stopped, and neither can the ranks that it waits for.
/// All that can be done is to end the program with a message.
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
                // If standard error is closed, the message is lost.
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
            // The thread has no reason to panic.
            let _ = thread.join();
        }
    }
}
