//! The transport: a table of contents. The file named after an operation implements it.

use std::collections::{BTreeMap, VecDeque};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_core::MemoryKind;
use portolan_core::transport::{
    Begun, Bell, Exposure, Header, Limits, Payload, Pulled, Pulls, Remote, Sent, Sink, Token,
    Transport, TransportCaps,
};

use crate::addr::Addresses;
use crate::caps;
use crate::deaths::leaver::Leaver;
use crate::deaths::sever;
use crate::deaths::watch::Watcher;
use crate::endpoint::bell::EventBell;
use crate::endpoint::link::Link;
use crate::memory::remote;
use crate::native::Matched;
use crate::one_sided;
use crate::packets::gap::Gap;
use crate::peer::Peers;
use crate::progress;
use crate::quirks::hung_calls::Calls;
use crate::quirks::room::Rooms;
use crate::quirks::stream::Stream;
use crate::send;
use crate::shared::{Contacts, Shared};

/// How long a rank that leaves waits for its last packets to go. After that, their receivers are
/// not expected to take them any more.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);

/// The same, where ranks have died.
pub(crate) const FAREWELL_FROM_THE_DEAD: Duration = Duration::from_millis(100);

/// Time without a packet from a rank of this node that has left, after which everything that it
/// sent before has arrived here: a provider over sockets has handed it to the system before that
/// rank announces that it leaves. A rank of another node that never communicated with this one has
/// sent nothing.
const ARRIVAL: Duration = Duration::from_secs(1);

/// The same, for a rank of another node that has communicated with this one. It says how many
/// packets it has sent, so this only ends the wait for packets that are lost, or if its word is
/// lost. As long as in [`counts`](crate::deaths::counts), because TCP may send again for that long.
const FAR_ARRIVAL: Duration = Duration::from_secs(60);

/// One rank's end of a libfabric network.
///
/// Made by [`open`](crate::open) in a job of processes and by
/// [`in_process`](crate::in_process) for ranks that are threads, or that one thread steps.
#[derive(Debug)]
pub struct Ofi {
    /// Taken out when the transport is dropped.
    pub(crate) link: ManuallyDrop<Link>,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// The job's number, which every packet carries.
    pub(crate) job: u32,
    pub(crate) peers: Peers,
    pub(crate) addresses: Addresses,
    /// Longest packet that the provider copies within the call (`fi_inject`).
    pub(crate) inject: usize,
    /// Whether packets may omit their headers: the provider transmits a word of data with each
    /// packet.
    pub(crate) words: bool,
    /// Large slots that are filled but could not be sent yet.
    pub(crate) waiting: VecDeque<u32>,
    /// Peers that may have to be told how many of their packets have been delivered.
    pub(crate) to_tell: VecDeque<u32>,
    /// Completions of operations that the provider matches, kept until `native` takes them.
    pub(crate) tagged: Vec<Matched>,
    /// When to look for connections whose receive buffers are to grow, where the provider needs
    /// that.
    pub(crate) rooms: Option<Rooms>,
    /// Packets that have arrived since this rank last sent, where a rank that polls keeps others
    /// from sending.
    pub(crate) stream: Option<Stream>,
    /// A missing packet before those that have arrived, where a packet that does not come is lost.
    pub(crate) gap: Option<Gap>,
    /// How many deaths this rank has adopted, that is, believes.
    pub(crate) adopted: u32,
    /// Ranks whose deaths this rank has looked at and not adopted, because the provider may still
    /// access memory of the program in operations that such a death ends.
    pub(crate) held: Vec<u32>,
    /// Polls since there are deaths that this rank has not adopted yet: those in a row that brought
    /// nothing, and all.
    pub(crate) silence: (u32, u32),
    pub(crate) armed: bool,
    /// Threads that sleep between looks for a message, in addition to those of the engine.
    pub(crate) lookers: u32,
    pub(crate) bell: Arc<EventBell>,
    pub(crate) shared: Arc<Shared>,
    /// Ranks that this rank has seen to have left, on whichever node.
    leavers: BTreeMap<u32, Leaver>,
    nodes: Arc<[u32]>,
    processes: Box<[Option<u32>]>,
    caps: TransportCaps,
    /// Counts the provider's calls, where one of them may never return.
    pub(crate) calls: Option<Arc<Calls>>,
    watcher: Option<Watcher>,
    /// Whether this rank ends without an announcement: the others then learn only how its process
    /// ends.
    silent: bool,
}

/// What a rank needs to know about its job.
pub(crate) struct Seat {
    pub(crate) rank: u32,
    pub(crate) job: u32,
    pub(crate) addresses: Addresses,
    /// The node of each rank.
    pub(crate) nodes: Arc<[u32]>,
    /// Each rank's process id, where it is known and the process is on this node; `None` for ranks
    /// that are threads.
    pub(crate) processes: Box<[Option<u32>]>,
    pub(crate) shared: Arc<Shared>,
}

impl Ofi {
    /// The transport over an open endpoint.
    pub(crate) fn new(link: Link, seat: Seat, watcher: Option<Watcher>) -> Result<Self, String> {
        let size = seat.nodes.len() as u32;
        let bell = Arc::new(EventBell::new(link.domain.wait)?);
        seat.shared.deaths.tell(&bell);
        Ok(Self {
            rank: seat.rank,
            size,
            job: seat.job,
            peers: Peers::new(size),
            addresses: seat.addresses,
            inject: caps::inject(&link.domain.info),
            words: caps::words(&link.domain.info),
            waiting: VecDeque::with_capacity(64),
            to_tell: VecDeque::with_capacity(64),
            tagged: Vec::new(),
            rooms: Rooms::of(&link.domain.info.provider()),
            stream: Stream::of(link.domain.library.version(), &link.domain.info),
            gap: link.in_order.then(Gap::default),
            adopted: 0,
            held: Vec::new(),
            silence: (0, 0),
            armed: false,
            lookers: 0,
            bell,
            shared: seat.shared,
            leavers: BTreeMap::new(),
            nodes: seat.nodes,
            processes: seat.processes,
            caps: caps::caps(&link.domain, watcher.is_some()),
            calls: watcher.as_ref().and_then(Watcher::calls),
            watcher,
            silent: false,
            link: ManuallyDrop::new(link),
        })
    }

    /// Whether the provider does the matching: the rank is then for a [`Native`](crate::Native)
    /// device.
    #[must_use]
    pub fn matches(&self) -> bool {
        self.link.matches
    }

    /// Whether a thread sleeps, or is about to.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        self.armed || self.lookers > 0
    }

    /// Something has arrived from a peer. The first arrival shows both ranks that the network joins
    /// them.
    #[inline]
    pub(crate) fn heard(&mut self, peer: u32) {
        if self.shared.contacts.with(peer) & Contacts::ARRIVED == 0 {
            self.greet(peer);
        }
    }

    /// Marks the start of provider calls that take locks. Until `back`, the watching thread
    /// measures the time. No code of the program or the engine that may take long runs in between.
    #[inline]
    pub(crate) fn calling(&self) {
        if let Some(calls) = &self.calls {
            calls.begin();
        }
    }

    /// The calls since `calling` have returned.
    #[inline]
    pub(crate) fn back(&self) {
        if let Some(calls) = &self.calls {
            calls.end();
        }
    }

    /// How many of the known deaths this rank has looked at. It has adopted them, except those that
    /// are held back.
    pub(crate) fn looked_at(&self) -> u32 {
        self.adopted + self.held.len() as u32
    }

    /// Why `peer` is dead, if this rank has adopted its death.
    pub(crate) fn adopted_reason(&self, peer: u32) -> Option<String> {
        let reason = self.shared.deaths.reason(peer, self.looked_at());
        reason.filter(|_| !self.held.contains(&peer))
    }

    /// Whether this rank has adopted the death of `peer`.
    pub(crate) fn has_adopted(&self, peer: u32) -> bool {
        self.adopted != 0 && self.adopted_reason(peer).is_some()
    }

    /// Whether an operation on memory of `peer` may begin: none does that would have to end before
    /// a death is adopted. Those are operations on the dead rank, and all if this rank is the one.
    /// Which they are is known once the deaths have been looked at.
    pub(crate) fn may_begin_with(&self, peer: u32) -> bool {
        let waits = |rank| self.held.contains(&rank);
        self.shared.deaths.count() == self.looked_at() && !waits(peer) && !waits(self.rank)
    }

    /// Whether a rank is on this node.
    pub(crate) fn is_near(&self, peer: u32) -> bool {
        self.nodes[peer as usize] == self.nodes[self.rank as usize]
    }

    /// Time without a packet from a rank that has left, after which none comes any more.
    fn arrival(&self, peer: u32) -> Duration {
        if self.is_near(peer) {
            return ARRIVAL;
        }
        match self.shared.counts.last(peer) {
            Some(packets) if packets == self.peers[peer as usize].expected => Duration::ZERO,
            None if self.shared.contacts.with(peer) == 0 => ARRIVAL,
            Some(_) | None => FAR_ARRIVAL,
        }
    }

    #[cold]
    fn greet(&mut self, peer: u32) {
        self.shared.contacts.note(peer, Contacts::ARRIVED);
        if self.shared.contacts.are_watched() && peer != self.rank {
            self.peers[peer as usize].greet = true;
            self.to_tell.push_back(peer);
        }
    }

    /// Ends the operations that the provider has not completed. By now the others know that this
    /// rank has left; if it hung up earlier, it would look as if it had died.
    #[cold]
    fn hang_up(&mut self) {
        sever::all(self);
        let start = Instant::now();
        while start.elapsed() < FAREWELL_FROM_THE_DEAD {
            progress::discard(self);
            std::thread::yield_now();
        }
    }

    /// Waits until everything sent has left, but not for ever.
    fn flush(&mut self) {
        let start = Instant::now();
        while start.elapsed() < FAREWELL {
            // Packets to dead ranks never complete.
            if self.shared.deaths.count() != 0 && start.elapsed() > FAREWELL_FROM_THE_DEAD {
                break;
            }
            let mut marked = true;
            self.calling();
            for peer in 0..self.size {
                if self.peers[peer as usize].injected && send::absent(self, peer).is_none() {
                    marked &= send::send_control(self, peer, true);
                }
            }
            self.back();
            progress::poll(self, &mut Nobody);
            if marked && self.has_nothing_to_say() {
                return;
            }
        }
        portolan_core::log!(WARN, rank = self.rank, "left before all packets had left");
    }

    /// Whether everything sent has left, or was for ranks that are gone: a provider that waits for
    /// a packet's acknowledgement would wait for those in vain.
    pub(crate) fn has_nothing_to_say(&self) -> bool {
        let Link {
            small,
            large,
            memory,
            ..
        } = &*self.link;
        let there = |peer| send::absent(self, peer).is_none();
        let heard = !small.concern(there) && !large.concern(there);
        heard && !memory.is_reading() && memory.remotes.open().next().is_none()
    }
}

/// Discards what arrives for a rank that is leaving.
pub(crate) struct Nobody;

impl Sink for Nobody {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {}
}

// SAFETY: packets lie in slabs that live as long as the endpoint. Memory lent by the caller stays
// registered, or held by an operation, until the provider has completed it. An operation that ends
// early is waited for, or its memory is never used again.
unsafe impl Transport for Ofi {
    fn name(&self) -> &'static str {
        "ofi"
    }

    fn caps(&self) -> TransportCaps {
        match self.link.memory.stuck {
            true => self.caps - caps::OF_REMOTES,
            false => self.caps,
        }
    }

    fn limits(&self) -> Limits {
        self.link.limits
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn node_of(&self, peer: u32) -> u32 {
        self.nodes[peer as usize]
    }

    fn node_name(&self) -> String {
        crate::addr::host()
    }

    fn process_of(&self, peer: u32) -> Option<u32> {
        *self.processes.get(peer as usize)?
    }

    #[inline]
    unsafe fn send_short(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        self.calling();
        // SAFETY: the caller's promise, passed on.
        let sent = unsafe { send::short(self, peer, header, data, len) };
        self.back();
        sent
    }

    #[inline]
    unsafe fn send_bulk<F: FnOnce(*mut u8)>(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        fill: F,
    ) -> Sent {
        self.calling();
        // SAFETY: the caller's promise, passed on.
        let sent = unsafe { send::bulk(self, peer, header, len, fill) };
        self.back();
        sent
    }

    #[inline]
    unsafe fn send_bulk_from(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        self.calling();
        // SAFETY: the caller's promise, passed on.
        let sent = unsafe { send::bulk_from(self, peer, header, data, len) };
        self.back();
        sent
    }

    #[inline]
    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        progress::poll(self, sink)
    }

    fn bell(&self) -> Arc<dyn Bell> {
        Arc::clone(&self.bell) as Arc<dyn Bell>
    }

    fn arm(&mut self) {
        self.armed = true;
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.bell.quiet();
    }

    fn failures(&self) -> u32 {
        self.adopted
    }

    fn failure_of(&self, peer: u32) -> Option<String> {
        self.adopted_reason(peer)
    }

    fn has_left(&mut self, peer: u32) -> bool {
        if peer >= self.size
            || self.shared.deaths.is_dead(peer)
            || !self.shared.roster.has_left(peer)
        {
            return false;
        }
        let expected = self.peers[peer as usize].expected;
        let link = &*self.link;
        let leaver = self.leavers.entry(peer);
        let leaver = leaver.or_insert_with(|| Leaver::new(expected));
        // The provider does not tell of messages that match nothing. Packets may lie behind many.
        leaver.look(expected, || link.matches && link.domain.has_unread());
        let quiet = leaver.since.elapsed();
        let open = link.memory.open().any(|open| open.peer == peer);
        !open && quiet >= self.arrival(peer)
    }

    fn declare_failed(&mut self, peer: u32, why: &str) {
        if peer < self.size {
            self.shared.deaths.declare(peer, why);
            progress::believe(self);
        }
    }

    unsafe fn expose(&mut self, data: *const u8, len: usize) -> Option<Exposure> {
        one_sided::expose(self, data, len)
    }

    fn withdraw(&mut self, exposure: &Exposure) {
        one_sided::withdraw(self, exposure);
    }

    fn end_silently(&mut self) {
        self.silent = true;
    }

    fn serves(&self, address: *const u8, memory: MemoryKind) -> bool {
        let hmem = self
            .link
            .domain
            .hmem
            .as_ref()
            .filter(|_| self.link.domain.rma);
        hmem.is_some_and(|hmem| hmem.serves(address, memory))
    }

    fn pulls(&self, _peer: u32, _exposure: &Exposure, _len: usize, _inside: bool) -> Pulls {
        one_sided::pulls(self)
    }

    unsafe fn pull(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Pulled {
        self.calling();
        // SAFETY: the caller's promise, passed on.
        let pulled = unsafe { one_sided::pull(self, peer, exposure, offset, target, len) };
        self.back();
        pulled
    }

    unsafe fn register(&mut self, data: *mut u8, len: usize, memory: MemoryKind) -> Option<Token> {
        if !self.link.domain.takes(memory) {
            return None;
        }
        one_sided::register(self, data, len)
    }

    fn deregister(&mut self, token: &Token) {
        one_sided::deregister(self, token);
    }

    unsafe fn begin_remote(
        &mut self,
        peer: u32,
        token: &Token,
        offset: u64,
        what: Remote,
        id: u32,
    ) -> Begun {
        self.calling();
        // SAFETY: the caller's promise, passed on.
        let begun = unsafe { remote::begin(self, peer, token, offset, what, id) };
        self.back();
        begun
    }

    fn memory_used(&self) -> u64 {
        let Link {
            small,
            large,
            inbox,
            memory,
            ..
        } = &*self.link;
        let slots = small.slab.len() + large.slab.len();
        (slots + inbox.memory() + memory.remotes.memory()) as u64
    }

    fn describe(&self) -> Vec<(String, String)> {
        one_sided::describe(self)
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.deaths.declare(self.rank, "it panicked");
        } else {
            self.flush();
        }
        let watcher = self.watcher.take();
        let died = self.shared.deaths.is_dead(self.rank);
        if !died && !self.silent {
            if let Some(watcher) = watcher {
                let sent = self.peers.iter().map(|peer| Some(peer.sent));
                self.shared.counts.publish(sent);
                watcher.leave();
            }
            self.shared.roster.leave(self.rank);
        }
        if self.link.lent.is_some() {
            self.hang_up();
        }
        // SAFETY: not used any more.
        let mut link = unsafe { ManuallyDrop::take(&mut self.link) };
        link.memory.close();
        // Nobody answers on behalf of a rank that has died. Over a network, closing its endpoint
        // lets a peer that reads from it find that out.
        let hangs_up = died && link.domain.info.ip().is_some();
        let busy = link.memory.is_reading() || link.lent.is_some();
        if !busy && !hangs_up {
            self.shared.retire(link);
        } else {
            drop(link);
        }
        self.shared.deaths.note_end(self.rank);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::Config;
    use crate::deaths::leaver::LOOKS;
    use crate::testing::opened_or_skipped;

    /// As if the last look had been so long ago.
    pub(crate) fn long_ago(ofi: &mut Ofi, peer: u32, time: Duration) {
        let leaver = ofi.leavers.get_mut(&peer).expect("it was looked for");
        leaver.age(time);
    }

    /// As if each rank were on a node of its own.
    pub(crate) fn apart(ofi: &mut Ofi) {
        ofi.nodes = (0..ofi.size).collect();
    }

    /// As if there had always been something to read.
    pub(crate) fn often(ofi: &mut Ofi, peer: u32) {
        let leaver = ofi.leavers.get_mut(&peer).expect("it was looked for");
        leaver.looks = LOOKS;
    }

    fn pair() -> Option<Vec<Ofi>> {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        opened_or_skipped("a rank that leaves", 2, &config)
    }

    /// Sends a packet without data to rank 0, which polls until the ranks are connected.
    fn send(one: &mut Ofi, zero: &mut Ofi) {
        let try_once = |one: &mut Ofi| {
            // SAFETY: rank 0 exists and is not rank 1; no bytes are read.
            unsafe { one.send_short(0, &Header::default(), std::ptr::null(), 0) }
        };
        while try_once(one) != Sent::Done {
            one.poll(&mut Nobody);
            zero.poll(&mut Nobody);
        }
    }

    #[test]
    fn who_has_left_is_gone_when_nothing_of_it_arrives_any_more() {
        let Some(mut ranks) = pair() else {
            return; // The skip has been printed.
        };
        let [zero, one] = &mut ranks[..] else {
            panic!("two ranks");
        };
        send(one, zero);
        zero.shared.roster.leave(1);
        assert!(!zero.has_left(1), "its packet may be on its way");
        long_ago(zero, 1, ARRIVAL);
        while zero.peers[1].expected == 0 {
            one.poll(&mut Nobody);
            zero.poll(&mut Nobody);
        }
        assert!(!zero.has_left(1), "a packet has just arrived");
        assert!(!zero.has_left(1), "that was no second ago");
        long_ago(zero, 1, ARRIVAL);
        assert!(zero.has_left(1));
    }

    /// The announcement of a rank of another node overtakes its last packet.
    #[test]
    fn a_far_rank_is_gone_when_its_last_packet_has_arrived() {
        let Some(mut ranks) = pair() else {
            return; // The skip has been printed.
        };
        let [zero, one] = &mut ranks[..] else {
            panic!("two ranks");
        };
        apart(zero);
        send(one, zero);
        while zero.peers[1].expected == 0 {
            one.poll(&mut Nobody);
            zero.poll(&mut Nobody);
        }
        // The second packet is not sent yet.
        zero.shared.counts.hear_last(1, 2);
        zero.shared.roster.leave(1);
        assert!(!zero.has_left(1));
        long_ago(zero, 1, ARRIVAL);
        assert!(!zero.has_left(1), "TCP sends it again");
        send(one, zero);
        while zero.peers[1].expected == 1 {
            one.poll(&mut Nobody);
            zero.poll(&mut Nobody);
        }
        assert!(zero.has_left(1), "nothing can come any more");
        // If the last packet is lost, the wait ends as well.
        zero.shared.counts.hear_last(1, 3);
        assert!(!zero.has_left(1));
        long_ago(zero, 1, FAR_ARRIVAL);
        assert!(zero.has_left(1));
    }
}
