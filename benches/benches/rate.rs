//! Messages per second, one way.

mod common;

use criterion::{Criterion, criterion_group, criterion_main};
use portolan_benches::Pattern;

fn rate(c: &mut Criterion) {
    common::pattern(c, Pattern::Rate, &[0, 8, 64]);
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = rate
}
criterion_main!(benches);
