//! Zeroed memory that uses the host's memory only where it has been written.

use std::collections::HashMap;

/// Bytes that are allocated together, so a queue of which one header is used costs no more.
const CHUNK: usize = 512;

/// A range of bytes, zero until they are written.
#[derive(Debug)]
pub(crate) struct Sparse {
    len: usize,
    /// Chunks by their number. Only for look-ups, so nothing depends on the order.
    chunks: HashMap<usize, Box<[u8; CHUNK]>>,
}

impl Sparse {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            len,
            chunks: HashMap::new(),
        }
    }

    /// Whether `len` bytes from `start` on are inside.
    pub(crate) fn contains(&self, start: usize, len: usize) -> bool {
        start.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Reads bytes that are inside.
    pub(crate) fn read(&self, start: usize, target: &mut [u8]) {
        let mut done = 0;
        for (chunk, within, len) in parts(start, target.len()) {
            let place = &mut target[done..done + len];
            match self.chunks.get(&chunk) {
                Some(bytes) => place.copy_from_slice(&bytes[within..within + len]),
                None => place.fill(0),
            }
            done += len;
        }
    }

    /// Writes bytes that are inside.
    pub(crate) fn write(&mut self, start: usize, source: &[u8]) {
        let mut done = 0;
        for (chunk, within, len) in parts(start, source.len()) {
            let bytes = &source[done..done + len];
            done += len;
            if let Some(chunk) = self.chunks.get_mut(&chunk) {
                chunk[within..within + len].copy_from_slice(bytes);
            } else if bytes.iter().any(|byte| *byte != 0) {
                let mut fresh = Box::new([0; CHUNK]);
                fresh[within..within + len].copy_from_slice(bytes);
                self.chunks.insert(chunk, fresh);
            }
        }
    }
}

/// The chunks of a range: the number of each, where in it the range begins, and how many bytes.
fn parts(start: usize, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let end = start + len;
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let within = at % CHUNK;
        let part = (at / CHUNK, within, (CHUNK - within).min(end - at));
        at += part.2;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_rest_is_zero() {
        let mut memory = Sparse::new(10_000);
        let source: Vec<u8> = (0..2_000).map(|n| n as u8 | 1).collect();
        memory.write(500, &source);
        let mut target = vec![9; 4_000];
        memory.read(0, &mut target);
        assert!(
            target[..500]
                .iter()
                .chain(&target[2_500..])
                .all(|byte| *byte == 0)
        );
        assert_eq!(target[500..2_500], source);
    }

    #[test]
    fn zeros_cost_nothing_and_overwrite() {
        let mut memory = Sparse::new(1 << 40);
        memory.write(1 << 30, &[0; 5_000]);
        assert!(memory.chunks.is_empty());
        memory.write(7, &[1]);
        memory.write(7, &[0]);
        let mut byte = [9];
        memory.read(7, &mut byte);
        assert_eq!(byte, [0]);
    }

    #[test]
    fn the_end_is_the_end() {
        let memory = Sparse::new(100);
        assert!(memory.contains(0, 100));
        assert!(memory.contains(100, 0));
        assert!(!memory.contains(1, 100));
        assert!(!memory.contains(usize::MAX, 2));
    }
}
