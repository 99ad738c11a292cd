//! The ranks' output with a label before each line, and the launcher's own remarks.
//!
//! Without `--label` the ranks write to the launcher's own descriptors, and only remarks pass
//! through this module. With `--label` each rank has two pipes. The launcher assembles their output
//! into lines and writes each line as a whole, so that lines of different ranks never mix. Nothing
//! here blocks: the launcher keeps what a slow reader does not take, and while it keeps much it
//! does not read the ranks' pipes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::os::{self, Interest};

/// Bytes kept for a slow reader before the ranks have to wait.
const KEEP: usize = 1 << 20;
/// Longest line that is kept whole. A longer line is split, so that memory is bounded.
const LONGEST_LINE: usize = 1 << 20;
/// Number of bytes that a pipe takes without blocking if `poll` calls it writable (`PIPE_BUF`).
const PAGE: usize = 4096;

/// One of the launcher's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// The launcher's standard output and standard error.
pub(super) struct Output {
    sinks: [Sink; 2],
}

impl Output {
    pub(super) fn open() -> io::Result<Self> {
        let out = Sink::into(io::stdout().as_fd())?;
        let err = Sink::into(io::stderr().as_fd())?;
        Ok(Self { sinks: [out, err] })
    }

    pub(super) fn sink(&mut self, stream: Stream) -> &mut Sink {
        &mut self.sinks[stream as usize]
    }

    /// The outputs with bytes to write, and the descriptors to poll for them.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Stream)> {
        let pairs = self.sinks.iter().zip([Stream::Out, Stream::Err]);
        pairs
            .filter(|(sink, _)| !sink.waiting.is_empty())
            .map(|(sink, s)| (sink.file.as_fd(), s))
    }

    /// Whether a rank's pipe may be read now.
    pub(super) fn has_room(&self, stream: Stream) -> bool {
        self.sinks[stream as usize].waiting.len() < KEEP
    }

    /// Drops everything that has not been written.
    pub(super) fn discard(&mut self) {
        self.sinks.iter_mut().for_each(Sink::close);
    }

    /// The reason why output of the ranks was lost, if it was. Returned only once.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        self.sinks.iter_mut().find_map(|sink| sink.error.take())
    }

    /// Adds a remark of the launcher itself, as a line of its own.
    pub(super) fn say(&mut self, text: &str) {
        let line = format!("portolan run: {text}\n");
        self.sink(Stream::Err).add(line.as_bytes());
    }
}

/// One of the launcher's outputs, with the bytes that wait to be written.
pub(super) struct Sink {
    file: File,
    waiting: VecDeque<u8>,
    /// Whether nothing can be written any more.
    closed: bool,
    /// The reason, unless it is just that the reader has gone.
    error: Option<io::Error>,
}

impl Sink {
    /// A sink that writes to the file behind a descriptor.
    fn into(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        // `poll` calls a terminal writable if it takes one byte, and a write of a page would block
        // until the terminal is read.
        let file = match os::opened_without_waiting(descriptor) {
            Some(terminal) => terminal,
            None => descriptor.try_clone_to_owned()?.into(),
        };
        Ok(Self::new(file))
    }

    fn new(file: File) -> Self {
        Self {
            file,
            waiting: VecDeque::new(),
            closed: false,
            error: None,
        }
    }

    fn close(&mut self) {
        self.closed = true;
        self.waiting.clear();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    fn add(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.waiting.extend(bytes);
        }
    }

    /// Writes as much as possible without blocking, after `poll` has reported that there is room.
    pub(super) fn write_some(&mut self) {
        // Polls again: both streams may lead to one pipe, and the other sink may have filled it
        // since.
        let asked = [(self.file.as_fd(), Interest::Write, ())];
        if os::poll(&asked, Some(Duration::ZERO)).is_ok_and(|ready| ready.is_empty()) {
            return;
        }
        let (front, _) = self.waiting.as_slices();
        match self.file.write(&front[..front.len().min(PAGE)]) {
            Ok(n) => drop(self.waiting.drain(..n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                self.close();
                // A reader that has seen enough, such as `head`, is not an error.
                self.error = Some(error).filter(|e| e.kind() != io::ErrorKind::BrokenPipe);
            }
        }
    }
}

/// One pipe from a rank, cut into lines.
pub(super) struct LabelledPipe {
    pub(super) stream: Stream,
    /// `None` once the rank, and every process that has inherited the pipe, has closed it.
    pipe: Option<PipeReader>,
    lines: Labeller,
}

impl LabelledPipe {
    pub(super) fn new(stream: Stream, pipe: PipeReader, rank: u32) -> Self {
        Self {
            stream,
            pipe: Some(pipe),
            lines: Labeller::new(rank),
        }
    }

    /// The descriptor to poll; `None` at the end.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads what is there, after `poll` has reported that there is something.
    pub(super) fn read_some(&mut self, output: &mut Output) {
        let sink = output.sink(self.stream);
        let mut bytes = [0; 16 * 1024];
        let read = self.pipe.as_mut().map(|pipe| pipe.read(&mut bytes));
        match read {
            // The launcher's reader has gone. Closing the pipe lets the rank notice, as it would
            // without the launcher in between.
            _ if sink.is_closed() => self.pipe = None,
            Some(Ok(n)) if n > 0 => self.lines.feed(&bytes[..n], |line| sink.add(line)),
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => self.close(output),
        }
    }

    /// Stops reading. A last line without a newline is shown as it is.
    pub(super) fn close(&mut self, output: &mut Output) {
        self.pipe = None;
        self.lines.finish(|line| output.sink(self.stream).add(line));
    }
}

/// Assembles pieces of text into labelled lines.
struct Labeller {
    label: String,
    /// The label and the line so far; empty between lines.
    line: Vec<u8>,
}

impl Labeller {
    fn new(rank: u32) -> Self {
        Self {
            label: format!("[{rank}] "),
            line: Vec::new(),
        }
    }

    fn feed(&mut self, bytes: &[u8], mut whole: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.line.is_empty() {
                self.line.extend(self.label.bytes());
            }
            self.line.extend(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LONGEST_LINE {
                self.finish(&mut whole);
            }
        }
    }

    fn finish(&mut self, whole: impl FnOnce(&[u8])) {
        if !self.line.is_empty() {
            if !self.line.ends_with(b"\n") {
                self.line.push(b'\n');
            }
            whole(&self.line);
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Both streams may lead to one pipe. After a write to the first, the result of `poll` for the
    /// second is outdated.
    #[test]
    fn two_sinks_of_one_pipe_do_not_wait_for_each_other() {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = |writer: io::PipeWriter| File::from(std::os::fd::OwnedFd::from(writer));
        let mut sinks = [writer.try_clone().unwrap(), writer].map(|pipe| Sink::new(file(pipe)));
        for sink in &mut sinks {
            sink.add(&[b'x'; 1 << 20]);
        }
        let mut written = 0;
        loop {
            // Both sinks write, as after one `poll`. If the pipe had room for only one page, the
            // second write would block.
            sinks.iter_mut().for_each(Sink::write_some);
            let left: usize = sinks.iter().map(|sink| sink.waiting.len()).sum();
            match (2 << 20) - left {
                now if now == written => break,
                now => written = now,
            }
        }
        reader.read_exact(&mut [0; PAGE]).unwrap();
        sinks.iter_mut().for_each(Sink::write_some);
        assert_eq!(
            sinks[0].waiting.len() + sinks[1].waiting.len(),
            (2 << 20) - written - PAGE
        );
    }

    /// As with a terminal window that no longer shows anything, or a connection that hangs.
    #[test]
    fn a_terminal_that_nobody_reads_is_not_waited_for() {
        let [screen, terminal] = os::pseudoterminal();
        let mut sink = Sink::into(terminal.as_fd()).unwrap();
        let text = b"a line of some rank\n".repeat(50_000);
        sink.add(&text);
        // More calls than there are pages: every call that finds room writes something, and the
        // last calls find none.
        for _ in 0..1000 {
            sink.write_some();
        }
        let left = sink.waiting.len();
        assert!(0 < left && left < text.len(), "{left}");
        // It continues where it stopped.
        let mut screen = File::from(screen);
        let mut shown: Vec<u8> = Vec::new();
        while !sink.waiting.is_empty() || shown.len() < text.len() {
            sink.write_some();
            let mut page = [0; PAGE];
            let n = screen.read(&mut page).unwrap();
            // The terminal ends a line with two characters, `\r` and `\n`.
            shown.extend(page[..n].iter().filter(|&&byte| byte != b'\r'));
        }
        assert!(shown == text);
    }

    fn label(pieces: &[&[u8]]) -> Vec<u8> {
        let mut labeller = Labeller::new(7);
        let mut all = Vec::new();
        for piece in pieces {
            labeller.feed(piece, |line| all.extend(line));
        }
        labeller.finish(|line| all.extend(line));
        all
    }

    #[test]
    fn every_line_has_its_label_and_an_end() {
        assert_eq!(label(&[b"a\n\nb", b"c"]), b"[7] a\n[7] \n[7] bc\n");
        assert_eq!(label(&[b""]), b"");
        assert_eq!(label(&[b"\xff\n"]), b"[7] \xff\n");
    }

    #[test]
    fn a_line_without_end_does_not_fill_memory() {
        let piece = vec![b'x'; LONGEST_LINE];
        let all = label(&[&piece, &piece]);
        assert_eq!(all.iter().filter(|&&byte| byte == b'\n').count(), 2);
    }

    proptest! {
        #[test]
        fn labels_do_not_depend_on_how_text_arrives(
            text in "[ab\n]{0,60}", cut in 0usize..60,
        ) {
            let (head, tail) = text.as_bytes().split_at(cut.min(text.len()));
            prop_assert_eq!(label(&[head, tail]), label(&[text.as_bytes()]));
        }
    }
}
