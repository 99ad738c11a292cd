//! Requests for more memory than there is.

use std::io::Write;

use portolan::{ErrorKind, Result, World};

use crate::common::jobs;

/// 64 TiB of addresses without memory behind them: no machine has twice as much for two ranks.
struct Vast(*mut u8);

// SAFETY: no code writes to it.
unsafe impl Sync for Vast {}

impl Vast {
    const LEN: usize = 1 << 46;

    fn new() -> Option<Self> {
        let (read, flags) = (
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping, wherever there is room.
        let ptr = unsafe { libc::mmap(std::ptr::null_mut(), Self::LEN, read, flags, -1, 0) };
        (ptr != libc::MAP_FAILED).then(|| Self(ptr.cast()))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: it is mapped for as long as this lives, and reads as zeros.
        unsafe { std::slice::from_raw_parts(self.0, Self::LEN) }
    }
}

impl Drop for Vast {
    fn drop(&mut self) {
        // SAFETY: it is the whole mapping, and no slice of it is left.
        unsafe { libc::munmap(self.0.cast(), Self::LEN) };
    }
}

#[test]
fn vectors_for_which_there_is_no_room_are_an_error_on_every_rank() {
    let Some(vast) = Vast::new() else {
        let why = "skipped: vectors without room: there are no 64 TiB of addresses";
        // (Written directly, because the test harness captures printed output.)
        let _ = writeln!(std::io::stdout(), "{why}");
        return;
    };
    jobs(&[2, 3], |world: World| -> Result<()> {
        let comm = world.comm();
        let last = comm.size() - 1;
        let errors = [
            comm.gather_vecs(vast.bytes(), last).map(drop),
            comm.allgather_vecs(vast.bytes()).map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        }
        // No rank is behind.
        assert_eq!(
            comm.allgather_vecs(&[comm.rank()])?.len(),
            comm.size() as usize
        );
        comm.barrier()
    });
}
