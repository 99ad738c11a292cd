//! Wakes a rank that sleeps: by the provider's descriptor, or from another thread through an event.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use portolan_core::transport::Bell;

/// How long a sleep may last if it is not certain that something ends it.
const BRIEF: Duration = Duration::from_millis(1);

/// A word, an event descriptor, and the descriptor of a completion queue.
#[derive(Debug)]
pub(crate) struct EventBell {
    word: AtomicU32,
    event: OwnedFd,
    /// The completion queue's. The transport keeps the queue open as long as it polls; a bell that
    /// outlives it is only rung.
    queue: Option<RawFd>,
    /// There is something to do that no descriptor announces.
    brief: AtomicBool,
}

impl EventBell {
    pub(crate) fn new(queue: Option<RawFd>) -> Result<Self, String> {
        // SAFETY: flags only; the descriptor is new.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                let error = std::io::Error::last_os_error();
                return Err(format!(
                    "eventfd, by which a rank is woken, failed: {error} (ulimit -n)"
                ));
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self {
            word: AtomicU32::new(0),
            event,
            queue,
            brief: AtomicBool::new(false),
        })
    }

    /// A descriptor that is readable from a ring until [`quiet`](Self::quiet).
    pub(crate) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Makes sleeps brief, or as long as wanted. Relaxed: it is written under the engine's lock. A
    /// thread that sleeps has looked under that lock, too, and is rung if it has to look again.
    pub(crate) fn set_brief(&self, brief: bool) {
        self.brief.store(brief, Ordering::Relaxed);
    }

    /// Whether the next sleep will be brief.
    #[cfg(test)]
    pub(crate) fn is_brief(&self) -> bool {
        self.brief.load(Ordering::Relaxed)
    }

    /// Clears the event, when no thread sleeps any more. A thread that goes to sleep later still
    /// notices the ring, because it compares the word, which the ring has changed.
    pub(crate) fn quiet(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes of room. The descriptor does not block: without an event, nothing is
        // read.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl Bell for EventBell {
    fn seen(&self) -> u32 {
        // Acquire: pairs with the Release in `ring`: everything done before it is visible.
        self.word.load(Ordering::Acquire)
    }

    fn sleep(&self, seen: u32, limit: Option<Duration>) {
        if self.seen() != seen {
            return;
        }
        let brief = self.brief.load(Ordering::Relaxed).then_some(BRIEF);
        let limit = match (limit, brief) {
            (Some(limit), Some(brief)) => Some(limit.min(brief)),
            (limit, brief) => limit.or(brief),
        };
        let time = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // poll(2) skips entries whose descriptor is negative.
        let mut entries = [
            entry(self.event.as_raw_fd()),
            entry(self.queue.unwrap_or(-1)),
        ];
        // SAFETY: two entries, a time or null, no signal mask. Every result means: look again.
        unsafe { libc::ppoll(entries.as_mut_ptr(), 2, time, std::ptr::null()) };
    }

    fn ring(&self) {
        // Release: pairs with the Acquire in `seen`.
        self.word.fetch_add(1, Ordering::Release);
        let one = 1_u64;
        // SAFETY: eight bytes. The counter is cleared long before it could overflow.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_sleep_is_not_lost() {
        let bell = EventBell::new(None).unwrap();
        let seen = bell.seen();
        bell.ring();
        bell.sleep(seen, None);
        bell.quiet();
        // Rung by another thread, after the word was read.
        let seen = bell.seen();
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            while bell.seen() == seen {
                bell.sleep(seen, None);
            }
        });
    }
}
