//! Grids.

use crate::error::{Error, ErrorKind, Result};

/// One dimension of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dimension {
    /// Number of ranks along it.
    pub size: u32,
    /// Whether the dimension wraps around: the first rank follows the last.
    pub periodic: bool,
}

impl Dimension {
    /// A dimension that does not wrap around.
    #[must_use]
    pub const fn open(size: u32) -> Self {
        Self {
            size,
            periodic: false,
        }
    }

    /// A dimension that wraps around.
    #[must_use]
    pub const fn periodic(size: u32) -> Self {
        Self {
            size,
            periodic: true,
        }
    }

    /// The place at coordinate `at`, wrapped around if the dimension is periodic; `None` if it is
    /// outside.
    fn place(self, at: i128) -> Option<u32> {
        let size = i128::from(self.size);
        let at = if self.periodic {
            at.rem_euclid(size)
        } else {
            at
        };
        (0..size).contains(&at).then_some(at as u32)
    }
}

/// A grid of ranks with any number of dimensions, in row-major order: the last coordinate changes
/// fastest (MPI-4 section 8.2).
///
/// ```
/// use portolan_core::comm::{Cartesian, Dimension};
///
/// let grid = Cartesian::new(&[Dimension::open(2), Dimension::periodic(3)])?;
/// assert_eq!(grid.coords(4)?, [1, 1]);
/// assert_eq!(grid.rank(&[1, -1])?, 5);
/// let shift = grid.shift(4, 0, 1)?;
/// assert_eq!((shift.source, shift.destination), (Some(1), None));
/// # Ok::<(), portolan_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cartesian {
    dims: Box<[Dimension]>,
    size: u32,
}

/// The ranks at some distance in both directions ([`Cartesian::shift`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shift {
    /// The rank from which this one is at the displacement; `None` beyond an end (`MPI_PROC_NULL`).
    #[doc(alias = "MPI_PROC_NULL")]
    pub source: Option<u32>,
    /// The rank at the displacement; `None` beyond an end.
    pub destination: Option<u32>,
}

impl Shift {
    /// The shift by the opposite displacement.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }
}

impl Cartesian {
    /// The grid with these dimensions. A grid without dimensions has one rank.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if a dimension is 0, or the grid has more
    /// ranks than can be numbered.
    pub fn new(dims: &[Dimension]) -> Result<Self> {
        let mut size = 1_u32;
        for (number, dim) in dims.iter().enumerate() {
            size = match size.checked_mul(dim.size) {
                Some(size) if size > 0 => size,
                Some(_) => {
                    return Err(bad(format!("dimension {number} of the grid has size 0")));
                }
                None => {
                    return Err(bad(format!(
                        "a grid of {} dimensions has more than {} ranks",
                        dims.len(),
                        u32::MAX
                    )));
                }
            };
        }
        Ok(Self {
            dims: dims.into(),
            size,
        })
    }

    /// The dimensions.
    #[must_use]
    pub fn dims(&self) -> &[Dimension] {
        &self.dims
    }

    /// Number of ranks in the grid.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The rank at these coordinates (`MPI_Cart_rank`). A coordinate in a periodic dimension may be
    /// out of range: it wraps around.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the number of coordinates is not the
    /// number of dimensions, or a coordinate is outside of a dimension that does not wrap around.
    #[doc(alias = "MPI_Cart_rank")]
    pub fn rank(&self, coords: &[i64]) -> Result<u32> {
        if coords.len() != self.dims.len() {
            return Err(bad(format!(
                "{} coordinates for a grid of {} dimensions",
                coords.len(),
                self.dims.len()
            )));
        }
        let mut rank = 0;
        for ((dim, &at), number) in self.dims.iter().zip(coords).zip(0..) {
            let Some(place) = dim.place(at.into()) else {
                return Err(bad(format!(
                    "coordinate {at} is outside of dimension {number}, which has places 0 to {}",
                    dim.size - 1
                )));
            };
            rank = rank * dim.size + place;
        }
        Ok(rank)
    }

    /// The coordinates of a rank (`MPI_Cart_coords`).
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank).
    #[doc(alias = "MPI_Cart_coords")]
    pub fn coords(&self, rank: u32) -> Result<Vec<u32>> {
        self.check_rank(rank)?;
        Ok(self.places(rank))
    }

    /// The rank that is `displacement` places further along a dimension, and the rank that is as
    /// far behind (`MPI_Cart_shift`).
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank); [`InvalidArgument`](ErrorKind::InvalidArgument) if
    /// there is no such dimension.
    #[doc(alias = "MPI_Cart_shift")]
    pub fn shift(&self, rank: u32, dim: usize, displacement: i64) -> Result<Shift> {
        self.check_rank(rank)?;
        if dim >= self.dims.len() {
            return Err(bad(format!(
                "dimension {dim} of a grid of {} dimension(s)",
                self.dims.len()
            )));
        }
        Ok(Shift {
            source: self.moved(rank, dim, -i128::from(displacement)),
            destination: self.moved(rank, dim, displacement.into()),
        })
    }

    /// The dimensions that are kept, as a grid of their own (`MPI_Cart_sub`).
    #[doc(alias = "MPI_Cart_sub")]
    pub(super) fn kept(&self, keep: &[bool]) -> Self {
        let dims: Box<[Dimension]> = self.dims_where(keep, true).map(|(dim, _)| dim).collect();
        let size = dims.iter().map(|dim| dim.size).product();
        Self { dims, size }
    }

    /// The row-major number of `rank` in the dimensions that are kept, or in the others.
    pub(super) fn number_in(&self, rank: u32, keep: &[bool], kept: bool) -> u32 {
        let places = self.places(rank);
        self.dims_where(keep, kept)
            .fold(0, |number, (dim, at)| number * dim.size + places[at])
    }

    fn dims_where(&self, keep: &[bool], kept: bool) -> impl Iterator<Item = (Dimension, usize)> {
        let which = move |(_, wanted): &(_, &bool)| **wanted == kept;
        let dims = self.dims.iter().copied().zip(0..).zip(keep);
        dims.filter(which).map(|(dim, _)| dim)
    }

    /// The rank `by` places further along a dimension; rank and dimension must exist.
    pub(super) fn moved(&self, rank: u32, dim: usize, by: i128) -> Option<u32> {
        let stride: u32 = self.dims[dim + 1..].iter().map(|dim| dim.size).product();
        let place = rank / stride % self.dims[dim].size;
        let there = self.dims[dim].place(i128::from(place) + by)?;
        Some(rank - place * stride + there * stride)
    }

    fn places(&self, mut rank: u32) -> Vec<u32> {
        let mut places = vec![0; self.dims.len()];
        for (place, dim) in places.iter_mut().zip(&self.dims).rev() {
            *place = rank % dim.size;
            rank /= dim.size;
        }
        places
    }

    fn check_rank(&self, rank: u32) -> Result<()> {
        if rank < self.size {
            return Ok(());
        }
        let what = format!("rank {rank} is outside of a grid of {} rank(s)", self.size);
        let remedy = format!("use ranks 0 to {}", self.size - 1);
        Err(Error::new(ErrorKind::InvalidRank, what).remedy(remedy))
    }
}

#[cold]
fn bad(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
        .remedy("give every dimension of the grid a place, in its order")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grids() -> impl Strategy<Value = Cartesian> {
        let dim =
            (1..5_u32, any::<bool>()).prop_map(|(size, periodic)| Dimension { size, periodic });
        prop::collection::vec(dim, 0..5).prop_map(|dims| Cartesian::new(&dims).unwrap())
    }

    proptest! {
        #[test]
        fn coordinates_and_ranks_are_two_names_of_one_place(grid in grids()) {
            let mut last = None;
            for rank in 0..grid.size() {
                let coords = grid.coords(rank).unwrap();
                let back: Vec<i64> = coords.iter().map(|&at| i64::from(at)).collect();
                prop_assert_eq!(grid.rank(&back).unwrap(), rank);
                // In row-major order.
                prop_assert!(last < Some(coords.clone()));
                last = Some(coords);
            }
            prop_assert_eq!(grid.coords(grid.size()).unwrap_err().kind(), ErrorKind::InvalidRank);
        }

        #[test]
        fn a_shift_is_what_the_coordinates_say(
            grid in grids(),
            by in prop_oneof![-9..=9_i64, Just(i64::MIN), Just(i64::MAX)],
        ) {
            for rank in 0..grid.size() {
                for dim in 0..grid.dims().len() {
                    let at = |sign: i128| {
                        let Dimension { size, periodic } = grid.dims()[dim];
                        let mut coords = grid.coords(rank).unwrap();
                        let mut place = i128::from(coords[dim]) + sign * i128::from(by);
                        if periodic {
                            place = place.rem_euclid(i128::from(size));
                        }
                        coords[dim] = u32::try_from(place).ok().filter(|place| *place < size)?;
                        let coords: Vec<i64> = coords.into_iter().map(i64::from).collect();
                        grid.rank(&coords).ok()
                    };
                    let shift = grid.shift(rank, dim, by).unwrap();
                    prop_assert_eq!(shift.destination, at(1));
                    prop_assert_eq!(shift.source, at(-1));
                }
            }
        }

        #[test]
        fn dimensions_that_are_kept_and_the_others_number_every_place_once(
            grid in grids(),
            keep in prop::collection::vec(any::<bool>(), 5),
        ) {
            let keep = &keep[..grid.dims().len()];
            let part = grid.kept(keep);
            let mut seen: Vec<_> = (0..grid.size())
                .map(|rank| (grid.number_in(rank, keep, false), grid.number_in(rank, keep, true)))
                .collect();
            prop_assert!(seen.iter().all(|(_, place)| *place < part.size()));
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), grid.size() as usize);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let text = |dims: &[Dimension]| Cartesian::new(dims).unwrap_err().to_string();
        assert!(
            text(&[Dimension::open(3), Dimension::open(0)]).contains("dimension 1 of the grid")
        );
        assert!(text(&[Dimension::open(70_000); 2]).contains("more than 4294967295 ranks"));
        let grid = Cartesian::new(&[Dimension::open(2), Dimension::periodic(2)]).unwrap();
        let text = |coords: &[i64]| grid.rank(coords).unwrap_err().to_string();
        assert!(text(&[1]).contains("1 coordinates for a grid of 2 dimensions"));
        assert!(text(&[2, 0]).contains("coordinate 2 is outside of dimension 0"));
        assert_eq!(grid.rank(&[1, i64::MIN]).unwrap(), 2);
        assert_eq!(
            grid.shift(0, 2, 1).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        assert_eq!(
            grid.shift(4, 0, 1).unwrap_err().kind(),
            ErrorKind::InvalidRank
        );
    }
}
