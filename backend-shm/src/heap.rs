//! Memory that every rank can load from and store to: blocks of the segment, each owned by the rank
//! that allocated it.
//!
//! A page in front of each block records its owner, its length and its generation. A key holds the
//! same facts, and is valid only while the two agree. The memory of a freed block goes back to the
//! system, and its place in the segment stays with the owner; so reused blocks are zeroed, and
//! reuse involves no other rank.

use portolan_core::transport::DirectMemory;
use portolan_core::{Error, ErrorKind, Result};

use crate::pieces::Pieces;
use crate::segment::Segment;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

const PAGE: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"PTLBLOCK");

/// The page in front of a block.
#[repr(C)]
struct Block {
    /// [`MAGIC`] while the block is allocated; written last and cleared first.
    magic: AtomicU64,
    owner: AtomicU64,
    len: AtomicU64,
    generation: AtomicU64,
}

/// The words of a key: owner, offset of the block's page, length, generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key([u64; 4]);

impl Key {
    fn bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; 32]) -> Self {
        let word =
            |n: usize| u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().unwrap_or([0; 8]));
        Self([word(0), word(1), word(2), word(3)])
    }
}

/// The places of the blocks that this rank has freed, and its count of generations.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    free: Pieces,
    generation: u64,
    used: u64,
}

impl Heap {
    /// Bytes allocated at the moment, with the page in front of each block.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn alloc(
        &mut self,
        segment: &Segment,
        rank: u32,
        len: usize,
    ) -> Result<DirectMemory> {
        // `extend` refuses a length that is longer than any segment.
        let pages = (len as u64).max(1).checked_next_multiple_of(PAGE);
        let total = pages.map_or(u64::MAX, |len| len.saturating_add(PAGE));
        let offset = match self.free.take(total) {
            Some(offset) => {
                if let Err(error) = segment.restore(offset, total, "memory for direct access") {
                    segment.release(offset, total);
                    self.free.give(offset, total);
                    return Err(error);
                }
                offset
            }
            None => segment.extend(total, "memory for direct access")?.0,
        };
        let (Some(block), Some(ptr)) = (
            block(segment, offset),
            segment.at(offset + PAGE, len.max(1)),
        ) else {
            return Err(Error::new(
                ErrorKind::PeerMisbehaved,
                "some rank has overwritten the head of the shared segment",
            )
            .remedy("look for writes through wild pointers")
            .on_device("shm"));
        };
        self.used += total;
        self.generation += 1;
        let key = Key([u64::from(rank), offset, len as u64, self.generation]);
        block.owner.store(key.0[0], Relaxed);
        block.len.store(key.0[2], Relaxed);
        block.generation.store(key.0[3], Relaxed);
        // SYNC: publishes the three words above to the Acquire load in `find`.
        block.magic.store(MAGIC, Release);
        Ok(DirectMemory {
            ptr,
            len,
            key: key.bytes(),
        })
    }

    pub(crate) fn free(&mut self, segment: &Segment, rank: u32, memory: &DirectMemory) {
        let Some(offset) = find(segment, rank, &memory.key) else {
            return;
        };
        let total = Key::from_bytes(&memory.key).0[2]
            .max(1)
            .next_multiple_of(PAGE)
            + PAGE;
        if let Some(block) = block(segment, offset) {
            block.magic.store(0, Relaxed);
        }
        segment.release(offset, total);
        self.used = self.used.saturating_sub(total);
        self.free.give(offset, total);
    }
}

fn block(segment: &Segment, offset: u64) -> Option<&Block> {
    if !offset.is_multiple_of(PAGE) {
        return None;
    }
    let ptr = segment.at(offset, PAGE as usize)?;
    // SAFETY: the page is aligned, and mapped as long as the segment is borrowed; a `Block` is
    // atomics, valid whatever bytes are there.
    Some(unsafe { &*ptr.cast::<Block>() })
}

/// The offset of the block that a key of `owner` names, if that block is allocated now.
fn find(segment: &Segment, owner: u32, key: &[u8; 32]) -> Option<u64> {
    let key = Key::from_bytes(key);
    let block = block(segment, key.0[1])?;
    // SYNC: pairs with the Release store in `alloc`.
    let alive = block.magic.load(Acquire) == MAGIC;
    let same = block.owner.load(Relaxed) == key.0[0]
        && block.len.load(Relaxed) == key.0[2]
        && block.generation.load(Relaxed) == key.0[3];
    (alive && same && key.0[0] == u64::from(owner)).then_some(key.0[1])
}

/// The address, in this process, of the memory that `owner` allocated under `key`, and its length.
pub(crate) fn map(segment: &Segment, owner: u32, key: &[u8; 32]) -> Option<(*mut u8, usize)> {
    let offset = find(segment, owner, key)?;
    let len = usize::try_from(Key::from_bytes(key).0[2]).ok()?;
    Some((segment.at(offset + PAGE, len)?, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_bytes() {
        let key = Key([1, 2, 3, u64::MAX]);
        assert_eq!(Key::from_bytes(&key.bytes()), key);
    }
}
