//! Waiting: spin briefly, then give the core away, then sleep.
//!
//! At level `Multiple` one waiting thread sleeps on the bell and makes progress when it rings.
//! While other threads are polling anyway, waiting threads sleep on a condition variable instead
//! and are woken only by the completion that they wait for, so that messages for others do not wake
//! them.

use std::time::{Duration, Instant};

use crate::config::{Settings, WaitMode};
use crate::engine::Engine;
use crate::engine::state::State;
use crate::engine::waiting::patience::Looks;
use crate::error::Result;
use crate::guard::NoUnwind;
use crate::level::{Level, StateLock};
use crate::matching::Pattern;
use crate::request::{Request, State as RequestState};
use crate::status::Status;
use crate::transport::{Transport, TransportCaps};

/// How this rank waits.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Policy {
    /// Polls before the core is given away.
    pub(in crate::engine) spin: u32,
    /// Polls that a wait makes with the lock held before it counts as one that may take long.
    pub(in crate::engine) closely: u32,
    /// Times the core is given away before sleeping.
    yields: u32,
    /// Whether to sleep at all.
    sleep: bool,
    /// Whether ranks take turns on processors by yielding.
    pub(in crate::engine) takes_turns: bool,
    /// How long to wait before reporting what the wait is for.
    pub(in crate::engine) stuck_after: Option<Duration>,
}

/// Polls of a wait, one right after the other, before the first spin hint to the processor.
const CLOSELY: u32 = 32;
/// Times that the core is given away, in the mode `auto`, before sleeping. On an oversubscribed
/// node a hand-over by `sched_yield` takes about a microsecond; a sleep and its end take twenty.
const YIELDS: u32 = 400;
/// Polls after which a wait that only spins also does the other checks that waits do that give the
/// core away.
const SPINS: u32 = 1 << 16;
/// A wait whose polls always do something, though not what it is for, counts as one that may take
/// long once the engine's count of polls is a multiple of this.
const BUSY: u64 = 1 << 12;
/// A wait that may take long checks for peers that have left once per this many polls, and before
/// every sleep. (Polls that do something for other operations count as well: there may be no end of
/// those.)
const TURNS: u32 = 256;
/// Minimum time between two such checks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a wait that needs peers sleeps before it checks whether they have left, which no bell
/// announces.
const LEAVERS_NAP: Duration = Duration::from_millis(250);
/// How long to sleep while waiting for something that no bell announces, such as, with most
/// transports, room.
const OUTGOING_NAP: Duration = Duration::from_micros(200);
/// How long a thread that relies on another thread's polls sleeps before it checks whether there
/// are any.
const PARKED_NAP: Duration = Duration::from_millis(10);

impl Policy {
    /// The policy of a rank that is `crowded` or not: see
    /// [`crowded`](crate::engine::waiting::cores::crowded).
    pub(in crate::engine) fn new(settings: &Settings, crowded: bool, caps: TransportCaps) -> Self {
        let spin = u32::try_from(settings.spin()).unwrap_or(u32::MAX);
        let sleeps = caps.contains(TransportCaps::SLEEP);
        let stuck_after = Some(settings.stuck_after()).filter(|limit| !limit.is_zero());
        // Where ranks outnumber cores, the peer may be waiting for this very core. The core is then
        // given away after each poll, unless the peer is known to wait on another one (see
        // `patience`).
        let auto_spin = if crowded { 0 } else { spin };
        // A rank that cannot sleep yields without end: the ranks that it waits for may need its
        // core.
        let until_sleep = |yields| if sleeps { yields } else { u32::MAX };
        let (spin, yields, sleep) = match settings.wait() {
            WaitMode::Auto => (auto_spin, until_sleep(YIELDS), sleeps),
            WaitMode::Spin => (u32::MAX, 0, false),
            WaitMode::Yield => (auto_spin, u32::MAX, false),
            WaitMode::Park => (auto_spin, until_sleep(0), sleeps),
        };
        Self {
            spin,
            closely: spin.min(SPINS),
            yields,
            sleep,
            takes_turns: crowded && yields > 0,
            stuck_after,
        }
    }

    /// The policy in words.
    pub(in crate::engine) fn describe(&self) -> String {
        let count = |n: u32| {
            if n == u32::MAX {
                "for ever".to_owned()
            } else {
                format!("{n} times")
            }
        };
        let end = if self.sleep { ", then sleep" } else { "" };
        let elsewhere = if self.takes_turns {
            ", or more for a rank that waits on another core"
        } else {
            ""
        };
        format!(
            "poll {}{elsewhere}, then yield {}{end}",
            count(self.spin),
            count(self.yields)
        )
    }
}

/// What a wait that holds the lock does after `looks` polls in vain, before the next poll: at first
/// nothing, later the spin hint to the processor. (Other waits, those of several threads or of
/// ranks that take turns, give the hint after each poll.)
///
/// The hint leaves resources to a sibling hardware thread, and takes 15 to 45 ns. A message that
/// arrives meanwhile is delayed by half of that on average. That matters while a short message is
/// to be expected, which is on its way for no longer than [`CLOSELY`] polls.
#[inline(always)]
pub(in crate::engine) fn look_again(looks: u32) {
    if looks >= CLOSELY {
        std::hint::spin_loop();
    }
}

/// What a wait is for, so that a sleeping thread is woken by that and not by every event.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Target {
    /// The completion of this request.
    Request(Request),
    /// The arrival of a message that matches this pattern.
    Message(Pattern),
    /// Any completion or arrival.
    Any,
    /// A store into memory; by this peer, if only one can store.
    Memory(Option<u32>),
}

/// The progress of one wait.
pub(in crate::engine) struct Waiter {
    pub(in crate::engine) target: Target,
    pub(in crate::engine) looks: Looks,
    polls: u32,
    yields: u32,
    /// The engine's count of polls after this thread's last one.
    seen: u64,
    slept: bool,
    pub(in crate::engine) since: Option<Instant>,
    pub(in crate::engine) reported: bool,
    /// Polls in all; when this wait last checked who has left; whether it needs any peer.
    turns: u32,
    looked: Option<Instant>,
    needs_peers: bool,
}

impl Waiter {
    /// A wait that has made `polls` polls and now turns to the cheaper ways of waiting.
    pub(in crate::engine) fn after_spinning(target: Target, polls: u32, seen: u64) -> Self {
        Self {
            target,
            looks: Looks::Unknown,
            polls,
            yields: 0,
            seen,
            slept: false,
            since: None,
            reported: false,
            turns: 0,
            looked: None,
            needs_peers: false,
        }
    }

    /// Whether this wait may rely on another thread's polls. Not for memory: only this thread looks
    /// at it.
    fn parks(&self) -> bool {
        self.slept && !matches!(self.target, Target::Memory(_))
    }

    /// Checks whether a peer that this wait needs has left, unless it checked recently.
    #[cold]
    fn look_for_leavers<T: Transport>(&mut self, state: &mut State<T>) {
        let now = Instant::now();
        if self.looked.is_some_and(|at| now - at < LOOK_EVERY) {
            return;
        }
        self.looked = Some(now);
        self.needs_peers = state.look_for_leavers(self.target);
    }
}

impl<T: Transport, L: Level> Engine<T, L> {
    /// Waits for a request that is not complete, or whose completion is not the simple case.
    #[inline(never)]
    pub(in crate::engine) fn wait_longer(&self, request: Request) -> Result<Status> {
        if request.is_settled() {
            return Ok(Status::EMPTY);
        }
        self.block_until(Target::Request(request), |state| {
            state.proto.try_collect(request)
        })
    }

    /// Makes progress until `ready` returns something. `ready` is tried before the first poll, and
    /// after each poll that did something.
    ///
    /// The operation that is waited for may use a buffer of the caller's, and progress calls
    /// foreign code: the hook that reports long waits, drivers of accelerators, a subscriber of
    /// `tracing`. A panic in any of them must not unwind the caller's frame.
    #[inline]
    pub(in crate::engine) fn block_until<R>(
        &self,
        target: Target,
        ready: impl FnMut(&mut State<T>) -> Option<R>,
    ) -> R {
        let guard = NoUnwind::new("a wait");
        let result = self.poll_until(target, ready);
        guard.done();
        result
    }

    #[inline(always)]
    fn poll_until<R>(
        &self,
        target: Target,
        mut ready: impl FnMut(&mut State<T>) -> Option<R>,
    ) -> R {
        let mut polls = 0;
        {
            let mut state = self.state.lock();
            if let Some(result) = ready(&mut state) {
                return result;
            }
            state.transport.set_present(true);
            // At level Single nobody else wants the state, so spin with the lock held. At Multiple
            // let other threads in between polls.
            let turns = if L::MULTIPLE { 1 } else { self.policy.closely };
            while polls < turns {
                if state.progress() != 0 {
                    if let Some(result) = ready(&mut state) {
                        state.transport.set_present(false);
                        return result;
                    }
                    polls = 0;
                    if self.shared.polls().is_multiple_of(BUSY) {
                        break;
                    }
                } else {
                    look_again(polls);
                }
                polls += 1;
            }
        }
        let mut waiter = Waiter::after_spinning(target, polls, self.shared.polls());
        let result = self.block_patiently(&mut waiter, &mut ready);
        self.state.lock().transport.set_present(false);
        result
    }

    /// Continues a wait that has spun.
    pub(in crate::engine) fn block_patiently<R>(
        &self,
        waiter: &mut Waiter,
        ready: &mut impl FnMut(&mut State<T>) -> Option<R>,
    ) -> R {
        let result = self.block_slowly(waiter, ready);
        if waiter.reported {
            self.say_stuck(&[]);
        }
        result
    }

    /// Polls with the lock held until the receive in hand is done, for as long as a wait spins so.
    #[inline]
    pub(in crate::engine) fn poll_in_hand(&self, state: &mut State<T>) {
        state.transport.set_present(true);
        let turns = if L::MULTIPLE { 1 } else { self.policy.closely };
        let mut polls = 0;
        while polls < turns {
            if state.progress() == 0 {
                look_again(polls);
            } else if state.hand_is_done() {
                break;
            }
            polls += 1;
        }
        state.transport.set_present(false);
    }

    #[cold]
    #[inline(never)]
    fn block_slowly<R>(
        &self,
        waiter: &mut Waiter,
        ready: &mut impl FnMut(&mut State<T>) -> Option<R>,
    ) -> R {
        loop {
            if L::MULTIPLE && waiter.parks() && self.shared.polls() != waiter.seen {
                // Another thread polls: rely on its progress.
                if let Some(result) = self.park(waiter, ready) {
                    return result;
                }
                waiter.look_for_leavers(&mut self.state.lock());
                self.report_if_stuck(waiter);
                continue;
            }
            {
                let mut state = self.state.lock();
                let done = state.progress();
                waiter.seen = self.shared.polls();
                if let Some(result) = ready(&mut state) {
                    if let Looks::Left(_) = waiter.looks {
                        self.patience.has_paid();
                    }
                    return result;
                }
                if done != 0 {
                    waiter.polls = 0;
                    waiter.yields = 0;
                    waiter.looks = self.patience.renewed(waiter.looks);
                    waiter.since = None;
                }
                waiter.turns = waiter.turns.wrapping_add(1);
                if waiter.turns.is_multiple_of(TURNS) {
                    waiter.look_for_leavers(&mut state);
                    // A wait that only spins gets no further than this for minutes.
                    drop(state);
                    self.report_if_stuck(waiter);
                }
            }
            if waiter.polls < self.policy.spin {
                waiter.polls += 1;
                std::hint::spin_loop();
                continue;
            }
            if self.policy.takes_turns && self.looks_on(waiter) {
                std::hint::spin_loop();
                continue;
            }
            let without_end = self.policy.yields == u32::MAX;
            if without_end || waiter.yields < self.policy.yields {
                waiter.yields = waiter.yields.saturating_add(1);
                std::thread::yield_now();
            } else if self.policy.sleep
                && let Some(result) = self.sleep(waiter, ready)
            {
                return result;
            }
            self.report_if_stuck(waiter);
        }
    }

    /// Sleeps once, until the bell rings, unless there is something to do.
    fn sleep<R>(
        &self,
        waiter: &mut Waiter,
        ready: &mut impl FnMut(&mut State<T>) -> Option<R>,
    ) -> Option<R> {
        let seen = self.shared.bell.seen();
        let mut state = self.state.lock();
        self.shared.add_sleeper();
        // Every sleeper arms for itself, after it has read the bell's word: the ring that led to
        // that word may already have used up an earlier announcement.
        state.transport.arm();
        waiter.look_for_leavers(&mut state);
        let done = state.progress();
        waiter.seen = self.shared.polls();
        waiter.slept = true;
        let result = ready(&mut state);
        if result.is_none() && done == 0 {
            let limit = if state.waits_unannounced() {
                Some(OUTGOING_NAP)
            } else {
                let nap = waiter.needs_peers.then_some(LEAVERS_NAP);
                let limits = [nap, self.time_to_report(waiter)];
                limits.into_iter().flatten().min()
            };
            state.transport.set_present(false);
            drop(state);
            self.shared.bell.sleep(seen, limit);
            state = self.state.lock();
            state.transport.set_present(true);
        }
        if self.shared.remove_sleeper() {
            state.transport.disarm();
        }
        result
    }

    /// Sleeps until another thread's progress completes what this one waits for, without listening
    /// for messages. The sleep is short, in case the other thread stops polling.
    fn park<R>(
        &self,
        waiter: &mut Waiter,
        ready: &mut impl FnMut(&mut State<T>) -> Option<R>,
    ) -> Option<R> {
        let epoch = self.shared.epoch();
        waiter.seen = self.shared.polls();
        {
            let mut state = self.state.lock();
            if let Some(result) = ready(&mut state) {
                return Some(result);
            }
            match waiter.target {
                Target::Request(request) => state.proto.table.watch(request),
                Target::Message(_) | Target::Any | Target::Memory(_) => self.shared.add_waiting(),
            }
        }
        match waiter.target {
            Target::Request(request) => self.shared.wait_parked(PARKED_NAP, || {
                self.shared.words.state_of(request) != Some(RequestState::Active)
            }),
            Target::Message(_) | Target::Any | Target::Memory(_) => self
                .shared
                .wait_parked(PARKED_NAP, || self.shared.epoch() != epoch),
        }
        let mut state = self.state.lock();
        if !matches!(waiter.target, Target::Request(_)) {
            self.shared.remove_waiting();
        }
        ready(&mut state)
    }

    fn time_to_report(&self, waiter: &Waiter) -> Option<Duration> {
        let limit = self.policy.stuck_after.filter(|_| !waiter.reported)?;
        let waited = waiter.since.map_or(Duration::ZERO, |since| since.elapsed());
        Some(limit.saturating_sub(waited).max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_take_turns_where_they_are_crowded_and_yield() {
        let turns = |mode: Option<&str>, crowded| {
            let set = mode.map(|mode| ("PORTOLAN_WAIT", mode));
            let (settings, wrong) = Settings::inspect(set);
            assert!(wrong.is_empty(), "{wrong:?}");
            Policy::new(&settings, crowded, TransportCaps::SLEEP).takes_turns
        };
        assert!(turns(None, true) && turns(Some("yield"), true));
        assert!(!turns(None, false) && !turns(Some("yield"), false));
        assert!(!turns(Some("spin"), true) && !turns(Some("park"), true));
    }

    #[test]
    fn who_cannot_sleep_gives_its_core_away_without_end() {
        for mode in ["auto", "yield", "park"] {
            let (settings, wrong) = Settings::inspect([("PORTOLAN_WAIT", mode)]);
            assert!(wrong.is_empty(), "{wrong:?}");
            for crowded in [false, true] {
                let policy = Policy::new(&settings, crowded, TransportCaps::empty());
                assert!(!policy.sleep && policy.yields == u32::MAX, "{policy:?}");
            }
        }
        let policy = Policy::new(&Settings::default(), false, TransportCaps::SLEEP);
        assert!(policy.sleep && policy.yields == YIELDS, "{policy:?}");
    }
}
