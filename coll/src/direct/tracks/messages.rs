//! Messages of an operation over boards, for data that is longer than a place there.

use portolan_core::comm::Communicator;
use portolan_core::{Device, Result};

use crate::args::Name;
use crate::direct::data::Stream;
use crate::memory::Memory;
use crate::plan::Plan;
use crate::run::{Run, Started};
use crate::schedule::{Base, Builder, Lane, Span};
use crate::state::{self, State};
use crate::team::Team;

/// The messages that remain to be sent and received.
pub(in crate::direct) struct Messages {
    builder: Option<Builder>,
    rank: u32,
    size: u32,
    /// The addresses at which [`Base::Send`] and [`Base::Recv`] begin.
    origins: [*mut u8; 2],
}

impl Messages {
    /// No messages yet.
    pub(in crate::direct) fn new(rank: u32, size: u32) -> Self {
        Self {
            builder: None,
            rank,
            size,
            origins: [std::ptr::null_mut(); 2],
        }
    }

    /// No messages yet, of an operation whose name appears in errors.
    pub(in crate::direct) fn named(rank: u32, size: u32, name: Name) -> Self {
        let mut b = Builder::new(Team::all(rank, size));
        b.set_name(name);
        Self {
            builder: Some(b),
            ..Self::new(rank, size)
        }
    }

    /// Whether there are none.
    pub(in crate::direct) fn is_empty(&self) -> bool {
        self.builder.is_none()
    }

    /// Sends a copy of a block, because another message will be received into the block.
    pub(in crate::direct) fn send_copy(&mut self, to: u32, data: &Stream<'_>) {
        let (b, span) = self.span(Base::Recv, data);
        let copy = b.scratch_like(span, data.count());
        b.copy(span, copy);
        b.send(to, copy);
    }

    /// Sends a message.
    pub(in crate::direct) fn send(&mut self, to: u32, lane: Lane, data: &Stream<'_>) {
        let (b, span) = self.span(Base::Send, data);
        b.in_lane(lane, |b| b.send(to, span));
    }

    /// Receives a message that has at least one byte.
    pub(in crate::direct) fn receive(&mut self, from: u32, lane: Lane, data: &Stream<'_>) {
        let (b, span) = self.span(Base::Recv, data);
        // If no data is expected the message is received all the same, or its sender would wait for
        // ever.
        let span = if span.is_empty() { b.scratch(1) } else { span };
        b.in_lane(lane, |b| b.recv(from, span));
    }

    /// Copies a block of this rank to where it belongs: if there are messages, while they are under
    /// way. To be called after all of them.
    ///
    /// # Safety
    /// As [`Stream::copy_to`]; also during the exchange.
    pub(in crate::direct) unsafe fn copy(&mut self, from: &Stream<'_>, to: &Stream<'_>) {
        if self.is_empty() || from.len() != to.len() {
            // SAFETY: from the caller.
            return unsafe { from.copy_to(to) };
        }
        self.copy_meanwhile(from, to);
    }

    /// Copies a block of this rank, of the same length, while messages are under way. To be called
    /// after all of them.
    pub(in crate::direct) fn copy_meanwhile(&mut self, from: &Stream<'_>, to: &Stream<'_>) {
        debug_assert_eq!(
            from.len(),
            to.len(),
            "a block for oneself is checked before"
        );
        let (_, from) = self.span(Base::Send, from);
        let (b, to) = self.span(Base::Recv, to);
        b.copy(from, to);
    }

    fn span(&mut self, base: Base, data: &Stream<'_>) -> (&mut Builder, Span) {
        let team = Team::all(self.rank, self.size);
        let b = self.builder.get_or_insert_with(|| Builder::new(team));
        let origin = &mut self.origins[base as usize];
        if origin.is_null() {
            *origin = data.address();
        }
        let span = data.span(b, base, *origin);
        (b, span)
    }

    /// The messages as a plan.
    pub(in crate::direct) fn plan(self) -> Plan {
        let Some(builder) = self.builder else {
            unreachable!("one with a name has been begun");
        };
        Plan {
            schedule: builder.finish(),
            bases: self.origins,
            algorithm: "linear",
        }
    }

    /// Sends and receives all messages.
    ///
    /// # Safety
    /// What is sent is readable; what is received into is writable and overlaps nothing else.
    pub(in crate::direct) unsafe fn exchange<D: Device>(
        self,
        comm: &Communicator<D>,
        state: &State,
        number: u32,
    ) -> Result<()> {
        // SAFETY: from the caller.
        unsafe { self.exchange_watched(comm, state, number, |_| Ok(true)) }
    }

    /// The same. Before it waits for a message, `comes` says whether the message will complete; one
    /// that will not is cancelled.
    ///
    /// # Safety
    /// As [`exchange`](Self::exchange).
    pub(in crate::direct) unsafe fn exchange_watched<D: Device>(
        self,
        comm: &Communicator<D>,
        state: &State,
        number: u32,
        comes: impl FnMut(&Started) -> Result<bool>,
    ) -> Result<()> {
        let Some(builder) = self.builder else {
            return Ok(());
        };
        let mut spare = state.take_spare();
        let schedule = builder.finish();
        let scratches = &state::of_job(comm).scratches;
        scratches.lend(&mut spare.scratch, schedule.scratch());
        let scratch = spare.scratch.at_least(schedule.scratch())?;
        let tags = state.tags().started(number);
        state.await_tags(comm.device(), tags)?;
        let run = Run {
            comm,
            state,
            tags,
            schedule: &schedule,
            memory: Memory::new(self.origins, scratch),
        };
        // SAFETY: the spans are the caller's buffers, or scratch memory of the length that the
        // schedule wants.
        let outcome = unsafe { run.steps_watched(&mut spare.requests, comes) };
        state.keep_spare(scratches, spare);
        outcome
    }
}
