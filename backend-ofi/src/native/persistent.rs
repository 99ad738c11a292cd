//! Persistent requests. The engine's own would start the engine's operations, so one here is a request
//! that is never complete in the engine's table, and each start makes another one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use portolan_core::engine::Data;
use portolan_core::level::Level;
use portolan_core::matching::Pattern;
use portolan_core::{Device, Error, ErrorKind, Request, Result, SendArgs, Status};

use super::{Native, Tagged};

/// What a persistent request starts.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Send(SendArgs, Data),
    Receive(Pattern, Data),
}

/// A persistent request.
#[derive(Debug)]
struct Persistent {
    operation: Operation,
    /// The operation under way, or over and not completed.
    started: Option<Request>,
}

/// The persistent requests of a device, by their bits.
#[derive(Debug, Default)]
pub(super) struct Persistents(Mutex<BTreeMap<u64, Persistent>>);

/// What a request stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Itself.
    Itself,
    /// A persistent request that is not started.
    Inactive,
    /// A persistent request, started as this one.
    Started(Request),
}

impl Persistents {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Persistent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn meaning(&self, request: Request) -> Meaning {
        match self.lock().get(&request.to_bits()) {
            None => Meaning::Itself,
            Some(Persistent { started: None, .. }) => Meaning::Inactive,
            Some(Persistent {
                started: Some(started),
                ..
            }) => Meaning::Started(*started),
        }
    }

    /// A persistent request is inactive from now on if what it was started as is over.
    pub(super) fn finished(&self, request: Request, outcome: &Result<Option<Status>>) {
        if !matches!(outcome, Ok(None))
            && let Some(persistent) = self.lock().get_mut(&request.to_bits())
        {
            persistent.started = None;
        }
    }
}

impl<L: Level> Native<L> {
    pub(super) fn init(&self, operation: Operation) -> Result<Request> {
        match &operation {
            Operation::Send(args, _) => self.shared.check_send(args)?,
            Operation::Receive(from, _) => self.shared.check_pattern(from)?,
        }
        let request = self.engine.upper_request(Box::new(Tagged))?;
        let persistent = Persistent {
            operation,
            started: None,
        };
        self.persistents
            .lock()
            .insert(request.to_bits(), persistent);
        Ok(request)
    }

    pub(super) fn start_persistent(&self, request: Request) -> Result<()> {
        let found = {
            let persistents = self.persistents.lock();
            let known = persistents.get(&request.to_bits());
            known.map(|known| (known.operation.clone(), known.started.is_some()))
        };
        let operation = match found {
            Some((operation, false)) => operation,
            Some((_, true)) => {
                let what = format!("{request:?} is active already");
                return Err(self.refuse(what, "complete it before starting it again"));
            }
            None => {
                let what = format!("{request:?} is not persistent");
                let remedy = "start only requests that send_init or recv_init made";
                return Err(self.refuse(what, remedy));
            }
        };
        let started = match operation {
            // SAFETY: the maker of the persistent request promised the buffer from each start until
            // the completion.
            Operation::Send(args, data) => unsafe { self.start_send(&args, data)? },
            // SAFETY: as above.
            Operation::Receive(from, data) => unsafe { self.start_receive(&from, data)? },
        };
        if let Some(known) = self.persistents.lock().get_mut(&request.to_bits()) {
            known.started = Some(started);
        }
        Ok(())
    }

    /// Frees a persistent request; `false` if it is none.
    pub(super) fn free_persistent(&self, request: Request) -> Result<bool> {
        let removed = self.persistents.lock().remove(&request.to_bits());
        let Some(persistent) = removed else {
            return Ok(false);
        };
        if let Some(started) = persistent.started {
            self.engine.free(started)?;
        }
        self.engine.complete_upper(request, Status::EMPTY)?;
        self.engine.free(request)?;
        Ok(true)
    }

    pub(super) fn refuse(&self, what: String, remedy: &str) -> Error {
        Error::new(ErrorKind::InvalidRequest, what)
            .remedy(remedy)
            .on_rank(self.attributes.world_rank)
    }
}
