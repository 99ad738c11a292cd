//! What two processors can do for data that is copied twice: by one into memory that both have, by the other out of it.
//!
//! No message that travels so can be faster, whoever sends it: here are no envelopes, no matching, no requests.

use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::ptr::copy_nonoverlapping;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::turns::on_two;
use crate::pin::PinError;

/// Longest piece in which data is copied: of 8 to 64 KiB the best for long data, because a copy has a beginning, and
/// four of them still fit a core's cache.
const PIECE: usize = 32 << 10;
/// The same where only one message is on its way: the second copy begins when the first piece is there.
const FIRST: usize = 8 << 10;
/// Pieces that may lie there, written and not yet read.
const ROOM: u64 = 4;
/// Bytes that are moved for one figure, and how often: the best is quoted.
const TOTAL: usize = 32 << 20;
const TRIES: u32 = 3;
/// Messages to and fro for one figure.
const ROUNDS: u64 = 200;

/// What copying twice allows.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Relayed {
    /// Bytes per second, one message behind the other.
    pub stream: f64,
    /// Seconds from one processor to the other, one message at a time.
    pub one_way: f64,
}

/// Moves messages of `bytes` bytes from one processor to another by two copies.
///
/// # Errors
/// If a thread cannot be put on one of them.
pub fn relayed(one: usize, other: usize, bytes: usize) -> Result<Relayed, PinError> {
    let (mut stream, mut one_way) = (0_f64, f64::INFINITY);
    for _ in 0..TRIES {
        stream = stream.max(streamed(one, other, bytes)?);
        one_way = one_way.min(to_and_fro(one, other, bytes)?);
    }
    Ok(Relayed { stream, one_way })
}

fn streamed(one: usize, other: usize, bytes: usize) -> Result<f64, PinError> {
    let relay = Relay::new(bytes.min(PIECE));
    let messages = (TOTAL / bytes.max(1)).max(4);
    let writer = || {
        let data = vec![1_u8; bytes];
        relay.write(&data);
        relay.await_read();
        let begun = Instant::now();
        (0..messages).for_each(|_| relay.write(black_box(&data)));
        relay.await_read();
        (messages * bytes) as f64 / begun.elapsed().as_secs_f64()
    };
    let reader = || {
        let mut data = vec![0_u8; bytes];
        (0..=messages).for_each(|_| relay.read(black_box(&mut data)));
    };
    on_two(one, other, writer, reader)
}

fn to_and_fro(one: usize, other: usize, bytes: usize) -> Result<f64, PinError> {
    let (there, back) = (Relay::new(bytes.min(FIRST)), Relay::new(bytes.min(FIRST)));
    let first = || {
        let (data, mut answer) = (vec![1_u8; bytes], vec![0_u8; bytes]);
        let mut round = || {
            there.write(black_box(&data));
            back.read(black_box(&mut answer));
        };
        (0..ROUNDS).for_each(|_| round());
        let begun = Instant::now();
        (0..ROUNDS).for_each(|_| round());
        begun.elapsed().as_secs_f64() / (2 * ROUNDS) as f64
    };
    let second = || {
        let (mut data, answer) = (vec![0_u8; bytes], vec![1_u8; bytes]);
        for _ in 0..2 * ROUNDS {
            there.read(black_box(&mut data));
            back.write(black_box(&answer));
        }
    };
    on_two(one, other, first, second)
}

/// Memory through which one side hands pieces to the other, and how many of them it has.
struct Relay {
    piece: usize,
    places: Box<[Page]>,
    written: Count,
    read: Count,
}

/// Memory that begins where a page does, as the buffers of the patterns do.
#[repr(align(4096))]
struct Page(
    #[expect(dead_code, reason = "reached through a pointer to all pages")] UnsafeCell<[u8; 4096]>,
);

/// A count that is alone in its pair of cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

// SAFETY: a place is the writer's until `written` counts it and the reader's until `read` does.
unsafe impl Sync for Relay {}

impl Relay {
    fn new(piece: usize) -> Self {
        let piece = piece.max(1);
        let pages = (piece * ROOM as usize).div_ceil(size_of::<Page>());
        let page = |_| Page(UnsafeCell::new([0; 4096]));
        Self {
            piece,
            places: (0..pages).map(page).collect(),
            written: Count::default(),
            read: Count::default(),
        }
    }

    /// Where a piece lies.
    fn place(&self, number: u64) -> *mut u8 {
        let at = (number % ROOM) as usize * self.piece;
        let start = self.places.as_ptr().cast_mut().cast::<u8>();
        // SAFETY: `ROOM` pieces fit the pages, and the number of a place is below `ROOM`.
        unsafe { start.add(at) }
    }

    fn write(&self, data: &[u8]) {
        for part in data.chunks(self.piece) {
            let number = self.written.0.load(Ordering::Relaxed);
            // Acquire: partner of the store in `read`.
            while number - self.read.0.load(Ordering::Acquire) == ROOM {
                spin_loop();
            }
            // SAFETY: the place has `piece` bytes, no fewer than the part, and the reader is through with what was there.
            unsafe { copy_nonoverlapping(part.as_ptr(), self.place(number), part.len()) };
            // Release: partner of the load in `read`.
            self.written.0.store(number + 1, Ordering::Release);
        }
    }

    fn read(&self, data: &mut [u8]) {
        for part in data.chunks_mut(self.piece) {
            let number = self.read.0.load(Ordering::Relaxed);
            // Acquire: partner of the store in `write`.
            while self.written.0.load(Ordering::Acquire) == number {
                spin_loop();
            }
            // SAFETY: as above; the writer has filled the place.
            unsafe { copy_nonoverlapping(self.place(number), part.as_mut_ptr(), part.len()) };
            // Release: partner of the load in `write`.
            self.read.0.store(number + 1, Ordering::Release);
        }
    }

    /// Waits until all that was written has been read.
    fn await_read(&self) {
        let written = self.written.0.load(Ordering::Relaxed);
        // Acquire: partner of the store in `read`.
        while self.read.0.load(Ordering::Acquire) != written {
            spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn what_is_written_is_read_in_order() {
        let relay = Relay::new(7);
        let data: Vec<u8> = (0..=255).collect();
        thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|_| relay.write(&data)));
            for _ in 0..3 {
                let mut out = vec![0; data.len()];
                relay.read(&mut out);
                assert_eq!(out, data);
            }
        });
    }
}
