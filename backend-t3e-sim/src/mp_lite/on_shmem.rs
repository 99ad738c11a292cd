//! The protocol's wire on the emulated machine: SHMEM.
//!
//! The machine watches the memory of the queues: data that reaches it comes along with the
//! machine's replies, into a copy from which the protocol loads. So looking at a queue costs the
//! virtual time of the look, but no call.

use std::collections::{BTreeMap, BTreeSet};

use portolan_core::{Error, Result};

use super::calls::{Placed, Waits};
use super::lite::Lite;
use super::place::Places;
use super::pool::Pool;
use super::steps::{Step, StepCosts};
use super::wire::{Buffer, Wire};
use crate::machine::{Addr, Time};
use crate::shmem::Shmem;

/// The places of the queues: in the static data, from its first byte on.
const PLACES: Places = Places::new(0);

/// Bytes of static data that the protocol needs on each of `pes` PEs, including `pool` bytes for
/// buffers.
///
/// ```
/// use portolan_t3e_sim::mp_lite::{MpLite, OnShmem, statics};
/// use portolan_t3e_sim::{Config, in_process};
///
/// let pool = 1 << 20;
/// let config = Config { statics: statics(2, pool), ..Config::default() };
/// let mut pes = in_process(2, &config)?.into_iter();
/// let (zero, one) = (pes.next().unwrap(), pes.next().unwrap());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let mut pe = MpLite::new(OnShmem::new(zero, pool));
///         pe.mp_send(1, 7, b"ahoy, one").unwrap();
///         pe.settle().unwrap();
///     });
///     let mut pe = MpLite::new(OnShmem::new(one, pool));
///     let mut text = [0; 9];
///     assert_eq!(pe.mp_recv(Some(0), 7, &mut text).unwrap(), 0);
///     assert_eq!(&text, b"ahoy, one");
/// });
/// # Ok::<(), portolan_core::Error>(())
/// ```
#[must_use]
pub fn statics(pes: u32, pool: usize) -> usize {
    queues(pes) as usize + pool
}

/// Bytes of the queues, which is also the offset of the pool.
fn queues(pes: u32) -> u64 {
    PLACES.bytes(pes).next_multiple_of(64)
}

/// A PE of the emulated machine.
#[derive(Debug)]
pub struct OnShmem {
    shmem: Shmem,
    pool: usize,
    steps: StepCosts,
    /// The words of the queues that are not 0.
    copy: BTreeMap<u64, u64>,
    /// Peers that have written to their queues here.
    news: BTreeSet<u32>,
    watching: bool,
    /// The error of a machine that has stopped.
    stopped: Option<Error>,
}

impl OnShmem {
    /// Makes the wire of a PE whose machine has the [`statics`] for `pool` bytes of buffers. Makes
    /// no call of the machine.
    #[must_use]
    pub fn new(shmem: Shmem, pool: usize) -> Self {
        Self {
            shmem,
            pool,
            steps: StepCosts::FITTED,
            copy: BTreeMap::new(),
            news: BTreeSet::new(),
            watching: false,
            stopped: None,
        }
    }

    /// Replaces the costs of the protocol's steps.
    #[must_use]
    pub fn with_steps(mut self, steps: StepCosts) -> Self {
        self.steps = steps;
        self
    }

    /// The PE, for calls besides those of the protocol.
    pub fn shmem(&mut self) -> &mut Shmem {
        self.begin();
        &mut self.shmem
    }

    /// The clock, without a call.
    #[must_use]
    pub fn clock(&self) -> Time {
        self.shmem.clock()
    }

    /// Reads the machine's clock, which lets other PEs run and news arrive.
    pub fn poll(&mut self) {
        self.call(|shmem| shmem.now().map(drop));
    }

    /// How many PEs have failed; `u32::MAX` if the machine has stopped.
    #[must_use]
    pub fn failures(&self) -> u32 {
        match self.stopped {
            Some(_) => u32::MAX,
            None => self.shmem.failures(),
        }
    }

    /// Why a PE is held to be failed, if it is.
    pub fn failure_of(&mut self, pe: u32) -> Option<String> {
        let mut why = None;
        self.call(|shmem| {
            why = shmem.failure_of(pe)?;
            Ok(())
        });
        let stopped = self.stopped.as_ref().map(ToString::to_string);
        why.or(stopped)
    }

    /// Declares a PE failed to all others.
    pub fn declare_failed(&mut self, pe: u32, why: &str) {
        self.call(|shmem| shmem.declare_failed(pe, why));
    }

    /// The machine in a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        let costs = self.shmem.costs();
        format!("{} of {} PEs, emulated", costs.name, self.shmem.n_pes())
    }

    /// Whether a peer has written since the protocol last asked.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Sleeps until a peer has written or failed, at most until `deadline`. If the machine finds
    /// that all PEs wait, its report says that this one waits for `what`; with `None`, for what the
    /// last call gave.
    ///
    /// # Errors
    /// If the machine has stopped. If all PEs wait, the error says what each of them waits for.
    pub fn sleep(&mut self, deadline: Time, what: Option<String>) -> Result<()> {
        let failures = self.failures();
        let mut what = what;
        while self.news.is_empty() && self.failures() == failures {
            let what = what.take();
            self.call(|shmem| shmem.wait_arrival_noting(deadline, what));
            if let Some(error) = &self.stopped {
                return Err(error.clone());
            }
            if self.shmem.clock() >= deadline {
                break;
            }
        }
        Ok(())
    }

    /// Makes a call of the machine, unless it has stopped, and takes in the data that came with the
    /// reply.
    fn call(&mut self, call: impl FnOnce(&mut Shmem) -> Result<()>) {
        if self.stopped.is_some() {
            return;
        }
        self.begin();
        if let Err(error) = call(&mut self.shmem) {
            self.stopped.get_or_insert(error);
        }
        for arrival in self.shmem.take_arrivals() {
            let Addr(at) = arrival.addr;
            self.news.extend(PLACES.peer_at(at));
            for (n, word) in (0..).zip(arrival.data.chunks_exact(8)) {
                let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                self.copy.insert(at + 8 * n, word);
            }
        }
    }

    /// Makes the machine watch the queues. This is the very first call, before any time has passed,
    /// so no PE can have written to them.
    fn begin(&mut self) {
        if self.watching {
            return;
        }
        self.watching = true;
        let len = PLACES.bytes(self.shmem.n_pes()) as usize;
        if let Err(error) = self.shmem.watch(Addr(PLACES.base), len) {
            self.stopped = Some(error);
        }
    }
}

impl Wire for OnShmem {
    fn me(&self) -> u32 {
        self.shmem.my_pe()
    }

    fn size(&self) -> u32 {
        self.shmem.n_pes()
    }

    fn load(&mut self, at: u64) -> u64 {
        self.copy.get(&at).copied().unwrap_or(0)
    }

    fn store(&mut self, at: u64, word: u64) {
        if word == 0 {
            self.copy.remove(&at);
        } else {
            self.copy.insert(at, word);
        }
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) {
        self.call(|shmem| shmem.peek(Addr(at), bytes));
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.call(|shmem| shmem.poke(Addr(at), bytes));
    }

    fn put(&mut self, pe: u32, at: u64, words: &[u64]) {
        self.call(|shmem| shmem.put64(pe, Addr(at), words));
    }

    fn put_bytes(&mut self, pe: u32, at: u64, bytes: &[u8]) {
        self.call(|shmem| shmem.put(pe, Addr(at), bytes));
    }

    fn get_bytes(&mut self, pe: u32, at: u64, bytes: &mut [u8]) {
        self.call(|shmem| shmem.get(pe, Addr(at), bytes));
    }

    fn fence(&mut self) {
        self.call(Shmem::fence);
    }

    /// In virtual time two puts with a fence between them; for the host, one call.
    fn post(&mut self, pe: u32, at: u64, [first, second, last]: [u64; 3]) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.to_le_bytes());
        self.call(|shmem| shmem.put_then(pe, Addr(at), &bytes, Addr(at + 16), last));
    }

    fn step(&mut self, step: Step) {
        self.begin();
        if let Step::Copy(bytes) = step {
            return self.shmem.charge_copy(bytes as usize);
        }
        let picoseconds = self.steps.of(step) * 1e3;
        self.shmem.charge(Time::from_ps(picoseconds as u64));
    }

    fn news(&mut self, peers: &mut Vec<u32>) {
        peers.extend(std::mem::take(&mut self.news));
    }
}

impl Placed for OnShmem {
    fn lite<B: Buffer>(&self) -> Lite<B> {
        let (me, size) = (self.me(), self.size());
        let pool = Pool::new(queues(size), self.pool as u64);
        Lite::new(me, size, PLACES, pool, u64::MAX)
    }
}

impl Waits for OnShmem {
    fn wait(&mut self) -> Result<()> {
        self.sleep(Time::NEVER, None)
    }
}
