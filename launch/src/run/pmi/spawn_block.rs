//! `MPI_Comm_spawn` arrives as blocks of lines. The server must read them to refuse the request.

/// A request to start more processes, of which only the end matters.
///
/// The lines have the form `name=value`, with anything in the value, from `mcmd=spawn` to `endcmd`.
/// One request may consist of several blocks: `totspawns` is their number, `spawnssofar` the number
/// of this one.
#[derive(Debug, Default)]
pub(super) struct SpawnBlock {
    total: u64,
    so_far: u64,
}

/// The meaning of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The block continues.
    Within,
    /// The block has ended, and another of the same request follows.
    BlockEnded,
    /// The request is complete.
    RequestEnded,
}

impl SpawnBlock {
    pub(super) fn line(&mut self, line: &[u8]) -> Progress {
        let text = String::from_utf8_lossy(line);
        match text.trim().split_once('=') {
            Some(("totspawns", n)) => self.total = n.parse().unwrap_or(0),
            Some(("spawnssofar", n)) => self.so_far = n.parse().unwrap_or(0),
            None if text.trim() == "endcmd" && self.so_far < self.total => {
                return Progress::BlockEnded;
            }
            None if text.trim() == "endcmd" => return Progress::RequestEnded,
            _ => {}
        }
        Progress::Within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_answer_is_due_for_a_request_of_two_blocks() {
        let mut first = SpawnBlock::default();
        for line in [
            &b"nprocs=1"[..],
            b"execname=/bin/a b",
            b"totspawns=2",
            b"spawnssofar=1",
        ] {
            assert_eq!(first.line(line), Progress::Within);
        }
        assert_eq!(first.line(b"endcmd"), Progress::BlockEnded);
        let mut second = SpawnBlock::default();
        second.line(b"totspawns=2");
        second.line(b"spawnssofar=2");
        assert_eq!(second.line(b"endcmd"), Progress::RequestEnded);
    }
}
