//! The data of a send, or of a peer's get, on its way from an accelerator:
//! [`flows`](crate::engine::long::flows).
//!
//! A chunk stays in use until a peer takes what is in it, which may be never. So no stream waits
//! for a chunk for ever: one that has had none for a while gets its next piece, when that can
//! leave, by a call of the driver that returns once the copy is done.

use std::collections::VecDeque;
use std::ops::Range;

use crate::buffer::MemoryKind;
use crate::engine::one_sided::step;
use crate::engine::short::outgoing::{Stream, StreamSource};
use crate::engine::state::{Proto, State};
use crate::staging::{CHUNK, Driven, EACH, Moving, Pool};
use crate::transport::packet::flags;
use crate::transport::{Header, Sent, Transport};

/// Attempts to get a chunk before a stream does without. The streams that have the chunks advance
/// meanwhile, unless their peers do not poll.
const PATIENCE: u32 = 32;
/// The most attempts before that is tried again with a peer that had no room: the data that was
/// copied for it was copied in vain.
const MOST_PATIENCE: u32 = 256;

/// The data of a send on its way from accelerator memory.
pub(in crate::engine) struct Loader {
    data: Driven,
    accelerator: (MemoryKind, i32),
    pool: Pool,
    chunks: VecDeque<(Range<usize>, Moving, bool)>,
    /// The part that the driver has not been asked for yet.
    rest: Range<usize>,
    /// Attempts in vain to get a chunk, and how many to tolerate.
    hungry: u32,
    patience: u32,
    failed: bool,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loader({:?} left)", self.rest)
    }
}

impl Loader {
    pub(in crate::engine) fn new(data: &Driven, pool: &Pool, part: Range<usize>) -> Self {
        Self {
            data: data.clone(),
            accelerator: (data.kind(), data.driver().device(data.at(0))),
            pool: pool.clone(),
            chunks: VecDeque::new(),
            rest: part,
            hungry: 0,
            patience: PATIENCE,
            failed: false,
        }
    }

    /// The accelerator whose memory it is: the kind, and the driver's number.
    pub(in crate::engine) fn accelerator(&self) -> (MemoryKind, i32) {
        self.accelerator
    }

    /// Starts copies of the next bytes, as far as there are chunks for them.
    fn load(&mut self) -> u64 {
        let mut started = 0;
        while !self.failed && self.chunks.len() < EACH && !self.rest.is_empty() {
            let (start, len) = (self.rest.start, self.rest.len().min(CHUNK));
            let source = self.data.at(start);
            let Some(chunk) = self.pool.take(self.data.driver(), source) else {
                break;
            };
            // SAFETY: the sender leaves its memory to the device until the request completes, and
            // the chunk is the loader's; both are so until the copy is over (`Moving`), because a
            // stream is dropped before its send ends.
            let copying = unsafe { self.data.driver().start_fetch(source, chunk.start(), len) };
            let Some(copying) = self.data.note(copying) else {
                self.failed = true;
                break;
            };
            started += 1;
            self.hungry = 0;
            self.rest.start += len;
            let moving = Moving::new(chunk, copying);
            self.chunks.push_back((start..start + len, moving, false));
        }
        started
    }

    /// The bytes from a position on that are in host memory.
    fn bytes(&mut self, position: usize) -> Option<(*const u8, usize)> {
        if !self.is_here(0)? {
            return None;
        }
        let (range, moving, _) = self.chunks.front()?;
        debug_assert!(range.contains(&position));
        let start = moving.chunk.start().wrapping_add(position - range.start);
        Some((start.cast_const(), range.end - position))
    }

    /// The next piece, copied by a blocking call of the driver, if there has been no chunk for too
    /// long.
    fn piece_at_once(&mut self, most: usize, scratch: &mut Vec<u8>) -> Option<(*const u8, usize)> {
        if !self.chunks.is_empty() || self.failed {
            return None;
        }
        if self.hungry < self.patience {
            self.hungry += 1;
            return None;
        }
        let len = most.min(self.rest.len());
        scratch.resize(scratch.len().max(len), 0);
        // SAFETY: the sender leaves its memory to the device until the request completes; the
        // scratch has `len` bytes.
        let fetched = unsafe { self.data.fetch(self.rest.start, scratch.as_mut_ptr(), len) };
        self.failed = fetched.is_none();
        if self.failed {
            // The driver may not have stopped writing, so its target is never used again.
            std::mem::forget(std::mem::take(scratch));
        }
        fetched.map(|()| (scratch.as_ptr(), len))
    }

    /// Notes that the peer had no room.
    fn was_refused(&mut self) {
        if self.chunks.is_empty() {
            self.hungry = 0;
            self.patience = MOST_PATIENCE.min(2 * self.patience);
        }
    }

    /// Whether the copy into this chunk is over.
    fn is_here(&mut self, which: usize) -> Option<bool> {
        let (_, moving, here) = self.chunks.get_mut(which)?;
        if !*here {
            match self.data.note(moving.is_over()) {
                Some(over) => *here = over,
                None => self.failed = true,
            }
        }
        Some(*here)
    }

    /// Notes that everything before a position has left.
    fn has_left(&mut self, position: usize) {
        while self
            .chunks
            .front()
            .is_some_and(|(range, ..)| range.end <= position)
        {
            self.chunks.pop_front();
        }
        self.rest.start = self.rest.start.max(position);
        self.patience = PATIENCE;
    }
}

impl<T: Transport> State<T> {
    /// Advances a stream from an accelerator; returns the number of pieces that have left.
    pub(in crate::engine) fn advance_loaded(&mut self, stream: &mut Stream, turn: usize) -> usize {
        let mut sent = 0;
        let Some(loader) = &mut stream.loader else {
            return 0;
        };
        while stream.position < stream.end && sent < turn {
            self.proto.counters.chunks_staged += loader.load();
            let scratch = &mut self.proto.scratch;
            let found = loader.bytes(stream.position);
            let found = found.or_else(|| loader.piece_at_once(stream.piece, scratch));
            let Some((bytes, here)) = found else {
                break;
            };
            let len = here.min(stream.piece);
            let next = loader.is_here(1);
            self.proto.counters.pieces_overlapped += u64::from(next == Some(false));
            // SAFETY: `len` is at most `piece`, which is at most `bulk`, and so many bytes are
            // here, of a chunk or of the scratch, which nobody else uses meanwhile.
            let result = unsafe {
                self.transport
                    .send_bulk(stream.peer, &stream.header, len, |target| {
                        crate::lines::copy(bytes, target, len);
                    })
            };
            if result != Sent::Done {
                loader.was_refused();
                if result == Sent::Gone {
                    self.proto.breaks_off(stream);
                    return sent;
                }
                break;
            }
            stream.position += len;
            sent += 1;
            loader.has_left(stream.position);
        }
        if loader.failed && stream.position < stream.end {
            // A get is refused, as if its region were gone.
            let flags = match stream.source {
                StreamSource::Send(_) => stream.header.flags | flags::BROKEN,
                StreamSource::Region { .. } => step::REFUSED,
            };
            let header = Header {
                flags,
                ..stream.header
            };
            if self.hand_over(stream.peer, &header, &[]) != Sent::Full {
                stream.position = stream.end;
                sent += 1;
            }
        }
        sent
    }
}

impl Proto {
    /// Starts to stream a part of a send's data.
    pub(in crate::engine) fn push_stream(
        &mut self,
        peer: u32,
        header: Header,
        send: u32,
        part: Range<usize>,
    ) {
        let data = self.table.send(send).and_then(|op| op.data.driven());
        let loader =
            data.map(|data| Box::new(Loader::new(data, &self.flows.fetches, part.clone())));
        self.streams.push_back(Stream {
            peer,
            header,
            source: StreamSource::Send(send),
            piece: self.limits.piece_of(part.len()),
            position: part.start,
            end: part.end,
            loader,
        });
    }
}
