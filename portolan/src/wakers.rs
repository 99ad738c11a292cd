//! Tasks that await requests, and the thread that wakes them.
//!
//! An executor polls a task again only when its waker is called, and the thread that completes a
//! request is whichever makes progress. If no thread does, because every task is suspended, nothing
//! would ever complete. So a rank has one thread for all its tasks. It starts when a task is first
//! suspended, and waits in the device as a blocking call does (it spins briefly, then sleeps).
//! After each completion it wakes the tasks whose requests are complete.
//!
//! Wakers are foreign code: calling, cloning or dropping one may run anything, even drop the last
//! handle of the rank. So none of that is done while a lock is held here, and the thread looks
//! whether it has to end before it touches the device again. The device is not called under this
//! module's lock either: under its own it may drop buffers, and with them requests.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::thread::{self, JoinHandle};

use portolan_core::device::{Check, Upper};
use portolan_core::level::Multiple;
use portolan_core::{Device, Request, Status};

use crate::any::AnyDevice;

/// The tasks of a rank that are suspended, and their thread.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    tasks: Arc<Tasks>,
    /// `None` if it could not be started.
    thread: OnceLock<Option<Running>>,
}

/// The thread, until it is told to end.
#[derive(Debug)]
struct Running {
    /// The request whose completion ends the thread's wait in the device.
    end: Request,
    handle: Mutex<Option<JoinHandle<()>>>,
}

/// The tasks that are suspended.
#[derive(Debug, Default)]
struct Tasks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<Request, Waker>,
    /// The rank is leaving its job: nobody wakes tasks any more.
    over: bool,
}

/// A task that is woken when its request is complete, until this is dropped.
#[derive(Debug)]
pub struct Suspended {
    tasks: Arc<Tasks>,
    request: Request,
}

impl Wakers {
    /// Has the task woken, once, when the request is complete. `None` if that cannot be promised:
    /// the thread could not be started, or the rank is leaving. The request may have become
    /// complete before this call, so the caller has to look again.
    pub(crate) fn suspend(
        &self,
        device: &AnyDevice<Multiple>,
        request: Request,
        waker: &Waker,
    ) -> Option<Suspended> {
        self.thread
            .get_or_init(|| start(device, &self.tasks))
            .as_ref()?;
        let waker = waker.clone();
        let mut state = self.tasks.lock();
        if state.over {
            return None;
        }
        let before = state.waiting.insert(request, waker);
        drop(state);
        drop(before);
        self.tasks.changed.notify_one();
        Some(Suspended {
            tasks: Arc::clone(&self.tasks),
            request,
        })
    }

    /// Ends the thread, which no longer uses the device when this returns, and wakes all tasks:
    /// they have to look for themselves from now on. Later calls do nothing.
    pub(crate) fn end(&self, device: &AnyDevice<Multiple>) {
        self.tasks.lock().over = true;
        self.tasks.changed.notify_one();
        if let Some(Some(running)) = self.thread.get() {
            let handle = running
                .handle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(handle) = handle {
                // An error would mean that the job has failed, and then the thread's wait returns.
                let _ = device.complete_upper(running.end, Status::EMPTY);
                // In this very thread a waker has dropped the rank's last handle. The thread ends
                // as soon as that waker returns.
                if handle.thread().id() != thread::current().id() {
                    let _ = handle.join();
                }
                let _ = device.free(running.end);
            }
        }
        wake(self.tasks.take_all());
    }
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is a task, and lists what they all wait for; `false` if the thread has to
    /// end.
    fn list(&self, requests: &mut Vec<Request>) -> bool {
        let idle = |state: &mut State| state.waiting.is_empty() && !state.over;
        let state = self.changed.wait_while(self.lock(), idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        requests.clear();
        requests.extend(state.waiting.keys());
        !state.over
    }

    /// Takes the wakers of these requests.
    fn take(&self, requests: impl Iterator<Item = Request>) -> Vec<Waker> {
        let mut state = self.lock();
        requests
            .filter_map(|request| state.waiting.remove(&request))
            .collect()
    }

    fn take_all(&self) -> Vec<Waker> {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_values().collect()
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let waker = self.tasks.lock().waiting.remove(&self.request);
        // Here, where the lock is no longer held.
        drop(waker);
    }
}

/// A request that is complete when the thread has to end.
struct End;

impl Upper for End {}

/// The device, for the thread.
struct Lent(*const AnyDevice<Multiple>);

// SAFETY: `AnyDevice<Multiple>` is `Sync`, as the compiler checks below.
unsafe impl Send for Lent {}
const _: fn() = || {
    fn is_sync<T: Sync>() {}
    is_sync::<AnyDevice<Multiple>>();
};

/// Starts the thread. `None` if there is no thread or no request for it.
fn start(device: &AnyDevice<Multiple>, tasks: &Arc<Tasks>) -> Option<Running> {
    let end = device.upper_request(Box::new(End)).ok()?;
    let (lent, tasks) = (Lent(device), Arc::clone(tasks));
    let name = format!("portolan-wake-{}", device.attributes().world_rank);
    let started = thread::Builder::new()
        .name(name)
        .spawn(move || attend(&lent, &tasks));
    match started {
        Ok(handle) => Some(Running {
            end,
            handle: Mutex::new(Some(handle)),
        }),
        Err(error) => {
            let rank = device.attributes().world_rank;
            portolan_core::log!(WARN, rank, %error, "no thread wakes tasks that await requests: they are polled without pause");
            let _ = device.complete_upper(end, Status::EMPTY);
            let _ = device.free(end);
            None
        }
    }
}

/// What the thread does.
fn attend(lent: &Lent, tasks: &Tasks) {
    let mut requests = Vec::new();
    while tasks.list(&mut requests) {
        // SAFETY: the device exists until `Wakers::end` has returned. That waits for this thread,
        // unless this thread called it, from a waker; then `list` has returned `false` since.
        let device = unsafe { &*lent.0 };
        // Before the look at the requests: what completes later changes it.
        let epoch = device.completion_epoch();
        requests.retain(|&request| device.is_complete(request));
        if !requests.is_empty() {
            wake(tasks.take(requests.drain(..)));
        } else if device.device_check(Check::Blocking(epoch)).is_err() {
            // The job ends; each task finds its own error.
            wake(tasks.take_all());
        }
    }
}

/// Wakes tasks. The panic of one leaves the others to be woken.
fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}
