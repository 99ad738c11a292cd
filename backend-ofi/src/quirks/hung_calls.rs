//! Detects a provider call that never returns.
//!
//! libfabric's shm provider of 1.x keeps a spin lock in every rank's queue, in shared memory. A
//! poll takes the rank's own lock, a send takes the receiver's, and both spin without a limit. A
//! rank that is killed while it holds a lock leaves it locked. Whichever rank needs that lock next,
//! before or after the death is known, stays inside the library, where no error reaches it. Only
//! another thread can notice that: the one that watches the processes. It cannot release the lock,
//! so it ends the rank with an explanation; otherwise the job would hang.
//!
//! It does so only when a process of this node has died, because no other failure leaves a lock
//! behind. It does not do so while another of these processes is stopped, say by a debugger: that
//! process may hold the lock, and will release it. Nor does it do so while the system fetches pages
//! of this process from a disk: over that provider a rank copies data within a call, which takes
//! seconds if the machine swaps. Two kinds of calls are not counted: those that close an endpoint,
//! which a rank makes when the watching thread is over, and those of the device that lets the
//! provider match, which shm of 1.x cannot do.

use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::shared::Shared;

/// How often the thread looks, once a process is known to have died.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// A call that is under way in this many looks does not return. Calls that do return take
/// microseconds, or as long as the system keeps this rank off its processor.
const LOOKS: u32 = 5;
/// A look that comes this late does not count: this process was stopped meanwhile, and its calls
/// with it.
const LATE: Duration = Duration::from_secs(2);
/// How long the data in standard output's buffer may take to leave.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Counts one rank's calls. Written only by the thread that uses the endpoint, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Calls {
    // Relaxed, everywhere here: these numbers publish no other data, and a thread that reads one
    // late looks again a second later.

    /// Marks the start of calls that take locks of the provider.
    #[inline]
    pub(crate) fn begin(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        self.begun.store(begun.wrapping_add(1), Ordering::Relaxed);
    }

    /// Marks their return.
    #[inline]
    pub(crate) fn end(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        self.ended.store(begun, Ordering::Relaxed);
    }

    /// The number of the call that has begun and not ended.
    fn under_way(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::Relaxed);
        let begun = self.begun.load(Ordering::Relaxed);
        (begun != ended).then_some(begun)
    }
}

/// What the watching thread knows about this rank's calls.
#[derive(Debug)]
pub(crate) struct Patience {
    calls: Arc<Calls>,
    rank: u32,
    provider: String,
    /// Which call was under way at the last look, and how many looks have seen it since the first.
    seen: Option<(u64, u32)>,
    /// When the last look was.
    last: Option<Instant>,
    /// How many pages had been fetched from a disk by then.
    fetched: i64,
}

impl Patience {
    pub(crate) fn new(calls: Arc<Calls>, rank: u32, provider: String) -> Self {
        Self {
            calls,
            rank,
            provider,
            seen: None,
            last: None,
            fetched: 0,
        }
    }

    /// Checks whether the same call is still under way: `true` if it will not return. `fetched` is
    /// how many pages this process has had fetched from a disk.
    fn is_over(&mut self, now: Instant, fetched: impl FnOnce() -> i64) -> bool {
        let since = self.last.map(|last| now - last);
        if since.is_some_and(|since| since < LOOK) {
            // Heartbeats wake the thread as well.
            return false;
        }
        self.last = Some(now);
        let late = since.is_some_and(|since| since >= LATE);
        let fetched = fetched();
        // A call that waits for a lock needs no pages.
        let copies = std::mem::replace(&mut self.fetched, fetched) != fetched;
        let call = self.calls.under_way();
        self.seen = match (call, self.seen) {
            (Some(call), Some((seen, looks))) if call == seen => {
                Some((call, looks + u32::from(!late && !copies)))
            }
            (call, _) => call.map(|call| (call, 0)),
        };
        self.seen.is_some_and(|(_, looks)| looks >= LOOKS)
    }

    /// Ends this rank if a call does not return. Call it every [`LOOK`] or more often once a
    /// process of this node has died. `living` are the process ids of this node's other ranks that
    /// have not.
    pub(crate) fn look(&mut self, shared: &Shared, living: impl Iterator<Item = u32>) {
        let is_over = self.is_over(Instant::now(), fetched);
        // A process found stopped may have held the lock until now.
        if self.seen.is_some() && living.into_iter().any(is_stopped) {
            self.seen = None;
            return;
        }
        if !is_over {
            return;
        }
        let (rank, provider) = (self.rank, &self.provider);
        let dead: Vec<String> = shared
            .deaths
            .list(0)
            .into_iter()
            .map(|(_, why)| why)
            .collect();
        let dead = dead.join("; ");
        let text = format!(
            "portolan: rank {rank}: a call of libfabric's provider {provider} has not come back for {} s, and {dead}: \
             who is killed inside that provider may leave a lock in shared memory taken for good. Rank {rank} ends with \
             code 1, since nothing else may get it out of the library; neither the transport shm (PORTOLAN_TRANSPORT=shm) \
             nor the provider tcp (PORTOLAN_OFI_PROVIDER=tcp) has such locks\n",
            (LOOK * LOOKS).as_secs()
        );
        end(&text)
    }
}

/// How many pages this process has had fetched from a disk (major faults), those included that it
/// needed of another process to copy from there or to it.
fn fetched() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: room for what the system writes; numbers, for which zero is a value.
    unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init().ru_majflt
    }
}

/// Whether a process is stopped, by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| is_stopped_by(&stat))
}

/// The same, from the system's text: the process id, the name in parentheses, and the state.
fn is_stopped_by(stat: &str) -> bool {
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| state.starts_with(['T', 't']))
}

/// Ends the process without waiting for any lock: the thread that is inside the provider may hold
/// the lock of an output stream.
fn end(text: &str) -> ! {
    // SAFETY: `len` bytes are readable. Standard error may be closed; then nobody can be told.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    let (done, waits) = mpsc::channel();
    let flush = move || {
        let _ = std::io::stdout().flush();
        let _ = done.send(());
    };
    if std::thread::Builder::new().spawn(flush).is_ok() {
        let _ = waits.recv_timeout(LAST_WORDS);
    }
    // Not `exit`: the library's destructors would wait for the same lock.
    // SAFETY: ends the process.
    unsafe { libc::_exit(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_stays_the_same_one_is_given_up() {
        let calls = Arc::new(Calls::default());
        let mut patience = Patience::new(Arc::clone(&calls), 0, "shm".to_owned());
        let start = Instant::now();
        let mut at = |seconds| patience.is_over(start + Duration::from_secs(seconds), || 0);
        assert!(!at(0), "nothing is under way");
        calls.begin();
        assert!(!at(1), "it has only just been seen");
        calls.end();
        calls.begin();
        assert!(!at(2), "it is another one");
        assert!(!(3..=6).any(&mut at), "it has not been long");
        assert!(at(7), "it does not come back");
        calls.end();
        assert!(!at(8), "it has come back, and the program computes");
        assert!(!at(9));
    }

    #[test]
    fn while_this_process_was_stopped_does_not_count() {
        let calls = Arc::new(Calls::default());
        let mut patience = Patience::new(Arc::clone(&calls), 0, "shm".to_owned());
        let start = Instant::now();
        calls.begin();
        for millis in (0..900).step_by(100) {
            assert!(
                !patience.is_over(start + Duration::from_millis(millis), || 0),
                "too often"
            );
        }
        let mut at = |seconds| patience.is_over(start + Duration::from_secs(seconds), || 0);
        assert!(!(1..5).any(&mut at));
        assert!(!at(100) && !at(200), "nobody looked in between");
        assert!(at(201));
    }

    #[test]
    fn who_copies_what_has_been_swapped_out_is_waited_for() {
        let calls = Arc::new(Calls::default());
        let mut patience = Patience::new(Arc::clone(&calls), 0, "shm".to_owned());
        let start = Instant::now();
        calls.begin();
        let mut at =
            |seconds, fetched| patience.is_over(start + Duration::from_secs(seconds), || fetched);
        let pages = |seconds: u64| 100 * i64::try_from(seconds).expect("a few");
        assert!(!(1..100).any(|seconds| at(seconds, pages(seconds))));
        assert!(!(100..104).any(|seconds| at(seconds, pages(99))));
        assert!(at(104, pages(99)), "it waits for something else");
    }

    #[test]
    fn a_process_that_is_stopped_is_told_by_its_state() {
        for (stat, stopped) in [
            ("17 (a) T 1 17", true),
            ("17 (a (T) b) t 1 17", true),
            ("17 (T t) R 1 17", false),
            ("17 (a) S 1 17", false),
            ("", false),
        ] {
            assert_eq!(is_stopped_by(stat), stopped, "{stat}");
        }
        assert!(!is_stopped(std::process::id()));
    }
}
