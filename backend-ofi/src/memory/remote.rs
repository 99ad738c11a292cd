//! Remote operations: put, get and atomics by the provider.
//!
//! Short operations, and the words of atomic operations, pass through memory of the transport. The
//! provider may keep that for as long as it likes, even if the peer dies and nothing ever reports
//! how the operation ended. Long operations use the program's memory directly. They have to end, or
//! to be [abandoned](crate::deaths::abandon), before a death is adopted.

use std::ffi::c_void;
use std::sync::Arc;

use libfabric_sys::{
    FI_ADDR_NOTAVAIL, FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EACCES, FI_EAGAIN, FI_EFAULT,
    FI_EINVAL, FI_EIO, FI_EKEYREJECTED, FI_ENOMEM, FI_ENOSYS, FI_EOPNOTSUPP, FI_EPERM,
    FI_EREMOTEIO, FI_READ, FI_WRITE, fi_msg_rma, fi_read, fi_rma_iov, fi_writemsg, fid_ep, fid_mr,
};
use portolan_core::transport::remote::AtomicWidth;
use portolan_core::transport::{Begun, Remote, Sent, Sink, Token};

use crate::caps;
use crate::deaths::abandon::{self, Open, What};
use crate::endpoint::objects::Fid;
use crate::endpoint::op::{Kind, Ops};
use crate::endpoint::slab::Slab;
use crate::endpoint::{Domain, desc};
use crate::memory::atomics::{self, Goal, Words};
use crate::memory::registrations::Whose;
use crate::ofi::Ofi;
use crate::one_sided::{Memory, Place};
use crate::send;

/// Most operations that may be under way from one rank.
const UNDER_WAY: usize = 64;
/// Slots that only peers take that have none. Where a rank has to poll for an operation on its
/// memory to end, one that computes keeps its slots.
const RESERVE: usize = 16;
/// Longest operation that passes through the transport's memory.
const SHORT: usize = 8 << 10;
/// Longest part of an operation, even if the provider would take more.
const LONG: usize = 1 << 30;
/// The same over libfabric's shared memory, where a rank copies such a part within one call. On a
/// machine that swaps, a longer one would look like a call that
/// [does not return](crate::quirks::hung_calls).
const LONG_OVER_SHM: usize = 16 << 20;

/// How many operations in a row may find all slots in use by dead peers before there is no hope of
/// a free one. The connections with these peers have been shut by then.
const PATIENCE: u32 = 2000;

/// The operations under way on peers' memory.
#[derive(Debug)]
pub(crate) struct Remotes {
    ops: Ops,
    /// One part for each operation.
    slab: Slab,
    slots: Box<[Option<Slot>]>,
    free: Vec<u32>,
    /// Longest part of an operation.
    longest: usize,
    /// How many operations use the program's memory.
    long: usize,
    /// How many operations in a row have found all slots in use by dead peers.
    waited: u32,
}

#[derive(Debug)]
struct Slot {
    id: u32,
    peer: u32,
    kind: Way,
    /// How many operations this rank had begun before this one.
    begun: u64,
    /// The registration of the program's memory, where the provider needs one.
    region: Option<Arc<Fid<fid_mr>>>,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// A put from the program's memory.
    Long,
    /// A get into the program's memory.
    LongIn,
    /// A put from the slab.
    Out,
    /// A get into the slab, and the place and length to copy the bytes to afterwards.
    In(*mut u8, usize),
    Atomic(AtomicWidth),
    /// Nothing waits for it any more.
    Abandoned,
}

impl Way {
    fn uses_memory(self) -> bool {
        matches!(self, Self::Long | Self::LongIn)
    }
}

// SAFETY: the pointer is used under `Transport::begin_remote`'s promise, whichever thread does it;
// regions belong to no thread.
unsafe impl Send for Slot {}

impl Remotes {
    pub(crate) fn new(domain: &Domain) -> Result<Self, String> {
        let count = if domain.remote { UNDER_WAY } else { 0 };
        let long = match caps::over(&domain.info, "shm") {
            true => LONG_OVER_SHM,
            false => LONG,
        };
        Ok(Self {
            ops: Ops::new(Kind::Remote, count),
            slab: Slab::new(
                domain,
                count.max(1),
                if count > 0 { SHORT } else { 64 },
                Kind::Remote as u64,
            )?,
            slots: (0..count).map(|_| None).collect(),
            free: (0..count as u32).rev().collect(),
            longest: long.min(domain.info.ep_attr().max_msg_size),
            long: 0,
            waited: 0,
        })
    }

    /// Ends the registrations for operations under way.
    pub(crate) fn unregister(&mut self) {
        self.slab.unregister();
        for slot in self.slots.iter_mut().flatten() {
            slot.region = None;
        }
    }

    /// Whether the provider may access the program's memory.
    pub(crate) fn uses_memory(&self) -> bool {
        self.long > 0
    }

    /// Whether the provider may access the program's memory in an operation on such a peer.
    pub(crate) fn uses_memory_of(&self, peers: impl Fn(u32) -> bool) -> bool {
        let mut slots = self.slots.iter().flatten();
        slots.any(|slot| slot.kind.uses_memory() && peers(slot.peer))
    }

    /// Whether a peer may have another slot: the last ones are for peers that have none.
    fn may_have_another(&self, peer: u32) -> bool {
        self.free.len() > RESERVE || !self.slots.iter().flatten().any(|slot| slot.peer == peer)
    }

    /// Whether no operation is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Whether an operation is under way on the memory of such a peer.
    pub(crate) fn concern(&self, peers: impl Fn(u32) -> bool) -> bool {
        self.slots.iter().flatten().any(|slot| peers(slot.peer))
    }

    /// The operations that have neither ended nor been abandoned.
    pub(crate) fn open(&self) -> impl Iterator<Item = Open> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| {
            let slot = slot.as_ref()?;
            let reads = match slot.kind {
                Way::LongIn | Way::In(..) => true,
                Way::Long | Way::Out | Way::Atomic(_) => false,
                Way::Abandoned => return None,
            };
            Some(Open {
                begun: slot.begun,
                peer: slot.peer,
                what: What::Remote(index, reads),
            })
        })
    }

    /// The peer whose memory an operation concerns.
    pub(crate) fn peer(&self, index: usize) -> Option<u32> {
        Some(self.slots[index].as_ref()?.peer)
    }

    /// Abandons an operation: nothing waits for it any more. The slot remains the provider's.
    /// Returns the engine's id for it.
    pub(crate) fn abandon(&mut self, index: usize) -> Option<u32> {
        let slot = self.slots[index].as_mut()?;
        let kind = std::mem::replace(&mut slot.kind, Way::Abandoned);
        self.long -= usize::from(kind.uses_memory());
        Some(slot.id)
    }

    pub(crate) fn memory(&self) -> usize {
        self.slab.len()
    }
}

/// Begins an operation, or its first part.
///
/// # Safety
/// As for `Transport::begin_remote`.
pub(crate) unsafe fn begin(
    ofi: &mut Ofi,
    peer: u32,
    token: &Token,
    offset: u64,
    what: Remote,
    id: u32,
) -> Begun {
    let atomic = matches!(what, Remote::Atomic { .. });
    if !ofi.link.domain.remote || (atomic && !ofi.link.domain.atomics) || ofi.link.memory.stuck {
        return Begun::Refused;
    }
    if !ofi.may_begin_with(peer) || abandon::is_open(ofi) {
        return Begun::Full;
    }
    // A rank reaches its own memory even if others hold it to be dead.
    match send::absent(ofi, peer).filter(|_| peer != ofi.rank) {
        Some(Sent::Gone) => return Begun::Gone,
        Some(_) => return Begun::Refused, // It has left, and its memory is gone.
        None => {}
    }
    if ofi.peers[peer as usize].addr == FI_ADDR_NOTAVAIL && !send::insert(ofi, peer) {
        return Begun::Gone;
    }
    if let Some(stream) = &mut ofi.stream {
        stream.turned();
    }
    let remotes = &ofi.link.memory.remotes;
    let Some(&slot) = remotes.free.last() else {
        return no_slot(ofi);
    };
    if !remotes.may_have_another(peer) {
        return Begun::Full;
    }
    let place = Place::of_token(token);
    let len = what.len().min(ofi.link.memory.remotes.longest);
    let goal = Goal {
        peer: ofi.peers[peer as usize].addr,
        addr: place.base.wrapping_add(offset),
        key: place.key,
    };
    // SAFETY: the caller's promise; an address of the vector; a free slot.
    let result = unsafe { start(ofi, slot as usize, (peer, id), &goal, what, len) };
    match result {
        Ok(len) => {
            ofi.link.memory.remotes.free.pop();
            Begun::Bytes(len)
        }
        Err(result) if result == -(FI_EAGAIN as isize) => Begun::Full,
        Err(result) => not_begun(ofi, peer, result),
    }
}

/// The provider does not take an operation, or this rank cannot give it any: decides whether the
/// peer is lost, as when the provider does not send to it.
#[cold]
fn not_begun(ofi: &mut Ofi, peer: u32, result: isize) -> Begun {
    let error = i32::try_from(-result).unwrap_or(0);
    // Missing memory or functions are this side's. A rank does not lose itself.
    let here = peer == ofi.rank || [FI_ENOMEM, FI_ENOSYS].contains(&error);
    if here || refuses(&ofi.link.domain.info.provider(), error, 0) {
        let why = ofi.link.domain.library.fi_strerror(result as i64);
        portolan_core::log!(
            WARN,
            rank = ofi.rank,
            peer,
            why,
            "a remote operation was refused"
        );
        return Begun::Refused;
    }
    match send::refused(ofi, peer, result) {
        Sent::Gone => Begun::Gone,
        _ => Begun::Refused, // It has left, and its memory is gone.
    }
}

/// Decides whether a slot can become free. Where connections can be shut, operations on dead peers
/// end with them, soon. Elsewhere the provider may never end them, and they keep their slots.
#[cold]
fn no_slot(ofi: &mut Ofi) -> Begun {
    let (own, deaths, known) = (ofi.rank, &ofi.shared.deaths, ofi.looked_at());
    let dead = |peer| peer != own && deaths.reason(peer, known).is_some();
    let patience = match ofi.link.domain.info.ip() {
        Some(_) => PATIENCE,
        None => 0,
    };
    let remotes = &mut ofi.link.memory.remotes;
    if !remotes.slots.iter().flatten().all(|slot| dead(slot.peer)) {
        remotes.waited = 0;
    } else if remotes.waited == patience {
        return Begun::Refused;
    } else {
        remotes.waited += 1;
    }
    Begun::Full
}

/// Memory of this rank that an operation reads or writes.
struct Local {
    data: *mut u8,
    len: usize,
    desc: *mut c_void,
    /// The registration of the program's memory, where the provider needs one.
    region: Option<Arc<Fid<fid_mr>>>,
    /// Whether it is the slot's part of the slab, in place of the program's memory.
    is_part: bool,
}

impl Local {
    /// Memory for an operation on `len` bytes of the program's at `data`: a part of the slab if
    /// they are few. If there are more, but the program's memory cannot be registered, which need
    /// not be the peer's fault, as much of them goes as fits into such a part.
    ///
    /// # Errors
    /// libfabric's, if only a registration would do, because the driver alone reaches the memory.
    fn of(
        domain: &Domain,
        memory: &mut Memory,
        (slot, id): (usize, u32),
        (data, len): (*mut u8, usize),
        access: u64,
    ) -> Result<Self, isize> {
        let is_host = domain.is_host(data);
        if len > SHORT || !is_host {
            let registrations = &mut memory.registrations;
            let region = registrations.local(domain, data, len, access, Whose::Remote(id));
            if let Ok(region) = region {
                return Ok(Self {
                    data,
                    len,
                    desc: desc(region.as_deref()),
                    region,
                    is_part: false,
                });
            }
        }
        match is_host {
            true => Ok(Self::part(&memory.remotes, slot, len.min(SHORT))),
            false => Err(-(FI_ENOMEM as isize)),
        }
    }

    /// The slot's part of the slab.
    fn part(remotes: &Remotes, slot: usize, len: usize) -> Self {
        Self {
            data: remotes.slab.part(slot),
            len,
            desc: remotes.slab.desc(),
            region: None,
            is_part: true,
        }
    }
}

/// Gives an operation to the provider. Returns the number of bytes that it moves, which may be
/// fewer than `len`, or libfabric's result. The slot is in use if the operation has begun.
///
/// # Safety
/// As for `Transport::begin_remote`; `slot` must be free.
unsafe fn start(
    ofi: &mut Ofi,
    slot: usize,
    (peer, id): (u32, u32),
    goal: &Goal,
    what: Remote,
    len: usize,
) -> Result<usize, isize> {
    let link = &mut *ofi.link;
    let (domain, memory, ep) = (&link.domain, &mut *link.memory, &link.ep);
    let (place, context) = ((slot, id), memory.remotes.ops.context(slot));
    let (kind, local, result) = match what {
        Remote::Put { source, .. } => {
            let data = source.cast_mut();
            let local = Local::of(domain, memory, place, (data, len), FI_WRITE)?;
            let mut kind = Way::Long;
            if local.is_part {
                kind = Way::Out;
                // SAFETY: a part of a free slot has room for as many bytes; the caller promises the
                // source.
                unsafe { std::ptr::copy_nonoverlapping(source, local.data, local.len) };
            }
            // SAFETY: an open endpoint. Bytes and context stay until the completion, by the
            // caller's promise or because they are the slot's.
            let result = unsafe { write(ep, goal, &local, context) };
            (kind, local, result)
        }
        Remote::Get { target, .. } => {
            let local = Local::of(domain, memory, place, (target, len), FI_READ)?;
            let kind = match local.is_part {
                true => Way::In(target, local.len),
                false => Way::LongIn,
            };
            // SAFETY: as above.
            let result = unsafe { read(ep, goal, &local, context) };
            (kind, local, result)
        }
        Remote::Atomic { width, op } => {
            let Some((code, words)) = Words::of(width, op) else {
                return Err(-(FI_EOPNOTSUPP as isize));
            };
            let local = Local::part(&memory.remotes, slot, len);
            let at = local.data.cast::<Words>();
            // SAFETY: a part is aligned to 64 bytes and long enough; it belongs to the slot until
            // the completion.
            let result = unsafe {
                at.write(words);
                atomics::start(ep, goal, (width, code), at, local.desc, context)
            };
            (Way::Atomic(width), local, result)
        }
    };
    if result == -(FI_EAGAIN as isize) {
        // The operation is tried again, with the same registration.
        let range = (local.data, local.len);
        let registrations = &mut memory.registrations;
        registrations.keep(Whose::Remote(id), range, local.region);
        return Err(result);
    }
    if result != 0 {
        return Err(result);
    }
    memory.begun += 1;
    let remotes = &mut memory.remotes;
    remotes.long += usize::from(kind.uses_memory());
    remotes.slots[slot] = Some(Slot {
        id,
        peer,
        kind,
        begun: memory.begun,
        region: local.region,
    });
    Ok(local.len)
}

/// Reads from the peer's memory.
///
/// # Safety
/// As for `fi_read`.
unsafe fn read(ep: &Fid<fid_ep>, goal: &Goal, local: &Local, context: *mut c_void) -> isize {
    let Goal { peer, addr, key } = *goal;
    // SAFETY: from the caller.
    unsafe {
        fi_read(
            ep.get(),
            local.data.cast(),
            local.len,
            local.desc,
            peer,
            addr,
            key,
            context,
        )
    }
}

/// Writes in such a way that the completion means that the bytes are in the peer's memory.
///
/// # Safety
/// As for `fi_writemsg`.
unsafe fn write(ep: &Fid<fid_ep>, goal: &Goal, local: &Local, context: *mut c_void) -> isize {
    let bytes = libc::iovec {
        iov_base: local.data.cast(),
        iov_len: local.len,
    };
    let remote = fi_rma_iov {
        addr: goal.addr,
        len: local.len,
        key: goal.key,
    };
    let mut desc = local.desc;
    let message = fi_msg_rma {
        msg_iov: &raw const bytes,
        desc: &raw mut desc,
        iov_count: 1,
        addr: goal.peer,
        rma_iov: &raw const remote,
        rma_iov_count: 1,
        context,
        data: 0,
    };
    let flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
    // SAFETY: the caller's promise; the provider copies the descriptions.
    unsafe { fi_writemsg(ep.get(), &raw const message, flags) }
}

/// Handles the end of an operation: tells the engine, unless it has already been told that the
/// operation ended. Returns how many events that is.
pub(crate) fn completed<S: Sink>(ofi: &mut Ofi, index: usize, sink: &mut S) -> usize {
    let Some(slot) = take(ofi, index) else {
        return 0;
    };
    if ofi.adopted != 0 && has_been_told(ofi, slot.peer) {
        return 0;
    }
    let own = ofi.link.memory.remotes.slab.part(index);
    let value = match slot.kind {
        Way::Long | Way::LongIn | Way::Out => 0,
        Way::In(target, len) => {
            // SAFETY: the bytes have been read into the slot. The target is writable until the
            // engine is told of the end, because neither the peer's death nor this rank's has been
            // reported.
            unsafe { std::ptr::copy_nonoverlapping(own, target, len) };
            0
        }
        // SAFETY: `start` wrote the words, and the provider has added the former value.
        Way::Atomic(width) => unsafe { own.cast::<Words>().read() }.former(width),
        Way::Abandoned => return 0,
    };
    sink.finished(slot.id, Some(value));
    1
}

/// Whether the engine has already ended all operations on `peer` and given their memory back,
/// because it was told of a death: the peer's or this rank's, after which this rank communicates
/// with nobody. Operations on this rank's own memory still have to end, whatever others think of
/// it.
#[cold]
fn has_been_told(ofi: &Ofi, peer: u32) -> bool {
    peer != ofi.rank && (ofi.has_adopted(peer) || ofi.has_adopted(ofi.rank))
}

/// What a failed operation shows about its peer.
pub(crate) enum Failed {
    /// The peer does not permit the operation; the engine has been told.
    Refused,
    /// The peer cannot be reached.
    Lost(u32),
}

/// Errors which mean that a peer does not permit an operation.
const REFUSALS: [i32; 7] = [
    FI_EACCES,
    FI_EPERM,
    FI_EFAULT,
    FI_EINVAL,
    FI_EKEYREJECTED,
    FI_EREMOTEIO,
    FI_EOPNOTSUPP,
];

/// Provider codes that specify what `FI_EIO` leaves open. `verbs` reports `FI_EIO` for everything
/// that fails, even for a cable that is pulled; its codes here are `IBV_WC_REM_INV_REQ_ERR`,
/// `IBV_WC_REM_ACCESS_ERR` and `IBV_WC_REM_OP_ERR`. The code of `efa` means that an address or key
/// does not exist.
const REFUSALS_OF: [(&str, &[i32]); 2] = [("verbs", &[9, 10, 11]), ("efa", &[7])];

/// Whether this error of the provider means that the peer does not permit the operation; otherwise
/// the peer is lost.
fn refuses(provider: &str, error: i32, code: i32) -> bool {
    if error != FI_EIO {
        return REFUSALS.contains(&error);
    }
    provider.split(';').any(|layer| {
        let known = REFUSALS_OF.iter().find(|(name, _)| *name == layer);
        // libfabric's shared memory has no cable: with `FI_EIO`, the system refused the copy.
        layer == "shm" || known.is_some_and(|(_, codes)| codes.contains(&code))
    })
}

/// Handles a failed operation, given the error and the provider's code for it.
pub(crate) fn failed<S: Sink>(
    ofi: &mut Ofi,
    index: usize,
    (error, code): (i32, i32),
    sink: &mut S,
) -> Failed {
    let Some(slot) = take(ofi, index) else {
        return Failed::Refused;
    };
    if matches!(slot.kind, Way::Abandoned) {
        return Failed::Refused;
    }
    let dead = ofi.shared.deaths.is_dead(slot.peer);
    // The death of this rank would not end its operations on itself.
    let own = slot.peer == ofi.rank;
    let refused = || refuses(&ofi.link.domain.info.provider(), error, code);
    if own || !dead && (refused() || ofi.shared.roster.has_left(slot.peer)) {
        sink.finished(slot.id, None);
        return Failed::Refused;
    }
    Failed::Lost(slot.peer)
}

fn take(ofi: &mut Ofi, index: usize) -> Option<Slot> {
    let memory = &mut *ofi.link.memory;
    let remotes = &mut memory.remotes;
    let mut slot = remotes.slots[index].take()?;
    if let Some(region) = slot.region.take() {
        memory.registrations.end_one(region);
    }
    remotes.long -= usize::from(slot.kind.uses_memory());
    remotes.free.push(index as u32);
    remotes.waited = 0;
    Some(slot)
}

#[cfg(test)]
mod tests;
