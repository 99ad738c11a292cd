//! The buffers from which messages come and into which they go.

use std::ops::DerefMut;

use portolan::{Comm, Device, Error, ErrorKind, Level, Memory, Result};

/// Buffers begin at page boundaries, as in the OSU suite, so that runs do not differ by where the
/// allocator happened to put them.
const ALIGNMENT: usize = 4096;

/// Buffers to send from, and as many to receive into. Each begins at a page boundary and has been
/// touched. There is one of each kind, or several that messages use in turn.
#[derive(Debug)]
pub struct Buffers<M = Vec<u8>> {
    memory: M,
    first: usize,
    second: usize,
    /// Where the receive buffers end.
    end: usize,
    bytes: usize,
    /// The distance from one buffer to the next.
    stride: usize,
}

impl Buffers {
    /// One buffer in each direction for messages of `bytes` bytes, on the heap. The send buffer is
    /// filled with `fill`, the receive buffer with zeros.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no memory for them.
    pub fn new(bytes: usize, fill: u8) -> Result<Self> {
        Self::several(1, bytes, fill)
    }

    /// As [`new`](Self::new), with `count` buffers in each direction, or one if `count` is zero.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no memory for them.
    pub fn several(count: u32, bytes: usize, fill: u8) -> Result<Self> {
        Self::made(count, bytes, fill, |total| {
            let mut memory = Vec::new();
            memory.try_reserve_exact(total).ok()?;
            memory.resize(total, 0);
            Some(Ok(memory))
        })
    }
}

impl<L: Level, D: Device> Buffers<Memory<u8, L, D>> {
    /// As [`several`](Buffers::several), in memory of [`Comm::alloc`].
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no memory for them.
    pub fn allocated(comm: &Comm<L, D>, count: u32, bytes: usize, fill: u8) -> Result<Self> {
        Self::made(count, bytes, fill, |total| Some(comm.alloc(total)))
    }
}

impl<M: DerefMut<Target = [u8]>> Buffers<M> {
    /// Buffers in memory that `allocate` gives; `None` if there is none.
    fn made(
        count: u32,
        bytes: usize,
        fill: u8,
        allocate: impl FnOnce(usize) -> Option<Result<M>>,
    ) -> Result<Self> {
        let count = count.max(1) as usize;
        // Even an empty buffer has a page, so that all buffers have different addresses.
        let stride = bytes.max(1).checked_next_multiple_of(ALIGNMENT);
        let area = stride.and_then(|stride| stride.checked_mul(count));
        let total = area
            .and_then(|area| area.checked_mul(2))
            .and_then(|both| both.checked_add(ALIGNMENT));
        let memory = total.and_then(allocate).transpose()?;
        let (Some(stride), Some(area), Some(mut memory)) = (stride, area, memory) else {
            let what = format!("no memory for {} buffers of {bytes} bytes", 2 * count);
            return Err(Error::new(ErrorKind::Exhausted, what).remedy("measure smaller messages"));
        };
        let first = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let second = first + area;
        memory[first..second].fill(fill);
        Ok(Self {
            memory,
            first,
            second,
            end: second + area,
            bytes,
            stride,
        })
    }

    /// The first send buffer and the first receive buffer.
    pub fn both(&mut self) -> (&[u8], &mut [u8]) {
        let (front, back) = self.memory[..self.end].split_at_mut(self.second);
        (&front[self.first..][..self.bytes], &mut back[..self.bytes])
    }

    /// All send buffers, and all receive buffers.
    pub(crate) fn each(
        &mut self,
    ) -> (impl Iterator<Item = &[u8]>, impl Iterator<Item = &mut [u8]>) {
        let bytes = self.bytes;
        let (front, back) = self.memory[..self.end].split_at_mut(self.second);
        let send = front[self.first..].chunks_exact(self.stride);
        let receive = back.chunks_exact_mut(self.stride);
        (
            send.map(move |buffer| &buffer[..bytes]),
            receive.map(move |buffer| &mut buffer[..bytes]),
        )
    }

    /// Fills each send buffer with its number: 1, 2, ...
    #[cfg(test)]
    pub(crate) fn number(&mut self) {
        let area = &mut self.memory[self.first..self.second];
        for (at, buffer) in area.chunks_exact_mut(self.stride).enumerate() {
            buffer.fill(at as u8 + 1);
        }
    }

    /// What has arrived in each buffer.
    pub fn received(&self) -> impl Iterator<Item = &[u8]> {
        let buffers = self.memory[self.second..self.end].chunks_exact(self.stride);
        buffers.map(|buffer| &buffer[..self.bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_pages_of_their_own() {
        for (count, bytes) in [(1, 0), (1, 1), (3, 0), (2, 4096), (5, 4097), (3, 100_000)] {
            let mut buffers = Buffers::several(count, bytes, 7).unwrap();
            let (send, receive) = buffers.each();
            let (mut places, mut ways) = (Vec::new(), [0, 0]);
            for buffer in send {
                assert!(buffer.len() == bytes && buffer.iter().all(|&b| b == 7));
                places.push(buffer.as_ptr().addr());
                ways[0] += 1;
            }
            for buffer in receive {
                assert!(buffer.len() == bytes && buffer.iter().all(|&b| b == 0));
                places.push(buffer.as_ptr().addr());
                ways[1] += 1;
            }
            assert_eq!(ways, [count, count]);
            assert!(places.iter().all(|place| place % ALIGNMENT == 0));
            assert!(places.is_sorted_by(|a, b| b - a >= bytes.max(1)));
            let (send, receive) = buffers.both();
            assert_eq!(send.as_ptr().addr(), places[0]);
            assert_eq!(receive.as_ptr().addr(), places[count as usize]);
        }
    }

    #[test]
    fn too_much_is_an_error() {
        for (count, bytes) in [
            (1, usize::MAX),
            (1, isize::MAX as usize),
            (u32::MAX, 1 << 40),
        ] {
            let error = Buffers::several(count, bytes, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted);
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
    }
}
