//! Persistent requests of a device whose messages are matched elsewhere.
//!
//! A device may leave everything but its tagged messages to an [engine](crate::Engine), and keep
//! the requests of those messages in the engine's table, as [requests of another kind](Upper). It
//! cannot use the engine's own persistent requests, because those would start messages of the
//! engine. So a persistent request of such a device is a request in that table that is never
//! complete. Each start makes another request, and [`Persistents`] knows which.

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
    /// The request of the operation that is under way, or is over and not completed yet.
    started: Option<Request>,
}

/// The persistent requests of a device whose messages are matched elsewhere, and which keeps its
/// requests in the table of a device `below`.
///
/// The device answers its own calls with these methods, for requests of any kind. They find out
/// which request of `below` is meant, and call `below` with that. They may be called from several
/// threads at once if the device may.
#[derive(Debug, Default)]
pub struct Persistents(Mutex<BTreeMap<u64, Known>>);

/// What a request refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Itself.
    Itself,
    /// A persistent request that is not started.
    Inactive,
    /// A persistent request, started as this one.
    Started(Request),
}

/// The device's side of a persistent request. It is neither queried nor cancelled, because it is
/// never complete.
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

    /// The active request that another refers to: itself, or the request that it was started as.
    /// `None` for a persistent request that is not started.
    #[must_use]
    pub fn under_way(&self, request: Request) -> Option<Request> {
        match self.meaning(request) {
            Meaning::Itself => Some(request),
            Meaning::Inactive => None,
            Meaning::Started(started) => Some(started),
        }
    }

    /// Makes a persistent request that is not started.
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

    /// Starts a persistent request: `start` starts the operation and returns its request.
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
        // Called without the lock, because it may make progress.
        let started = start(persistent)?;
        if let Some(known) = self.lock().get_mut(&request.to_bits()) {
            known.started = Some(started);
        }
        Ok(())
    }

    /// [`Device::is_complete`]. A persistent request that is not started is complete.
    #[inline]
    pub fn is_complete<D: Device>(&self, below: &D, request: Request) -> bool {
        self.under_way(request)
            .is_none_or(|request| below.is_complete(request))
    }

    /// [`Device::test`]. A persistent request that is not started is complete, with an empty status
    /// (MPI-4 section 3.7.3).
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

    /// Completes a request by `complete`. A persistent request becomes inactive if the operation
    /// that it was started as is over.
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

    /// [`Device::attach`]: attaches to the operation under way, if there is one.
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

    /// [`Device::free`]. If an operation is under way, its request is given up, too, and is
    /// returned.
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
        // The operation that was given up goes on.
        let to = crate::SendArgs::new(ProcId::new(0), 0, 0, 9);
        below.send_contig(&to, b"y").unwrap();
        assert_eq!(byte, b'y');
    }
}
