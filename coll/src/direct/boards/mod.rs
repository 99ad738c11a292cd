//! What boards are: how they lie in memory, how ranks come to them, and how much of what goes
//! there.
//!
//! - [`board`]: what one rank shows the others, and how it lies in memory
//! - [`edges`]: what goes along the edges of a topology, and how it lies on a board
//! - [`limits`]: up to what length boards are used
//! - [`list`]: a list of parts of any length, in a cell or in a longer place
//! - [`long`]: places for what is longer than a chunk
//! - [`setup`]: how the ranks of a communicator come to their boards, and how boards are used again

pub(super) mod board;
pub(super) mod edges;
pub(super) mod limits;
pub(super) mod list;
pub(super) mod long;
pub(super) mod setup;
