//! Reading a sender's buffer from its address space, and writing into a receiver's.
//!
//! Between processes, `process_vm_readv` and `process_vm_writev` do this. They cost time for every
//! page, so the engine measures whether they are the faster way. The system may refuse them
//! (another user, a process that may not be traced, Yama, a system call filter). The first use
//! therefore reads one known word of the peer, and the result is remembered. A rank writes only
//! into the process that was the peer when the job began, only while that process lives, and only
//! at addresses that the peer itself has given: a peer that makes one up harms only itself.
//!
//! Ranks of one process copy directly. They copy only from and to memory that a rank of this
//! process has exposed and not withdrawn, so a made-up exposure reads and writes nothing.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use portolan_core::lines::copy;
use portolan_core::transport::Exposure;

use crate::addr::Process;
use crate::segment::layout::PROBE;

/// Most bytes that one system call copies.
const PIECE: usize = 8 << 20;

/// Marks an address as an offset in the segment. No address of a process is that high.
const IN_SEGMENT: u64 = 1 << 63;

/// The contents of an [`Exposure`]. Between processes there is only the address, so that an offer
/// fits into one cell: whatever a peer names, the system checks the address, and the segment its
/// offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    addr: u64,
    len: u64,
    id: u64,
    rank: u64,
}

impl Place {
    /// The bytes at this offset of the segment.
    pub(crate) fn in_segment(offset: u64) -> Self {
        Self {
            addr: offset | IN_SEGMENT,
            ..Self::default()
        }
    }

    /// Where in the segment the exposed bytes are; `None` if they are elsewhere.
    #[inline]
    pub(crate) fn segment_offset(&self) -> Option<u64> {
        (self.addr & IN_SEGMENT != 0).then_some(self.addr & !IN_SEGMENT)
    }

    pub(crate) fn to_exposure(self) -> Exposure {
        let mut bytes = [0; 32];
        let words = [self.addr, self.len, self.id, self.rank];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        Exposure(bytes)
    }

    pub(crate) fn from_exposure(exposure: &Exposure) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| exposure.0[8 * at + n]));
        Self {
            addr: word(0),
            len: word(1),
            id: word(2),
            rank: word(3),
        }
    }
}

/// Whether reading from a peer's address space is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Untried,
    Works,
    /// Refused; holds the system's error text.
    Refused(String),
}

/// How this rank exposes its buffers, and reads and writes those of others.
#[derive(Debug)]
pub(crate) enum Puller {
    /// The ranks are threads of one process.
    Within(Arc<Exposed>),
    /// The ranks are processes, listed by rank.
    Across {
        peers: Arc<[Process]>,
        access: Vec<Access>,
    },
}

/// The outcome of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Done,
    /// The copy was not possible.
    No,
}

impl Puller {
    pub(crate) fn across(peers: Arc<[Process]>) -> Self {
        let access = vec![Access::Untried; peers.len()];
        Self::Across { peers, access }
    }

    /// The process id of a rank; `None` where all ranks are in this process.
    pub(crate) fn process_of(&self, peer: u32) -> Option<u32> {
        match self {
            Self::Within(_) => None,
            Self::Across { peers, .. } => Some(peers[peer as usize].pid),
        }
    }

    /// Exposes memory of this rank that peers may read, or write if `writable`.
    pub(crate) fn expose(
        &self,
        rank: u32,
        data: *const u8,
        len: usize,
        writable: bool,
    ) -> Exposure {
        let addr = data.expose_provenance() as u64;
        let place = match self {
            Self::Within(exposed) => Place {
                addr,
                len: len as u64,
                id: exposed.insert(rank, data, len, writable),
                rank: u64::from(rank),
            },
            Self::Across { .. } => Place {
                addr,
                ..Place::default()
            },
        };
        place.to_exposure()
    }

    pub(crate) fn withdraw(&self, exposure: &Exposure) {
        if let Self::Within(exposed) = self {
            exposed.remove(Place::from_exposure(exposure).id);
        }
    }

    /// Withdraws everything that this rank, `rank`, has exposed. (Ranks in other processes see
    /// instead that it has left.)
    pub(crate) fn close(&self, rank: u32) {
        if let Self::Within(exposed) = self {
            exposed.remove_all(rank);
        }
    }

    /// What is known about access to the memory of `peer`.
    pub(crate) fn access(&self, peer: u32) -> Access {
        match self {
            Self::Within(_) => Access::Works,
            Self::Across { access, .. } => access[peer as usize].clone(),
        }
    }

    /// Copies between this rank's memory and the memory that `peer` has exposed, from `offset` on.
    /// `probe_at` is the address of the peer's known word, as the peer has stated it.
    ///
    /// # Safety
    /// The bytes of `local` are readable or writable, as its direction needs.
    pub(crate) unsafe fn copy(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        local: Local,
        probe_at: u64,
    ) -> Read {
        let place = Place::from_exposure(exposure);
        match self {
            Self::Within(exposed) => {
                // SAFETY: the caller's promise.
                if place.rank == u64::from(peer) && unsafe { exposed.copy(&place, offset, local) } {
                    Read::Done
                } else {
                    Read::No
                }
            }
            Self::Across { peers, access } => {
                let (process, access) = (peers[peer as usize], &mut access[peer as usize]);
                if *access == Access::Untried {
                    *access = try_access(process.pid, probe_at);
                }
                if *access != Access::Works {
                    return Read::No;
                }
                let there = place.addr.wrapping_add(offset);
                // SAFETY: the caller's promise.
                match unsafe { copy_all(process.pid, there, local) } {
                    Ok(()) => Read::Done,
                    Err(error) => {
                        if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) {
                            *access = Access::Refused(refusal(&error));
                        }
                        Read::No
                    }
                }
            }
        }
    }
}

/// This rank's side of a copy, with the direction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Local {
    /// From the peer to here.
    To(*mut u8, usize),
    /// From here to the peer.
    From(*const u8, usize),
}

impl Local {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::To(_, len) | Self::From(_, len) => len,
        }
    }
}

/// Tries to read the known word of a peer.
fn try_access(pid: u32, probe_at: u64) -> Access {
    let mut word = 0_u64;
    // SAFETY: `word` has room for eight bytes.
    let read = unsafe { copy_all(pid, probe_at, Local::To((&raw mut word).cast(), 8)) };
    match read {
        Ok(()) if word == PROBE => Access::Works,
        Ok(()) => Access::Refused(format!("process {pid} is not the rank that it should be")),
        Err(error) => {
            let text = refusal(&error);
            portolan_core::log!(
                DEBUG,
                pid,
                text,
                "long messages are copied through shared memory"
            );
            Access::Refused(text)
        }
    }
}

fn refusal(error: &io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "; another user, a process that may not be traced (PR_SET_DUMPABLE), \
             kernel.yama.ptrace_scope or a seccomp filter forbids it"
        }
        Some(libc::ENOSYS) => "; the kernel or a seccomp filter does not have it",
        _ => "",
    };
    format!("process_vm_readv: {error}{hint}")
}

/// Copies between this rank's memory and `there` in the address space of `pid`.
///
/// # Safety
/// As for [`Puller::copy`].
unsafe fn copy_all(pid: u32, there: u64, local: Local) -> io::Result<()> {
    let (here, len) = match local {
        Local::To(target, len) => (target, len),
        Local::From(source, len) => (source.cast_mut(), len),
    };
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(PIECE);
        let near = libc::iovec {
            iov_base: here.wrapping_add(done).cast(),
            iov_len: piece,
        };
        let at = there.wrapping_add(done as u64);
        let far = libc::iovec {
            iov_base: at as usize as *mut libc::c_void,
            iov_len: piece,
        };
        let (pid, near, far) = (pid as libc::pid_t, &raw const near, &raw const far);
        // SAFETY: the kernel checks the remote range; the local one is `piece` bytes within what
        // the caller vouches for, and is only read by `process_vm_writev`.
        let moved = unsafe {
            match local {
                Local::To(..) => libc::process_vm_readv(pid, near, 1, far, 1, 0),
                Local::From(..) => libc::process_vm_writev(pid, near, 1, far, 1, 0),
            }
        };
        match moved {
            0 => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            1.. => done += moved as usize,
            _ => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

/// The buffers that the ranks of one process have exposed to each other.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    next: AtomicU64,
    places: Mutex<HashMap<u64, Arc<Span>>>,
}

/// An exposed buffer. A copy holds `open` for reading; withdrawing the buffer takes it for writing.
#[derive(Debug)]
struct Span {
    owner: u32,
    addr: usize,
    len: usize,
    writable: bool,
    open: RwLock<bool>,
}

impl Span {
    /// Waits for copies under way, and lets no other start.
    fn close(&self) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Exposed {
    fn insert(&self, owner: u32, data: *const u8, len: usize, writable: bool) -> u64 {
        // Relaxed: the number only has to be unique.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let span = Span {
            owner,
            addr: data.expose_provenance(),
            len,
            writable,
            open: RwLock::new(true),
        };
        self.lock().insert(id, Arc::new(span));
        id
    }

    fn remove(&self, id: u64) {
        let span = self.lock().remove(&id);
        if let Some(span) = span {
            span.close();
        }
    }

    fn remove_all(&self, owner: u32) {
        let is_owned = |_: &u64, span: &mut Arc<Span>| span.owner == owner;
        let spans: Vec<_> = self.lock().extract_if(is_owned).collect();
        for (_, span) in spans {
            span.close();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Span>>> {
        // No code panics while it holds the lock.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    /// As for [`Puller::copy`].
    unsafe fn copy(&self, place: &Place, offset: u64, local: Local) -> bool {
        let span = self.lock().get(&place.id).cloned();
        let Some(span) = span else { return false };
        let open = span.open.read().unwrap_or_else(PoisonError::into_inner);
        let inside = offset
            .checked_add(local.len() as u64)
            .is_some_and(|end| end <= span.len as u64);
        let writes = matches!(local, Local::From(..));
        if !*open || span.addr as u64 != place.addr || !inside || writes != span.writable {
            return false;
        }
        let there = std::ptr::with_exposed_provenance_mut::<u8>(span.addr + offset as usize);
        // SAFETY: until the owner has withdrawn the exposed bytes, which waits for `open`, it keeps
        // them readable; or writable, and shared with nobody but the peer that it asked. The caller
        // vouches for the local memory. The two ranges do not overlap: buffers of two ranks do not,
        // and a rank does not copy from or to what it exposes itself.
        unsafe {
            match local {
                Local::To(target, len) => copy(there, target, len),
                Local::From(source, len) => copy(source, there, len),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within() -> Puller {
        Puller::Within(Arc::new(Exposed::default()))
    }

    fn read(puller: &mut Puller, exposure: &Exposure, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let local = Local::To(bytes.as_mut_ptr(), len);
        // SAFETY: a vector of `len` bytes.
        let read = unsafe { puller.copy(3, exposure, offset, local, 0) };
        (read == Read::Done).then_some(bytes)
    }

    #[test]
    fn what_is_exposed_can_be_read_until_it_is_withdrawn() {
        let mut puller = within();
        let data = [1_u8, 2, 3, 4, 5];
        let exposure = puller.expose(3, data.as_ptr(), data.len(), false);
        assert_eq!(read(&mut puller, &exposure, 1, 3), Some(vec![2, 3, 4]));
        assert_eq!(read(&mut puller, &exposure, 3, 3), None, "beyond the end");
        assert_eq!(read(&mut puller, &exposure, u64::MAX, 1), None, "overflow");
        puller.withdraw(&exposure);
        assert_eq!(read(&mut puller, &exposure, 0, 1), None);
    }

    #[test]
    fn only_what_is_writable_can_be_written_until_it_is_withdrawn() {
        let mut puller = within();
        let (mut data, new) = ([0_u8; 4], [1_u8, 2]);
        let readable = puller.expose(3, data.as_ptr(), 4, false);
        let writable = puller.expose(3, data.as_mut_ptr(), 4, true);
        let write = |puller: &mut Puller, exposure: &Exposure, offset| {
            let local = Local::From(new.as_ptr(), new.len());
            // SAFETY: an array of that length.
            unsafe { puller.copy(3, exposure, offset, local, 0) }
        };
        assert_eq!(write(&mut puller, &readable, 0), Read::No);
        assert_eq!(write(&mut puller, &writable, 3), Read::No, "beyond the end");
        assert_eq!(write(&mut puller, &writable, 1), Read::Done);
        assert_eq!(read(&mut puller, &writable, 0, 2), None, "not for reading");
        puller.withdraw(&writable);
        assert_eq!(write(&mut puller, &writable, 0), Read::No);
        assert_eq!(data, [0, 1, 2, 0]);
    }

    #[test]
    fn who_leaves_has_nothing_exposed_any_more() {
        let mut puller = within();
        let (mine, theirs) = ([1_u8, 2], [3_u8, 4]);
        let [one, two] = [0, 1].map(|_| puller.expose(3, mine.as_ptr(), 2, false));
        let other = puller.expose(4, theirs.as_ptr(), 2, false);
        puller.close(3);
        for gone in [one, two] {
            assert_eq!(read(&mut puller, &gone, 0, 2), None);
        }
        let Puller::Within(exposed) = &puller else {
            unreachable!("made so")
        };
        assert_eq!(exposed.lock().len(), 1, "another rank's stays");
        puller.withdraw(&other);
    }

    /// Ending an exposure waits for the copy that is under way.
    #[test]
    fn nothing_is_read_after_the_end() {
        let exposed = Arc::new(Exposed::default());
        let len = 1 << 20;
        for _ in 0..50 {
            let data = vec![7_u8; len];
            let owner = Puller::Within(Arc::clone(&exposed));
            let exposure = owner.expose(3, data.as_ptr(), len, false);
            std::thread::scope(|scope| {
                let mut reader = Puller::Within(Arc::clone(&exposed));
                let copies = scope.spawn(move || {
                    while let Some(bytes) = read(&mut reader, &exposure, 0, len) {
                        assert!(bytes.iter().all(|&byte| byte == 7), "read too late");
                    }
                });
                std::thread::yield_now();
                owner.close(3);
                drop(data);
                copies.join().unwrap();
            });
        }
    }

    #[test]
    fn a_made_up_exposure_reads_nothing() {
        let mut puller = within();
        let data = [9_u8; 8];
        let mut exposure = puller.expose(3, data.as_ptr(), data.len(), false);
        exposure.0[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(read(&mut puller, &exposure, 0, 100), None);
        exposure.0[0] ^= 1;
        assert_eq!(read(&mut puller, &exposure, 0, 4), None);
        assert_eq!(read(&mut puller, &Exposure([0xff; 32]), 0, 1), None);
    }

    #[test]
    fn this_process_can_read_its_own_word() {
        let word = PROBE;
        let at = (&raw const word).expose_provenance() as u64;
        assert_eq!(try_access(std::process::id(), at), Access::Works);
        let other = 0_u64;
        let at = (&raw const other).expose_provenance() as u64;
        assert!(matches!(
            try_access(std::process::id(), at),
            Access::Refused(_)
        ));
        assert!(matches!(
            try_access(std::process::id(), 16),
            Access::Refused(_)
        ));
    }
}
