//! Layouts on both sides of a message, and on one; the device's own operations and the defaults.

use portolan_core::{Device, SendMode, Status};
use portolan_datatype::{Layout, MsgRep};

use crate::bytes::content;
use crate::case::Verdict;
use crate::plain::Plain;
use crate::rank::Rank;

/// A layout, the number of items, the size of the memory and where in it they begin.
struct Sample {
    layout: Layout,
    count: usize,
    memory: usize,
    origin: usize,
}

impl Sample {
    /// `count` items in memory that has a few bytes to spare on either side.
    fn new(layout: Layout, count: usize) -> Self {
        let span = layout.span(count).expect("a layout that fits into memory");
        let origin = usize::try_from(7 - span.start.min(0)).expect("a position");
        let memory = origin.checked_add_signed(span.end.max(0)).expect("an end") + 9;
        Self {
            layout,
            count,
            memory,
            origin,
        }
    }

    /// The packed stream of the items in `memory`.
    fn pack(&self, memory: &[u8]) -> Vec<u8> {
        let size = self.layout.size() * self.count;
        let mut packed = vec![0; size];
        let ptr = memory.as_ptr().wrapping_add(self.origin);
        let (layout, count) = (&self.layout, self.count);
        let done =
            // SAFETY: `new` made `memory` large enough for the span around `origin`.
            unsafe { layout.pack_range(ptr, count, 0, packed.as_mut_ptr(), size, MsgRep::Native) };
        assert_eq!(done, size);
        packed
    }

    /// `memory` with the packed stream written over the items.
    fn unpacked(&self, mut memory: Vec<u8>, packed: &[u8]) -> Vec<u8> {
        let ptr = memory.as_mut_ptr().wrapping_add(self.origin);
        let (layout, count, size) = (&self.layout, self.count, packed.len());
        // SAFETY: as in `pack`.
        unsafe { layout.unpack_range(ptr, count, 0, packed.as_ptr(), size, MsgRep::Native) };
        memory
    }
}

/// Sends the items of `out` around the ring into those of `into`, and compares every byte of the
/// memory with the result of packing and unpacking by hand.
fn exchange<D: Device>(rank: &Rank<'_, D>, out: &Sample, into: &Sample, posted_first: bool) {
    let (from, to) = (rank.from(rank.previous(), 1), rank.to(rank.next(), 1));
    let source = content(u64::from(rank.me()), out.memory);
    let post = || {
        rank.irecv_typed(
            &from,
            &into.layout,
            into.count,
            vec![0xee; into.memory],
            into.origin,
        )
    };
    let early = posted_first.then(post);
    rank.barrier();
    let sent = rank.isend_typed(&to, &out.layout, out.count, source, out.origin);
    let pending = early.unwrap_or_else(post);
    let (status, memory) = rank.done(pending);
    let packed = out.pack(&content(u64::from(rank.previous()), out.memory));
    assert_eq!(
        (status.bytes, status.sent),
        (packed.len() as u64, packed.len() as u64)
    );
    let expected = into.unpacked(vec![0xee; into.memory], &packed);
    if let Some(at) = memory.iter().zip(&expected).position(|(a, b)| a != b) {
        panic!(
            "byte {at} of {}: {} for {}",
            memory.len(),
            memory[at],
            expected[at]
        );
    }
    rank.done(sent);
}

/// `exchange` with one layout on both sides, for short messages and in more than one protocol.
fn both_sides<D: Device>(rank: &Rank<'_, D>, layout: &Layout) {
    let many = rank.long() / layout.size() + 1;
    for count in [0, 1, 7, 100, many] {
        let sample = Sample::new(layout.clone(), count);
        for posted_first in [true, false] {
            exchange(rank, &sample, &sample, posted_first);
        }
    }
}

fn columns() -> Layout {
    Layout::vector(5, 2, 3, &Layout::of::<f64>()).expect("a vector")
}

fn scattered() -> Layout {
    let blocks = [3, 0, 1, 2];
    Layout::indexed(&blocks, &[4, 9, 0, 20], &Layout::of::<i32>()).expect("an indexed layout")
}

fn record() -> Layout {
    let parts = [Layout::of::<u8>(), Layout::of::<f64>(), Layout::of::<i16>()];
    Layout::structure(&[3, 1, 2], &[0, 8, 16], &parts).expect("a structure")
}

/// Strided blocks.
pub fn vector<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    both_sides(rank, &columns());
    Ok(())
}

/// Blocks anywhere.
pub fn indexed<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    both_sides(rank, &scattered());
    Ok(())
}

/// Several primitives with gaps.
pub fn structure<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    both_sides(rank, &record());
    Ok(())
}

/// Data before the address that the displacements count from; items that lie before their
/// predecessor, or begin with a gap.
pub fn negative_displacements<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let backwards = Layout::hvector(4, 1, -24, &Layout::of::<f64>()).expect("a vector");
    both_sides(rank, &backwards);
    let number = Layout::of::<f64>();
    let descending = Layout::resized(&number, 0, -16).expect("a resized layout");
    both_sides(rank, &descending);
    let late = Layout::hindexed_block(1, &[8], &number).expect("an indexed layout");
    let late = Layout::resized(&late, 8, 24).expect("a resized layout");
    let [out, into] = [late, descending].map(|layout| Sample::new(layout, 300));
    exchange(rank, &out, &into, true);
    exchange(rank, &into, &out, false);
    let overlapping = Layout::resized(&columns(), -8, 16).expect("a resized layout");
    // Items of a receive must not overlap; those of a send may.
    let out = Sample::new(overlapping, 9);
    let into = Sample::new(Layout::of::<f64>(), 90);
    exchange(rank, &out, &into, false);
    Ok(())
}

/// The layouts of the two sides share nothing but their primitives.
pub fn one_side_only<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for items in [1, 30, rank.long() / 80 + 1] {
        let strided = Sample::new(columns(), items);
        let plain = Sample::new(Layout::of::<f64>(), items * 10);
        for posted_first in [true, false] {
            exchange(rank, &strided, &plain, posted_first);
            exchange(rank, &plain, &strided, posted_first);
        }
    }
    Ok(())
}

/// The defaults in terms of contiguous operations do the same as the device's own operations, and
/// the two work together.
pub fn defaults<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let plain = Plain(rank.device);
    let default = Rank::new(&plain, rank.unique(0) / crate::rank::CONTEXTS);
    for layout in [columns(), scattered(), record()] {
        both_sides(&default, &layout);
        let sample = Sample::new(layout, 50);
        // Even ranks use the defaults, odd ones the device's own operations.
        if rank.me().is_multiple_of(2) {
            exchange(&default, &sample, &sample, true);
        } else {
            exchange(rank, &sample, &sample, true);
        }
    }
    Ok(())
}

/// The program may free a layout while an operation uses it.
pub fn freed_early<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let layout = columns();
    let sample = Sample::new(layout.clone(), rank.long() / 80);
    let handles = layout.handles();
    let received = {
        let short_lived = Layout::vector(5, 2, 3, &Layout::of::<f64>()).expect("a vector");
        let memory = vec![0; sample.memory];
        let from = rank.from(rank.previous(), 1);
        rank.irecv_typed(&from, &short_lived, sample.count, memory, sample.origin)
    };
    let source = content(1, sample.memory);
    let (to, origin) = (
        rank.to(rank.next(), 1).mode(SendMode::Synchronous),
        sample.origin,
    );
    let sent = rank.isend_typed(&to, &layout, sample.count, source.clone(), origin);
    let (_, memory) = rank.done(received);
    assert_eq!(sample.pack(&memory), sample.pack(&source));
    rank.done(sent);
    assert_eq!(
        layout.handles(),
        handles,
        "a completed operation still holds the layout"
    );
    Ok(())
}

/// Blocking forms, in both directions.
pub fn blocking<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for layout in [columns(), record()] {
        for count in [1, 20, rank.long() / layout.size()] {
            let sample = Sample::new(layout.clone(), count);
            let source = content(5, sample.memory);
            let (to, from) = (rank.to(rank.next(), 2), rank.from(rank.previous(), 2));
            let status: Status;
            let mut memory = vec![0; sample.memory];
            if rank.me().is_multiple_of(2) {
                // A blocking send of any length needs a receive that is posted elsewhere.
                let early = (!rank.size().is_multiple_of(2)).then(|| {
                    let memory = vec![0; sample.memory];
                    rank.irecv_typed(&from, &layout, count, memory, sample.origin)
                });
                rank.send_typed(&to, &layout, count, &source, sample.origin)
                    .expect("a send");
                status = match early {
                    Some(pending) => {
                        let (status, received) = rank.done(pending);
                        memory = received;
                        status
                    }
                    None => rank
                        .recv_typed(&from, &layout, count, &mut memory, sample.origin)
                        .expect("a receive"),
                };
            } else {
                status = rank
                    .recv_typed(&from, &layout, count, &mut memory, sample.origin)
                    .expect("a receive");
                rank.send_typed(&to, &layout, count, &source, sample.origin)
                    .expect("a send");
            }
            assert_eq!(status.bytes, (layout.size() * count) as u64);
            assert_eq!(sample.pack(&memory), sample.pack(&source));
        }
    }
    Ok(())
}
