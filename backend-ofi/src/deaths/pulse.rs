//! Heartbeats: which ranks of other nodes are still alive. This file decides what to send and what
//! to conclude; it has neither clock nor socket.
//!
//! Two ranks of different nodes that have begun to communicate ask each other in every period
//! whether they are alive; a thread answers, whatever the program does. Ranks that are neighbours
//! on a ring do the same if they are on different nodes, so no rank is without a watcher. After
//! [`MISSES`] periods without any sign, a rank is lost. Silence only means something once there
//! have been signs: where the provider's packets arrive but heartbeats never do, something between
//! the ranks blocks datagrams, and nothing is concluded.
//!
//! A rank that finds a death tells all ranks of the job, even those that never communicated with
//! the dead one: they may be waiting for it.

use std::net::SocketAddr;
use std::time::Duration;

use crate::deaths::datagram::{Beat, Kind, NAMED};
use crate::shared::{Contacts, Shared};

/// Periods without a sign after which a rank that has given signs before is lost.
pub(crate) const MISSES: u32 = 4;
/// The same, for a rank that has never given a sign.
pub(crate) const UNREACHED: u32 = 10;
/// How often a death is reported, once per period: datagrams may be lost.
const REPORTS: u32 = 3;

/// Datagrams to send: the address and the bytes of each.
pub(crate) type Out = Vec<(SocketAddr, Vec<u8>)>;

/// What one rank knows about the lives of the others.
#[derive(Debug)]
pub(crate) struct Pulse {
    own: u32,
    job: u32,
    period: Duration,
    /// The provider's name, for messages.
    provider: String,
    /// By rank; `None` for this one, and for ranks without heartbeats.
    others: Vec<Option<Other>>,
    /// How many deaths of the list have been handled, in its order.
    looked: usize,
    /// Deaths to report: the rank, and how many more times.
    reports: Vec<(u32, u32)>,
}

/// Another rank.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    /// The address its heartbeats come from.
    pub(crate) address: SocketAddr,
    /// The name of its host, for messages.
    pub(crate) host: String,
    /// It is on another node: only heartbeats show its death.
    pub(crate) far: bool,
    contact: bool,
    heard: bool,
    missed: u32,
    /// It has acknowledged that this rank leaves.
    informed: bool,
    /// Another rank has reported its death.
    reported: bool,
    /// Why the last datagram to it could not be sent.
    error: Option<String>,
}

impl Other {
    pub(crate) fn new(address: SocketAddr, host: String, far: bool) -> Self {
        Self {
            address,
            host,
            far,
            contact: false,
            heard: false,
            missed: 0,
            informed: false,
            reported: false,
            error: None,
        }
    }
}

impl Pulse {
    pub(crate) fn new(
        own: u32,
        job: u32,
        period: Duration,
        provider: String,
        others: Vec<Option<Other>>,
    ) -> Self {
        Self {
            own,
            job,
            period,
            provider,
            others,
            looked: 0,
            reports: Vec::new(),
        }
    }

    fn beat(&self, kind: Kind) -> Vec<u8> {
        let (job, from) = (self.job, self.own);
        let dead = Vec::new();
        let beat = Beat {
            kind,
            job,
            from,
            dead,
        };
        beat.to_bytes()
    }

    /// Finds out which ranks this one has begun to communicate with, and which have died. Asks the
    /// former, and reports the latter, at once.
    pub(crate) fn notice(&mut self, shared: &Shared, out: &mut Out) {
        let ask = self.beat(Kind::Ask);
        let neighbours = [1, self.others.len() - 1].map(|step| self.neighbour(step, shared));
        for (rank, other) in (0..).zip(&mut self.others) {
            let Some(other) = other.as_mut().filter(|other| other.far && !other.contact) else {
                continue;
            };
            let talked = shared.contacts.with(rank) != 0 && !gone(shared, rank);
            if talked || neighbours.contains(&Some(rank)) {
                other.contact = true;
                out.push((other.address, ask.clone()));
            }
        }
        let dead = shared.deaths.list(self.looked);
        self.looked += dead.len();
        let own_finds: Vec<(u32, String)> = dead
            .into_iter()
            .filter(|(rank, _)| {
                let other = self.others.get(*rank as usize).and_then(Option::as_ref);
                other.is_none_or(|other| !other.reported)
            })
            .collect();
        self.report(&own_finds, shared, out);
        let again = own_finds.iter().map(|(rank, _)| (*rank, REPORTS - 1));
        self.reports.extend(again);
    }

    /// The nearest living rank of another node on the ring of all ranks, in steps of `step` (which
    /// lead all the way round).
    fn neighbour(&self, step: usize, shared: &Shared) -> Option<u32> {
        let size = self.others.len();
        let around = (1..size).map(|steps| (self.own as usize + steps * step) % size);
        let mut living = around.filter(|&rank| !gone(shared, rank as u32));
        let far = |rank: &usize| self.others[*rank].as_ref().is_some_and(|other| other.far);
        living.find(far).map(|rank| rank as u32)
    }

    /// Tells all ranks of deaths.
    fn report(&self, dead: &[(u32, String)], shared: &Shared, out: &mut Out) {
        for named in dead.chunks(NAMED) {
            let beat = Beat {
                kind: Kind::Report,
                job: self.job,
                from: self.own,
                dead: named.to_vec(),
            };
            let bytes = beat.to_bytes();
            for (rank, other) in (0..).zip(&self.others) {
                // The rank that is declared dead as well, in case it lives: it has to learn that
                // nobody communicates with it any more.
                let concerned = dead.iter().any(|(dead, _)| *dead == rank);
                if let Some(other) = other
                    && (concerned || !gone(shared, rank))
                {
                    out.push((other.address, bytes.clone()));
                }
            }
        }
    }

    /// Handles the end of a period.
    pub(crate) fn tick(&mut self, shared: &Shared, out: &mut Out) {
        let ask = self.beat(Kind::Ask);
        for rank in 0..self.others.len() as u32 {
            let verdict = self.missed(rank, shared);
            let Some(other) = &mut self.others[rank as usize] else {
                continue;
            };
            if let Some(why) = verdict {
                shared.deaths.declare(rank, &why);
            } else if other.contact && !gone(shared, rank) {
                out.push((other.address, ask.clone()));
            }
        }
        let mut again = Vec::new();
        for (rank, left) in &mut self.reports {
            *left -= 1;
            let why = shared.deaths.reason(*rank, u32::MAX);
            again.extend(why.map(|why| (*rank, why)));
        }
        self.reports.retain(|(_, left)| *left > 0);
        self.report(&again, shared, out);
        self.notice(shared, out);
    }

    /// Counts a period for one rank. Returns why it is lost, if it is.
    fn missed(&mut self, rank: u32, shared: &Shared) -> Option<String> {
        let (period, provider) = (self.period.as_secs_f64(), &self.provider);
        let other = self.others[rank as usize].as_mut()?;
        if !other.contact || gone(shared, rank) {
            return None;
        }
        other.missed += 1;
        let (host, address) = (&other.host, other.address);
        let error = match &other.error {
            Some(error) => format!(" (sending to it fails: {error})"),
            None => String::new(),
        };
        if other.heard {
            return (other.missed > MISSES).then(|| {
                format!(
                    "no heartbeat has come from {address} on {host} for {MISSES} periods of {period} s \
                     (PORTOLAN_OFI_HEARTBEAT){error}: its process, its node or the network is lost"
                )
            });
        }
        if other.missed <= UNREACHED {
            return None;
        }
        if shared.contacts.with(rank) & Contacts::ARRIVED != 0 {
            if other.missed == UNREACHED + 1 {
                portolan_core::log!(
                    WARN,
                    rank = self.own,
                    peer = rank,
                    "packets come from {host}, but no heartbeats from {address}: is UDP blocked? If that \
                     rank is lost nobody will notice"
                );
            }
            return None;
        }
        Some(format!(
            "neither a packet over {provider} nor a heartbeat from {address} on {host} has come within \
             {UNREACHED} periods of {period} s{error}: look whether the network joins the nodes (choose one \
             with PORTOLAN_OFI_INTERFACE) and lets UDP through (PORTOLAN_OFI_HEARTBEAT=0 does without)"
        ))
    }

    /// Notes whether the last datagram to this address could be sent.
    pub(crate) fn sent(&mut self, to: SocketAddr, error: Option<&std::io::Error>) {
        let mut others = self.others.iter_mut().flatten();
        if let Some(other) = others.find(|other| other.address == to) {
            other.error = error.map(ToString::to_string);
        }
    }

    /// Handles a datagram. It is ignored if it is not of this job, or does not come from its
    /// sender's address.
    pub(crate) fn heard(&mut self, from: SocketAddr, bytes: &[u8], shared: &Shared, out: &mut Out) {
        let Some(beat) = Beat::from_bytes(bytes).filter(|beat| beat.job == self.job) else {
            return;
        };
        let (answer, noted) = (self.beat(Kind::Answer), self.beat(Kind::Noted));
        let Some(Some(other)) = self.others.get_mut(beat.from as usize) else {
            return;
        };
        // The rest of an address (scope and flow of IPv6) is local to this side.
        if (other.address.ip(), other.address.port()) != (from.ip(), from.port()) {
            return;
        }
        other.missed = 0;
        match beat.kind {
            Kind::Ask => {
                other.heard = true;
                other.contact |= other.far;
                out.push((from, answer));
            }
            Kind::Answer => other.heard = true,
            Kind::Leave => {
                if !shared.deaths.is_dead(beat.from) {
                    shared.roster.leave(beat.from);
                }
                out.push((from, noted));
            }
            Kind::Noted => other.informed = true,
            Kind::Report => self.believe(beat, shared),
        }
    }

    /// Adopts deaths that another rank has found.
    fn believe(&mut self, beat: Beat, shared: &Shared) {
        let host = match &self.others[beat.from as usize] {
            Some(other) => other.host.clone(),
            None => return,
        };
        for (rank, why) in beat.dead {
            if rank as usize >= self.others.len() || shared.roster.has_left(rank) {
                continue;
            }
            if let Some(other) = &mut self.others[rank as usize] {
                other.reported = true;
            }
            let why = format!("rank {} on {host} says: {why}", beat.from);
            shared.deaths.declare(rank, &why);
        }
    }

    /// Tells the ranks that have communicated with this one that it leaves. Returns whether all of
    /// them know already.
    pub(crate) fn leave(&mut self, shared: &Shared, out: &mut Out) -> bool {
        let leave = self.beat(Kind::Leave);
        let mut all = true;
        for (rank, other) in (0..).zip(&self.others) {
            if let Some(other) = other
                && other.contact
                && !other.informed
                && !gone(shared, rank)
            {
                all = false;
                out.push((other.address, leave.clone()));
            }
        }
        all
    }
}

/// Whether a rank has died or left, so that nothing is expected of it any more.
fn gone(shared: &Shared, rank: u32) -> bool {
    shared.deaths.is_dead(rank) || shared.roster.has_left(rank)
}

#[cfg(test)]
mod tests;
