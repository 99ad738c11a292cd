//! Checksums of counts that all ranks pass, by which ranks see whether they pass the same.
//!
//! In a reduce-scatter no rank can tell from what another shows whether it divides the vector in
//! the same way: contributions have the same length in any case. So if blocks have several lengths,
//! ranks also show a checksum of all counts. The same holds for an allgather by messages. There a
//! rank may send exactly what all expect of it and still have a different idea of a third rank's
//! block; the others would then wait for data that it should have handed on.

use crate::direct::boards::board::Kind;

/// Bytes at the beginning of a cell that are not free for data if there is a checksum. (Those
/// before the checksum are for lengths that do not fit in a header.)
pub(in crate::direct) const TAKEN: usize = AT + size_of::<u64>();
const AT: usize = size_of::<u64>();

/// The kind that ranks show in a reduce-scatter with these counts, and a checksum of the counts. If
/// the counts are equal there is no checksum, because the length says everything.
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

/// A checksum of counts.
#[inline]
pub(in crate::direct) fn sum_of(counts: impl Iterator<Item = usize>) -> u64 {
    // Each step is invertible, so counts that differ in one place never have the same sum.
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
    // SAFETY: from the caller; a cell is long enough.
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
