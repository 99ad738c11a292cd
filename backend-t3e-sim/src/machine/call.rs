//! The calls of a PE and the machine's answers. They are plain values, so that a PE may be a
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
        /// The first byte.
        addr: Addr,
        /// The number of bytes.
        len: usize,
    },
    /// Writes own memory.
    Store {
        /// The first byte.
        addr: Addr,
        /// The bytes to write.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Reads own memory at next to no cost: moves bytes from the machine to the program whose PE it
    /// emulates.
    Peek {
        /// The first byte.
        addr: Addr,
        /// The number of bytes.
        len: usize,
    },
    /// Writes own memory at next to no cost.
    Poke {
        /// The first byte.
        addr: Addr,
        /// The bytes to write.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Writes memory of a PE. Ends when the source may be used again.
    Put {
        /// The PE whose memory it is.
        pe: u32,
        /// The address of the first byte there.
        addr: Addr,
        /// The bytes to write.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        /// The layout of the elements there; `None` for one after the other.
        stride: Option<Stride>,
    },
    /// A put, a quiet and a put of one word: three calls in one. The host passes the baton less
    /// often; the virtual times are the same.
    PutThen {
        /// The PE whose memory it is.
        pe: u32,
        /// The address of the first byte there.
        addr: Addr,
        /// The bytes to write.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        /// The address of the word.
        flag: Addr,
        /// The word.
        word: u64,
    },
    /// Reads memory of a PE. Ends when the bytes are there.
    Get {
        /// The PE whose memory it is.
        pe: u32,
        /// The address of the first byte there.
        addr: Addr,
        /// The number of bytes.
        len: usize,
        /// The layout of the elements there; `None` for one after the other.
        stride: Option<Stride>,
    },
    /// Changes a word of a PE's memory in one step and returns its old value.
    Atomic {
        /// The PE whose memory it is.
        pe: u32,
        /// A word of 8 bytes, aligned.
        addr: Addr,
        /// The operation on the word.
        op: Atomic,
    },
    /// Waits until every write of this PE has been acknowledged.
    Quiet,
    /// Enters the barrier network, and waits until every other PE has done so.
    Barrier,
    /// Waits until a word of own memory satisfies a condition.
    WaitUntil {
        /// A word of 8 bytes, aligned.
        addr: Addr,
        /// The condition.
        until: Condition,
    },
    /// Waits until puts and atomic operations have changed this PE's memory more than `seen` times,
    /// a PE fails, or the clock reaches `deadline`.
    WaitChange {
        /// [`Reply::changes`] of an earlier call.
        seen: u64,
        /// [`Reply::failures`] of an earlier call.
        failures: u32,
        /// The moment at which to give up; [`Time::NEVER`] for never.
        deadline: Time,
    },
    /// Waits until data that no reply has carried yet reaches the [watched](Self::Watch) range, a
    /// PE fails, or the clock reaches `deadline`.
    WaitArrival {
        /// [`Reply::failures`] of an earlier call.
        failures: u32,
        /// The moment at which to give up; [`Time::NEVER`] for never.
        deadline: Time,
        /// A new text, as in [`Note`](Self::Note); `None` keeps the last one.
        note: Option<String>,
    },
    /// Allocates symmetric memory. Every PE makes the same call; includes a barrier.
    Allocate {
        /// The number of bytes.
        len: usize,
    },
    /// Frees symmetric memory. Every PE makes the same call; includes a barrier.
    Free {
        /// The address that [`Allocate`](Self::Allocate) returned.
        addr: Addr,
    },
    /// Allocates zeroed memory of this PE alone, which other PEs can reach if they are told its
    /// address.
    ArenaAllocate {
        /// The number of bytes.
        len: usize,
    },
    /// Frees memory of this PE alone.
    ArenaFree {
        /// The address that [`ArenaAllocate`](Self::ArenaAllocate) returned.
        addr: Addr,
    },
    /// From now on the replies carry the data that reaches this range of own memory, so that a
    /// program can keep a copy of it without reading it. Costs next to nothing; a later call
    /// replaces the range.
    Watch {
        /// The first byte of the range.
        addr: Addr,
        /// The number of bytes; 0 for no range.
        len: usize,
    },
    /// Declares a PE failed to all others.
    Declare {
        /// The PE in question.
        pe: u32,
        /// The reason.
        why: String,
    },
    /// Asks why a PE is held to be failed.
    FailureOf {
        /// The PE in question.
        pe: u32,
    },
    /// Gives a text for people about what the PE is doing, for the report of a deadlock. Costs next
    /// to nothing.
    Note {
        /// A text such as `receive of 8 bytes from PE 3, tag 7`.
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

/// The effect of an atomic operation on a word of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Atomic {
    /// Adds one, wrapping.
    FetchIncrement,
    /// Adds a number, wrapping.
    FetchAdd(u64),
    /// Replaces the word.
    Swap(u64),
    /// Replaces the word if it has a certain value.
    CompareSwap {
        /// The value that it must have.
        expected: u64,
        /// The new value.
        new: u64,
    },
    /// Replaces those bits of the word that are set in the mask.
    MaskedSwap {
        /// The mask.
        mask: u64,
        /// The new values of the bits.
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

/// A condition on a word, taken as a signed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// The word has this value.
    Equal(i64),
    /// The word has another value.
    NotEqual(i64),
    /// The word is greater.
    Greater(i64),
    /// The word is greater or equal.
    GreaterEqual(i64),
    /// The word is less.
    Less(i64),
    /// The word is less or equal.
    LessEqual(i64),
}

impl Condition {
    /// Whether `word` satisfies the condition.
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
    /// The moment at which the call ended.
    pub clock: Time,
    /// The number of times that puts and atomic operations have changed this PE's memory so far.
    pub changes: u64,
    /// The number of PEs that have failed so far.
    pub failures: u32,
    /// The data that has reached the [watched](Call::Watch) range since the last reply, in that
    /// order.
    pub arrivals: Vec<Arrival>,
    /// The answer to the call.
    pub answer: Answer,
}

/// Bytes that have reached watched memory, and that can be seen from now on, not before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The address of the first byte.
    pub addr: Addr,
    /// The bytes.
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The call is done.
    Done,
    /// Bytes that were read.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A word that was read.
    Word(u64),
    /// The address of allocated memory.
    At(Addr),
    /// Text, or none.
    Text(Option<String>),
    /// The call could not be carried out; the PE may continue.
    Refused(Refusal),
}

/// Why a call could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of problem.
    pub reason: Reason,
    /// A text that says what happened, with the offending value.
    pub what: String,
    /// The remedy to try.
    pub remedy: String,
}

/// The kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The memory does not exist, or the address is not aligned.
    Address,
    /// Another argument is wrong.
    Argument,
    /// All PEs wait, or the host's watchdog has stopped the machine.
    Aborted,
    /// The heap is full.
    Exhausted,
    /// A PE that the call needs has failed.
    PeerFailed,
    /// The PE does not exist.
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
