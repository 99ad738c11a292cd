//! The layout handle and its queries.

mod array;
mod bounds;
mod build;
mod contents;
mod query;

use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

pub use array::{DarrayDim, Distribution, Order};
pub(crate) use contents::Part;
pub use contents::{Combiner, Contents, Envelope};

use crate::program::Program;
use crate::signature::Tally;
use crate::{Datatype, LayoutError, Primitive};
use bounds::Bounds;

/// Where the data of an item lies in memory, and which primitives it is made of: MPI's datatype
/// object (MPI-4, chapter 5).
///
/// A layout is a cheap counted handle. Cloning counts up, dropping counts down, and dropping the
/// last handle frees the layout. An operation under way holds a clone, so a program may drop its
/// own handle before the operation completes, as MPI allows.
///
/// Layouts are immutable. They need not be committed: the flat [`Program`] is compiled when it is
/// first needed, once for all handles; [`commit`](Self::commit) compiles it early.
///
/// ```
/// use portolan_datatype::Layout;
/// // A column of a matrix of 5 rows and 7 columns, stored row by row.
/// let column = Layout::vector(5, 1, 7, &Layout::of::<f64>())?;
/// assert_eq!(column.size(), 5 * 8);
/// assert_eq!(column.extent(), (4 * 7 + 1) * 8);
/// # Ok::<(), portolan_datatype::LayoutError>(())
/// ```
#[derive(Clone)]
pub struct Layout(Arc<Inner>);

struct Inner {
    contents: Contents,
    /// The layout to which a subarray or darray has been reduced.
    lowered: Option<Layout>,
    bounds: Bounds,
    /// Derived from the bounds, and stored because every message needs it.
    extent: isize,
    /// The sequence of primitives of one item.
    tally: Tally,
    depth: usize,
    program: OnceLock<Program>,
    /// The same program with its runs cut by the width of numbers, for the other byte order.
    swap_program: OnceLock<Program>,
    /// The sequence of primitives before each part, for layouts of many parts.
    marks: OnceLock<Box<[Tally]>>,
}

/// How deeply layouts may be nested. Programs nest two or three deep; the limit keeps recursion
/// over the tree within any thread's stack.
const MAX_DEPTH: usize = 512;

/// The primitives' layouts, built once for the process. A cache of immutable values: no program
/// can tell whether it is shared, except by [`Layout::handles`].
static PRIMITIVES: LazyLock<[Layout; Primitive::ALL.len()]> = LazyLock::new(|| {
    Primitive::ALL.map(|primitive| {
        let bounds = Bounds::of(primitive);
        Layout(Arc::new(Inner {
            contents: Contents::Named(primitive),
            lowered: None,
            bounds,
            extent: bounds.extent(),
            tally: Tally::of(primitive),
            depth: 0,
            program: OnceLock::new(),
            swap_program: OnceLock::new(),
            marks: OnceLock::new(),
        }))
    })
});

impl Layout {
    /// The layout of one primitive.
    pub fn primitive(primitive: Primitive) -> Layout {
        Self::primitive_for_ever(primitive).clone()
    }

    /// The layout of one primitive, by reference to a copy that is kept for ever.
    pub fn primitive_for_ever(primitive: Primitive) -> &'static Layout {
        &PRIMITIVES[usize::from(primitive.code()) - 1]
    }

    /// One uninterpreted byte (`MPI_BYTE`).
    #[doc(alias = "MPI_BYTE")]
    pub fn byte() -> Layout {
        Self::primitive(Primitive::Byte)
    }

    /// One byte of packed data (`MPI_PACKED`).
    #[doc(alias = "MPI_PACKED")]
    pub fn packed() -> Layout {
        Self::primitive(Primitive::Packed)
    }

    /// The layout of a Rust type.
    pub fn of<T: Datatype>() -> Layout {
        T::layout()
    }

    /// Computes what follows from `contents`, or returns why they are not legal.
    fn from_contents(
        constructor: &'static str,
        contents: Contents,
        lowered: Option<Layout>,
    ) -> Result<Layout, LayoutError> {
        let overflow = |what| LayoutError::Overflow { constructor, what };
        let mut bounds = Bounds::EMPTY;
        let mut tally = Tally::EMPTY;
        let mut depth = lowered.as_ref().map_or(0, |l| l.0.depth);
        for index in 0..contents.part_count() {
            let part = contents
                .part(index, lowered.as_ref())
                .ok_or(overflow("a displacement"))?;
            let repeat = part.repeat().ok_or(overflow("the number of elements"))?;
            let old = &part.old.0;
            let size = old.tally.bytes.checked_mul(repeat);
            size.and_then(|size| size.checked_add(tally.bytes))
                .ok_or(overflow("the size"))?;
            tally = tally.then(old.tally.repeat(repeat));
            bounds.add(&part, &old.bounds).ok_or(overflow("a bound"))?;
            depth = depth.max(old.depth + 1);
        }
        if let Contents::Resized { lb, extent, .. } = contents {
            bounds.mark(lb, extent).ok_or(overflow("the upper bound"))?;
        }
        bounds.check().ok_or(overflow("the extent"))?;
        if depth > MAX_DEPTH {
            return Err(LayoutError::TooDeep {
                constructor,
                depth,
                limit: MAX_DEPTH,
            });
        }
        Ok(Layout(Arc::new(Inner {
            contents,
            lowered,
            bounds,
            extent: bounds.extent(),
            tally,
            depth,
            program: OnceLock::new(),
            swap_program: OnceLock::new(),
            marks: OnceLock::new(),
        })))
    }

    /// How the layout was made, and from what (`MPI_Type_get_contents`).
    #[doc(alias = "MPI_Type_get_contents")]
    pub fn contents(&self) -> &Contents {
        &self.0.contents
    }

    /// The constructor that made the layout, and how many arguments of each kind it had
    /// (`MPI_Type_get_envelope`).
    #[doc(alias = "MPI_Type_get_envelope")]
    pub fn envelope(&self) -> Envelope {
        self.0.contents.envelope()
    }

    /// The flat form of one item, compiled at the first call (`MPI_Type_commit`).
    #[doc(alias = "MPI_Type_commit")]
    pub fn commit(&self) -> &Program {
        self.0.program.get_or_init(|| Program::compile(self, false))
    }

    /// The flat form whose runs hold numbers of one width each.
    pub(crate) fn swap_program(&self) -> &Program {
        self.0
            .swap_program
            .get_or_init(|| Program::compile(self, true))
    }

    /// The number of handles to this layout: those of the program, of operations under way, and of
    /// layouts built from it. For tests and for `info`; another thread may change it at any time.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Whether the two are handles of one layout. Separate layouts may still be equal.
    #[inline]
    pub fn same_as(&self, other: &Layout) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The parts that an item is made of; none for a primitive.
    pub(crate) fn parts(&self) -> impl ExactSizeIterator<Item = Part<'_>> {
        (0..self.0.contents.part_count()).map(|index| {
            self.0
                .contents
                .part(index, self.0.lowered.as_ref())
                .expect("displacements were checked when the layout was built")
        })
    }

    /// The sequence of primitives of one item.
    pub(crate) fn tally(&self) -> &Tally {
        &self.0.tally
    }

    /// Displacements of the two primitives of an item that has exactly two.
    pub(crate) fn places_of_pair(&self) -> Option<(isize, isize)> {
        if self.0.tally.elements != 2 {
            return None;
        }
        let mut places = Vec::with_capacity(2);
        self.places(0, &mut places);
        Some((*places.first()?, *places.get(1)?))
    }

    /// Appends the displacements of all primitives. Meant for layouts of few primitives.
    fn places(&self, at: isize, places: &mut Vec<isize>) {
        if let Contents::Named(_) = self.0.contents {
            places.push(at);
            return;
        }
        for part in self.parts().filter(|part| part.old.size() > 0) {
            for outer in 0..part.outer.0 as isize {
                for inner in 0..part.inner.0 as isize {
                    let at = at + part.disp + outer * part.outer.1 + inner * part.inner.1;
                    part.old.places(at, places);
                }
            }
        }
    }

    /// A value that is equal for two handles of one layout, for memo tables.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

/// Two layouts are equal if they were made by the same constructors from equal arguments. (Equal
/// layouts have equal data; layouts with equal data may be unequal.)
impl PartialEq for Layout {
    fn eq(&self, other: &Layout) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.tally.bytes == other.0.tally.bytes && self.0.contents == other.0.contents)
    }
}

impl Eq for Layout {}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.contents {
            Contents::Named(primitive) => write!(f, "Layout({primitive})"),
            contents => f
                .debug_struct("Layout")
                .field("size", &self.size())
                .field("lb", &self.lb())
                .field("extent", &self.extent())
                .field("contents", contents)
                .finish(),
        }
    }
}
