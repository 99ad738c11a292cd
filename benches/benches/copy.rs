//! Copies between addresses that lie some bytes apart within their pages.
//!
//! `copy-DISTANCE/libc` is the C library's copy to a target whose place in its page is that many
//! bytes behind the source's, `copy-DISTANCE/bytes` is `portolan_datatype::bytes::copy`, which
//! avoids `rep movsb` where it is slow. On AMD's Zen 4 the first one is slow from 1 to 31 bytes.

mod common;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portolan_datatype::bytes;

const PAGE: usize = 4096;

/// Bytes by which the target is behind the source. In programs 8 is behind a small header, and 16
/// where the allocator puts a long vector.
const DISTANCES: [usize; 6] = [0, 8, 16, 24, 32, 2048];

/// Bytes to copy, all of them in the second-level cache.
const SIZES: [usize; 4] = [1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// The index of the first byte that begins a page.
fn page_in(memory: &[u8]) -> usize {
    memory.as_ptr().align_offset(PAGE)
}

fn copies(c: &mut Criterion) {
    let longest = SIZES[SIZES.len() - 1];
    let source: Vec<u8> = (0..longest + PAGE).map(|i| (i ^ i >> 8) as u8).collect();
    let mut target = vec![0_u8; longest + 2 * PAGE];
    let (start, begin) = (page_in(&source), page_in(&target));
    for distance in DISTANCES {
        let mut group = c.benchmark_group(format!("copy-{distance}"));
        for size in SIZES {
            let from = &source[start..][..size];
            let to = &mut target[begin + distance..][..size];
            let copy = |from: &[u8], to: &mut [u8]| {
                assert_eq!(from.len(), to.len());
                // SAFETY: both have as many bytes, and belong to different vectors.
                unsafe { bytes::copy(from.as_ptr(), to.as_mut_ptr(), from.len()) }
            };
            to.fill(0);
            copy(from, to);
            assert!(to == from, "{size} bytes, {distance} behind");
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::new("libc", size), |bencher| {
                bencher.iter(|| black_box(&mut *to).copy_from_slice(black_box(from)));
            });
            group.bench_function(BenchmarkId::new("bytes", size), |bencher| {
                bencher.iter(|| copy(black_box(from), black_box(&mut *to)));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = copies
}
criterion_main!(benches);
