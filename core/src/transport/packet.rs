//! Packets: the units that travel between the engines of two ranks.

use std::marker::PhantomData;

use crate::lines::{self, LINE};

/// Number of the wire format; ranks that disagree refuse to talk (checked when a job starts).
pub const WIRE_VERSION: u32 = 6;

/// The purpose of a packet. The numbers are part of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketKind {
    /// A message with all of its data.
    Eager = 1,
    /// An announcement of a message whose data stays with the sender until it is matched.
    Offer = 2,
    /// Receiver to sender: stream the data of an offer, or push it.
    Take = 3,
    /// Sender to receiver: a piece of a taken offer.
    Data = 4,
    /// Receiver to sender: an offer was pulled, or a synchronous eager message was matched.
    Done = 5,
    /// Receiver to sender: announce everything (cookie 1), or go back to eager messages (cookie 0).
    Hold = 6,
    /// An active message.
    Active = 7,
    /// A step of a one-sided operation that has no direct path.
    OneSided = 8,
    /// Receiver to sender: this many active messages (the cookie) have been handled.
    Credit = 9,
    /// Sender to receiver: the data that a `Take` asked for has been pushed.
    Pushed = 10,
    /// The first piece of a message that is sent in pieces without an offer; the cookie is the
    /// message's length.
    First = 11,
    /// The next piece of that message. No other message between the two ranks comes in between.
    Next = 12,
    /// Several short messages, each with all of its data.
    Bundle = 13,
}

impl PacketKind {
    /// The kind with this number; `None` for numbers that no peer may send.
    #[inline]
    #[must_use]
    pub fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Eager,
            2 => Self::Offer,
            3 => Self::Take,
            4 => Self::Data,
            5 => Self::Done,
            6 => Self::Hold,
            7 => Self::Active,
            8 => Self::OneSided,
            9 => Self::Credit,
            10 => Self::Pushed,
            11 => Self::First,
            12 => Self::Next,
            13 => Self::Bundle,
            _ => return None,
        })
    }
}

/// The 24 bytes in front of every packet: kind, envelope, and one word for the protocol.
///
/// Any bit pattern is a header; the engine validates what it reads. A transport copies headers and
/// never interprets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C, align(8))]
pub struct Header {
    /// [`PacketKind`] as a number.
    pub kind: u8,
    /// Flags of the kind, see [`flags`].
    pub flags: u8,
    /// Message representation of the data ([`portolan_datatype::MsgRep`] as a number).
    pub rep: u8,
    /// Channel of the sender's engine (0 today).
    pub channel: u8,
    /// Context id; for active messages the handler's id.
    pub context: u32,
    /// Rank of the sender in the communicator of the message.
    pub source: u32,
    /// Tag.
    pub tag: u32,
    /// Type signature of the data.
    pub signature: u32,
    /// Depending on the kind, a request of the sender or of the receiver in its 32-bit form, a
    /// length, or 0.
    pub cookie: u32,
}

const _: () = assert!(size_of::<Header>() == 24);

/// Flags in [`Header::flags`].
pub mod flags {
    /// The sender waits to hear that the message was matched (synchronous mode).
    pub const SYNCHRONOUS: u8 = 1;
    /// The sender asserted that the receive was posted (ready mode).
    pub const READY: u8 = 2;
    /// The data of the offer is contiguous and exposed: it can be pulled.
    pub const EXPOSED: u8 = 4;
    /// The active message is a reply: room for it was reserved.
    pub const REPLY: u8 = 8;
    /// The `Take` contains the receiver's buffer: the data is to be pushed there, if that is
    /// possible.
    pub const OPENED: u8 = 16;
    /// A blocking call of the sender waits for the end of this offer.
    pub const WAITED: u8 = 32;
    /// The rest of the requested data does not come: the sender's driver could not read it.
    pub const BROKEN: u8 = 64;
}

impl Header {
    /// The header as three words, for transports that store words. The words are put together from
    /// the fields. Loading them from where the fields were just written in smaller parts would
    /// stall the processor.
    #[inline]
    #[must_use]
    pub fn to_words(&self) -> [u64; 3] {
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let first = u32::from_le_bytes([self.kind, self.flags, self.rep, self.channel]);
        [
            two(first, self.context),
            two(self.source, self.tag),
            two(self.signature, self.cookie),
        ]
    }

    /// The inverse of [`to_words`](Self::to_words).
    #[inline]
    #[must_use]
    pub fn from_words(words: [u64; 3]) -> Self {
        let [first, second, third] = words;
        let [kind, flags, rep, channel] = (first as u32).to_le_bytes();
        Self {
            kind,
            flags,
            rep,
            channel,
            context: (first >> 32) as u32,
            source: second as u32,
            tag: (second >> 32) as u32,
            signature: third as u32,
            cookie: (third >> 32) as u32,
        }
    }
}

/// Marks a payload whose lines the code that copies them should take; no length has this bit.
const TAKE: usize = 1 << (usize::BITS - 1);

/// Marks a payload that is copied by words. No length has this bit either, because packets are far
/// shorter.
const WORDS: usize = TAKE >> 1;

/// The bytes of a packet where they arrived, in memory that another process may still write.
///
/// Never turned into a slice: a misbehaving peer may change the bytes while they are read. So they
/// are copied out first and checked afterwards.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    ptr: *const u8,
    /// Includes the mark [`TAKE`] or [`WORDS`], if any, so that a payload is two words, which are
    /// passed in registers.
    len: usize,
    place: PhantomData<&'a [u8]>,
}

impl<'a> Payload<'a> {
    /// The `len` bytes at `ptr`.
    ///
    /// # Safety
    /// The bytes must be readable for `'a`.
    #[inline]
    #[must_use]
    pub unsafe fn new(ptr: *const u8, len: usize) -> Self {
        Self {
            ptr,
            len,
            place: PhantomData,
        }
    }

    /// The bytes of a slice.
    #[inline]
    #[must_use]
    pub fn from_slice(bytes: &'a [u8]) -> Self {
        Self {
            ptr: bytes.as_ptr(),
            len: bytes.len(),
            place: PhantomData,
        }
    }

    /// The same, in lines that the code that copies them [takes](crate::lines).
    ///
    /// # Safety
    /// The bytes must be readable and writable for `'a`, and nobody may need them after the copy.
    #[inline]
    #[must_use]
    pub unsafe fn to_take(ptr: *mut u8, len: usize) -> Self {
        debug_assert!(len & (TAKE | WORDS) == 0);
        Self {
            ptr,
            len: len | TAKE,
            place: PhantomData,
        }
    }

    /// The same, to be copied [by words](lines::copy_by_words) because that is faster.
    ///
    /// # Safety
    /// The bytes must be readable for `'a`.
    #[inline]
    #[must_use]
    pub unsafe fn by_words(ptr: *const u8, len: usize) -> Self {
        debug_assert!(len & (TAKE | WORDS) == 0);
        Self {
            ptr,
            len: len | WORDS,
            place: PhantomData,
        }
    }

    /// Number of bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len & !(TAKE | WORDS)
    }

    /// The same, in lines that are not taken: for code that may copy them more than once.
    #[inline]
    #[must_use]
    pub fn to_keep(self) -> Self {
        Self {
            len: self.len(),
            ..self
        }
    }

    /// Copies the first `len` bytes out. May be called once only, because lines that are taken are
    /// lost.
    ///
    /// # Safety
    /// `len` is at most [`len`](Self::len), and so many bytes at `to` are writable and apart from
    /// the payload.
    #[inline(always)]
    pub unsafe fn copy_to(&self, to: *mut u8, len: usize) {
        debug_assert!(len <= self.len());
        // SAFETY: the promises of the caller and of the code that made the payload.
        unsafe {
            if len <= LINE / 2 {
                copy_short(self.ptr, to, len);
            } else {
                self.copy_long(to, len);
            }
        }
    }

    /// The same for lengths that are too long to be copied inline: a call, so that the callers stay
    /// short.
    ///
    /// # Safety
    /// As for [`copy_to`](Self::copy_to).
    #[inline(never)]
    unsafe fn copy_long(self, to: *mut u8, len: usize) {
        // SAFETY: the promises of the caller and of the code that made the payload.
        unsafe {
            if len > LINE && self.len & TAKE != 0 {
                lines::copy_and_take(self.ptr.cast_mut(), to, len);
            } else if self.len & WORDS != 0 {
                lines::copy_by_words(self.ptr, to, len);
            } else {
                copy_short(self.ptr, to, len);
            }
        }
    }

    /// Takes the lines, if they are marked to be taken, after their bytes have been copied.
    #[inline]
    pub fn take(&self) {
        if self.len & TAKE != 0 {
            // SAFETY: the promise of `to_take`.
            unsafe { lines::take(self.ptr.cast_mut(), self.len()) };
        }
    }

    /// Whether there are no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the bytes are. Read each byte once only, by copying it.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Copies all bytes out. Once only, as [`copy_to`](Self::copy_to).
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::new();
        self.append_to(&mut copy);
        copy
    }

    /// Copies the first `N` bytes out; `None` when there are fewer.
    #[inline]
    #[must_use]
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
        if self.len() < N {
            return None;
        }
        let mut copy = [0_u8; N];
        // SAFETY: at least `N` bytes are readable, and `copy` is a fresh array of `N` bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, copy.as_mut_ptr(), N) };
        Some(copy)
    }

    /// Appends the bytes to `bytes`. Once only, as [`copy_to`](Self::copy_to).
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        let len = self.len();
        bytes.reserve(len);
        // SAFETY: `len` bytes behind the vector's end are writable, because they were just
        // reserved.
        unsafe {
            self.copy_to(bytes.as_mut_ptr().add(bytes.len()), len);
            bytes.set_len(bytes.len() + len);
        }
    }

    /// The first `n` bytes, or all if there are fewer. Their lines are not taken.
    #[inline]
    #[must_use]
    pub fn until(&self, n: usize) -> Payload<'a> {
        Payload {
            len: n.min(self.len()),
            ..*self
        }
    }

    /// The bytes after the first `n`; empty if there are fewer.
    #[inline]
    #[must_use]
    pub fn after(&self, n: usize) -> Payload<'a> {
        let n = n.min(self.len());
        Payload {
            // SAFETY: `n` is at most `len`, so the rest lies in the same bytes.
            ptr: unsafe { self.ptr.add(n) },
            // The marks are kept.
            len: self.len - n,
            place: PhantomData,
        }
    }
}

impl std::fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

/// Copies `len` bytes; up to 128 of them without a call, by pairs of overlapping blocks. Of more
/// than 32 the end is copied first.
///
/// # Safety
/// `len` bytes at `from` are readable, as many at `to` writable, and the two do not overlap.
#[inline(always)]
pub unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    use std::ptr::copy_nonoverlapping as copy;
    // SAFETY: each branch touches only offsets below `len`: a block of n bytes at 0 and one that
    // ends at `len`, with n ≤ len ≤ 2n.
    unsafe {
        match len {
            0 => {}
            8 => copy(from, to, 8),
            16..=32 => {
                copy(from, to, 16);
                copy(from.add(len - 16), to.add(len - 16), 16);
            }
            9..=15 => {
                copy(from, to, 8);
                copy(from.add(len - 8), to.add(len - 8), 8);
            }
            4..=7 => {
                copy(from, to, 4);
                copy(from.add(len - 4), to.add(len - 4), 4);
            }
            1..=3 => {
                *to = *from;
                *to.add(len / 2) = *from.add(len / 2);
                *to.add(len - 1) = *from.add(len - 1);
            }
            33..=64 => {
                copy(from.add(len - 32), to.add(len - 32), 32);
                copy(from, to, 32);
            }
            65..=128 => {
                copy(from.add(len - 64), to.add(len - 64), 64);
                copy(from, to, 64);
            }
            _ => crate::lines::copy(from, to, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of a payload that is marked to be taken, from its beginning and from the middle, and
    /// what is left of its lines.
    #[test]
    fn what_is_to_be_taken_is_whole_and_taken_once_it_is_copied() {
        let sent: Vec<u8> = (0..3000_u32).map(|at| at as u8 | 1).collect();
        for (from, copy) in [(0, true), (100, true), (0, false), (2990, true)] {
            let mut place = sent.clone();
            // SAFETY: the vector's bytes, which nobody else uses meanwhile.
            let payload = unsafe { Payload::to_take(place.as_mut_ptr(), place.len()) };
            assert_eq!((payload.len(), payload.is_empty()), (3000, false));
            let rest = payload.after(from);
            assert_eq!(rest.len(), 3000 - from);
            assert_eq!(
                rest.first::<8>().unwrap(),
                sent[from..].first_chunk::<8>().copied().unwrap()
            );
            if copy {
                assert_eq!(rest.to_vec(), sent[from..], "from {from}");
            } else {
                rest.take();
            }
            // A rest that fits into a line is not worth taking.
            let lines = if rest.len() > LINE {
                rest.len().div_ceil(LINE)
            } else {
                0
            };
            let taken = place.iter().filter(|&&byte| byte == 0).count();
            assert_eq!(taken, lines, "from {from}");
        }
    }

    /// With and without the mark, the bytes and their number are the same: of the whole payload, of
    /// its end and of its beginning.
    #[test]
    fn what_is_copied_by_words_is_whole() {
        let sent: Vec<u8> = (0..3000_u32).map(|at| (at / 7) as u8).collect();
        // SAFETY: the vector's bytes.
        let payload = unsafe { Payload::by_words(sent.as_ptr(), sent.len()) };
        assert_eq!((payload.len(), payload.is_empty()), (3000, false));
        assert_eq!(format!("{payload:?}"), "Payload(3000 bytes)");
        assert_eq!(payload.first::<8>().as_ref(), sent.first_chunk::<8>());
        payload.take();
        for payload in [payload, payload.to_keep()] {
            assert_eq!(payload.to_vec(), sent);
            assert_eq!(payload.after(600).to_vec(), sent[600..]);
            assert_eq!(payload.after(2990).len(), 10);
            let mut copy = [0; 2500];
            // SAFETY: as many bytes.
            unsafe { payload.copy_to(copy.as_mut_ptr(), copy.len()) };
            assert_eq!(copy, sent[..2500]);
        }
    }

    #[test]
    fn what_is_not_to_be_taken_stays() {
        let mut place = vec![7_u8; 1000];
        let (at, len) = (place.as_mut_ptr(), place.len());
        // SAFETY: the vector's bytes.
        let payloads = unsafe { [Payload::new(at, len), Payload::to_take(at, len).to_keep()] };
        for payload in payloads {
            for _ in 0..2 {
                assert_eq!(payload.to_vec(), [7; 1000]);
                payload.take();
            }
        }
        assert!(place.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn every_length_is_copied_whole_and_nothing_beyond() {
        let from: Vec<u8> = (1..=140).collect();
        for len in 0..from.len() {
            let mut to = [0_u8; 141];
            // SAFETY: both are longer than `len`.
            unsafe { copy_short(from.as_ptr(), to.as_mut_ptr(), len) };
            assert_eq!(to[..len], from[..len]);
            assert!(to[len..].iter().all(|&byte| byte == 0), "{len}");
        }
    }

    #[test]
    fn a_header_survives_its_words() {
        let header = Header {
            kind: 1,
            flags: 2,
            rep: 3,
            channel: 4,
            context: 5,
            source: 6,
            tag: u32::MAX,
            signature: 8,
            cookie: 9,
        };
        assert_eq!(Header::from_words(header.to_words()), header);
    }

    #[test]
    fn payloads_are_cut_safely() {
        let payload = Payload::from_slice(&[1, 2, 3]);
        assert_eq!(payload.first::<2>(), Some([1, 2]));
        assert_eq!(payload.first::<4>(), None);
        assert_eq!(payload.after(2).to_vec(), [3]);
        assert_eq!(payload.until(2).to_vec(), [1, 2]);
        assert_eq!(payload.until(9).to_vec(), [1, 2, 3]);
        assert!(payload.after(9).is_empty());
    }

    #[test]
    fn unknown_kinds_are_refused() {
        let known = (0..=u8::MAX)
            .filter(|&n| PacketKind::from_wire(n).is_some())
            .count();
        assert_eq!(known, 13);
    }
}
