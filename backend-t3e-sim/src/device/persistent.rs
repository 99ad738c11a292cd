//! Persistent requests. The engine's own would start the engine's operations, so one here is a request
//! that is never complete in the engine's table, and each start makes another one.

use std::collections::BTreeMap;

use portolan_core::engine::Data;
use portolan_core::matching::Pattern;
use portolan_core::{Device, Error, ErrorKind, Request, Result, SendArgs, Status};

use super::{T3e, Tagged};

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
pub(super) struct Persistents(BTreeMap<u64, Persistent>);

/// What a request stands for.
pub(super) enum Meaning {
    /// Itself.
    Itself,
    /// A persistent request that is not started.
    Inactive,
    /// A persistent request, started as this one.
    Started(Request),
}

impl Persistents {
    pub(super) fn meaning(&self, request: Request) -> Meaning {
        match self.0.get(&request.to_bits()) {
            None => Meaning::Itself,
            Some(persistent) => persistent
                .started
                .map_or(Meaning::Inactive, Meaning::Started),
        }
    }

    fn finished(&mut self, request: Request) {
        if let Some(persistent) = self.0.get_mut(&request.to_bits()) {
            persistent.started = None;
        }
    }
}

impl T3e {
    pub(super) fn meaning(&self, request: Request) -> Meaning {
        self.persistents.borrow().meaning(request)
    }

    pub(super) fn init(&self, operation: Operation) -> Result<Request> {
        let request = self.engine.upper_request(Box::new(Tagged))?;
        let persistent = Persistent {
            operation,
            started: None,
        };
        self.persistents
            .borrow_mut()
            .0
            .insert(request.to_bits(), persistent);
        Ok(request)
    }

    pub(super) fn start_persistent(&self, request: Request) -> Result<()> {
        let found = {
            let persistents = self.persistents.borrow();
            let known = persistents.0.get(&request.to_bits());
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
        if let Some(known) = self.persistents.borrow_mut().0.get_mut(&request.to_bits()) {
            known.started = Some(started);
        }
        Ok(())
    }

    /// Completes the operation of a persistent request, which becomes inactive, by `complete`.
    pub(super) fn complete_started(
        &self,
        request: Request,
        outcome: Result<Option<Status>>,
    ) -> Result<Option<Status>> {
        if !matches!(outcome, Ok(None)) {
            self.persistents.borrow_mut().finished(request);
        }
        outcome
    }

    /// Frees a persistent request; `false` if it is none.
    pub(super) fn free_persistent(&self, request: Request) -> Result<bool> {
        let removed = self.persistents.borrow_mut().0.remove(&request.to_bits());
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

    fn refuse(&self, what: String, remedy: &str) -> Error {
        Error::new(ErrorKind::InvalidRequest, what)
            .remedy(remedy)
            .on_rank(self.attributes.world_rank)
    }
}
