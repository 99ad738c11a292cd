//! Buffers of collective operations: blocks in every form, and their contents.

use portolan_coll::{BlocksArg, LayoutsArg, Many};
use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_datatype::Layout;

/// Bytes of a unit: blocks are some units long.
pub(crate) const UNIT: usize = 8;

/// The contents of messages.
pub(crate) struct Bytes;

impl Bytes {
    /// `len` bytes that identify their sender, their receiver and their place.
    pub(crate) fn content(from: u32, to: u32, len: usize) -> Vec<u8> {
        let byte = |at: usize| {
            let (from, to) = (from as usize * 131, to as usize * 37);
            (from + to + at * 7 + (at >> 8) * 13) as u8
        };
        (0..len).map(byte).collect()
    }
}

/// The form in which blocks are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Equal,
    Blocks,
    Layouts,
}

/// Memory with blocks in it.
#[derive(Debug)]
pub(crate) struct Buffer {
    form: Form,
    counts: Vec<usize>,
    /// In the unit that the form uses.
    displacements: Vec<isize>,
    layouts: Vec<Layout>,
    /// The layout of all blocks, except in the last form, where each block has its own.
    layout: Layout,
    memory: Vec<u8>,
}

impl Buffer {
    /// Makes blocks of these numbers of units: without gaps, or in reverse order with gaps between
    /// them and, if `strided`, inside them.
    pub(crate) fn new(form: Form, units: &[usize], strided: bool) -> Self {
        let int = Layout::of::<u32>();
        let column = Layout::vector(2, 1, 2, &int).expect("a legal vector");
        let layout = |rank: usize| {
            if strided != (form == Form::Layouts && rank % 2 == 1) {
                column.clone()
            } else {
                int.clone()
            }
        };
        let layouts: Vec<_> = (0..units.len()).map(layout).collect();
        let count = |(&units, layout): (&usize, &Layout)| units * UNIT / layout.size();
        let counts: Vec<usize> = units.iter().zip(&layouts).map(count).collect();
        let mut displacements = vec![0; units.len()];
        let mut next = 0;
        let mut place = |rank: usize, gap: usize| {
            displacements[rank] = next;
            let unit = match form {
                Form::Layouts => layouts[rank].extent(),
                _ => 1,
            };
            next += (counts[rank] + gap) as isize * unit;
        };
        match form {
            Form::Equal => (0..units.len()).for_each(|rank| place(rank, 0)),
            _ => (0..units.len()).rev().for_each(|rank| place(rank, 1)),
        }
        let unit = match form {
            Form::Layouts => 1,
            _ => layouts.first().map_or(1, Layout::extent),
        };
        Self {
            form,
            counts,
            displacements,
            layouts,
            layout: layout(0),
            memory: vec![0xee; (next * unit) as usize],
        }
    }

    /// One block.
    pub(crate) fn one(units: usize, strided: bool) -> Self {
        Self::new(Form::Equal, &[units], strided)
    }

    /// The blocks as an argument.
    pub(crate) fn many(&mut self) -> Many<'_> {
        let ptr = self.memory.as_mut_ptr();
        let first = TypedBuf {
            ptr,
            count: self.counts.first().copied().unwrap_or(0),
            layout: &self.layout,
            memory: MemoryKind::Host,
        };
        let (counts, displacements) = (&*self.counts, &*self.displacements);
        match self.form {
            Form::Equal => Many::Equal(first),
            Form::Blocks => Many::Blocks(BlocksArg {
                ptr,
                counts,
                displacements,
                layout: &self.layout,
            }),
            Form::Layouts => Many::Layouts(LayoutsArg {
                ptr,
                counts,
                displacements,
                layouts: &self.layouts,
            }),
        }
    }

    /// The only block, or the first of equal ones, as an argument.
    pub(crate) fn typed(&mut self) -> TypedBuf<'_> {
        TypedBuf {
            ptr: self.memory.as_mut_ptr(),
            count: self.counts[0],
            layout: &self.layout,
            memory: MemoryKind::Host,
        }
    }

    /// Writes data into a block.
    pub(crate) fn put(&mut self, block: usize, data: &[u8]) {
        let (layout, count) = (&self.layouts[block], self.counts[block]);
        assert_eq!(data.len(), layout.size() * count, "block {block}");
        let unit = match self.form {
            Form::Layouts => 1,
            _ => layout.extent(),
        };
        let mut at = (self.displacements[block] * unit) as usize;
        // Items are one number, or two with a gap of one between them.
        for item in data.chunks(layout.size()) {
            for (run, bytes) in item.chunks(4).enumerate() {
                let from = at + run * 8;
                self.memory[from..from + 4].copy_from_slice(bytes);
            }
            at += layout.extent() as usize;
        }
    }

    /// The whole memory, including gaps.
    pub(crate) fn memory(&self) -> &[u8] {
        &self.memory
    }
}
