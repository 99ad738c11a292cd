//! Checks that there is enough memory for what the ranks are to share.
//!
//! The check comes before an extent is allocated, because afterwards it is too late: see
//! [`memory_left`]. The answer takes the system a tenth of a millisecond, and ranks that begin to
//! talk need two extents for each pair. So whoever asks may find an [`Allowance`] left for the next
//! extents.

use std::time::Duration;

use portolan_core::memory_left::{self, Room};
use portolan_core::{Error, ErrorKind, Result};

use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// Bytes that are left over for everything else.
const MARGIN: u64 = 4 << 20;
/// What may be allocated without asking again: this part of what is left, within this bound, and
/// for so long. (Memory is used for other things, too, but hardly sixty times as much in that time:
/// ranks that fill arrays of their own use 10 GB a second, or 0.1 GB in it.)
const PART: u64 = 64;
const MOST: u64 = 64 << 20;
const LASTS: Duration = Duration::from_millis(10);

/// How much the ranks of a segment may still allocate before one of them has to ask the system
/// again: a part of the segment's head, used by the rank whose turn it is to allocate. All zeros
/// mean nothing.
///
/// All accesses are Relaxed: turns order them. (Where ranks cannot take turns, each takes from
/// `bytes` in one step.)
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Allowance {
    bytes: AtomicU64,
    /// When the system said so, in nanoseconds of the monotonic clock.
    since: AtomicU64,
    /// [`memory_left::groups_id`] of the rank that was told. Ranks of other control groups have
    /// other limits. (A rank that is moved to another group later keeps the number it had.)
    groups: AtomicU64,
}

impl Allowance {
    /// Fails if there is no room for `need` bytes for `what`. What it allows counts as allocated.
    pub(crate) fn take(&self, need: u64, what: &str) -> Result<()> {
        // 0 until it is known. Relaxed: it is the same number whoever finds it out. (A `OnceLock`
        // looks like a data race to the thread sanitizer, which does not see into the standard
        // library.)
        static GROUPS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let groups = match GROUPS.load(Relaxed) {
            0 => {
                let found = memory_left::groups_id();
                GROUPS.store(found, Relaxed);
                found
            }
            known => known,
        };
        self.take_at(need, what, (now(), groups), memory_left::room)
    }

    fn take_at(
        &self,
        need: u64,
        what: &str,
        (now, groups): (u64, u64),
        ask: impl FnOnce() -> Option<Room>,
    ) -> Result<()> {
        // A clock that goes back is another one: that of a rank in another container.
        let age = now.checked_sub(self.since.load(Relaxed));
        let holds = self.groups.load(Relaxed) == groups
            && age.is_some_and(|age| u128::from(age) < LASTS.as_nanos());
        let less = |bytes: u64| bytes.checked_sub(need);
        if holds && self.bytes.fetch_update(Relaxed, Relaxed, less).is_ok() {
            return Ok(());
        }
        self.bytes.store(0, Relaxed);
        let room = ask();
        let left = room.as_ref().map_or(u64::MAX, |room| room.bytes);
        check_against(need, what, room)?;
        self.since.store(now, Relaxed);
        self.groups.store(groups, Relaxed);
        let rest = left.saturating_sub(need.saturating_add(MARGIN)) / PART;
        self.bytes.store(rest.min(MOST), Relaxed);
        Ok(())
    }
}

/// The monotonic clock, which all processes of a machine (or of a container) share.
fn now() -> u64 {
    // SAFETY: plain old data, for which zeros are legal.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to the record, which lives as long as the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Fails if there is no room for `need` bytes for `what`. Asks the system.
pub(crate) fn check(need: u64, what: &str) -> Result<()> {
    check_against(need, what, memory_left::room())
}

fn check_against(need: u64, what: &str, room: Option<Room>) -> Result<()> {
    let Some(room) = room else { return Ok(()) };
    if need.saturating_add(MARGIN) <= room.bytes {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Exhausted,
        format!("{what} needs {need} bytes of shared memory, but {} are left by {}", room.bytes, room.by),
    )
    .remedy("free memory, raise that limit, start fewer ranks, or set smaller PORTOLAN_SHM_RING and PORTOLAN_SHM_BULK")
    .on_device("shm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_names_need_have_and_remedy() {
        let room = Some(Room {
            bytes: 5 << 20,
            by: "the control group's limit".into(),
        });
        assert!(check_against(1 << 20, "a ring", room.clone()).is_ok());
        let error = check_against(2 << 20, "a ring", room).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        let text = error.to_string();
        assert!(
            text.contains("a ring needs 2097152 bytes") && text.contains("5242880"),
            "{text}"
        );
        assert!(text.contains("PORTOLAN_SHM_RING"), "{text}");
        // Without a known limit, nothing is refused.
        assert!(check_against(u64::MAX, "x", None).is_ok());
    }

    fn nothing() -> Allowance {
        Allowance {
            bytes: AtomicU64::new(0),
            since: AtomicU64::new(0),
            groups: AtomicU64::new(0),
        }
    }

    fn room(bytes: u64) -> Option<Room> {
        let by = "a test's limit".into();
        Some(Room { bytes, by })
    }

    /// Takes, and returns whether that was allowed and whether the system was asked.
    fn take(allowance: &Allowance, need: u64, at: (u64, u64), left: u64) -> (bool, bool) {
        let mut asked = false;
        let ask = || {
            asked = true;
            room(left)
        };
        let allowed = allowance.take_at(need, "a test", at, ask).is_ok();
        (allowed, asked)
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_part_of_what_is_left_is_allowed_without_asking() {
        let allowance = nothing();
        let left = 5 * MIB + 64 * 10 * MIB;
        assert_eq!(take(&allowance, MIB, (1, 7), left), (true, true));
        for _ in 0..10 {
            assert_eq!(take(&allowance, MIB, (2, 7), 0), (true, false));
        }
        assert_eq!(take(&allowance, MIB, (2, 7), 0), (false, true), "used up");
        assert_eq!(take(&allowance, MIB, (2, 7), left), (true, true));
        assert_eq!(take(&allowance, 11 * MIB, (2, 7), left), (true, true));
    }

    #[test]
    fn however_much_is_left_the_allowance_is_limited() {
        for left in [1 << 50, u64::MAX] {
            let allowance = nothing();
            assert_eq!(take(&allowance, 1, (1, 7), left), (true, true));
            assert_eq!(take(&allowance, MOST, (1, 7), left), (true, false));
            assert_eq!(take(&allowance, 1, (1, 7), left), (true, true));
        }
        let allowance = nothing();
        let unlimited = || None;
        assert!(allowance.take_at(1, "x", (1, 7), unlimited).is_ok());
        assert_eq!(take(&allowance, MOST, (1, 7), 0), (true, false));
    }

    #[test]
    fn an_allowance_of_other_control_groups_or_of_long_ago_does_not_count() {
        let lasts = LASTS.as_nanos() as u64;
        let begin = 5 * lasts;
        for (at, asks) in [
            ((begin, 7), false),
            ((begin + lasts - 1, 7), false),
            ((begin + lasts, 7), true),
            ((begin - 1, 7), true),
            ((begin, 8), true),
        ] {
            let allowance = nothing();
            assert_eq!(take(&allowance, 1, (begin, 7), 1 << 40), (true, true));
            assert_eq!(take(&allowance, 1, at, 1 << 40), (true, asks), "{at:?}");
        }
    }

    #[test]
    fn a_refusal_leaves_nothing() {
        let allowance = nothing();
        assert_eq!(take(&allowance, 1, (1, 7), 1 << 40), (true, true));
        assert_eq!(take(&allowance, 1 << 40, (1, 7), 1 << 30), (false, true));
        assert_eq!(take(&allowance, 1, (1, 7), 0), (false, true));
    }
}
