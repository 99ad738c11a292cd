//! One-sided operations by the network's own means, on regions that their owners have registered
//! with the transport.
//!
//! ```text
//! origin                              owner
//!   first operation ── ASK ─────────▶
//!                   ◀───────── TOLD ── token, or: by packets, or: there is no such region
//!   begin_remote ═══════════════════▶ memory
//!   finished
//!                                      free_region
//!                   ◀──── WITHDRAWN ──
//! finished (all there)
//!                   ── FORGOTTEN ───▶  the memory goes
//! ```
//!
//! Tokens come from the owner's engine and never from a key, so a forged key reaches nothing. And
//! an origin learns that a region is gone before the network does, because on many networks an
//! access to memory that is no longer registered ends the connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::device::RegionKey;
use crate::engine::entry::{FetchOp, Op};
use crate::engine::one_sided::regions::{KeyParts, Memory};
use crate::engine::one_sided::{PREFIX, atomic_direct, encode, one_sided, prefix, step, width_bit};
use crate::engine::short::outgoing::Peer;
use crate::engine::short::send::START;
use crate::engine::state::{Proto, State};
use crate::error::{ErrorKind, Result};
use crate::guard::NoUnwind;
use crate::request::{Request, State as Stage};
use crate::staging::Driven;
use crate::status::Status;
use crate::transport::{Begun, Header, Payload, Remote, Token, Transport, TransportCaps};

/// Name of a region: owner, index, generation.
type Name = (u32, u32, u32);

/// What this rank knows of peers' regions, and of operations on them.
#[derive(Debug, Default)]
pub(in crate::engine) struct Remotes {
    known: BTreeMap<Name, Known>,
    /// Requests of which a part has not begun yet.
    waiting: VecDeque<u32>,
    /// Regions that their owners have freed while operations of this rank were under way there.
    /// Once those have finished, the owners are told that this rank has forgotten the regions.
    partings: BTreeSet<Name>,
    /// By peer, the number of operations that change its memory and are not over.
    open: BTreeMap<u32, u32>,
    /// Freed regions of this rank, until every peer that was told of them has forgotten them.
    leaving: BTreeMap<(u32, u32), Leaving>,
    /// Freed regions whose memory may be released once the transport is available.
    gone: Vec<(Token, Memory)>,
}

/// The owner's answer about a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Asked,
    /// Token, and bytes of the region.
    Here(Token, u64),
    ByPackets,
}

/// A freed region that peers may still reach.
#[derive(Debug)]
struct Leaving {
    token: Token,
    memory: Memory,
    told: BTreeSet<u32>,
}

/// An operation on a peer's region that goes by the network, once the owner has said how.
#[derive(Debug)]
pub(in crate::engine) struct RemoteOp {
    pub(in crate::engine) peer: u32,
    region: (u32, u32),
    offset: u64,
    what: Remote,
    /// Where to write the former value; null if nowhere.
    fetched: *mut u64,
    /// Bytes that have begun, and parts that have not ended.
    begun: usize,
    parts: u32,
    failed: bool,
    /// The memory of this side, if only its driver and the transport reach it.
    driven: Option<Box<Driven>>,
}

// SAFETY: pointers to memory that the caller of `Device::put`, `get` or `atomic` has promised to
// leave to the device until the request completes.
unsafe impl Send for RemoteOp {}

impl RemoteOp {
    pub(in crate::engine) fn len(&self) -> usize {
        self.what.len()
    }

    /// Whether only a driver and the transport reach the memory of this side.
    pub(in crate::engine) fn is_driven(&self) -> bool {
        self.driven.is_some()
    }

    /// Replaces the memory of this side by other memory of the same length.
    pub(in crate::engine) fn set_memory(&mut self, memory: *mut u8) {
        match &mut self.what {
            Remote::Put { source, .. } => *source = memory,
            Remote::Get { target, .. } => *target = memory,
            Remote::Atomic { .. } => {}
        }
    }
}

/// Takes the driven memory out of an operation, whose data is to go through host memory instead.
pub(in crate::engine) fn by_host(op: &mut RemoteOp) -> Option<(Driven, Remote)> {
    let data = op.driven.take()?;
    Some((*data, op.what))
}

/// Codes in the tag of [`step::TOLD`].
mod told {
    pub(in crate::engine) const GONE: u32 = 0;
    pub(in crate::engine) const BY_PACKETS: u32 = 1;
    pub(in crate::engine) const TOKEN: u32 = 2;
}

impl Remotes {
    /// Notes that a peer is dead: its answers are void, and it counts as having forgotten what it
    /// was told.
    pub(in crate::engine) fn forget(&mut self, peer: u32) {
        self.known.retain(|&(owner, _, _), _| owner != peer);
        self.partings.retain(|&(owner, _, _)| owner != peer);
        self.open.remove(&peer);
        let regions: Vec<_> = self.leaving.keys().copied().collect();
        for region in regions {
            self.has_forgotten(peer, region);
        }
    }

    /// Whether there is something for [`State::advance_remotes`].
    pub(in crate::engine) fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.gone.is_empty()
    }

    /// Keeps the memory of a freed region for as long as peers may reach it.
    pub(in crate::engine) fn keep(
        &mut self,
        region: (u32, u32),
        token: Token,
        memory: Memory,
        told: BTreeSet<u32>,
    ) {
        if told.is_empty() {
            self.gone.push((token, memory));
        } else {
            let leaving = Leaving {
                token,
                memory,
                told,
            };
            self.leaving.insert(region, leaving);
        }
    }

    fn has_forgotten(&mut self, peer: u32, region: (u32, u32)) {
        let Some(leaving) = self.leaving.get_mut(&region) else {
            return;
        };
        leaving.told.remove(&peer);
        if leaving.told.is_empty()
            && let Some(Leaving { token, memory, .. }) = self.leaving.remove(&region)
        {
            self.gone.push((token, memory));
        }
    }

    /// Whether every operation that changes `peer`'s memory is over.
    pub(in crate::engine) fn is_flushed(&self, peer: u32) -> bool {
        !self.open.contains_key(&peer)
    }
}

/// The region that a packet is about: index and generation.
fn region_in(head: &[u8; PREFIX]) -> (u32, u32) {
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    (number(0), number(4))
}

/// Whether remote operations, or atomic ones, are still possible. The transport is asked each time,
/// because it may lose them some time after the death that is the reason has been noticed.
pub(in crate::engine) fn reaches(transport: &impl Transport, atomic: bool) -> bool {
    let all = TransportCaps::REMOTE | TransportCaps::ATOMICS;
    let wanted = if atomic { all } else { TransportCaps::REMOTE };
    transport.caps().contains(wanted)
}

impl<T: Transport> State<T> {
    /// Starts an operation on a peer's region; `None` if that region is reached by packets. For an
    /// atomic operation the peer may be this rank.
    ///
    /// The memory of this side is lent to the device until the request completes, as the callers of
    /// the one-sided entries of `Device` promise.
    pub(in crate::engine) fn start_remote(
        &mut self,
        peer: u32,
        key: &RegionKey,
        offset: u64,
        what: Remote,
        fetched: *mut u64,
    ) -> Result<Option<Request>> {
        self.start_remote_with(peer, key, offset, what, fetched, None)
    }

    /// The same for memory of this side that only its driver and the transport reach.
    pub(in crate::engine) fn start_remote_with(
        &mut self,
        peer: u32,
        key: &RegionKey,
        offset: u64,
        what: Remote,
        fetched: *mut u64,
        driven: Option<Box<Driven>>,
    ) -> Result<Option<Request>> {
        let atomic = what.is_atomic();
        if !reaches(&self.transport, atomic) {
            return Ok(None);
        }
        let parts = KeyParts::of(key);
        let region = (parts.index, parts.generation);
        let name = (peer, region.0, region.1);
        match self.proto.remotes.known.get(&name) {
            Some(Known::ByPackets) => return Ok(None),
            Some(Known::Asked | Known::Here(..)) => {}
            None if peer == self.proto.me => {
                let Some((token, len)) = self.proto.regions.token(region) else {
                    return Ok(None);
                };
                let known = Known::Here(token, len);
                self.proto.remotes.known.insert(name, known);
            }
            None => {
                self.proto.remotes.known.insert(name, Known::Asked);
                let head = prefix(&parts, 0, 0, 0);
                self.proto
                    .queue_control(peer, one_sided(step::ASK, 0, 0), &head);
            }
        }
        let request = self.proto.table.claim(Stage::Active)?;
        let op = RemoteOp {
            peer,
            region,
            offset,
            what,
            fetched,
            begun: 0,
            parts: 0,
            failed: false,
            driven,
        };
        let index = request.index();
        self.proto.table.entry(index).set_op(Op::Remote(op));
        if what.changes() {
            *self.proto.remotes.open.entry(peer).or_default() += 1;
        }
        if NoUnwind::during(START, || self.advance_remote(index)) {
            self.proto.remotes.waiting.push_back(index);
            self.proto.leave_work();
        }
        Ok(Some(request))
    }

    /// Begins operations that have waited for room or for an answer, and releases memory that no
    /// peer reaches any more. Returns how much was done.
    pub(in crate::engine) fn advance_remotes(&mut self) -> usize {
        let mut done = 0;
        for _ in 0..self.proto.remotes.waiting.len() {
            let Some(index) = self.proto.remotes.waiting.pop_front() else {
                break;
            };
            if self.advance_remote(index) {
                self.proto.remotes.waiting.push_back(index);
            } else {
                done += 1;
            }
        }
        for (token, memory) in std::mem::take(&mut self.proto.remotes.gone) {
            self.transport.deregister(&token);
            drop(memory);
        }
        done
    }

    /// Begins as much of an operation as finds room. Returns whether it has to be tried again.
    fn advance_remote(&mut self, index: u32) -> bool {
        loop {
            let id = self.proto.table.handle(index).to_short();
            let Op::Remote(op) = &mut self.proto.table.entry(index).op else {
                return false; // It is over.
            };
            if op.begun == op.len() || op.failed {
                return false;
            }
            let name = (op.peer, op.region.0, op.region.1);
            let token = match self.proto.remotes.known.get(&name) {
                Some(Known::Asked) => return true,
                Some(Known::Here(token, len)) if op.offset + op.len() as u64 <= *len => *token,
                Some(Known::ByPackets) if op.driven.is_some() => {
                    self.copy_driven(index);
                    continue;
                }
                Some(Known::ByPackets) => return self.by_packets(index),
                // The region was freed while the operation waited, or is shorter than the key says.
                Some(Known::Here(..)) | None => {
                    op.failed = true;
                    self.proto.end_remote(index);
                    return false;
                }
            };
            let (peer, rest) = (op.peer, op.what.after(op.begun));
            let offset = op.offset + op.begun as u64;
            // SAFETY: the memory is the device's until the request completes, which it does when
            // all parts have ended or the peer's death is reported; the range is inside of what the
            // owner has registered.
            let begun = unsafe { self.transport.begin_remote(peer, &token, offset, rest, id) };
            match begun {
                Begun::Bytes(len) => {
                    debug_assert!(len > 0 && len <= rest.len());
                    op.begun += len;
                    op.parts += 1;
                    self.proto.counters.remote_operations += 1;
                }
                // If the peer is gone, the report of its end ends the request.
                Begun::Full | Begun::Gone => return true,
                // Perhaps because the accelerator memory could not be registered.
                Begun::Refused if op.is_driven() && op.begun == 0 => self.copy_driven(index),
                // The network no longer reaches any peer's memory. First the ends of the parts that
                // have begun must be reported.
                Begun::Refused if !reaches(&self.transport, op.what.is_atomic()) => {
                    if op.parts > 0 {
                        return true;
                    }
                    if peer == self.proto.me {
                        self.proto.atomic_here(index);
                        return false;
                    }
                    self.proto.remotes.known.insert(name, Known::ByPackets);
                }
                Begun::Refused => {
                    op.failed = true;
                    self.proto.end_remote(index);
                    return false;
                }
            }
        }
    }

    /// Continues an operation whose region turns out not to be registered.
    fn by_packets(&mut self, index: u32) -> bool {
        let Op::Remote(op) = &mut self.proto.table.entry(index).op else {
            return false;
        };
        let (peer, what, fetched) = (op.peer, op.what, op.fetched);
        let (key, offset) = (KeyParts::named(op.region), op.offset);
        if let Remote::Put { source, len } = what {
            let (begun, at) = (op.begun, offset + op.begun as u64);
            // SAFETY: `len` bytes at `source` are readable until the request completes.
            let sent = unsafe {
                let rest = source.wrapping_add(begun);
                self.put_some(peer, &key.to_key(), at, rest, len - begun)
            };
            // The only error is the peer's death, which ends the request.
            let Ok(sent) = sent else {
                return true;
            };
            if let Op::Remote(op) = &mut self.proto.table.entry(index).op {
                op.begun += sent;
            }
            if begun + sent == len {
                self.proto.end_remote(index);
            }
            return begun + sent < len;
        }
        if what.changes() {
            self.proto.close_one(peer);
        }
        let request = self.proto.table.handle(index);
        self.proto
            .fetch_by_packets(request, peer, &key, offset, what, fetched);
        false
    }
}

impl Proto {
    /// Asks a peer by a packet for bytes or for an atomic operation, under a request that is
    /// already active.
    pub(in crate::engine) fn fetch_by_packets(
        &mut self,
        request: Request,
        peer: u32,
        key: &KeyParts,
        offset: u64,
        what: Remote,
        fetched: *mut u64,
    ) {
        let (target, len, header, a, b) = match what {
            Remote::Atomic { width, op } => {
                self.active.unflushed.insert(peer);
                let (code, a, b) = encode(op);
                let code = code | width_bit(width);
                let header = one_sided(step::ATOMIC, request.to_short(), code);
                (fetched.cast(), 8, header, a, b)
            }
            Remote::Get { target, len } => {
                let header = one_sided(step::GET, request.to_short(), 0);
                (target, len, header, len as u64, 0)
            }
            Remote::Put { .. } => return,
        };
        let fetch = FetchOp {
            peer,
            target,
            len,
            done: 0,
            flushes: false,
        };
        self.table.entry(request.index()).set_op(Op::Fetch(fetch));
        self.queue_control(peer, header, &prefix(key, offset, a, b));
    }

    /// Does an atomic operation on a region of this rank, if the network no longer can. It is done
    /// as those of peers that come by packets: by the processor, under the engine's lock.
    fn atomic_here(&mut self, index: u32) {
        let Op::Remote(op) = &mut self.table.entry(index).op else {
            return;
        };
        let Remote::Atomic { width, op: what } = op.what else {
            return; // The owner puts and gets by itself.
        };
        let (region, generation) = op.region;
        let place = self
            .regions
            .locate(region, generation, op.offset, width.bytes());
        match place {
            // SAFETY: inside of a live region, and aligned, as was checked when it started; the
            // caller of `Device::atomic` has promised the place of the former value until the
            // request completes.
            Some(place) => unsafe { atomic_direct(place, width, what, op.fetched) },
            None => op.failed = true,
        }
        self.end_remote(index);
    }

    /// Handles the end of a part of an operation.
    pub(in crate::engine) fn on_finished(&mut self, id: u32, outcome: Option<u64>) {
        let Some(index) = self.table.resolve_short(id) else {
            return; // The request has ended with its peer.
        };
        let Op::Remote(op) = &mut self.table.entry(index).op else {
            return;
        };
        op.parts -= 1;
        let name = (op.peer, op.region.0, op.region.1);
        match outcome {
            Some(value) if !op.fetched.is_null() => {
                // SAFETY: writable until the request completes, as the caller of `Device::atomic`
                // promised.
                unsafe { op.fetched.write_unaligned(value) };
            }
            Some(_) => {}
            None => op.failed = true,
        }
        if op.parts == 0 && (op.failed || op.begun == op.len()) {
            self.end_remote(index);
        }
        if !self.remotes.partings.is_empty() && self.remotes.partings.contains(&name) {
            self.part_from(name);
        }
    }

    /// Tells the owner of a region that this rank has forgotten the region, as soon as no operation
    /// is under way there.
    fn part_from(&mut self, name: Name) {
        let reaches = |op: &Op| {
            matches!(op, Op::Remote(op)
                if op.parts > 0 && (op.peer, op.region.0, op.region.1) == name)
        };
        if self.table.active().any(|(_, entry)| reaches(&entry.op)) {
            self.remotes.partings.insert(name);
            return;
        }
        self.remotes.partings.remove(&name);
        let (peer, index, generation) = name;
        let reply = one_sided(step::FORGOTTEN, 0, 0);
        let head = prefix(&KeyParts::named((index, generation)), 0, 0, 0);
        self.queue_control(peer, reply, &head);
        self.work = true;
    }

    /// Completes an operation, unless a part of it is still under way: then the end of that part
    /// does.
    fn end_remote(&mut self, index: u32) {
        let Op::Remote(op) = &self.table.entry(index).op else {
            return;
        };
        if op.parts > 0 {
            return;
        }
        let error = op.failed.then_some(ErrorKind::RemoteAccess);
        self.end_remote_with(index, error);
    }

    /// Completes an operation of which no part is under way.
    pub(in crate::engine) fn end_remote_with(&mut self, index: u32, error: Option<ErrorKind>) {
        let Op::Remote(op) = &self.table.entry(index).op else {
            return;
        };
        let (peer, changes) = (op.peer, op.what.changes());
        if changes {
            self.close_one(peer);
        }
        self.complete(
            index,
            Status {
                error,
                ..Status::EMPTY
            },
        );
    }

    fn close_one(&mut self, peer: u32) {
        if let Some(open) = self.remotes.open.get_mut(&peer) {
            *open -= 1;
            if *open == 0 {
                self.remotes.open.remove(&peer);
            }
        }
    }

    /// Handles a packet about a region as a whole.
    pub(in crate::engine) fn on_region(
        &mut self,
        peer: u32,
        header: &Header,
        payload: Payload<'_>,
    ) {
        let Some(head) = payload.first::<PREFIX>() else {
            return self.misbehaves(peer, "sent a packet about a region that is too short");
        };
        let region = region_in(&head);
        let name = (peer, region.0, region.1);
        match header.flags {
            step::ASK => self.tell_of_region(peer, region),
            step::TOLD => {
                let token = payload.after(PREFIX).first::<32>();
                let len = u64::from_le_bytes(head[16..24].try_into().expect("8 bytes"));
                if self.remotes.known.get(&name) == Some(&Known::Asked) {
                    match (header.tag, token) {
                        (told::TOKEN, Some(token)) => {
                            self.remotes.known.insert(name, Known::Here(token, len));
                        }
                        (told::BY_PACKETS, _) => {
                            self.remotes.known.insert(name, Known::ByPackets);
                        }
                        // The operations that wait find no entry, and fail.
                        _ => drop(self.remotes.known.remove(&name)),
                    }
                    self.work = true;
                }
            }
            step::WITHDRAWN => {
                self.remotes.known.remove(&name);
                self.part_from(name);
            }
            _ => {
                self.remotes.has_forgotten(peer, region);
                self.work = true;
            }
        }
    }

    /// Handles the loss of a `WITHDRAWN` packet to a peer that has left: the peer counts as having
    /// forgotten the region.
    pub(in crate::engine) fn is_forgotten(&mut self, peer: u32, withdrawn: &[u8]) {
        if let Some(head) = withdrawn.first_chunk() {
            self.remotes.has_forgotten(peer, region_in(head));
            self.work = true;
        }
    }

    fn tell_of_region(&mut self, peer: u32, region: (u32, u32)) {
        let mut body = [0; PREFIX + 32];
        let (code, len) = match self.regions.tell(region, peer) {
            None => (told::GONE, 0),
            Some(None) => (told::BY_PACKETS, 0),
            Some(Some((token, len))) => {
                body[PREFIX..].copy_from_slice(&token);
                (told::TOKEN, len)
            }
        };
        body[..PREFIX].copy_from_slice(&prefix(&KeyParts::named(region), 0, len, 0));
        self.queue_control(peer, one_sided(step::TOLD, 0, code), &body);
    }

    /// Tells the peers that know a region that it no longer exists.
    pub(in crate::engine) fn withdraw_region(
        &mut self,
        region: (u32, u32),
        told: &mut BTreeSet<u32>,
    ) {
        let me = (self.me, region.0, region.1);
        self.remotes.known.remove(&me);
        told.retain(|&peer| self.peers[peer as usize].flags & Peer::FAILED == 0);
        let head = prefix(&KeyParts::named(region), 0, 0, 0);
        for &peer in told.iter() {
            self.queue_control(peer, one_sided(step::WITHDRAWN, 0, 0), &head);
        }
    }
}

#[cfg(test)]
mod tests;
