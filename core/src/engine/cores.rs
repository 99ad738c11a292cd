//! How many cores the ranks of a node share.

/// Cores that the ranks of this node may run on, as far as this one can see.
///
/// A rank may be bound to a core of its own: then what it is allowed says nothing of the others, and
/// what its process, or whoever has started that, is allowed says more. (If several ranks are bound to
/// one core while others are idle, nobody here knows: they spin before they give it away.)
pub(super) fn shared_cores() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let around = match affinity(Of::Process) {
        Some(1) => affinity(Of::Parent),
        process => process,
    };
    match affinity(Of::Thread) {
        Some(mine) => around
            .filter(|&around| around > mine)
            .map_or(allowed, |around| around),
        None => allowed,
    }
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
