//! The operating system's calls that the launcher needs, each behind a safe function.
//!
//! **Invariant:** the only `unsafe` code of the launcher is in this folder. The launcher has one
//! thread, which is why it may fork without `exec` ([`Guard`]) and why blocked signals stay
//! blocked for all of it ([`Signals`]).

mod child;
mod clock;
mod guard;
mod limits;
mod memory_file;
mod poll;
mod process;
mod signals;
mod terminal;

pub(crate) use child::{ChildSetup, bind, end_with_this_process};
pub(crate) use clock::monotonic_nanoseconds;
pub(crate) use guard::Guard;
pub(crate) use limits::{CpuSet, allowed_cpus, limit_memlock, limit_open_files};
pub(crate) use memory_file::memory_file;
pub(crate) use poll::{Interest, poll};
pub(crate) use process::{
    Status, adopt_orphans, adopted_children, await_end, catches, descendants, group_of, has_gone,
    is_exiting, is_root, kill, kill_and_wait, kill_group, reap, stop, stop_self, was_given,
};
pub(crate) use signals::{SignalMask, Signals, hear_of_children, signal_name};
#[cfg(test)]
pub(crate) use terminal::pseudoterminal;
pub(crate) use terminal::{is_controlled_by, is_in_foreground, opened_without_waiting};

use std::io;

/// The result of a call that returns −1 and sets `errno`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// [`check`], repeated while a signal interrupts the call.
fn retry(mut call: impl FnMut() -> libc::c_int) -> io::Result<libc::c_int> {
    loop {
        match check(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
