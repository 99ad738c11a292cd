//! The engine over a transport, as a system under test.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

use portolan_core::level::{Multiple, Single};
use portolan_core::{Device, Engine, ProcId, Transport};

use crate::sut::{Job, Sut};

/// How the transports of a job are made.
pub trait Transports {
    /// The transport.
    type Transport: Transport;

    /// Name in test output.
    const NAME: &'static str;

    /// See [`Sut::missing`].
    fn missing() -> Option<String> {
        None
    }

    /// The transports of a job inside this process, by rank.
    fn open(job: &Job) -> Vec<Self::Transport>;
}

/// The engine over the transports that `T` makes.
#[derive(Debug)]
pub struct Over<T>(PhantomData<T>);

impl<T: Transports> Sut for Over<T> {
    type Device = Engine<T::Transport, Single>;
    type Shared = Engine<T::Transport, Multiple>;

    const NAME: &'static str = T::NAME;

    fn missing() -> Option<String> {
        T::missing()
    }

    fn run<R: Send>(job: &Job, body: impl Fn(&Self::Device) -> R + Sync) -> Vec<R> {
        let engine = |transport| Engine::new(transport, &job.settings).expect("an engine");
        on_threads(T::open(job), engine, body)
    }

    fn run_shared<R: Send>(job: &Job, body: impl Fn(&Self::Shared) -> R + Sync) -> Vec<R> {
        let engine = |transport| Engine::new(transport, &job.settings).expect("an engine");
        on_threads(T::open(job), engine, body)
    }
}

/// Runs `body` on one thread per part, on the device that `make` makes of the part.
///
/// # Panics
/// With the first panic, when every rank has ended.
pub fn on_threads<T: Send, D: Device, R: Send>(
    parts: Vec<T>,
    make: impl Fn(T) -> D + Sync,
    body: impl Fn(&D) -> R + Sync,
) -> Vec<R> {
    let first: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);
    let rank = |part| {
        let device = make(part);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let result = body(&device);
            end(&device);
            result
        }));
        result.map_err(|panic| {
            first
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(panic);
            device.declare_self_failed("its thread panicked");
        })
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(|| rank(part)))
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    if let Some(panic) = first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(panic);
    }
    let ended = |result: thread::Result<Result<R, ()>>| match result {
        Ok(Ok(result)) => result,
        Ok(Err(())) => unreachable!("the panic was carried on above"),
        Err(panic) => resume_unwind(panic),
    };
    results.into_iter().map(ended).collect()
}

/// Ends a device, unless ranks have died: then the others cannot end it together.
fn end<D: Device>(device: &D) {
    let mut ranks = (0..device.attributes().world_size).map(ProcId::new);
    if ranks.any(|rank| device.failure_of(rank).is_some()) {
        return;
    }
    if let Err(error) = device.end() {
        panic!("the end of a job in which nobody died: {error}");
    }
}
