//! Checks that there is enough memory for what the ranks are to share.
//!
//! The check comes before an extent is allocated, because afterwards it is too late: see
//! [`memory_left`].

use portolan_core::memory_left::{self, Room};
use portolan_core::{Error, ErrorKind, Result};

/// Bytes that are left over for everything else.
const MARGIN: u64 = 4 << 20;

/// Fails if there is no room for `need` bytes for `what`.
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
}
