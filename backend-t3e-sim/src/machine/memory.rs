//! The memory of one PE: its part of the symmetric heap, and the memory that it allocated for
//! itself.

use std::collections::BTreeMap;

use super::address::Addr;
use super::call::{Reason, Refusal, Stride};
use super::costs::LINE;
use super::sparse::Sparse;

/// Memory of one PE. The heap uses host memory only where it has been written.
#[derive(Debug)]
pub(crate) struct Memory {
    heap: Sparse,
    /// The blocks that the PE allocated for itself, by their first address.
    arena: BTreeMap<u64, Vec<u8>>,
    next: u64,
    used: usize,
    most: usize,
}

impl Memory {
    pub(crate) fn new(heap: usize, arena: usize) -> Self {
        Self {
            heap: Sparse::new(heap),
            arena: BTreeMap::new(),
            next: Addr::ARENA + LINE as u64,
            used: 0,
            most: arena,
        }
    }

    /// Allocates outside the symmetric heap.
    pub(crate) fn allocate(&mut self, len: usize) -> Result<Addr, Refusal> {
        if len > self.most - self.used {
            return Err(Refusal::new(
                Reason::Exhausted,
                format!(
                    "{len} bytes do not fit: {} of {} bytes of this PE's own memory are in use",
                    self.used, self.most
                ),
                "free messages that are under way, or raise PORTOLAN_T3E_ARENA",
            ));
        }
        let addr = self.next;
        // A line is left between two blocks, so that an access beyond one does not hit the next. No
        // address is used twice, so that an access to a freed block is noticed.
        self.next += (len as u64).next_multiple_of(LINE as u64) + LINE as u64;
        self.used += len;
        self.arena.insert(addr, vec![0; len]);
        Ok(Addr(addr))
    }

    /// Frees a block from [`allocate`](Self::allocate).
    pub(crate) fn free(&mut self, addr: Addr) -> Result<(), Refusal> {
        let Some(block) = self.arena.remove(&addr.0) else {
            return Err(Refusal::new(
                Reason::Address,
                format!("no block begins at {addr}"),
                "free each block once, by the address that its allocation gave",
            ));
        };
        self.used -= block.len();
        Ok(())
    }

    /// Whether there are `len` bytes at `addr`.
    pub(crate) fn contains(&self, addr: Addr, len: usize) -> bool {
        if addr.is_symmetric() {
            return self.heap.contains(addr.0 as usize, len);
        }
        let block = self.arena.range(..=addr.0).next_back();
        block.is_some_and(|(first, block)| {
            let start = (addr.0 - first) as usize;
            start.checked_add(len).is_some_and(|end| end <= block.len())
        })
    }

    /// Reads bytes; `false` if there is no such memory.
    pub(crate) fn read(&self, addr: Addr, target: &mut [u8]) -> bool {
        if !self.contains(addr, target.len()) {
            return false;
        }
        if addr.is_symmetric() {
            self.heap.read(addr.0 as usize, target);
        } else if let Some((first, block)) = self.arena.range(..=addr.0).next_back() {
            let start = (addr.0 - first) as usize;
            target.copy_from_slice(&block[start..start + target.len()]);
        }
        true
    }

    /// Writes bytes; `false` if there is no such memory.
    pub(crate) fn write(&mut self, addr: Addr, source: &[u8]) -> bool {
        if !self.contains(addr, source.len()) {
            return false;
        }
        if addr.is_symmetric() {
            self.heap.write(addr.0 as usize, source);
        } else if let Some((first, block)) = self.arena.range_mut(..=addr.0).next_back() {
            let start = (addr.0 - first) as usize;
            block[start..start + source.len()].copy_from_slice(source);
        }
        true
    }

    /// Reads bytes into a vector.
    pub(crate) fn bytes(&self, addr: Addr, len: usize) -> Option<Vec<u8>> {
        if !self.contains(addr, len) {
            return None;
        }
        let mut bytes = vec![0; len];
        self.read(addr, &mut bytes);
        Some(bytes)
    }

    pub(crate) fn word(&self, addr: Addr) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(addr, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }

    /// Writes bytes that came through the network; `false` if there is no such memory any more.
    pub(crate) fn land(&mut self, addr: Addr, data: &[u8], stride: Option<Stride>) -> bool {
        let Some(Stride { element, step }) = stride else {
            return self.write(addr, data);
        };
        let mut at = addr;
        data.chunks(element).all(|item| {
            let landed = self.write(at, item);
            at = at + step;
            landed
        })
    }

    /// Reads bytes for the network; `None` if there is no such memory any more.
    pub(crate) fn gather(&self, addr: Addr, len: usize, stride: Option<Stride>) -> Option<Vec<u8>> {
        let Some(Stride { element, step }) = stride else {
            return self.bytes(addr, len);
        };
        let mut data = vec![0; len];
        let mut at = addr;
        let read = data.chunks_mut(element).all(|item| {
            let read = self.read(at, item);
            at = at + step;
            read
        });
        read.then_some(data)
    }
}

/// Number of bytes from the first to the last that a transfer touches; `None` if the stride makes
/// no sense.
pub(crate) fn reach(len: usize, stride: Option<Stride>) -> Option<usize> {
    let Some(Stride { element, step }) = stride else {
        return Some(len);
    };
    if !matches!(element, 4 | 8) || step < element || !len.is_multiple_of(element) {
        return None;
    }
    if len == 0 {
        return Some(0);
    }
    (len / element - 1).checked_mul(step)?.checked_add(element)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_reached() {
        let mut memory = Memory::new(64, 1000);
        assert!(memory.contains(Addr(56), 8));
        assert!(!memory.contains(Addr(57), 8));
        assert!(!memory.contains(Addr(u64::MAX), 1));
        let block = memory.allocate(10).unwrap();
        assert!(memory.write(block + 2, &[1; 8]));
        assert!(!memory.write(block + 3, &[1; 8]));
        memory.free(block).unwrap();
        assert!(!memory.read(block, &mut [0]));
        assert!(memory.free(block).is_err());
        assert_ne!(memory.allocate(10).unwrap(), block);
        assert_eq!(memory.allocate(991).unwrap_err().reason, Reason::Exhausted);
    }

    #[test]
    fn strides_scatter_and_gather() {
        let mut memory = Memory::new(64, 0);
        let stride = Some(Stride {
            element: 4,
            step: 12,
        });
        assert!(memory.land(Addr(4), &[1, 1, 1, 1, 2, 2, 2, 2], stride));
        assert_eq!(
            memory.gather(Addr(4), 8, stride).unwrap(),
            [1, 1, 1, 1, 2, 2, 2, 2]
        );
        assert_eq!(memory.bytes(Addr(16), 4).unwrap(), [2; 4]);
        assert!(!memory.land(Addr(56), &[1; 8], stride));
        assert_eq!(reach(8, stride), Some(16));
        assert_eq!(reach(0, stride), Some(0));
        assert_eq!(
            reach(
                8,
                Some(Stride {
                    element: 8,
                    step: 7
                })
            ),
            None
        );
        assert_eq!(
            reach(
                9,
                Some(Stride {
                    element: 8,
                    step: 8
                })
            ),
            None
        );
    }
}
