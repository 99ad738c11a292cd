//! Tests of the queues: examples, bounds on work, and properties against a naive model.

mod bounds;
mod buckets;
mod examples;
mod properties;
