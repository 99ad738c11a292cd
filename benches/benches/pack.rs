//! Packing by a layout, compared with a loop written by hand.
//!
//! Each shape has two benches, `pack-SHAPE/layout` and `pack-SHAPE/loop`, that put the same bytes
//! into the same buffer. Their ratio is the cost of a layout. Before the measurement they are
//! checked to give the same bytes.

mod common;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portolan_datatype::{Datatype, Layout, MsgRep};

/// Rows and columns of the matrix: 2 MiB, so that a column spans many pages.
const ROWS: usize = 512;
const COLUMNS: usize = 512;

/// A particle as it occurs in programs: with padding, which is not sent.
#[derive(Clone, Copy, Datatype)]
#[repr(C)]
struct Particle {
    kind: u8,
    position: [f64; 3],
    cell: u32,
}

/// Measures a shape: `count` items of `layout` in `source`, and the same bytes by a loop.
fn shape(
    c: &mut Criterion,
    name: &str,
    source: &[u8],
    count: usize,
    layout: &Layout,
    by_hand: impl Fn(&[u8], &mut [u8]),
) {
    let span = layout.span(count).expect("the shape is a legal one");
    assert!(span.start >= 0 && span.end as usize <= source.len());
    let bytes = layout.size() * count;
    let (mut packed, mut expected) = (vec![0; bytes], vec![0; bytes]);
    let pack = |packed: &mut [u8]| {
        let (from, to) = (black_box(source.as_ptr()), packed.as_mut_ptr());
        // SAFETY: the items lie within `source`, as was asserted, and `packed` has room for all.
        unsafe { layout.pack_range(from, count, 0, to, packed.len(), MsgRep::Native) }
    };
    assert_eq!(pack(&mut packed), bytes);
    by_hand(source, &mut expected);
    assert!(packed == expected, "{name}: the loop packs something else");

    let mut group = c.benchmark_group(format!("pack-{name}"));
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("layout", |bencher| {
        bencher.iter(|| pack(black_box(&mut packed)));
    });
    group.bench_function("loop", |bencher| {
        bencher.iter(|| by_hand(black_box(source), black_box(&mut expected)));
    });
    group.finish();
}

/// Memory filled with varying bytes.
fn filled(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i ^ i >> 8) as u8).collect()
}

/// One column of a matrix of doubles.
fn column(c: &mut Criterion) {
    let double = Layout::of::<f64>();
    let layout = Layout::vector(ROWS, 1, COLUMNS as isize, &double).expect("legal");
    let matrix = filled(ROWS * COLUMNS * 8);
    shape(c, "column", &matrix, 1, &layout, |from, to| {
        for (row, to) in to.chunks_exact_mut(8).enumerate() {
            to.copy_from_slice(&from[row * COLUMNS * 8..][..8]);
        }
    });
}

/// A block of 16 columns, the halo of a stencil of high order.
fn blocks(c: &mut Criterion) {
    let double = Layout::of::<f64>();
    let layout = Layout::vector(ROWS, 16, COLUMNS as isize, &double).expect("legal");
    let matrix = filled(ROWS * COLUMNS * 8);
    shape(c, "blocks", &matrix, 1, &layout, |from, to| {
        for (row, to) in to.chunks_exact_mut(128).enumerate() {
            to.copy_from_slice(&from[row * COLUMNS * 8..][..128]);
        }
    });
}

/// Structures with padding.
fn structs(c: &mut Criterion) {
    const COUNT: usize = 1000;
    let size = size_of::<Particle>();
    let particles = filled(COUNT * size);
    let layout = Layout::of::<Particle>();
    shape(c, "struct", &particles, COUNT, &layout, |from, to| {
        for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(29)) {
            to[0] = from[0];
            to[1..25].copy_from_slice(&from[8..32]);
            to[25..].copy_from_slice(&from[32..36]);
        }
    });
}

/// Pieces of one to four doubles at irregular places.
fn indexed(c: &mut Criterion) {
    const PIECES: usize = 1000;
    let lengths: Vec<usize> = (0..PIECES).map(|i| 1 + i * 7 % 4).collect();
    let places: Vec<isize> = (0..PIECES).map(|i| (i * 8 + i * 5 % 4) as isize).collect();
    let double = Layout::of::<f64>();
    let layout = Layout::indexed(&lengths, &places, &double).expect("legal");
    let source = filled((PIECES + 1) * 64);
    shape(c, "indexed", &source, 1, &layout, |from, to| {
        let mut rest = to;
        for (&length, &place) in lengths.iter().zip(&places) {
            let (now, later) = rest.split_at_mut(8 * length);
            now.copy_from_slice(&from[8 * place as usize..][..8 * length]);
            rest = later;
        }
    });
}

/// No gaps: packing is a single copy.
fn contiguous(c: &mut Criterion) {
    let layout = Layout::contiguous(8192, &Layout::of::<f64>()).expect("legal");
    let source = filled(8192 * 8);
    shape(c, "contiguous", &source, 1, &layout, |from, to| {
        to.copy_from_slice(from);
    });
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = column, blocks, structs, indexed, contiguous
}
criterion_main!(benches);
