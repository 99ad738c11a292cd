//! Put, get, and the PE's own memory.

use portolan_core::{Error, ErrorKind, Result};

use super::Shmem;
use crate::machine::{Addr, Call, Stride};

impl Shmem {
    /// Reads own memory into `target`. Costs one access, and a copy if `target` is longer than a
    /// line.
    ///
    /// # Errors
    /// [`RemoteAccess`](ErrorKind::RemoteAccess) if there is no such memory.
    pub fn load(&mut self, addr: Addr, target: &mut [u8]) -> Result<()> {
        let len = target.len();
        self.read(Call::Load { addr, len }, target)
    }

    /// Reads a word of own memory.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_u64(&mut self, addr: Addr) -> Result<u64> {
        let mut word = [0; 8];
        self.load(addr, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Writes own memory. Costs as [`load`](Self::load).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn store(&mut self, addr: Addr, source: &[u8]) -> Result<()> {
        let data = source.to_vec();
        self.done(Call::Store { addr, data })
    }

    /// Writes a word of own memory.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn store_u64(&mut self, addr: Addr, word: u64) -> Result<()> {
        self.store(addr, &word.to_le_bytes())
    }

    /// Reads own memory at next to no cost. This is for the emulator's own needs: it moves a
    /// message that was put into an arena on behalf of a buffer outside the machine to that buffer.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn peek(&mut self, addr: Addr, target: &mut [u8]) -> Result<()> {
        let len = target.len();
        self.read(Call::Peek { addr, len }, target)
    }

    /// Writes own memory at next to no cost: the other direction of [`peek`](Self::peek).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn poke(&mut self, addr: Addr, source: &[u8]) -> Result<()> {
        let data = source.to_vec();
        self.done(Call::Poke { addr, data })
    }

    /// Writes bytes into memory of `pe` (`shmem_putmem`). Returns when `source` may be used again;
    /// the bytes arrive later, and not in order unless [`fence`](Self::fence) says so. Only aligned
    /// words of 8 bytes arrive whole.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank) if there is no such PE,
    /// [`RemoteAccess`](ErrorKind::RemoteAccess) if it has no such memory.
    pub fn put(&mut self, pe: u32, addr: Addr, source: &[u8]) -> Result<()> {
        self.done(Call::Put {
            pe,
            addr,
            data: source.to_vec(),
            stride: None,
        })
    }

    /// Writes bytes and, when they have arrived, a word: [`put`](Self::put), [`quiet`](Self::quiet)
    /// and [`put64`](Self::put64) in one call of the emulator, with the virtual times of three.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_then(
        &mut self,
        pe: u32,
        addr: Addr,
        source: &[u8],
        flag: Addr,
        word: u64,
    ) -> Result<()> {
        self.done(Call::PutThen {
            pe,
            addr,
            data: source.to_vec(),
            flag,
            word,
        })
    }

    /// Writes words of 4 bytes (`shmem_put32`).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put32(&mut self, pe: u32, addr: Addr, source: &[u32]) -> Result<()> {
        let data: Vec<u8> = source.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(pe, addr, &data)
    }

    /// Writes words of 8 bytes (`shmem_put64`).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put64(&mut self, pe: u32, addr: Addr, source: &[u64]) -> Result<()> {
        let data: Vec<u8> = source.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(pe, addr, &data)
    }

    /// Writes every `source_stride`-th word of `source`, `count` of them, to every
    /// `target_stride`-th word from `addr` on (`shmem_iput64`). Strides count words, from 1.
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`InvalidArgument`](ErrorKind::InvalidArgument) if a stride is 0
    /// or `source` too short.
    pub fn iput64(
        &mut self,
        pe: u32,
        addr: Addr,
        source: &[u64],
        target_stride: usize,
        source_stride: usize,
        count: usize,
    ) -> Result<()> {
        check_strides(source.len(), source_stride, target_stride, count)?;
        let words = source.iter().step_by(source_stride).take(count);
        self.done(Call::Put {
            pe,
            addr,
            data: words.flat_map(|w| w.to_le_bytes()).collect(),
            stride: Some(words_apart(target_stride)),
        })
    }

    /// Reads bytes from memory of `pe` (`shmem_getmem`).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get(&mut self, pe: u32, addr: Addr, target: &mut [u8]) -> Result<()> {
        let (len, stride) = (target.len(), None);
        self.read(
            Call::Get {
                pe,
                addr,
                len,
                stride,
            },
            target,
        )
    }

    /// Reads words of 4 bytes (`shmem_get32`).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get32(&mut self, pe: u32, addr: Addr, target: &mut [u32]) -> Result<()> {
        let mut bytes = vec![0; size_of_val(target)];
        self.get(pe, addr, &mut bytes)?;
        for (word, bytes) in target.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        }
        Ok(())
    }

    /// Reads words of 8 bytes (`shmem_get64`).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get64(&mut self, pe: u32, addr: Addr, target: &mut [u64]) -> Result<()> {
        let mut bytes = vec![0; size_of_val(target)];
        self.get(pe, addr, &mut bytes)?;
        scatter(&bytes, target, 1);
        Ok(())
    }

    /// Reads every `source_stride`-th word from `addr` on, `count` of them, into every
    /// `target_stride`-th word of `target` (`shmem_iget64`). Strides count words, from 1.
    ///
    /// # Errors
    /// As [`iput64`](Self::iput64).
    pub fn iget64(
        &mut self,
        pe: u32,
        addr: Addr,
        target: &mut [u64],
        target_stride: usize,
        source_stride: usize,
        count: usize,
    ) -> Result<()> {
        check_strides(target.len(), target_stride, source_stride, count)?;
        let bytes = self.bytes(Call::Get {
            pe,
            addr,
            len: count * 8,
            stride: Some(words_apart(source_stride)),
        })?;
        scatter(&bytes, target, target_stride);
        Ok(())
    }

    fn read(&mut self, call: Call, target: &mut [u8]) -> Result<()> {
        target.copy_from_slice(&self.bytes(call)?);
        Ok(())
    }
}

fn words_apart(words: usize) -> Stride {
    Stride {
        element: 8,
        step: words.saturating_mul(8),
    }
}

pub(super) fn scatter(bytes: &[u8], target: &mut [u64], step: usize) {
    for (word, bytes) in target.iter_mut().step_by(step).zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    }
}

/// Checks that `count` words, `near` words apart, lie inside `len` words, and that `far` is a
/// stride.
fn check_strides(len: usize, near: usize, far: usize, count: usize) -> Result<()> {
    let reach = count
        .saturating_sub(1)
        .saturating_mul(near)
        .saturating_add(usize::from(count > 0));
    if near > 0 && far > 0 && reach <= len {
        return Ok(());
    }
    let what = format!("{count} words with strides {near} here and {far} there, in {len} words");
    Err(Error::new(ErrorKind::InvalidArgument, what)
        .on_device("t3e-sim")
        .remedy("give strides of at least 1 and a buffer that holds every word"))
}
