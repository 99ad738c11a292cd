//! Whether ranks share cores.
//!
//! Where the ranks of this node are processes that this rank knows, the system says on which cores
//! each of them may run. Otherwise a rank sees only its own cores and those of the process that
//! started it.

use crate::transport::Transport;

/// Whether the ranks on this node outnumber the cores that this rank may run on, so that a peer may
/// want this very core.
pub(in crate::engine) fn crowded<T: Transport>(transport: &T) -> bool {
    let rank = transport.rank();
    let node = transport.node_of(rank);
    let on_node: Vec<u32> = (0..transport.size())
        .filter(|&peer| transport.node_of(peer) == node)
        .collect();
    let seen = Seen::own();
    let told: Option<Vec<CoreSet>> = on_node
        .iter()
        .map(|&peer| CoreSet::of(transport.process_of(peer)?))
        .collect();
    match (told, CoreSet::of(0)) {
        (Some(sets), Some(own)) => {
            let quota = (seen.allowed < own.len()).then_some(seen.allowed);
            Placement::new(sets, own).crowded(quota)
        }
        _ => on_node.len() > seen.shared(),
    }
}

/// The processor that the calling thread runs on; `None` if the system does not tell.
#[cfg(target_os = "linux")]
#[inline]
pub(in crate::engine) fn current() -> Option<u32> {
    // SAFETY: it has no arguments, and touches none of the program's memory.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

#[cfg(not(target_os = "linux"))]
pub(in crate::engine) fn current() -> Option<u32> {
    None
}

/// A set of processors, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CoreSet([u64; CoreSet::WORDS]);

impl CoreSet {
    /// Room for as many processors as the system's own type.
    const WORDS: usize = 16;

    /// The processors that a process's first thread may run on (0: the calling thread); `None` if
    /// the system does not tell.
    #[cfg(target_os = "linux")]
    fn of(pid: u32) -> Option<Self> {
        let id = libc::pid_t::try_from(pid).ok()?;
        let mut words = [0_u64; Self::WORDS];
        // SAFETY: the words are writable, and their size is given; the system writes bits into
        // them.
        let told = unsafe {
            libc::sched_getaffinity(
                id,
                size_of_val(&words),
                words.as_mut_ptr().cast::<libc::cpu_set_t>(),
            )
        };
        (told == 0).then_some(Self(words))
    }

    #[cfg(not(target_os = "linux"))]
    fn of(_pid: u32) -> Option<Self> {
        None
    }

    fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }

    fn join(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }
}

/// Where the ranks of a node may run.
struct Placement {
    own: CoreSet,
    /// Each distinct set, with the number of ranks that have it.
    sets: Vec<(CoreSet, usize)>,
}

impl Placement {
    fn new(all: Vec<CoreSet>, own: CoreSet) -> Self {
        let mut sets: Vec<(CoreSet, usize)> = Vec::new();
        for set in all {
            match sets.iter_mut().find(|(known, _)| *known == set) {
                Some((_, count)) => *count += 1,
                None => sets.push((set, 1)),
            }
        }
        Self { own, sets }
    }

    /// Whether the ranks that may run only on this rank's cores outnumber these cores; or whether
    /// the ranks that compete with it for cores, directly or through others, outnumber all of their
    /// cores. `quota`: the number of cores' worth of time that all ranks have together.
    fn crowded(&self, quota: Option<usize>) -> bool {
        let count = |belongs: &dyn Fn(&CoreSet) -> bool| -> usize {
            let those = self.sets.iter().filter(|(set, _)| belongs(set));
            those.map(|(_, count)| count).sum()
        };
        let mut rivals = self.own;
        for _ in 0..self.sets.len() {
            for (set, _) in &self.sets {
                if set.meets(&rivals) {
                    rivals.join(set);
                }
            }
        }
        count(&|set| set.is_within(&self.own)) > self.own.len()
            || count(&|set| set.is_within(&rivals)) > rivals.len()
            || quota.is_some_and(|quota| count(&|_| true) > quota)
    }
}

/// What a rank that knows nothing of the others sees: on how many cores it, its process and its
/// parent may run; `None` where the system does not tell.
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
    fn own() -> Self {
        Self {
            allowed: std::thread::available_parallelism().map_or(1, usize::from),
            thread: affinity(Of::Thread),
            process: affinity(Of::Process),
            parent: affinity(Of::Parent),
            first_thread: is_first_thread(),
        }
    }

    /// The number of cores that the ranks of this node may run on, as far as this one can see. This
    /// rank may be bound to a core of its own. What it is allowed then says nothing about the
    /// others, and what its process, or its parent, is allowed says more. (If several ranks are
    /// bound to one core while other cores are idle, the rank does not see that, and spins before
    /// it gives the core away.)
    fn shared(self) -> usize {
        // A process with one core may be one of several ranks that a launcher has bound. But if
        // this rank is a further thread of the process, its fellow ranks are threads there too, and
        // have no more cores than the process.
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

/// Whose set of processors to ask for.
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
    let id = match of {
        Of::Thread => 0,
        Of::Process => std::process::id(),
        Of::Parent => std::os::unix::process::parent_id(),
    };
    CoreSet::of(id).map(|set| set.len())
}

#[cfg(not(target_os = "linux"))]
fn affinity(_of: Of) -> Option<usize> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The cores that all ranks share: `allowed` for this thread, and the numbers of cores of the
    /// thread, its process and its parent.
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
        // A process that a launcher has bound to one core, like other processes to others.
        assert_eq!(shared(1, [1, 1, 8], true), 8);
        // `taskset -c 0` around a job of threads: all of them have that core.
        assert_eq!(shared(1, [1, 1, 8], false), 1);
        // A rank that is a thread and is bound to one of its process's cores.
        assert_eq!(shared(1, [1, 4, 8], false), 4);
        // A process that was given two cores of eight, and its threads.
        assert_eq!(shared(2, [2, 2, 8], true), 2);
    }

    /// Whether the first rank is crowded, given the cores of each rank.
    fn crowded(ranks: &[u64], quota: Option<usize>) -> bool {
        let set = |&bits: &u64| {
            let mut words = [0; CoreSet::WORDS];
            words[0] = bits;
            CoreSet(words)
        };
        let sets: Vec<CoreSet> = ranks.iter().map(set).collect();
        let own = sets[0];
        Placement::new(sets, own).crowded(quota)
    }

    #[test]
    fn ranks_are_crowded_where_their_cores_are_too_few() {
        // Each rank has a core of its own.
        assert!(!crowded(&[0b01, 0b10], None));
        // Both on one core, while the other is idle.
        assert!(crowded(&[0b01, 0b01], None));
        assert!(crowded(&[0b01, 0b01, 0b10], None));
        assert!(!crowded(&[0b10, 0b01, 0b01], None));
        // Bound nowhere.
        assert!(!crowded(&[0b11, 0b11], None));
        assert!(crowded(&[0b11, 0b11, 0b11], None));
        // A rank that may run everywhere has no core to itself, and takes time from the ranks that
        // are bound.
        assert!(crowded(&[0b11, 0b01, 0b10], None));
        assert!(crowded(&[0b01, 0b11, 0b10], None));
        // Chains of overlapping sets: with a core for each rank, and with one core too few.
        assert!(!crowded(&[0b0011, 0b0110, 0b1100], None));
        assert!(crowded(&[0b0001, 0b0011, 0b0110, 0b0100], None));
        // Enough cores for all of them, but a quota that is less.
        assert!(crowded(&[0b1111, 0b1111, 0b1111], Some(2)));
        assert!(!crowded(&[0b1111, 0b1111], Some(2)));
    }

    #[test]
    fn the_current_processor_is_one_of_the_set() {
        let own = CoreSet::of(0).expect("a set");
        let current = current().expect("a processor") as usize;
        assert!(own.0[current / 64] >> (current % 64) & 1 == 1, "{current}");
    }

    #[test]
    fn the_system_tells_the_cores_of_a_process() {
        let own = CoreSet::of(std::process::id()).expect("a set");
        assert!(own.len() > 0 && own.is_within(&own) && own.meets(&own));
        assert_eq!(CoreSet::of(u32::MAX), None);
    }

    /// A thread that is a rank, bound to one core, still shares all of them with the others.
    #[test]
    fn a_bound_rank_counts_the_cores_of_all() {
        let unbound = Seen::own().shared();
        let bound = std::thread::spawn(|| {
            // SAFETY: a set is an array of numbers, for which zero is valid.
            let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: the set is writable, and its size is given.
            let told = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
            assert_eq!(told, 0, "the system does not tell");
            let is_set = |&cpu: &usize| {
                // SAFETY: every number asked about is within the set.
                unsafe { libc::CPU_ISSET(cpu, &set) }
            };
            let first = (0..8 * size_of_val(&set)).find(is_set);
            // SAFETY: the number is within the set, which is emptied first.
            unsafe {
                libc::CPU_ZERO(&mut set);
                libc::CPU_SET(first.expect("a processor"), &mut set);
            }
            // SAFETY: the set is initialised, and its size is given.
            let done = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
            assert_eq!(done, 0, "the system does not bind");
            assert_eq!(affinity(Of::Thread), Some(1));
            Seen::own().shared()
        });
        // Where a quota allows less than the set, the bound thread does not see that.
        assert!(bound.join().expect("the bound thread") >= unbound);
    }
}
