//! Memory of the host through which data of devices goes: a few chunks, which are used again and
//! again.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::accelerator::{Accelerator, Copying};

/// Bytes of a chunk: long enough that a copy takes longer than to start it.
pub(crate) const CHUNK: usize = 256 << 10;
/// Chunks of one pool at most.
const MOST: usize = 8;
/// Chunks that one message has at most: one moves on this side, one on the other, one is in
/// between.
pub(crate) const EACH: usize = 3;

const PAGES: Layout = match Layout::from_size_align(CHUNK, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a size and an alignment"),
};

/// Chunks, made when they are first needed and kept.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    free: Vec<Block>,
    made: usize,
    /// Of these, the ones that are never used again.
    lost: usize,
}

struct Block {
    start: NonNull<u8>,
    /// That the driver has locked it: undone first.
    pin: Option<Box<dyn Send>>,
}

// SAFETY: memory of its own, which belongs to no thread.
unsafe impl Send for Block {}

/// A chunk on loan.
pub(crate) struct Chunk {
    block: Option<Block>,
    home: Pool,
}

impl Pool {
    /// A chunk, for copies from and to the device to which `near` belongs; `None` if all are on
    /// loan.
    pub(crate) fn take(&self, driver: &dyn Accelerator, near: *const u8) -> Option<Chunk> {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let block = match shelf.free.pop() {
            Some(block) => block,
            None if shelf.made == MOST => return None,
            None => {
                let block = Block::new(driver, near)?;
                shelf.made += 1;
                block
            }
        };
        Some(Chunk {
            block: Some(block),
            home: self.clone(),
        })
    }

    /// Chunks that were given up.
    pub(crate) fn lost(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lost
    }

    /// Bytes of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        let shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.made * CHUNK
    }
}

impl Block {
    fn new(driver: &dyn Accelerator, near: *const u8) -> Option<Self> {
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { alloc_zeroed(PAGES) })?;
        // SAFETY: the memory stays until the block is dropped, which drops the pin first.
        let pin = unsafe { driver.pin(near, start.as_ptr(), CHUNK) };
        Some(Self { start, pin })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        drop(self.pin.take());
        // SAFETY: allocated by `new` with this layout, and nobody else's.
        unsafe { dealloc(self.start.as_ptr(), PAGES) };
    }
}

impl Chunk {
    /// Its first byte; it has [`CHUNK`] of them, which have been initialised.
    pub(crate) fn start(&self) -> *mut u8 {
        let block = self.block.as_ref();
        block.map_or(std::ptr::null_mut(), |block| block.start.as_ptr())
    }

    /// Gives the chunk up: a copy may still write there, or read, and nobody can tell for how long.
    /// Its memory stays as it is, locked and nobody's.
    fn lose(&mut self) {
        if let Some(block) = self.block.take() {
            crate::log!(
                WARN,
                "a chunk is not used again: the driver does not say whether its copy is over"
            );
            std::mem::forget(block);
            let mut shelf = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
            shelf.lost += 1;
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut shelf = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.free.extend(self.block.take());
    }
}

/// A chunk, and the copy that fills or empties it. Dropping it waits for the copy: neither the
/// chunk nor the device's memory is anybody else's before. If that is not known any more the chunk
/// is given up.
pub(crate) struct Moving {
    copying: Option<Box<dyn Copying>>,
    pub(crate) chunk: Chunk,
}

impl Moving {
    pub(crate) fn new(chunk: Chunk, copying: Option<Box<dyn Copying>>) -> Self {
        Self { copying, chunk }
    }

    /// Whether the copy is over.
    pub(crate) fn is_over(&mut self) -> Result<bool, String> {
        let over = match &mut self.copying {
            None => return Ok(true),
            Some(copying) => copying.is_over(),
        };
        if over != Ok(false) {
            self.copying = None;
        }
        self.keep_if(over)
    }

    /// Waits for the copy.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        let finished = self.copying.take().map_or(Ok(()), |mut it| it.finish());
        self.keep_if(finished)
    }

    fn keep_if<R>(&mut self, known: Result<R, String>) -> Result<R, String> {
        if known.is_err() {
            self.chunk.lose();
        }
        known
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        // Whose copy it is has heard of a failure, or does not want to know any more.
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging::Fake;

    /// A copy that says so often that it is under way, and then that nobody knows.
    struct Doubtful(usize);

    // SAFETY: it copies nothing.
    unsafe impl Copying for Doubtful {
        fn is_over(&mut self) -> Result<bool, String> {
            match self.0.checked_sub(1) {
                Some(left) => self.0 = left,
                None => return Err("who knows".to_owned()),
            }
            Ok(false)
        }

        fn finish(&mut self) -> Result<(), String> {
            Err("who knows".to_owned())
        }
    }

    #[test]
    fn what_may_be_written_still_is_nobody_elses() {
        let (pool, fake) = (Pool::default(), Fake::new(4096));
        let take = || pool.take(&*fake, fake.at(0));
        let doubtful = |n| Moving::new(take().unwrap(), Some(Box::new(Doubtful(n))));
        let mut asked = doubtful(1);
        let mut awaited = doubtful(0);
        let left = doubtful(0);
        let starts = [&asked, &awaited, &left].map(|it| it.chunk.start());
        assert_eq!(asked.is_over(), Ok(false));
        assert!(asked.is_over().is_err());
        assert!(awaited.finish().is_err());
        drop((asked, awaited, left));
        assert_eq!(pool.lost(), 3);
        let others: Vec<Chunk> = std::iter::from_fn(take).collect();
        assert_eq!(others.len(), MOST - 3, "memory stays bounded");
        assert!(others.iter().all(|chunk| !starts.contains(&chunk.start())));
        drop((others, pool));
        assert_eq!(fake.pinned(), 3, "they stay locked");
    }

    #[test]
    fn chunks_are_few_and_used_again() {
        let (pool, fake) = (Pool::default(), Fake::new(4096));
        let near = fake.at(0);
        let all: Vec<Chunk> = std::iter::from_fn(|| pool.take(&*fake, near)).collect();
        assert_eq!((all.len(), pool.bytes()), (MOST, MOST * CHUNK));
        assert_eq!(fake.pinned(), MOST);
        let first = all[0].start();
        drop(all);
        let again: Vec<Chunk> = std::iter::from_fn(|| pool.take(&*fake, near)).collect();
        assert!(again.iter().any(|chunk| chunk.start() == first));
        assert_eq!((again.len(), fake.pinned()), (MOST, MOST));
        drop((pool, again));
        assert_eq!(fake.pinned(), 0);
    }
}
