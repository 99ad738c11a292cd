//! Ranks that give the blocks of one operation in different forms: one length for all blocks on
//! some ranks, counts on others.

mod common;

use portolan_coll::{BlocksArg, LayoutsArg, Many, Operation, Options, Persistent, run, start};
use portolan_core::transport::memory;
use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::Layout;

use common::{World, on_ranks};

/// Runs `body` on `n` ranks, which are threads, in the debug mode or by messages without it.
fn on_all(n: u32, compare: bool, body: impl Fn(&World) + Sync) {
    let mut options = Options::default();
    options.compare = compare;
    options.direct = false;
    on_ranks(memory::network(n), &options, body);
}

/// The operation in each of its forms.
fn in_all_forms(world: &World, operation: &Operation<'_>) -> [Result<()>; 3] {
    let wait = |request| world.device().wait(request).map(drop);
    // SAFETY: the caller's buffers live until all operations are over.
    unsafe {
        [
            run(world, operation),
            start(world, operation).and_then(wait),
            Persistent::new(world, operation).and_then(|mut plan| wait(plan.start()?)),
        ]
    }
}

/// A block of `each` bytes for each rank, as one length, as counts or as layouts.
struct Blocks {
    data: Vec<u8>,
    each: usize,
    counts: Vec<usize>,
    places: Vec<isize>,
    layouts: Vec<Layout>,
}

impl Blocks {
    /// Blocks with a hole between each two, if they are listed one by one.
    fn new(ranks: u32, each: usize) -> Self {
        let places = (0..ranks as usize).map(|rank| (rank * (each + 1)) as isize);
        Self {
            data: vec![0; ranks as usize * (each + 1)],
            each,
            counts: vec![each; ranks as usize],
            places: places.collect(),
            layouts: vec![Layout::byte(); ranks as usize],
        }
    }

    fn equal(&mut self) -> TypedBuf<'_> {
        TypedBuf {
            ptr: self.data.as_mut_ptr(),
            count: self.each,
            layout: &self.layouts[0],
            memory: MemoryKind::Host,
        }
    }

    fn many(&mut self, suffix: &str) -> Many<'_> {
        if suffix.is_empty() {
            return Many::Equal(self.equal());
        }
        let ptr = self.data.as_mut_ptr();
        let (counts, displacements) = (&*self.counts, &*self.places);
        match suffix {
            "v" => Many::Blocks(BlocksArg {
                ptr,
                counts,
                displacements,
                layout: &self.layouts[0],
            }),
            _ => Many::Layouts(LayoutsArg {
                ptr,
                counts,
                displacements,
                layouts: &self.layouts,
            }),
        }
    }
}

#[test]
fn ranks_that_compare_find_out_who_gives_one_length_and_who_counts() {
    // With one length the operations use a tree, or Bruck's algorithm; with counts neither.
    on_all(5, true, |world| {
        let (rank, ranks) = (world.rank(), world.size());
        for odd in [0, 3] {
            let mut all = Blocks::new(ranks, 8);
            let mut own = Blocks::new(1, 8);
            let is_odd = rank == odd;
            let mut told = |name: &str, suffix: &str| {
                let root = odd;
                let operation = match name {
                    "gather" => Operation::Gather {
                        send: Some(own.equal()),
                        recv: (rank == root).then(|| all.many(suffix)),
                        root,
                        uneven: is_odd,
                    },
                    "scatter" => Operation::Scatter {
                        send: (rank == root).then(|| all.many(suffix)),
                        recv: Some(own.equal()),
                        root,
                        uneven: is_odd,
                    },
                    _ => Operation::Alltoall {
                        send: None,
                        recv: all.many(if is_odd { suffix } else { "" }),
                    },
                };
                let forms = ["blocking", "nonblocking", "persistent"];
                for (form, outcome) in forms.into_iter().zip(in_all_forms(world, &operation)) {
                    let error = outcome.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                    let (one, zero) = match odd {
                        0 => ("", suffix),
                        _ => (suffix, ""),
                    };
                    let text = format!(
                        "rank {} calls a {form} {name}{one}, rank 0 calls a {form} {name}{zero}",
                        odd.max(1)
                    );
                    assert!(error.to_string().contains(&text), "{error}, not {text}");
                }
            };
            told("gather", "v");
            told("scatter", "v");
            told("alltoall", "v");
            told("alltoall", "w");
        }
        // Counts and layouts match.
        let mut all = Blocks::new(ranks, 8);
        let recv = all.many(if rank == 1 { "v" } else { "w" });
        in_all_forms(world, &Operation::Alltoall { send: None, recv })
            .into_iter()
            .for_each(Result::unwrap);
    });
}

#[test]
fn an_allgather_takes_blocks_in_both_forms() {
    // Pairs of blocks travel together with these lengths.
    for (ranks, each) in [(4, 5000), (6, 5000), (5, 5000), (4, 100)] {
        for compare in [false, true] {
            on_all(ranks, compare, |world| {
                let rank = world.rank();
                for odd in [0, 2] {
                    let mut own = Blocks::new(1, each);
                    own.data.fill(rank as u8 + 1);
                    let mut all = Blocks::new(ranks, each);
                    let operation = Operation::Allgather {
                        send: Some(own.equal()),
                        recv: all.many(if rank == odd { "v" } else { "" }),
                    };
                    in_all_forms(world, &operation)
                        .into_iter()
                        .for_each(Result::unwrap);
                    let stride = each + usize::from(rank == odd);
                    for (from, block) in (1..=ranks).zip(all.data.chunks(stride)) {
                        assert!(block[..each].iter().all(|&byte| u32::from(byte) == from));
                    }
                }
            });
        }
    }
}
