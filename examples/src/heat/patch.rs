//! One rank's block: its values, the exchange with its neighbours, and a time step.

use std::ops::Range;

use portolan::Level;
use portolan::{Comm, Device, Error, ErrorKind, Layout, Result};

use super::blocks::{Block, Blocks, Side};
use super::modes::Analytic;

/// The values of a block with a ring of ghost points around them, row by row.
///
/// Ghost points hold the neighbours' values of the previous step, or 0 at the rim of the grid.
#[derive(Debug)]
pub(super) struct Patch {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
    next: Vec<f64>,
    /// For each side: the neighbour, if there is one, and the values it sends.
    halos: [(Option<u32>, Vec<f64>); 4],
    /// One column of the block, without ghost points.
    column: Layout,
}

impl Patch {
    /// The block of `rank`, filled from `start`.
    pub(super) fn new(blocks: Blocks, rank: u32, block: &Block, start: &Analytic) -> Result<Self> {
        let (rows, columns) = (block.rows.len(), block.columns.len());
        let mut values = zeros(rows + 2, columns + 2)?;
        let next = zeros(rows + 2, columns + 2)?;
        for (at, row) in block.rows.clone().enumerate() {
            let begin = (at + 1) * (columns + 2) + 1;
            let targets = &mut values[begin..begin + columns];
            for (target, value) in targets
                .iter_mut()
                .zip(start.row(row, block.columns.clone()))
            {
                *target = value;
            }
        }
        let halos = Side::ALL.map(|side| {
            let length = match side {
                Side::North | Side::South => columns,
                Side::West | Side::East => rows,
            };
            (blocks.neighbour(rank, side), vec![0.0; length])
        });
        let stride = isize::try_from(columns + 2).map_err(|_| too_large(rows, columns))?;
        Ok(Self {
            rows,
            columns,
            values,
            next,
            halos,
            column: Layout::vector(rows, 1, stride, &Layout::of::<f64>())?,
        })
    }

    /// Does one time step. The messages are under way while the inside of the block is computed.
    pub(super) fn step<L: Level, D: Device>(
        &mut self,
        comm: &Comm<L, D>,
        ratio: f64,
    ) -> Result<()> {
        let (rows, columns, stride) = (self.rows, self.columns, self.columns + 2);
        let Self {
            values,
            next,
            halos,
            column,
            ..
        } = self;
        let values = values.as_slice();
        comm.scope(|s| {
            for (side, (neighbour, halo)) in Side::ALL.into_iter().zip(halos) {
                let Some(neighbour) = *neighbour else {
                    continue;
                };
                // A message's tag is the direction in which it travels.
                s.recv(halo, neighbour, side.opposite() as u32)?;
                let tag = side as u32;
                match side {
                    Side::North => s.send(&values[stride + 1..][..columns], neighbour, tag)?,
                    Side::South => {
                        s.send(&values[rows * stride + 1..][..columns], neighbour, tag)?
                    }
                    // The edge is a column here, and arrives there as a row of values.
                    Side::West => {
                        s.send_layout(&values[stride + 1..], 1, column, neighbour, tag)?
                    }
                    Side::East => {
                        s.send_layout(&values[stride + columns..], 1, column, neighbour, tag)?
                    }
                };
            }
            // Points that need no neighbour.
            update(values, next, stride, 2..rows, 2..columns, ratio);
            Ok(())
        })?;
        self.fill_ghosts();
        let (values, next) = (&self.values, &mut self.next);
        // The block's own rim: the first and the last row, then the rest of the first and the last
        // column. In a block of one row (or column) the first is also the last, and is computed
        // twice.
        update(values, next, stride, 1..2, 1..columns + 1, ratio);
        update(values, next, stride, rows..rows + 1, 1..columns + 1, ratio);
        update(values, next, stride, 2..rows, 1..2, ratio);
        update(values, next, stride, 2..rows, columns..columns + 1, ratio);
        std::mem::swap(&mut self.values, &mut self.next);
        Ok(())
    }

    /// Copies the values that the neighbours have sent into the ghost points.
    fn fill_ghosts(&mut self) {
        let (rows, columns, stride) = (self.rows, self.columns, self.columns + 2);
        for (side, (neighbour, halo)) in Side::ALL.into_iter().zip(&self.halos) {
            if neighbour.is_none() {
                continue;
            }
            let (first, apart) = match side {
                Side::North => (1, 1),
                Side::South => ((rows + 1) * stride + 1, 1),
                Side::West => (stride, stride),
                Side::East => (stride + columns + 1, stride),
            };
            let ghosts = self.values[first..].iter_mut().step_by(apart);
            ghosts.zip(halo).for_each(|(ghost, value)| *ghost = *value);
        }
    }

    /// The values of one row of the block, without ghost points.
    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.values[(row + 1) * (self.columns + 2) + 1..][..self.columns]
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }
}

/// A step of the explicit scheme for the points in `rows` and `columns`, counted with ghost points.
fn update(
    values: &[f64],
    next: &mut [f64],
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    ratio: f64,
) {
    if columns.is_empty() {
        return;
    }
    for row in rows {
        let (begin, count) = (row * stride + columns.start, columns.len());
        let middle = &values[begin - 1..][..count + 2];
        let north = &values[begin - stride..][..count];
        let south = &values[begin + stride..][..count];
        let points = middle.windows(3).zip(north).zip(south);
        for (new, ((m, n), s)) in next[begin..][..count].iter_mut().zip(points) {
            *new = m[1] + ratio * (m[0] + m[2] + n + s - 4.0 * m[1]);
        }
    }
}

/// Zeros for a rectangle of points.
pub(super) fn zeros(rows: usize, columns: usize) -> Result<Vec<f64>> {
    let mut values = Vec::new();
    let points = rows
        .checked_mul(columns)
        .ok_or_else(|| too_large(rows, columns))?;
    values
        .try_reserve_exact(points)
        .map_err(|_| too_large(rows, columns))?;
    values.resize(points, 0.0);
    Ok(values)
}

#[cold]
fn too_large(rows: usize, columns: usize) -> Error {
    let what = format!("no memory for {rows} × {columns} points");
    Error::new(ErrorKind::Exhausted, what).remedy("choose a smaller size")
}
