//! Choosing dimensions of a grid that are as even as possible.

use crate::error::{Error, ErrorKind, Result};

/// Sizes of the dimensions of a grid of `ranks` ranks, as close to each other as possible
/// (`MPI_Dims_create`): of all choices, the one with the smallest largest size, then the smallest
/// second largest, and so on. Sizes in `dims` that are not 0 are kept; the others are filled in, in
/// decreasing order.
///
/// ```
/// use portolan_core::comm::dims_create;
///
/// assert_eq!(dims_create(12, &[0, 0])?, [4, 3]);
/// assert_eq!(dims_create(12, &[0, 2, 0])?, [3, 2, 2]);
/// # Ok::<(), portolan_core::Error>(())
/// ```
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if there are no ranks, or their number is not a
/// multiple of the product of the given sizes, or, if all sizes are given, not equal to that
/// product.
#[doc(alias = "MPI_Dims_create")]
pub fn dims_create(ranks: u32, dims: &[u32]) -> Result<Vec<u32>> {
    let given: u64 = dims
        .iter()
        .filter(|&&size| size != 0)
        .fold(1, |product, &size| product.saturating_mul(u64::from(size)));
    let free = dims.iter().filter(|&&size| size == 0).count();
    let left = u64::from(ranks) / given;
    if ranks == 0 || left * given != u64::from(ranks) || (free == 0 && left != 1) {
        let what = format!("{ranks} rank(s) do not fill a grid of {dims:?} (0: any size)");
        return Err(Error::new(ErrorKind::InvalidArgument, what)
            .remedy("give sizes whose product divides the number of ranks, or leave them free"));
    }
    let left = left as u32;
    let mut sizes = Vec::with_capacity(free);
    if free > 0 {
        // There always is a solution: one dimension takes all.
        factors(left, free, left, &divisors(left), &mut sizes);
    }
    let mut sizes = sizes.into_iter();
    let fill = |&size: &u32| match size {
        0 => sizes.next().unwrap_or(1),
        size => size,
    };
    Ok(dims.iter().map(fill).collect())
}

/// Appends `count` factors of `n`, none above `most`, in decreasing order: the first as small as
/// possible, then the second, and so on. Returns whether there are any.
fn factors(n: u32, count: usize, most: u32, divisors: &[u32], found: &mut Vec<u32>) -> bool {
    if count == 1 {
        if n <= most {
            found.push(n);
        }
        return n <= most;
    }
    // The largest of `count` factors is at least the `count`th root.
    let enough = |size: u32| {
        u64::from(size)
            .checked_pow(count as u32)
            .is_none_or(|p| p >= u64::from(n))
    };
    for &size in divisors
        .iter()
        .filter(|&&size| n.is_multiple_of(size) && enough(size))
    {
        if size > most {
            return false;
        }
        found.push(size);
        if factors(n / size, count - 1, size, divisors, found) {
            return true;
        }
        found.pop();
    }
    false
}

/// The divisors of `n`, in increasing order.
fn divisors(n: u32) -> Vec<u32> {
    let small = (1..=n.isqrt()).filter(|&d| n.is_multiple_of(d));
    let mut all: Vec<u32> = small.flat_map(|d| [d, n / d]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways to write `n` as a product of `count` factors in decreasing order.
    fn all_ways(n: u32, count: usize, most: u32) -> Vec<Vec<u32>> {
        if count == 1 {
            return if n <= most { vec![vec![n]] } else { vec![] };
        }
        (1..=n.min(most))
            .filter(|size| n.is_multiple_of(*size))
            .flat_map(|size| {
                let rest = all_ways(n / size, count - 1, size);
                rest.into_iter()
                    .map(move |rest| [vec![size], rest].concat())
            })
            .collect()
    }

    #[test]
    fn the_most_even_grid_is_found() {
        for n in 1..200 {
            for count in 1..5 {
                let best = all_ways(n, count, n).into_iter().min();
                assert_eq!(dims_create(n, &vec![0; count]).ok(), best, "{n} in {count}");
            }
        }
        assert_eq!(
            dims_create(1 << 31, &[0; 16])
                .unwrap()
                .iter()
                .product::<u32>(),
            1 << 31
        );
        assert_eq!(
            dims_create(4_294_967_291, &[0, 0]).unwrap(),
            [4_294_967_291, 1]
        );
    }

    #[test]
    fn sizes_that_are_given_are_kept() {
        assert_eq!(dims_create(24, &[0, 3, 0]).unwrap(), [4, 3, 2]);
        assert_eq!(dims_create(6, &[2, 3]).unwrap(), [2, 3]);
        assert_eq!(dims_create(1, &[]).unwrap(), []);
        for (ranks, dims) in [
            (6, &[4, 0][..]),
            (6, &[2, 2]),
            (0, &[0]),
            (5, &[]),
            (7, &[u32::MAX; 9]),
        ] {
            let error = dims_create(ranks, dims).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{ranks} {dims:?}");
        }
    }
}
