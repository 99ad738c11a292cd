//! The memory of one PE: its part of the symmetric heap, and what it allocated for itself.

use std::collections::BTreeMap;

use super::address::Addr;
use super::call::{Reason, Refusal, Stride};
use super::costs::LINE;

/// Memory of one PE. Not touched, it costs the host address space only.
#[derive(Debug)]
pub(crate) struct Memory {
    heap: Vec<u8>,
    /// By the first address of each.
    arena: BTreeMap<u64, Vec<u8>>,
    next: u64,
    used: usize,
    most: usize,
}

impl Memory {
    pub(crate) fn new(heap: usize, arena: usize) -> Self {
        Self {
            heap: vec![0; heap],
            arena: BTreeMap::new(),
            next: Addr::ARENA + LINE as u64,
            used: 0,
            most: arena,
        }
    }

    /// Allocates outside of the symmetric heap.
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
        // A line between two blocks, so that an access beyond one does not meet the next; never the
        // same address twice, so that one that was freed is noticed.
        self.next += (len as u64).next_multiple_of(LINE as u64) + LINE as u64;
        self.used += len;
        self.arena.insert(addr, vec![0; len]);
        Ok(Addr(addr))
    }

    /// Frees what [`allocate`](Self::allocate) gave.
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

    pub(crate) fn bytes(&self, addr: Addr, len: usize) -> Option<&[u8]> {
        let (block, start) = if addr.is_symmetric() {
            (&self.heap, addr.0)
        } else {
            let (first, block) = self.arena.range(..=addr.0).next_back()?;
            (block, addr.0 - first)
        };
        let start = usize::try_from(start).ok()?;
        block.get(start..start.checked_add(len)?)
    }

    pub(crate) fn bytes_mut(&mut self, addr: Addr, len: usize) -> Option<&mut [u8]> {
        let (block, start) = if addr.is_symmetric() {
            (&mut self.heap, addr.0)
        } else {
            let (first, block) = self.arena.range_mut(..=addr.0).next_back()?;
            (block, addr.0 - first)
        };
        let start = usize::try_from(start).ok()?;
        block.get_mut(start..start.checked_add(len)?)
    }

    pub(crate) fn word(&self, addr: Addr) -> Option<u64> {
        let bytes = self.bytes(addr, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
    }

    /// Writes bytes that came through the network; false if there is no such memory any more.
    pub(crate) fn land(&mut self, addr: Addr, data: &[u8], stride: Option<Stride>) -> bool {
        let Some(Stride { element, step }) = stride else {
            return self
                .bytes_mut(addr, data.len())
                .map(|to| to.copy_from_slice(data))
                .is_some();
        };
        let mut at = addr;
        data.chunks(element).all(|item| {
            let place = self.bytes_mut(at, item.len());
            at = at + step;
            place.map(|to| to.copy_from_slice(item)).is_some()
        })
    }

    /// Reads bytes for the network; `None` if there is no such memory any more.
    pub(crate) fn gather(&self, addr: Addr, len: usize, stride: Option<Stride>) -> Option<Vec<u8>> {
        let Some(Stride { element, step }) = stride else {
            return self.bytes(addr, len).map(<[u8]>::to_vec);
        };
        let mut data = Vec::with_capacity(len);
        let mut at = addr;
        while data.len() < len {
            data.extend_from_slice(self.bytes(at, element.min(len - data.len()))?);
            at = at + step;
        }
        Some(data)
    }
}

/// Bytes from the first to the last that a transfer touches; `None` if the stride makes no sense.
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
        assert!(memory.bytes(Addr(56), 8).is_some());
        assert!(memory.bytes(Addr(57), 8).is_none());
        assert!(memory.bytes(Addr(u64::MAX), 1).is_none());
        let block = memory.allocate(10).unwrap();
        assert!(memory.bytes_mut(block + 2, 8).is_some());
        assert!(memory.bytes_mut(block + 3, 8).is_none());
        memory.free(block).unwrap();
        assert!(memory.bytes(block, 1).is_none());
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
