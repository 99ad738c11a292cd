//! The transpose of a square whose rows are distributed over ranks.

use portolan::Level;
use portolan::datatype::Complex;
use portolan::{Comm, Device, Result};

use crate::share;

/// How many points each rank sends and receives.
#[derive(Clone, Debug)]
pub(super) struct Transpose {
    size: usize,
    /// Rows of each rank, before and after.
    rows: Vec<std::ops::Range<usize>>,
    /// Points that each rank gets from this one, and sends to it. The numbers are equal, because
    /// both are the size of the block where that rank's rows and this rank's columns meet.
    counts: Vec<usize>,
}

impl Transpose {
    /// For a square of `size` rows.
    pub(super) fn new<L: Level, D: Device>(comm: &Comm<L, D>, size: usize) -> Self {
        let ranks = 0..comm.size();
        let rows: Vec<_> = ranks.map(|rank| share(size, rank, comm.size())).collect();
        let mine = rows[comm.rank() as usize].len();
        let counts = rows.iter().map(|theirs| theirs.len() * mine).collect();
        Self { size, rows, counts }
    }

    /// Rows and columns.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// This rank's rows of the transposed square. Collective.
    pub(super) fn run<L: Level, D: Device>(
        &self,
        comm: &Comm<L, D>,
        rows: &[Complex<f64>],
    ) -> Result<Vec<Complex<f64>>> {
        // For each rank, the block under its columns, column by column, as that rank stores it.
        let blocks = self.rows.iter().flat_map(|theirs| {
            theirs
                .clone()
                .flat_map(|column| rows.iter().skip(column).step_by(self.size))
        });
        let out: Vec<_> = blocks.copied().collect();
        let mut come = vec![Complex { re: 0.0, im: 0.0 }; out.len()];
        comm.alltoallv(&out, &self.counts, &mut come, &self.counts)?;
        // A block has this rank's rows, and the sender's columns as far as they go.
        let mut mine = vec![Complex { re: 0.0, im: 0.0 }; come.len()];
        let height = mine.len() / self.size;
        let mut rest = &come[..];
        for theirs in &self.rows {
            let (block, more) = rest.split_at(theirs.len() * height);
            rest = more;
            for (row, part) in block.chunks_exact(theirs.len()).enumerate() {
                mine[row * self.size..][theirs.clone()].copy_from_slice(part);
            }
        }
        Ok(mine)
    }
}
