//! How many cores the ranks of a node share.

/// Cores that the ranks of this node may run on, as far as this one can see.
///
/// A rank may be bound to a core of its own: then what it is allowed says nothing of the others, and
/// what its process, or whoever has started that, is allowed says more. (If several ranks are bound to
/// one core while others are idle, nobody here knows: they spin before they give it away.)
pub(super) fn shared_cores() -> usize {
    Seen {
        allowed: std::thread::available_parallelism().map_or(1, usize::from),
        thread: affinity(Of::Thread),
        process: affinity(Of::Process),
        parent: affinity(Of::Parent),
        first_thread: is_first_thread(),
    }
    .shared()
}

/// Cores that somebody may run on; `None` where the system does not tell.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// This thread, quotas included.
    allowed: usize,
    thread: Option<usize>,
    process: Option<usize>,
    parent: Option<usize>,
    /// Whether this is the thread with which the process began.
    first_thread: bool,
}

impl Seen {
    fn shared(self) -> usize {
        // A process of one core may be one of several ranks that somebody has bound. A rank that is another thread
        // of it has its fellows there, and they have no more cores than the process.
        let around = match self.process {
            Some(1) if self.first_thread => self.parent,
            process => process,
        };
        match (self.thread, around) {
            (Some(mine), Some(around)) if around > mine => around,
            _ => self.allowed,
        }
    }
}

#[cfg(target_os = "linux")]
fn is_first_thread() -> bool {
    // SAFETY: neither call has arguments or can fail.
    unsafe { libc::gettid() == libc::getpid() }
}

#[cfg(not(target_os = "linux"))]
fn is_first_thread() -> bool {
    true
}

/// Whose set of processors.
#[derive(Clone, Copy)]
enum Of {
    Thread,
    /// The thread with which the process began.
    Process,
    Parent,
}

/// Processors in a set; `None` if the system does not tell.
#[cfg(target_os = "linux")]
fn affinity(of: Of) -> Option<usize> {
    // SAFETY: neither call has arguments or can fail.
    let (process, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    let id = match of {
        Of::Thread => 0,
        Of::Process => process,
        Of::Parent => parent,
    };
    // SAFETY: a set is an array of numbers, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable, and its size is given.
    let told = unsafe { libc::sched_getaffinity(id, size_of_val(&set), &raw mut set) };
    // SAFETY: the set is initialised.
    (told == 0).then(|| unsafe { libc::CPU_COUNT(&set) } as usize)
}

#[cfg(not(target_os = "linux"))]
fn affinity(_of: Of) -> Option<usize> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Cores of all with `allowed`, of a thread, its process and its parent.
    fn shared(allowed: usize, [thread, process, parent]: [usize; 3], first_thread: bool) -> usize {
        Seen {
            allowed,
            thread: Some(thread),
            process: Some(process),
            parent: Some(parent),
            first_thread,
        }
        .shared()
    }

    #[test]
    fn ranks_share_what_they_were_not_bound_away_from() {
        assert_eq!(shared(8, [8, 8, 8], true), 8);
        // A quota of two cores.
        assert_eq!(shared(2, [8, 8, 8], true), 2);
        // A process that a launcher has bound to a core, beside others.
        assert_eq!(shared(1, [1, 1, 8], true), 8);
        // `taskset -c 0` around a job of threads: all of them have that core.
        assert_eq!(shared(1, [1, 1, 8], false), 1);
        // A rank that is a thread, bound to a core of the process's.
        assert_eq!(shared(1, [1, 4, 8], false), 4);
        // A process that was given two cores of eight, and its threads.
        assert_eq!(shared(2, [2, 2, 8], true), 2);
    }

    /// A thread that is a rank, bound to one core, still shares all of them with the others.
    #[test]
    fn a_bound_rank_counts_the_cores_of_all() {
        let unbound = shared_cores();
        let bound = std::thread::spawn(|| {
            // SAFETY: as in `affinity`.
            let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: the set is writable, and its size is given.
            let told = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
            assert_eq!(told, 0, "the system does not tell");
            // SAFETY: every number asked about is within the set.
            let first =
                (0..8 * size_of_val(&set)).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
            // SAFETY: as above, for a set that is empty first.
            unsafe {
                libc::CPU_ZERO(&mut set);
                libc::CPU_SET(first.expect("a processor"), &mut set);
            }
            // SAFETY: the set is initialised, and its size is given.
            let done = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
            assert_eq!(done, 0, "the system does not bind");
            assert_eq!(affinity(Of::Thread), Some(1));
            shared_cores()
        });
        // Where a quota allows less than the set, the bound thread does not see that.
        assert!(bound.join().expect("the bound thread") >= unbound);
    }
}
