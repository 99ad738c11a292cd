//! The resources that the system grants a process.

use std::io;
use std::mem::MaybeUninit;

use super::check;

/// A set of processors.
#[derive(Clone)]
pub(crate) struct CpuSet(libc::cpu_set_t);

impl CpuSet {
    /// The set of exactly these processors. Numbers beyond the capacity of a set are left out.
    pub(crate) fn of(cpus: impl IntoIterator<Item = usize>) -> Self {
        // SAFETY: a cpu_set_t is an array of numbers, for which zero is valid: the empty set.
        let mut set: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
        for cpu in cpus.into_iter().filter(|&cpu| cpu < Self::room()) {
            // SAFETY: `cpu` is within the set.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        Self(set)
    }

    /// Binds the calling thread to the set. Usable between fork and exec.
    pub(crate) fn bind_self(&self) -> io::Result<()> {
        // SAFETY: the set is initialised, and its size is given.
        check(unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) })
            .map(drop)
    }

    fn room() -> usize {
        8 * size_of::<libc::cpu_set_t>()
    }
}

/// The processors that this process may run on, in ascending order.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    let mut set = CpuSet::of([]);
    // SAFETY: the set is writable, and its size is given.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&set.0), &raw mut set.0) })?;
    let has = |&cpu: &usize| {
        // SAFETY: every number asked about is within the set.
        unsafe { libc::CPU_ISSET(cpu, &set.0) }
    };
    Ok((0..CpuSet::room()).filter(has).collect())
}

/// The memory in bytes that this process may lock; `None` means no limit.
pub(crate) fn limit_memlock() -> Option<u64> {
    soft_limit(libc::RLIMIT_MEMLOCK)
}

/// The number of descriptors that this process may have open; `None` means no limit.
pub(crate) fn limit_open_files() -> Option<u64> {
    soft_limit(libc::RLIMIT_NOFILE)
}

fn soft_limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable. The call fails only for resources that do not exist.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
