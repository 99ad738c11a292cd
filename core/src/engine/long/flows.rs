//! Accelerator data on its way through host memory. The driver copies it in chunks while the
//! transport moves other chunks.
//!
//! ```text
//! device ──driver──▶ chunk 3                         sender: `loader.rs`
//!                    chunk 2 ──transport──▶ chunk 2
//!                                           chunk 1 ──driver──▶ device    receiver: `Landing`
//! ```
//!
//! The chunks are few, whatever the length and number of messages. Where none is free the driver
//! copies at once, in a blocking call: for a receiver what has arrived, for a sender, after a
//! while, a piece.

use std::collections::VecDeque;

use portolan_datatype::MsgRep;

use crate::device::{SendArgs, SendMode};
use crate::engine::data::Data;
use crate::engine::entry::{Op, RecvStage};
use crate::engine::state::{Proto, State};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::Pattern;
use crate::observe::Counters;
use crate::request::Request;
use crate::staging::{CHUNK, Chunk, Driven, DrivenBuf, EACH, Moving, Pool, unsupported};
use crate::status::Status;
use crate::transport::{Payload, Transport};

/// The chunks of an engine, and the receives whose last copies are under way. There are two pools,
/// so that sends never wait for receives.
#[derive(Default)]
pub(in crate::engine) struct Flows {
    pub(in crate::engine) fetches: Pool,
    stores: Pool,
    /// Receives whose data has arrived, but is not yet in accelerator memory.
    pub(in crate::engine) landing: VecDeque<u32>,
}

impl Flows {
    /// Room in host memory for the bytes of a receive from `position` on: [`Landing::room`].
    pub(in crate::engine) fn room(
        &mut self,
        landing: &mut Option<Box<Landing>>,
        data: &Driven,
        position: usize,
    ) -> Option<(*mut u8, usize)> {
        let new = || Box::new(Landing::new(&self.stores));
        landing.get_or_insert_with(new).room(data, position)
    }

    /// Notes that `len` bytes have been put there.
    pub(in crate::engine) fn filled(
        &mut self,
        landing: &mut Option<Box<Landing>>,
        data: &Driven,
        len: usize,
        counters: &mut Counters,
    ) {
        if let Some(landing) = landing {
            let _ = landing.filled(data, len);
            landing.count(counters);
        }
    }

    /// Number of chunks that were given up.
    pub(in crate::engine) fn lost(&self) -> u64 {
        (self.fetches.lost() + self.stores.lost()) as u64
    }

    /// Bytes of host memory that all of it takes.
    pub(in crate::engine) fn memory(&self) -> u64 {
        (self.fetches.bytes() + self.stores.bytes()) as u64
    }
}

/// The data of a receive on its way to the accelerator.
pub(in crate::engine) struct Landing {
    pool: Pool,
    /// The chunk being filled, the position of its first byte, and the number of bytes in it.
    filling: Option<(Chunk, usize, usize)>,
    moving: VecDeque<Moving>,
    /// Copies started, and chunks filled while a copy was under way.
    started: u64,
    overlapped: u64,
}

impl std::fmt::Debug for Landing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Landing({} chunks)", self.moving.len())
    }
}

impl Landing {
    fn new(pool: &Pool) -> Self {
        Self {
            pool: pool.clone(),
            filling: None,
            moving: VecDeque::new(),
            started: 0,
            overlapped: 0,
        }
    }

    /// Room for the bytes from `position` on; its length is never 0. `None` if no chunk is free.
    fn room(&mut self, data: &Driven, position: usize) -> Option<(*mut u8, usize)> {
        let goes_on = |(_, start, len): &(Chunk, usize, usize)| start + len == position;
        if !self.filling.as_ref().is_some_and(goes_on) {
            self.flush(data);
        }
        if self.filling.is_none() {
            self.settle(data);
            self.overlapped += u64::from(!self.moving.is_empty());
            if self.moving.len() >= EACH
                && let Some(mut oldest) = self.moving.pop_front()
            {
                let _ = data.note(oldest.finish());
            }
            let chunk = self.pool.take(data.driver(), data.at(position))?;
            self.filling = Some((chunk, position, 0));
        }
        let (chunk, _, len) = self.filling.as_ref()?;
        Some((chunk.start().wrapping_add(*len), CHUNK - len))
    }

    /// Notes that `bytes` bytes have been put into the room.
    fn filled(&mut self, data: &Driven, bytes: usize) -> Option<()> {
        let (_, _, len) = self.filling.as_mut()?;
        *len += bytes;
        (*len == CHUNK).then(|| self.flush(data))?
    }

    /// Copies bytes that have arrived.
    ///
    /// # Safety
    /// As for `Data::write`.
    unsafe fn put(
        &mut self,
        data: &Driven,
        mut position: usize,
        mut source: *const u8,
        mut len: usize,
    ) {
        while len > 0 {
            let Some((room, space)) = self.room(data, position) else {
                // SAFETY: the caller's promise.
                return unsafe { data.write(position, source, len, MsgRep::Native) };
            };
            let step = len.min(space);
            // SAFETY: `len` bytes are readable, as the caller promised, and so many fit the chunk.
            unsafe {
                crate::lines::copy(source, room, step);
                source = source.add(step);
            }
            let _ = self.filled(data, step);
            (position, len) = (position + step, len - step);
        }
    }

    /// Starts the copy of what has been filled.
    fn flush(&mut self, data: &Driven) -> Option<()> {
        let (chunk, start, len) = self.filling.take()?;
        if len == 0 {
            return None;
        }
        // SAFETY: the receive's memory is the device's until the request completes, and the chunk
        // is this landing's; both are so until the copy is over (`Moving`), because a landing is
        // dropped before.
        let copying = unsafe {
            data.driver()
                .start_store(data.at(start), chunk.start(), len)
        };
        self.started += 1;
        self.moving
            .push_back(Moving::new(chunk, data.note(copying)?));
        Some(())
    }

    /// Releases the chunks whose copies are over.
    fn settle(&mut self, data: &Driven) {
        while let Some(oldest) = self.moving.front_mut() {
            if data.note(oldest.is_over()) == Some(false) {
                break;
            }
            self.moving.pop_front();
        }
    }

    /// Adds what has been started since the last call to the counters.
    pub(in crate::engine) fn count(&mut self, counters: &mut Counters) {
        counters.chunks_staged += std::mem::take(&mut self.started);
        counters.pieces_overlapped += std::mem::take(&mut self.overlapped);
    }

    /// Whether everything that has arrived is in accelerator memory.
    pub(in crate::engine) fn is_over(&mut self, data: &Driven) -> bool {
        self.flush(data);
        self.settle(data);
        self.moving.is_empty()
    }
}

impl<T: Transport> State<T> {
    /// Starts a send from memory that only its driver reaches.
    ///
    /// # Safety
    /// As for `Device::isend_driven_unchecked`.
    pub(in crate::engine) unsafe fn start_driven_send(
        &mut self,
        args: &SendArgs,
        buf: DrivenBuf,
    ) -> Result<Request> {
        if args.mode == SendMode::Buffered || args.rep != MsgRep::Native {
            let what = "a send in this mode or representation";
            return Err(unsupported(buf.driver.kind(), what));
        }
        buf.check()?;
        let data = Driven::new(buf)?;
        let (peer, tag) = (args.dest.index(), args.envelope.tag);
        self.proto.trace("isend", peer, tag, data.bytes);
        // SAFETY: the caller's promise.
        unsafe { self.start_send(args, Data::Driven(Box::new(data))) }
    }

    /// Starts a receive into memory that only its driver reaches.
    ///
    /// # Safety
    /// As for `Device::irecv_driven_unchecked`.
    pub(in crate::engine) unsafe fn start_driven_recv(
        &mut self,
        from: &Pattern,
        buf: DrivenBuf,
    ) -> Result<Request> {
        buf.check()?;
        let data = Data::Driven(Box::new(Driven::new(buf)?));
        // SAFETY: the caller's promise.
        unsafe { self.start_recv(from, data) }
    }

    /// Ends receives whose data has reached accelerator memory.
    pub(in crate::engine) fn advance_landings(&mut self) -> usize {
        let before = self.proto.flows.landing.len();
        for _ in 0..before {
            if let Some(index) = self.proto.flows.landing.pop_front() {
                self.proto.arrived(index);
            }
        }
        before - self.proto.flows.landing.len().min(before)
    }
}

impl Proto {
    /// Puts a piece of data that has arrived into the buffer of a receive.
    ///
    /// # Safety
    /// As for `Data::write`, for the buffer of the receive.
    pub(in crate::engine) unsafe fn land(
        &mut self,
        index: u32,
        position: usize,
        payload: Payload<'_>,
    ) {
        let Op::Recv(op) = &mut self.table.entry(index).op else {
            return;
        };
        let RecvStage::Transfer(transfer) = &mut op.stage else {
            return;
        };
        match op.data.driven() {
            Some(data) if transfer.rep == MsgRep::Native => {
                let landing = transfer
                    .landing
                    .get_or_insert_with(|| Box::new(Landing::new(&self.flows.stores)));
                // SAFETY: the caller's promise.
                unsafe { landing.put(data, position, payload.as_ptr(), payload.len()) };
                landing.count(&mut self.counters);
            }
            _ => {
                let len = payload.len();
                // SAFETY: the caller's promise.
                unsafe { op.data.unload(position, payload, len, transfer.rep) };
            }
        }
    }

    /// Ends a send whose driver has failed.
    #[cold]
    pub(in crate::engine) fn fail_driven(&mut self, index: u32, why: String) {
        let mut status = Status::EMPTY;
        self.blame(index, &mut status, Some(why));
        self.complete(index, status);
    }

    /// Records as an error what the driver of an operation's memory, or the peer's driver, has
    /// reported.
    pub(in crate::engine) fn blame(
        &mut self,
        index: u32,
        status: &mut Status,
        fault: Option<String>,
    ) {
        let Some(fault) = fault else {
            return;
        };
        status.error = Some(ErrorKind::UnsupportedMemory);
        status.bytes = 0;
        let error = Error::new(ErrorKind::UnsupportedMemory, fault)
            .remedy("look whether the device and its driver are in order")
            .on_rank(self.me);
        self.table.entry(index).rare().error = Some(error);
    }

    /// The same for a receive whose data was copied in one piece.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn blame_receive(&mut self, index: u32, status: &mut Status) {
        let why = self.table.recv(index).and_then(|op| fault(&op.data));
        self.blame(index, status, why);
    }
}

/// The error text for a driver's report.
pub(in crate::engine) fn fault(data: &Data) -> Option<String> {
    let why = data.driven()?.fault()?;
    Some(format!(
        "{} bytes of a device could not be copied: {why}",
        data.len()
    ))
}
