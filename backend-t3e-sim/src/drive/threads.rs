//! PEs as threads of one process: a baton passes from thread to thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use portolan_core::{Error, Result};

use super::{Link, Welcome, watchdog};
use crate::machine::{Call, Machine, Next, Refusal, Reply, Time};

/// Makes the links of a machine whose PEs are threads of this process, in the order of the PEs.
///
/// Each PE's first call waits until all PEs have made theirs. With `patience`, a PE whose program
/// makes no call for that long, in the host's time, stops the machine. If it makes none for as long
/// again, the process ends with a message, because a thread cannot be ended.
///
/// # Errors
/// [`Exhausted`](portolan_core::ErrorKind::Exhausted) if the watchdog cannot be started.
pub fn threads(machine: Machine, patience: Option<Duration>) -> Result<Vec<Box<dyn Link>>> {
    let pes = machine.pes();
    let welcomes: Vec<_> = (0..pes).map(|pe| Welcome::new(&machine, pe)).collect();
    let baton = Arc::new(Baton {
        machine: Mutex::new(machine),
        seats: (0..pes).map(|_| Seat::default()).collect(),
        calls: AtomicU64::new(0),
    });
    if let Some(patience) = patience {
        watchdog::watch(&baton, patience)?;
    }
    let link = |welcome| -> Box<dyn Link> {
        Box::new(ThreadLink {
            baton: Arc::clone(&baton),
            welcome,
        })
    };
    Ok(welcomes.into_iter().map(link).collect())
}

/// The machine, and the seats in which its PEs wait.
pub(super) struct Baton {
    machine: Mutex<Machine>,
    seats: Vec<Seat>,
    /// The number of calls so far, for the watchdog.
    pub(super) calls: AtomicU64,
}

/// The place in which a PE waits for the end of its call.
#[derive(Default)]
struct Seat(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    thread: Option<Thread>,
    reply: Option<Result<Reply, Refusal>>,
}

impl Baton {
    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    fn call(&self, pe: u32, charged: Time, call: Call) -> Result<Reply, Refusal> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.seats[pe as usize].sit_down();
        let mut machine = self.machine();
        if let Some(refusal) = machine.stopped() {
            return Err(refusal.clone());
        }
        machine.submit(pe, charged, call);
        let outcome = self.run(&mut machine, pe);
        drop(machine);
        match outcome {
            Handed::Back(reply) => Ok(reply),
            Handed::On(next, reply) => {
                self.seats[next as usize].give(Ok(reply));
                self.seats[pe as usize].wait()
            }
            Handed::Nowhere => self.seats[pe as usize].wait(),
        }
    }

    /// Lets time pass until a PE runs.
    fn run(&self, machine: &mut Machine, me: u32) -> Handed {
        while machine.running() == 0 {
            match machine.advance() {
                // This PE has left; another one is to run.
                Next::Resume(pe, reply) if machine.running() == 0 => {
                    self.seats[pe as usize].give(Ok(reply));
                }
                Next::Resume(pe, reply) if pe == me => return Handed::Back(reply),
                Next::Resume(pe, reply) => return Handed::On(pe, reply),
                Next::Finished => break,
                Next::Deadlock(text) => machine.stop(text, "see which PE should have acted first"),
                Next::Stopped(refusal) => {
                    self.end_all(&refusal);
                    break;
                }
            }
        }
        Handed::Nowhere
    }

    /// Stops the machine and ends all waits.
    pub(super) fn stop(&self, machine: &mut Machine, why: String, remedy: &str) {
        machine.stop(why, remedy);
        if let Some(refusal) = machine.stopped() {
            self.end_all(refusal);
        }
    }

    fn end_all(&self, refusal: &Refusal) {
        for seat in &self.seats {
            seat.give(Err(refusal.clone()));
        }
    }
}

/// The place to which the baton went.
enum Handed {
    /// The caller's own call has ended.
    Back(Reply),
    /// This PE's call has ended.
    On(u32, Reply),
    /// Other programs are still running, or all waits have ended.
    Nowhere,
}

impl Seat {
    /// Prepares to wait, before the call is handed over, so that the thread that ends the call
    /// knows which thread to wake.
    fn sit_down(&self) {
        let mut waiting = lock(&self.0);
        waiting.reply = None;
        waiting.thread = Some(thread::current());
    }

    fn give(&self, reply: Result<Reply, Refusal>) {
        let mut waiting = lock(&self.0);
        // A reply that is already there stays: the call ended before the machine stopped.
        waiting.reply.get_or_insert(reply);
        let thread = waiting.thread.clone();
        drop(waiting);
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    fn wait(&self) -> Result<Reply, Refusal> {
        loop {
            if let Some(reply) = lock(&self.0).reply.take() {
                return reply;
            }
            thread::park();
        }
    }
}

/// Ignores poisoning: a panic with the lock held leaves nothing half done. Only one call at a time
/// changes the machine, and a panic inside it is a bug of the emulator that the next call meets
/// again.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ThreadLink {
    baton: Arc<Baton>,
    welcome: Welcome,
}

impl Link for ThreadLink {
    fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    fn call(&mut self, charged: Time, call: Call) -> Result<Reply> {
        let reply = self.baton.call(self.welcome.pe, charged, call);
        reply.map_err(Error::from)
    }
}
