//! Cells and the only code that copies into and out of them.

use bytemuck::Zeroable;

use crate::sync::{AtomicU64, UnsafeCell};

/// One message of a ring, or half of one in a wide ring.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(64)))]
pub(crate) struct Cell {
    control: AtomicU64,
    body: UnsafeCell<Body>,
}

#[cfg(not(loom))]
#[derive(Debug)]
#[repr(C)]
struct Body {
    header: [u64; 3],
    payload: [u8; super::INLINE],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Cell>() == super::CELL);

/// The cells of one ring: a power of two of them.
///
/// It is `Copy`, because both the sender's and the receiver's half hold it; the caller of
/// [`new`](Self::new) promises that the memory outlives it.
#[derive(Clone, Copy, Debug, Zeroable)]
pub(crate) struct Cells {
    first: *const Cell,
    count: u32,
    /// Cells that a message takes.
    step: u32,
    /// Bytes of payload that fit into them.
    inline: u32,
}

// SAFETY: a pointer to memory that is shared between threads by design; the protocol of the ring
// decides which side may touch a cell.
unsafe impl Send for Cells {}

impl Cells {
    /// The ring of `count` cells at `first`, wide or not.
    ///
    /// # Safety
    /// The cells must be valid as long as the result is used and lie in one array of bytes that may
    /// be accessed beyond each of them, `count` must be a power of two and more than one, and at
    /// most one sender and one receiver may use the ring.
    pub(crate) unsafe fn new(first: *const Cell, count: u32, wide: bool) -> Self {
        debug_assert!(count.is_power_of_two() && count > 1);
        let (step, inline) = match wide {
            false => (1, super::INLINE),
            true => (2, super::INLINE_WIDE),
        };
        Self {
            first,
            count,
            step,
            inline: inline as u32,
        }
    }

    /// Whether these are cells, and not zeros.
    #[inline(always)]
    pub(super) fn exist(&self) -> bool {
        !self.first.is_null()
    }

    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// By how much a message moves the position: the cells that it takes.
    #[inline(always)]
    pub(crate) fn step(&self) -> u64 {
        u64::from(self.step)
    }

    /// The longest payload of a message.
    #[inline(always)]
    pub(crate) fn inline(&self) -> usize {
        self.inline as usize
    }

    #[inline(always)]
    pub(crate) fn index(&self, pos: u64) -> u32 {
        (pos as u32) & (self.count - 1)
    }

    #[inline(always)]
    pub(crate) fn control(&self, index: u32) -> &AtomicU64 {
        debug_assert!(index < self.count);
        // SAFETY: `index` is below `count` (it was masked), and `new` promised that many cells.
        unsafe { &(*self.first.add(index as usize)).control }
    }
}

#[cfg(not(loom))]
impl Cells {
    /// Prefetches a cell's line for writing, so that the write does not wait for it.
    #[inline(always)]
    pub(crate) fn prefetch_for_write(&self, index: u32) {
        crate::line::prefetch_for_write(self.first.wrapping_add(index as usize));
    }

    /// Prefetches a cell's line for reading.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        crate::line::prefetch(self.first.wrapping_add(index as usize));
    }

    /// Writes everything of a message but its control word.
    ///
    /// A second cell is written first: the receiver polls the first, and would take that line back
    /// while the second is on its way.
    ///
    /// # Safety
    /// The caller is the sender, the cells of the message are free, `len` is at most
    /// [`inline`](Self::inline), and `len` bytes at `data` are readable.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, index: u32, header: [u64; 3], data: *const u8, len: usize) {
        debug_assert!(len <= self.inline());
        // SAFETY: the cells belong to the sender at the moment; header and payload lie in their
        // bodies, one behind the other. A payload of more than one cell is one of a wide ring, in
        // which indexes are even, so that there is a cell behind this one.
        unsafe {
            let body = self.body(index);
            portolan_core::transport::copy_short(data, body.add(24), len);
            body.cast::<[u64; 3]>().write(header);
        }
    }

    /// The header of the message in cell `index`.
    ///
    /// # Safety
    /// The caller is the receiver and has seen the control word of that message.
    #[inline(always)]
    pub(crate) unsafe fn header(&self, index: u32) -> [u64; 3] {
        // SAFETY: the caller's promise; the header is plain words, for which every bit pattern is
        // valid.
        unsafe { self.body(index).cast::<[u64; 3]>().read() }
    }

    /// Where the payload of the message in cell `index` begins.
    #[inline(always)]
    pub(crate) fn payload(&self, index: u32) -> *const u8 {
        self.body(index).wrapping_add(24)
    }

    /// Takes the lines of a message with `len` bytes of payload, by writing a byte of each: of the
    /// header, which has been read, and behind the payload. The sender gets such a line back sooner
    /// than one that both sides have only read.
    ///
    /// # Safety
    /// The caller is the receiver, has seen the control word of that message and read its header,
    /// and has not moved past it. `len` is at most [`inline`](Self::inline).
    #[inline(always)]
    pub(crate) unsafe fn take(&self, index: u32, len: usize) {
        // SAFETY: the cells belong to the receiver until it moves past the message, and the bytes
        // are not read again. A message with a second cell is one of a wide ring.
        unsafe {
            let body = self.body(index);
            body.add(23).write_volatile(0);
            if len > super::INLINE {
                body.add(size_of::<Body>() + super::CELL - 1)
                    .write_volatile(0);
            }
        };
    }

    #[inline(always)]
    fn body(&self, index: u32) -> *mut u8 {
        debug_assert!(index < self.count);
        self.first
            .wrapping_add(index as usize)
            .cast_mut()
            .cast::<u8>()
            .wrapping_add(8)
    }
}

/// Under loom, a cell holds one word of header and one of payload.
#[cfg(loom)]
#[derive(Debug, Default)]
struct Body {
    header: u64,
    payload: u64,
}

#[cfg(loom)]
impl Cell {
    pub(crate) fn new() -> Self {
        Self {
            control: AtomicU64::new(0),
            body: UnsafeCell::new(Body::default()),
        }
    }
}

#[cfg(loom)]
impl Cells {
    pub(crate) fn prefetch_for_write(&self, _index: u32) {}

    pub(crate) fn prefetch(&self, _index: u32) {}

    /// As the real `write`; the payload is the word at `data`.
    pub(crate) unsafe fn write(&self, index: u32, header: [u64; 3], data: *const u8, _len: usize) {
        // SAFETY: the model passes a pointer to one word.
        let payload = unsafe { data.cast::<u64>().read_unaligned() };
        // SAFETY: `index` was masked.
        let cell = unsafe { &*self.first.add(index as usize) };
        // SAFETY: loom checks that the sender is alone here.
        cell.body.with_mut(|body| unsafe {
            *body = Body {
                header: header[0],
                payload,
            }
        });
    }

    /// As the real `take`. The payload has been read before, together with the header.
    pub(crate) unsafe fn take(&self, index: u32, _len: usize) {
        // SAFETY: `index` was masked.
        let cell = unsafe { &*self.first.add(index as usize) };
        // SAFETY: loom checks that the receiver is alone here.
        cell.body.with_mut(|body| unsafe { (*body).payload = 0 });
    }

    /// As the real `header`; the second word is the payload.
    pub(crate) unsafe fn header(&self, index: u32) -> [u64; 3] {
        // SAFETY: `index` was masked.
        let cell = unsafe { &*self.first.add(index as usize) };
        cell.body.with(|body| {
            // SAFETY: loom checks that no one writes here.
            unsafe { [(*body).header, (*body).payload, 0] }
        })
    }
}
