//! The smallest wire: one PE with memory and no peers, for examples and tests.

use portolan_core::{Error, ErrorKind, Result};

use super::calls::{Placed, Waits};
use super::lite::Lite;
use super::place::Places;
use super::pool::Pool;
use super::steps::Step;
use super::wire::{Buffer, Wire};

/// Bytes of the queues and of the pool.
const QUEUES: u64 = 4096;
const POOL: u64 = 1 << 20;

/// A machine of one PE, on which every put is visible at once and nothing costs anything.
#[derive(Clone, Debug)]
pub struct Loopback {
    memory: Vec<u8>,
}

impl Loopback {
    /// A PE with a megabyte for buffers.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory: vec![0; (QUEUES + POOL) as usize],
        }
    }
}

impl Default for Loopback {
    fn default() -> Self {
        Self::new()
    }
}

impl Wire for Loopback {
    fn me(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn load(&mut self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.read(at, &mut word);
        u64::from_le_bytes(word)
    }

    fn store(&mut self, at: u64, word: u64) {
        self.write(at, &word.to_le_bytes());
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.memory[at as usize..at as usize + bytes.len()]);
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.memory[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn put(&mut self, _pe: u32, at: u64, words: &[u64]) {
        for (n, &word) in (0..).zip(words) {
            self.store(at + 8 * n, word);
        }
    }

    fn put_bytes(&mut self, _pe: u32, at: u64, bytes: &[u8]) {
        self.write(at, bytes);
    }

    fn get_bytes(&mut self, _pe: u32, at: u64, bytes: &mut [u8]) {
        self.read(at, bytes);
    }

    fn fence(&mut self) {}

    fn step(&mut self, _step: Step) {}

    fn news(&mut self, peers: &mut Vec<u32>) {
        peers.push(0);
    }
}

impl Placed for Loopback {
    fn lite<B: Buffer>(&self) -> Lite<B> {
        Lite::new(0, 1, Places::new(0), Pool::new(QUEUES, POOL), POOL)
    }
}

impl Waits for Loopback {
    fn wait(&mut self) -> Result<()> {
        Err(Error::new(
            ErrorKind::Aborted,
            "the only PE waits for a message that nobody will send",
        )
        .remedy("send before waiting"))
    }
}
