//! The boundary below the engine: what only moves bytes between ranks.
//!
//! A backend author reads this folder and no other. [`Transport`] is what shared memory is: peers,
//! a short and a bulk way to hand a packet over, a poll that feeds packets to a [`Sink`], and
//! optional extras, each announced by a bit of [`TransportCaps`]: a bit is set exactly where the
//! operation is wired, and the conformance suite proves both ways (`PULL_FAR` is advice, not an
//! operation).
//!
//! # Contract
//! - **Threads.** The engine calls a transport with `&mut self`, from one thread at a time.
//! - **Order.** Packets from one rank to another arrive in the order in which `send_*` returned
//!   [`Sent::Done`], each once and unchanged. Nothing is promised between different pairs.
//! - **Back-pressure.** [`Sent::Full`] is the only sign of it: nothing was sent, the engine tries
//!   again after a later poll. A transport never blocks and never allocates on the path of a
//!   packet.
//! - **Upward calls.** Only through the sink, only inside [`Transport::poll`].
//! - **Foreign bytes.** A transport checks every length and offset that it reads from memory that a
//!   peer can write, before use; a peer that writes nonsense is reported as failed.
//! - **Clocks and sleeping** belong to the engine; a transport lends it a [`Bell`].

pub mod decorate;
pub mod memory;
pub mod packet;
pub mod remote;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use bitflags::bitflags;

pub use packet::{Header, PacketKind, Payload, WIRE_VERSION, copy_short};
pub use remote::{Begun, Remote, Token};

use crate::buffer::MemoryKind;

use crate::error::{Error, Result};

bitflags! {
    /// What a transport can do beyond moving packets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct TransportCaps: u32 {
        /// [`Transport::expose`] and [`Transport::pull`]: a receiver reads a peer's buffer itself.
        const PULL = 1;
        /// [`Transport::offer_open`] and its kin: an offer is a word that either side takes by
        /// compare-and-swap, so that a send can be cancelled without asking the peer.
        const OFFER_WORD = 2;
        /// [`Transport::alloc`]: memory that peers can load and store directly.
        const DIRECT = 4;
        /// Peers are separate processes (or machines), which can die on their own.
        const PROCESSES = 8;
        /// Sleeping ends by itself when something arrives: [`Transport::bell`] is real.
        const SLEEP = 16;
        /// [`Transport::expose_mut`] and [`Transport::push`]: a sender writes into a buffer that
        /// the receiver has opened for it.
        const PUSH = 32;
        /// [`Transport::register`] and [`Transport::begin_remote`]: the network itself writes and
        /// reads memory that a peer has registered.
        const REMOTE = 256;
        /// [`Remote::Atomic`], in all widths and operations. All ranks of a job have it, or none.
        /// Whoever uses it on registered memory does so alone: the owner, too, goes by the network.
        const ATOMICS = 512;
        /// With [`PULL`](Self::PULL): a pull is a message there and one back ([`Pulled::Later`]),
        /// which takes far longer than a copy of what fits a packet.
        const PULL_FAR = 1024;
    }
}

/// Sizes that the engine has to respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload of [`Transport::send_short`], in bytes; at least 192.
    pub short: usize,
    /// Largest payload of [`Transport::send_bulk`], in bytes; at least 1024.
    pub bulk: usize,
    /// Largest message, in bytes, that is better sent eagerly than offered.
    pub eager: usize,
    /// Shortest piece, in bytes, into which a stream of less than four times `bulk` is cut; at most
    /// `bulk`. Where both sides copy, through memory, one reads a piece while the other writes the
    /// next one; where a packet has its price, that is `bulk`.
    pub piece: usize,
    /// Longest packet, in bytes, in which short messages leave together; at most `bulk`. 0 where
    /// each leaves by itself, because a packet costs little more than a message.
    pub bundle: usize,
}

impl Limits {
    /// Bytes of the pieces in which `len` bytes are streamed: a quarter, within the limits.
    ///
    /// ```
    /// use portolan_core::transport::Limits;
    ///
    /// let limits = Limits { short: 192, bulk: 32 << 10, eager: 16 << 10, piece: 4 << 10, bundle: 0 };
    /// assert_eq!(limits.piece_of(16 << 10), 4 << 10);
    /// assert_eq!(limits.piece_of(64 << 10), 16 << 10);
    /// assert_eq!(limits.piece_of(4 << 20), 32 << 10);
    /// ```
    #[must_use]
    pub fn piece_of(&self, len: usize) -> usize {
        let quarter = (len / 4).next_multiple_of(64);
        quarter.max(self.piece).min(self.bulk).max(1)
    }
}

/// What became of a packet that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The packet is on its way and its bytes have been read: the buffer is the caller's again. (On
    /// its way to a peer that has left in good order it is lost: a transport that does not see that
    /// as it sends may say this.)
    Done,
    /// There was no room; nothing was sent.
    Full,
    /// The peer is dead, or has left the job; nothing was sent. Why, [`Transport::failure_of`] or
    /// [`Transport::has_left`] says now or after some more polls.
    Gone,
}

/// Where a peer may read a buffer: opaque bytes of the transport that made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure(pub [u8; 32]);

/// What became of a pull, or of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pulled {
    /// The bytes are there.
    Done,
    /// Not a possible way: the data has to be streamed.
    Stream,
    /// The peer is dead, or has left the job. Why is said as after [`Sent::Gone`].
    Gone,
    /// It is under way, by the network's own means: call again with the same arguments after a
    /// later poll, until it is over. Until then the memory of this side is the transport's.
    Later,
}

/// Which ways the data of a peer's long messages may take at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulls {
    /// It is streamed.
    Never,
    /// The receiver pulls all of it.
    Whole,
    /// Nobody would stream now: the sender is busy with something else. The receiver pulls, and
    /// looks now and then whether it is back. For transports whose pulls are over when the call
    /// returns (never [`Pulled::Later`]): the rest may be streamed into the same memory.
    Absent,
    /// The receiver pulls what is contiguous on its side, piece after piece while other work goes
    /// on ([`Pulled::Later`]); the rest is streamed.
    Contiguous,
    /// It is pulled, and of what is long the sender pushes a half at the same time.
    Always,
    /// Whatever is measured to be the fastest.
    Measured,
}

/// Memory that peers can reach: where it is here, and the token for peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectMemory {
    /// Where the memory is in this process; page aligned, zeroed.
    pub ptr: *mut u8,
    /// Its length in bytes.
    pub len: usize,
    /// The token by which peers map it.
    pub key: [u8; 32],
}

// SAFETY: a description of memory that stays valid until `Transport::free`, whatever the thread.
unsafe impl Send for DirectMemory {}

/// The engine's side of a poll.
pub trait Sink {
    /// Whether a packet of `peer` may be delivered now. Packets that may not stay where they are,
    /// in order, and are offered again by a later poll. Asked before each packet.
    fn accepts(&mut self, peer: u32) -> bool;

    /// A packet has arrived. The payload is gone when this returns.
    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>);

    /// How many packets behind the one that is delivered next [`ahead`](Self::ahead) wants to know
    /// of, if it does.
    fn looks_ahead(&self) -> usize {
        0
    }

    /// A packet with this header has arrived, so many places behind the one that is delivered next:
    /// what its delivery will touch may be asked for. Said of every second packet, the farthest
    /// first, with each delivery; a hint.
    fn ahead(&mut self, header: &Header, places: usize) {
        let _ = (header, places);
    }

    /// What [`Transport::begin_remote`] began under this number is over: with the former value if
    /// it was atomic, or `None` if it failed. What it changed is in the peer's memory.
    fn finished(&mut self, id: u32, outcome: Option<u64>) {
        let _ = (id, outcome);
    }
}

/// What a sleeping rank is woken by: a word with a futex or an event descriptor behind it.
///
/// Protocol: read [`seen`](Self::seen), [`Transport::arm`], poll once more, then
/// [`sleep`](Self::sleep) with the value read; [`ring`](Self::ring) changes the value, so that a
/// ring between the reading and the sleeping is not lost.
pub trait Bell: Send + Sync {
    /// The present value of the word.
    fn seen(&self) -> u32;
    /// Sleeps until the word differs from `seen`, at most for `limit`. May return early.
    fn sleep(&self, seen: u32, limit: Option<Duration>);
    /// Changes the word and wakes who sleeps on it. Callable from any thread, and for bells in
    /// shared memory from any process.
    fn ring(&self);
    /// A descriptor that becomes readable when the bell is rung, for event loops; `None` if the
    /// bell is a futex.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

/// What only moves bytes between ranks. See the [module](self) for the contract.
///
/// Peers are numbers below [`size`](Self::size); the engine never assumes more about them.
///
/// # Safety
/// The engine uses memory as a transport says, and gives a program its buffers back on its word:
/// - What it hands out is there: `len` writable bytes where a packet is to be filled in, readable
///   ones in the packets of a poll, and what [`alloc`](Self::alloc) and [`map`](Self::map) return,
///   until it is freed.
/// - What it was lent (a buffer that is exposed or registered, the target of a pull, the memory of
///   an operation by the network's means) it leaves alone, and so do its peers, when it has said
///   that the use is over: in the answer, or by the return of the call that ends it.
/// - [`limits`](Self::limits) do not change, and are at least what [`Limits`] says.
pub unsafe trait Transport: Send + 'static {
    /// Short name, as in `PORTOLAN_TRANSPORT`.
    fn name(&self) -> &'static str;

    /// What the transport can do beyond moving packets. It may lose
    /// [`REMOTE`](TransportCaps::REMOTE) and [`ATOMICS`](TransportCaps::ATOMICS) when it tells of a
    /// death, or in a later poll, and nothing else ever; what has begun is told the end of. The
    /// processor of a rank that has lost them does atomic operations on that rank's memory, between
    /// polls: where peers have them still, the network does theirs inside of those polls.
    fn caps(&self) -> TransportCaps;

    /// Sizes that the engine has to respect.
    fn limits(&self) -> Limits;

    /// This rank's number among the peers.
    fn rank(&self) -> u32;

    /// Number of peers, this rank included.
    fn size(&self) -> u32;

    /// Number of the node on which `peer` runs; ranks with equal numbers share memory.
    fn node_of(&self, peer: u32) -> u32;

    /// Name of this node.
    fn node_name(&self) -> String;

    /// The number of the process that the rank `peer` is, if it is one of this node and the
    /// caller's number space: the system is asked about it. `None` for ranks that are threads, and
    /// where it is not known.
    fn process_of(&self, peer: u32) -> Option<u32> {
        let _ = peer;
        None
    }

    /// Hands over a packet of at most [`Limits::short`] bytes.
    ///
    /// # Safety
    /// `len` bytes at `data` must be readable (`data` may dangle if `len` is 0). `peer` must be
    /// below [`size`](Self::size) and not this rank; `len` at most [`Limits::short`].
    unsafe fn send_short(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent;

    /// Hands over a packet of `len` bytes, which `fill` writes straight into the transport's
    /// memory. `fill` is called once if and only if the result is [`Sent::Done`]; it must write
    /// exactly `len` bytes.
    ///
    /// # Safety
    /// `peer` must be below [`size`](Self::size) and not this rank; `len` at most
    /// [`Limits::bulk`]; `fill` must initialise all `len` bytes at the pointer that it gets, and
    /// may use it only during the call.
    unsafe fn send_bulk<F: FnOnce(*mut u8)>(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        fill: F,
    ) -> Sent;

    /// The same for a packet whose bytes lie at `data`: a network that copies them in the call
    /// takes them from there, and not from a copy in memory of the transport's.
    ///
    /// # Safety
    /// As [`send_bulk`](Self::send_bulk); `len` bytes at `data` must be readable.
    #[inline]
    unsafe fn send_bulk_from(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        // SAFETY: the caller's promise; all of the bytes are written.
        unsafe {
            self.send_bulk(peer, header, len, |target| {
                std::ptr::copy_nonoverlapping(data, target, len);
            })
        }
    }

    /// Whether bulk packets of `piece` bytes each, `len` bytes together, would find room if they
    /// were handed over now. `false` also where that is not known.
    fn has_room(&mut self, peer: u32, len: usize, piece: usize) -> bool {
        let _ = (peer, len, piece);
        false
    }

    /// Delivers packets that have arrived, a bounded number of them, and does whatever keeps the
    /// transport going. Returns how many packets were delivered and how many remote operations
    /// ended.
    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize;

    /// What wakes this rank when it sleeps.
    fn bell(&self) -> Arc<dyn Bell>;

    /// Announces that this rank is about to sleep: from now on whoever hands it a packet rings
    /// its bell, until [`disarm`](Self::disarm). Includes whatever barrier makes "announce, then
    /// poll once more" safe without a fence in senders.
    fn arm(&mut self);

    /// Takes the announcement back.
    fn disarm(&mut self);

    /// Whether the bell also rings as soon as there is room again for each peer to which a send has
    /// found none ([`Sent::Full`]). Asked between [`arm`](Self::arm) and a sleep, after the last
    /// attempt to send: so a transport may say no for a send that has found no room since `arm`.
    /// Where it says no, ranks with something unsent sleep briefly.
    fn rings_for_room(&self) -> bool {
        false
    }

    /// Says whether this rank is inside the library and will poll soon. Peers use it to choose
    /// between streaming and pulling. A plain store; called often.
    #[inline]
    fn set_present(&mut self, present: bool) {
        let _ = present;
    }

    /// Says that this rank, whose messages peers may be pulling, has looked in passing and will
    /// again: an operation under way is polled now and then. A plain store. See
    /// [`looks`](Self::looks).
    #[inline]
    fn note_look(&mut self) {}

    /// Tells peers on which processor this rank waits, where ranks take turns on processors: any
    /// number but `u32::MAX`. A plain store. Of several threads the last one counts.
    #[inline]
    fn note_processor(&mut self, processor: u32) {
        let _ = processor;
    }

    /// Where a peer has said that it waits, the last time: a hint, which may be old, or anything.
    /// `None` where that is not known.
    #[inline]
    fn processor_of(&self, peer: u32) -> Option<u32> {
        let _ = peer;
        None
    }

    /// How often a peer has said so, modulo 2³²: who is [`Pulls::Absent`] and yet looks would
    /// stream, too.
    #[inline]
    fn looks(&self, peer: u32) -> u32 {
        let _ = peer;
        0
    }

    /// A number that changes whenever a peer is found dead; a plain load, called often.
    fn failures(&self) -> u32;

    /// Why `peer` is held to be dead, if it is.
    ///
    /// The engine ends nothing without a reason. After a [`Sent::Gone`] or [`Pulled::Gone`] about a
    /// peer, polls come to the point where this gives one or [`has_left`](Self::has_left) is
    /// `true`, whether or not [`failures`](Self::failures) has changed; and a reason, once given,
    /// stays.
    fn failure_of(&self, peer: u32) -> Option<String>;

    /// Whether `peer` has left the job in good order, and a poll that delivers nothing means that
    /// all that it had sent is here; nothing of this side is lent then for what it does. Asked by
    /// waits in vain, when they have polled for a while and before they sleep, and again behind a
    /// poll before anything ends; a transport that cannot tell says `false`.
    fn has_left(&mut self, peer: u32) -> bool {
        let _ = peer;
        false
    }

    /// Declares `peer` dead, for every rank that shares this knowledge (the engine found that it
    /// misbehaves, or a thread that was a rank panicked).
    fn declare_failed(&mut self, peer: u32, why: &str);

    /// Makes `len` bytes at `data` readable by peers ([`TransportCaps::PULL`]).
    ///
    /// # Safety
    /// The bytes must stay readable until [`withdraw`](Self::withdraw).
    unsafe fn expose(&mut self, data: *const u8, len: usize) -> Option<Exposure> {
        let _ = (data, len);
        None
    }

    /// Ends an exposure.
    fn withdraw(&mut self, exposure: &Exposure) {
        let _ = exposure;
    }

    /// The program has failed, and the process is about to end: what ends from here on does not say
    /// that this rank has left in good order, so that the others take the end of the process for
    /// its death. (Where they do not see that, there is nothing to do.)
    fn end_silently(&mut self) {}

    /// The device ends, in whatever way, and its buffers are about to be freed: no peer begins any
    /// more to read or write what this rank has exposed, and none is at it when this returns.
    /// (Where peers reach into memory only while this rank polls, there is nothing to do.)
    ///
    /// It may be called more than once, and nothing but it and the drop follows. A transport that
    /// is dropped without it does the same then.
    fn close(&mut self) {}

    /// Whether memory of an accelerator may be exposed and pulled into like the host's: at this
    /// address, which its driver says is of this kind. Where it may not, it goes through memory of
    /// the host.
    fn serves(&self, address: *const u8, memory: MemoryKind) -> bool {
        let _ = (address, memory);
        false
    }

    /// Which ways the data of a message of `len` bytes from `peer` may take at the moment. `inside`
    /// if the peer is known to be in a call; otherwise the transport looks.
    fn pulls(&self, peer: u32, len: usize, inside: bool) -> Pulls {
        let _ = (peer, len, inside);
        Pulls::Whole
    }

    /// Makes `len` bytes at `data` writable by peers ([`TransportCaps::PUSH`]).
    ///
    /// # Safety
    /// The bytes must stay writable, and be used by nobody else, until
    /// [`withdraw`](Self::withdraw).
    unsafe fn expose_mut(&mut self, data: *mut u8, len: usize) -> Option<Exposure> {
        let _ = (data, len);
        None
    }

    /// Copies `len` bytes at `source` to `offset` of what a peer has exposed for writing
    /// ([`TransportCaps::PUSH`]).
    ///
    /// # Safety
    /// `len` bytes at `source` must be readable. (The exposure is not trusted: a wrong one gives
    /// [`Pulled::Stream`], or harms the peer that made it up.)
    unsafe fn push(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        source: *const u8,
        len: usize,
    ) -> Pulled {
        let _ = (peer, exposure, offset, source, len);
        Pulled::Stream
    }

    /// Copies `len` bytes at `offset` of a peer's exposure to `target`, if that is possible
    /// ([`TransportCaps::PULL`]). Where the answer is [`Pulled::Later`], a death of the peer is not
    /// reported before the transport has let go of `target`.
    ///
    /// # Safety
    /// `len` bytes at `target` must be writable; after [`Pulled::Later`], until the call that gives
    /// another answer. (The exposure comes from a peer and is not trusted:
    /// a wrong one gives wrong bytes or [`Pulled::Stream`], never undefined behaviour here.)
    unsafe fn pull(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Pulled {
        let _ = (peer, exposure, offset, target, len);
        Pulled::Stream
    }

    /// Lets peers reach `len` bytes at `data` by remote operations ([`TransportCaps::REMOTE`]).
    /// `None` if the network refuses: the memory is reached by packets then. Whoever sleeps while
    /// it has registered memory is woken when that changes, or sleeps only briefly.
    ///
    /// # Safety
    /// The bytes must stay valid for reads and writes until [`deregister`](Self::deregister).
    unsafe fn register(&mut self, data: *mut u8, len: usize, memory: MemoryKind) -> Option<Token> {
        let _ = (data, len, memory);
        None
    }

    /// Ends a registration. What peers still do there fails on their side, or does not happen.
    fn deregister(&mut self, token: &Token) {
        let _ = token;
    }

    /// Begins an operation on memory that `peer` has registered, or a first part of it
    /// ([`TransportCaps::REMOTE`]). `peer` may be this rank. Parts and operations end in any order.
    ///
    /// # Safety
    /// The memory of this side must stay valid, and what is read into be used by nobody else, until
    /// [`Sink::finished`] has told of the end, or the transport has been dropped. (A death of the
    /// peer is not reported before the transport has let go of it.) `token` must be one that `peer`
    /// gave, and the range inside of what it registered.
    unsafe fn begin_remote(
        &mut self,
        peer: u32,
        token: &Token,
        offset: u64,
        what: Remote,
        id: u32,
    ) -> Begun {
        let _ = (peer, token, offset, what, id);
        Begun::Refused
    }

    /// Opens an offer word and returns its number; `None` when all are in use, or without
    /// [`TransportCaps::OFFER_WORD`]. An offer without a word cannot be cancelled.
    fn offer_open(&mut self) -> Option<u32> {
        None
    }

    /// Receiver: takes the offer `word` of `peer`. `false` if the sender has cancelled it: the
    /// message does not exist then.
    fn offer_take(&mut self, peer: u32, word: u32) -> bool {
        let _ = (peer, word);
        true
    }

    /// Sender: cancels its own offer `word`. `false` if the receiver has taken it already.
    fn offer_cancel(&mut self, word: u32) -> bool {
        let _ = word;
        false
    }

    /// Sender: closes a word whose offer is over (taken and finished); the number may be given out
    /// again. A cancelled word is closed by the receiver, when it meets the offer and fails to
    /// take it.
    fn offer_close(&mut self, word: u32) {
        let _ = word;
    }

    /// Allocates `len` bytes that peers can load and store directly ([`TransportCaps::DIRECT`]).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) without the capability,
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when memory is short.
    fn alloc(&mut self, len: usize) -> Result<DirectMemory> {
        let _ = len;
        Err(Error::new(
            crate::ErrorKind::Unsupported,
            format!(
                "transport {} has no memory that peers can reach directly",
                self.name()
            ),
        ))
    }

    /// Frees what [`alloc`](Self::alloc) gave.
    ///
    /// # Safety
    /// Neither this rank nor a peer may use the memory afterwards.
    unsafe fn free(&mut self, memory: DirectMemory) {
        let _ = memory;
    }

    /// Where this process sees the directly reachable memory that `peer` allocated under `key`:
    /// address and length. `None` if the key is not valid.
    fn map(&mut self, peer: u32, key: &[u8; 32]) -> Option<(*mut u8, usize)> {
        let _ = (peer, key);
        None
    }

    /// This rank has stored something into memory of [`alloc`](Self::alloc): wakes `peer`, which
    /// may have been waiting for that, if it sleeps ([`TransportCaps::DIRECT`]). Either this sees
    /// that the peer has called [`arm`](Self::arm), or the peer's next look at the memory sees the
    /// store. Cheap if the peer does not sleep. `peer` is below [`size`](Self::size) and not this
    /// rank.
    #[inline]
    fn nudge(&mut self, peer: u32) {
        let _ = peer;
    }

    /// Bytes of shared or pinned memory that this rank uses for its peers at the moment.
    fn memory_used(&self) -> u64 {
        0
    }

    /// One line per fact that a user may want to know (method of large copies, ring sizes, …).
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
