//! Where blocks are: how displacements become addresses, and the kinds of displacements.

/// How a displacement becomes an address.
pub(crate) trait Place: Copy {
    fn at(self, disp: isize) -> *mut u8;
}

/// Displacements are relative to the address of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Relative(pub(super) *mut u8);

impl Place for Relative {
    #[inline(always)]
    fn at(self, disp: isize) -> *mut u8 {
        self.0.wrapping_offset(disp)
    }
}

/// Displacements are absolute addresses. Each is turned into a pointer by itself, because each may
/// lie in a different allocation, with its own provenance that its owner has exposed.
#[derive(Clone, Copy)]
pub(super) struct Absolute;

impl Place for Absolute {
    #[inline(always)]
    fn at(self, disp: isize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(disp as usize)
    }
}

/// Equal blocks in memory.
pub(crate) trait Blocks: Copy {
    /// Bytes in each block.
    fn bytes(self) -> usize;

    /// The displacement of the only block, if there is only one.
    fn only(self) -> Option<isize>;

    /// Calls `f` with each block's displacement in memory and its offset in the stream, where
    /// blocks are `apart` bytes apart.
    fn each(self, apart: usize, f: impl FnMut(isize, usize));
}

/// Blocks at equal distances.
#[derive(Clone, Copy)]
pub(crate) struct Strided {
    /// Displacement of the first block.
    pub(super) disp: isize,
    /// Bytes from one block to the next.
    pub(super) stride: isize,
    pub(super) count: usize,
    /// Bytes in each block.
    pub(super) bytes: usize,
}

impl Blocks for Strided {
    #[inline(always)]
    fn bytes(self) -> usize {
        self.bytes
    }

    #[inline(always)]
    fn only(self) -> Option<isize> {
        (self.count == 1).then_some(self.disp)
    }

    /// Unrolled by four: otherwise the two additions that lead from one block to the next take
    /// longer than the copy.
    #[inline(always)]
    fn each(self, apart: usize, mut f: impl FnMut(isize, usize)) {
        let (stride, mut disp, mut offset) = (self.stride, self.disp, 0usize);
        let (stride2, apart2) = (stride.wrapping_mul(2), apart.wrapping_mul(2));
        for _ in 0..self.count / 4 {
            let (disp2, offset2) = (disp.wrapping_add(stride2), offset.wrapping_add(apart2));
            f(disp, offset);
            f(disp.wrapping_add(stride), offset.wrapping_add(apart));
            f(disp2, offset2);
            f(disp2.wrapping_add(stride), offset2.wrapping_add(apart));
            disp = disp2.wrapping_add(stride2);
            offset = offset2.wrapping_add(apart2);
        }
        for _ in 0..self.count % 4 {
            f(disp, offset);
            disp = disp.wrapping_add(stride);
            offset = offset.wrapping_add(apart);
        }
    }
}

/// Blocks at displacements of their own.
#[derive(Clone, Copy)]
pub(crate) struct Listed<'a> {
    /// Added to each displacement.
    pub(super) base: isize,
    pub(super) list: &'a [isize],
    /// Bytes in each block.
    pub(super) bytes: usize,
}

impl Blocks for Listed<'_> {
    #[inline(always)]
    fn bytes(self) -> usize {
        self.bytes
    }

    #[inline(always)]
    fn only(self) -> Option<isize> {
        let [disp] = self.list else { return None };
        Some(self.base.wrapping_add(*disp))
    }

    #[inline(always)]
    fn each(self, apart: usize, mut f: impl FnMut(isize, usize)) {
        let mut offset = 0usize;
        for disp in self.list {
            f(self.base.wrapping_add(*disp), offset);
            offset = offset.wrapping_add(apart);
        }
    }
}
