//! The calls of MP_Lite as the paper has them, which match on source, tag and exact number of
//! bytes.
//!
//! The number of bytes takes the place of the context, so a receive matches only messages of its
//! own length. The source may be unknown; there is no other wildcard, no probe and no cancel.

use std::collections::BTreeMap;

use portolan_core::matching::Pattern;
use portolan_core::{Error, ErrorKind, Result};

use super::header::{Form, Label};
use super::lite::{Done, Lite, Mode, Outcome, Outgoing};
use super::stats::Stats;
use super::wire::Wire;

/// A wire on which a PE can wait.
pub trait Waits: Wire {
    /// Waits until memory of this PE may have changed since the protocol last looked.
    ///
    /// # Errors
    /// If the memory will never change: the machine has stopped, or every PE waits.
    fn wait(&mut self) -> Result<()>;
}

/// An operation that `mp_asend` or `mp_arecv` has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MpId(u64);

/// MP_Lite on a PE, for programs that need nothing else.
///
/// ```
/// use portolan_t3e_sim::mp_lite::{Loopback, MpLite};
///
/// // One PE that talks to itself; on the emulated machine the wire is a PE's SHMEM.
/// let mut pe = MpLite::new(Loopback::new());
/// let receive = pe.mp_arecv(Some(0), 7, 5)?;
/// pe.mp_send(0, 7, b"ahoy!")?;
/// let (source, bytes) = pe.mp_wait(receive)?;
/// assert_eq!((source, &bytes[..]), (0, &b"ahoy!"[..]));
/// # Ok::<(), portolan_core::Error>(())
/// ```
#[derive(Debug)]
pub struct MpLite<W> {
    wire: W,
    lite: Lite<Vec<u8>>,
    last: u64,
    /// Operations that are over but have not been waited for.
    over: BTreeMap<u64, Done<Vec<u8>>>,
}

impl<W: Waits> MpLite<W> {
    /// Makes MP_Lite over a wire that says where its queues and buffers lie.
    pub fn new(wire: W) -> Self
    where
        W: Placed,
    {
        let lite = wire.lite();
        Self {
            wire,
            lite,
            last: 0,
            over: BTreeMap::new(),
        }
    }

    /// `MP_ASend`: starts to send.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`InvalidCount`](ErrorKind::InvalidCount) over 4
    /// GiB.
    pub fn mp_asend(&mut self, dest: u32, tag: u32, data: Vec<u8>) -> Result<MpId> {
        self.start_send(dest, tag, data, Mode::Standard)
    }

    /// As [`mp_asend`](Self::mp_asend), but the data stays here until its receiver pulls it. This
    /// is the simpler module that the paper rejects, in which the destination does all transfers.
    /// It exists for the comparison.
    ///
    /// # Errors
    /// As [`mp_asend`](Self::mp_asend).
    pub fn mp_asend_pulled(&mut self, dest: u32, tag: u32, data: Vec<u8>) -> Result<MpId> {
        self.start_send(dest, tag, data, Mode::Synchronous)
    }

    /// `MP_ARecv`: starts to receive `len` bytes with this tag from a source, or from any.
    ///
    /// # Errors
    /// As [`mp_asend`](Self::mp_asend).
    pub fn mp_arecv(&mut self, source: Option<u32>, tag: u32, len: usize) -> Result<MpId> {
        self.check(source.unwrap_or(0))?;
        let context = bytes_as_context(len)?;
        let pattern = Pattern {
            context,
            source,
            tag: Some(tag),
        };
        self.last += 1;
        self.lite
            .arecv(&mut self.wire, pattern, vec![0; len], self.last);
        Ok(MpId(self.last))
    }

    /// `MP_Wait`: waits for an operation. For a receive, returns the source and the data; for a
    /// send, this PE and the data that was sent.
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the operation has already been waited for,
    /// and the errors of the machine.
    pub fn mp_wait(&mut self, id: MpId) -> Result<(u32, Vec<u8>)> {
        if id.0 == 0 || id.0 > self.last {
            return Err(stale(id));
        }
        loop {
            while let Some(done) = self.lite.next_done() {
                self.over.insert(done.token, done);
            }
            if let Some(done) = self.over.remove(&id.0) {
                let source = match done.outcome {
                    Outcome::Received(arrival) => arrival.peer,
                    _ => self.wire.me(),
                };
                return Ok((source, done.buffer));
            }
            if !self.lite.is_waiting(id.0) {
                return Err(stale(id));
            }
            self.lite.progress(&mut self.wire);
            if self.lite.has_done() {
                continue;
            }
            self.wire.wait()?;
        }
    }

    /// `MP_Send`: sends and waits until `data` may be used again.
    ///
    /// # Errors
    /// As [`mp_asend`](Self::mp_asend) and [`mp_wait`](Self::mp_wait).
    pub fn mp_send(&mut self, dest: u32, tag: u32, data: &[u8]) -> Result<()> {
        let id = self.mp_asend(dest, tag, data.to_vec())?;
        self.mp_wait(id).map(drop)
    }

    /// `MP_Recv`: receives and returns the source.
    ///
    /// # Errors
    /// As [`mp_arecv`](Self::mp_arecv) and [`mp_wait`](Self::mp_wait).
    pub fn mp_recv(&mut self, source: Option<u32>, tag: u32, data: &mut [u8]) -> Result<u32> {
        let id = self.mp_arecv(source, tag, data.len())?;
        let (source, bytes) = self.mp_wait(id)?;
        data.copy_from_slice(&bytes);
        Ok(source)
    }

    /// Sets whether receives are preposted. They are by default; switching that off shows what it
    /// gains.
    pub fn prepost(&mut self, prepost: bool) {
        self.lite.preposts_receives(prepost);
    }

    /// Waits until a message has arrived that a receive would match, without receiving it.
    /// Measurements of messages that come before their receive need this.
    ///
    /// # Errors
    /// As [`mp_wait`](Self::mp_wait).
    pub fn await_message(&mut self, source: u32, tag: u32, len: usize) -> Result<()> {
        let pattern = Pattern {
            context: bytes_as_context(len)?,
            source: Some(source),
            tag: Some(tag),
        };
        loop {
            self.lite.progress(&mut self.wire);
            if self.lite.probe(&mut self.wire, &pattern).is_some() {
                return Ok(());
            }
            self.wire.wait()?;
        }
    }

    /// Handles what has arrived and moves waiting operations on, without waiting.
    pub fn progress(&mut self) {
        self.lite.progress(&mut self.wire);
    }

    /// Waits until everything that this PE has to send has left.
    ///
    /// # Errors
    /// The errors of the machine.
    pub fn settle(&mut self) -> Result<()> {
        self.lite.progress(&mut self.wire);
        while !self.lite.is_settled() {
            self.wire.wait()?;
            self.lite.progress(&mut self.wire);
        }
        Ok(())
    }

    /// The counts that the log of this node would show.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.lite.stats()
    }

    /// The wire to the machine below.
    pub fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    fn start_send(&mut self, dest: u32, tag: u32, data: Vec<u8>, mode: Mode) -> Result<MpId> {
        self.check(dest)?;
        let context = bytes_as_context(data.len())?;
        self.last += 1;
        let outgoing = Outgoing {
            peer: dest,
            label: Label { context, tag },
            form: Form::default(),
            mode,
            buffer: data,
            token: self.last,
        };
        self.lite.asend(&mut self.wire, outgoing);
        Ok(MpId(self.last))
    }

    fn check(&self, pe: u32) -> Result<()> {
        if pe < self.wire.size() {
            return Ok(());
        }
        let what = format!("there is no PE {pe} in a job of {}", self.wire.size());
        Err(Error::new(ErrorKind::InvalidRank, what)
            .remedy("use a PE of the job")
            .on_rank(self.wire.me()))
    }
}

/// A wire that knows where the protocol's memory is.
pub trait Placed: Wire {
    /// Makes the protocol on this PE, in its initial state. Must be called once, before any PE
    /// sends.
    fn lite<B: super::wire::Buffer>(&self) -> Lite<B>;
}

fn bytes_as_context(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| {
        let what = format!("a message of {len} bytes is too long for MP_Lite's own calls");
        Error::new(ErrorKind::InvalidCount, what).remedy("send at most 4 GiB - 1")
    })
}

fn stale(id: MpId) -> Error {
    Error::new(
        ErrorKind::InvalidRequest,
        format!("operation {} is not under way", id.0),
    )
    .remedy("wait for each operation once")
}
