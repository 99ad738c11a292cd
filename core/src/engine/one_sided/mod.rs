//! One-sided primitives: direct where this process can load and store the peer's memory, otherwise
//! by packets that the owner's progress serves.
//!
//! All ranks but the owner reach a region in the same one of the two ways. So the atomicity of
//! atomic operations never depends on which rank does them: the owner serves packets with the same
//! processor instructions that direct peers use.
//!
//! Apart from regions there is memory whose owner's caller hands the means to read it to peers
//! ([`exposed`]).

pub(super) mod driven;
mod exposed;
mod put;
pub(super) mod regions;
pub(super) mod remote;

use crate::buffer::MemoryKind;
use crate::device::{AtomicOp, AtomicWidth, ProcId, Region, RegionKey};
use crate::engine::entry::{FetchOp, Op};
use crate::engine::one_sided::regions::{KeyParts, Memory, MemoryOwner};
use crate::engine::one_sided::remote::reaches;
use crate::engine::short::outgoing::{Peer, Stream, StreamSource};
use crate::engine::state::{Proto, State};
use crate::error::{Error, ErrorKind, Result};
use crate::request::{Request, State as Stage};
use crate::staging::Driven;
use crate::status::Status;
use crate::transport::remote::apply;
use crate::transport::{Header, PacketKind, Payload, Remote, Sent, Transport, TransportCaps};

/// The steps of one-sided packets: what a packet asks or answers ([`Header::flags`]).
pub(super) mod step {
    pub(in crate::engine) const PUT: u8 = 1;
    pub(in crate::engine) const GET: u8 = 2;
    pub(in crate::engine) const GET_DATA: u8 = 3;
    pub(in crate::engine) const ATOMIC: u8 = 4;
    pub(in crate::engine) const VALUE: u8 = 5;
    pub(in crate::engine) const FLUSH: u8 = 6;
    pub(in crate::engine) const REFUSED: u8 = 7;
    /// How is this region reached?
    pub(in crate::engine) const ASK: u8 = 8;
    pub(in crate::engine) const TOLD: u8 = 9;
    /// This region no longer exists.
    pub(in crate::engine) const WITHDRAWN: u8 = 10;
    pub(in crate::engine) const FORGOTTEN: u8 = 11;
}

/// Bytes of a one-sided packet in front of its data: region, generation, offset, length or
/// operands.
pub(in crate::engine) const PREFIX: usize = 40;

pub(in crate::engine) fn prefix(parts: &KeyParts, offset: u64, a: u64, b: u64) -> [u8; PREFIX] {
    let mut bytes = [0; PREFIX];
    bytes[..4].copy_from_slice(&parts.index.to_le_bytes());
    bytes[4..8].copy_from_slice(&parts.generation.to_le_bytes());
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..24].copy_from_slice(&a.to_le_bytes());
    bytes[24..32].copy_from_slice(&b.to_le_bytes());
    bytes
}

pub(in crate::engine) fn one_sided(step: u8, cookie: u32, tag: u32) -> Header {
    Header {
        kind: PacketKind::OneSided as u8,
        flags: step,
        cookie,
        tag,
        ..Header::default()
    }
}

pub(in crate::engine) fn encode(op: AtomicOp) -> (u32, u64, u64) {
    match op {
        AtomicOp::Load => (0, 0, 0),
        AtomicOp::Swap(value) => (1, value, 0),
        AtomicOp::CompareSwap { expected, new } => (2, expected, new),
        AtomicOp::MaskedSwap { mask, value } => (3, mask, value),
        AtomicOp::Add(value) => (4, value, 0),
        AtomicOp::And(value) => (5, value, 0),
        AtomicOp::Or(value) => (6, value, 0),
        AtomicOp::Xor(value) => (7, value, 0),
    }
}

fn decode(code: u32, a: u64, b: u64) -> Option<AtomicOp> {
    Some(match code {
        0 => AtomicOp::Load,
        1 => AtomicOp::Swap(a),
        2 => AtomicOp::CompareSwap {
            expected: a,
            new: b,
        },
        3 => AtomicOp::MaskedSwap { mask: a, value: b },
        4 => AtomicOp::Add(a),
        5 => AtomicOp::And(a),
        6 => AtomicOp::Or(a),
        7 => AtomicOp::Xor(a),
        _ => return None,
    })
}

/// Set in a header's tag when the integer has 32 bits.
const NARROW: u32 = 0x100;

pub(in crate::engine) fn width_bit(width: AtomicWidth) -> u32 {
    match width {
        AtomicWidth::W32 => NARROW,
        AtomicWidth::W64 => 0,
    }
}

/// How an operation reaches its target.
pub(in crate::engine) enum Reach {
    /// By load and store at this address.
    Direct(*mut u8),
    /// By this rank's own driver, from this byte on: the region is this rank's, and only a driver
    /// reaches its memory.
    Driven(Driven, usize),
    /// By packets to this peer.
    Packets(u32),
}

impl<T: Transport> State<T> {
    pub(in crate::engine) fn alloc_region(&mut self, len: usize) -> Result<Region> {
        if self.proto.caps.contains(TransportCaps::DIRECT) {
            let memory = self.transport.alloc(len)?;
            let (ptr, owner) = (memory.ptr, MemoryOwner::Direct(memory));
            return Ok(self.proto.regions.add(Memory::new(ptr, len, owner)));
        }
        let layout = std::alloc::Layout::from_size_align(len.max(1), 64).map_err(|_| {
            self.proto.error(
                ErrorKind::InvalidCount,
                format!("a region of {len} bytes is too large"),
                "ask for less than half of the address space",
            )
        })?;
        // SAFETY: the layout's size is not zero.
        let ptr = unsafe { std::alloc::alloc_zeroed(layout) };
        if ptr.is_null() {
            return Err(self.proto.error(
                ErrorKind::Exhausted,
                format!("there is no memory for a region of {len} bytes"),
                "ask for less",
            ));
        }
        let memory = Memory::new(ptr, len, MemoryOwner::Engine(layout));
        // SAFETY: the engine keeps the memory until the transport has ended the registration.
        Ok(unsafe { self.add_registered(memory) })
    }

    /// # Safety
    /// As [`crate::Device::register_region`].
    pub(in crate::engine) unsafe fn register_region(&mut self, ptr: *mut u8, len: usize) -> Region {
        let memory = Memory::new(ptr, len, MemoryOwner::Caller);
        // SAFETY: the caller's promise; a region that is freed is withdrawn from the transport at
        // once.
        unsafe { self.add_registered(memory) }
    }

    /// Adds a region, registered with the network if that can reach it by its own means.
    ///
    /// # Safety
    /// The memory must stay until the registration ends.
    pub(in crate::engine) unsafe fn add_registered(&mut self, mut memory: Memory) -> Region {
        if reaches(&self.transport, false) && memory.len > 0 {
            let (ptr, len) = (memory.ptr, memory.len);
            let kind = memory.driven.as_ref().map(Driven::kind);
            if kind.is_none_or(|kind| self.transport.serves(ptr, kind)) {
                let kind = kind.unwrap_or(MemoryKind::Host);
                // SAFETY: the caller's promise.
                memory.token = unsafe { self.transport.register(ptr, len, kind) };
            }
        }
        self.proto.regions.add(memory)
    }

    /// # Safety
    /// As [`crate::Device::free_region`].
    pub(in crate::engine) unsafe fn free_region(&mut self, region: Region) -> Result<()> {
        let parts = KeyParts::of(&region.key);
        let Some(mut memory) = self.proto.regions.remove(&parts) else {
            return Err(self.proto.error(
                ErrorKind::RemoteAccess,
                format!("the region of {} bytes is not one of this rank", region.len),
                "free a region once, on the rank that made it",
            ));
        };
        if let MemoryOwner::Direct(memory) = memory.owner {
            // SAFETY: nobody uses the memory any more, by the caller's promise.
            unsafe { self.transport.free(memory) };
        }
        let name = (parts.index, parts.generation);
        let mut told = std::mem::take(&mut memory.told);
        self.proto.withdraw_region(name, &mut told);
        self.proto.end_streams_of(parts.index);
        let Some(token) = memory.token else {
            return Ok(()); // Reached by packets, which find nothing from now on.
        };
        if let MemoryOwner::Engine(_) = memory.owner {
            self.proto.remotes.keep(name, token, memory, told);
        } else {
            // The caller's: it may be gone when this returns.
            self.transport.deregister(&token);
        }
        self.advance_remotes();
        Ok(())
    }

    /// Where this process can load and store a peer's region, if it can.
    pub(in crate::engine) fn direct(&mut self, peer: u32, key: &RegionKey) -> Option<*mut u8> {
        let parts = KeyParts::of(key);
        if peer == self.proto.me {
            return self
                .proto
                .regions
                .locate(parts.index, parts.generation, 0, 0);
        }
        if !parts.direct || peer as usize >= self.proto.peers.len() {
            return None;
        }
        let (ptr, len) = self.transport.map(peer, &parts.token)?;
        (len as u64 >= parts.len).then_some(ptr)
    }

    /// How to reach `len` bytes at `offset` of a region. An error if they are not inside the
    /// region.
    pub(in crate::engine) fn reach(
        &mut self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        len: usize,
        align: usize,
    ) -> Result<Reach> {
        self.proto.check_live()?;
        let parts = KeyParts::of(key);
        let rank = peer.index();
        if rank as usize >= self.proto.peers.len() {
            return Err(self.proto.error(
                ErrorKind::InvalidRank,
                format!(
                    "there is no world rank {rank} in a job of {}",
                    self.proto.peers.len()
                ),
                "use a rank of the job",
            ));
        }
        if self.proto.peers[rank as usize].flags & Peer::FAILED != 0 {
            return Err(self.proto.peer_failed(rank));
        }
        let inside = offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= parts.len);
        if !inside || !(offset as usize).is_multiple_of(align) {
            return Err(self.proto.error(
                ErrorKind::RemoteAccess,
                format!(
                    "{len} bytes at offset {offset} are outside of world rank {rank}'s region of {} \
                     bytes, or not aligned to {align}",
                    parts.len
                ),
                "stay inside of the region",
            ));
        }
        let name = (parts.index, parts.generation);
        if rank == self.proto.me
            && let Some(data) = self.proto.regions.driven(name.0, name.1, offset, len)
        {
            return Ok(Reach::Driven(data.afresh(), offset as usize));
        }
        let place = if rank == self.proto.me {
            // Check against the region itself: the length in the key is not trusted.
            self.proto.regions.locate(name.0, name.1, offset, len)
        } else {
            let base = self.direct(rank, key);
            base.map(|base| base.wrapping_add(offset as usize))
        };
        match place {
            Some(at) => {
                if !at.addr().is_multiple_of(align) {
                    return Err(self.proto.error(
                        ErrorKind::RemoteAccess,
                        format!(
                            "offset {offset} of world rank {rank}'s region is not aligned to {align}: the \
                             region does not begin at a multiple of that"
                        ),
                        "register memory that is aligned for the integers in it",
                    ));
                }
                Ok(Reach::Direct(at))
            }
            None if rank == self.proto.me || parts.direct => Err(self.proto.error(
                ErrorKind::RemoteAccess,
                format!("world rank {rank}'s region has been freed, or is not what the key says"),
                "free regions after the last access, with a barrier between",
            )),
            None => Ok(Reach::Packets(rank)),
        }
    }

    /// Hands over as much of a put as finds room; returns how many bytes that was.
    ///
    /// # Safety
    /// `len` bytes at `source` must be readable.
    pub(in crate::engine) unsafe fn put_some(
        &mut self,
        peer: u32,
        key: &RegionKey,
        offset: u64,
        source: *const u8,
        len: usize,
    ) -> Result<usize> {
        self.proto.found_no_room = false;
        if self.proto.peers[peer as usize].flags & Peer::FAILED != 0 {
            return Err(self.proto.peer_failed(peer));
        }
        let parts = KeyParts::of(key);
        self.proto.active.unflushed.insert(peer);
        let mut done = 0;
        while done < len && self.proto.peers[peer as usize].flags & Peer::WAITING == 0 {
            let step = (len - done).min(self.proto.limits.bulk - PREFIX);
            let head = prefix(&parts, offset + done as u64, step as u64, 0);
            let header = one_sided(step::PUT, 0, 0);
            // SAFETY: `source` has `len` bytes by the caller's promise; both copies together write
            // `PREFIX + step` bytes, at most `bulk`.
            let sent = unsafe {
                self.transport
                    .send_bulk(peer, &header, PREFIX + step, |target| {
                        std::ptr::copy_nonoverlapping(head.as_ptr(), target, PREFIX);
                        let data = target.add(PREFIX);
                        crate::lines::copy(source.add(done), data, step);
                    })
            };
            if sent != Sent::Done {
                self.proto.found_no_room = true;
                if sent == Sent::Gone {
                    self.proto.note_gone(peer);
                }
                break;
            }
            done += step;
        }
        Ok(done)
    }

    /// Asks for `len` bytes of a peer's region.
    pub(in crate::engine) fn start_get(
        &mut self,
        peer: u32,
        key: &RegionKey,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Result<Request> {
        let what = Remote::Get { target, len };
        let null = std::ptr::null_mut();
        if let Some(request) = self.start_remote(peer, key, offset, what, null)? {
            return Ok(request);
        }
        let request = self.proto.table.claim(Stage::Active)?;
        let key = KeyParts::of(key);
        self.proto
            .fetch_by_packets(request, peer, &key, offset, what, null);
        Ok(request)
    }

    /// Starts an atomic operation. In memory that only its driver reaches no rank may do atomics,
    /// even if the network could: the owner could not.
    pub(in crate::engine) fn start_atomic(
        &mut self,
        peer: u32,
        key: &RegionKey,
        offset: u64,
        width: AtomicWidth,
        op: AtomicOp,
        fetched: *mut u64,
    ) -> Result<Request> {
        let parts = KeyParts::of(key);
        if parts.driven {
            return Err(self.proto.error(
                ErrorKind::UnsupportedMemory,
                format!(
                    "an atomic operation cannot be served: world rank {peer}'s region is in memory of a device"
                ),
                "keep what atomic operations change in memory of the host",
            ));
        }
        let what = Remote::Atomic { width, op };
        if let Some(request) = self.start_remote(peer, key, offset, what, fetched)? {
            return Ok(request);
        }
        let request = self.proto.table.claim(Stage::Active)?;
        self.proto
            .fetch_by_packets(request, peer, &parts, offset, what, fetched);
        Ok(request)
    }

    /// Asks a peer to reply once it has seen everything sent so far.
    pub(in crate::engine) fn start_flush(&mut self, peer: u32) -> Result<Request> {
        let active = &self.proto.active;
        if !active.unflushed.contains(&peer) && !active.flushing.contains_key(&peer) {
            return Ok(Request::NULL); // Nothing went by packets.
        }
        // Without a slot, a later flush has to try again.
        let request = self.proto.table.claim(Stage::Active)?;
        self.proto.active.unflushed.remove(&peer);
        *self.proto.active.flushing.entry(peer).or_default() += 1;
        let fetch = FetchOp {
            peer,
            target: std::ptr::null_mut(),
            len: 8,
            done: 0,
            flushes: true,
        };
        self.proto
            .table
            .entry(request.index())
            .set_op(Op::Fetch(fetch));
        let header = one_sided(step::FLUSH, request.to_short(), 0);
        self.proto.queue_control(peer, header, &[]);
        Ok(request)
    }
}

/// An atomic operation on directly reachable memory.
///
/// # Safety
/// `at` must be inside of a live region and aligned; `fetched` null or writable.
pub(in crate::engine) unsafe fn atomic_direct(
    at: *mut u8,
    width: AtomicWidth,
    op: AtomicOp,
    fetched: *mut u64,
) {
    // SAFETY: the caller's promise.
    let former = unsafe { apply(at, width, op) };
    if !fetched.is_null() {
        // SAFETY: the caller's promise.
        unsafe { fetched.write_unaligned(former) };
    }
}

impl Proto {
    /// Handles a one-sided packet: a request to serve, or an answer.
    pub(in crate::engine) fn on_one_sided(
        &mut self,
        peer: u32,
        header: &Header,
        payload: Payload<'_>,
    ) {
        match header.flags {
            step::PUT | step::GET | step::ATOMIC => {
                self.serve(peer, header, payload);
                if header.flags != step::GET {
                    // Another thread of this rank may be asleep until this memory changes.
                    self.shared.wake();
                }
            }
            step::FLUSH if self.active.refused_puts.remove(&peer) => {
                let reply = one_sided(step::REFUSED, header.cookie, 0);
                self.queue_control(peer, reply, &[]);
            }
            step::FLUSH => {
                let reply = one_sided(step::VALUE, header.cookie, 0);
                self.queue_control(peer, reply, &[0; 8]);
            }
            step::GET_DATA | step::VALUE => self.on_fetched(peer, header, payload),
            step::REFUSED => self.on_refused(peer, header),
            step::ASK | step::TOLD | step::WITHDRAWN | step::FORGOTTEN => {
                self.on_region(peer, header, payload);
            }
            _ => self.misbehaves(peer, "sent a one-sided packet of no known kind"),
        }
    }

    fn serve(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let Some(head) = payload.first::<PREFIX>() else {
            return self.misbehaves(peer, "sent a one-sided packet that is too short");
        };
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let (index, generation) = (word(0) as u32, (word(0) >> 32) as u32);
        let (offset, a, b) = (word(8), word(16), word(24));
        let data = payload.after(PREFIX);
        let width = if header.tag & NARROW != 0 {
            AtomicWidth::W32
        } else {
            AtomicWidth::W64
        };
        let len = match header.flags {
            step::PUT => data.len(),
            step::GET => usize::try_from(a).unwrap_or(usize::MAX),
            _ => width.bytes(),
        };
        if let Some(data) = self.regions.driven(index, generation, offset, len) {
            let data = data.afresh();
            return self.serve_driven(
                peer,
                header,
                (index, offset as usize),
                &data,
                (len, payload),
            );
        }
        let place = self.regions.locate(index, generation, offset, len);
        let op = decode(header.tag & !NARROW, a, b);
        match (header.flags, place, op) {
            (step::PUT, Some(place), _) => {
                // SAFETY: `locate` found the bytes inside of a live region.
                unsafe { std::ptr::copy(data.as_ptr(), place, len) };
            }
            (step::GET, Some(_), _) => {
                self.streams.push_back(Stream {
                    peer,
                    header: one_sided(step::GET_DATA, header.cookie, 0),
                    source: StreamSource::Region {
                        region: index,
                        offset: offset as usize,
                    },
                    piece: self.limits.piece_of(len),
                    position: 0,
                    end: len,
                    loader: None,
                });
                self.work = true;
            }
            (step::ATOMIC, Some(place), Some(op)) if place.addr().is_multiple_of(width.bytes()) => {
                // SAFETY: inside of a live region and aligned.
                let former = unsafe { apply(place, width, op) };
                let reply = one_sided(step::VALUE, header.cookie, 0);
                self.queue_control(peer, reply, &former.to_le_bytes());
            }
            _ => self.refuse_access(peer, header.cookie),
        }
    }

    /// Refuses an access, because the region has been freed or the peer is wrong, and tells the
    /// peer. A put has no request that could fail: its cookie is 0, and the peer's next flush
    /// fails.
    #[cold]
    pub(in crate::engine) fn refuse_access(&mut self, peer: u32, cookie: u32) {
        crate::log!(
            ERROR,
            rank = self.me,
            peer,
            "one-sided access outside of a live region, or to memory that its driver does not copy"
        );
        self.counters.refused_accesses += 1;
        if cookie == 0 {
            self.active.refused_puts.insert(peer);
        } else {
            self.queue_control(peer, one_sided(step::REFUSED, cookie, 0), &[]);
        }
    }

    fn on_fetched(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let index = self.table.resolve_short(header.cookie);
        let Some(Op::Fetch(op)) = index.map(|index| &mut self.table.entry(index).op) else {
            return self.misbehaves(peer, "answered a question that was not asked");
        };
        if op.peer != peer || payload.len() > op.len - op.done {
            return self.misbehaves(peer, "answered more than it was asked for");
        }
        if !op.target.is_null() {
            // SAFETY: the target has `len` bytes until the request completes (`Device::get`,
            // `Device::atomic`), and the piece fits behind what has come already.
            unsafe {
                let target = op.target.add(op.done);
                crate::lines::copy(payload.as_ptr(), target, payload.len());
            }
        }
        op.done += payload.len();
        let (over, flushes) = (op.done == op.len, op.flushes);
        if over && let Some(index) = index {
            if flushes {
                self.active.has_flushed(peer);
            }
            self.complete(index, Status::EMPTY);
        }
    }

    fn on_refused(&mut self, peer: u32, header: &Header) {
        let Some(index) = self.table.resolve_short(header.cookie) else {
            return;
        };
        if let Op::Fetch(op) = &self.table.entry(index).op
            && op.peer == peer
        {
            if op.flushes {
                self.active.has_flushed(peer);
            }
            let status = Status {
                error: Some(ErrorKind::RemoteAccess),
                ..Status::EMPTY
            };
            self.complete(index, status);
        }
    }
}

/// The error for a null pointer with a length that is not 0.
#[cold]
pub(in crate::engine) fn null_buffer(len: usize) -> Error {
    Error::new(
        ErrorKind::InvalidBuffer,
        format!("a null pointer was given for {len} bytes"),
    )
}
