//! Unit tests of what the conformance suite cannot see from outside.
