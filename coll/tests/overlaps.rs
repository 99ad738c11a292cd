//! Blocks of items with gaps that reach into each other: those that share bytes are refused in
//! every form of the call without the debug mode, and those that are only interleaved are not.

mod common;

use portolan_coll::{BlocksArg, Many, Operation, Options, Persistent, run, start};
use portolan_core::transport::memory;
use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::Layout;

use common::{World, on_ranks};

const ROWS: usize = 3;
const ROW: usize = 4;

/// Runs `body` on `n` ranks with operations by messages, and with direct ones.
fn on_all(n: u32, body: impl Fn(&World) + Sync) {
    for direct in [false, true] {
        let mut options = Options::default();
        options.direct = direct;
        on_ranks(memory::network(n), &options, &body);
    }
}

/// A column of a matrix of `ROWS` rows, each of `ROW` words. The next item is `extent` bytes on.
fn column(extent: isize) -> Layout {
    let column = Layout::vector(ROWS, 1, ROW as isize, &Layout::of::<u32>()).unwrap();
    Layout::resized(&column, 0, extent).unwrap()
}

fn words<'a>(words: &mut [u32], word: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: words.as_mut_ptr().cast(),
        count: words.len(),
        layout: word,
        memory: MemoryKind::Host,
    }
}

/// What every form of `operation` returns, one after the other.
fn in_every_form(world: &World, operation: &Operation<'_>, mut each: impl FnMut(Result<()>)) {
    // SAFETY: the callers' buffers outlive this function, which waits for what it starts; here and
    // below.
    each(unsafe { run(world, operation) });
    let device = world.device();
    // SAFETY: as above.
    let started = unsafe { start(world, operation) };
    each(started.and_then(|request| device.wait(request).map(drop)));
    each(Persistent::new(world, operation).and_then(|mut again| {
        // SAFETY: as above.
        let request = unsafe { again.start() }?;
        device.wait(request).map(drop)
    }));
}

/// Runs an allgather of one column from each rank in every form. `place` says where the column of a
/// rank belongs, if it is not refused.
fn allgather(
    world: &World,
    layout: &Layout,
    displacements: Option<&[isize]>,
    place: Option<&dyn Fn(u32) -> usize>,
) {
    // Extents of both signs have room around the first item.
    let (mut memory, origin) = ([99_u32; 3 * ROWS * ROW], ROWS * ROW);
    let mut own = [world.rank(); ROWS];
    let word = Layout::of::<u32>();
    let ptr = memory[origin..].as_mut_ptr().cast();
    let counts = vec![1; world.size() as usize];
    let recv = match displacements {
        Some(displacements) => Many::Blocks(BlocksArg {
            ptr,
            counts: &counts,
            displacements,
            layout,
        }),
        None => Many::Equal(TypedBuf {
            ptr,
            count: 1,
            layout,
            memory: MemoryKind::Host,
        }),
    };
    let send = Some(words(&mut own, &word));
    let operation = Operation::Allgather { send, recv };
    let case = format!("extent {}, {displacements:?}", layout.extent());
    in_every_form(world, &operation, |outcome| match (outcome, place) {
        (Ok(()), place) => assert!(place.is_some(), "{case}"),
        (Err(error), None) => {
            assert_eq!(error.kind(), ErrorKind::InvalidCount, "{case}: {error}");
            let text = error.to_string();
            assert!(text.contains("overlap in the receive buffer"), "{text}");
        }
        (Err(error), Some(_)) => panic!("{case}: {error}"),
    });
    let mut expected = [99; 3 * ROWS * ROW];
    for (rank, row) in (0..world.size()).flat_map(|rank| (0..ROWS).map(move |row| (rank, row))) {
        if let Some(place) = place {
            expected[place(rank) + ROW * row] = rank;
        }
    }
    assert_eq!(memory, expected, "{case}");
}

#[test]
fn blocks_that_all_lie_in_one_place_are_refused() {
    on_all(3, |world| {
        allgather(world, &column(0), None, None);
        allgather(world, &column(0), Some(&[0, 1, 2]), None);
    });
}

#[test]
fn more_columns_than_a_row_has_are_refused() {
    // The first and the last share the words of all rows but one.
    on_all(1 + ROW as u32, |world| {
        for extent in [4, -4] {
            allgather(world, &column(extent), None, None);
            allgather(world, &column(extent), Some(&[2, 4, 1, 0, 3]), None);
        }
    });
}

#[test]
fn columns_side_by_side_are_received() {
    on_all(ROW as u32, |world| {
        let origin = ROWS * ROW;
        let place = |rank: u32| origin + rank as usize;
        allgather(world, &column(4), None, Some(&place));
        let reversed = |rank: u32| origin - rank as usize;
        allgather(world, &column(-4), None, Some(&reversed));
        let places = [2, 0, 3, 1];
        let shuffled = |rank: u32| origin + places[rank as usize] as usize;
        allgather(world, &column(4), Some(&places), Some(&shuffled));
    });
}
