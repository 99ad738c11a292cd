//! Nonblocking and persistent operations: each takes one step of a track.
//!
//! One rank's part in an operation goes this way:
//!
//! ```text
//! Operation      the caller's arguments
//!    │ Call::describe
//!  Call          what this rank shows and takes: kind, length, place, header; `Listed` is the form of
//!    │           blocks with lengths of their own, `Along` that of blocks along edges
//!  Ready         the call with the boards (`direct/mod.rs`)
//!    │
//!    ├─ no messages: Ready::start    Begun::new takes the step, lend exposes this rank's part or
//!    │     │                         show writes it, look looks at the other ranks' parts
//!    │     ├─ all have shown ──────▶ Begun::take makes the result: over in the call (`Start::Over`),
//!    │     │                         unless what this rank has lent is still being read
//!    │     └─ some have not ───────▶ Pending in a `Task::Board`: the hook repeats show and look, and
//!    │                               then takes
//!    │
//!    └─ messages: Ready::watch       Begun::new and show; then Pending inside an `Active`, beside
//!          │                         the schedule of the messages
//!          ├─ all data ────────────▶ the cell tells the length and the root; Pending watches for
//!          │                         ranks that disagree, and ends the operation
//!          └─ long blocks only ────▶ short blocks go over the track, long ones are messages; Pending
//!                                    takes the short ones, and refuses messages without counterpart
//! ```
//!
//! A `Call` borrows the caller's arguments. A `Pending` lives longer, so it has a `Kept`, an owned
//! copy of them, and describes the call anew for each look that may get further. A persistent
//! operation has its `Kept` from the beginning.
//!
//! These say which of the data goes as messages:
//!
//! | name | meaning |
//! | --- | --- |
//! | `Call::place` is `None` (`Ready::is_by_messages`, `Pending::all_by_messages`) | all data; the step shows no data |
//! | `Call::has_messages` | some or all data; with a place, only the long blocks |
//! | a marked header (`Header::is_by_messages`, `Listed::is_marked`) | the cell begins with words for other ranks: a length, a root, the lengths that this rank awaits. So wherever there are messages, and at the root of a gatherv even without |
//!
//! - [`along`]: neighbour collectives on a track
//! - [`begun`]: an operation under way: shown when it starts, taken when all ranks have shown
//! - [`call`]: what an operation shows and takes, all in one step
//! - [`hands`]: what an operation needs of the device, in a call and inside progress
//! - [`hope`]: how often the call that starts an operation looks for the other ranks
//! - [`kept`]: owned descriptions of operations that run later
//! - [`lending`]: contributions of two ranks that are copied from where they are
//! - [`listed`]: gathers, scatters and alltoalls with block lengths of their own on a track
//! - [`messages`]: messages of an operation over boards, for data that is longer than a place there
//! - [`pending`]: an operation between the call that starts it and its end
//! - [`turns`]: the steps of the operations on a track, and their order

pub(super) mod along;
pub(super) mod begun;
pub(super) mod call;
pub(super) mod hands;
pub(super) mod hope;
pub(super) mod kept;
pub(super) mod lending;
pub(super) mod listed;
pub(super) mod messages;
pub(super) mod pending;
pub(super) mod turns;
