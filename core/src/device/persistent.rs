//! Persistent requests of a device whose messages are matched elsewhere.
//!
//! A device may leave all but its tagged messages to an [engine](crate::Engine), and keep the
//! requests of those in the engine's table, as [requests of another kind](Upper). The engine's own
//! persistent requests would start messages of the engine. So one of such a device is a request
//! that is never complete in that table, and each start makes another one, which [`Persistents`]
//! knows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Completion, Device, SendArgs, Upper};
use crate::engine::Data;
use crate::error::{Error, ErrorKind, Result};
use crate::matching::Pattern;
use crate::request::Request;
use crate::status::Status;

/// What a persistent request starts, kept with its wildcards (paper, section 6.1).
#[derive(Clone, Debug)]
pub enum Persistent {
    /// A send.
    Send(SendArgs, Data),
    /// A receive.
    Recv(Pattern, Data),
}

/// A persistent request.
#[derive(Debug)]
struct Known {
    persistent: Persistent,
    /// The operation under way, or over and not completed.
    started: Option<Request>,
}

/// The persistent requests of a device that has messages matched elsewhere, and keeps requests in
/// the table of a device `below`.
///
/// Its methods are what the device does with any request where the device below does it with its
/// own. From several threads at once they may be called as the device may.
#[derive(Debug, Default)]
pub struct Persistents(Mutex<BTreeMap<u64, Known>>);

/// What a request stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Itself.
    Itself,
    /// A persistent request that is not started.
    Inactive,
    /// A persistent request, started as this one.
    Started(Request),
}

/// The device's side of a persistent request: neither queried nor cancelled, as it is never
/// complete.
struct Never;

impl Upper for Never {}

impl Persistents {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meaning(&self, request: Request) -> Meaning {
        match self.lock().get(&request.to_bits()) {
            None => Meaning::Itself,
            Some(Known { started: None, .. }) => Meaning::Inactive,
            Some(Known {
                started: Some(started),
                ..
            }) => Meaning::Started(*started),
        }
    }

    /// Whether a request is persistent.
    #[must_use]
    pub fn contains(&self, request: Request) -> bool {
        self.lock().contains_key(&request.to_bits())
    }

    /// The request under way that another stands for: itself, or what it was started as; `None` of
    /// a persistent one that is not started.
    #[must_use]
    pub fn under_way(&self, request: Request) -> Option<Request> {
        match self.meaning(request) {
            Meaning::Itself => Some(request),
            Meaning::Inactive => None,
            Meaning::Started(started) => Some(started),
        }
    }

    /// Makes a persistent request, which is not started.
    ///
    /// # Errors
    /// Those of [`Device::upper_request`].
    pub fn init<D: Device>(&self, below: &D, persistent: Persistent) -> Result<Request> {
        let request = below.upper_request(Box::new(Never))?;
        let known = Known {
            persistent,
            started: None,
        };
        self.lock().insert(request.to_bits(), known);
        Ok(request)
    }

    /// Starts a persistent request: `start` gives the request of the operation.
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if it is not persistent or not inactive; those
    /// of `start`.
    pub fn start<D: Device>(
        &self,
        below: &D,
        request: Request,
        start: impl FnOnce(Persistent) -> Result<Request>,
    ) -> Result<()> {
        let refused = |what, remedy: &str| {
            Err(
                Error::new(ErrorKind::InvalidRequest, format!("{request:?} is {what}"))
                    .remedy(remedy)
                    .on_rank(below.attributes().world_rank),
            )
        };
        let persistent = match self.lock().get(&request.to_bits()) {
            None => {
                let remedy = "start only requests that send_init or recv_init made";
                return refused("not persistent", remedy);
            }
            Some(Known {
                started: Some(_), ..
            }) => return refused("active already", "complete it before starting it again"),
            Some(known) => known.persistent.clone(),
        };
        // Without the lock: it may make progress.
        let started = start(persistent)?;
        if let Some(known) = self.lock().get_mut(&request.to_bits()) {
            known.started = Some(started);
        }
        Ok(())
    }

    /// [`Device::is_complete`]. One that is not started is complete.
    #[inline]
    pub fn is_complete<D: Device>(&self, below: &D, request: Request) -> bool {
        self.under_way(request)
            .is_none_or(|request| below.is_complete(request))
    }

    /// [`Device::test`]. One that is not started is complete, with an empty status (MPI-4 section
    /// 3.7.3).
    ///
    /// # Errors
    /// Those of the operation.
    pub fn test<D: Device>(&self, below: &D, request: Request) -> Result<Option<Status>> {
        self.completed(request, |request| below.test(request))
    }

    /// [`Device::wait`], as [`test`](Self::test).
    ///
    /// # Errors
    /// Those of the operation.
    pub fn wait<D: Device>(&self, below: &D, request: Request) -> Result<Status> {
        let status = self.completed(request, |request| below.wait(request).map(Some))?;
        Ok(status.unwrap_or(Status::EMPTY))
    }

    /// Completes a request by `complete`. A persistent one is inactive from then on, if what it was
    /// started as is over.
    fn completed(
        &self,
        request: Request,
        complete: impl FnOnce(Request) -> Result<Option<Status>>,
    ) -> Result<Option<Status>> {
        let started = match self.meaning(request) {
            Meaning::Itself => return complete(request),
            Meaning::Inactive => return Ok(Some(Status::EMPTY)),
            Meaning::Started(started) => started,
        };
        let outcome = complete(started);
        if !matches!(outcome, Ok(None))
            && let Some(known) = self.lock().get_mut(&request.to_bits())
        {
            known.started = None;
        }
        outcome
    }

    /// [`Device::peek`].
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest).
    pub fn peek<D: Device>(&self, below: &D, request: Request) -> Result<Option<Status>> {
        match self.under_way(request) {
            Some(request) => below.peek(request),
            None => Ok(Some(Status::EMPTY)),
        }
    }

    /// [`Device::attach`]: to what is under way, if it is.
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest).
    pub fn attach<D: Device>(
        &self,
        below: &D,
        request: Request,
        completion: Completion,
    ) -> Result<()> {
        below.attach(self.under_way(request).unwrap_or(request), completion)
    }

    /// [`Device::free`]. Returns the operation under way whose request is given up with it, if one
    /// is.
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest).
    pub fn free<D: Device>(&self, below: &D, request: Request) -> Result<Option<Request>> {
        let removed = self.lock().remove(&request.to_bits());
        let Some(known) = removed else {
            below.free(request)?;
            return Ok(Some(request));
        };
        if let Some(started) = known.started {
            below.free(started)?;
        }
        below.complete_upper(request, Status::EMPTY)?;
        below.free(request)?;
        Ok(known.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::ContigBuf;
    use crate::config::Settings;
    use crate::device::{Adi, ProcId};
    use crate::engine::Engine;
    use crate::level::Single;
    use crate::transport::memory;

    #[test]
    fn a_persistent_request_is_what_it_was_started_as() {
        let transport = memory::network(1).pop().expect("one rank");
        let below: Engine<_, Single> = Engine::new(transport, &Settings::default()).unwrap();
        let persistents = Persistents::default();
        let mut byte = 0;
        let data = Data::Contig(ContigBuf::from_bytes_mut(std::slice::from_mut(&mut byte)));
        let receive = Persistent::Recv(Pattern::any(0), data);
        let request = persistents.init(&below, receive).unwrap();
        let start = |persistent| match persistent {
            Persistent::Recv(from, Data::Contig(buf)) => {
                // SAFETY: the byte outlives the receive, and nobody reads it before the end.
                unsafe { below.irecv_contig_unchecked(&from, buf) }
            }
            other => panic!("{other:?} was not made here"),
        };
        let kind = |outcome: Result<()>| outcome.unwrap_err().kind();

        assert!(persistents.contains(request) && persistents.is_complete(&below, request));
        assert_eq!(persistents.under_way(request), None);
        assert_eq!(
            persistents.test(&below, request).unwrap(),
            Some(Status::EMPTY)
        );
        for tag in [7, 8] {
            persistents.start(&below, request, start).unwrap();
            assert!(!persistents.is_complete(&below, request));
            let again = persistents.start(&below, request, start);
            assert_eq!(kind(again), ErrorKind::InvalidRequest);
            let to = crate::SendArgs::new(ProcId::new(0), 0, 0, tag);
            below.send_contig(&to, b"x").unwrap();
            assert_eq!(persistents.wait(&below, request).unwrap().tag, tag);
            assert_eq!(persistents.wait(&below, request).unwrap(), Status::EMPTY);
        }

        persistents.start(&below, request, start).unwrap();
        let under_way = persistents.under_way(request).expect("it was started");
        assert_eq!(persistents.free(&below, request).unwrap(), Some(under_way));
        assert!(!persistents.contains(request));
        assert_eq!(
            kind(persistents.start(&below, request, start)),
            ErrorKind::InvalidRequest
        );
        // What was given up goes on.
        let to = crate::SendArgs::new(ProcId::new(0), 0, 0, 9);
        below.send_contig(&to, b"y").unwrap();
        assert_eq!(byte, b'y');
    }
}
