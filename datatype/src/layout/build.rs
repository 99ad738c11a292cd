//! Constructors (MPI-4, 5.1.2 to 5.1.4, 5.1.7 and 5.1.10).
//!
//! Counts and block lengths are in items of the older layout. Displacements and strides are in
//! extents of the older layout in `vector`, `indexed` and `indexed_block`; they are in bytes in the
//! forms with an *h*, in `structure` and in `resized`. They may be negative, and they may be
//! absolute addresses, used with a null buffer (`MPI_BOTTOM`).

use super::Layout;
use super::contents::Contents;
use crate::LayoutError;

impl Layout {
    /// `count` items side by side, each one extent after the one before.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`] if the size or a bound does not fit. The same goes for all
    /// constructors.
    #[doc(alias = "MPI_Type_contiguous")]
    pub fn contiguous(count: usize, old: &Layout) -> Result<Layout, LayoutError> {
        Self::from_contents(
            "contiguous",
            Contents::Contiguous {
                count,
                old: old.clone(),
            },
            None,
        )
    }

    /// `count` blocks of `blocklength` items, beginning `stride` extents apart.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    #[doc(alias = "MPI_Type_vector")]
    pub fn vector(
        count: usize,
        blocklength: usize,
        stride: isize,
        old: &Layout,
    ) -> Result<Layout, LayoutError> {
        let contents = Contents::Vector {
            count,
            blocklength,
            stride,
            old: old.clone(),
        };
        Self::from_contents("vector", contents, None)
    }

    /// `count` blocks of `blocklength` items, beginning `stride` bytes apart.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    #[doc(alias = "MPI_Type_create_hvector")]
    pub fn hvector(
        count: usize,
        blocklength: usize,
        stride: isize,
        old: &Layout,
    ) -> Result<Layout, LayoutError> {
        let contents = Contents::Hvector {
            count,
            blocklength,
            stride,
            old: old.clone(),
        };
        Self::from_contents("hvector", contents, None)
    }

    /// Blocks of given lengths at given displacements in extents.
    ///
    /// # Errors
    /// [`LayoutError::LengthMismatch`] unless there are as many lengths as displacements;
    /// [`LayoutError::Overflow`].
    #[doc(alias = "MPI_Type_indexed")]
    pub fn indexed(
        blocklengths: &[usize],
        displacements: &[isize],
        old: &Layout,
    ) -> Result<Layout, LayoutError> {
        same_length(
            "indexed",
            "displacements",
            blocklengths.len(),
            displacements.len(),
        )?;
        let contents = Contents::Indexed {
            blocklengths: blocklengths.into(),
            displacements: displacements.into(),
            old: old.clone(),
        };
        Self::from_contents("indexed", contents, None)
    }

    /// Blocks of given lengths at given displacements in bytes.
    ///
    /// # Errors
    /// As [`indexed`](Self::indexed).
    #[doc(alias = "MPI_Type_create_hindexed")]
    pub fn hindexed(
        blocklengths: &[usize],
        displacements: &[isize],
        old: &Layout,
    ) -> Result<Layout, LayoutError> {
        same_length(
            "hindexed",
            "displacements",
            blocklengths.len(),
            displacements.len(),
        )?;
        let contents = Contents::Hindexed {
            blocklengths: blocklengths.into(),
            displacements: displacements.into(),
            old: old.clone(),
        };
        Self::from_contents("hindexed", contents, None)
    }

    /// Blocks of one length at given displacements in extents.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    #[doc(alias = "MPI_Type_create_indexed_block")]
    pub fn indexed_block(
        blocklength: usize,
        displacements: &[isize],
        old: &Layout,
    ) -> Result<Layout, LayoutError> {
        let displacements = displacements.into();
        let contents = Contents::IndexedBlock {
            blocklength,
            displacements,
            old: old.clone(),
        };
        Self::from_contents("indexed_block", contents, None)
    }

    /// Blocks of one length at given displacements in bytes.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    #[doc(alias = "MPI_Type_create_hindexed_block")]
    pub fn hindexed_block(
        blocklength: usize,
        displacements: &[isize],
        old: &Layout,
    ) -> Result<Layout, LayoutError> {
        let displacements = displacements.into();
        let contents = Contents::HindexedBlock {
            blocklength,
            displacements,
            old: old.clone(),
        };
        Self::from_contents("hindexed_block", contents, None)
    }

    /// Blocks of given lengths, at given displacements in bytes, of given layouts
    /// (`MPI_Type_create_struct`).
    ///
    /// The extent is rounded up to the strictest alignment of the primitives, unless one of the
    /// layouts was [`resized`](Self::resized).
    ///
    /// # Errors
    /// [`LayoutError::LengthMismatch`] unless the three arrays are equally long;
    /// [`LayoutError::Overflow`].
    ///
    /// ```
    /// use portolan_datatype::Layout;
    /// let (byte, double) = (Layout::of::<u8>(), Layout::of::<f64>());
    /// let s = Layout::structure(&[1, 1], &[8, 0], &[byte, double])?;
    /// assert_eq!((s.size(), s.extent()), (9, 16));
    /// # Ok::<(), portolan_datatype::LayoutError>(())
    /// ```
    #[doc(alias = "MPI_Type_create_struct")]
    pub fn structure(
        blocklengths: &[usize],
        displacements: &[isize],
        olds: &[Layout],
    ) -> Result<Layout, LayoutError> {
        same_length(
            "structure",
            "displacements",
            blocklengths.len(),
            displacements.len(),
        )?;
        same_length("structure", "layouts", blocklengths.len(), olds.len())?;
        let contents = Contents::Struct {
            blocklengths: blocklengths.into(),
            displacements: displacements.into(),
            olds: olds.into(),
        };
        Self::from_contents("structure", contents, None)
    }

    /// The same data with another lower bound and extent, in bytes; the extent may be negative.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    #[doc(alias = "MPI_Type_create_resized")]
    pub fn resized(old: &Layout, lb: isize, extent: isize) -> Result<Layout, LayoutError> {
        Self::from_contents(
            "resized",
            Contents::Resized {
                lb,
                extent,
                old: old.clone(),
            },
            None,
        )
    }

    /// A new layout with the same data (`MPI_Type_dup`). [`Clone`], in contrast, returns another
    /// handle to the same layout.
    ///
    /// # Errors
    /// [`LayoutError::TooDeep`] after some hundred duplicates of duplicates.
    #[doc(alias = "MPI_Type_dup")]
    pub fn dup(&self) -> Result<Layout, LayoutError> {
        Self::from_contents("dup", Contents::Dup { old: self.clone() }, None)
    }
}

fn same_length(
    constructor: &'static str,
    what: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), LayoutError> {
    if expected != found {
        return Err(LayoutError::LengthMismatch {
            constructor,
            what,
            expected,
            found,
        });
    }
    Ok(())
}
