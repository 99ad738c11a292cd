//! Tests that make jobs of their own: they kill ranks, change settings, or use several threads.

pub mod bounded;
pub mod failure;
pub mod threads;
pub mod waits_on_memory;
