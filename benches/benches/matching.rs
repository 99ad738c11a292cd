//! The matching queues alone: many receives with a tag each are posted and then matched, in the
//! same order, in reverse, or at random. No message moves; each element costs two calls.

mod common;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portolan_benches::shuffled;
use portolan_core::matching::{Envelope, Pattern, PostedQueue};

const COUNTS: [u32; 4] = [10, 1_000, 10_000, 100_000];

fn envelope(tag: u32) -> Envelope {
    Envelope {
        context: 1,
        source: 3,
        tag,
    }
}

/// The tags of a number of messages, in the order in which the messages arrive.
type Order = fn(u32) -> Vec<u32>;

fn posted(c: &mut Criterion) {
    let orders: [(&str, Order); 3] = [
        ("in-order", |count| (0..count).collect()),
        ("reverse", |count| (0..count).rev().collect()),
        ("random", shuffled),
    ];
    for (name, order) in orders {
        let mut group = c.benchmark_group(format!("matching-{name}"));
        for count in COUNTS {
            let order = order(count);
            let mut queue = PostedQueue::new();
            group.throughput(Throughput::Elements(u64::from(count)));
            group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
                bencher.iter(|| {
                    for tag in 0..count {
                        queue.post(Pattern::exact(&envelope(tag)), tag);
                    }
                    for &tag in &order {
                        assert_eq!(queue.match_arrival(&envelope(tag)), Some(tag));
                    }
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = posted
}
criterion_main!(benches);
