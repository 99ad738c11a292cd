//! What the protocol needs from the machine, and from the buffers that it moves.

use super::steps::Step;

/// One PE's view of the machine: its own symmetric memory, and one-sided access to that of others.
///
/// SHMEM implements it on the emulated T3E. In the tests of the gap a model memory implements it,
/// in which every word becomes visible in a step of its own.
///
/// Addresses are bytes from the start of a PE's symmetric memory, which begins zeroed. Words are at
/// multiples of 8.
///
/// # What the protocol assumes of memory
/// - A word of 8 bytes becomes visible whole. Nothing longer does: the three words of a header, and
///   the bytes of a message, may become visible one by one and in any order.
/// - Data that was put before a [`fence`](Self::fence) is visible before any data that is put after
///   it, for each pair of PEs. Nothing else is ordered.
/// - A PE sees its own stores at once, and a get sees everything that its target has stored before.
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

    /// Orders this PE's earlier puts before its later ones (`shmem_fence`).
    fn fence(&mut self);

    /// Writes a header at `at`: first its first two words, then its last word, which a fence orders
    /// behind them and behind everything that was put before.
    fn post(&mut self, pe: u32, at: u64, words: [u64; 3]) {
        self.put(pe, at, &words[..2]);
        self.fence();
        self.put(pe, at + 16, &words[2..]);
    }

    /// Charges one of the protocol's own steps, which is done in software; the machine decides what
    /// it costs.
    fn step(&mut self, step: Step);

    /// Fills `peers` with the PEs whose queues here may have changed since the last call. Naming a
    /// PE too many costs a look at its queues; one that is left out stays unheard until its next
    /// put.
    fn news(&mut self, peers: &mut Vec<u32>);
}

/// The bytes of a message in the program's own buffer.
pub trait Buffer {
    /// Bytes of the message, or room for one.
    fn len(&self) -> usize;

    /// Whether the buffer has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes from position `at` on out of the buffer.
    fn read(&self, at: usize, bytes: &mut [u8]);

    /// Copies bytes that came in representation `rep` into the buffer, from position `at` on.
    fn write(&mut self, at: usize, bytes: &[u8], rep: u8);

    /// Whether a message may be received into this buffer: the extension for type signatures.
    fn accepts(&self, arrival: &Arrival) -> bool {
        let _ = arrival;
        true
    }

    /// Whether the bytes lie in memory in the form in which they travel. If not, moving them costs
    /// a copy.
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

/// The description of a message where it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// PE that sent it.
    pub peer: u32,
    /// Context; in the seed's calls, the number of bytes.
    pub context: u32,
    /// Tag.
    pub tag: u32,
    /// Length in bytes, as sent.
    pub len: u64,
    /// Message representation, by its number.
    pub rep: u8,
    /// Type signature, by its bits.
    pub signature: u32,
}
