//! The memory that messages come from and go to.

use portolan::{Error, ErrorKind, Result};

/// Where buffers begin: pages, as in the OSU suite, so that runs do not differ by where the
/// allocator happened to put them.
const ALIGNMENT: usize = 4096;

/// One buffer to send from and one to receive into, each at the beginning of a page and touched.
#[derive(Debug)]
pub struct Buffers {
    memory: Vec<u8>,
    first: usize,
    second: usize,
    bytes: usize,
}

impl Buffers {
    /// Buffers for messages of `bytes` bytes; the one to send is filled with `fill`, the other with
    /// zeros.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no memory for them.
    pub fn new(bytes: usize, fill: u8) -> Result<Self> {
        let room = bytes.checked_next_multiple_of(ALIGNMENT);
        let total = room
            .and_then(|room| room.checked_mul(2))
            .and_then(|both| both.checked_add(ALIGNMENT));
        let mut memory = Vec::new();
        let total = total.filter(|&total| memory.try_reserve_exact(total).is_ok());
        let (Some(room), Some(total)) = (room, total) else {
            let what = format!("no memory for two buffers of {bytes} bytes");
            return Err(Error::new(ErrorKind::Exhausted, what).remedy("measure smaller messages"));
        };
        memory.resize(total, 0);
        let first = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        memory[first..first + bytes].fill(fill);
        Ok(Self {
            memory,
            first,
            second: first + room,
            bytes,
        })
    }

    /// What is sent, and where to receive.
    pub fn both(&mut self) -> (&[u8], &mut [u8]) {
        let (front, back) = self.memory.split_at_mut(self.second);
        (&front[self.first..][..self.bytes], &mut back[..self.bytes])
    }

    /// What has arrived.
    #[must_use]
    pub fn received(&self) -> &[u8] {
        &self.memory[self.second..][..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_pages_of_their_own() {
        for bytes in [0, 1, 4096, 4097, 100_000] {
            let mut buffers = Buffers::new(bytes, 7).unwrap();
            let (send, receive) = buffers.both();
            assert_eq!((send.len(), receive.len()), (bytes, bytes));
            assert!(send.iter().all(|&b| b == 7) && receive.iter().all(|&b| b == 0));
            assert_eq!(send.as_ptr().addr() % ALIGNMENT, 0);
            assert_eq!(receive.as_ptr().addr() % ALIGNMENT, 0);
        }
    }

    #[test]
    fn too_much_is_an_error() {
        for bytes in [usize::MAX, isize::MAX as usize] {
            let error = Buffers::new(bytes, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted);
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
    }
}
