//! The regions of this rank, and the keys by which peers name them.

use std::collections::BTreeSet;

use crate::device::{Region, RegionKey};
use crate::staging::Driven;
use crate::transport::{DirectMemory, Token};

/// The regions of this rank.
#[derive(Debug, Default)]
pub(in crate::engine) struct Regions {
    slots: Vec<(u32, Option<Memory>)>,
    free: Vec<u32>,
}

/// The memory of a region.
#[derive(Debug)]
pub(in crate::engine) struct Memory {
    pub(in crate::engine) ptr: *mut u8,
    pub(in crate::engine) len: usize,
    pub(in crate::engine) owner: MemoryOwner,
    /// The transport's token, if peers reach the memory by the network's own means.
    pub(in crate::engine) token: Option<Token>,
    /// The driven memory, if only its driver reaches it.
    pub(in crate::engine) driven: Option<Driven>,
    /// The peers that were told how the region is reached.
    pub(in crate::engine) told: BTreeSet<u32>,
}

impl Memory {
    pub(in crate::engine) fn new(ptr: *mut u8, len: usize, owner: MemoryOwner) -> Self {
        Self {
            ptr,
            len,
            owner,
            token: None,
            driven: None,
            told: BTreeSet::new(),
        }
    }
}

#[derive(Debug)]
pub(in crate::engine) enum MemoryOwner {
    /// The transport; peers reach it directly.
    Direct(DirectMemory),
    /// The engine.
    Engine(std::alloc::Layout),
    /// The caller, which registered it.
    Caller,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let MemoryOwner::Engine(layout) = self.owner {
            // SAFETY: allocated with this layout in `alloc_region`. It is dropped when the region
            // is freed, which ends every use of it, and the transport lets no peer reach it any
            // more; or with the device that gave it out, whose transport is dropped first.
            unsafe { std::alloc::dealloc(self.ptr, layout) };
        }
    }
}

// SAFETY: `ptr` is memory that stays valid until the region is freed, whatever the thread: the
// transport's, the engine's, or the caller's by the contract of `register_region`.
unsafe impl Send for Memory {}

/// The parts of a key.
pub(in crate::engine) struct KeyParts {
    pub(in crate::engine) index: u32,
    pub(in crate::engine) generation: u32,
    pub(in crate::engine) len: u64,
    pub(in crate::engine) direct: bool,
    /// Whether only a driver reaches the region.
    pub(in crate::engine) driven: bool,
    pub(in crate::engine) token: [u8; 32],
}

impl KeyParts {
    /// A key that names a region and says nothing of its length.
    pub(in crate::engine) fn named((index, generation): (u32, u32)) -> Self {
        Self {
            index,
            generation,
            len: 0,
            direct: false,
            driven: false,
            token: [0; 32],
        }
    }

    pub(in crate::engine) fn to_key(&self) -> RegionKey {
        let mut key = [0; 56];
        key[..4].copy_from_slice(&self.index.to_le_bytes());
        key[4..8].copy_from_slice(&self.generation.to_le_bytes());
        key[8..16].copy_from_slice(&self.len.to_le_bytes());
        key[16] = u8::from(self.direct);
        key[17] = u8::from(self.driven);
        key[24..].copy_from_slice(&self.token);
        RegionKey(key)
    }

    pub(in crate::engine) fn of(key: &RegionKey) -> Self {
        let key = &key.0;
        Self {
            index: u32::from_le_bytes(key[..4].try_into().expect("4 bytes")),
            generation: u32::from_le_bytes(key[4..8].try_into().expect("4 bytes")),
            len: u64::from_le_bytes(key[8..16].try_into().expect("8 bytes")),
            direct: key[16] != 0,
            driven: key[17] != 0,
            token: key[24..].try_into().expect("32 bytes"),
        }
    }
}

impl Regions {
    pub(in crate::engine) fn add(&mut self, memory: Memory) -> Region {
        let (ptr, len, driven) = (memory.ptr, memory.len, memory.driven.is_some());
        let (direct, token) = match &memory.owner {
            MemoryOwner::Direct(memory) => (true, memory.key),
            _ => (false, [0; 32]),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((1, None));
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(memory);
        let parts = KeyParts {
            index,
            generation: slot.0,
            len: len as u64,
            direct,
            driven,
            token,
        };
        Region {
            ptr,
            len,
            key: parts.to_key(),
        }
    }

    pub(in crate::engine) fn remove(&mut self, parts: &KeyParts) -> Option<Memory> {
        let slot = self.slots.get_mut(parts.index as usize)?;
        if slot.0 != parts.generation {
            return None;
        }
        let memory = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1).max(1);
        self.free.push(parts.index);
        Some(memory)
    }

    /// The token of a live region, and its length.
    pub(in crate::engine) fn token(&self, (index, generation): (u32, u32)) -> Option<(Token, u64)> {
        let (current, memory) = self.slots.get(index as usize)?;
        let memory = memory.as_ref().filter(|_| *current == generation)?;
        Some((memory.token?, memory.len as u64))
    }

    /// Makes a region look as if the transport had not registered it.
    #[cfg(test)]
    pub(in crate::engine) fn unregister(&mut self, index: u32) {
        if let Some(memory) = &mut self.slots[index as usize].1 {
            memory.token = None;
        }
    }

    /// The token of a region, to be told to `peer`. `Some(None)` if the network does not reach it;
    /// `None` if there is no such region.
    pub(in crate::engine) fn tell(
        &mut self,
        (index, generation): (u32, u32),
        peer: u32,
    ) -> Option<Option<(Token, u64)>> {
        let (current, memory) = self.slots.get_mut(index as usize)?;
        let memory = memory.as_mut().filter(|_| *current == generation)?;
        memory.told.insert(peer);
        Some(memory.token.map(|token| (token, memory.len as u64)))
    }

    /// The memory of a live region that only its driver reaches, if `len` bytes at `offset` are
    /// inside it.
    pub(in crate::engine) fn driven(
        &self,
        index: u32,
        generation: u32,
        offset: u64,
        len: usize,
    ) -> Option<&Driven> {
        let (current, memory) = self.slots.get(index as usize)?;
        let memory = memory.as_ref().filter(|_| *current == generation)?;
        let end = offset.checked_add(len as u64)?;
        memory.driven.as_ref().filter(|_| end <= memory.len as u64)
    }

    /// The address of `len` bytes at `offset` of a region, if they are inside it and the processor
    /// reaches them.
    pub(in crate::engine) fn locate(
        &self,
        index: u32,
        generation: u32,
        offset: u64,
        len: usize,
    ) -> Option<*mut u8> {
        let (current, memory) = self.slots.get(index as usize)?;
        let memory = memory.as_ref().filter(|_| *current == generation)?;
        let memory = Some(memory).filter(|memory| memory.driven.is_none())?;
        let end = offset.checked_add(len as u64)?;
        (end <= memory.len as u64).then(|| memory.ptr.wrapping_add(offset as usize))
    }

    /// Copies out of a region for a peer's get; zeroes if there is no such region. (The streams out
    /// of a region end when it is freed.)
    pub(in crate::engine) fn read(&self, index: u32, offset: usize, target: *mut u8, len: usize) {
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.0);
        match self.locate(index, generation, offset as u64, len) {
            // SAFETY: the bytes are inside of a live region, and `target` has `len` bytes of the
            // transport's memory.
            Some(source) => unsafe { std::ptr::copy(source, target, len) },
            // SAFETY: as above for `target`.
            None => unsafe { std::ptr::write_bytes(target, 0, len) },
        }
    }
}
