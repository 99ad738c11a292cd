//! Bundles: short messages to one rank that leave in one packet.
//!
//! Where packets are expensive ([`Limits::bundle`]), a burst of short nonblocking sends leaves in
//! bundles. The first [`AT_ONCE`] sends of the burst leave at once, each by itself. Sends started
//! after those, before this rank makes progress again, wait in the peer's queue like sends that
//! find no room, and the next progress step hands them over together. That step is in the next call
//! that probes, or that waits for or tests something that is not over yet, and at the latest after
//! 64 messages. Everything else sent to that peer in the meantime waits behind them.
//!
//! ```text
//! bundle    message | message | …
//! message   length 32 | header 192, unless the length has the mark SAME | bytes
//! ```
//!
//! [`Limits::bundle`]: crate::transport::Limits::bundle

use std::collections::VecDeque;

use crate::buffer::ContigBuf;
use crate::device::{SendArgs, SendMode};
use crate::engine::entry::{Op, Queued};
use crate::engine::short::outgoing::Peer;
use crate::engine::short::send::{START, UNPOLLED, header};
use crate::engine::state::{Proto, State};
use crate::error::Result;
use crate::guard::NoUnwind;
use crate::request::{Request, State as Stage};
use crate::status::Status;
use crate::transport::packet::copy_short;
use crate::transport::{Header, Limits, PacketKind, Payload, Sent, Transport};

/// Short nonblocking sends to one peer, without progress in between, that leave at once, each by
/// itself. Few programs send more to one rank before they check for arrivals. A program that does
/// so and then computes delays those beyond this number.
const AT_ONCE: u8 = 16;
/// A bundle has room for at least this many messages of the greatest length.
const FEWEST: usize = 3;
/// The message has the same header as the one before it.
const SAME: u32 = 1 << 31;
/// Bytes in front of a message that carries its header.
const FRONT: usize = size_of::<u32>() + size_of::<Header>();

/// A bundle under construction. Its memory is reused.
#[derive(Debug, Default)]
pub(in crate::engine) struct Bundle {
    bytes: Vec<u8>,
    /// The header of the last message in it.
    last: Option<Header>,
}

impl Bundle {
    /// Begins a bundle of at most `most` bytes.
    fn begin(&mut self, most: usize) {
        self.bytes.clear();
        self.bytes.reserve(most);
        self.last = None;
    }

    /// Appends a message, if there is room for it.
    ///
    /// # Safety
    /// `len` bytes must be readable at `data`.
    #[inline]
    unsafe fn add(&mut self, header: &Header, data: *const u8, len: usize, most: usize) -> bool {
        let same = self.last.as_ref() == Some(header);
        let front = if same { size_of::<u32>() } else { FRONT };
        let at = self.bytes.len();
        if at + front + len > most.min(self.bytes.capacity()) {
            return false;
        }
        let word = len as u32 | if same { SAME } else { 0 };
        // SAFETY: there is room for the word, the header if it has to be there, and the message
        // behind what is there. The caller's promise.
        unsafe {
            let place = self.bytes.as_mut_ptr().add(at);
            place.cast::<[u8; 4]>().write(word.to_le_bytes());
            if !same {
                let words = header.to_words().map(u64::to_le);
                let place = place.add(size_of::<u32>()).cast::<[u64; 3]>();
                place.write_unaligned(words);
                self.last = Some(*header);
            }
            copy_short(data, place.add(front), len);
            self.bytes.set_len(at + front + len);
        }
        true
    }
}

/// The length from which on messages never go into a bundle; 0 if there are no bundles.
pub(in crate::engine) fn end_of_lengths(limits: &Limits) -> usize {
    match limits.bundle.checked_sub(FEWEST * FRONT) {
        Some(bytes) => 1 + (bytes / FEWEST).min(limits.short),
        None => 0,
    }
}

impl Proto {
    /// Whether a nonblocking send that is being started waits to leave together with others.
    #[inline]
    pub(in crate::engine) fn is_to_be_bundled(&mut self, args: &SendArgs, len: usize) -> bool {
        // Where there are no bundles, the first test is the only one.
        len < self.bundled_below && args.mode != SendMode::Synchronous && self.is_behind(args, len)
    }

    /// Whether so many sends to this peer have left without progress in between that this one
    /// waits.
    #[inline(never)]
    fn is_behind(&mut self, args: &SendArgs, len: usize) -> bool {
        let peer = args.dest.index();
        if peer == self.me || self.trouble || len > self.limits.eager {
            return false;
        }
        let polls = self.shared.polls() as u32;
        let state = &mut self.peers[peer as usize];
        if state.polls != polls {
            (state.polls, state.burst) = (polls, 0);
        }
        state.burst = state.burst.saturating_add(1);
        match state.flags {
            0 => state.burst > AT_ONCE,
            flags => flags == Peer::WAITING,
        }
    }

    /// Adds the send of a slot to the current bundle, if it may go there and fits.
    #[inline]
    fn add_to_bundle(&mut self, index: u32) -> bool {
        let Op::Queued(Queued { args, buf }) = &self.table.entry(index).op else {
            return false;
        };
        let (ptr, len) = (buf.ptr, buf.len);
        let header = header(PacketKind::Eager, args, buf.signature.bits());
        // The limit may have been lowered since the send was queued.
        len <= self.limits.eager
            // SAFETY: the sender leaves the buffer to the device until the request completes.
            && unsafe { self.bundle.add(&header, ptr, len, self.limits.bundle) }
    }

    /// Completes a queued send whose message has left in a bundle.
    #[inline]
    fn left_in_bundle(&mut self, index: u32) {
        if let Op::Queued(Queued { buf, .. }) = &self.table.entry(index).op {
            self.counters.eager_sent += 1;
            self.counters.bytes_sent += buf.len as u64;
        }
        let empty = Status::EMPTY;
        self.trace("complete", empty.source, empty.tag, 0);
        if self.table.end_quietly(index, empty) {
            self.shared.advance_epoch();
        } else {
            self.complete_rare(index);
        }
    }

    /// Handles a bundle that has arrived.
    #[inline(never)]
    pub(in crate::engine) fn on_bundle(&mut self, peer: u32, payload: Payload<'_>) {
        let mut rest = payload;
        let mut known = None;
        while let Some(word) = rest.first::<4>().map(u32::from_le_bytes) {
            rest = rest.after(size_of::<u32>());
            if word & SAME == 0 {
                known = rest.first::<{ size_of::<Header>() }>().map(header_of);
                rest = rest.after(size_of::<Header>());
            }
            let len = (word & !SAME) as usize;
            let Some(header) = known.filter(|_| len <= rest.len()) else {
                break;
            };
            if header.kind != PacketKind::Eager as u8 {
                break;
            }
            self.on_eager(peer, &header, rest.until(len));
            rest = rest.after(len);
            if rest.is_empty() {
                return;
            }
        }
        self.misbehaves(peer, "sent a bundle of messages that is none");
    }
}

fn header_of(bytes: [u8; size_of::<Header>()]) -> Header {
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Header::from_words(words)
}

/// The result of an attempt to send a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Bundled {
    /// This many sends have left the queue.
    Left(usize),
    /// There is no room for it.
    Full,
    /// The send at the front of the queue leaves by itself.
    Alone,
}

impl<T: Transport> State<T> {
    /// Starts a send that waits for others ([`Proto::is_to_be_bundled`]).
    ///
    /// # Safety
    /// `args` must be legal; the buffer must stay readable until the request completes.
    #[inline(never)]
    pub(in crate::engine) unsafe fn start_for_bundle(
        &mut self,
        args: &SendArgs,
        buf: ContigBuf,
    ) -> Result<Request> {
        let request = self.proto.table.claim(Stage::Active)?;
        self.queue_for_bundle(request.index(), args, buf);
        Ok(request)
    }

    /// The same for an idle slot whose request is already active.
    #[inline]
    pub(in crate::engine) fn queue_for_bundle(
        &mut self,
        index: u32,
        args: &SendArgs,
        buf: ContigBuf,
    ) {
        let op = Queued { args: *args, buf };
        self.proto.table.entry(index).begin(Op::Queued(op));
        self.proto.queue_send(args.dest.index(), index);
        self.proto.unpolled += 1;
        if self.proto.unpolled >= UNPOLLED {
            NoUnwind::during(START, || self.progress());
        }
    }

    /// Hands over in one packet up to `most` sends from the front of a peer's queue.
    pub(in crate::engine) fn launch_bundle(
        &mut self,
        peer: u32,
        queue: &VecDeque<u32>,
        most: usize,
    ) -> Bundled {
        let proto = &mut self.proto;
        let holds = proto.peers[peer as usize].flags & Peer::HOLD != 0;
        if queue.len() < 2 || proto.bundled_below == 0 || holds {
            return Bundled::Alone;
        }
        proto.bundle.begin(proto.limits.bundle);
        let mut count = 0;
        for &index in queue.iter().take(most) {
            if !proto.add_to_bundle(index) {
                break;
            }
            count += 1;
        }
        if count < 2 {
            return Bundled::Alone;
        }
        let header = Header {
            kind: PacketKind::Bundle as u8,
            ..Header::default()
        };
        let (bytes, len) = (proto.bundle.bytes.as_ptr(), proto.bundle.bytes.len());
        // SAFETY: the peer is another rank, which has a queue; all of the bundle is initialised,
        // and it is no longer than such a packet may be.
        let sent = unsafe {
            match len <= proto.limits.short {
                true => self.transport.send_short(peer, &header, bytes, len),
                false => self.transport.send_bulk_from(peer, &header, bytes, len),
            }
        };
        match sent {
            Sent::Full => return Bundled::Full,
            // The sends fail when the loss of the peer is noticed.
            Sent::Gone => self.proto.note_gone(peer),
            Sent::Done => {
                self.proto.counters.bundles_sent += 1;
                for &index in queue.iter().take(count) {
                    self.proto.left_in_bundle(index);
                }
            }
        }
        Bundled::Left(count)
    }
}
