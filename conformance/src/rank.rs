//! The view of a rank that a case gets: the device, with operations on ordinary Rust buffers.

use std::thread;

use portolan_core::device::{Check, Message};
use portolan_core::matching::Pattern;
use portolan_core::{
    ContigBuf, Device, ErrorKind, MemoryKind, ProcId, Request, Result, SendArgs, Status, TypedBuf,
};
use portolan_datatype::{Layout, Signature};

use crate::pending::Pending;

/// The first context of the first case. The contexts below are those of the communicators that
/// cases make, which discard the messages there when they are dropped.
const FIRST_CONTEXT: u32 = 8192;
/// The number of contexts, and of handler ids, that each case has for itself.
pub(crate) const CONTEXTS: u32 = 16;
/// The context, within those of a case, in which barriers run.
const BARRIER: u32 = CONTEXTS - 1;

/// The variable that makes cases repeat things less often, if its value is `0`. All ranks must be
/// given the same value.
const MANY: &str = "PORTOLAN_TEST_MANY";

/// Packets with less room than this are small. Those of real transports have 8 KiB or more.
const CRAMPED: usize = 1500;

/// A rank of the job in which a case runs.
#[derive(Debug)]
pub struct Rank<'d, D> {
    /// The device under test.
    pub device: &'d D,
    number: u32,
}

impl<'d, D: Device> Rank<'d, D> {
    /// The rank of `device`, for the case with this number, which gets contexts of its own.
    pub fn new(device: &'d D, number: u32) -> Self {
        Self { device, number }
    }

    /// This rank.
    pub fn me(&self) -> u32 {
        self.device.attributes().world_rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.device.attributes().world_size
    }

    /// The rank after this one, around the ring; this one if it is alone.
    pub fn next(&self) -> u32 {
        (self.me() + 1) % self.size()
    }

    /// The rank before this one, around the ring.
    pub fn previous(&self) -> u32 {
        (self.me() + self.size() - 1) % self.size()
    }

    /// The last rank.
    pub fn last(&self) -> u32 {
        self.size() - 1
    }

    /// Longest message, in bytes, that the device sends eagerly.
    pub fn eager_max(&self) -> usize {
        self.device.attributes().eager_max
    }

    /// Whether packets are so small that large amounts of data take minutes. Some transports for
    /// tests are like that, and show with less data what they are meant to show. An active message
    /// is one packet, so its longest payload shows that. (The longest eager message does not: where
    /// the provider matches, it is what the provider copies at once, over any network.)
    pub fn is_cramped(&self) -> bool {
        self.device.attributes().active_max < CRAMPED
    }

    /// How often a case repeats something whose effect shows only by repetition: `usually` times,
    /// or `few` times if `PORTOLAN_TEST_MANY=0` is set. That is needed where, for example, each
    /// step of an emulated machine is a request to another process.
    pub fn many(&self, usually: u32, few: u32) -> u32 {
        match std::env::var_os(MANY) {
            Some(value) if value == "0" => few,
            _ => usually,
        }
    }

    /// A length that is certainly not sent eagerly.
    pub fn long(&self) -> usize {
        self.eager_max().max(64 << 10) * 2 + 13
    }

    /// One of the contexts of this case.
    ///
    /// # Panics
    /// If `n` is 15 or more.
    pub fn context(&self, n: u32) -> u32 {
        assert!(n < BARRIER, "a case has {BARRIER} contexts");
        FIRST_CONTEXT + self.number * CONTEXTS + n
    }

    /// A number below 16, made unique among the cases: for handler ids.
    pub fn unique(&self, n: u32) -> u32 {
        self.number * CONTEXTS + n
    }

    /// The arguments of a standard send with `tag`, in the case's first context.
    pub fn to(&self, dest: u32, tag: u32) -> SendArgs {
        SendArgs::new(ProcId::new(dest), self.context(0), self.me(), tag)
    }

    /// The pattern of a receive, in the case's first context.
    pub fn from(&self, source: impl Into<Option<u32>>, tag: impl Into<Option<u32>>) -> Pattern {
        Pattern {
            context: self.context(0),
            source: source.into(),
            tag: tag.into(),
        }
    }

    /// Sends and returns when the bytes may be used again.
    pub fn send(&self, args: &SendArgs, bytes: &[u8]) -> Result<()> {
        // SAFETY: cases name legal ranks and tags; the slice outlives the call.
        unsafe {
            self.device
                .send_contig_unchecked(args, ContigBuf::from_bytes(bytes))
        }
    }

    /// Starts a send.
    pub fn isend(&self, args: &SendArgs, bytes: Vec<u8>) -> Pending {
        self.isend_signed(args, bytes, Signature::ANY)
    }

    /// Starts a send of data with a signature.
    pub fn isend_signed(&self, args: &SendArgs, bytes: Vec<u8>, signature: Signature) -> Pending {
        let memory = Pending::lend(bytes);
        let (ptr, len) = (memory.cast::<u8>(), memory.len());
        let buf = ContigBuf {
            ptr,
            len,
            signature,
            memory: MemoryKind::Host,
        };
        // SAFETY: cases name legal ranks and tags; lent memory stays until the operation is over.
        let request = unsafe { self.device.isend_contig_unchecked(args, buf) };
        Pending::new(request.expect("a request for a send"), memory)
    }

    /// Receives into `bytes`.
    pub fn recv(&self, from: &Pattern, bytes: &mut [u8]) -> Result<Status> {
        // SAFETY: patterns of cases are legal; the slice outlives the call.
        unsafe {
            self.device
                .recv_contig_unchecked(from, ContigBuf::from_bytes_mut(bytes))
        }
    }

    /// Starts a receive of up to `len` bytes.
    pub fn irecv(&self, from: &Pattern, len: usize) -> Pending {
        self.irecv_signed(from, len, Signature::ANY)
    }

    /// Starts a receive of data with a signature.
    pub fn irecv_signed(&self, from: &Pattern, len: usize, signature: Signature) -> Pending {
        // The memory starts with bytes that no content has in a row.
        let memory = Pending::lend(vec![0xee; len]);
        let ptr = memory.cast::<u8>();
        let buf = ContigBuf {
            ptr,
            len,
            signature,
            memory: MemoryKind::Host,
        };
        // SAFETY: patterns of cases are legal; lent memory stays until the operation is over.
        let request = unsafe { self.device.irecv_contig_unchecked(from, buf) };
        Pending::new(request.expect("a request for a receive"), memory)
    }

    /// Waits for an operation; returns its outcome and its memory.
    pub fn finish(&self, pending: Pending) -> (Result<Status>, Vec<u8>) {
        let outcome = self.device.wait(pending.request);
        // SAFETY: whatever the outcome, a request is gone when `wait` has returned.
        (outcome, unsafe { pending.over() })
    }

    /// Waits for an operation that must succeed; returns its status and its memory.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn done(&self, pending: Pending) -> (Status, Vec<u8>) {
        match self.finish(pending) {
            (Ok(status), memory) => (status, memory),
            (Err(error), _) => panic!("an operation that must succeed: {error}"),
        }
    }

    /// The memory of an operation whose request was completed by another call.
    ///
    /// # Panics
    /// If the request is not complete.
    #[track_caller]
    pub fn reclaim(&self, pending: Pending) -> Vec<u8> {
        assert!(
            self.device.is_complete(pending.request),
            "the request is still active"
        );
        // SAFETY: the request is complete, or stale, and it only becomes stale by being completed.
        unsafe { pending.over() }
    }

    /// Receives a message of up to `len` bytes, and cuts the result to what arrived.
    ///
    /// # Panics
    /// If the receive fails.
    #[track_caller]
    pub fn take(&self, from: &Pattern, len: usize) -> (Status, Vec<u8>) {
        let mut bytes = vec![0; len];
        match self.recv(from, &mut bytes) {
            Ok(status) => {
                bytes.truncate(status.bytes as usize);
                (status, bytes)
            }
            Err(error) => panic!("a receive that must succeed: {error}"),
        }
    }

    /// Sends items of a layout whose displacements count from byte `origin` of `memory`.
    pub fn send_typed(
        &self,
        args: &SendArgs,
        layout: &Layout,
        count: usize,
        memory: &[u8],
        origin: usize,
    ) -> Result<()> {
        let ptr = place(
            layout,
            count,
            memory.as_ptr().cast_mut(),
            memory.len(),
            origin,
        );
        let buf = TypedBuf {
            ptr,
            count,
            layout,
            memory: MemoryKind::Host,
        };
        // SAFETY: `place` checked that the layout stays within the slice; sends only read.
        unsafe { self.device.send_datatype_unchecked(args, buf) }
    }

    /// Starts a send of items of a layout.
    pub fn isend_typed(
        &self,
        args: &SendArgs,
        layout: &Layout,
        count: usize,
        memory: Vec<u8>,
        origin: usize,
    ) -> Pending {
        let memory = Pending::lend(memory);
        let ptr = place(layout, count, memory.cast(), memory.len(), origin);
        let buf = TypedBuf {
            ptr,
            count,
            layout,
            memory: MemoryKind::Host,
        };
        // SAFETY: as in `send_typed`; lent memory stays until the operation is over.
        let request = unsafe { self.device.isend_datatype_unchecked(args, buf) };
        Pending::new(request.expect("a request for a send"), memory)
    }

    /// Receives into items of a layout.
    pub fn recv_typed(
        &self,
        from: &Pattern,
        layout: &Layout,
        count: usize,
        memory: &mut [u8],
        origin: usize,
    ) -> Result<Status> {
        let ptr = place(layout, count, memory.as_mut_ptr(), memory.len(), origin);
        let buf = TypedBuf {
            ptr,
            count,
            layout,
            memory: MemoryKind::Host,
        };
        // SAFETY: `place` checked that the layout stays within the slice.
        unsafe { self.device.recv_datatype_unchecked(from, buf) }
    }

    /// Starts a receive into items of a layout.
    pub fn irecv_typed(
        &self,
        from: &Pattern,
        layout: &Layout,
        count: usize,
        memory: Vec<u8>,
        origin: usize,
    ) -> Pending {
        let memory = Pending::lend(memory);
        let ptr = place(layout, count, memory.cast(), memory.len(), origin);
        let buf = TypedBuf {
            ptr,
            count,
            layout,
            memory: MemoryKind::Host,
        };
        // SAFETY: as in `recv_typed`; lent memory stays until the operation is over.
        let request = unsafe { self.device.irecv_datatype_unchecked(from, buf) };
        Pending::new(request.expect("a request for a receive"), memory)
    }

    /// Makes a persistent send of `bytes`.
    pub fn send_init(&self, args: &SendArgs, bytes: Vec<u8>) -> Pending {
        let memory = Pending::lend(bytes);
        let (ptr, count) = (memory.cast::<u8>(), memory.len());
        let buf = TypedBuf {
            ptr,
            count,
            layout: &Layout::byte(),
            memory: MemoryKind::Host,
        };
        // SAFETY: cases name legal ranks and tags; lent memory stays as long as the request.
        let request = unsafe { self.device.send_init_unchecked(args, buf) };
        Pending::new(request.expect("a persistent request"), memory)
    }

    /// Makes a persistent receive of up to `len` bytes.
    pub fn recv_init(&self, from: &Pattern, len: usize) -> Pending {
        let memory = Pending::lend(vec![0xee; len]);
        let (ptr, count) = (memory.cast::<u8>(), len);
        let buf = TypedBuf {
            ptr,
            count,
            layout: &Layout::byte(),
            memory: MemoryKind::Host,
        };
        // SAFETY: patterns of cases are legal; lent memory stays as long as the request.
        let request = unsafe { self.device.recv_init_unchecked(from, buf) };
        Pending::new(request.expect("a persistent request"), memory)
    }

    /// Starts to receive a matched message of up to `len` bytes.
    pub fn imrecv(&self, message: Message, len: usize) -> Result<Pending> {
        let memory = Pending::lend(vec![0xee; len]);
        let (ptr, count) = (memory.cast::<u8>(), len);
        let buf = TypedBuf {
            ptr,
            count,
            layout: &Layout::byte(),
            memory: MemoryKind::Host,
        };
        // SAFETY: lent memory stays until the operation is over.
        match unsafe { self.device.imrecv_unchecked(message, buf) } {
            Ok(request) => Ok(Pending::new(request, memory)),
            Err(error) => {
                // SAFETY: no operation was started, so the memory is not in use.
                drop(unsafe { Pending::take_back(memory) });
                Err(error)
            }
        }
    }

    /// Gives up an active operation. Its memory is leaked, because the device still uses it.
    ///
    /// # Panics
    /// If the request cannot be freed.
    #[track_caller]
    pub fn abandon(&self, pending: Pending) -> Request {
        self.device
            .free(pending.request)
            .expect("freeing an active request");
        pending.request
    }

    /// Makes progress once.
    #[track_caller]
    pub fn progress(&self) {
        self.device
            .device_check(Check::NonBlocking)
            .expect("progress");
    }

    /// Makes progress until `met` returns true: for conditions without a request.
    #[track_caller]
    pub fn until(&self, mut met: impl FnMut() -> bool) {
        while !met() {
            self.progress();
            thread::yield_now();
        }
    }

    /// Waits until every rank has called it (dissemination barrier, Hensgen, Finkel and Manber
    /// 1988).
    ///
    /// # Panics
    /// If a rank has died.
    #[track_caller]
    pub fn barrier(&self) {
        let (me, size) = (self.me(), self.size());
        let context = FIRST_CONTEXT + self.number * CONTEXTS + BARRIER;
        for (round, distance) in (0..32).map(|bit| (bit, 1_u32 << bit)) {
            if distance >= size {
                return;
            }
            let (to, from) = ((me + distance) % size, (me + size - distance) % size);
            let pattern = Pattern {
                context,
                source: Some(from),
                tag: Some(round),
            };
            let arrived = self.irecv(&pattern, 0);
            self.send(&SendArgs::new(ProcId::new(to), context, me, round), &[])
                .expect("barrier");
            self.done(arrived);
        }
    }

    /// Returns the bytes of all ranks, by rank.
    ///
    /// # Panics
    /// If a rank has died.
    #[track_caller]
    pub fn all_gather(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        let context = FIRST_CONTEXT + self.number * CONTEXTS + BARRIER;
        let pattern = |from| Pattern {
            context,
            source: Some(from),
            tag: Some(99),
        };
        let receives: Vec<_> = (0..self.size())
            .map(|from| self.irecv(&pattern(from), 1 << 16))
            .collect();
        for to in 0..self.size() {
            let args = SendArgs::new(ProcId::new(to), context, self.me(), 99);
            self.send(&args, mine).expect("gather");
        }
        let received = |pending| {
            let (status, mut bytes) = self.done(pending);
            bytes.truncate(status.bytes as usize);
            bytes
        };
        receives.into_iter().map(received).collect()
    }
}

/// The address in memory of `len` bytes where `count` items of a layout begin.
///
/// # Panics
/// If they do not fit.
#[track_caller]
fn place(layout: &Layout, count: usize, ptr: *mut u8, len: usize, origin: usize) -> *mut u8 {
    let span = layout.span(count).expect("a layout that fits into memory");
    let fits = |offset: isize| {
        origin
            .checked_add_signed(offset)
            .is_some_and(|at| at <= len)
    };
    let fits = span.is_empty() || (fits(span.start) && fits(span.end));
    assert!(fits, "{span:?} at {origin} is not within {len} bytes");
    ptr.wrapping_add(origin)
}

/// Asserts that an operation failed with this kind of error.
///
/// # Panics
/// If it did not.
#[track_caller]
pub(crate) fn fails<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, what: &str) {
    match result {
        Err(error) if error.kind() == kind => {}
        Err(error) => panic!("{what} gave {error:?}, not {kind:?}"),
        Ok(value) => panic!("{what} gave {value:?}, not {kind:?}"),
    }
}
