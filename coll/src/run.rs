//! Schedules inside a blocking call.
//!
//! A round of one receive, or of one send and one receive, needs no more requests than a program
//! would use itself. An error in a message (its length, its type) does not end the schedule,
//! because other ranks wait for the rest of it: the error is kept, and returned at the end. The
//! death of a member does end it. A device that has no room for another request does not: there
//! will be room when other requests are over.

use portolan_core::buffer::{ContigBuf, MemoryKind, TypedBuf};
use portolan_core::comm::{Communicator, NoUnwind};
use portolan_core::device::{Check, SendArgs};
use portolan_core::matching::Pattern;
use portolan_core::{Adi, Device, Error, ErrorKind, Request, Result, Status};
use portolan_datatype::Signature;

use crate::args::Name;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::schedule::{Lane, LayoutId, Schedule, Span, Step};
use crate::state::{OwnTags, State};

/// Attempts to get a request before the operation gives up: if all requests are the calling
/// program's own, no other call will complete one.
pub(crate) const PATIENCE: u32 = 1 << 20;

/// One run of a schedule.
pub(crate) struct Run<'a, D: Device> {
    pub(crate) comm: &'a Communicator<D>,
    pub(crate) state: &'a State,
    pub(crate) tags: OwnTags,
    pub(crate) schedule: &'a Schedule,
    pub(crate) memory: Memory,
}

impl<D: Device> Run<'_, D> {
    /// Takes all steps.
    ///
    /// # Safety
    /// The schedule was built for this communicator, and all of its spans lie within `memory`,
    /// which nothing else uses during the call.
    pub(crate) unsafe fn steps(&self, requests: &mut Vec<Started>) -> Result<()> {
        // SAFETY: from the caller.
        unsafe { self.steps_watched(requests, |_| Ok(true)) }
    }

    /// Takes all steps. Before it waits for a message, `comes` says whether the message will
    /// complete; one that will not is cancelled.
    ///
    /// # Safety
    /// As [`steps`](Self::steps).
    pub(crate) unsafe fn steps_watched(
        &self,
        requests: &mut Vec<Started>,
        mut comes: impl FnMut(&Started) -> Result<bool>,
    ) -> Result<()> {
        let mut first = None;
        let guard = NoUnwind::new("a collective operation");
        let mut steps = self.schedule.steps();
        while !steps.is_empty() {
            // SAFETY: from the caller.
            let (taken, outcome) = unsafe { self.round(steps, requests, &mut comes) };
            steps = &steps[taken..];
            if let Err(error) = outcome {
                let over = ends(&error);
                first.get_or_insert(error);
                if over {
                    break;
                }
            }
        }
        guard.done();
        first.map_or(Ok(()), Err)
    }

    /// Takes the steps up to and including the next wait; returns how many those were.
    unsafe fn round(
        &self,
        steps: &[Step],
        requests: &mut Vec<Started>,
        comes: &mut impl FnMut(&Started) -> Result<bool>,
    ) -> (usize, Result<()>) {
        let mut outcome = Ok(());
        let mut taken = 0;
        for step in steps {
            taken += 1;
            let done = match *step {
                Step::Wait => break,
                // SAFETY: from the caller, for all of them.
                Step::Copy { from, to } => unsafe {
                    self.memory.copy(self.schedule, from, to);
                    Ok(())
                },
                // SAFETY: as above.
                Step::Combine { left, right } => unsafe {
                    self.memory.combine(self.schedule, left, right)
                },
                // SAFETY: as above.
                Step::Convert { how, from, to } => unsafe {
                    self.memory.convert(self.schedule, how, from, to);
                    Ok(())
                },
                Step::Compare(step) => {
                    // SAFETY: as above.
                    let agreed = unsafe { self.memory.compare(self.schedule, step) };
                    if let Err(error) = agreed {
                        // All ranks get this error, so none of them takes another step.
                        return (steps.len(), Err(error));
                    }
                    Ok(())
                }
                Step::Send { to, lane, data } => {
                    let tag = self.tags.lane(lane);
                    self.state.count(Counters::Messages, 1);
                    self.state.count(Counters::Bytes, data.len() as u64);
                    let args = self.comm.collective_args(to, tag);
                    args.and_then(|args| {
                        // SAFETY: as above; the buffer is not touched until the round is over.
                        let start = || unsafe { self.start_send(&args, data) };
                        self.started(requests, (to, lane, None), start)
                    })
                }
                Step::Recv { from, lane, data } => {
                    let pattern = self.comm.collective_pattern(from, self.tags.lane(lane));
                    pattern.and_then(|pattern| {
                        // SAFETY: as above.
                        let start = || unsafe { self.start_recv(&pattern, data) };
                        self.started(requests, (from, lane, Some(data.len())), start)
                    })
                }
            };
            if let Err(error) = done {
                outcome = outcome.and(Err(error));
            }
        }
        if !requests.is_empty() {
            self.state.count(Counters::Waits, 1);
            // Other ranks wait for the messages that were started, unless a rank has died.
            let waited = self.wait_for(requests, outcome.as_ref().is_err_and(ends), comes);
            outcome = outcome.and(waited);
        }
        (taken, outcome)
    }

    /// Starts a message, as soon as the device has room for its request.
    #[inline]
    fn started(
        &self,
        requests: &mut Vec<Started>,
        (peer, lane, expected): (u32, Lane, Option<usize>),
        start: impl Fn() -> Result<Request>,
    ) -> Result<()> {
        let mut outcome = start();
        let mut first = Ok(());
        let mut tries = 0;
        while tries < PATIENCE
            && matches!(&outcome, Err(error) if error.kind() == ErrorKind::Exhausted)
        {
            tries += 1;
            first = first.and(self.make_room(requests)?);
            outcome = start();
        }
        requests.push(Started {
            request: outcome?,
            expected,
            peer,
            lane,
        });
        first
    }

    /// Waits until one request of this round is over and returns its outcome. If the round has none
    /// under way, lets other operations make progress.
    #[cold]
    fn make_room(&self, requests: &mut Vec<Started>) -> Result<Result<()>> {
        let device = self.comm.device();
        let started: Vec<Request> = requests.iter().map(|started| started.request).collect();
        let Some((at, outcome)) = device.wait_any(&started) else {
            // The requests are the program's, or those of another operation, which makes progress
            // meanwhile.
            device.device_check(Check::NonBlocking)?;
            self.comm.check_members()?;
            return Ok(Ok(()));
        };
        if let Err(error) = &outcome
            && device.peek(started[at]).is_ok()
        {
            // The job is ending; the request is not over.
            return Err(error.clone());
        }
        let expected = requests.swap_remove(at).expected;
        Ok(self.judge(outcome, expected))
    }

    /// Waits for all requests, all of which are over afterwards. With `give_up`, cancels those that
    /// can be cancelled.
    fn wait_for(
        &self,
        requests: &mut Vec<Started>,
        mut give_up: bool,
        comes: &mut impl FnMut(&Started) -> Result<bool>,
    ) -> Result<()> {
        let device = self.comm.device();
        let mut first = Ok(());
        for started in requests.drain(..) {
            let (request, expected) = (started.request, started.expected);
            let comes = if give_up { Ok(false) } else { comes(&started) };
            give_up |= comes.as_ref().is_err_and(ends);
            if !matches!(comes, Ok(true)) {
                // The message may be over already, or may not be cancellable.
                let _ = device.cancel(request);
            }
            first = first.and(comes.map(|_| ()));
            let outcome = self.judge(device.wait(request), expected);
            if let Err(error) = outcome {
                give_up |= ends(&error);
                first = first.and(Err(error));
            }
        }
        first
    }

    fn judge(&self, outcome: Result<Status>, expected: Option<usize>) -> Result<()> {
        let me = || self.comm.device().attributes().world_rank;
        judge(self.schedule, outcome, expected).map_err(|wrong| wrong.on_rank(me()))
    }

    unsafe fn start_send(&self, args: &SendArgs, data: Span) -> Result<Request> {
        let device = self.comm.device();
        match self.buffer(data) {
            // SAFETY: from the caller.
            Buffer::Plain(buf) => unsafe { device.isend_contig_unchecked(args, buf) },
            // SAFETY: from the caller.
            Buffer::Typed(buf) => unsafe { device.isend_datatype_unchecked(args, buf) },
        }
    }

    unsafe fn start_recv(&self, pattern: &Pattern, data: Span) -> Result<Request> {
        let device = self.comm.device();
        match self.buffer(data) {
            // SAFETY: from the caller.
            Buffer::Plain(buf) => unsafe { device.irecv_contig_unchecked(pattern, buf) },
            // SAFETY: from the caller.
            Buffer::Typed(buf) => unsafe { device.irecv_datatype_unchecked(pattern, buf) },
        }
    }

    fn buffer(&self, data: Span) -> Buffer<'_> {
        let ptr = self.memory.at(data);
        let layout = self.schedule.layout(data.layout);
        if data.layout == LayoutId::BYTES || data.is_empty() {
            return Buffer::Plain(plain(ptr, data.len(), Signature::ANY));
        }
        match layout.homogeneous() {
            Some(primitive) if layout.is_contiguous() && !layout.is_opaque() => {
                Buffer::Plain(plain(ptr, data.len(), Signature::homogeneous(primitive)))
            }
            _ => Buffer::Typed(TypedBuf {
                ptr,
                count: data.count,
                layout,
                memory: MemoryKind::Host,
            }),
        }
    }
}

/// Whether an error ends an operation, so that the others do not wait for the rest of it.
pub(crate) fn ends(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::PeerFailed | ErrorKind::Aborted)
}

enum Buffer<'a> {
    Plain(ContigBuf),
    Typed(TypedBuf<'a>),
}

fn plain(ptr: *mut u8, len: usize, signature: Signature) -> ContigBuf {
    ContigBuf {
        ptr,
        len,
        signature,
        memory: MemoryKind::Host,
    }
}

/// A message of a round.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) request: Request,
    /// How many bytes a receive expects; `None` for a send.
    pub(crate) expected: Option<usize>,
    /// The rank at the other end.
    pub(crate) peer: u32,
    pub(crate) lane: Lane,
}

/// The outcome of a message: an error if its length is not the one that follows from the
/// operation's arguments.
#[inline]
pub(crate) fn judge(
    schedule: &Schedule,
    outcome: Result<Status>,
    expected: Option<usize>,
) -> Result<()> {
    let Some(expected) = expected else {
        return outcome.map(drop);
    };
    match outcome {
        Ok(status) if status.bytes == expected as u64 || status.cancelled => Ok(()),
        Ok(status) => Err(wrong_length(
            schedule,
            ErrorKind::InvalidCount,
            &status,
            expected,
        )),
        Err(error) => Err(in_words(schedule, error, expected)),
    }
}

/// A message that is too long was truncated. The device's error says so in its own words; this puts
/// it in terms of the operation.
#[cold]
fn in_words(schedule: &Schedule, error: Error, expected: usize) -> Error {
    match (error.kind(), error.status()) {
        (kind @ ErrorKind::Truncated, Some(status)) => {
            wrong_length(schedule, kind, status, expected)
        }
        _ => error,
    }
}

/// The same for an edge: the description and the remedy.
pub(crate) fn wrong_edge(
    name: &str,
    source: u32,
    sent: u64,
    expected: usize,
) -> (String, &'static str) {
    let what = format!(
        "{name}: neighbour {source} sends {sent} bytes where this rank's counts make {expected}"
    );
    (what, SAME_ENDS)
}

/// The remedy.
pub(crate) const SAME_ENDS: &str = "give the two ends of an edge equal counts and types";

#[cold]
fn wrong_length(schedule: &Schedule, kind: ErrorKind, status: &Status, expected: usize) -> Error {
    let (source, sent) = (status.source, status.sent.max(status.bytes));
    let name = schedule.name.map_or("collective operation", Name::text);
    let (what, remedy) = match schedule.name {
        Some(Name::NeighbourAllgather | Name::NeighbourAlltoall) => {
            wrong_edge(name, source, sent, expected)
        }
        _ => (
            format!(
                "{name}: rank {source} took part with {sent} bytes where this rank expects {expected}"
            ),
            "call collectives in the same order with equal lengths on every rank; \
             PORTOLAN_COLL_CHECK=on compares them before data moves",
        ),
    };
    Error::new(kind, what).remedy(remedy).with_status(*status)
}
