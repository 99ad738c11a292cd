//! Counts of which each rank says all: by what ranks see whether they say the same.
//!
//! In a reduce-scatter no rank can tell from what another shows whether it divides the vector
//! alike: contributions are as long either way. So where blocks have several lengths a checksum of
//! all counts goes along; and with an allgather by messages, in which a rank that gives what all
//! expect of it may yet have another idea of a third one's block, and so leave the others waiting
//! for what it would have handed on.

use crate::direct::boards::board::Kind;

/// Bytes at the beginning of a cell that are taken where there is a checksum. (Those before it are
/// of lengths that a header has no room for.)
pub(in crate::direct) const TAKEN: usize = AT + size_of::<u64>();
const AT: usize = size_of::<u64>();

/// As what ranks take part in a reduce-scatter with these counts, and a checksum of them unless
/// they are equal: then lengths tell it all.
#[inline]
pub(in crate::direct) fn kind(counts: &[usize]) -> (Kind, Option<u64>) {
    match checksum(counts) {
        None => (Kind::ReduceScatter, None),
        sum => (Kind::ReduceScatterUneven, sum),
    }
}

#[inline]
fn checksum(counts: &[usize]) -> Option<u64> {
    let uneven = counts.windows(2).any(|pair| pair[0] != pair[1]);
    uneven.then(|| sum_of(counts.iter().copied()))
}

/// A checksum of any counts.
#[inline]
pub(in crate::direct) fn sum_of(counts: impl Iterator<Item = usize>) -> u64 {
    // Each step can be undone, so counts that differ in one place never have the same sum.
    counts.fold(1, |sum, count| {
        let mixed = (sum ^ count as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    })
}

/// Writes a checksum into a cell.
///
/// # Safety
/// `cell` is the data of a cell that is this rank's, and free.
#[inline]
pub(in crate::direct) unsafe fn write(cell: *mut u8, sum: u64) {
    // SAFETY: from the caller; a cell is longer than that.
    unsafe { cell.add(AT).cast::<u64>().write_unaligned(sum) };
}

/// The checksum in a cell.
///
/// # Safety
/// `cell` is the data of a cell that was posted by a rank that has written one.
#[inline]
pub(in crate::direct) unsafe fn read(cell: *const u8) -> u64 {
    // SAFETY: from the caller.
    unsafe { cell.add(AT).cast::<u64>().read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_differ_have_other_checksums() {
        let lists: [&[usize]; 9] = [
            &[5, 0],
            &[0, 5],
            &[4, 1],
            &[1, 4],
            &[5, 0, 0],
            &[0, 0, 5],
            &[0, 5, 0],
            &[1, 2, 3, 4],
            &[4, 3, 2, 1],
        ];
        let sums: Vec<_> = lists.into_iter().map(checksum).collect();
        for (at, sum) in sums.iter().enumerate() {
            assert!(
                sum.is_some() && !sums[..at].contains(sum),
                "{:?}",
                lists[at]
            );
        }
        assert_eq!(
            [checksum(&[]), checksum(&[7]), checksum(&[7, 7])],
            [None; 3]
        );
    }

    #[test]
    fn a_cell_keeps_one_behind_the_length_that_a_header_has_no_room_for() {
        let mut cell = [u64::MAX; 2];
        let data = cell.as_mut_ptr().cast::<u8>();
        // SAFETY: the cell has two words.
        let sum = unsafe {
            write(data, 3);
            read(data)
        };
        assert_eq!((sum, cell, size_of_val(&cell)), (3, [u64::MAX, 3], TAKEN));
    }
}
