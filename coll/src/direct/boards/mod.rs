//! Boards: their layout in memory, how ranks set them up, and how much data goes over them.
//!
//! - [`board`]: what one rank shows the others, and its layout in memory
//! - [`edges`]: data along the edges of a topology, and its layout on a board
//! - [`limits`]: up to what length boards are used
//! - [`list`]: a list of parts of any length, in a cell or in a longer place
//! - [`long`]: places for data that is longer than a chunk
//! - [`setup`]: how the ranks of a communicator make their boards, and how boards are reused
//! - [`told`]: what ranks tell each other when they make them
//! - [`view`]: the boards of a communicator, and what a rank does with them

pub(super) mod board;
pub(super) mod edges;
pub(super) mod limits;
pub(super) mod list;
pub(super) mod long;
pub(super) mod setup;
pub(super) mod told;
pub(super) mod view;
