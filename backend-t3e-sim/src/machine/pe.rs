//! The state of one PE in the machine.

use std::fmt::Write;
use std::sync::Arc;

use super::address::Addr;
use super::call::{Answer, Arrival, Call, Condition, Stride};
use super::memory::Memory;
use super::registers::Registers;
use super::time::Time;

/// One PE.
#[derive(Debug)]
pub(crate) struct Pe {
    /// Its clock. While it runs or waits, this is the moment at which its last call ended or began
    /// to wait.
    pub(crate) clock: Time,
    pub(crate) doing: Doing,
    pub(crate) memory: Memory,
    pub(crate) registers: Registers,
    /// The moment at which its memory will have done all atomic operations that have reached it.
    pub(crate) atomics_done: Time,
    /// How often puts and atomic operations have changed its memory.
    pub(crate) changes: u64,
    /// The range of its memory that it watches: the first byte, and the number of bytes.
    pub(crate) watched: (Addr, usize),
    /// The data that has reached that range since the last reply.
    pub(crate) arrivals: Vec<Arrival>,
    /// The number of its current sleep, so that the deadline of an earlier sleep has no effect.
    pub(crate) sleep: u64,
    /// Its own note on what it is doing.
    pub(crate) note: String,
    /// Why it is held to be failed.
    pub(crate) failed: Option<String>,
}

/// What a PE is doing.
#[derive(Debug)]
pub(crate) enum Doing {
    /// Its program runs, on the host.
    Running,
    /// Its call has not started.
    Starting(Call),
    /// It issues a put.
    Putting(Put),
    /// It waits for the bytes of a get.
    Getting(Get),
    /// It waits for the old value of an atomic operation.
    Operating { on: u32, addr: Addr },
    /// It waits until a word satisfies a condition.
    Until { addr: Addr, until: Condition },
    /// It waits until its memory changes.
    Sleeping,
    /// It waits until something reaches the range that it watches.
    Watching,
    /// It waits for all others.
    Meeting(Meeting),
    /// Its call has an answer, and the moment at which it ends is known.
    Ending(Answer),
    /// It has left.
    Left,
}

/// A put under way.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) to: u32,
    pub(crate) addr: Addr,
    pub(crate) data: Arc<Vec<u8>>,
    pub(crate) stride: Option<Stride>,
    pub(crate) issued: usize,
    /// A word to put once everything under way has been acknowledged.
    pub(crate) then: Option<(Addr, u64)>,
}

/// A get under way.
#[derive(Debug)]
pub(crate) struct Get {
    pub(crate) from: u32,
    pub(crate) addr: Addr,
    pub(crate) data: Vec<u8>,
    pub(crate) stride: Option<Stride>,
    pub(crate) issued: usize,
    pub(crate) arrived: usize,
    /// Whether the next piece waits for a free register.
    pub(crate) held_up: bool,
}

/// An operation that all PEs do together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    Barrier,
    Allocate(usize),
    Free(Addr),
}

impl Doing {
    /// Whether the PE sleeps until something happens or a deadline passes.
    pub(crate) fn sleeps(&self) -> bool {
        matches!(self, Self::Sleeping | Self::Watching)
    }
}

impl Pe {
    pub(crate) fn new(memory: Memory) -> Self {
        Self {
            clock: Time::ZERO,
            doing: Doing::Running,
            memory,
            registers: Registers::default(),
            atomics_done: Time::ZERO,
            changes: 0,
            watched: (Addr(0), 0),
            arrivals: Vec::new(),
            sleep: 0,
            note: String::new(),
            failed: None,
        }
    }

    /// Notes that a put or an atomic operation has changed `len` bytes of its memory from `addr`
    /// on.
    pub(crate) fn changed(&mut self, addr: Addr, len: usize) {
        self.changes += 1;
        let (Addr(first), count) = self.watched;
        let from = addr.0.max(first);
        let to = addr.0.saturating_add(len as u64).min(first + count as u64);
        if from >= to {
            return;
        }
        let bytes = self.memory.bytes(Addr(from), (to - from) as usize);
        self.arrivals.extend(bytes.map(|data| Arrival {
            addr: Addr(from),
            data,
        }));
    }

    /// A text for people that says what the PE waits for; `None` if it does not wait.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let mut text = match &self.doing {
            Doing::Until { addr, until } => format!("the word at {addr} to be {until}"),
            Doing::Sleeping => "a change of its memory".to_owned(),
            Doing::Watching => "something to reach the memory that it watches".to_owned(),
            Doing::Meeting(meeting) => format!("all others to {meeting}"),
            Doing::Operating { on, addr } => format!("an atomic operation on PE {on}, {addr}"),
            Doing::Getting(get) => format!("{} bytes from PE {}", get.data.len(), get.from),
            _ => return None,
        };
        if !self.note.is_empty() {
            let _ = write!(text, " ({})", self.note);
        }
        Some(text)
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Equal(n) => write!(f, "{n}"),
            Self::NotEqual(n) => write!(f, "other than {n}"),
            Self::Greater(n) => write!(f, "greater than {n}"),
            Self::GreaterEqual(n) => write!(f, "at least {n}"),
            Self::Less(n) => write!(f, "less than {n}"),
            Self::LessEqual(n) => write!(f, "at most {n}"),
        }
    }
}

impl std::fmt::Display for Meeting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Barrier => f.write_str("enter the barrier"),
            Self::Allocate(len) => write!(f, "allocate {len} bytes"),
            Self::Free(addr) => write!(f, "free {addr}"),
        }
    }
}
