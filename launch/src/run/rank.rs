//! One rank, as the launcher sees it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use portolan_core::job::pmi1::{Lines, Message};

use super::output::LabelledPipe;

/// A rank's process and its connections.
pub(super) struct Rank {
    pub(super) number: u32,
    pub(super) pid: i32,
    /// Whether the process has not been seen to end.
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

    /// What the rank has sent: [`Lines`] to take, and whether it can send more.
    pub(super) fn receive(&mut self) -> (&mut Lines, bool) {
        let mut bytes = [0; 4096];
        let open = loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => break false,
                Ok(n) => self.lines.push(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error.kind() == io::ErrorKind::WouldBlock,
            }
        };
        (&mut self.lines, open)
    }

    /// Sends an answer; a rank that has gone, or that asks without ever reading, does not get it.
    ///
    /// A rank reads the answer to one request before it sends the next, so the socket's buffer is
    /// empty here unless the rank does not keep to the protocol.
    pub(super) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.stream.write_all(format!("{message}\n").as_bytes())
    }
}
