//! Windows of messages, one way and both ways.

mod common;

use criterion::{Criterion, criterion_group, criterion_main};
use portolan_benches::Pattern;

const SIZES: [usize; 5] = [1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20];

fn bandwidth(c: &mut Criterion) {
    common::pattern(c, Pattern::Bandwidth, &SIZES);
}

fn bibandwidth(c: &mut Criterion) {
    common::pattern(c, Pattern::Bibandwidth, &SIZES);
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = bandwidth, bibandwidth
}
criterion_main!(benches);
