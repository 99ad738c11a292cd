//! Parts of arrays: `subarray` and `darray` (MPI-4, 5.1.3 and 5.1.4).

use super::Layout;
use super::contents::Contents;
use crate::LayoutError;

/// The order in which an array's elements lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// The last index varies fastest, as in Rust and C.
    #[default]
    C,
    /// The first index varies fastest.
    Fortran,
}

/// How one dimension of an array is dealt out to ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Not dealt out: one rank has all of it (`MPI_DISTRIBUTE_NONE`).
    #[doc(alias = "MPI_DISTRIBUTE_NONE")]
    None,
    /// One block per rank, of the smallest common size that suffices.
    Block,
    /// One block per rank, of the given size.
    BlockOf(usize),
    /// Element by element, to the ranks in turn.
    Cyclic,
    /// Block by block of the given size, to the ranks in turn.
    CyclicOf(usize),
}

/// One dimension of a distributed array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DarrayDim {
    /// Elements of the whole array in this dimension.
    pub size: usize,
    /// How they are dealt out.
    pub distribution: Distribution,
    /// Ranks in this dimension of the grid of ranks.
    pub ranks: usize,
}

impl Layout {
    /// A box cut out of an array: `subsizes` elements from `starts` of an array of `sizes`
    /// elements, dimension by dimension. Its extent is that of the whole array.
    ///
    /// # Errors
    /// [`LayoutError::LengthMismatch`] unless the arrays are equally long,
    /// [`LayoutError::OutsideArray`] if the box reaches beyond the array,
    /// [`LayoutError::Overflow`].
    ///
    /// ```
    /// use portolan_datatype::{Layout, Order};
    /// // The inner 2 × 3 elements of a 4 × 5 matrix.
    /// let inner = Layout::subarray(&[4, 5], &[2, 3], &[1, 1], Order::C, &Layout::of::<i32>())?;
    /// assert_eq!((inner.size(), inner.extent()), (24, 80));
    /// assert_eq!(inner.true_lb(), 6 * 4);
    /// # Ok::<(), portolan_datatype::LayoutError>(())
    /// ```
    #[doc(alias = "MPI_Type_create_subarray")]
    pub fn subarray(
        sizes: &[usize],
        subsizes: &[usize],
        starts: &[usize],
        order: Order,
        old: &Layout,
    ) -> Result<Layout, LayoutError> {
        for (what, found) in [("subsizes", subsizes.len()), ("starts", starts.len())] {
            if found != sizes.len() {
                let (constructor, expected) = ("subarray", sizes.len());
                return Err(LayoutError::LengthMismatch {
                    constructor,
                    what,
                    expected,
                    found,
                });
            }
        }
        for (dim, (&size, (&subsize, &start))) in
            sizes.iter().zip(subsizes.iter().zip(starts)).enumerate()
        {
            if start.checked_add(subsize).is_none_or(|end| end > size) {
                return Err(LayoutError::OutsideArray {
                    dim,
                    size,
                    subsize,
                    start,
                });
            }
        }
        let mut grid = Grid::new("subarray", old);
        for dim in fastest_first(sizes.len(), order) {
            grid.runs(starts[dim], subsizes[dim], 1, subsizes[dim])?;
            grid.grow(sizes[dim])?;
        }
        let contents = Contents::Subarray {
            sizes: sizes.into(),
            subsizes: subsizes.into(),
            starts: starts.into(),
            order,
            old: old.clone(),
        };
        Self::from_contents("subarray", contents, Some(grid.finish()?))
    }

    /// The part of rank `rank` of `size` in an array that is dealt out to a grid of ranks, as in
    /// High Performance Fortran. Ranks lie in the grid row by row, whatever the array's order.
    ///
    /// # Errors
    /// [`LayoutError::BadDistribution`] names the argument that is out of range;
    /// [`LayoutError::Overflow`].
    ///
    /// ```
    /// use portolan_datatype::{DarrayDim, Distribution, Layout, Order};
    /// // Rank 1 of 2 has every other pair of columns of a 4 × 8 matrix.
    /// let dims = [
    ///     DarrayDim { size: 4, distribution: Distribution::None, ranks: 1 },
    ///     DarrayDim { size: 8, distribution: Distribution::CyclicOf(2), ranks: 2 },
    /// ];
    /// let mine = Layout::darray(2, 1, &dims, Order::C, &Layout::of::<f32>())?;
    /// assert_eq!((mine.size(), mine.extent(), mine.true_lb()), (64, 128, 8));
    /// # Ok::<(), portolan_datatype::LayoutError>(())
    /// ```
    #[doc(alias = "MPI_Type_create_darray")]
    pub fn darray(
        size: usize,
        rank: usize,
        dims: &[DarrayDim],
        order: Order,
        old: &Layout,
    ) -> Result<Layout, LayoutError> {
        check_grid(size, rank, dims)?;
        let mut coordinates = vec![0; dims.len()];
        let mut rest = rank;
        for (coordinate, dim) in coordinates.iter_mut().zip(dims).rev() {
            *coordinate = rest % dim.ranks;
            rest /= dim.ranks;
        }
        let mut grid = Grid::new("darray", old);
        for dim in fastest_first(dims.len(), order) {
            let (block, stride) = dims[dim].block_and_stride()?;
            let start = coordinates[dim].saturating_mul(block);
            grid.deal(start, block, stride, dims[dim].size)?;
            grid.grow(dims[dim].size)?;
        }
        let contents = Contents::Darray {
            size,
            rank,
            dims: dims.into(),
            order,
            old: old.clone(),
        };
        Self::from_contents("darray", contents, Some(grid.finish()?))
    }
}

impl DarrayDim {
    /// Size of a block, and the distance from one of a rank's blocks to its next.
    fn block_and_stride(&self) -> Result<(usize, usize), LayoutError> {
        let block = match self.distribution {
            Distribution::None => self.size.max(1),
            Distribution::Block => self.size.div_ceil(self.ranks).max(1),
            Distribution::Cyclic => 1,
            Distribution::BlockOf(block) | Distribution::CyclicOf(block) => block,
        };
        if block == 0 {
            return Err(bad("a block size", 0, "blocks need at least one element"));
        }
        let stride = block.saturating_mul(self.ranks);
        let all_in_one_turn = !matches!(
            self.distribution,
            Distribution::Cyclic | Distribution::CyclicOf(_)
        );
        if all_in_one_turn && stride < self.size {
            let remedy = "blocks of that size on all ranks must cover the dimension";
            return Err(bad("a block size", block, remedy));
        }
        Ok((block, stride))
    }
}

fn bad(what: &'static str, value: usize, remedy: &'static str) -> LayoutError {
    LayoutError::BadDistribution {
        what,
        value,
        remedy,
    }
}

fn check_grid(size: usize, rank: usize, dims: &[DarrayDim]) -> Result<(), LayoutError> {
    let ranks = dims
        .iter()
        .try_fold(1usize, |product, dim| product.checked_mul(dim.ranks));
    if ranks != Some(size) {
        let remedy = "it must be the product of the grid's dimensions";
        return Err(bad("the number of ranks", size, remedy));
    }
    if rank >= size {
        return Err(bad(
            "the rank",
            rank,
            "it must be less than the number of ranks",
        ));
    }
    for dim in dims {
        if dim.distribution == Distribution::None && dim.ranks != 1 {
            let remedy = "a dimension that is not distributed needs exactly 1";
            return Err(bad("the number of ranks of a dimension", dim.ranks, remedy));
        }
    }
    Ok(())
}

/// The dimensions, from the one whose index varies fastest to the slowest.
fn fastest_first(count: usize, order: Order) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| match order {
        Order::C => count - 1 - i,
        Order::Fortran => i,
    })
}

/// A part of an array, while dimension after dimension is added to it.
struct Grid {
    constructor: &'static str,
    layout: Layout,
    /// Bytes from one index of the current dimension to the next.
    stride: isize,
}

impl Grid {
    fn new(constructor: &'static str, old: &Layout) -> Grid {
        Grid {
            constructor,
            layout: old.clone(),
            stride: old.extent(),
        }
    }

    fn bytes(&self, indices: usize) -> Result<isize, LayoutError> {
        if self.stride == 0 {
            return Ok(0);
        }
        let overflow = LayoutError::Overflow {
            constructor: self.constructor,
            what: "the array's size",
        };
        let indices = isize::try_from(indices).map_err(|_| overflow.clone())?;
        indices.checked_mul(self.stride).ok_or(overflow)
    }

    /// Adds `count` runs of `block` indices, `stride` indices apart, in the current dimension.
    fn runs(
        &mut self,
        start: usize,
        block: usize,
        count: usize,
        stride: usize,
    ) -> Result<(), LayoutError> {
        let run = Layout::hvector(block, 1, self.stride, &self.layout)?;
        let runs = Layout::hvector(count, 1, self.bytes(stride)?, &run)?;
        self.layout = Layout::hindexed_block(1, &[self.bytes(start)?], &runs)?;
        Ok(())
    }

    /// Adds blocks from `start`, `stride` apart, in the current dimension of `size` indices. The
    /// last block may be cut short.
    fn deal(
        &mut self,
        start: usize,
        block: usize,
        stride: usize,
        size: usize,
    ) -> Result<(), LayoutError> {
        let mine = size.saturating_sub(start);
        let (turns, rest) = (mine / stride, mine % stride);
        let whole = turns + usize::from(rest >= block);
        let short = if rest < block { rest } else { 0 };
        // The stride of a single block may reach far outside the array. So may the start of a block
        // that is not here at all.
        let stride_of_many = if whole > 1 { stride } else { 0 };
        let (start_of_whole, block) = if whole > 0 { (start, block) } else { (0, 0) };
        if short == 0 {
            return self.runs(start_of_whole, block, whole, stride_of_many);
        }
        let inner = self.layout.clone();
        let last = Layout::hvector(short, 1, self.stride, &inner)?;
        let last_start = self.bytes(start + turns * stride)?;
        self.runs(start_of_whole, block, whole, stride_of_many)?;
        let both = [self.layout.clone(), last];
        self.layout = Layout::structure(&[1, 1], &[0, last_start], &both)?;
        Ok(())
    }

    /// Moves on to the next slower dimension.
    fn grow(&mut self, size: usize) -> Result<(), LayoutError> {
        self.stride = self.bytes(size)?;
        Ok(())
    }

    /// Returns the part, with the whole array's bounds.
    fn finish(self) -> Result<Layout, LayoutError> {
        Layout::resized(&self.layout, 0, self.stride)
    }
}
