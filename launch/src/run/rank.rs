//! One rank, as the launcher sees it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use portolan_core::job::pmi1::{Lines, Message};

use super::output::LabelledPipe;

/// How much is read from one rank before other ranks and signals have their turn: more than can be
/// left in the socket of a rank that has ended.
const AT_ONCE: usize = 16 << 20;

/// A rank's process and its connections.
pub(super) struct Rank {
    pub(super) number: u32,
    pub(super) pid: i32,
    /// Whether the process runs, as far as the launcher has seen.
    pub(super) running: bool,
    /// The PMI connection, until the rank closes it.
    pub(super) pmi: Option<PmiStream>,
    /// With `--label`: its standard output and its standard error.
    pub(super) pipes: Vec<LabelledPipe>,
}

/// One end of the socket pair between launcher and rank.
pub(super) struct PmiStream {
    stream: UnixStream,
    lines: Lines,
}

impl PmiStream {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            lines: Lines::new(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Reads what the rank has sent. Returns the [`Lines`] to take, and whether the rank can send
    /// more.
    pub(super) fn receive(&mut self) -> (&mut Lines, bool) {
        let open = take(&mut self.stream, &mut self.lines);
        (&mut self.lines, open)
    }

    /// Sends an answer. A rank that has gone, or that sends requests without reading answers, does
    /// not get it.
    ///
    /// A rank reads the answer to one request before it sends the next, so the socket's buffer is
    /// empty here unless the rank violates the protocol.
    pub(super) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.stream.write_all(format!("{message}\n").as_bytes())
    }
}

/// Reads what is available, but no more than [`AT_ONCE`] from a rank that never stops. Returns
/// whether there can be more.
fn take(stream: &mut impl Read, lines: &mut Lines) -> bool {
    let mut bytes = [0; 4096];
    let mut taken = 0;
    while taken < AT_ONCE {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(n) => {
                lines.push(&bytes[..n]);
                taken += n;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_never_stops_leaves_others_their_turn() {
        let mut lines = Lines::new();
        assert!(take(&mut io::repeat(b'x'), &mut lines));
        assert!(lines.next_line().is_some_and(|line| line.is_err()));
    }

    #[test]
    fn what_is_left_of_a_rank_that_has_ended_is_taken_whole() {
        let mut lines = Lines::new();
        assert!(!take(&mut &b"cmd=init\ncmd=x"[..], &mut lines));
        assert_eq!(lines.next_line().unwrap().unwrap(), b"cmd=init");
        assert!(lines.next_line().is_none() && lines.is_mid_line());
    }
}
