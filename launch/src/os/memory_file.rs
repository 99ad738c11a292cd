//! A file in memory, without a name in any file system.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Creates an empty file that can be sealed. It disappears with its last descriptor and mapping.
///
/// `name` is only for people who look into `/proc`.
pub(crate) fn memory_file(name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string that outlives the call.
    let fd = super::check(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
    // SAFETY: the call above has made this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
