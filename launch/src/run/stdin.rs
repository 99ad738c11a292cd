//! The terminal as rank 0's standard input.
//!
//! A file or a pipe is simply inherited. A terminal is not: the ranks are in a background process
//! group, and the kernel would stop rank 0 when it reads. So the launcher, which is in the
//! foreground, reads for it.

use std::fs::File;
use std::io::{self, IsTerminal, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Stdio;

use crate::os::{Interest, is_controlled_by, is_in_foreground};

/// Passes typed input on to rank 0.
pub(super) struct Terminal {
    terminal: File,
    rank: PipeWriter,
    /// Input that has not been passed on yet: at most a page, which a writable pipe takes at once.
    typed: Vec<u8>,
}

/// Rank 0's standard input, and, if it is a terminal, the [`Terminal`] that passes input on to it.
pub(super) fn for_rank_0() -> io::Result<(Stdio, Option<Terminal>)> {
    if !io::stdin().is_terminal() {
        return Ok((Stdio::inherit(), None));
    }
    let (read, rank) = io::pipe()?;
    let terminal = io::stdin().as_fd().try_clone_to_owned()?.into();
    let pump = Terminal {
        terminal,
        rank,
        typed: Vec::new(),
    };
    Ok((read.into(), Some(pump)))
}

impl Terminal {
    /// The descriptor and event to wait for; `None` while the launcher is in the background, where
    /// it may not read.
    ///
    /// Nothing tells a process that it has come to the foreground (a shell sends `SIGCONT` only to
    /// stopped processes), so the event loop must ask again from time to time.
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        if !self.typed.is_empty() {
            return Some((self.rank.as_fd(), Interest::Write));
        }
        let terminal = self.terminal.as_fd();
        is_in_foreground(terminal).then_some((terminal, Interest::Read))
    }

    /// Handles the event for which [`interest`](Self::interest) asked; `None` at the end of input.
    pub(super) fn turn(mut self) -> Option<Self> {
        self.pass_on().then_some(self)
    }

    fn pass_on(&mut self) -> bool {
        if !self.typed.is_empty() {
            let written = self.rank.write(&self.typed);
            return written.map(|n| drop(self.typed.drain(..n))).is_ok();
        }
        let mut page = [0; 4096];
        match self.terminal.read(&mut page) {
            Ok(0) => false,
            Ok(n) => {
                self.typed.extend(&page[..n]);
                true
            }
            // EIO: either the launcher has gone to the background since `interest` asked, or the
            // terminal has hung up and there is nothing more to read.
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => true,
                Some(libc::EIO) => is_controlled_by(self.terminal.as_fd()),
                _ => false,
            },
        }
    }
}
