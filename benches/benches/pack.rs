//! Packing by a layout, compared with a loop written by hand, and by each device's own routine.
//!
//! Each shape has two benches, `pack-SHAPE/layout` and `pack-SHAPE/loop`, that put the same bytes
//! into the same buffer. Their ratio is the cost of a layout. `pack-SHAPE/DEVICE` is `Adi::pack` of
//! a device, which checks its arguments and chooses the representation. `unpack-SHAPE/layout` and
//! `unpack-SHAPE/DEVICE` put the bytes back. What the loops and the devices do is checked.

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portolan::{AnyDevice, Device, Hosted, Result};
use portolan_benches::threads;
use portolan_core::Adi;
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
    let items = Items {
        source,
        count,
        layout,
        packed: &packed,
    };
    for transport in common::transports() {
        group.bench_function(transport, |bencher| {
            bencher.iter_custom(|rounds| items.packed_by(transport, rounds));
        });
    }
    group.finish();
    items.unpack(c, name);
}

/// A shape, and the bytes that it is packed into.
struct Items<'a> {
    source: &'a [u8],
    count: usize,
    layout: &'a Layout,
    packed: &'a [u8],
}

impl Items<'_> {
    /// Measures the way back.
    fn unpack(&self, c: &mut Criterion, name: &str) {
        let mut group = c.benchmark_group(format!("unpack-{name}"));
        group.throughput(Throughput::Bytes(self.packed.len() as u64));
        let mut target = vec![0_u8; self.source.len()];
        group.bench_function("layout", |bencher| {
            bencher.iter(|| {
                let (from, to) = (black_box(self.packed), black_box(target.as_mut_ptr()));
                let (bytes, rep) = (from.len(), MsgRep::Native);
                // SAFETY: `shape` has asserted that the items lie within memory of the target's
                // length, and `from` has all their bytes.
                unsafe {
                    self.layout
                        .unpack_range(to, self.count, 0, from.as_ptr(), bytes, rep)
                }
            });
        });
        for transport in common::transports() {
            group.bench_function(transport, |bencher| {
                bencher.iter_custom(|rounds| self.unpacked_by(transport, rounds));
            });
        }
        group.finish();
    }

    /// The time in which the only rank of a job packs the items that often.
    fn packed_by(&self, transport: &str, rounds: u64) -> Duration {
        on_a_rank(transport, |device| {
            let (rep, _) = device.msg_rep(None, self.layout);
            let mut packed = vec![0; device.pack_size(self.count, self.layout, rep)?];
            let seconds = clocked(rounds, || {
                let (from, to) = (black_box(self.source), black_box(&mut packed[..]));
                device.pack(from, 0, self.count, self.layout, rep, to, &mut 0)
            })?;
            assert!(packed == self.packed, "{transport} packs something else");
            Ok(seconds)
        })
    }

    /// The time in which the only rank of a job unpacks the items that often.
    fn unpacked_by(&self, transport: &str, rounds: u64) -> Duration {
        on_a_rank(transport, |device| {
            let (rep, _) = device.msg_rep(None, self.layout);
            let mut target = self.source.to_vec();
            let mut unpack = |packed: &[u8]| {
                let (from, to) = (black_box(packed), black_box(&mut target[..]));
                let unpacked = device.unpack(from, &mut 0, rep, to, 0, self.count, self.layout);
                unpacked.map(drop)
            };
            // The items are zeros before. What is between them stays as it is, so the target is the
            // source again if all of them come to their places.
            unpack(&vec![0; self.packed.len()])?;
            let seconds = clocked(rounds, || unpack(self.packed))?;
            assert!(target == self.source, "{transport} unpacks something else");
            Ok(seconds)
        })
    }
}

/// Runs a body on the only rank of a job, and returns the seconds that it returns.
fn on_a_rank(transport: &str, body: impl Fn(&Hosted<AnyDevice>) -> Result<f64> + Sync) -> Duration {
    let timed = threads::timed(transport, 1, |comm| {
        // SAFETY: nothing is done with requests or messages of the device.
        body(unsafe { comm.communicator() }.device())
    });
    timed.unwrap_or_else(|error| panic!("{transport}: {error}"))
}

/// The seconds that so many calls take by the host's clock. The emulator's own clock stands still
/// meanwhile.
fn clocked(rounds: u64, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    (0..common::warm_up(rounds)).try_for_each(|_| call())?;
    let begun = Instant::now();
    (0..rounds).try_for_each(|_| call())?;
    Ok(begun.elapsed().as_secs_f64())
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
