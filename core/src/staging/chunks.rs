//! Host memory through which the data of accelerators passes: a few chunks, which are used again
//! and again.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::accelerator::{Accelerator, Copying};

/// Bytes per chunk: large enough that a copy takes longer than starting it.
pub(crate) const CHUNK: usize = 256 << 10;
/// Most chunks in one pool.
const MOST: usize = 8;
/// Most chunks for one message: one moves on this side, one on the other, one is in between.
pub(crate) const EACH: usize = 3;

const PAGES: Layout = match Layout::from_size_align(CHUNK, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a size and an alignment"),
};

/// A pool of chunks. They are made when first needed, and kept.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    free: Vec<Block>,
    made: usize,
    /// The number of those that are never used again.
    lost: usize,
}

struct Block {
    start: NonNull<u8>,
    /// Holds the driver's lock on the pages. Dropped before the memory is freed.
    pin: Option<Box<dyn Send>>,
}

// SAFETY: the block owns its memory, which is tied to no thread.
unsafe impl Send for Block {}

/// A chunk on loan.
pub(crate) struct Chunk {
    block: Option<Block>,
    home: Pool,
}

impl Pool {
    /// Takes a chunk for copies from and to the accelerator that `near` belongs to; `None` if all
    /// are on loan.
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

    /// Number of chunks that were given up.
    pub(crate) fn lost(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lost
    }

    /// Bytes of all chunks that were made.
    pub(crate) fn bytes(&self) -> usize {
        let shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.made * CHUNK
    }
}

impl Block {
    fn new(driver: &dyn Accelerator, near: *const u8) -> Option<Self> {
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { alloc_zeroed(PAGES) })?;
        // SAFETY: the memory lives until the block is dropped, which drops the pin first.
        let pin = unsafe { driver.pin(near, start.as_ptr(), CHUNK) };
        Some(Self { start, pin })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        drop(self.pin.take());
        // SAFETY: allocated by `new` with this layout, and owned by this block only.
        unsafe { dealloc(self.start.as_ptr(), PAGES) };
    }
}

impl Chunk {
    /// Address of the first of [`CHUNK`] bytes. They are initialised.
    pub(crate) fn start(&self) -> *mut u8 {
        let block = self.block.as_ref();
        block.map_or(std::ptr::null_mut(), |block| block.start.as_ptr())
    }

    /// Gives up the chunk, because a copy may still read or write it, for an unknown time. Its
    /// memory stays allocated and locked, and is never used again.
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

/// A chunk, and the copy that fills or empties it. Dropping it waits for the copy, so that neither
/// the chunk nor the accelerator's memory is reused before. If the driver cannot tell whether the
/// copy is over, the chunk is given up.
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
        // The copy's owner has seen the error, or no longer wants to know.
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging::Fake;

    /// A copy that reports so many times that it is under way, and then that its state is unknown.
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
