//! The transport itself, kept as a table of contents: each operation is implemented in the file
//! named after it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use portolan_core::lines::{copy, copy_by_words, is_for_words, may_be_for_words};
use portolan_core::transport::{
    Bell, DirectMemory, Exposure, Header, Limits, Pulled, Pulls, Sent, Sink, Transport,
    TransportCaps,
};
use portolan_core::{Error, ErrorKind, Result};

use crate::bell::BellWords;
use crate::config::Config;
use crate::heap::{self, Heap};
use crate::inbox::Inbox;
use crate::link::{Incoming, Outgoing};
use crate::offer::{self, Offers};
use crate::places::Places;
use crate::pull::{Local, Place, Puller};
use crate::segment::layout::{Life, Presence};
use crate::segment::{Geometry, Segment};
use crate::sync::AtomicU32;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::watch::Watcher;
use crate::{caps, grow, progress, send};

/// One rank's end of node-local shared memory.
///
/// [`open`](crate::open) makes it in a job of processes. [`in_process`](crate::in_process) makes
/// one for each rank where ranks are threads, or where one thread steps all of them.
#[derive(Debug)]
pub struct Shm {
    pub(crate) rank: u32,
    /// Whether some rank cannot use `membarrier`; every send then needs a fence.
    pub(crate) fenced: bool,
    /// Whether a receiver takes the cache lines of what it reads ([`lines`](portolan_core::lines)).
    pub(crate) takes: bool,
    /// Whether some payloads are copied by words.
    pub(crate) by_words: bool,
    pub(crate) epoch_seen: u32,
    /// The failure epoch in the segment.
    pub(crate) epoch: *const AtomicU32,
    /// What this rank keeps about each receiver, by rank.
    pub(crate) outgoing: Places<Outgoing>,
    /// The rings that other ranks have announced to this one.
    pub(crate) incoming: Vec<Incoming>,
    /// Index in `incoming` of the ring that the next poll looks at first.
    pub(crate) turn: usize,
    /// Inbox slots, one bit each, that may hold a packet which is still to be delivered.
    pub(crate) held: u64,
    /// Peers to which a send found no room, and which have not been seen to have room since.
    pub(crate) blocked: Vec<u32>,
    /// Whether every rank in `blocked` rings this rank's bell when it makes room: each was already
    /// blocked at the last `arm`, and no send since then has failed for want of an inbox slot.
    pub(crate) all_ring: bool,
    /// This rank's inbox in the segment.
    pub(crate) inbox: *const Inbox,
    /// This rank's presence words in the segment.
    pub(crate) presence: *const Presence,
    pub(crate) segment: Arc<Segment>,
    pub(crate) geometry: Geometry,
    pub(crate) config: Config,
    pub(crate) caps: TransportCaps,
    pub(crate) offers: Offers,
    pub(crate) heap: Heap,
    pub(crate) puller: Puller,
    /// Whether peers load messages from memory of `alloc` where they are. Ranks of one process need
    /// nothing of the kind: they load all memory.
    shares: bool,
    pub(crate) ring_memory: u64,
    /// Whether the warning that there is no memory for bulk areas of full size has been logged.
    pub(crate) said_short: bool,
    /// Whether a copy has found its peer dead. Its life says so before the failure epoch does.
    pub(crate) met_death: bool,
    bell: Arc<RankBell>,
    watcher: Option<Watcher>,
    /// The process that this rank belongs to.
    process: u32,
    /// Set when the program has failed: `close` then does not report an orderly end, and peers take
    /// the end of the process for this rank's death.
    silent: bool,
}

// SAFETY: `epoch`, `inbox` and `presence` point to atomics in the segment, which `segment` keeps
// mapped.
unsafe impl Send for Shm {}

impl Shm {
    /// Makes the transport of `rank` over an attached segment.
    pub(crate) fn new(
        segment: Arc<Segment>,
        rank: u32,
        config: Config,
        puller: Puller,
        watcher: Option<Watcher>,
    ) -> Result<Self> {
        let geometry = segment.geometry()?;
        let own = segment.rank(rank);
        let fenced = segment.head().fenced.load(Relaxed) != 0;
        Ok(Self {
            rank,
            fenced,
            takes: config.take,
            by_words: config.by_words,
            epoch_seen: 0,
            epoch: &raw const segment.head().epoch.0,
            outgoing: Places::new(segment.ranks() as usize).map_err(no_places)?,
            incoming: Vec::new(),
            turn: 0,
            held: 0,
            blocked: Vec::new(),
            all_ring: false,
            inbox: &raw const own.inbox,
            presence: &raw const own.presence.0,
            geometry,
            caps: caps::caps(&config, watcher.is_some()),
            config,
            offers: Offers::new(),
            heap: Heap::default(),
            shares: matches!(puller, Puller::Across { .. }),
            puller,
            ring_memory: 0,
            said_short: false,
            met_death: false,
            bell: Arc::new(RankBell {
                segment: Arc::clone(&segment),
                rank,
                unsure: std::sync::atomic::AtomicBool::new(false),
            }),
            watcher,
            process: std::process::id(),
            silent: false,
            segment,
        })
    }

    /// Asks the system whether the process of `peer` has ended.
    pub(crate) fn watches_dead(&self, peer: u32) -> bool {
        self.watcher
            .as_ref()
            .is_some_and(|watcher| watcher.has_ended(peer))
    }

    /// Like `watches_dead`; if the process has ended, also tells every rank.
    pub(crate) fn finds_dead(&self, peer: u32) -> bool {
        let dead = self.watches_dead(peer);
        if let (true, Some(watcher)) = (dead, &self.watcher) {
            watcher.note_end(peer);
        }
        dead
    }

    /// Whether `peer` has left in an orderly way and takes no more messages. Costs one load.
    pub(crate) fn has_left(&self, peer: u32) -> bool {
        self.segment.life(peer) == Life::Finished
    }

    /// Sends a packet, and notes how long it took to copy it in this way.
    ///
    /// # Safety
    /// As `send_bulk_from`.
    #[cold]
    unsafe fn send_timed(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
        by_words: bool,
    ) -> Sent {
        let mut took = None;
        // SAFETY: the caller's promise; all of the bytes are written.
        let sent = unsafe {
            send::bulk(self, peer, header, len, |target| {
                let since = Instant::now();
                match by_words {
                    true => copy_by_words(data, target, len),
                    false => copy(data, target, len),
                }
                // It waits until this core has the lines of all stores. Those of `rep movsb` are
                // not over when it is. Orders nothing: it has no partner.
                fence(Ordering::SeqCst);
                took = Some(since.elapsed());
            })
        };
        if let Some(took) = took {
            self.outgoing[peer as usize]
                .manner
                .learn(by_words, len, took);
        }
        sent
    }

    /// The number of ranks found dead so far.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u32 {
        // SAFETY: points into the segment, which is mapped as long as `self` lives.
        // Acquire: pairs with the Release in `Segment::fail`.
        unsafe { &*self.epoch }.load(Acquire)
    }
}

// SAFETY: packets, regions and mapped memory lie in the segment, which stays mapped while `self`
// lives, at positions that are checked against its bounds. `withdraw` and `close` end exposures,
// and wait for copies under way (`pull.rs`, `segment/push.rs`).
unsafe impl Transport for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn caps(&self) -> TransportCaps {
        self.caps
    }

    fn limits(&self) -> Limits {
        caps::limits(&self.config, self.geometry.bulk_bytes)
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.segment.ranks()
    }

    fn node_of(&self, _peer: u32) -> u32 {
        0
    }

    fn node_name(&self) -> String {
        crate::addr::node_name()
    }

    fn process_of(&self, peer: u32) -> Option<u32> {
        self.puller.process_of(peer)
    }

    #[inline(always)]
    unsafe fn send_short(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        // SAFETY: the caller's promise, passed on.
        unsafe { send::short(self, peer, header, data, len) }
    }

    #[inline]
    unsafe fn send_bulk<F: FnOnce(*mut u8)>(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        fill: F,
    ) -> Sent {
        // SAFETY: the caller's promise, passed on.
        unsafe { send::bulk(self, peer, header, len, fill) }
    }

    #[inline]
    unsafe fn send_bulk_from(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        let by_words = self.by_words && may_be_for_words(len) && {
            let out = &mut self.outgoing[peer as usize];
            if out.turns.sends_one() {
                let next = out.manner.next();
                if next.timed {
                    // SAFETY: the caller's promise, passed on.
                    return unsafe { self.send_timed(peer, header, data, len, next.by_words) };
                }
                next.by_words
            } else {
                is_for_words(len)
            }
        };
        // SAFETY: the caller's promise; all of the bytes are written.
        unsafe {
            self.send_bulk(peer, header, len, |target| match by_words {
                true => copy_by_words(data, target, len),
                false => copy(data, target, len),
            })
        }
    }

    #[inline]
    unsafe fn send_growing(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        let alone = self.outgoing[peer as usize].turns.sends_one();
        match grow::part(len, alone, self.by_words) {
            // SAFETY: the caller's promise, passed on.
            Some(part) => unsafe { grow::send(self, peer, header, data, len, part) },
            // SAFETY: as above.
            None => unsafe { self.send_bulk_from(peer, header, data, len) },
        }
    }

    fn has_room(&mut self, peer: u32, len: usize, piece: usize) -> bool {
        let out = &mut self.outgoing[peer as usize];
        match (out.ring.as_mut(), out.bulk.as_mut()) {
            (Some(ring), Some(bulk)) => {
                ring.fits(len.div_ceil(piece.max(1))) && bulk.fits(len, piece, ring.ends())
            }
            _ => false,
        }
    }

    #[inline]
    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        progress::poll(self, sink)
    }

    fn bell(&self) -> Arc<dyn Bell> {
        Arc::clone(&self.bell) as Arc<dyn Bell>
    }

    fn arm(&mut self) {
        let sure = progress::arm(self);
        self.bell
            .unsure
            .store(!sure, std::sync::atomic::Ordering::Relaxed);
    }

    fn rings_for_room(&self) -> bool {
        self.all_ring
    }

    fn disarm(&mut self) {
        self.segment.rank(self.rank).bell.disarm();
    }

    #[inline]
    fn set_present(&mut self, present: bool) {
        // SAFETY: points into the segment, which is mapped as long as `self` lives.
        unsafe { &*self.presence }
            .inside
            .store(present.into(), Relaxed);
    }

    fn note_look(&mut self) {
        // SAFETY: as above. Only this rank writes the word.
        let looks = &unsafe { &*self.presence }.looks;
        looks.store(looks.load(Relaxed).wrapping_add(1), Relaxed);
    }

    fn note_processor(&mut self, processor: u32) {
        let word = &self.segment.rank(self.rank).processor.0;
        let here = processor.saturating_add(1);
        if word.load(Relaxed) != here {
            word.store(here, Relaxed);
        }
    }

    fn processor_of(&self, peer: u32) -> Option<u32> {
        if peer >= self.segment.ranks() {
            return None;
        }
        let word = &self.segment.rank(peer).processor.0;
        word.load(Relaxed).checked_sub(1)
    }

    fn looks(&self, peer: u32) -> u32 {
        if peer >= self.segment.ranks() {
            return 0;
        }
        self.segment.rank(peer).presence.0.looks.load(Relaxed)
    }

    #[inline]
    fn failures(&self) -> u32 {
        self.epoch()
    }

    fn failure_of(&self, peer: u32) -> Option<String> {
        if peer >= self.size() {
            return None;
        }
        self.segment
            .reason(peer)
            .or_else(|| self.outgoing[peer as usize].gone().map(str::to_owned))
    }

    fn has_left(&mut self, peer: u32) -> bool {
        // A rank that sees `Finished` also sees everything that the peer had sent: see `close`.
        peer < self.size() && self.segment.life(peer) == Life::Finished
    }

    fn declare_failed(&mut self, peer: u32, why: &str) {
        if peer < self.size() {
            self.segment.fail(peer, why);
        }
    }

    unsafe fn expose(&mut self, data: *const u8, len: usize) -> Option<Exposure> {
        if self.shares(data, len) {
            let offset = self.segment.offset_of(data)?;
            return Some(Place::in_segment(offset).to_exposure());
        }
        self.caps
            .contains(TransportCaps::PULL)
            .then(|| self.puller.expose(self.rank, data, len, false))
    }

    #[inline]
    fn shares(&self, data: *const u8, len: usize) -> bool {
        self.shares && self.segment.holds(data, len)
    }

    unsafe fn expose_mut(&mut self, data: *mut u8, len: usize) -> Option<Exposure> {
        if self.shares(data, len) {
            let offset = self.segment.offset_of(data)?;
            return Some(Place::in_segment(offset).to_exposure());
        }
        self.caps
            .contains(TransportCaps::PUSH)
            .then(|| self.puller.expose(self.rank, data, len, true))
    }

    fn pulls(&self, peer: u32, exposure: &Exposure, len: usize, inside: bool) -> Pulls {
        crate::one_sided::pulls(self, peer, exposure, len, inside)
    }

    unsafe fn push(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        source: *const u8,
        len: usize,
    ) -> Pulled {
        let local = Local::From(source, len);
        // SAFETY: the caller's promise, passed on.
        unsafe { crate::one_sided::reach(self, peer, exposure, offset, local) }
    }

    fn withdraw(&mut self, exposure: &Exposure) {
        self.puller.withdraw(exposure);
        if self.met_death || self.epoch() != 0 {
            self.segment
                .await_pushes(self.rank, |rank| self.watches_dead(rank));
        }
    }

    fn end_silently(&mut self) {
        self.silent = true;
    }

    fn close(&mut self) {
        // A child that has been forked shares its parent's memory, but is not the rank.
        if std::process::id() != self.process {
            return;
        }
        if std::thread::panicking() {
            self.segment.fail(self.rank, "it panicked");
        }
        let end = match self.silent {
            true => Life::Ending,
            false => Life::Finished,
        };
        // Only a running rank can finish; a rank that was declared dead stays dead.
        // Release: everything that this rank has sent is visible to a rank that sees it has left.
        let life = &self.segment.rank(self.rank).identity.life;
        let _ = life.compare_exchange(Life::Running as u32, end as u32, Release, Relaxed);
        self.puller.close(self.rank);
        self.segment
            .await_pushes(self.rank, |rank| self.watches_dead(rank));
        if crate::allocator::held(&self.segment) > 0 {
            crate::allocator::trim();
        }
    }

    unsafe fn pull(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Pulled {
        // SAFETY: the caller's promise, passed on.
        unsafe { crate::one_sided::reach(self, peer, exposure, offset, Local::To(target, len)) }
    }

    fn offer_open(&mut self) -> Option<u32> {
        self.offers.open(self.segment.rank(self.rank))
    }

    fn offer_take(&mut self, peer: u32, word: u32) -> bool {
        peer < self.size() && offer::take(self.segment.rank(peer), word)
    }

    fn offer_cancel(&mut self, word: u32) -> bool {
        self.offers.cancel(self.segment.rank(self.rank), word)
    }

    fn offer_close(&mut self, word: u32) {
        self.offers.close(self.segment.rank(self.rank), word);
    }

    fn alloc(&mut self, len: usize) -> Result<DirectMemory> {
        self.heap
            .alloc(&self.segment, self.rank, len)
            .map_err(|e| e.on_rank(self.rank))
    }

    unsafe fn free(&mut self, memory: DirectMemory) {
        self.heap.free(&self.segment, self.rank, &memory);
    }

    fn map(&mut self, peer: u32, key: &[u8; 32]) -> Option<(*mut u8, usize)> {
        heap::map(&self.segment, peer, key)
    }

    #[inline]
    fn nudge(&mut self, peer: u32) {
        self.segment.rank(peer).bell.wake_if_asleep(self.fenced);
    }

    fn memory_used(&self) -> u64 {
        size_of::<crate::segment::layout::RankArea>() as u64
            + self.ring_memory
            + self.heap.used()
            + crate::allocator::held(&self.segment)
    }

    fn describe(&self) -> Vec<(String, String)> {
        crate::one_sided::describe(self)
    }
}

#[cold]
fn no_places(error: std::io::Error) -> Error {
    let what = format!("no address space for what a rank keeps about the others: {error}");
    Error::new(ErrorKind::Exhausted, what).remedy("raise the limit of address space (ulimit -v)")
}

impl Drop for Shm {
    fn drop(&mut self) {
        self.close();
        drop(self.watcher.take());
        for peer in 0..self.segment.ranks() {
            self.segment.rank(peer).bell.wake_if_asleep(true);
        }
    }
}

/// The bell of a rank: its own threads sleep on it, and other ranks ring it.
#[derive(Debug)]
struct RankBell {
    segment: Arc<Segment>,
    rank: u32,
    /// The kernel refused the barrier of the last `arm`, so that a wake-up may be missed: sleep
    /// only briefly.
    unsure: std::sync::atomic::AtomicBool,
}

/// How long a rank may sleep when its wake-up could be missed.
const BRIEF: Duration = Duration::from_millis(1);

impl RankBell {
    fn words(&self) -> &BellWords {
        &self.segment.rank(self.rank).bell
    }
}

impl Bell for RankBell {
    fn seen(&self) -> u32 {
        self.words().seen()
    }

    fn sleep(&self, seen: u32, limit: Option<Duration>) {
        let unsure = self.unsure.load(std::sync::atomic::Ordering::Relaxed);
        let limit = if unsure {
            Some(limit.map_or(BRIEF, |l| l.min(BRIEF)))
        } else {
            limit
        };
        self.words().sleep(seen, limit);
    }

    fn ring(&self) {
        self.words().ring();
    }
}
