//! Making, sealing, mapping and checking the memory file.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

use portolan_core::transport::WIRE_VERSION;
use portolan_core::{Error, ErrorKind, Result};

use super::Segment;
use super::extent::{PAGE, allocate};
use super::layout::{Head, MAGIC, PROBE, data_start, layout_hash};
use crate::memory_limit;
use crate::ring::{MAX_CELLS, MIN_CELLS};
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// Sizes that all ranks of a job share. The rank that makes the segment chooses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Cells of a ring; a power of two.
    pub(crate) ring_cells: u32,
    /// Bytes of a pair's bulk area; a multiple of the page size.
    pub(crate) bulk_bytes: u64,
    /// Size of the sparse file in bytes.
    pub(crate) total: u64,
}

/// A fresh memory file without a name, of size 0.
pub(crate) fn memory_file() -> Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the arguments are a C string and flags.
    let fd = unsafe { libc::memfd_create(c"portolan".as_ptr(), flags) };
    if fd < 0 {
        return Err(refused(
            "memfd_create",
            "this needs Linux 3.17 and /proc/sys/vm/memfd_noexec below 2",
        ));
    }
    // SAFETY: a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Segment {
    /// Sizes and seals an empty memory file, and writes the head for `ranks` ranks.
    pub(crate) fn prepare(file: OwnedFd, ranks: u32, geometry: Geometry) -> Result<Self> {
        let start = data_start(ranks);
        if geometry.total < start + PAGE {
            return Err(Error::new(
                ErrorKind::InvalidSetting,
                format!(
                    "a segment of {} bytes is too small for {ranks} ranks, which need {} and memory for rings",
                    geometry.total, start
                ),
            )
            .remedy("raise PORTOLAN_SHM_MAX, or unset it"));
        }
        if let Some(limit) = longest_file().filter(|limit| *limit < geometry.total) {
            return Err(Error::new(
                ErrorKind::Exhausted,
                format!(
                    "a segment of {} bytes is longer than this process may make a file ({limit} bytes, ulimit -f)",
                    geometry.total
                ),
            )
            .remedy("raise ulimit -f, or lower PORTOLAN_SHM_MAX")
            .on_device("shm"));
        }
        // SAFETY: a descriptor and a length.
        if unsafe { libc::ftruncate(file.as_raw_fd(), geometry.total as libc::off_t) } != 0 {
            return Err(refused(
                "ftruncate of the segment",
                "lower PORTOLAN_SHM_MAX",
            ));
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: a descriptor and flags.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(refused(
                "sealing the segment",
                "the launcher must create it with MFD_ALLOW_SEALING",
            ));
        }
        memory_limit::check(start, "the segment's head")?;
        allocate(file.as_raw_fd(), 0, start)?;
        let segment = map(file, geometry.total as usize, ranks)?;
        let head = segment.head();
        head.wire.store(WIRE_VERSION, Relaxed);
        head.ranks.store(ranks, Relaxed);
        head.layout.store(layout_hash(), Relaxed);
        head.total.store(geometry.total, Relaxed);
        head.ring_cells.store(geometry.ring_cells, Relaxed);
        head.bulk_bytes.store(geometry.bulk_bytes, Relaxed);
        head.used.0.store(start, Relaxed);
        for rank in 0..ranks {
            segment.rank(rank).identity.probe.store(PROBE, Relaxed);
        }
        // SYNC: publishes the head to the Acquire load in `attach`.
        head.magic.store(MAGIC, Release);
        Ok(segment)
    }

    /// Maps a segment that another rank has prepared, after checking that it is for `ranks` ranks
    /// and was made by a build with the same layout.
    pub(crate) fn attach(file: OwnedFd, ranks: u32) -> Result<Self> {
        let total = sealed_size(&file)?;
        if total < data_start(ranks) as usize {
            return Err(unusable(format!(
                "a file of {total} bytes is too small for {ranks} ranks"
            )));
        }
        let segment = map(file, total, ranks)?;
        let head = segment.head();
        // SYNC: pairs with the Release store in `prepare`.
        let magic = head.magic.load(Acquire);
        if magic != MAGIC {
            return Err(unusable(format!("it begins with {magic:#x}")));
        }
        let (wire, layout) = (head.wire.load(Relaxed), head.layout.load(Relaxed));
        if (wire, layout) != (WIRE_VERSION, layout_hash()) {
            return Err(unusable(format!(
                "it has wire version {wire} and layout {layout:#x}, this program {WIRE_VERSION} and {:#x}",
                layout_hash()
            ))
            .remedy("start all ranks from builds of one version"));
        }
        if head.ranks.load(Relaxed) != ranks || head.total.load(Relaxed) != total as u64 {
            return Err(unusable(format!(
                "it is for {} ranks, this job has {ranks}",
                head.ranks.load(Relaxed)
            )));
        }
        segment.geometry()?;
        Ok(segment)
    }

    /// The sizes chosen by the rank that made the segment, after checks.
    pub(crate) fn geometry(&self) -> Result<Geometry> {
        let head = self.head();
        let geometry = Geometry {
            ring_cells: head.ring_cells.load(Relaxed),
            bulk_bytes: head.bulk_bytes.load(Relaxed),
            total: self.total as u64,
        };
        let cells = geometry.ring_cells;
        let sound = cells.is_power_of_two()
            && (MIN_CELLS..=MAX_CELLS).contains(&cells)
            && geometry.bulk_bytes.is_multiple_of(PAGE)
            && (1 << 12..=1 << 32).contains(&geometry.bulk_bytes);
        if sound {
            Ok(geometry)
        } else {
            Err(unusable(format!("its sizes make no sense: {geometry:?}")))
        }
    }
}

/// The longest file that this process may make, if there is a limit. A signal ends a process that
/// makes a longer one, even where the file is in memory.
pub(crate) fn longest_file() -> Option<u64> {
    limit_of(libc::RLIMIT_FSIZE)
}

/// The address space that this process may have, if there is a limit.
pub(crate) fn address_space() -> Option<u64> {
    limit_of(libc::RLIMIT_AS)
}

fn limit_of(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for the result.
    let known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The size of a memory file, which must be sealed against shrinking and growing.
fn sealed_size(file: &OwnedFd) -> Result<usize> {
    // SAFETY: a descriptor.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    if seals < 0 || seals & needed != needed {
        return Err(unusable(
            "the file handed over is not a sealed memory file".to_owned(),
        ));
    }
    // SAFETY: all zero is a valid `stat`, which the call overwrites.
    let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
    // SAFETY: a descriptor and room for the result.
    if unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(refused("fstat of the segment", "see the system's text"));
    }
    usize::try_from(stat.st_size).map_err(|_| unusable(format!("its size is {}", stat.st_size)))
}

fn map(file: OwnedFd, total: usize, ranks: u32) -> Result<Segment> {
    debug_assert!(total >= size_of::<Head>());
    // SAFETY: a fresh mapping of a file at an address that the kernel chooses.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            total,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(refused(
            &format!("mapping {total} bytes of the segment"),
            "lower PORTOLAN_SHM_MAX or raise the limit of address space (ulimit -v)",
        ));
    }
    // A core dump reads all of a mapping, and reading allocates the pages of a sparse file: the
    // dump of a process that crashes would use up the machine's memory.
    // SAFETY: the mapping that was just made. The advice changes no contents; if it is refused,
    // dumps stay as large as they are.
    unsafe { libc::madvise(base, total, libc::MADV_DONTDUMP) };
    Ok(Segment {
        base: base.cast(),
        total,
        ranks,
        file,
        allocating: Mutex::default(),
    })
}

fn refused(what: &str, remedy: &str) -> Error {
    let error = io::Error::last_os_error();
    let kind = match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE) => ErrorKind::Exhausted,
        _ => ErrorKind::TransportUnavailable,
    };
    Error::new(kind, format!("{what} was refused: {error}"))
        .remedy(remedy)
        .on_device("shm")
}

fn unusable(why: String) -> Error {
    Error::new(
        ErrorKind::TransportUnavailable,
        format!("the shared segment of this job cannot be used: {why}"),
    )
    .on_device("shm")
}
