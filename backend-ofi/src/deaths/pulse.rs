//! Heartbeats: which ranks of other nodes are still alive. This file decides what to send and what
//! to conclude; it has neither clock nor socket.
//!
//! Two ranks of different nodes that have begun to communicate ask each other in every period
//! whether they are alive; a thread answers, whatever the program does. Ranks that are neighbours
//! on a ring do the same if they are on different nodes, so no rank is without a watcher. After
//! [`MISSES`] periods without any sign, a rank is lost.
//!
//! Silence only means something once there have been signs, because something between the nodes may
//! block datagrams. A rank that has never given any is lost after [`UNREACHED`] periods only
//!
//! - if other ranks of its node have given signs, or
//! - if this rank sends to it, and the provider does not reach that node either: no packet has come
//!   from there, and there is no connection.
//!
//! Otherwise, nothing is concluded. A warning says so, once.
//!
//! A rank that finds a death tells all ranks of the job, even those that never communicated with
//! the dead one: they may be waiting for it.
//!
//! # When nodes are lost
//!
//! If one node is lost, the neighbours on the ring of each of its ranks live and miss it. But if
//! nodes that are next to each other are lost together, the ranks of those in the middle may be
//! watched by few that live, or by none, and must not be missed one after the other. So when a rank
//! that this one watches is lost, and the end of its process alone does not explain that, this rank
//! asks all other ranks of that node ([`Kind::Hail`]). The loss is not explained if the rank was
//! silent here as well ([`FRESH`]), or if another rank of the node had been lost before. Each rank
//! that is asked lives as soon as it gives a sign, and is not asked again. It is lost after
//! [`MISSES`] periods without one, even if it has never given any, because datagrams have passed
//! between the nodes. So all ranks of a node from which this one has heard are lost within twice
//! that time after the first of them, and a rank that lives is not, whatever happens to others of
//! its node.
//!
//! # Who is dead, if ranks disagree
//!
//! A network that fails in part shows different ranks different silences. These rules keep one
//! fault from taking more ranks than it has to, and lead the ranks to one opinion:
//!
//! - *The first word counts.* A rank believes what a rank says that it holds to be alive, and
//!   ignores what a rank says that it holds to be dead. So if two ranks miss each other, the ranks
//!   between them lose only the one that was accused first.
//! - *The lost rank is told.* A rank that believes a report of another node passes it on, once, to
//!   the rank that is named. And a rank that is held to be dead and asks for a sign is told of its
//!   death instead.
//! - *A rank that is told that it is dead gives in.* It tells all ranks, which believe it. So if
//!   two accusations cross on the way and different ranks believe different ones, both of the
//!   accused are lost, everywhere.
//! - *A rank that hears no other node accuses nobody.* If ranks of several other nodes should give
//!   signs and none does, the fault is most likely here: the rank is cut off, or deaf. It holds all
//!   of them to be dead, because it cannot communicate with them; but it tells them that it is gone
//!   itself. To be sure it first asks ranks of other nodes with which it never communicated.
//!
//! On two nodes, nothing tells on which side the fault is: the first word counts. When a network
//! comes together again after both of its sides have given up the other, each side ignores the
//! other, and neither waits for it.

mod other;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::deaths::counts::Count;
use crate::deaths::datagram::{Beat, Kind, NAMED};
use crate::shared::{Contacts, Shared};
pub(crate) use other::Other;

/// Periods without a sign after which a rank that has given signs before is lost.
pub(crate) const MISSES: u32 = 4;
/// The same, for a rank that has never given a sign.
pub(crate) const UNREACHED: u32 = 10;
/// Within so many periods a rank that is there gives a sign, even if a datagram was lost.
const FRESH: u32 = 2;
/// How often a death is reported, once per period: datagrams may be lost.
const REPORTS: u32 = 3;

/// Datagrams to send: the rank, its address, and the bytes of each.
pub(crate) type Out = Vec<(u32, SocketAddr, Vec<u8>)>;

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
    /// The nodes from which heartbeats have come, so that datagrams pass.
    heard_nodes: BTreeSet<u32>,
    /// There has been a warning about a rank from which heartbeats never came.
    warned: bool,
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
            heard_nodes: BTreeSet::new(),
            warned: false,
        }
    }

    /// A datagram for a rank, with the number of packets that it was sent.
    fn beat(&self, kind: Kind, to: u32, shared: &Shared) -> Vec<u8> {
        let count = shared.counts.published(to);
        self.beat_of(kind, count, Vec::new())
    }

    fn report_of(&self, dead: Vec<(u32, String)>) -> Vec<u8> {
        let none = Count {
            packets: 0,
            turn: 0,
        };
        self.beat_of(Kind::Report, none, dead)
    }

    fn beat_of(&self, kind: Kind, count: Count, dead: Vec<(u32, String)>) -> Vec<u8> {
        let beat = Beat {
            kind,
            job: self.job,
            from: self.own,
            count,
            dead,
        };
        beat.to_bytes()
    }

    /// The numbers of the other ranks, from the next one on: if many ranks have something to tell
    /// all others at the same time, they do not all begin with the same one.
    fn around(&self) -> impl Iterator<Item = u32> + use<> {
        let (own, size) = (self.own as usize, self.others.len());
        (1..size).map(move |step| ((own + step) % size) as u32)
    }

    /// The other ranks with heartbeats, in the same order.
    fn others(&self) -> impl Iterator<Item = (u32, &Other)> {
        let all = self.around();
        all.filter_map(|rank| Some((rank, self.others[rank as usize].as_ref()?)))
    }

    /// The ranks of other nodes that have neither died nor left.
    fn living(&self, shared: &Shared) -> impl Iterator<Item = (u32, &Other)> {
        let others = self.others();
        others.filter(|&(rank, other)| other.far && !gone(shared, rank))
    }

    /// Finds out which ranks this one has begun to communicate with, and which have died. Asks the
    /// former, and reports the latter, at once.
    pub(crate) fn notice(&mut self, shared: &Shared, out: &mut Out) {
        let neighbours = [1, self.others.len() - 1].map(|step| self.neighbour(step, shared));
        for rank in self.around() {
            let other = self.others[rank as usize].as_mut();
            let Some(other) = other.filter(|other| other.far && !other.contact) else {
                continue;
            };
            let talked = shared.contacts.with(rank) != 0 && !gone(shared, rank);
            if talked || neighbours.contains(&Some(rank)) {
                other.begin_contact();
                let address = other.address;
                out.push((rank, address, self.beat(Kind::Ask, rank, shared)));
            }
        }
        let dead = shared.deaths.list(self.looked);
        self.looked += dead.len();
        for (rank, _) in &dead {
            self.hail_others_like(*rank, shared, out);
        }
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

    /// Asks all ranks of the node of a rank that is lost, if the whole node may be.
    fn hail_others_like(&mut self, lost: u32, shared: &Shared, out: &mut Out) {
        let other = self.others.get(lost as usize).and_then(Option::as_ref);
        let Some(other) = other.filter(|other| other.far && other.contact) else {
            return; // Whoever watches it does this.
        };
        let (node, silent) = (other.node, other.missed > FRESH);
        let is_like = |rank: u32, other: &Other| other.node == node && rank != lost;
        let dead = |(rank, other)| is_like(rank, other) && shared.deaths.is_dead(rank);
        if !self.is_heard(node) || !(silent || self.others().any(dead)) {
            return;
        }
        for rank in self.around() {
            let other = self.others[rank as usize].as_mut();
            let Some(other) = other.filter(|other| is_like(rank, other) && !other.suspect) else {
                continue;
            };
            if gone(shared, rank) {
                continue;
            }
            other.begin_suspicion();
            let (address, contact) = (other.address, other.contact);
            if !contact {
                out.push((rank, address, self.beat(Kind::Hail, rank, shared)));
            }
        }
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
            let bytes = self.report_of(named.to_vec());
            for (rank, other) in self.others() {
                // The rank that is declared dead as well, in case it lives: it has to learn that
                // nobody communicates with it any more.
                if let Some((_, why)) = named.iter().find(|(dead, _)| *dead == rank) {
                    self.tell_dead(rank, why, shared, out);
                } else if !gone(shared, rank) {
                    out.push((rank, other.address, bytes.clone()));
                }
            }
        }
    }

    /// Tells a rank that this one holds to be dead that the two do not communicate any more.
    fn tell_dead(&self, rank: u32, why: &str, shared: &Shared, out: &mut Out) {
        let Some(other) = &self.others[rank as usize] else {
            return;
        };
        let named = match other.far && self.stands_alone(shared) {
            true => (self.own, "it hears no rank of another node".to_owned()),
            false => (rank, why.to_owned()),
        };
        out.push((rank, other.address, self.report_of(vec![named])));
    }

    /// Whether all ranks of several other nodes are held to be dead here, so that the fault is most
    /// likely here.
    fn stands_alone(&self, shared: &Shared) -> bool {
        let others = self.others();
        let mut far = others.filter(|&(rank, other): &(u32, &Other)| {
            other.far && !shared.roster.has_left(rank) && !other.is_mute(rank, shared)
        });
        let mut nodes = None;
        far.all(|(rank, other)| {
            let (first, several) = *nodes.get_or_insert((other.node, false));
            nodes = Some((first, several || other.node != first));
            shared.deaths.is_dead(rank)
        }) && nodes.is_some_and(|(_, several)| several)
    }

    /// Whether this rank, which misses a rank of `node`, should hear ranks of further nodes and
    /// hears none of them.
    fn hears_nobody_beside(&self, node: u32, shared: &Shared) -> bool {
        let further = self.living(shared);
        let further = further.filter(|(rank, other)| {
            other.node != node && self.is_heard(other.node) && !other.is_mute(*rank, shared)
        });
        let mut fresh = further.map(|(_, other)| other.is_fresh()).peekable();
        fresh.peek().is_some() && !fresh.any(|fresh| fresh)
    }

    /// Whether a heartbeat has ever come from a rank of this node, so that datagrams pass.
    fn is_heard(&self, node: u32) -> bool {
        self.heard_nodes.contains(&node)
    }

    /// Whether a packet has come from a rank of this node.
    fn has_arrived(&self, node: u32, shared: &Shared) -> bool {
        self.others().any(|(rank, other)| {
            other.node == node && shared.contacts.with(rank) & Contacts::ARRIVED != 0
        })
    }

    /// Whether the silence of a rank means something.
    fn is_telling(&self, rank: u32, other: &Other, shared: &Shared) -> bool {
        if other.heard {
            return true;
        }
        if other.is_mute(rank, shared) {
            return false;
        }
        let spoken = shared.contacts.with(rank) & Contacts::SPOKEN != 0;
        let unreached = || spoken && !other.reached && !self.has_arrived(other.node, shared);
        self.is_heard(other.node) || unreached()
    }

    /// Whether the next period would lose a rank from whose node heartbeats have never come, unless
    /// there is a [connection](Self::reach) to it.
    pub(crate) fn doubts(&self, shared: &Shared) -> bool {
        self.living(shared).any(|(rank, other)| {
            let late = other.contact && !other.heard && other.missed >= UNREACHED;
            late && !self.is_heard(other.node) && self.is_telling(rank, other, shared)
        })
    }

    /// Notes to which addresses the provider has connections.
    pub(crate) fn reach(&mut self, connected: impl Iterator<Item = SocketAddr>) {
        for address in connected {
            for other in self.others.iter_mut().flatten() {
                other.reached |= other.endpoint == Some(address);
            }
        }
    }

    /// Counts a period of silence of each rank, where it means something.
    fn count(&mut self, shared: &Shared) {
        for rank in self.around() {
            let Some(other) = &self.others[rank as usize] else {
                continue;
            };
            let unheard = other.is_asked() && !other.heard && !gone(shared, rank);
            let telling = !unheard || self.is_telling(rank, other, shared);
            let Some(other) = &mut self.others[rank as usize] else {
                continue;
            };
            match telling {
                true => other.missed = other.missed.saturating_add(1),
                false => other.end_silence(),
            }
            if !unheard {
                continue;
            }
            other.unheard = other.unheard.saturating_add(1);
            if !telling && other.unheard > UNREACHED && !std::mem::replace(&mut self.warned, true) {
                let Other { host, address, .. } = other;
                portolan_core::log!(
                    WARN,
                    rank = self.own,
                    peer = rank,
                    "no heartbeat has ever come from {address} on {host}, and nothing else shows that the rank \
                     is lost: is UDP blocked? If that rank is lost nobody will notice (this is said once)"
                );
            }
        }
    }

    /// Handles the end of a period.
    pub(crate) fn tick(&mut self, shared: &Shared, out: &mut Out) {
        // The rank's counts of packets go along with the next heartbeats.
        shared.deaths.call();
        self.count(shared);
        let mut doubtful = false;
        for rank in self.around() {
            let verdict = self.missed(rank, shared);
            let Some(other) = &self.others[rank as usize] else {
                continue;
            };
            if let Some(why) = verdict {
                let cut_off = self.hears_nobody_beside(other.node, shared);
                shared.deaths.declare(rank, &why);
                if cut_off {
                    self.give_up_all(rank, shared);
                }
            } else if other.is_asked() && !gone(shared, rank) {
                let silent = other.missed > FRESH && other.missed <= UNREACHED;
                doubtful = doubtful || (silent && self.hears_nobody_beside(other.node, shared));
                let kind = if other.contact { Kind::Ask } else { Kind::Hail };
                out.push((rank, other.address, self.beat(kind, rank, shared)));
            }
        }
        if doubtful {
            let strangers = self.living(shared).filter(|(_, other)| !other.is_asked());
            let hail = |(rank, other): (_, &Other)| {
                (rank, other.address, self.beat(Kind::Hail, rank, shared))
            };
            out.extend(strangers.map(hail));
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

    /// Gives up the ranks of all other nodes, which are silent like the given one.
    fn give_up_all(&self, missed: u32, shared: &Shared) {
        let why = format!(
            "no rank of another node gives a sign any more, and rank {missed} was missed first: the others \
             are lost, or this node is cut off from them"
        );
        for (rank, other) in self.living(shared) {
            if !other.is_mute(rank, shared) {
                shared.deaths.declare(rank, &why);
            }
        }
    }

    /// Returns why a rank is lost, if it is, at the end of a period.
    fn missed(&self, rank: u32, shared: &Shared) -> Option<String> {
        let (period, provider) = (self.period.as_secs_f64(), &self.provider);
        let other = self.others[rank as usize].as_ref()?;
        if !other.is_asked() || gone(shared, rank) {
            return None;
        }
        let (host, address) = (&other.host, other.address);
        let error = match &other.error {
            Some(error) => format!(" (sending to it fails: {error})"),
            None => String::new(),
        };
        // Datagrams have passed between the nodes if others of its node are suspected with it.
        if other.heard || other.suspect {
            return (other.missed > MISSES).then(|| {
                format!(
                    "no heartbeat has come from {address} on {host} for {MISSES} periods of {period} s \
                     (PORTOLAN_OFI_HEARTBEAT){error}: its process, its node or the network is lost, or the \
                     process was stopped (PORTOLAN_OFI_HEARTBEAT=0 allows that, for a debugger)"
                )
            });
        }
        if other.missed <= UNREACHED {
            return None;
        }
        Some(format!(
            "neither a packet over {provider} nor a heartbeat from {address} on {host} has come within \
             {UNREACHED} periods of {period} s{error}: look whether the network joins the nodes (choose one \
             with PORTOLAN_OFI_INTERFACE) and lets UDP through (PORTOLAN_OFI_HEARTBEAT=0 does without)"
        ))
    }

    /// Notes whether the last datagram to a rank could be sent.
    pub(crate) fn sent(&mut self, to: u32, error: Option<&std::io::Error>) {
        if let Some(Some(other)) = self.others.get_mut(to as usize) {
            other.error = error.map(|error| error.to_string().into());
        }
    }

    /// Handles a datagram. It is ignored if it is not of this job, or does not come from its
    /// sender's address.
    pub(crate) fn heard(&mut self, from: SocketAddr, bytes: &[u8], shared: &Shared, out: &mut Out) {
        let Some(beat) = Beat::from_bytes(bytes).filter(|beat| beat.job == self.job) else {
            return;
        };
        let Some(Some(other)) = self.others.get_mut(beat.from as usize) else {
            return;
        };
        // The rest of an address (scope and flow of IPv6) is local to this side.
        if (other.address.ip(), other.address.port()) != (from.ip(), from.port()) {
            return;
        }
        other.end_silence();
        match beat.kind {
            Kind::Ask | Kind::Hail => {
                other.heard = true;
                self.heard_nodes.insert(other.node);
                other.contact |= other.far && beat.kind == Kind::Ask;
                shared.counts.hear(beat.from, beat.count);
                self.answer(beat.from, shared, out);
            }
            Kind::Answer => {
                other.heard = true;
                self.heard_nodes.insert(other.node);
                shared.counts.hear(beat.from, beat.count);
            }
            Kind::Leave => {
                if !shared.deaths.is_dead(beat.from) {
                    // First: whoever sees that it has left looks for its last packet.
                    shared.counts.hear_last(beat.from, beat.count.packets);
                    shared.roster.leave(beat.from);
                }
                out.push((beat.from, from, self.beat(Kind::Noted, beat.from, shared)));
            }
            Kind::Noted => other.informed = true,
            Kind::Report if shared.deaths.is_dead(beat.from) => {}
            Kind::Report => self.believe(beat, shared, out),
        }
    }

    /// Answers a rank that asks for a sign. If this rank or that one is held to be dead, the answer
    /// says so: the other does not know yet, since it asks.
    fn answer(&self, to: u32, shared: &Shared, out: &mut Out) {
        let Some(other) = &self.others[to as usize] else {
            return;
        };
        let why = |rank| shared.deaths.reason(rank, u32::MAX);
        if let Some(why) = why(self.own) {
            out.push((to, other.address, self.report_of(vec![(self.own, why)])));
        } else if let Some(why) = why(to) {
            self.tell_dead(to, &why, shared, out);
        } else {
            out.push((to, other.address, self.beat(Kind::Answer, to, shared)));
        }
    }

    /// Adopts deaths that another rank has found, and tells the dead, in case they live.
    fn believe(&mut self, beat: Beat, shared: &Shared, out: &mut Out) {
        let Some(reporter) = &self.others[beat.from as usize] else {
            return;
        };
        let (host, far) = (Arc::clone(&reporter.host), reporter.far);
        for (rank, why) in beat.dead {
            if rank as usize >= self.others.len() || gone(shared, rank) {
                continue;
            }
            if let Some(other) = &mut self.others[rank as usize] {
                other.reported = true;
            }
            let why = format!("rank {} on {host} says: {why}", beat.from);
            shared.deaths.declare(rank, &why);
            // The one that has found it may not reach it. A rank of this node reaches whom this one
            // reaches.
            if far && rank != beat.from {
                self.tell_dead(rank, &why, shared, out);
            }
        }
    }

    /// Tells the ranks that have communicated with this one that it leaves. Returns whether all of
    /// them know already.
    pub(crate) fn leave(&mut self, shared: &Shared, out: &mut Out) -> bool {
        let mut all = true;
        for (rank, other) in self.others() {
            if other.contact && !other.informed && !gone(shared, rank) {
                all = false;
                out.push((rank, other.address, self.beat(Kind::Leave, rank, shared)));
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
