//! The ranks that have left the job in good order: one word per rank, shared by the ranks of a
//! node.
//!
//! A process that ends without having written its word has died. In a job of threads, the words are
//! ordinary memory; processes of one node keep them in a memory file that one of them makes and the
//! others open through `/proc`. Ranks of other nodes do not write here themselves.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::addr::Process;

/// The words of the ranks, preceded by one that says whether any rank has left.
#[derive(Debug)]
pub(crate) struct Roster {
    words: Words,
}

#[derive(Debug)]
enum Words {
    Own(Box<[AtomicU32]>),
    Shared {
        start: NonNull<AtomicU32>,
        len: usize,
        /// Kept open in the process that made it, for the others to open through `/proc`.
        file: OwnedFd,
    },
}

// SAFETY: atomics, in memory that lives as long as the roster.
unsafe impl Send for Roster {}
// SAFETY: as above.
unsafe impl Sync for Roster {}

impl Roster {
    /// Makes a roster for the ranks of one process.
    pub(crate) fn within(ranks: u32) -> Self {
        let words = (0..=ranks).map(|_| AtomicU32::new(0)).collect();
        Self {
            words: Words::Own(words),
        }
    }

    /// Makes a roster for the processes of this node; the others open it with [`open`](Self::open).
    pub(crate) fn create(ranks: u32) -> Result<Self, String> {
        let name = c"portolan-roster".as_ptr();
        // SAFETY: a name and flags; the descriptor is new.
        let file = unsafe {
            let fd = libc::memfd_create(name, libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(failed("memfd_create"));
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: an open file.
        if unsafe { libc::ftruncate(file.as_raw_fd(), bytes(ranks) as libc::off_t) } != 0 {
            return Err(failed("ftruncate"));
        }
        Self::map(file, ranks)
    }

    /// Opens the roster that another process of this node has made, as its descriptor `fd`.
    pub(crate) fn open(maker: Process, fd: i32, ranks: u32) -> Result<Self, String> {
        let path = format!("/proc/{}/fd/{fd}", maker.pid);
        let said = |error| format!("{path}, with which ranks of this node leave: {error}");
        let mut options = OpenOptions::new();
        let file: File = options.read(true).write(true).open(&path).map_err(said)?;
        let len = file.metadata().map_err(said)?.len();
        if len != bytes(ranks) as u64 || maker.is_another() {
            return Err(format!(
                "{path} has {len} bytes and is not the file of this job"
            ));
        }
        Self::map(file.into(), ranks)
    }

    fn map(file: OwnedFd, ranks: u32) -> Result<Self, String> {
        let len = bytes(ranks);
        // SAFETY: a new mapping of a file of this length, which nothing shortens.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        let start = NonNull::new(start.cast()).ok_or("mmap gave a null pointer")?;
        Ok(Self {
            words: Words::Shared { start, len, file },
        })
    }

    /// The descriptor for [`open`](Self::open).
    pub(crate) fn descriptor(&self) -> Option<i32> {
        match &self.words {
            Words::Own(_) => None,
            Words::Shared { file, .. } => Some(file.as_raw_fd()),
        }
    }

    fn word(&self, index: u32) -> &AtomicU32 {
        match &self.words {
            Words::Own(words) => &words[index as usize],
            Words::Shared { start, len, .. } => {
                assert!((index as usize) < len / 4, "there is no rank {}", index - 1);
                // SAFETY: inside the mapping, as was just checked; aligned, because mappings are.
                unsafe { start.add(index as usize).as_ref() }
            }
        }
    }

    /// Whether anyone has left: a plain load.
    #[inline]
    pub(crate) fn anyone_left(&self) -> bool {
        self.word(0).load(Ordering::Relaxed) != 0
    }

    /// Whether `rank` has left in good order.
    pub(crate) fn has_left(&self, rank: u32) -> bool {
        // Acquire: pairs with the Release in `leave`. (The end of a process orders its writes as
        // well.)
        self.word(rank + 1).load(Ordering::Acquire) != 0
    }

    /// Notes that `rank` leaves in good order.
    pub(crate) fn leave(&self, rank: u32) {
        // Release: pairs with the Acquire in `has_left`: everything that the rank did comes before.
        self.word(rank + 1).store(1, Ordering::Release);
        self.word(0).store(1, Ordering::Relaxed);
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        if let Words::Shared { start, len, .. } = &self.words {
            // SAFETY: mapped by `map` with this length; nothing uses it any more.
            unsafe { libc::munmap(start.as_ptr().cast(), *len) };
        }
    }
}

fn bytes(ranks: u32) -> usize {
    (ranks as usize + 1) * size_of::<AtomicU32>()
}

fn failed(call: &str) -> String {
    let error = std::io::Error::last_os_error();
    format!("{call}, for the file with which ranks of this node leave, failed: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_see_who_has_left() {
        let made = Roster::create(3).unwrap();
        let fd = made.descriptor().unwrap();
        let opened = Roster::open(Process::own(), fd, 3).unwrap();
        assert!(!made.anyone_left());
        opened.leave(2);
        assert!(made.anyone_left() && made.has_left(2) && !made.has_left(0));
        assert!(
            Roster::open(Process::own(), fd, 4).is_err(),
            "another job's"
        );
    }

    #[test]
    fn threads_do_as_well() {
        let roster = Roster::within(2);
        roster.leave(0);
        assert!(roster.has_left(0) && !roster.has_left(1));
        assert_eq!(roster.descriptor(), None);
    }
}
