//! The arguments that a layout was made with, and the one form to which all constructors are
//! reduced.

use super::Layout;
use super::array::{DarrayDim, Order};
use crate::Primitive;

/// How a layout was made: the constructor and its arguments (`MPI_Type_get_contents`).
///
/// Layouts among the arguments are handles of their own, counted like any other.
#[doc(alias = "MPI_Type_get_contents")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are the constructors' arguments, documented there"
)]
pub enum Contents {
    /// A primitive.
    Named(Primitive),
    /// [`Layout::dup`].
    Dup { old: Layout },
    /// [`Layout::contiguous`].
    Contiguous { count: usize, old: Layout },
    /// [`Layout::vector`].
    Vector {
        count: usize,
        blocklength: usize,
        stride: isize,
        old: Layout,
    },
    /// [`Layout::hvector`].
    Hvector {
        count: usize,
        blocklength: usize,
        stride: isize,
        old: Layout,
    },
    /// [`Layout::indexed`].
    Indexed {
        blocklengths: Box<[usize]>,
        displacements: Box<[isize]>,
        old: Layout,
    },
    /// [`Layout::hindexed`].
    Hindexed {
        blocklengths: Box<[usize]>,
        displacements: Box<[isize]>,
        old: Layout,
    },
    /// [`Layout::indexed_block`].
    IndexedBlock {
        blocklength: usize,
        displacements: Box<[isize]>,
        old: Layout,
    },
    /// [`Layout::hindexed_block`].
    HindexedBlock {
        blocklength: usize,
        displacements: Box<[isize]>,
        old: Layout,
    },
    /// [`Layout::structure`].
    Struct {
        blocklengths: Box<[usize]>,
        displacements: Box<[isize]>,
        olds: Box<[Layout]>,
    },
    /// [`Layout::subarray`].
    Subarray {
        sizes: Box<[usize]>,
        subsizes: Box<[usize]>,
        starts: Box<[usize]>,
        order: Order,
        old: Layout,
    },
    /// [`Layout::darray`].
    Darray {
        size: usize,
        rank: usize,
        dims: Box<[DarrayDim]>,
        order: Order,
        old: Layout,
    },
    /// [`Layout::resized`].
    Resized {
        lb: isize,
        extent: isize,
        old: Layout,
    },
}

/// Which constructor made a layout (MPI's combiners).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants are the constructors' names")]
pub enum Combiner {
    Named,
    Dup,
    Contiguous,
    Vector,
    Hvector,
    Indexed,
    Hindexed,
    IndexedBlock,
    HindexedBlock,
    Struct,
    Subarray,
    Darray,
    Resized,
}

/// The result of `MPI_Type_get_envelope`: the combiner, and how many arguments of each kind
/// `MPI_Type_get_contents` returns for it (MPI-4, table 5.1).
#[doc(alias("MPI_Type_get_envelope", "MPI_Type_get_contents"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The constructor.
    pub combiner: Combiner,
    /// Counts, block lengths, and displacements in extents.
    pub integers: usize,
    /// Displacements and strides in bytes.
    pub addresses: usize,
    /// Layouts.
    pub datatypes: usize,
}

impl Contents {
    pub(super) fn envelope(&self) -> Envelope {
        use Contents as C;
        let (combiner, integers, addresses, datatypes) = match self {
            C::Named(_) => (Combiner::Named, 0, 0, 0),
            C::Dup { .. } => (Combiner::Dup, 0, 0, 1),
            C::Contiguous { .. } => (Combiner::Contiguous, 1, 0, 1),
            C::Vector { .. } => (Combiner::Vector, 3, 0, 1),
            C::Hvector { .. } => (Combiner::Hvector, 2, 1, 1),
            C::Indexed {
                displacements: d, ..
            } => (Combiner::Indexed, 2 * d.len() + 1, 0, 1),
            C::Hindexed {
                displacements: d, ..
            } => (Combiner::Hindexed, d.len() + 1, d.len(), 1),
            C::IndexedBlock {
                displacements: d, ..
            } => (Combiner::IndexedBlock, d.len() + 2, 0, 1),
            C::HindexedBlock {
                displacements: d, ..
            } => (Combiner::HindexedBlock, 2, d.len(), 1),
            C::Struct { olds, .. } => (Combiner::Struct, olds.len() + 1, olds.len(), olds.len()),
            C::Subarray { sizes, .. } => (Combiner::Subarray, 3 * sizes.len() + 2, 0, 1),
            C::Darray { dims, .. } => (Combiner::Darray, 4 * dims.len() + 4, 0, 1),
            C::Resized { .. } => (Combiner::Resized, 0, 2, 1),
        };
        Envelope {
            combiner,
            integers,
            addresses,
            datatypes,
        }
    }

    /// The number of parts of an item.
    pub(super) fn part_count(&self) -> usize {
        match self {
            Contents::Named(_) => 0,
            Contents::Indexed { displacements, .. }
            | Contents::Hindexed { displacements, .. }
            | Contents::IndexedBlock { displacements, .. }
            | Contents::HindexedBlock { displacements, .. }
            | Contents::Struct { displacements, .. } => displacements.len(),
            _ => 1,
        }
    }

    /// The part with that index; `None` if a displacement overflows. `lowered` is the layout to
    /// which a subarray or a darray has been reduced.
    pub(super) fn part<'a>(
        &'a self,
        index: usize,
        lowered: Option<&'a Layout>,
    ) -> Option<Part<'a>> {
        use Contents as C;
        let part = match self {
            C::Named(_) => return None,
            C::Dup { old } | C::Resized { old, .. } => Part::block(0, 1, old),
            C::Subarray { old, .. } | C::Darray { old, .. } => {
                Part::block(0, 1, lowered.unwrap_or(old))
            }
            C::Contiguous { count, old } => Part::block(0, *count, old),
            C::Vector {
                count,
                blocklength,
                stride,
                old,
            } => Part {
                outer: (*count, scale(*stride, old)?),
                ..Part::block(0, *blocklength, old)
            },
            C::Hvector {
                count,
                blocklength,
                stride,
                old,
            } => Part {
                outer: (*count, *stride),
                ..Part::block(0, *blocklength, old)
            },
            C::Indexed {
                blocklengths,
                displacements,
                old,
            } => Part::block(scale(displacements[index], old)?, blocklengths[index], old),
            C::Hindexed {
                blocklengths,
                displacements,
                old,
            } => Part::block(displacements[index], blocklengths[index], old),
            C::IndexedBlock {
                blocklength,
                displacements,
                old,
            } => Part::block(scale(displacements[index], old)?, *blocklength, old),
            C::HindexedBlock {
                blocklength,
                displacements,
                old,
            } => Part::block(displacements[index], *blocklength, old),
            C::Struct {
                blocklengths,
                displacements,
                olds,
            } => Part::block(displacements[index], blocklengths[index], &olds[index]),
        };
        Some(part)
    }
}

/// A displacement in extents of `old`, in bytes.
fn scale(displacement: isize, old: &Layout) -> Option<isize> {
    displacement.checked_mul(old.extent())
}

/// The form to which every constructor is reduced: copies of an older layout at regular places. The
/// copy `(i, j)` lies at `disp + i · outer.1 + j · inner.1`; in the packed stream `j` varies
/// faster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) disp: isize,
    /// Count and stride in bytes.
    pub(crate) outer: (usize, isize),
    /// Count and stride in bytes.
    pub(crate) inner: (usize, isize),
    pub(crate) old: &'a Layout,
}

impl<'a> Part<'a> {
    fn block(disp: isize, count: usize, old: &'a Layout) -> Part<'a> {
        Part {
            disp,
            outer: (1, 0),
            inner: (count, old.extent()),
            old,
        }
    }

    /// How many copies there are; `None` on overflow.
    pub(crate) fn repeat(&self) -> Option<usize> {
        self.outer.0.checked_mul(self.inner.0)
    }

    /// The lowest and the highest place of a copy, if there is any copy; `None` on overflow.
    pub(crate) fn shifts(&self) -> Option<(isize, isize)> {
        let (mut low, mut high) = (self.disp, self.disp);
        for (count, stride) in [self.outer, self.inner] {
            // However many copies there are, those without a stride lie in one place.
            let last = match count.checked_sub(1)? {
                _ if stride == 0 => 0,
                last => isize::try_from(last).ok()?.checked_mul(stride)?,
            };
            low = low.checked_add(last.min(0))?;
            high = high.checked_add(last.max(0))?;
        }
        Some((low, high))
    }
}
