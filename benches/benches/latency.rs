//! Half a round trip between two ranks, by size; and a barrier.
//!
//! `cargo bench -p portolan-benches --bench latency -- shm` for one transport.

mod common;

use criterion::{Criterion, criterion_group, criterion_main};
use portolan_benches::Pattern;

fn latency(c: &mut Criterion) {
    let sizes = [0, 8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20];
    common::pattern(c, Pattern::Latency, &sizes);
}

fn barrier(c: &mut Criterion) {
    common::pattern(c, Pattern::Barrier, &[0]);
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = latency, barrier
}
criterion_main!(benches);
