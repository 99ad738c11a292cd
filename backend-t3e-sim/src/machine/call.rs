//! What a PE asks of the machine, and what it is answered: plain values, so that a PE may be a
//! thread, a process or a step of a test.

use portolan_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use super::address::Addr;
use super::time::Time;

/// One call of a PE. It starts at the PE's clock; [`Reply::clock`] is when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// Reads the clock.
    Now,
    /// Reads own memory.
    Load {
        /// Where.
        addr: Addr,
        /// How many bytes.
        len: usize,
    },
    /// Writes own memory.
    Store {
        /// Where.
        addr: Addr,
        /// What.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Reads own memory at no cost: moves bytes between the machine and the program that it
    /// emulates.
    Peek {
        /// Where.
        addr: Addr,
        /// How many bytes.
        len: usize,
    },
    /// Writes own memory at no cost.
    Poke {
        /// Where.
        addr: Addr,
        /// What.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Writes memory of a PE. Ends when the source may be used again.
    Put {
        /// Whose memory.
        pe: u32,
        /// Where its first byte goes.
        addr: Addr,
        /// What.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        /// How the elements lie there; `None` means one after the other.
        stride: Option<Stride>,
    },
    /// A put, a quiet and a put of one word: what three calls do, in one. The host hands the baton
    /// on less often; virtual time is the same.
    PutThen {
        /// Whose memory.
        pe: u32,
        /// Where its first byte goes.
        addr: Addr,
        /// What.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        /// Where the word goes.
        flag: Addr,
        /// The word.
        word: u64,
    },
    /// Reads memory of a PE. Ends when the bytes are there.
    Get {
        /// Whose memory.
        pe: u32,
        /// Where its first byte lies.
        addr: Addr,
        /// How many bytes.
        len: usize,
        /// How the elements lie there; `None` means one after the other.
        stride: Option<Stride>,
    },
    /// Changes a word of a PE's memory in one step and answers its old value.
    Atomic {
        /// Whose memory.
        pe: u32,
        /// A word of 8 bytes, aligned.
        addr: Addr,
        /// What is done to it.
        op: Atomic,
    },
    /// Waits until every write of this PE has been acknowledged.
    Quiet,
    /// Enters the barrier network, and waits for every other PE to do so.
    Barrier,
    /// Waits until a word of own memory satisfies a condition.
    WaitUntil {
        /// A word of 8 bytes, aligned.
        addr: Addr,
        /// The condition.
        until: Condition,
    },
    /// Waits until puts and atomic operations have changed this PE's memory more than `seen` times,
    /// somebody fails, or the clock reaches `deadline`.
    WaitChange {
        /// [`Reply::changes`] of an earlier call.
        seen: u64,
        /// [`Reply::failures`] of an earlier call.
        failures: u32,
        /// When to give up; [`Time::NEVER`] for never.
        deadline: Time,
    },
    /// Waits until something reaches the [watched](Self::Watch) range that no reply has carried
    /// yet, somebody fails, or the clock reaches `deadline`.
    WaitArrival {
        /// [`Reply::failures`] of an earlier call.
        failures: u32,
        /// When to give up; [`Time::NEVER`] for never.
        deadline: Time,
        /// As in [`Note`](Self::Note), if it is to change.
        note: Option<String>,
    },
    /// Allocates symmetric memory. Every PE makes the same call; includes a barrier.
    Allocate {
        /// How many bytes.
        len: usize,
    },
    /// Frees symmetric memory. Every PE makes the same call; includes a barrier.
    Free {
        /// As [`Allocate`](Self::Allocate) answered it.
        addr: Addr,
    },
    /// Allocates memory of this PE alone, zeroed, that others can reach if they are told where it
    /// is.
    ArenaAllocate {
        /// How many bytes.
        len: usize,
    },
    /// Frees memory of this PE alone.
    ArenaFree {
        /// As [`ArenaAllocate`](Self::ArenaAllocate) answered it.
        addr: Addr,
    },
    /// From now on the replies carry what reaches this range of own memory, so that a program can
    /// keep a copy of it without reading it. Costs nothing; a later call replaces the range.
    Watch {
        /// Where it begins.
        addr: Addr,
        /// How many bytes; 0 for no range.
        len: usize,
    },
    /// Declares a PE failed to all others.
    Declare {
        /// Which one.
        pe: u32,
        /// Why.
        why: String,
    },
    /// Asks why a PE is held to be failed.
    FailureOf {
        /// Which one.
        pe: u32,
    },
    /// Says for people what the PE is doing, for the report of a deadlock. Costs nothing.
    Note {
        /// Such as `receive of 8 bytes from PE 3, tag 7`.
        text: String,
    },
    /// The last call of a PE.
    Leave,
}

/// How the elements of a strided transfer lie in the memory of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stride {
    /// Bytes of an element: 4 or 8.
    pub element: usize,
    /// Bytes from the start of one element to the start of the next; at least `element`.
    pub step: usize,
}

/// What an atomic operation does to a word of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Atomic {
    /// Adds one, wrapping.
    FetchIncrement,
    /// Adds a number, wrapping.
    FetchAdd(u64),
    /// Replaces the word.
    Swap(u64),
    /// Replaces the word if it has a value.
    CompareSwap {
        /// The value that it must have.
        expected: u64,
        /// What it becomes.
        new: u64,
    },
    /// Replaces those bits of the word that are set in the mask.
    MaskedSwap {
        /// Which bits.
        mask: u64,
        /// What they become.
        new: u64,
    },
}

impl Atomic {
    /// The word after the operation.
    #[must_use]
    pub fn apply(self, old: u64) -> u64 {
        match self {
            Self::FetchIncrement => old.wrapping_add(1),
            Self::FetchAdd(n) => old.wrapping_add(n),
            Self::Swap(new) => new,
            Self::CompareSwap { expected, new } if old == expected => new,
            Self::CompareSwap { .. } => old,
            Self::MaskedSwap { mask, new } => old & !mask | new & mask,
        }
    }
}

/// A condition on a word, as a signed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// It has a value.
    Equal(i64),
    /// It has another value.
    NotEqual(i64),
    /// It is greater.
    Greater(i64),
    /// It is greater or equal.
    GreaterEqual(i64),
    /// It is less.
    Less(i64),
    /// It is less or equal.
    LessEqual(i64),
}

impl Condition {
    /// Whether `word` satisfies it.
    #[must_use]
    pub fn holds(self, word: i64) -> bool {
        match self {
            Self::Equal(than) => word == than,
            Self::NotEqual(than) => word != than,
            Self::Greater(than) => word > than,
            Self::GreaterEqual(than) => word >= than,
            Self::Less(than) => word < than,
            Self::LessEqual(than) => word <= than,
        }
    }
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// When the call ended.
    pub clock: Time,
    /// How often puts and atomic operations have changed this PE's memory so far.
    pub changes: u64,
    /// How many PEs have failed so far.
    pub failures: u32,
    /// What has reached the [watched](Call::Watch) range since the last reply, in that order.
    pub arrivals: Vec<Arrival>,
    /// What the call answers.
    pub answer: Answer,
}

/// Bytes that have reached watched memory: now and not before they can be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Where the first of them lies.
    pub addr: Addr,
    /// The bytes.
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
}

/// What a call answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// Bytes that were read.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A word that was read.
    Word(u64),
    /// Where memory was allocated.
    At(Addr),
    /// Text, or none.
    Text(Option<String>),
    /// The call could not be done; the PE may go on.
    Refused(Refusal),
}

/// Why a call could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What kind of thing went wrong.
    pub reason: Reason,
    /// What happened, with the offending value.
    pub what: String,
    /// What to try.
    pub remedy: String,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Memory that is not there, or not aligned.
    Address,
    /// An argument that has no kind of its own.
    Argument,
    /// All PEs wait, or the host's watchdog has stopped the machine.
    Aborted,
    /// The heap is full.
    Exhausted,
    /// A PE has failed that the call needs.
    PeerFailed,
    /// A PE that does not exist.
    Pe,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, what: String, remedy: &str) -> Self {
        Self {
            reason,
            what,
            remedy: remedy.to_owned(),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal.reason {
            Reason::Address => ErrorKind::RemoteAccess,
            Reason::Argument => ErrorKind::InvalidArgument,
            Reason::Aborted => ErrorKind::Aborted,
            Reason::Exhausted => ErrorKind::Exhausted,
            Reason::PeerFailed => ErrorKind::PeerFailed,
            Reason::Pe => ErrorKind::InvalidRank,
        };
        let error = Self::new(kind, refusal.what).on_device("t3e-sim");
        if refusal.remedy.is_empty() {
            return error;
        }
        error.remedy(refusal.remedy)
    }
}
