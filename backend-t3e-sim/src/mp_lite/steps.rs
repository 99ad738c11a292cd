//! The protocol's own work, step by step: the work of a processor between puts and gets.

/// A piece of software work. The machine decides its cost; the model memory of the tests ignores
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A call enters the library: its arguments are checked and the message is described.
    Call,
    /// One header of a queue is compared with the one that is sought.
    Look,
    /// A header is built and its put is started.
    Post,
    /// An entry of the send log is written, or found and cleared.
    Log,
    /// A send buffer or landing place is allocated or freed.
    Allocate,
    /// This many bytes are copied from memory to memory.
    Copy(u64),
    /// This many headers are moved to close a gap in a queue.
    Condense(u32),
    /// One piece of a long transfer is started.
    Piece,
    /// A message is complete: its outcome is noted for the operation that waits for it.
    Finish,
}

/// The costs of the steps, in nanoseconds.
///
/// All of them are **fitted**: nobody has published how MP_Lite's 12 µs and 19 µs are made up. They
/// are chosen such that the published latencies result from the steps and the machine's own costs;
/// `docs/t3e.md` says how. The set of steps is not fitted: a handshake less in the code is a step
/// less, and gives another figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCosts {
    /// [`Step::Call`].
    pub call: f64,
    /// [`Step::Look`].
    pub look: f64,
    /// [`Step::Post`].
    pub post: f64,
    /// [`Step::Log`].
    pub log: f64,
    /// [`Step::Allocate`].
    pub allocate: f64,
    /// [`Step::Condense`], per header.
    pub condense: f64,
    /// [`Step::Piece`].
    pub piece: f64,
    /// [`Step::Finish`].
    pub finish: f64,
}

impl StepCosts {
    /// Costs that are fitted to the figures of the MP_Lite paper, on the preset T3E-900.
    pub const FITTED: Self = Self {
        call: 2100.0,
        look: 250.0,
        post: 1500.0,
        log: 500.0,
        allocate: 600.0,
        condense: 100.0,
        piece: 500.0,
        finish: 1200.0,
    };

    /// Nanoseconds of a step, without the copies, which the machine counts itself.
    #[must_use]
    pub fn of(&self, step: Step) -> f64 {
        match step {
            Step::Call => self.call,
            Step::Look => self.look,
            Step::Post => self.post,
            Step::Log => self.log,
            Step::Allocate => self.allocate,
            // Counted by the machine: see `Costs::copy`.
            Step::Copy(_) => 0.0,
            Step::Condense(headers) => self.condense * f64::from(headers),
            Step::Piece => self.piece,
            Step::Finish => self.finish,
        }
    }
}
