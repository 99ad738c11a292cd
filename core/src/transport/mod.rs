//! The boundary below the engine: transports, which only move bytes between ranks.
//!
//! A backend author reads this folder and no other. [`Transport`] is modelled on shared memory:
//! peers, a short and a bulk way to hand a packet over, a poll that feeds packets to a [`Sink`],
//! and optional extras. Each extra is announced by a bit of [`TransportCaps`]. A bit is set exactly
//! where the operation is wired, and the conformance suite proves both directions (`PULL_FAR` is
//! advice, not an operation).
//!
//! # Contract
//! - **Threads.** The engine calls a transport with `&mut self`, from one thread at a time.
//! - **Order.** Packets from one rank to another arrive exactly once, unchanged, in the order in
//!   which `send_*` returned [`Sent::Done`]. Nothing is promised between different pairs.
//! - **Back-pressure.** [`Sent::Full`] is the only sign of it: nothing was sent, and the engine
//!   tries again after a later poll. A transport never blocks, and never allocates on the path of a
//!   packet.
//! - **Upward calls.** Only through the sink, only inside [`Transport::poll`].
//! - **Foreign bytes.** A transport checks every length and offset that it reads from memory that a
//!   peer can write, before it uses them; a peer that writes nonsense is reported as failed.
//! - **Clocks and sleeping** belong to the engine; a transport lends it a [`Bell`].

pub mod decorate;
pub mod memory;
pub mod packet;
pub mod remote;
mod sink;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use bitflags::bitflags;

pub use packet::{Header, PacketKind, Payload, WIRE_VERSION, copy_short};
pub use remote::{Begun, Remote, Token};
pub use sink::{Destination, Room, Sink};

use crate::buffer::MemoryKind;

use crate::error::{Error, Result};

bitflags! {
    /// What a transport can do beyond moving packets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct TransportCaps: u32 {
        /// [`Transport::expose`] and [`Transport::pull`]: a receiver reads a peer's buffer by
        /// itself.
        const PULL = 1;
        /// [`Transport::offer_open`] and its kin: an offer is a word that either side takes by
        /// compare-and-swap, so that a send can be cancelled without asking the peer.
        const OFFER_WORD = 2;
        /// [`Transport::alloc`]: memory that peers can load and store directly.
        const DIRECT = 4;
        /// Peers are separate processes (or machines), which can die on their own.
        const PROCESSES = 8;
        /// A sleeping rank is woken when something arrives: [`Transport::bell`] is real.
        const SLEEP = 16;
        /// [`Transport::expose_mut`] and [`Transport::push`]: a sender writes into a buffer that
        /// the receiver has opened for it.
        const PUSH = 32;
        /// [`Transport::register`] and [`Transport::begin_remote`]: the network itself writes and
        /// reads memory that a peer has registered.
        const REMOTE = 256;
        /// [`Remote::Atomic`], in all widths and operations. All ranks of a job have it, or none.
        /// While registered memory is used with it, nothing else may access that memory: the owner,
        /// too, goes by the network.
        const ATOMICS = 512;
        /// With [`PULL`](Self::PULL): a pull is a message to the peer and one back
        /// ([`Pulled::Later`]), which takes far longer than a copy of the bytes that fit a packet.
        /// Without it, no pull is answered so.
        const PULL_FAR = 1024;
    }
}

/// Size limits that the engine must respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload of [`Transport::send_short`], in bytes; at least 192.
    pub short: usize,
    /// Largest payload of [`Transport::send_bulk`], in bytes; at least 1024.
    pub bulk: usize,
    /// Largest message, in bytes, that is better sent eagerly than offered.
    pub eager: usize,
    /// Length, in bytes, of the shortest pieces into which a stream of less than four times `bulk`
    /// is cut; at most `bulk`. Where both sides copy through memory, one reads a piece while the
    /// other writes the next one. Where each packet has a fixed cost, this equals `bulk`.
    pub piece: usize,
    /// Longest packet, in bytes, in which short messages leave together; at most `bulk`. 0 where
    /// each message leaves by itself, because a packet costs little more than a message.
    pub bundle: usize,
    /// Longest packet, in bytes, of [`Transport::send_growing`] that a receiver may read while its
    /// sender is still writing it ([`Sink::grows`]); at most `bulk`, and 0 if none is. A message of
    /// this length that a call waits for needs no pieces.
    pub grows: usize,
}

impl Limits {
    /// Bytes of the pieces in which `len` bytes are streamed: a quarter of `len`, within the
    /// limits.
    ///
    /// ```
    /// use portolan_core::transport::Limits;
    ///
    /// let limits = Limits {
    ///     short: 192,
    ///     bulk: 32 << 10,
    ///     eager: 16 << 10,
    ///     piece: 4 << 10,
    ///     bundle: 0,
    ///     grows: 0,
    /// };
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

/// The result of handing over a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The packet is on its way and its bytes have been read: the buffer belongs to the caller
    /// again. (A packet to a peer that has left in good order is lost. A transport that does not
    /// see this while it sends may still return `Done`.)
    Done,
    /// There was no room; nothing was sent.
    Full,
    /// The peer is dead, or has left the job; nothing was sent. [`Transport::failure_of`] or
    /// [`Transport::has_left`] tells which, now or after some more polls.
    Gone,
}

/// Where a peer may read a buffer: bytes that only the transport that made them interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure(pub [u8; 32]);

/// The result of a pull, or of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pulled {
    /// The bytes are there.
    Done,
    /// This way is not possible: the data has to be streamed.
    Stream,
    /// The peer is dead, or has left the job. The reason is given as after [`Sent::Gone`].
    Gone,
    /// The network is moving the bytes by its own means: call again with the same arguments after a
    /// later poll, until the result is another. Until then the memory of this side belongs to the
    /// transport.
    Later,
}

/// Which ways the data of a peer's long messages may currently take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulls {
    /// The sender streams it.
    Never,
    /// The receiver pulls all of it.
    Whole,
    /// The sender is busy with something else, so it would not stream now. The receiver pulls, and
    /// checks now and then whether the sender is back. For transports whose pulls are over when the
    /// call returns (never [`Pulled::Later`]), because the rest may be streamed into the same
    /// memory.
    Absent,
    /// The receiver pulls data that is contiguous on its side, piece after piece while other work
    /// goes on ([`Pulled::Later`]); other data is streamed.
    Contiguous,
    /// The receiver pulls; of long data the sender pushes a half at the same time.
    Always,
    /// The way that is measured to be the fastest.
    Measured,
    /// The receiver loads the data from where it is ([`Transport::shares`]), and the sender is in a
    /// call: of long data it stores a half at the same time, if the receiver's buffer is such
    /// memory as well.
    Shared,
}

/// Memory that peers can reach: its address in this process, and the token for peers.
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

/// What wakes a sleeping rank: a word with a futex or an event descriptor behind it.
///
/// Protocol: read [`seen`](Self::seen), [`Transport::arm`], poll once more, then
/// [`sleep`](Self::sleep) with the value read. [`ring`](Self::ring) changes the value, so a ring
/// between the read and the sleep is not lost.
pub trait Bell: Send + Sync {
    /// The current value of the word.
    fn seen(&self) -> u32;
    /// Sleeps until the word differs from `seen`, at most for `limit`. May return early.
    fn sleep(&self, seen: u32, limit: Option<Duration>);
    /// Changes the word and wakes the threads that sleep on it. Callable from any thread, and for
    /// bells in shared memory from any process.
    fn ring(&self);
    /// A descriptor that becomes readable when the bell is rung, for event loops; `None` if the
    /// bell is a futex.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

/// Moves bytes between ranks, and does nothing else. See the [module](self) for the contract.
///
/// Peers are numbers below [`size`](Self::size); the engine never assumes more about them.
///
/// # Safety
/// The engine accesses memory as the transport directs, and gives a program its buffers back when
/// the transport says that it may. So the transport guarantees:
/// - Memory that it hands out is valid: `len` writable bytes where a packet is to be filled in,
///   readable bytes in the packets of a poll, and, until it is freed, the memory that
///   [`alloc`](Self::alloc) and [`map`](Self::map) return.
/// - Memory that it was lent (an exposed or registered buffer, the target of a pull, the memory of
///   a remote operation) is left alone by the transport and by its peers once the transport has
///   said that the use is over: in its answer, or by returning from the call that ends the use.
/// - [`limits`](Self::limits) do not change, and are at least what [`Limits`] requires.
pub unsafe trait Transport: Send + 'static {
    /// Short name, as in `PORTOLAN_TRANSPORT`.
    fn name(&self) -> &'static str;

    /// What the transport can do beyond moving packets. When it reports a death, or in a later
    /// poll, it may lose [`REMOTE`](TransportCaps::REMOTE) and [`ATOMICS`](TransportCaps::ATOMICS),
    /// and never anything else; the end of operations that have begun is still reported. The
    /// processor of a rank that has lost them does the atomic operations on that rank's memory,
    /// between polls. Peers that still have them have the network do theirs, inside of those polls,
    /// so that the two do not mix.
    fn caps(&self) -> TransportCaps;

    /// Size limits that the engine must respect.
    fn limits(&self) -> Limits;

    /// This rank's number among the peers.
    fn rank(&self) -> u32;

    /// Number of peers, this rank included.
    fn size(&self) -> u32;

    /// Number of the node on which `peer` runs; ranks with equal numbers share memory.
    fn node_of(&self, peer: u32) -> u32;

    /// Name of this node.
    fn node_name(&self) -> String;

    /// The process id of the rank `peer`, if it is a process on this node and in the caller's pid
    /// namespace: the system is asked about that process. `None` for ranks that are threads, and
    /// where the id is not known.
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

    /// The same for a packet whose bytes are at `data`. A network that copies them during the call
    /// takes them from there, which saves a copy into the transport's memory.
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
                portolan_datatype::bytes::copy(data, target, len);
            })
        }
    }

    /// The same for a packet on which its receiver is likely to wait in a call. The transport may
    /// let it [grow](Sink::grows).
    ///
    /// # Safety
    /// As [`send_bulk_from`](Self::send_bulk_from).
    #[inline]
    unsafe fn send_growing(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        // SAFETY: the caller's promise.
        unsafe { self.send_bulk_from(peer, header, data, len) }
    }

    /// Whether bulk packets of `piece` bytes each, `len` bytes together, would find room if they
    /// were handed over now. `false` also if that is not known.
    fn has_room(&mut self, peer: u32, len: usize, piece: usize) -> bool {
        let _ = (peer, len, piece);
        false
    }

    /// Delivers packets that have arrived, a bounded number of them, and does whatever keeps the
    /// transport going. Returns the number of packets delivered plus the number of remote
    /// operations that have ended.
    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize;

    /// The bell that wakes this rank when it sleeps.
    fn bell(&self) -> Arc<dyn Bell>;

    /// Announces that this rank is about to sleep: from now on every rank that hands it a packet
    /// rings its bell, until [`disarm`](Self::disarm). Includes whatever barrier makes "announce,
    /// then poll once more" safe without a fence in senders.
    fn arm(&mut self);

    /// Takes the announcement back.
    fn disarm(&mut self);

    /// Whether the bell will also ring as soon as there is room again, for every peer to which a
    /// send has found none ([`Sent::Full`]). Asked between [`arm`](Self::arm) and a sleep, after
    /// the last attempt to send, so a transport may say no because of a send that has found no room
    /// since `arm`. If it says no, ranks with something unsent sleep only briefly.
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
    /// look again, because an operation of its own is polled now and then. A plain store. See
    /// [`looks`](Self::looks).
    #[inline]
    fn note_look(&mut self) {}

    /// Tells peers on which processor this rank waits, where ranks take turns on processors: any
    /// number but `u32::MAX`. A plain store. If several threads wait, the last one counts.
    #[inline]
    fn note_processor(&mut self, processor: u32) {
        let _ = processor;
    }

    /// The processor on which a peer said, most recently, that it waits. Only a hint, which may be
    /// old or wrong. `None` if that is not known.
    #[inline]
    fn processor_of(&self, peer: u32) -> Option<u32> {
        let _ = peer;
        None
    }

    /// How often a peer has called [`note_look`](Self::note_look), modulo 2³². A peer that is
    /// [`Pulls::Absent`] and yet looks would stream, too.
    #[inline]
    fn looks(&self, peer: u32) -> u32 {
        let _ = peer;
        0
    }

    /// A number that changes whenever a peer is found dead; a plain load, called often.
    ///
    /// Packets of the dead peer may still arrive after the change. The engine takes everything to
    /// be there after a later poll that delivers nothing.
    fn failures(&self) -> u32;

    /// Why `peer` is held to be dead, if it is.
    ///
    /// The engine ends no operation without a reason. After a [`Sent::Gone`] or [`Pulled::Gone`]
    /// about a peer, polling must lead to the point where this gives a reason or
    /// [`has_left`](Self::has_left) returns `true`, whether or not [`failures`](Self::failures) has
    /// changed. Once given, a reason stays.
    fn failure_of(&self, peer: u32) -> Option<String>;

    /// Whether `peer` has left the job in good order. If so, a poll that delivers nothing proves
    /// that everything the peer had sent has arrived, and none of this side's memory is lent to it
    /// any more. Waits ask this when they have polled in vain for a while, and before they sleep;
    /// the engine asks again after a poll before it ends anything. A transport that cannot tell
    /// returns `false`.
    fn has_left(&mut self, peer: u32) -> bool {
        let _ = peer;
        false
    }

    /// Declares `peer` dead, for every rank that shares this knowledge (because the engine found
    /// that it misbehaves, or because a thread that was a rank panicked).
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

    /// The program has failed, and the process is about to end. From here on the transport does not
    /// announce that this rank has left in good order, so that the other ranks take the end of the
    /// process for its death. (Where they do not notice that end, there is nothing to do.)
    fn end_silently(&mut self) {}

    /// The device ends, in whatever way, and its buffers are about to be freed: from now on no peer
    /// begins to read or write what this rank has exposed, and when this returns no peer is still
    /// doing so. (Where peers reach into memory only while this rank polls, there is nothing to
    /// do.)
    ///
    /// It may be called more than once; after it only the drop follows. A transport that is dropped
    /// without this call does the same in its drop.
    fn close(&mut self) {}

    /// Whether accelerator memory may be exposed and pulled into like host memory. `address` is in
    /// that memory, and `memory` is its kind according to its driver. If not, the data goes through
    /// host memory.
    fn serves(&self, address: *const u8, memory: MemoryKind) -> bool {
        let _ = (address, memory);
        false
    }

    /// Whether peers load these bytes where they are, by instructions of their own processor: they
    /// are in memory of [`alloc`](Self::alloc). A message from there is announced even if it is
    /// short enough to be copied into the transport's memory, because its receiver then makes the
    /// only copy. If so, [`expose`](Self::expose) succeeds, and
    /// [`pulls`](Self::pulls) allows the exposure to be pulled.
    #[inline]
    fn shares(&self, data: *const u8, len: usize) -> bool {
        let _ = (data, len);
        false
    }

    /// Which ways the data of a message of `len` bytes that `peer` has exposed may currently take.
    /// `inside`: the peer is known to be in a call; otherwise the transport finds out.
    fn pulls(&self, peer: u32, exposure: &Exposure, len: usize, inside: bool) -> Pulls {
        let _ = (peer, exposure, len, inside);
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

    /// Copies `len` bytes at `source` to `offset` in the buffer that a peer has exposed for writing
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
    /// ([`TransportCaps::PULL`]). After [`Pulled::Later`], the transport does not report a death of
    /// the peer before it has let go of `target`.
    ///
    /// # Safety
    /// `len` bytes at `target` must be writable; after [`Pulled::Later`], until the call that gives
    /// another answer. (The exposure comes from a peer and is not trusted: a wrong one gives wrong
    /// bytes or [`Pulled::Stream`], never undefined behaviour here.)
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
    /// `None` if the network refuses; peers then reach the memory by packets. A rank that sleeps
    /// while it has registered memory is woken when that memory changes, or sleeps only briefly.
    ///
    /// # Safety
    /// The bytes must stay valid for reads and writes until [`deregister`](Self::deregister).
    unsafe fn register(&mut self, data: *mut u8, len: usize, memory: MemoryKind) -> Option<Token> {
        let _ = (data, len, memory);
        None
    }

    /// Ends a registration. Peers' operations that still target it fail on their side, or have no
    /// effect.
    fn deregister(&mut self, token: &Token) {
        let _ = token;
    }

    /// Begins an operation on memory that `peer` has registered, or a first part of it
    /// ([`TransportCaps::REMOTE`]). `peer` may be this rank. Parts and operations may end in any
    /// order.
    ///
    /// # Safety
    /// The memory of this side must stay valid, and a memory that is read into must be used by
    /// nobody else, until [`Sink::finished`] has reported the end, or the transport has been
    /// dropped. (A death of the peer is not reported before the transport has let go of that
    /// memory.) `token` must be one that `peer` gave, and the range must lie inside of what it
    /// registered.
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

    /// Sender: closes a word whose offer is over (taken and finished), so that its number may be
    /// reused. A cancelled word is closed by the receiver, when it meets the offer and fails to
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

    /// Frees memory that [`alloc`](Self::alloc) returned.
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

    /// This rank has stored something into memory of [`alloc`](Self::alloc), which `peer` may be
    /// waiting for: wakes `peer` if it sleeps ([`TransportCaps::DIRECT`]). Either this call sees
    /// that the peer has called [`arm`](Self::arm), or the peer's next look at the memory sees the
    /// store. Cheap if the peer does not sleep. `peer` is below [`size`](Self::size) and not this
    /// rank.
    #[inline]
    fn nudge(&mut self, peer: u32) {
        let _ = peer;
    }

    /// Bytes of shared or pinned memory that this rank currently uses for its peers.
    fn memory_used(&self) -> u64 {
        0
    }

    /// One line per fact that a user may want to know (method of large copies, ring sizes, …).
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
