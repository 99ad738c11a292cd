//! What two processors achieve for data that is copied twice: one copies it into shared memory, the
//! other out of it.
//!
//! There are no envelopes, no matching and no requests here, so no library is faster with a message
//! that travels in the same pieces. Only some sizes and numbers of pieces are tried. With others,
//! or with pieces that grow, two copies may take a little less: the result is a measure, not a
//! proof. Here one message follows the other. A library that takes pieces of several messages in
//! turn may find those that come from one buffer in its cache, and so move long messages faster.

use std::cell::UnsafeCell;
use std::error::Error;
use std::hint::black_box;
use std::ptr::copy_nonoverlapping;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use portolan_core::lines;

use super::turns::{Turns, TwoLines, on_two, until};
use crate::Buffers;
use crate::pin::PinError;

/// How data travels.
#[derive(Clone, Copy)]
struct Shape {
    /// Longest piece in which it is copied.
    piece: usize,
    /// Pieces that may be in the shared memory: written, but not yet read.
    room: u64,
    /// Pieces that a core copies in one direction before it serves the other.
    turn: u64,
    /// Whether the reader takes the lines that it has copied out ([`lines`]).
    takes: bool,
}

const fn shape(piece: usize, room: u64, turn: u64) -> Shape {
    Shape {
        piece,
        room,
        turn,
        takes: false,
    }
}

/// The shapes that are tried for a stream; the best result counts. Pieces are long, because each
/// copy has a fixed cost, and few, because they should fit into a core's cache. The last shape is
/// for short messages, which are no longer than its pieces anyway.
const STREAMS: [Shape; 5] = [
    shape(32 << 10, 4, 1),
    shape(32 << 10, 8, 1),
    shape(16 << 10, 4, 4),
    shape(8 << 10, 8, 8),
    shape(8 << 10, 64, 4),
];
/// The shapes that are tried if only one message travels at a time. The second copy begins when the
/// first piece is there. So short messages need short pieces; long messages pay for the first piece
/// only once, and need long pieces. Shorter pieces come first: a message that fits into one piece
/// need not be tried with longer ones.
const ALONE: [Shape; 9] = [
    shape(512, 32, 1),
    shape(1 << 10, 16, 1),
    shape(2 << 10, 16, 1),
    shape(4 << 10, 8, 1),
    shape(8 << 10, 4, 1),
    shape(8 << 10, 8, 1),
    shape(16 << 10, 4, 1),
    shape(32 << 10, 4, 1),
    shape(32 << 10, 8, 1),
];
/// Bytes that a stream of one shape moves in each direction. (Every run of the bench suite measures
/// these limits, and its tests do so without optimisation and alongside other work. All streams
/// together move no more than a few hundred megabytes.)
const TOTAL: usize = 8 << 20;
/// The largest number of pieces in a message. More pieces are never the fastest, and take long
/// alongside other work.
const PIECES: usize = 512;
/// A batch is as many round trips as move BATCH bytes in each direction, but at most ROUNDS. The
/// shortest of BATCHES batches counts, because every disturbance makes a batch longer.
const BATCH: usize = 256 << 10;
const ROUNDS: usize = 50;
const BATCHES: u32 = 16;

/// The limits that copying twice allows.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Relayed {
    /// Bytes per second, with one message behind the other.
    pub stream: f64,
    /// Bytes per second of both directions together, with a stream in each.
    pub both: f64,
    /// Seconds from one processor to the other, one message at a time, with the fastest of the
    /// shapes that are tried.
    pub one_way: f64,
}

/// The directions of a stream.
#[derive(Clone, Copy, PartialEq)]
enum Ways {
    One,
    Both,
}

/// Moves messages of `bytes` bytes from one processor to another by two copies, and back.
///
/// # Errors
/// If a thread cannot be put on one of the processors, or there is no memory for the messages.
pub fn relayed(one: usize, other: usize, bytes: usize) -> Result<Relayed, Box<dyn Error>> {
    let mut memory = [Buffers::new(bytes, 1)?, Buffers::new(bytes, 1)?];
    let mut best = Relayed {
        stream: 0.0,
        both: 0.0,
        one_way: f64::INFINITY,
    };
    // Only where that is known to be the faster way.
    let takes = lines::better_taken();
    for shape in STREAMS.map(|shape| Shape { takes, ..shape }) {
        let mut rate = |ways| streamed((one, other), shape, ways, bytes, &mut memory);
        best.stream = best.stream.max(rate(Ways::One)?);
        best.both = best.both.max(rate(Ways::Both)?);
    }
    for shape in alone(bytes).map(|shape| Shape { takes, ..shape }) {
        let one_way = to_and_fro((one, other), shape, bytes, &mut memory)?;
        best.one_way = best.one_way.min(one_way);
    }
    Ok(best)
}

/// The shapes that are tried for a message of `bytes` bytes: all that split it into several pieces,
/// and the first that takes it in one.
fn alone(bytes: usize) -> impl Iterator<Item = Shape> {
    let shorter = ALONE.iter().filter(|shape| shape.piece < bytes).count();
    let tried = ALONE.into_iter().take(shorter + 1);
    let longest = ALONE[ALONE.len() - 1].piece;
    // The longest pieces are always tried, so that every message has at least one shape.
    tried.filter(move |shape| shape.piece == longest || bytes.div_ceil(shape.piece) <= PIECES)
}

/// Bytes per second, of all directions together.
fn streamed(
    (one, other): (usize, usize),
    shape: Shape,
    ways: Ways,
    bytes: usize,
    [mine, theirs]: &mut [Buffers; 2],
) -> Result<f64, PinError> {
    let there = Relay::new(shape, bytes);
    let back = (ways == Ways::Both).then(|| Relay::new(shape, bytes));
    let start = TwoLines::default();
    let messages = (TOTAL / bytes.max(1)).max(4);
    let first = || {
        let mut ends = ends(Some(&there), back.as_ref(), mine);
        pass(&mut ends, 1);
        let begun = Instant::now();
        start.first(1);
        pass(&mut ends, messages);
        there.await_read();
        (ends.len() * messages * bytes) as f64 / begun.elapsed().as_secs_f64()
    };
    let second = || {
        let mut ends = ends(back.as_ref(), Some(&there), theirs);
        pass(&mut ends, 1);
        // No piece that counts is written before the clock runs.
        start.second(1);
        pass(&mut ends, messages);
    };
    on_two(one, other, first, second)
}

/// Seconds that a message takes one way: the shortest of several batches.
fn to_and_fro(
    (one, other): (usize, usize),
    shape: Shape,
    bytes: usize,
    [mine, theirs]: &mut [Buffers; 2],
) -> Result<f64, PinError> {
    let (there, back) = (Relay::new(shape, bytes), Relay::new(shape, bytes));
    let rounds = (BATCH / bytes.max(1)).clamp(1, ROUNDS);
    let first = || {
        let (data, answer) = mine.both();
        let (mut out, mut into) = (there.writer(data), back.reader(answer));
        let mut least = f64::INFINITY;
        for _ in 0..BATCHES {
            let begun = Instant::now();
            for _ in 0..rounds {
                pass(slice::from_mut(&mut out), 1);
                pass(slice::from_mut(&mut into), 1);
            }
            least = least.min(begun.elapsed().as_secs_f64());
        }
        least / (2 * rounds) as f64
    };
    let second = || {
        let (answer, data) = theirs.both();
        let (mut into, mut out) = (there.reader(data), back.writer(answer));
        for _ in 0..BATCHES as usize * rounds {
            pass(slice::from_mut(&mut into), 1);
            pass(slice::from_mut(&mut out), 1);
        }
    };
    on_two(one, other, first, second)
}

/// Shared memory through which one side passes pieces to the other, and the counts of pieces.
struct Relay {
    shape: Shape,
    places: Box<[Page]>,
    written: Count,
    read: Count,
}

/// Memory that begins at a page boundary, like the buffers of the patterns.
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
    /// Room for pieces of messages of `bytes` bytes.
    fn new(shape: Shape, bytes: usize) -> Self {
        let piece = shape.piece.min(bytes).max(1);
        let pages = (piece * shape.room as usize).div_ceil(size_of::<Page>());
        let page = |_| Page(UnsafeCell::new([0; 4096]));
        Self {
            shape: Shape { piece, ..shape },
            places: (0..pages).map(page).collect(),
            written: Count::default(),
            read: Count::default(),
        }
    }

    /// The writing end, which sends `data` over and over.
    fn writer<'a>(&'a self, data: &'a [u8]) -> End<'a> {
        End::new(self, Message::Sent(data))
    }

    /// The reading end, which receives into `data` over and over.
    fn reader<'a>(&'a self, data: &'a mut [u8]) -> End<'a> {
        End::new(self, Message::Received(data))
    }

    /// The place of a piece.
    fn place(&self, number: u64) -> *mut u8 {
        let at = (number % self.shape.room) as usize * self.shape.piece;
        let start = self.places.as_ptr().cast_mut().cast::<u8>();
        // SAFETY: `room` pieces fit the pages, and the number of a place is below `room`.
        unsafe { start.add(at) }
    }

    /// Waits until everything that was written has been read.
    fn await_read(&self) {
        let written = self.written.0.load(Ordering::Relaxed);
        // Acquire: partner of the reader's store in `End::step`.
        until(|| self.read.0.load(Ordering::Acquire) == written);
    }
}

/// One side's end of a relay. A relay has one writing and one reading end.
struct End<'a> {
    relay: &'a Relay,
    message: Message<'a>,
    /// Where the next piece begins in the message.
    at: usize,
    /// Pieces that have been copied, and the number up to which pieces may be copied before the
    /// other side's count must be read again.
    done: u64,
    until: u64,
    /// The number of pieces to copy in all.
    goal: u64,
}

enum Message<'a> {
    Sent(&'a [u8]),
    Received(&'a mut [u8]),
}

impl<'a> End<'a> {
    fn new(relay: &'a Relay, message: Message<'a>) -> Self {
        Self {
            relay,
            message,
            at: 0,
            done: 0,
            until: 0,
            goal: 0,
        }
    }

    /// The number of pieces in a message.
    fn pieces(&self) -> u64 {
        self.bytes().div_ceil(self.relay.shape.piece) as u64
    }

    fn bytes(&self) -> usize {
        match &self.message {
            Message::Sent(data) => data.len(),
            Message::Received(data) => data.len(),
        }
    }

    /// Copies some of the remaining pieces, and returns how many.
    fn turn(&mut self) -> u64 {
        let begun = self.done;
        let last = self.goal.min(begun + self.relay.shape.turn);
        while self.done < last && self.step() {}
        self.done - begun
    }

    /// Copies the next piece. Returns whether it could: the writer needs a free place, the reader a
    /// written piece.
    fn step(&mut self) -> bool {
        if self.done == self.until {
            self.until = self.allowed();
            if self.done == self.until {
                return false;
            }
        }
        let (relay, place) = (self.relay, self.relay.place(self.done));
        let after = self.bytes().min(self.at + relay.shape.piece);
        self.done += 1;
        match &mut self.message {
            Message::Sent(data) => {
                let part = black_box(&data[self.at..after]);
                // SAFETY: the place has `piece` bytes, no fewer than the part, and the reader is
                // through with what was there.
                unsafe { copy_nonoverlapping(part.as_ptr(), place, part.len()) };
                // Release: partner of the reader's load in `allowed`.
                relay.written.0.store(self.done, Ordering::Release);
            }
            Message::Received(data) => {
                let part = black_box(&mut data[self.at..after]);
                // SAFETY: as above; the writer has filled the place.
                unsafe {
                    match relay.shape.takes {
                        true => lines::copy_and_take(place, part.as_mut_ptr(), part.len()),
                        false => copy_nonoverlapping(place, part.as_mut_ptr(), part.len()),
                    }
                }
                // Release: partner of the writer's load in `allowed`.
                relay.read.0.store(self.done, Ordering::Release);
            }
        }
        self.at = if after == self.bytes() { 0 } else { after };
        true
    }

    /// The number of pieces that may have been copied, given the other side's count.
    fn allowed(&self) -> u64 {
        match &self.message {
            // Acquire: partner of the reader's store in `step`.
            Message::Sent(_) => self.relay.read.0.load(Ordering::Acquire) + self.relay.shape.room,
            // Acquire: partner of the writer's store there.
            Message::Received(_) => self.relay.written.0.load(Ordering::Acquire),
        }
    }
}

/// The ends that one side has: one to send and one to receive.
fn ends<'a>(
    out: Option<&'a Relay>,
    into: Option<&'a Relay>,
    memory: &'a mut Buffers,
) -> Vec<End<'a>> {
    let (sent, received) = memory.both();
    let out = out.map(|relay| relay.writer(sent));
    let into = into.map(|relay| relay.reader(received));
    out.into_iter().chain(into).collect()
}

/// Copies `messages` messages at each end, in turn.
fn pass(ends: &mut [End<'_>], messages: usize) {
    for end in &mut *ends {
        end.goal += end.pieces() * messages as u64;
    }
    while ends.iter().any(|end| end.done < end.goal) {
        until(|| ends.iter_mut().map(End::turn).sum::<u64>() != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A shape whose pieces divide neither the messages nor a page evenly.
    const ODD: Shape = shape(7, 4, 3);

    #[test]
    fn a_message_alone_is_tried_in_several_pieces_and_in_one() {
        let pieces = |bytes| alone(bytes).map(|shape| shape.piece).collect::<Vec<_>>();
        assert_eq!(pieces(0), [512]);
        assert_eq!(pieces(512), [512]);
        assert_eq!(pieces(1 << 10), [512, 1 << 10]);
        assert_eq!(pieces(8 << 10), [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10]);
        assert_eq!(pieces(256 << 10).len(), ALONE.len());
        assert_eq!(pieces(4 << 20)[0], 8 << 10);
        assert_eq!(pieces(1 << 30), [32 << 10; 2]);
        assert!(ALONE.is_sorted_by_key(|shape| shape.piece));
    }

    #[test]
    fn what_is_written_is_read_in_order() {
        let data: Vec<u8> = (0..=255).collect();
        let relay = Relay::new(ODD, data.len());
        thread::scope(|scope| {
            scope.spawn(|| pass(&mut [relay.writer(&data)], 3));
            let mut out = vec![0; data.len()];
            let mut ends = [relay.reader(&mut out)];
            for _ in 0..3 {
                pass(&mut ends, 1);
                let Message::Received(out) = &mut ends[0].message else {
                    unreachable!("a reader's end");
                };
                assert_eq!(**out, data);
                out.fill(0);
            }
        });
    }

    #[test]
    fn what_goes_both_ways_arrives_on_both_sides() {
        let sent: [Vec<u8>; 2] = [(0..=255).collect(), (0..=255).rev().collect()];
        let (there, back) = (Relay::new(ODD, 256), Relay::new(ODD, 256));
        let side = |out: &Relay, into: &Relay, data: &[u8]| {
            let mut received = vec![0; data.len()];
            let mut ends = [out.writer(data), into.reader(&mut received)];
            pass(&mut ends, 5);
            assert_eq!(ends.map(|end| end.done), [5 * 37; 2]);
            out.await_read();
            received
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| side(&there, &back, &sent[0]));
            assert_eq!(side(&back, &there, &sent[1]), sent[0]);
            assert_eq!(first.join().unwrap(), sent[1]);
        });
    }
}
