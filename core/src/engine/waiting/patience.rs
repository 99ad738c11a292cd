//! How long a waiting rank keeps polling for a peer on another processor before it gives its own
//! processor away, where ranks take turns.
//!
//! Two ranks that run on two processors answer each other in a tenth of the time that it takes to
//! give a processor away. As long as each finds the other running, neither gives its own away, and
//! they continue together until the system preempts one of them. But the peer's processor may
//! currently be running another rank, and then every poll is lost. A rank learns from its recent
//! waits which of the two is the case: if polling has paid off, it polls for longer; if not, for
//! shorter. A rank whose waits, time after time, are for nobody on another processor asks less
//! often where its peers run.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::engine::Engine;
use crate::engine::entry::{Op, RecvStage};
use crate::engine::state::Proto;
use crate::engine::waiting::cores;
use crate::engine::waiting::wait::{Target, Waiter};
use crate::level::{Level, StateLock};
use crate::transport::Transport;

/// Fewest polls: as long as an answer takes from a rank that only waits for this one.
const LEAST: u32 = 8;
/// Most polls: they take as long as handing over a processor twice.
const MOST: u32 = 128;

/// After this many waits in a row for nobody on another processor, only one in this many asks where
/// the peer runs.
const STREAK: u32 = 16;

/// How many polls such a wait is worth, and whether to ask where its peer runs. All accesses are
/// Relaxed: the values are guesses that no other memory depends on. If several threads wait, one
/// may overwrite what another has just learnt.
#[derive(Debug)]
pub(in crate::engine) struct Patience {
    polls: AtomicU32,
    /// Waits in a row that were for nobody on another processor.
    streak: AtomicU32,
}

impl Patience {
    pub(in crate::engine) fn new() -> Self {
        Self {
            polls: AtomicU32::new(LEAST),
            streak: AtomicU32::new(0),
        }
    }

    /// Polls before the processor is given away.
    fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Notes that what was waited for came before the processor was given away.
    pub(in crate::engine) fn has_paid(&self) {
        let more = (2 * self.polls()).min(MOST);
        self.polls.store(more, Ordering::Relaxed);
    }

    /// Notes that it did not.
    fn was_lost(&self) {
        let less = (self.polls() / 2).max(LEAST);
        self.polls.store(less, Ordering::Relaxed);
    }

    /// The polls left to a wait that something has come to: all of them again, if it is for a peer
    /// on another processor.
    pub(in crate::engine) fn renewed(&self, looks: Looks) -> Looks {
        match looks {
            Looks::Left(_) => Looks::Left(self.polls()),
            Looks::Unknown | Looks::Over => Looks::Unknown,
        }
    }

    /// Whether to ask where the peer of a wait runs.
    fn asks(&self) -> bool {
        let streak = self.streak.load(Ordering::Relaxed);
        let asks = streak < STREAK || streak == 2 * STREAK - 1;
        if !asks {
            self.streak.store(streak + 1, Ordering::Relaxed);
        }
        asks
    }

    /// Notes the answer.
    fn is_told(&self, elsewhere: bool) {
        let streak = match self.streak.load(Ordering::Relaxed) {
            _ if elsewhere => 0,
            streak => (streak + 1).min(STREAK),
        };
        self.streak.store(streak, Ordering::Relaxed);
    }
}

/// What a wait may still do before it gives the processor away, where ranks take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Looks {
    /// It has not been asked yet where the peer runs.
    Unknown,
    /// The peer runs on another processor: this many polls are left.
    Left(u32),
    /// No polls are left: the wait is for nobody on another processor, or the polls were in vain.
    Over,
}

impl<T: Transport, L: Level> Engine<T, L> {
    /// Whether a wait that has polled in vain polls again before it gives the processor away.
    pub(in crate::engine) fn looks_on(&self, waiter: &mut Waiter) -> bool {
        if waiter.looks == Looks::Unknown {
            waiter.looks = if self.patience.asks() && self.awaits_elsewhere(waiter.target) {
                Looks::Left(self.patience.polls())
            } else {
                Looks::Over
            };
        }
        match &mut waiter.looks {
            Looks::Left(0) => {
                self.patience.was_lost();
                waiter.looks = Looks::Over;
                false
            }
            Looks::Left(left) => {
                *left -= 1;
                true
            }
            Looks::Unknown | Looks::Over => false,
        }
    }

    /// Whether the peer that a wait is for runs on another processor, as far as the peer has
    /// announced. A peer on the same processor does nothing until this rank gives that processor
    /// away. Also announces where this rank runs.
    fn awaits_elsewhere(&self, target: Target) -> bool {
        let Some(here) = cores::current() else {
            return false;
        };
        let mut state = self.state.lock();
        state.transport.note_processor(here);
        let peer = state.proto.awaited(target);
        let there = peer.and_then(|peer| state.transport.processor_of(peer));
        let elsewhere = there.is_some_and(|there| there != here);
        self.patience.is_told(elsewhere);
        elsewhere
    }
}

impl Proto {
    /// The peer that a wait is for, if it is exactly one.
    pub(in crate::engine) fn awaited(&self, target: Target) -> Option<u32> {
        match target {
            Target::Request(request) => self.needed_by(self.table.active_op(request)?),
            Target::Message(pattern) => self.process_of(pattern.context, pattern.source?),
            Target::Memory(peer) => peer,
            Target::Any => None,
        }
    }

    /// The peer that an operation needs, if it is exactly one.
    pub(in crate::engine) fn needed_by(&self, op: &Op) -> Option<u32> {
        match op {
            Op::Recv(op) => match &op.stage {
                RecvStage::Transfer(transfer) => Some(transfer.peer),
                RecvStage::Arriving { peer, .. } => Some(*peer),
                RecvStage::Posted(_) | RecvStage::Matched => {
                    let pattern = op.wanted.pattern();
                    self.process_of(pattern.context, pattern.source?)
                }
            },
            Op::Fetch(op) => Some(op.peer),
            Op::Remote(op) => Some(op.peer),
            op => op.send().map(|(args, ..)| args.dest.index()),
        }
    }
}

// Only where the system tells on which processor a thread runs.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::level::Single;
    use crate::matching::Pattern;
    use crate::request::Request;
    use crate::transport::memory::{self, InMemory};
    use crate::{Adi, ProcId, SendArgs, SendMode};

    /// A processor that no machine has.
    const ELSEWHERE: u32 = 1 << 20;

    /// Two ranks, the first of which takes turns with others.
    fn ranks() -> [Engine<InMemory, Single>; 2] {
        let engine = |transport| Engine::new(transport, &Settings::default()).expect("an engine");
        let mut ranks = memory::network(2).into_iter().map(engine);
        let mut ranks = [(); 2].map(|()| ranks.next().expect("two"));
        ranks[0].policy.takes_turns = true;
        ranks[0].policy.spin = 0;
        ranks
    }

    fn from(source: Option<u32>) -> Pattern {
        Pattern {
            context: 0,
            source,
            tag: None,
        }
    }

    /// A receive for which no message comes.
    fn receive(engine: &Engine<InMemory, Single>, source: Option<u32>, byte: &mut u8) -> Target {
        // SAFETY: the byte outlives the engine, and nobody else uses it.
        let request = unsafe { engine.irecv_contig(&from(source), byte, 1) };
        Target::Request(request.expect("a request"))
    }

    #[test]
    fn a_wait_is_for_one_elsewhere_or_it_is_not() {
        let mut bytes = [0; 2];
        let [zero, one] = ranks();
        let [byte, other] = &mut bytes;
        let (this, any) = (receive(&zero, Some(1), byte), receive(&zero, None, other));
        let to = SendArgs::new(ProcId::new(1), 0, 0, 0).mode(SendMode::Synchronous);
        // SAFETY: no bytes are sent.
        let send = unsafe { zero.isend_contig(&to, std::ptr::null(), 0) }.expect("a request");
        let for_one = [this, Target::Request(send), Target::Message(from(Some(1)))];
        let for_nobody = [
            any,
            Target::Any,
            Target::Memory(None),
            Target::Message(from(None)),
            Target::Message(from(Some(0))),
            Target::Request(Request::NULL),
        ];
        for target in for_one {
            assert!(
                !zero.awaits_elsewhere(target),
                "it has not said where it is"
            );
        }
        one.state.lock().transport.note_processor(ELSEWHERE);
        for target in for_one {
            assert!(zero.awaits_elsewhere(target), "{target:?}");
        }
        for target in for_nobody {
            assert!(!zero.awaits_elsewhere(target), "{target:?}");
        }
        let said = one.state.lock().transport.processor_of(0);
        assert!(said.is_some_and(|here| here < ELSEWHERE), "{said:?}");
    }

    #[test]
    fn ranks_of_one_processor_do_not_look_for_each_other() {
        let mut byte = 0;
        let [zero, one] = ranks();
        let this = receive(&zero, Some(1), &mut byte);
        // The system may move the thread between the two calls, but not every time.
        let beside = (0..1000).any(|_| {
            let here = cores::current().expect("a processor");
            one.state.lock().transport.note_processor(here);
            !zero.awaits_elsewhere(this)
        });
        assert!(beside);
    }

    #[test]
    fn a_rank_learns_whether_looking_pays() {
        let mut byte = 0;
        let [zero, one] = ranks();
        one.state.lock().transport.note_processor(ELSEWHERE);
        let this = receive(&zero, Some(1), &mut byte);
        let wait = |looks: u32| {
            let mut left = looks;
            zero.block_until(this, |_| {
                left -= 1;
                (left == 0).then_some(())
            });
            zero.patience.polls()
        };
        // Number of looks. One is made before the first poll, and one with it.
        assert_eq!(wait(1), LEAST, "it was there");
        assert_eq!(wait(2), LEAST, "it was there");
        assert_eq!(wait(3), 2 * LEAST);
        assert_eq!(wait(2 + 2 * LEAST), 4 * LEAST);
        assert_eq!(wait(3 + 4 * LEAST), 2 * LEAST, "a processor was given away");
        one.state.lock().transport.note_processor(ELSEWHERE);
        let any = receive(&zero, None, &mut byte);
        let mut left = 3;
        zero.block_until(any, |_| {
            left -= 1;
            (left == 0).then_some(())
        });
        assert_eq!(zero.patience.polls(), 2 * LEAST, "nobody was looked for");
    }

    #[test]
    fn who_waits_for_nobody_elsewhere_asks_less_often() {
        let patience = Patience::new();
        let asked = |answer: bool, waits: u32| {
            (0..waits)
                .filter(|_| {
                    let asks = patience.asks();
                    if asks {
                        patience.is_told(answer);
                    }
                    asks
                })
                .count()
        };
        assert_eq!(asked(false, STREAK), 16);
        assert_eq!(asked(false, 10 * STREAK), 10, "one in sixteen");
        // The next wait asked about is for a peer elsewhere: from then on all are asked about.
        assert_eq!(asked(true, STREAK), 1);
        assert_eq!(asked(true, 100), 100);
        assert_eq!(asked(false, 5), 5);
        assert_eq!(asked(true, 1), 1);
        assert_eq!(asked(false, STREAK), 16, "a row begins anew");
    }

    #[test]
    fn what_pays_is_done_for_longer() {
        let patience = Patience::new();
        assert_eq!(patience.polls(), LEAST);
        for _ in 0..10 {
            patience.has_paid();
        }
        assert_eq!(patience.polls(), MOST);
        assert_eq!(patience.renewed(Looks::Left(3)), Looks::Left(MOST));
        assert_eq!(patience.renewed(Looks::Over), Looks::Unknown);
        patience.was_lost();
        assert_eq!(patience.polls(), MOST / 2);
        for _ in 0..10 {
            patience.was_lost();
        }
        assert_eq!(patience.polls(), LEAST, "never less than an answer takes");
    }
}
