//! A model memory for the proof that the gap is closed: every word of every put becomes visible in
//! a step of its own, in any order that fences allow.
//!
//! No PE notices a word on its way until it loads it. So it is enough to decide at each load
//! whether the words on their way to that address have arrived, together with the words that fences
//! put before them; every other order of arrivals looks the same to the PEs. (It would make a
//! difference to store to an address to which a word is on its way. The protocol never does that,
//! and the model checks it.)

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use super::place::Places;
use super::steps::Step;
use super::wire::Wire;

/// A rule of the protocol, or of its memory, that a test breaks to see whether the exploration
/// notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A prepost is not used while a message that matches it is in the log.
    Suspicion,
    /// Fences order puts.
    Fence,
    /// The log remembers small messages.
    SmallLog,
}

/// Decides what happens next.
pub(super) trait Oracle {
    /// Chooses a number below `options`, which is at least 2.
    fn choose(&mut self, options: usize) -> usize;
}

pub(super) type Chooser = Rc<RefCell<dyn Oracle>>;

/// Queues in the model are short, so that they fill up.
pub(super) const QUEUE: u32 = 4;
pub(super) const POOL: u64 = 512;

/// A word on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    number: u64,
    from: u32,
    to: u32,
    at: u64,
    word: u64,
    /// The number of fences that its sender had made.
    epoch: u32,
}

/// The memories of all PEs, and the words on their way.
#[derive(Clone)]
pub(super) struct Memory {
    words: Vec<Vec<u64>>,
    flights: Vec<Flight>,
    sent: u64,
    /// By PE: the peers whose words have become visible since the PE was last told.
    landed: Vec<BTreeSet<u32>>,
    epochs: Vec<u32>,
    fenced: bool,
    chooser: Chooser,
}

impl Memory {
    pub(super) fn new(size: u32, fenced: bool, chooser: Chooser) -> Self {
        let len = (base() + POOL) / 8;
        Self {
            words: vec![vec![0; len as usize]; size as usize],
            flights: Vec::new(),
            sent: 0,
            landed: vec![BTreeSet::new(); size as usize],
            epochs: vec![0; size as usize],
            fenced,
            chooser,
        }
    }

    /// Whether `early` becomes visible before `late`, because a fence separates them, or because
    /// `late` overwrites `early`.
    fn precedes(&self, early: &Flight, late: &Flight) -> bool {
        let pair = early.from == late.from && early.to == late.to;
        pair && (early.at == late.at || self.fenced && early.epoch < late.epoch)
    }

    /// Makes a word visible, after the words that must precede it.
    fn land(&mut self, n: usize) {
        let late = self.flights[n];
        let mut at = 0;
        let mut n = n;
        while at < n {
            if self.precedes(&self.flights[at], &late) {
                self.land(at);
                n = self.position(&late);
                at = 0;
            } else {
                at += 1;
            }
        }
        self.flights.remove(n);
        self.words[late.to as usize][(late.at / 8) as usize] = late.word;
        self.landed[late.to as usize].insert(late.from);
    }

    fn position(&self, flight: &Flight) -> usize {
        let found = self
            .flights
            .iter()
            .position(|other| other.number == flight.number);
        found.expect("a word lands once")
    }

    pub(super) fn land_all(&mut self) {
        while !self.flights.is_empty() {
            self.land(0);
        }
    }

    /// Whether no word is on its way.
    pub(super) fn is_calm(&self) -> bool {
        self.flights.is_empty()
    }

    /// Hashes everything that the future depends on.
    pub(super) fn digest(&self, hasher: &mut impl Hasher) {
        self.words.hash(hasher);
        self.landed.hash(hasher);
        for flight in &self.flights {
            // Only differences between epochs mean anything.
            let first = self.flights.iter().filter(|f| f.from == flight.from);
            let first = first.map(|f| f.epoch).min().unwrap_or(0);
            (flight.from, flight.to, flight.at, flight.word).hash(hasher);
            (flight.epoch - first).hash(hasher);
        }
    }

    /// A word of a PE's memory. The oracle decides whether words on their way to it have arrived.
    fn load(&mut self, pe: u32, at: u64) -> u64 {
        let here = |flight: &Flight| flight.to == pe && flight.at == at;
        while let Some(n) = self.flights.iter().position(here) {
            if self.chooser.borrow_mut().choose(2) == 0 {
                break;
            }
            self.land(n);
        }
        self.words[pe as usize][(at / 8) as usize]
    }

    fn store(&mut self, pe: u32, at: u64, word: u64) {
        let race = self
            .flights
            .iter()
            .any(|flight| flight.to == pe && flight.at == at);
        assert!(
            !race,
            "PE {pe} stores to {at}, to which a word is on its way"
        );
        self.words[pe as usize][(at / 8) as usize] = word;
    }

    fn copy_out(&mut self, pe: u32, at: u64, bytes: &mut [u8]) {
        for (n, chunk) in (0..).zip(bytes.chunks_mut(8)) {
            let word = self.load(pe, at + 8 * n).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Start of the pool, the same for all sizes of job that the tests use.
pub(super) fn base() -> u64 {
    Places {
        base: 0,
        queue: QUEUE,
    }
    .bytes(3)
    .next_multiple_of(64)
}

/// One PE's end of the memory.
pub(super) struct Model<'m> {
    pub(super) memory: &'m mut Memory,
    pub(super) me: u32,
}

impl Wire for Model<'_> {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.memory.words.len() as u32
    }

    fn load(&mut self, at: u64) -> u64 {
        self.memory.load(self.me, at)
    }

    fn store(&mut self, at: u64, word: u64) {
        self.memory.store(self.me, at, word);
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) {
        self.memory.copy_out(self.me, at, bytes);
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        for (n, word) in (0..).zip(words(bytes)) {
            self.store(at + 8 * n, word);
        }
    }

    fn put(&mut self, pe: u32, at: u64, words: &[u64]) {
        let epoch = self.memory.epochs[self.me as usize];
        for (n, &word) in (0..).zip(words) {
            self.memory.sent += 1;
            self.memory.flights.push(Flight {
                number: self.memory.sent,
                from: self.me,
                to: pe,
                at: at + 8 * n,
                word,
                epoch,
            });
        }
    }

    fn put_bytes(&mut self, pe: u32, at: u64, bytes: &[u8]) {
        let words: Vec<u64> = words(bytes).collect();
        self.put(pe, at, &words);
    }

    fn get_bytes(&mut self, pe: u32, at: u64, bytes: &mut [u8]) {
        self.memory.copy_out(pe, at, bytes);
    }

    fn fence(&mut self) {
        self.memory.epochs[self.me as usize] += 1;
    }

    fn step(&mut self, _step: Step) {}

    /// Exactly the peers that have written; the oracle decides whether words on their way count.
    fn news(&mut self, peers: &mut Vec<u32>) {
        let memory = &mut *self.memory;
        for peer in 0..memory.words.len() as u32 {
            let landed = memory.landed[self.me as usize].remove(&peer);
            let mut flights = memory.flights.iter();
            let coming = flights.any(|flight| flight.to == self.me && flight.from == peer);
            if landed || coming && memory.chooser.borrow_mut().choose(2) == 1 {
                peers.push(peer);
            }
        }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}
