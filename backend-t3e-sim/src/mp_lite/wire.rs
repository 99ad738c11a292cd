//! What the protocol needs of the machine, and of the buffers that it moves.

use super::steps::Step;

/// One PE's view of the machine: its own symmetric memory, and one-sided access to that of others.
///
/// SHMEM implements it on the emulated T3E; a model memory in which every word becomes visible in a
/// step of its own implements it in the tests of the gap.
///
/// Addresses are bytes from the start of a PE's symmetric memory, which begins zeroed. Words are at
/// multiples of 8.
///
/// # What the protocol assumes of memory
/// - A word of 8 bytes becomes visible whole. Nothing longer does: the three words of a header, and
///   the bytes of a message, may appear one by one and in any order.
/// - What was put before a [`fence`](Self::fence) is visible before anything that is put after it,
///   per pair of PEs. Nothing else is ordered.
/// - A PE sees its own stores at once, and a get sees what its target has stored before.
pub trait Wire {
    /// This PE.
    fn me(&self) -> u32;

    /// Number of PEs.
    fn size(&self) -> u32;

    /// Loads a word of this PE's memory.
    fn load(&mut self, at: u64) -> u64;

    /// Stores a word of this PE's memory.
    fn store(&mut self, at: u64, word: u64);

    /// Copies out of this PE's memory. Not charged: the protocol charges its [`Step`]s.
    fn read(&mut self, at: u64, bytes: &mut [u8]);

    /// Copies into this PE's memory. Not charged, as [`read`](Self::read).
    fn write(&mut self, at: u64, bytes: &[u8]);

    /// Writes words to a PE's memory (`shmem_put`); returns when `words` may be reused.
    fn put(&mut self, pe: u32, at: u64, words: &[u64]);

    /// Writes bytes to a PE's memory; returns when `bytes` may be reused.
    fn put_bytes(&mut self, pe: u32, at: u64, bytes: &[u8]);

    /// Reads bytes of a PE's memory (`shmem_get`); returns when they are here.
    fn get_bytes(&mut self, pe: u32, at: u64, bytes: &mut [u8]);

    /// Orders what this PE has put before what it will put (`shmem_fence`).
    fn fence(&mut self);

    /// Writes a header at `at`: its first two words, then, fenced off from them and from all that
    /// was put before, its last.
    fn post(&mut self, pe: u32, at: u64, words: [u64; 3]) {
        self.put(pe, at, &words[..2]);
        self.fence();
        self.put(pe, at + 16, &words[2..]);
    }

    /// A step of the protocol's own, in software: what it costs is the machine's business.
    fn step(&mut self, step: Step);

    /// Fills `peers` with the PEs whose queues here may have changed since the last call. A PE too
    /// many costs a look at its queues, one too few stays unheard until its next put.
    fn news(&mut self, peers: &mut Vec<u32>);
}

/// The bytes of a message, where the program has them.
pub trait Buffer {
    /// Bytes of the message, or room for one.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes from position `at` on out of the buffer.
    fn read(&self, at: usize, bytes: &mut [u8]);

    /// Copies bytes that came in representation `rep` into the buffer, from position `at` on.
    fn write(&mut self, at: usize, bytes: &[u8], rep: u8);

    /// Whether a message may be received here: the extension for type signatures.
    fn accepts(&self, arrival: &Arrival) -> bool {
        let _ = arrival;
        true
    }

    /// Whether the bytes lie in memory as they travel. If not, moving them costs a copy.
    fn is_contiguous(&self) -> bool {
        true
    }
}

impl Buffer for Vec<u8> {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self[at..at + bytes.len()]);
    }

    fn write(&mut self, at: usize, bytes: &[u8], _rep: u8) {
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// What a message says of itself where it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// PE that sent it.
    pub peer: u32,
    /// Context. In the seed's calls: the number of bytes.
    pub context: u32,
    /// Tag.
    pub tag: u32,
    /// Bytes, as it was sent.
    pub len: u64,
    /// Message representation, by its number.
    pub rep: u8,
    /// Type signature, by its bits.
    pub signature: u32,
}
