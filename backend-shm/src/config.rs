//! Settings of this transport: taken from the job's settings table, and rounded to sizes that it
//! can use.

use portolan_core::config::{Settings, Switch};
use portolan_core::lines;

use crate::ring::{CELL, MAX_CELLS, MIN_CELLS};
use crate::segment::Geometry;

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
    /// Size of the sparse memory file in bytes; 0 chooses twice the machine's memory.
    pub max: usize,
    /// Largest message, in bytes, that is sent eagerly; 0 chooses the transport's default.
    pub eager: usize,
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
            max: settings.shm_max(),
            eager: settings.eager_max(),
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
                twice_the_memory()
            } else {
                (self.max as u64).next_multiple_of(4096)
            },
        }
    }
}

/// Twice the memory of the machine, and at least 1 GiB. The file is sparse, so this costs address
/// space only; the real limits are checked before every extent.
fn twice_the_memory() -> u64 {
    // SAFETY: both calls only read constants of the system.
    let (pages, page) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    let bytes = u64::try_from(pages)
        .unwrap_or(0)
        .saturating_mul(u64::try_from(page).unwrap_or(0));
    bytes
        .saturating_mul(2)
        .max(1 << 30)
        .next_multiple_of(1 << 20)
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
        assert!(Config::default().geometry().total >= 1 << 30);
    }
}
