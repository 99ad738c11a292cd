//! Reading a sender's buffer from its address space.
//!
//! Between processes `process_vm_readv` does it, which pays for every page: it is the better way only while
//! the sender is busy outside of the library and could not stream. The system may refuse it (another
//! user, a process that may not be traced, Yama, a system call filter); that is found out by
//! reading one known word of the peer at the first use, and remembered.
//!
//! Ranks of one process copy directly. What may be copied is what a rank of this process has
//! exposed and not withdrawn, so that a made-up exposure reads nothing.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use portolan_core::transport::Exposure;

use crate::addr::Process;
use crate::segment::layout::PROBE;

/// Largest piece that one system call reads.
const PIECE: usize = 8 << 20;

/// What an [`Exposure`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    addr: u64,
    len: u64,
    id: u64,
    pid: u32,
    rank: u32,
}

impl Place {
    fn to_exposure(self) -> Exposure {
        let mut bytes = [0; 32];
        bytes[0..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.pid.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.rank.to_le_bytes());
        Exposure(bytes)
    }

    fn from_exposure(exposure: &Exposure) -> Self {
        let bytes = &exposure.0;
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        Self {
            addr: long(0),
            len: long(8),
            id: long(16),
            pid: short(24),
            rank: short(28),
        }
    }
}

/// Whether reading from a peer's address space is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Untried,
    Works,
    /// Refused, with the system's words.
    Refused(String),
}

/// How this rank exposes its buffers and reads those of others.
#[derive(Debug)]
pub(crate) enum Puller {
    /// Ranks of one process.
    Within(Arc<Exposed>),
    /// Other processes, by rank.
    Across {
        peers: Vec<Process>,
        access: Vec<Access>,
    },
}

/// What became of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Done,
    /// Not possible.
    No,
}

impl Puller {
    pub(crate) fn across(peers: Vec<Process>) -> Self {
        let access = vec![Access::Untried; peers.len()];
        Self::Across { peers, access }
    }

    pub(crate) fn expose(&self, rank: u32, data: *const u8, len: usize) -> Exposure {
        let id = match self {
            Self::Within(exposed) => exposed.insert(data, len),
            Self::Across { .. } => 0,
        };
        let (addr, pid) = (data.expose_provenance() as u64, std::process::id());
        Place {
            addr,
            len: len as u64,
            id,
            pid,
            rank,
        }
        .to_exposure()
    }

    pub(crate) fn withdraw(&self, exposure: &Exposure) {
        if let Self::Within(exposed) = self {
            exposed.remove(Place::from_exposure(exposure).id);
        }
    }

    /// What is known of reading from `peer`.
    pub(crate) fn access(&self, peer: u32) -> Access {
        match self {
            Self::Within(_) => Access::Works,
            Self::Across { access, .. } => access[peer as usize].clone(),
        }
    }

    /// Reads `len` bytes at `offset` of what `peer` has exposed. `probe_at` is where the peer says
    /// that its known word is.
    ///
    /// # Safety
    /// `len` bytes at `target` are writable.
    pub(crate) unsafe fn read(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
        probe_at: u64,
    ) -> Read {
        let place = Place::from_exposure(exposure);
        let inside = offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= place.len);
        if place.rank != peer || !inside {
            return Read::No;
        }
        match self {
            Self::Within(exposed) => {
                // SAFETY: the caller's promise.
                if unsafe { exposed.copy(&place, offset, target, len) } {
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
                if place.pid != process.pid || *access != Access::Works {
                    return Read::No;
                }
                let from = place.addr.wrapping_add(offset);
                // SAFETY: the caller's promise.
                match unsafe { read_all(process.pid, from, target, len) } {
                    Ok(()) => Read::Done,
                    Err(error) => {
                        if error.raw_os_error() == Some(libc::EPERM) {
                            *access = Access::Refused(refusal(&error));
                        }
                        Read::No
                    }
                }
            }
        }
    }
}

/// Reads the known word of a peer.
fn try_access(pid: u32, probe_at: u64) -> Access {
    let mut word = 0_u64;
    // SAFETY: room for eight bytes.
    let read = unsafe { read_all(pid, probe_at, (&raw mut word).cast(), 8) };
    match read {
        Ok(()) if word == PROBE => Access::Works,
        Ok(()) => Access::Refused(format!("process {pid} is not the rank that it should be")),
        Err(error) => {
            let text = refusal(&error);
            tracing::debug!(pid, text, "large messages are copied through shared memory");
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

/// Reads `len` bytes at `from` in the address space of `pid`.
///
/// # Safety
/// `len` bytes at `target` are writable.
unsafe fn read_all(pid: u32, from: u64, target: *mut u8, len: usize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(PIECE);
        let local = libc::iovec {
            iov_base: target.wrapping_add(done).cast(),
            iov_len: piece,
        };
        let at = from.wrapping_add(done as u64);
        let remote = libc::iovec {
            iov_base: at as usize as *mut libc::c_void,
            iov_len: piece,
        };
        // SAFETY: the kernel checks the remote range; the local one is `piece` bytes within what
        // the caller vouches for.
        let got = unsafe {
            libc::process_vm_readv(
                pid as libc::pid_t,
                &raw const local,
                1,
                &raw const remote,
                1,
                0,
            )
        };
        match got {
            0 => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            1.. => done += got as usize,
            _ => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

/// What the ranks of one process have exposed to each other.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    next: AtomicU64,
    places: Mutex<HashMap<u64, Arc<Span>>>,
}

/// A buffer: held for reading while it is copied, for writing to withdraw it.
#[derive(Debug)]
struct Span {
    addr: usize,
    len: usize,
    open: RwLock<bool>,
}

impl Exposed {
    fn insert(&self, data: *const u8, len: usize) -> u64 {
        // Relaxed: the number only has to be new.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let span = Span {
            addr: data.expose_provenance(),
            len,
            open: RwLock::new(true),
        };
        self.lock().insert(id, Arc::new(span));
        id
    }

    fn remove(&self, id: u64) {
        let span = self.lock().remove(&id);
        if let Some(span) = span {
            // Waits for a copy that is under way; nobody starts another.
            *span.open.write().unwrap_or_else(PoisonError::into_inner) = false;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Span>>> {
        // Nothing can panic while it is held.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    /// `len` bytes at `target` are writable.
    unsafe fn copy(&self, place: &Place, offset: u64, target: *mut u8, len: usize) -> bool {
        let span = self.lock().get(&place.id).cloned();
        let Some(span) = span else { return false };
        let open = span.open.read().unwrap_or_else(PoisonError::into_inner);
        let inside = offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= span.len as u64);
        if !*open || span.addr as u64 != place.addr || !inside {
            return false;
        }
        let from = std::ptr::with_exposed_provenance::<u8>(span.addr + offset as usize);
        // SAFETY: the owner keeps the exposed bytes readable until it has withdrawn them, which
        // waits for `open`; the caller vouches for the target. A rank does not pull into what it
        // exposes itself, and buffers of two ranks do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, target, len) };
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
        // SAFETY: a vector of `len` bytes.
        let read = unsafe { puller.read(3, exposure, offset, bytes.as_mut_ptr(), len, 0) };
        (read == Read::Done).then_some(bytes)
    }

    #[test]
    fn what_is_exposed_can_be_read_until_it_is_withdrawn() {
        let mut puller = within();
        let data = [1_u8, 2, 3, 4, 5];
        let exposure = puller.expose(3, data.as_ptr(), data.len());
        assert_eq!(read(&mut puller, &exposure, 1, 3), Some(vec![2, 3, 4]));
        assert_eq!(read(&mut puller, &exposure, 3, 3), None, "beyond the end");
        assert_eq!(read(&mut puller, &exposure, u64::MAX, 1), None, "overflow");
        puller.withdraw(&exposure);
        assert_eq!(read(&mut puller, &exposure, 0, 1), None);
    }

    #[test]
    fn a_made_up_exposure_reads_nothing() {
        let mut puller = within();
        let data = [9_u8; 8];
        let mut exposure = puller.expose(3, data.as_ptr(), data.len());
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
