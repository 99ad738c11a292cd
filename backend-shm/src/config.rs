//! Settings of this transport: taken from the job's settings table, and rounded to sizes that it
//! can use.

use portolan_core::config::{Settings, Switch};
use portolan_core::lines;

use crate::ring::{CELL, MAX_CELLS, MIN_CELLS};
use crate::segment::{Geometry, PAGE, address_space, longest_file};

/// When a receiver reads a sender's buffer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Cma {
    /// Where it is measured to be faster.
    #[default]
    Auto,
    /// Whenever the system allows it.
    On,
    /// Never.
    Off,
}

/// Sizes and choices of the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a pair's ring; rounded up to a power of two.
    pub ring: usize,
    /// Bytes of a pair's bulk area; rounded up to a power of two.
    pub bulk: usize,
    /// Size of the sparse memory file in bytes; 0 chooses twice the machine's memory, or less where
    /// the process's limits are lower.
    pub max: usize,
    /// Largest message, in bytes, that is sent eagerly; 0 chooses the transport's default.
    pub eager: usize,
    /// Shortest allocation, in bytes, that a [`SharedAllocator`](crate::SharedAllocator) takes from
    /// the segment; at least a page.
    pub alloc_min: usize,
    /// When a receiver reads a sender's buffer itself.
    pub cma: Cma,
    /// Whether a receiver takes the cache lines of a payload that it has read ([`lines`]).
    pub take: bool,
    /// Whether payloads of 2 to 4 KiB are copied by words where that is faster ([`lines`]). There
    /// is no setting for it: the processor's family decides.
    pub by_words: bool,
    /// Use a fence in every send rather than `membarrier` in every sleep, as if the kernel had
    /// refused the latter.
    pub fenced: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ring: 64 << 10,
            bulk: 256 << 10,
            max: 0,
            eager: 0,
            alloc_min: 8 << 10,
            cma: Cma::Auto,
            take: lines::better_taken(),
            by_words: lines::better_by_words(),
            fenced: false,
        }
    }
}

impl Config {
    /// Reads the configuration of this transport from the job's settings.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> Self {
        Self {
            ring: settings.shm_ring(),
            bulk: settings.shm_bulk(),
            max: settings.shm_max().unwrap_or(0),
            eager: settings.eager_max(),
            alloc_min: settings.shm_alloc_min(),
            cma: match settings.shm_cma() {
                Switch::Auto => Cma::Auto,
                Switch::On => Cma::On,
                Switch::Off => Cma::Off,
            },
            take: lines::taken(settings),
            by_words: lines::better_by_words(),
            fenced: false,
        }
    }

    /// The sizes that the ranks share.
    pub(crate) fn geometry(&self) -> Geometry {
        let cells = (self.ring / CELL).clamp(MIN_CELLS as usize, MAX_CELLS as usize);
        Geometry {
            ring_cells: (cells as u32).next_power_of_two(),
            bulk_bytes: self.bulk.clamp(32 << 10, 1 << 30).next_power_of_two() as u64,
            total: if self.max == 0 {
                largest(memory(), longest_file(), address_space())
            } else {
                (self.max as u64).next_multiple_of(4096)
            },
        }
    }
}

/// The size of the file if none is given: twice the `memory`, within the longest file that the
/// process may make and half of its address space, the rest of which the program needs.
///
/// It is at least 1 GiB. With lower limits the job does not start, and the error names them; a
/// smaller file would be full soon.
fn largest(memory: u64, longest_file: Option<u64>, address_space: Option<u64>) -> u64 {
    /// The largest value of the setting.
    const MOST: u64 = 1 << 46;
    let half = address_space.map(|bytes| bytes / 2);
    let limits = longest_file.into_iter().chain(half);
    let least = limits.chain([memory.saturating_mul(2), MOST]).min();
    let pages = least.unwrap_or(MOST) / PAGE * PAGE;
    pages.max(1 << 30)
}

/// The memory of the machine. A file of more costs address space only: it is sparse, and what is
/// left is checked before every extent.
fn memory() -> u64 {
    // SAFETY: both calls only read constants of the system.
    let (pages, page) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    u64::try_from(pages)
        .unwrap_or(0)
        .saturating_mul(u64::try_from(page).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_sizes_become_usable_ones() {
        let config = Config {
            ring: 1,
            bulk: 100_000,
            max: 5_000_000,
            ..Config::default()
        };
        let geometry = config.geometry();
        assert_eq!(geometry.ring_cells, MIN_CELLS);
        assert_eq!(geometry.bulk_bytes, 131_072);
        assert_eq!(geometry.total % 4096, 0);
    }

    #[test]
    fn by_default_the_file_is_larger_than_the_machine() {
        let settings = Config::from_settings(&Settings::default());
        assert_eq!(settings.max, 0, "the setting has no other default");
        let total = settings.geometry().total;
        assert!(total >= 1 << 30);
        if longest_file().is_none() && address_space().is_none() {
            assert!(total >= (2 * memory()).min(1 << 46));
        }
    }

    #[test]
    fn the_file_is_as_long_as_memory_and_limits_allow() {
        const G: u64 = 1 << 30;
        for (memory, file, space, total) in [
            (1 << 40, None, None, 2 << 40),
            (64 * G, Some(50 * G), None, 50 * G),
            (64 * G, None, Some(20 * G), 10 * G),
            (64 * G, Some(50 * G + 1), Some(60 * G), 30 * G),
            (64 * G, Some(50 * G + 1), None, 50 * G),
            // Lower limits are errors when the file is made.
            (64 * G, Some(1 << 20), None, G),
            (G / 4, None, None, G),
            (u64::MAX, None, None, 1 << 46),
        ] {
            assert_eq!(largest(memory, file, space), total, "{file:?} {space:?}");
        }
    }
}
