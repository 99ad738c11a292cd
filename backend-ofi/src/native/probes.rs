//! Probes: what the provider shows of the messages that have arrived and matched nothing. A single
//! look is in `looks.rs`.

use std::sync::Arc;
use std::time::Duration;

use portolan_core::device::Message as Handle;
use portolan_core::level::Level;
use portolan_core::matching::Pattern;
use portolan_core::transport::Bell;
use portolan_core::{Device, Error, ProcId, Result, Status};

use super::Native;
use super::deaths::PATIENCE;
use super::looks::Seen;
use super::packets::Core;
use super::slots::Arrival;

/// Looks in a row after which a probe sleeps between them. Once per this many looks it also checks
/// whether the rank that it waits for has left.
const SPIN: u32 = 64;
/// Looks in a row without a useful answer, usually for want of room, after which a probe reports
/// that there is nothing.
const ROOM: u32 = 1000;
/// How long a probe sleeps between looks. It has to look again and again, because no provider
/// announces that a message has matched nothing.
const NAP: Duration = Duration::from_millis(1);

/// What a probe has found.
enum Found {
    /// This message, with the number of its slot if it is taken.
    Message(Arrival, u32),
    /// There is no such message.
    Nothing,
    /// There may be one: an earlier receive is to get the one that was found, or there was no room
    /// for a look.
    Unclear,
}

impl Found {
    fn message(self) -> Option<(Arrival, u32)> {
        match self {
            Self::Message(arrival, number) => Some((arrival, number)),
            Self::Nothing | Self::Unclear => None,
        }
    }
}

fn status(arrival: &Arrival) -> Status {
    let (source, tag) = (arrival.envelope.source, arrival.envelope.tag);
    Status::received(source, tag, arrival.len as u64)
}

impl<L: Level> Native<L> {
    /// The earliest message that `from` matches, if one has arrived.
    fn look(&self, from: &Pattern, take: bool) -> Found {
        for _ in 0..ROOM {
            let (claim, begun, takings) = {
                let Core { ofi, tags } = &mut *self.shared.lock();
                // Messages that an earlier receive is to get are not shown.
                let claim = take && !tags.overflows();
                (claim, tags.look(ofi, from, claim), tags.takings())
            };
            let Some(number) = begun else {
                if self.shared.lock().tags.blind {
                    return Found::Nothing;
                }
                // No room for a look: this does not show that there is no message.
                self.polled();
                continue;
            };
            let Some(arrival) = self.answer(number) else {
                return Found::Nothing;
            };
            if claim {
                return Found::Message(arrival, number);
            }
            let begun = {
                let Core { ofi, tags } = &mut *self.shared.lock();
                if tags.takings() != takings {
                    continue; // It may have been taken by now, so that another one is the earliest.
                }
                if tags.is_wanted(&arrival) {
                    return Found::Unclear;
                }
                if !take {
                    return Found::Message(arrival, number);
                }
                tags.look(ofi, &Pattern::exact(&arrival.envelope), true)
            };
            let Some(number) = begun else {
                self.polled();
                continue;
            };
            // If it has been taken meanwhile, another one may be there.
            if let Some(arrival) = self.answer(number) {
                return Found::Message(arrival, number);
            }
        }
        Found::Unclear
    }

    /// The result of a look. The provider answers at once; the polls only fetch the answer, after
    /// the completions that came before it. If this rank's endpoint is broken, no answer comes, and
    /// the result is that there is nothing.
    fn answer(&self, number: u32) -> Option<Arrival> {
        let mut patience = PATIENCE;
        loop {
            let seen = self.shared.lock().tags.seen(number);
            match seen {
                Seen::Later if patience == 0 && self.gives_up_look(number) => return None,
                Seen::Later => {
                    patience = patience.saturating_sub(1);
                    self.polled();
                }
                Seen::Nothing => return None,
                Seen::Message(arrival) => return Some(arrival),
            }
        }
    }

    #[cold]
    fn gives_up_look(&self, number: u32) -> bool {
        let Core { ofi, tags } = &mut *self.shared.lock();
        tags.give_up_look(ofi, number)
    }

    /// What a probe sees, or the failure because of which it will never see anything.
    pub(super) fn shown(&self, from: &Pattern) -> Result<Option<Status>> {
        self.check_live()?;
        self.shared.check_pattern(from)?;
        let found = self.look_or_fail(from, false)?;
        Ok(found.map(|(arrival, _)| status(&arrival)))
    }

    /// The same, where the message is taken out of matching.
    pub(super) fn taken(&self, from: &Pattern) -> Result<Option<(Handle, Status)>> {
        self.check_live()?;
        self.shared.check_pattern(from)?;
        let found = self.look_or_fail(from, true)?;
        Ok(found.map(|(arrival, number)| {
            let handle = self.shared.lock().tags.keep(number);
            (handle, status(&arrival))
        }))
    }

    /// What a look finds, or the failure because of which it will never find anything.
    fn look_or_fail(&self, from: &Pattern, take: bool) -> Result<Option<(Arrival, u32)>> {
        let found = self.look(from, take);
        if !matches!(found, Found::Nothing) {
            return Ok(found.message());
        }
        let Err(error) = self.check_source(from) else {
            return Ok(None);
        };
        if from.source.is_none() {
            return Err(error);
        }
        // The last message may have arrived after the look and before the failure was known.
        match self.look(from, take) {
            Found::Nothing => Err(error),
            found => Ok(found.message()),
        }
    }

    /// Returns an error if a probe would wait for a rank that is dead or has left, or if this rank
    /// is dead and its endpoint shows no messages.
    fn check_source(&self, from: &Pattern) -> Result<()> {
        let own = self.attributes().world_rank;
        let dead = self.shared.lock().tags.doom_of_probe(own, from);
        let Some(peer) = dead else {
            return Ok(());
        };
        // The engine knows only of the deaths of others, and learns of those later: once it has
        // heard everything that the dead rank had sent.
        let known = self.engine.failure_of(ProcId::new(peer));
        let why = known.or_else(|| self.shared.lock().ofi.shared.deaths.reason(peer, u32::MAX));
        let why = why.unwrap_or_else(|| "it has died".to_owned());
        Err(Error::peer_failed(peer, &why).on_rank(own))
    }

    /// Looks until there is something to see of what `from` matches.
    pub(super) fn block<R>(
        &self,
        from: &Pattern,
        look: impl Fn() -> Result<Option<R>>,
    ) -> Result<R> {
        let (mut idle, mut looks) = (0, 0_u32);
        loop {
            if let Some(seen) = look().transpose() {
                return seen;
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(SPIN) {
                // There may never be a poll in vain: others go on sending, or receives that wait in
                // the device make it look for their messages all the time.
                self.look_for_source(from);
            }
            idle = if self.polled() { 0 } else { idle + 1 };
            if idle < SPIN {
                std::thread::yield_now();
            } else {
                self.nap(from);
            }
        }
    }

    /// Sleeps until the next look, unless there is something to do.
    fn nap(&self, from: &Pattern) {
        let (bell, seen) = {
            let mut core = self.shared.lock();
            core.ofi.lookers += 1;
            let bell = Arc::clone(&core.ofi.bell);
            let seen = bell.seen();
            (bell, seen)
        };
        self.look_for_source(from);
        if !self.polled() {
            bell.sleep(seen, Some(NAP));
        }
        let mut core = self.shared.lock();
        core.ofi.lookers -= 1;
        if !core.ofi.listens() {
            core.ofi.bell.quiet();
        }
    }

    /// Checks whether the rank that a probe waits for has left. One of the next polls then says so.
    #[cold]
    fn look_for_source(&self, from: &Pattern) {
        let Some(source) = from.source else {
            return;
        };
        // The engine's lock comes before the core's, which must be free here.
        let peer = self.process(from.context, source);
        if let Some(peer) = peer {
            self.engine.look_for_leaver(ProcId::new(peer));
        }
    }

    fn process(&self, context: u32, source: u32) -> Option<u32> {
        self.shared.lock().tags.contexts().process(context, source)
    }
}
