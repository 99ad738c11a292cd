use std::collections::{BTreeSet, VecDeque};

use super::tx::{BEGINNING, BulkTx};
use super::{ALIGN, place};
use crate::ring::Ends;
use crate::segment::{Geometry, Segment, memory_file};
use crate::sync::Ordering::Relaxed;

const AREA: u64 = 32 << 10;

/// A small area of a pair, and the words that both sides share.
fn pair() -> (Segment, u64, Box<Ends>) {
    let geometry = Geometry {
        ring_cells: 32,
        bulk_bytes: 256 << 10,
        total: 4 << 20,
    };
    let segment = Segment::prepare(memory_file().unwrap(), 1, geometry).unwrap();
    let (area, _) = segment.extend(AREA, "an area").unwrap();
    // SAFETY: the words are atomics, for which zero is legal.
    let ends: Box<Ends> = unsafe { crate::segment::layout::zeroed() };
    (segment, area, ends)
}

/// The number of pieces of `len` bytes, up to `at_most`, that a small area takes before the sender
/// wants a larger one, while the receiver is `behind` by that many pieces.
fn taken(len: usize, behind: u64, at_most: u64, restarts: bool) -> u64 {
    let (segment, area, ends) = pair();
    let mut sender = BulkTx::small(&segment, area, AREA, restarts).unwrap();
    for number in 0..at_most {
        let Ok(Some(piece)) = sender.piece(len, &ends) else {
            return number;
        };
        sender.advance(&piece);
        let end = sender.pos.saturating_sub(behind * len as u64);
        ends.bulk_consumed.store(end, Relaxed);
    }
    at_most
}

#[test]
fn short_pieces_that_go_one_at_a_time_need_no_larger_area() {
    let lap = AREA / ALIGN;
    assert_eq!(taken(64, 0, 20 * lap, false), 20 * lap);
    assert_eq!(taken(256, 0, 20 * lap, false), 20 * lap);
    for len in [64, 256, 1024, 2048] {
        assert_eq!(taken(len, 0, 20 * lap, true), 20 * lap);
    }
}

#[test]
fn after_four_fillings_longer_ones_and_bursts_do() {
    assert_eq!(taken(1024, 0, 1000, false), 4 * AREA / 1024);
    for restarts in [false, true] {
        assert_eq!(taken(64, 32, 10_000, restarts), 4 * AREA / 64);
        assert_eq!(taken(4096, 0, 1000, restarts), 4 * AREA / 4096);
    }
}

#[test]
fn short_pieces_before_do_not_put_off_a_larger_area() {
    let (segment, area, ends) = pair();
    let mut sender = BulkTx::small(&segment, area, AREA, true).unwrap();
    places(&mut sender, 1024, 5000, &ends);
    let mut taken = 0;
    while let Some(piece) = sender.piece(4096, &ends).unwrap() {
        sender.advance(&piece);
        ends.bulk_consumed.store(sender.pos, Relaxed);
        taken += 1;
    }
    let fillings = 4 * AREA as usize / 4096;
    assert!(
        (fillings / 2..=fillings + 8).contains(&taken),
        "{taken} pieces"
    );
}

/// The places of `pieces` pieces of `len` bytes that are read one by one.
fn places(sender: &mut BulkTx, len: usize, pieces: usize, ends: &Ends) -> BTreeSet<usize> {
    let read_one = |_| {
        let piece = sender.piece(len, ends).unwrap().unwrap();
        sender.advance(&piece);
        ends.bulk_consumed.store(sender.pos, Relaxed);
        piece.ptr.addr()
    };
    (0..pieces).map(read_one).collect()
}

#[test]
fn who_starts_over_uses_the_beginning_for_short_pieces() {
    let (segment, area, ends) = pair();
    let mut sender = BulkTx::new(&segment, area, AREA, true).unwrap();
    for len in [64, 1024, 2048] {
        places(&mut sender, len, 500, &ends);
        let used = places(&mut sender, len, 500, &ends).len();
        assert_eq!(used, BEGINNING as usize / len);
    }
    places(&mut sender, 4096, 10, &ends);
    let used = places(&mut sender, 4096, 500, &ends).len();
    assert_eq!(used, AREA as usize / 4096, "longer ones go round");
}

/// No unread piece is overwritten, wherever the sender starts over.
#[test]
fn who_starts_over_leaves_alone_what_is_unread() {
    let (segment, area, ends) = pair();
    let mut sender = BulkTx::new(&segment, area, AREA, true).unwrap();
    let (mut unread, mut full, mut empty) = (VecDeque::<(usize, usize, u64)>::new(), 0, 0);
    for step in 0..20_000_usize {
        let len = [64, 1000, 2048, 4096, 200, 12_000][step * 5 % 6];
        if let Some(piece) = sender.piece(len, &ends).unwrap() {
            let at = piece.ptr.addr();
            assert!(
                unread
                    .iter()
                    .all(|&(from, to, _)| at + len <= from || to <= at)
            );
            sender.advance(&piece);
            unread.push_back((at, at + len, sender.pos));
        } else {
            assert!(!unread.is_empty(), "no room in an empty area");
            full += 1;
        }
        let read = unread.len().min(step * 11 % [2, 3, 40][step / 64 % 3]);
        if let Some((.., end)) = unread.drain(..read).next_back() {
            ends.bulk_consumed.store(end, Relaxed);
        }
        empty += usize::from(unread.is_empty());
    }
    assert!(full > 100 && empty > 100, "full {full}, empty {empty}");
}

/// An area that cannot be replaced has room for any piece up to its own length once everything has
/// been read, whatever its position.
#[test]
fn an_area_that_stays_takes_whatever_is_not_longer_than_it() {
    let (segment, area, ends) = pair();
    for restarts in [false, true] {
        let mut sender = BulkTx::small(&segment, area, AREA, restarts).unwrap();
        sender.stays();
        let (mut unread, mut waited) = (VecDeque::<(usize, usize, u64)>::new(), 0);
        ends.bulk_consumed.store(0, Relaxed);
        for step in 0..5000_usize {
            let len = [64, 32 << 10, 1000, 20_000, 17 << 10, 4096, 31_000][step * 5 % 7];
            let found = loop {
                if let Some(piece) = sender.piece(len, &ends).unwrap() {
                    break piece;
                }
                let (.., end) = unread.pop_front().expect("room in an empty area");
                ends.bulk_consumed.store(end, Relaxed);
                waited += 1;
            };
            let at = found.ptr.addr();
            let apart = |&(from, to, _): &(usize, usize, u64)| at + len <= from || to <= at;
            assert!(unread.iter().all(apart), "{len} bytes over unread ones");
            sender.advance(&found);
            unread.push_back((at, at + len, sender.pos));
        }
        assert!(waited > 1000 && !sender.may_grow());
    }
}

/// Takes as many of a message's pieces as find room, and returns whether all did. Puts their ends
/// into `ends_of`.
fn takes(
    sender: &mut BulkTx,
    len: usize,
    piece: usize,
    ends: &Ends,
    ends_of: &mut VecDeque<u64>,
) -> bool {
    (0..len).step_by(piece).all(|start| {
        let found = sender.piece(piece.min(len - start), ends).unwrap();
        found.is_some_and(|found| {
            sender.advance(&found);
            ends_of.push_back(sender.pos);
            true
        })
    })
}

#[test]
fn what_fits_is_what_pieces_find_room_for() {
    let (segment, area, ends) = pair();
    let mut sender = BulkTx::new(&segment, area, AREA, false).unwrap();
    let (mut unread, mut seen, mut wraps) = (VecDeque::new(), [0; 2], 0);
    for step in 0..5000 {
        let len = [200, 4096, 5000, 10_000, 12_345, 16 << 10, 32 << 10, 40_000][step * 5 % 8];
        let piece = [256, 4096, 8192, 16 << 10, 12_288][step % 5];
        let before = sender.pos;
        let fits = sender.fits(len, piece, &ends);
        let all = takes(&mut sender, len, piece, &ends, &mut unread);
        assert_eq!(fits, all, "step {step}: {len} bytes at {before}");
        seen[usize::from(fits)] += 1;
        wraps += usize::from(fits && sender.pos - before > (len as u64).next_multiple_of(ALIGN));
        let read = unread.len().min(step * 11 % 60);
        if let Some(end) = unread.drain(..read).next_back() {
            ends.bulk_consumed.store(end, Relaxed);
        }
    }
    assert!(seen.iter().all(|&times| times > 500), "{seen:?}");
    assert!(wraps > 50, "{wraps} messages had to skip the area's end");
}

#[test]
fn a_piece_never_wraps() {
    assert_eq!(place(0, 64, 256), 0);
    assert_eq!(place(192, 64, 256), 192);
    assert_eq!(place(192, 128, 256), 256);
    assert_eq!(place(256 + 64, 192, 256), 256 + 64);
    assert_eq!(place(256 + 64, 256, 256), 512);
}
