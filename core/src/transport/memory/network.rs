//! The state that the ranks of a memory network share.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Options;
use super::bell::MemoryBell;
use super::block::Block;
use crate::transport::Header;

/// The shared part of a network.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) size: u32,
    pub(super) options: Options,
    pub(super) state: Mutex<State>,
    pub(super) bells: Box<[Arc<MemoryBell>]>,
    /// Which ranks are inside the library: a hint, so Relaxed throughout.
    pub(super) present: Box<[AtomicBool]>,
    /// For each rank, one more than the processor on which it last waited; 0 for none.
    pub(super) processors: Box<[AtomicU32]>,
    /// Number of ranks that failed. It only says when to look at the state, which the mutex orders,
    /// so Relaxed is enough.
    pub(super) failures: AtomicU32,
}

#[derive(Debug)]
pub(super) struct State {
    /// The queue from `a` to `b` is number `a * size + b`.
    pub(super) queues: Vec<Queue>,
    /// Offer words, by rank.
    pub(super) offers: Vec<Vec<Word>>,
    /// Ranks that are asleep, or about to be.
    pub(super) armed: Vec<bool>,
    /// Why a rank is held to be dead.
    pub(super) failed: Vec<Option<String>>,
    /// Ranks that were dropped.
    pub(super) left: Vec<bool>,
    /// Exposed memory, by owner and number.
    pub(super) exposed: HashMap<(u32, u64), Span>,
    /// Registered memory, by owner and number.
    pub(super) registered: HashMap<(u32, u64), Span>,
    /// Memory that peers reach directly, by owner and number.
    pub(super) direct: HashMap<(u32, u64), Block>,
    /// The last number given to an exposure or a block.
    numbers: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) packets: VecDeque<(Header, Vec<u8>)>,
    /// Buffers of delivered packets, so that a pair in steady state allocates nothing.
    pub(super) spare: Vec<Vec<u8>>,
}

/// An offer word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Word {
    Free,
    Open,
    Taken,
    Cancelled,
}

impl State {
    fn new(n: u32, options: &Options) -> Self {
        let ranks = n as usize;
        Self {
            queues: (0..ranks * ranks).map(|_| Queue::default()).collect(),
            offers: vec![vec![Word::Free; options.offers]; ranks],
            armed: vec![false; ranks],
            failed: vec![None; ranks],
            left: vec![false; ranks],
            exposed: HashMap::new(),
            registered: HashMap::new(),
            direct: HashMap::new(),
            numbers: 0,
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Whether a rank accepts nothing any more.
    pub(super) fn is_gone(&self, rank: u32) -> bool {
        self.failed[rank as usize].is_some() || self.left[rank as usize]
    }

    pub(super) fn word(&mut self, rank: u32, word: u32) -> Option<&mut Word> {
        self.offers[rank as usize].get_mut(word as usize)
    }
}

impl Network {
    /// A network of `n` ranks in which nothing has happened.
    pub(super) fn new(n: u32, options: Options) -> Self {
        Self {
            size: n,
            state: Mutex::new(State::new(n, &options)),
            bells: (0..n).map(|_| Arc::default()).collect(),
            present: (0..n).map(|_| AtomicBool::new(false)).collect(),
            processors: (0..n).map(|_| AtomicU32::new(0)).collect(),
            failures: AtomicU32::new(0),
            options,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // No code under the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn queue(&self, from: u32, to: u32) -> usize {
        from as usize * self.size as usize + to as usize
    }
}

/// Bytes that a rank has exposed.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) ptr: *const u8,
    pub(super) len: usize,
    /// Whether they are in memory of `alloc`.
    pub(super) shared: bool,
}

// SAFETY: a description; `pull` and `begin` justify each access, and no access depends on the
// thread.
unsafe impl Send for Span {}
