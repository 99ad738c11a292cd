//! Layouts, pack and unpack against a naive type map.

mod model;

use model::{Memory, reps, trees};
use portolan_datatype::{Layout, LayoutError, MsgRep};
use proptest::prelude::*;
use proptest::sample::Index;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sizes_and_bounds(tree in trees(), count in 0usize..4) {
        let (layout, model) = (tree.layout(), tree.model());
        prop_assert_eq!(layout.size(), model.size());
        prop_assert_eq!(layout.true_lb(), model.true_lb());
        prop_assert_eq!(layout.true_extent(), model.true_ub() - model.true_lb());
        prop_assert_eq!(layout.lb(), model.lb());
        prop_assert_eq!(layout.extent(), model.extent());
        prop_assert_eq!(layout.packed_size(count, MsgRep::Native), Ok(count * model.size()));
        let stream = model.stream(count, MsgRep::Native);
        let low = stream.iter().copied().min().unwrap_or(0);
        let high = stream.iter().copied().max().map_or(0, |last| last + 1);
        prop_assert_eq!(layout.span(count), Ok(low..high));
        let is_run = model.stream(3, MsgRep::Native).iter().enumerate().all(|(i, d)| *d == i as isize);
        prop_assert_eq!(layout.is_contiguous(), is_run);
    }

    #[test]
    fn any_range_is_packed(
        tree in trees(), count in 0usize..5, rep in reps(), from in any::<Index>(), len in any::<Index>(),
    ) {
        let (layout, model) = (tree.layout(), tree.model());
        let stream = model.stream(count, rep);
        let mut memory = Memory::around(&stream);
        let position = from.index(stream.len() + 2);
        let len = len.index(stream.len() + 9);
        let mut packed = vec![0xA5; len + 1];
        let base = memory.base();
        let expected: Vec<u8> =
            stream.iter().skip(position).take(len).map(|d| *memory.at(*d)).collect();
        // SAFETY: `memory` holds every byte of the stream; `packed` has room for `len`.
        let moved = unsafe {
            layout.pack_range(base, count, position, packed.as_mut_ptr(), len, rep)
        };
        prop_assert_eq!(moved, expected.len());
        prop_assert_eq!(&packed[..moved], &expected[..]);
        prop_assert!(packed[moved..].iter().all(|byte| *byte == 0xA5));
    }

    #[test]
    fn parts_of_any_size_are_unpacked(
        tree in trees(), count in 0usize..5, rep in reps(), parts in prop::collection::vec(1usize..60, 1..6),
    ) {
        let (layout, model) = (tree.layout(), tree.model());
        let stream = model.stream(count, rep);
        let mut sorted = stream.clone();
        sorted.sort_unstable();
        sorted.dedup();
        // Receiving into overlapping data is erroneous.
        prop_assume!(sorted.len() == stream.len());
        let mut memory = Memory::around(&stream);
        let mut expected = Memory::around(&stream);
        let message: Vec<u8> = (0..stream.len()).map(|i| (i * 31 + 7) as u8).collect();
        for (byte, disp) in message.iter().zip(&stream) {
            *expected.at(*disp) = *byte;
        }
        let (mut position, base) = (0, memory.base());
        for len in parts.iter().cycle() {
            let len = (*len).min(message.len() - position);
            // SAFETY: `memory` holds every byte of the stream; the message has `len` bytes more.
            let moved = unsafe {
                let src = message.as_ptr().add(position);
                layout.unpack_range(base, count, position, src, len, rep)
            };
            prop_assert_eq!(moved, len);
            position += len;
            if position == message.len() {
                break;
            }
        }
        prop_assert_eq!(memory.bytes, expected.bytes);
    }

    #[test]
    fn absolute_displacements(tree in trees(), count in 0usize..3, rep in reps()) {
        let (layout, model) = (tree.layout(), tree.model());
        let stream = model.stream(count, rep);
        let mut memory = Memory::around(&stream);
        let expected: Vec<u8> = stream.iter().map(|d| *memory.at(*d)).collect();
        let items = Layout::contiguous(count, &layout).expect("small");
        let address = memory.base().expose_provenance() as isize;
        let absolute = Layout::hindexed(&[1], &[address], &items).expect("an address");
        let mut packed = vec![0; stream.len()];
        // SAFETY: the displacements are addresses within `memory`, whose provenance is exposed.
        let moved = unsafe {
            let to = packed.as_mut_ptr();
            absolute.pack_range(std::ptr::null(), 1, 0, to, packed.len(), rep)
        };
        prop_assert_eq!(moved, stream.len());
        prop_assert_eq!(packed, expected);
    }
}

/// Enough repetitions for tiles, cut at every byte.
#[test]
fn long_runs_of_small_structures_cut_anywhere() -> Result<(), LayoutError> {
    let fields = [Layout::of::<u16>(), Layout::of::<u64>(), Layout::of::<u8>()];
    let item = Layout::structure(&[1, 1, 3], &[0, 8, 16], &fields)?;
    let count = 300;
    let extent = item.extent() as usize;
    let memory: Vec<u8> = (0..count * extent)
        .map(|i| (i * 7 + i / 256) as u8)
        .collect();
    for rep in [MsgRep::Native, MsgRep::Swapped] {
        let mut whole = vec![0; item.size() * count];
        // SAFETY: `memory` holds `count` items, `whole` their data.
        unsafe {
            item.pack_range(
                memory.as_ptr(),
                count,
                0,
                whole.as_mut_ptr(),
                whole.len(),
                rep,
            );
        }
        for position in (0..whole.len()).step_by(61) {
            let mut part = vec![0; whole.len() - position];
            // SAFETY: as above.
            let moved = unsafe {
                let to = part.as_mut_ptr();
                item.pack_range(memory.as_ptr(), count, position, to, part.len(), rep)
            };
            assert_eq!(moved, part.len());
            assert_eq!(part, whole[position..], "from {position}, {rep:?}");
        }
        let mut back = vec![0; memory.len()];
        let mut again = vec![0; whole.len()];
        // SAFETY: as above; `back` holds `count` items too.
        unsafe {
            item.unpack_range(
                back.as_mut_ptr(),
                count,
                0,
                whole.as_ptr(),
                whole.len(),
                rep,
            );
            item.pack_range(
                back.as_ptr(),
                count,
                0,
                again.as_mut_ptr(),
                again.len(),
                rep,
            );
        }
        assert_eq!(again, whole);
    }
    Ok(())
}

/// A rank of the other byte order writes natively; here reversed numbers play its memory.
#[test]
fn a_foreign_rank_is_understood() -> Result<(), LayoutError> {
    use portolan_datatype::ByteOrder;
    let layout = Layout::structure(
        &[1, 2, 1],
        &[0, 8, 24],
        &[
            Layout::of::<u32>(),
            Layout::of::<f64>(),
            Layout::of::<u16>(),
        ],
    )?;
    let foreign = ByteOrder::NATIVE.opposite();
    let order = |bytes: &[u8]| -> Vec<u8> {
        if foreign == ByteOrder::Big {
            bytes.to_vec()
        } else {
            bytes.iter().rev().copied().collect()
        }
    };
    let message: Vec<u8> = [
        order(&0x0102_0304u32.to_be_bytes()),
        order(&1.5f64.to_be_bytes()),
        order(&(-2.25f64).to_be_bytes()),
        order(&0xBEEFu16.to_be_bytes()),
    ]
    .concat();
    let rep = MsgRep::Native.seen_from(foreign, ByteOrder::NATIVE);
    for cut in 0..=message.len() {
        let mut memory = [0u64; 4];
        let base = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: an item's 26 bytes lie within the 32 of `memory`.
        unsafe {
            layout.unpack_range(base, 1, 0, message.as_ptr(), cut, rep);
            let rest = message.as_ptr().add(cut);
            layout.unpack_range(base, 1, cut, rest, message.len() - cut, rep);
            assert_eq!(base.cast::<u32>().read(), 0x0102_0304);
            assert_eq!(base.add(8).cast::<[f64; 2]>().read(), [1.5, -2.25]);
            assert_eq!(base.add(24).cast::<u16>().read(), 0xBEEF);
        }
    }
    Ok(())
}
