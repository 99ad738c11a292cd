//! Rings of messages that a progress hook drives: what a nonblocking collective looks like to a
//! device.
//!
//! A ring has rounds. In each round, a rank sends to the next rank and receives from the previous
//! one. When both are complete, the next round begins, inside progress. The caller holds one
//! request for the whole ring.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_core::device::{HookId, Port, Turn, Upper};
use portolan_core::matching::Pattern;
use portolan_core::{
    Device, Error, MemoryKind, ProcId, Request, Result, SendArgs, Status, TypedBuf,
};
use portolan_datatype::Layout;

use crate::bytes::{check, content};
use crate::pending::Pending;
use crate::rank::Rank;

/// The parameters of a ring.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) context: u32,
    pub(crate) tag: u32,
    /// Neighbours, as ranks of the communicator that the context belongs to; these are world ranks.
    pub(crate) next: u32,
    pub(crate) previous: u32,
    /// Length of the message of each round.
    pub(crate) lens: Vec<usize>,
    /// Bytes by which the receives of the last round are too short.
    pub(crate) short: usize,
}

impl Plan {
    /// A ring of all ranks in the case's first context.
    pub(crate) fn new<D: Device>(rank: &Rank<'_, D>, tag: u32, lens: &[usize]) -> Self {
        Self {
            context: rank.context(0),
            tag,
            next: rank.next(),
            previous: rank.previous(),
            lens: lens.to_vec(),
            short: 0,
        }
    }
}

/// Drives the rings of a rank.
pub(crate) struct Player {
    rings: Arc<Mutex<Vec<Ring>>>,
    hook: HookId,
    turns: Arc<AtomicU32>,
}

impl Player {
    /// Makes a player, whose hook is registered and soon falls asleep.
    pub(crate) fn new<D: Device>(device: &D) -> Self {
        let rings = Arc::new(Mutex::new(Vec::new()));
        let turns = Arc::new(AtomicU32::new(0));
        let (playing, counted) = (Arc::clone(&rings), Arc::clone(&turns));
        let hook = device.register_hook(Box::new(move |port| {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut rings: MutexGuard<'_, Vec<Ring>> = open(&playing);
            let mut busy = false;
            rings.retain_mut(|ring| {
                busy |= ring.play(port);
                !ring.over
            });
            match (rings.is_empty(), busy) {
                (true, _) => Turn::Sleep,
                (false, true) => Turn::Busy,
                (false, false) => Turn::Idle,
            }
        }));
        Self { rings, hook, turns }
    }

    /// Starts a ring: its first round is under way when this returns.
    ///
    /// # Panics
    /// If the device has no request for it.
    #[track_caller]
    pub(crate) fn start<D: Device>(&self, rank: &Rank<'_, D>, plan: Plan) -> Request {
        let upper = rank.device.upper_request(Box::new(Whole));
        let request = upper.expect("a request");
        let ring = Ring {
            me: rank.me(),
            plan,
            round: 0,
            sent: None,
            received: None,
            trouble: None,
            request,
            over: false,
        };
        open(&self.rings).push(ring);
        rank.device.wake_hook(self.hook);
        rank.progress();
        request
    }

    /// How often the hook has been called.
    pub(crate) fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }
}

fn open(rings: &Mutex<Vec<Ring>>) -> MutexGuard<'_, Vec<Ring>> {
    rings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The request of a ring.
struct Whole;

impl Upper for Whole {}

/// A ring under way.
struct Ring {
    me: u32,
    plan: Plan,
    round: usize,
    sent: Option<Pending>,
    received: Option<Pending>,
    trouble: Option<Error>,
    request: Request,
    over: bool,
}

// SAFETY: only the pointers of its pending operations keep a ring on its thread, and those
// operations own the memory behind them.
unsafe impl Send for Ring {}

impl Ring {
    /// Advances as far as possible; returns whether that was anywhere.
    fn play(&mut self, port: &mut dyn Port) -> bool {
        let mut moved = false;
        loop {
            let seed = seed(&self.plan, self.plan.previous, self.round);
            let sent = over(port, &mut self.sent).map(|outcome| outcome.map(drop));
            let received = over(port, &mut self.received).map(|outcome| {
                outcome.map(|(status, bytes)| {
                    assert_eq!(status.source, self.plan.previous);
                    check(&bytes[..status.bytes as usize], seed, "a round of a ring");
                })
            });
            moved |= sent.is_some() || received.is_some();
            for error in [sent, received]
                .into_iter()
                .flatten()
                .filter_map(Result::err)
            {
                self.trouble.get_or_insert(error);
                // The operations under way must end before their memory may be used again. The
                // receive is cancelled. The send ends by itself, because the next rank is waiting
                // for it.
                if let Some(receive) = &self.received {
                    port.cancel(receive.request).expect("an active request");
                }
            }
            if self.sent.is_some() || self.received.is_some() {
                if moved && self.trouble.is_some() {
                    moved = false;
                    continue;
                }
                return moved;
            }
            if let Some(error) = self.trouble.take() {
                self.over = true;
                port.fail_with(self.request, error).expect("it is active");
                return true;
            }
            if self.round == self.plan.lens.len() {
                self.over = true;
                let bytes = self.plan.lens.iter().sum::<usize>() as u64;
                let status = Status::received(self.plan.previous, self.plan.tag, bytes);
                port.complete(self.request, status).expect("it is active");
                return true;
            }
            self.begin(port);
            self.round += 1;
            moved = true;
        }
    }

    /// Starts a round; rounds alternate between send first and receive first.
    fn begin(&mut self, port: &mut dyn Port) {
        for what in 0..2 {
            if (what + self.round).is_multiple_of(2) {
                self.receive(port);
            } else {
                self.send(port);
            }
        }
    }

    fn send(&mut self, port: &mut dyn Port) {
        let Plan {
            context, tag, next, ..
        } = self.plan;
        let seed = seed(&self.plan, self.me, self.round + 1);
        let memory = Pending::lend(content(seed, self.plan.lens[self.round]));
        let args = SendArgs::new(ProcId::new(next), context, self.me, tag);
        // SAFETY: rank, tag and context are legal; lent memory stays until the operation is over.
        let request = unsafe { port.isend(&args, bytes(memory, &Layout::byte())) };
        self.sent = Some(Pending::new(request.expect("a request for a send"), memory));
    }

    fn receive(&mut self, port: &mut dyn Port) {
        let from = Pattern {
            context: self.plan.context,
            source: Some(self.plan.previous),
            tag: Some(self.plan.tag),
        };
        let last = self.round + 1 == self.plan.lens.len();
        let missing = if last { self.plan.short } else { 0 };
        let memory = Pending::lend(vec![0xee; self.plan.lens[self.round] - missing]);
        // SAFETY: as in `send`.
        let request = unsafe { port.irecv(&from, bytes(memory, &Layout::byte())) };
        let request = request.expect("a request for a receive");
        self.received = Some(Pending::new(request, memory));
    }
}

/// Seed of what a rank sends in a round, counted from 1.
fn seed(plan: &Plan, from: u32, round: usize) -> u64 {
    u64::from(from) << 40 ^ u64::from(plan.tag) << 20 ^ round as u64
}

/// Bytes of lent memory, as a buffer.
pub(crate) fn bytes(memory: *mut [u8], layout: &Layout) -> TypedBuf<'_> {
    TypedBuf {
        ptr: memory.cast(),
        count: memory.len() / layout.size(),
        layout,
        memory: MemoryKind::Host,
    }
}

/// The outcome of an operation, with its memory, if it is over.
fn over(port: &mut dyn Port, place: &mut Option<Pending>) -> Option<Result<(Status, Vec<u8>)>> {
    let pending = place.as_ref()?;
    let complete = port.is_complete(pending.request);
    let outcome = port.test(pending.request).transpose();
    assert_eq!(outcome.is_some(), complete, "is_complete and test disagree");
    let outcome = outcome?;
    // SAFETY: it is over, whatever the outcome.
    let memory = unsafe { place.take()?.over() };
    Some(outcome.map(|status| (status, memory)))
}
