//! Message representations: ranks of another byte order, and the portable one.

use portolan_core::{Device, SendArgs};
use portolan_datatype::{Layout, MsgAction, MsgRep};

use crate::case::Verdict;
use crate::rank::Rank;

/// The device's answers about representations are consistent: a receiver can undo what a sender
/// picks.
pub fn actions<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let layouts = [Layout::of::<f64>(), Layout::byte(), Layout::packed()];
    for layout in &layouts {
        for partner in [None, Some(rank.next())] {
            let (rep, action) = rank.device.msg_rep(partner, layout);
            let undo = rank.device.msg_act(partner, layout, rep);
            assert_eq!(
                action.reverses(),
                undo.reverses(),
                "{layout:?} to {partner:?}"
            );
        }
        let copy = rank
            .device
            .msg_act(Some(rank.next()), layout, MsgRep::Native);
        assert_eq!(copy, MsgAction::Copy, "data of a rank of the same machine");
    }
    let swap = rank
        .device
        .msg_act(Some(rank.next()), &layouts[0], MsgRep::Swapped);
    assert!(swap.reverses());
    let opaque = rank
        .device
        .msg_act(Some(rank.next()), &layouts[1], MsgRep::Swapped);
    assert_eq!(opaque, MsgAction::Copy, "bytes have no order");
    Ok(())
}

fn record() -> Layout {
    let parts = [Layout::of::<u8>(), Layout::of::<f64>(), Layout::of::<i16>()];
    Layout::structure(&[3, 1, 2], &[0, 8, 16], &parts).expect("a structure")
}

/// Bytes of `count` records, with no two alike.
fn records(count: usize) -> Vec<u8> {
    crate::bytes::content(77, 24 * count)
}

/// The packed stream of records in a representation.
fn packed(layout: &Layout, memory: &[u8], count: usize, rep: MsgRep) -> Vec<u8> {
    let size = layout.packed_size(count, rep).expect("a size");
    let mut packed = vec![0; size];
    let (ptr, target) = (memory.as_ptr(), packed.as_mut_ptr());
    // SAFETY: `memory` has 24 bytes per record, which is the layout's extent.
    let done = unsafe { layout.pack_range(ptr, count, 0, target, size, rep) };
    assert_eq!(done, size);
    packed
}

/// Numbers of records that use each protocol.
fn counts<D: Device>(rank: &Rank<'_, D>) -> [usize; 3] {
    [1, 20, rank.long() / 15 + 1]
}

/// Receives records in any representation, and compares the data.
fn receive_and_compare<D: Device>(rank: &Rank<'_, D>, count: usize, what: &str) {
    let layout = record();
    let mut memory = vec![0; 24 * count];
    let status = rank
        .recv_typed(
            &rank.from(rank.previous(), 1),
            &layout,
            count,
            &mut memory,
            0,
        )
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(status.bytes, 15 * count as u64, "{what}");
    let (found, wanted) = (
        packed(&layout, &memory, count, MsgRep::Native),
        packed(&layout, &records(count), count, MsgRep::Native),
    );
    assert!(found == wanted, "{what}: the data differs");
}

/// A rank pretends to have the other byte order: it sends bytes as such a machine would have packed
/// them.
pub fn foreign_sender<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let layout = record();
    for rep in [MsgRep::Swapped, MsgRep::External32] {
        for count in counts(rank) {
            let bytes = packed(&layout, &records(count), count, rep);
            let signature = layout.signature(bytes.len());
            let args = SendArgs {
                rep,
                ..rank.to(rank.next(), 1)
            };
            let sent = rank.isend_signed(&args, bytes, signature);
            receive_and_compare(rank, count, &format!("{count} records packed as {rep:?}"));
            rank.done(sent);
        }
    }
    Ok(())
}

/// The device packs into the representation that the sender names.
pub fn external32<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let layout = record();
    for rep in [MsgRep::Native, MsgRep::Swapped, MsgRep::External32] {
        for count in counts(rank) {
            let args = SendArgs {
                rep,
                ..rank.to(rank.next(), 1)
            };
            let sent = rank.isend_typed(&args, &layout, count, records(count), 0);
            receive_and_compare(rank, count, &format!("{count} records sent as {rep:?}"));
            rank.done(sent);
        }
        long_numbers(rank, rep);
    }
    Ok(())
}

/// Contiguous numbers, too many to travel with their envelope: the bytes that are sent differ from
/// those in the sender's memory.
fn long_numbers<D: Device>(rank: &Rank<'_, D>, rep: MsgRep) {
    const COUNT: u32 = 50_000;
    let layout = Layout::of::<u32>();
    let values: Vec<u8> = (0..COUNT).flat_map(u32::to_ne_bytes).collect();
    let args = SendArgs {
        rep,
        ..rank.to(rank.next(), 2)
    };
    let sent = rank.isend_typed(&args, &layout, COUNT as usize, values.clone(), 0);
    let mut received = vec![0; values.len()];
    let from = rank.from(rank.previous(), 2);
    let status = rank.recv_typed(&from, &layout, COUNT as usize, &mut received, 0);
    assert_eq!(status.expect("a receive").bytes, values.len() as u64);
    assert!(received == values, "numbers sent as {rep:?}");
    rank.done(sent);
}

/// `MPI_PACKED` on either side: packed data is received as its original type, and typed data as
/// packed.
pub fn packed_data<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let layout = record();
    for count in counts(rank) {
        let bytes = packed(&layout, &records(count), count, MsgRep::Native);
        let to = rank.to(rank.next(), 1);
        let sent = rank.isend_typed(&to, &Layout::packed(), bytes.len(), bytes.clone(), 0);
        receive_and_compare(rank, count, "sent as packed");
        rank.done(sent);

        let sent = rank.isend_typed(&to, &layout, count, records(count), 0);
        let mut received = vec![0; bytes.len()];
        let from = rank.from(rank.previous(), 1);
        let (kind, len) = (Layout::packed(), bytes.len());
        let status = rank
            .recv_typed(&from, &kind, len, &mut received, 0)
            .expect("a receive");
        assert_eq!(status.bytes, bytes.len() as u64);
        assert!(received == bytes, "received as packed: the data differs");
        rank.done(sent);
    }
    Ok(())
}
