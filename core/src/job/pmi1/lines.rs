//! Cuts a stream of bytes into lines, in whatever pieces the bytes arrive.

use std::collections::VecDeque;

use super::{Message, WireError};

/// Longest line that is accepted, in bytes, without its end.
///
/// MPICH's clients stop at 1024; Slurm and Flux send somewhat longer lines. A peer that sends more
/// than this without an end of line is not speaking the protocol.
pub const MAX_LINE: usize = 16 * 1024;

/// Bytes that have been received but not yet taken as messages.
///
/// ```
/// use portolan_core::job::pmi1::Lines;
///
/// let mut lines = Lines::new();
/// lines.push(b"cmd=barrier_in\ncmd=fin");
/// assert_eq!(lines.next_message().unwrap().unwrap().command(), "barrier_in");
/// assert!(lines.next_message().is_none()); // the second line has no end yet
/// lines.push(b"alize\n");
/// assert_eq!(lines.next_message().unwrap().unwrap().command(), "finalize");
/// ```
#[derive(Debug, Default)]
pub struct Lines {
    bytes: VecDeque<u8>,
    /// Length of the part of `bytes` that is known to contain no end of line.
    searched: usize,
}

impl Lines {
    /// No bytes received yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the bytes that a read returned.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Whether bytes are left that have no end of line. A stream that ends here was cut off.
    #[must_use]
    pub fn is_mid_line(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The next complete line without its end, if there is one.
    ///
    /// # Errors
    /// [`WireError::TooLong`]; the stream cannot be used after that.
    pub fn next_line(&mut self) -> Option<Result<Vec<u8>, WireError>> {
        let found = self
            .bytes
            .iter()
            .skip(self.searched)
            .position(|&byte| byte == b'\n');
        let end = found.map(|offset| self.searched + offset);
        if end.unwrap_or(self.bytes.len()) > MAX_LINE {
            return Some(Err(WireError::TooLong { limit: MAX_LINE }));
        }
        self.searched = if end.is_some() { 0 } else { self.bytes.len() };
        let mut line: Vec<u8> = self.bytes.drain(..=end?).collect();
        line.pop();
        Some(Ok(line))
    }

    /// The next complete line as a message, if there is one.
    ///
    /// # Errors
    /// Any [`WireError`]; the stream should not be used after that.
    pub fn next_message(&mut self) -> Option<Result<Message, WireError>> {
        Some(self.next_line()?.and_then(|line| Message::parse(&line)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all_lines(lines: &mut Lines) -> Vec<Result<Vec<u8>, WireError>> {
        std::iter::from_fn(|| lines.next_line())
            .take(1000)
            .collect()
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        let mut lines = Lines::new();
        lines.push(&vec![b'a'; MAX_LINE]);
        assert_eq!(lines.next_line(), None);
        lines.push(b"a");
        assert_eq!(
            lines.next_line(),
            Some(Err(WireError::TooLong { limit: MAX_LINE }))
        );
    }

    #[test]
    fn the_longest_line_is_accepted() {
        let mut lines = Lines::new();
        lines.push(&vec![b'a'; MAX_LINE]);
        lines.push(b"\n");
        assert_eq!(lines.next_line().unwrap().unwrap().len(), MAX_LINE);
        assert!(!lines.is_mid_line());
    }

    proptest! {
        #[test]
        fn cuts_do_not_depend_on_how_bytes_arrive(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..300),
            pieces in prop::collection::vec(1usize..20, 1..50),
        ) {
            let mut whole = Lines::new();
            whole.push(&bytes);
            let expected = all_lines(&mut whole);

            let mut cut = Lines::new();
            let mut found = Vec::new();
            let (mut rest, mut pieces) = (&bytes[..], pieces.iter().cycle());
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
                cut.push(piece);
                found.extend(all_lines(&mut cut));
                rest = tail;
            }
            prop_assert_eq!(found, expected);
            prop_assert_eq!(cut.is_mid_line(), !bytes.is_empty() && bytes.last() != Some(&b'\n'));
        }
    }
}
