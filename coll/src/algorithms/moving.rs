//! Tests of algorithms that move data. Every form of a call is lowered as a program's would be, and
//! the schedules of all ranks run against each other. Afterwards every byte of every rank's receive
//! buffer is compared with its expected value, gaps included.

use std::ops::Range;

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_datatype::{Layout, MsgRep};

use super::Algorithm;
use crate::args::{BlocksArg, LayoutsArg, Many};
use crate::lower::{Lowered, Problem};
use crate::schedule::{Base, Builder};
use crate::simulate::{Random, Simulation};

/// Blocks have this many bytes or a multiple, which every layout here can describe.
pub(crate) const UNIT: usize = 24;

/// Number of [`layouts`].
pub(crate) const LAYOUTS: usize = 6;

/// Layouts for which some number of items is [`UNIT`] bytes: without gaps, with gaps, with a lower
/// bound below 0, plain bytes, with a negative extent, with a lower bound above 0.
pub(crate) fn layouts() -> [Layout; LAYOUTS] {
    let int = Layout::of::<u32>();
    let column = Layout::vector(3, 1, 4, &int).expect("a legal vector");
    let below = Layout::hindexed(&[1, 1], &[-8, 4], &int).expect("legal displacements");
    let below = Layout::resized(&below, -8, 16).expect("a legal extent");
    let backwards = Layout::resized(&int, 0, -8).expect("a legal extent");
    let above = Layout::hindexed_block(1, &[8], &int).expect("legal displacements");
    let above = Layout::resized(&above, 8, 12).expect("a legal extent");
    [int, column, below, Layout::byte(), backwards, above]
}

/// The form in which blocks are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Equal,
    Blocks,
    Layouts,
}

/// The blocks of one buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    form: Form,
    counts: Vec<usize>,
    displacements: Vec<isize>,
    layouts: Vec<Layout>,
}

impl Buffer {
    /// Blocks of `units` units each, in the order of the ranks or in another, side by side or with
    /// gaps.
    pub(crate) fn new(form: Form, units: &[usize], layout: usize, random: &mut Random) -> Self {
        let of = |rank: usize| match form {
            Form::Layouts => layouts()[(layout + rank) % LAYOUTS].clone(),
            _ => layouts()[layout].clone(),
        };
        let layouts: Vec<_> = (0..units.len()).map(of).collect();
        let count = |(&units, layout): (&usize, &Layout)| units * (UNIT / layout.size());
        let counts: Vec<_> = units.iter().zip(&layouts).map(count).collect();
        let mut order: Vec<_> = (0..units.len()).collect();
        if form != Form::Equal {
            (1..order.len()).for_each(|last| order.swap(last, random.below(last + 1)));
        }
        let mut displacements = vec![0; units.len()];
        let mut next = 0;
        for rank in order {
            let gap = match form {
                Form::Equal => 0,
                _ => random.below(3),
            };
            if form == Form::Layouts {
                let reach = layouts[rank].span(counts[rank] + gap).expect("small");
                displacements[rank] = next - reach.start;
                next += reach.len() as isize + 16;
            } else {
                displacements[rank] = next;
                next += (counts[rank] + gap) as isize;
            }
        }
        Self {
            form,
            counts,
            displacements,
            layouts,
        }
    }

    /// One block.
    pub(crate) fn one(units: usize, layout: usize) -> Self {
        Self::new(Form::Equal, &[units], layout, &mut Random::new(1))
    }

    pub(crate) fn many(&self) -> Many<'_> {
        let ptr = std::ptr::dangling_mut();
        let (counts, displacements) = (&*self.counts, &*self.displacements);
        match self.form {
            Form::Equal => Many::Equal(self.typed()),
            Form::Blocks => Many::Blocks(BlocksArg {
                ptr,
                counts,
                displacements,
                layout: &self.layouts[0],
            }),
            Form::Layouts => Many::Layouts(LayoutsArg {
                ptr,
                counts,
                displacements,
                layouts: &self.layouts,
            }),
        }
    }

    pub(crate) fn typed(&self) -> TypedBuf<'_> {
        TypedBuf {
            ptr: std::ptr::dangling_mut(),
            count: self.counts[0],
            layout: &self.layouts[0],
            memory: MemoryKind::Host,
        }
    }

    /// Offset of a block in bytes.
    fn offset(&self, rank: usize) -> isize {
        let unit = match self.form {
            Form::Layouts => 1,
            _ => self.layouts[rank].extent(),
        };
        self.displacements[rank] * unit
    }

    fn reach(&self) -> Range<isize> {
        let reach = |rank: usize| {
            let reach = self.layouts[rank].span(self.counts[rank]).expect("small");
            (
                reach.start + self.offset(rank),
                reach.end + self.offset(rank),
            )
        };
        let reaches: Vec<_> = (0..self.counts.len()).map(reach).collect();
        let start = reaches.iter().map(|r| r.0).min().unwrap_or(0);
        start..reaches.iter().map(|r| r.1).max().unwrap_or(0)
    }

    /// The position of offset 0 in a memory that just holds the blocks.
    fn origin(&self) -> isize {
        -self.reach().start
    }

    fn memory(&self, random: &mut Random) -> Vec<u8> {
        (0..self.reach().len())
            .map(|_| random.next() as u8)
            .collect()
    }

    /// Writes a block's packed data.
    fn write(&self, memory: &mut [u8], rank: usize, data: &[u8]) {
        let (layout, count) = (&self.layouts[rank], self.counts[rank]);
        assert_eq!(data.len(), count * layout.size());
        let at = self.origin() + self.offset(rank);
        // SAFETY: the memory has the reach of all blocks, with offset 0 at the origin.
        unsafe {
            let to = memory.as_mut_ptr().wrapping_offset(at);
            layout.unpack_range(to, count, 0, data.as_ptr(), data.len(), MsgRep::Native);
        }
    }
}

/// The data of `units` units that `from` sends to `to`.
pub(crate) fn data(from: u32, to: u32, units: usize) -> Vec<u8> {
    let byte = |at: usize| (from as usize * 131 + to as usize * 37 + at * 7 + (at >> 8) * 13) as u8;
    (0..units * UNIT).map(byte).collect()
}

/// One rank's side of an operation.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub(crate) send: Option<Buffer>,
    pub(crate) recv: Option<Buffer>,
    /// The contents of the blocks of the send buffer: sender, receiver, units.
    pub(crate) sent: Vec<(u32, u32, usize)>,
    /// The initial contents of blocks of the receive buffer (in place).
    pub(crate) kept: Vec<(usize, (u32, u32, usize))>,
    /// The expected contents of the blocks of the receive buffer.
    pub(crate) expected: Vec<(usize, (u32, u32, usize))>,
}

/// Runs an algorithm for the problem that `lowering` makes of an operation, and compares all
/// memory; `None` if the algorithm does not fit.
pub(crate) fn run_lowered<'s, P>(
    algorithm: &Algorithm<P>,
    sides: &'s [Side],
    seed: u64,
    lowering: impl Fn(&mut Builder, &'s Side) -> Lowered,
    problem: impl Fn(Problem) -> P,
) -> Option<Simulation> {
    let mut fitting = Vec::new();
    let all = exchange(algorithm.name, sides, seed, |b, side| {
        let Lowered {
            problem: lowered,
            ask,
            ..
        } = lowering(b, side);
        let problem = problem(lowered);
        let fits = (algorithm.fits)(&problem, &ask);
        fitting.push(fits);
        if fits {
            (algorithm.build)(b, &problem);
        }
        fits
    });
    let alike = fitting.iter().all(|other| other == &fitting[0]);
    assert!(alike, "{} fits on some ranks only", algorithm.name);
    all
}

/// The same for schedules that are written in some other way; `None` if a rank says that there is
/// nothing to run.
pub(crate) fn exchange<'s>(
    name: &str,
    sides: &'s [Side],
    seed: u64,
    mut write: impl FnMut(&mut Builder, &'s Side) -> bool,
) -> Option<Simulation> {
    let mut random = Random::new(seed ^ 0x5eed);
    let mut all = Simulation::new(sides.len() as u32, seed);
    let mut expected = Vec::new();
    for (rank, side) in (0..).zip(sides) {
        if let Some(send) = &side.send {
            let mut memory = send.memory(&mut random);
            for (block, &(from, to, units)) in side.sent.iter().enumerate() {
                send.write(&mut memory, block, &data(from, to, units));
            }
            all.set_memory(rank, Base::Send, memory, send.origin());
        }
        let mut after = Vec::new();
        if let Some(recv) = &side.recv {
            let mut memory = recv.memory(&mut random);
            let fill = |memory: &mut [u8], of: &[(usize, (u32, u32, usize))]| {
                for &(block, (from, to, units)) in of {
                    recv.write(memory, block, &data(from, to, units));
                }
            };
            fill(&mut memory, &side.kept);
            after = memory.clone();
            fill(&mut after, &side.expected);
            all.set_memory(rank, Base::Recv, memory, recv.origin());
        }
        expected.push(after);
    }
    let mut there = true;
    // With empty messages as in the debug mode, or without.
    let keep_empty = seed.is_multiple_of(2);
    all.schedule_all(|b| {
        if keep_empty {
            b.keep_empty();
        }
        there &= write(b, &sides[b.rank() as usize]);
    });
    if !there {
        return None;
    }
    all.run(name);
    for (rank, expected) in (0..).zip(&expected) {
        let got = all.memory(rank, Base::Recv);
        let ranks = sides.len();
        assert_eq!(got, expected, "{name}: rank {rank} of {ranks}: {sides:?}");
    }
    Some(all)
}
