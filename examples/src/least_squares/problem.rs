//! A least squares problem on one rank, and its distribution by blocks of rows.

use std::ops::Range;

use portolan::Level;
use portolan::{Comm, Datatype, Device, Error, ErrorKind, Result};

use super::Matrix;

const MATRIX: u32 = 1;
const RIGHT_HAND_SIDE: u32 = 2;

/// One entry of a sparse matrix, as it is sent from rank to rank.
#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
#[repr(C)]
pub struct Entry {
    /// Row, from 0.
    pub row: u32,
    /// Column, from 0.
    pub column: u32,
    /// Value.
    pub value: f64,
}

/// The problem: the `x` for which `‖b − A·x‖` is smallest.
#[derive(Clone, Debug)]
pub struct Problem {
    matrix: Matrix,
    rhs: Vec<f64>,
}

impl Problem {
    /// Makes a problem of a matrix and a right-hand side.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if their sizes do not fit, or if there is no
    /// unique solution because there are more columns than rows, or columns without entries.
    pub fn new(matrix: Matrix, rhs: Vec<f64>) -> Result<Self> {
        let (rows, columns) = (matrix.rows, matrix.columns);
        let refuse =
            |what, remedy| Err(Error::new(ErrorKind::InvalidArgument, what).remedy(remedy));
        if rhs.len() != rows as usize {
            let what = format!(
                "the matrix has {rows} rows, the right-hand side {}",
                rhs.len()
            );
            return refuse(what, "give files of the same problem");
        }
        if columns > rows {
            let what =
                format!("a matrix of {rows} rows and {columns} columns has no unique solution");
            return refuse(what, "give a matrix with at least as many rows as columns");
        }
        let mut empty = vec![true; columns as usize];
        matrix
            .entries
            .iter()
            .for_each(|entry| empty[entry.column as usize] = false);
        if let Some(column) = empty.iter().position(|&empty| empty) {
            let what = format!(
                "column {} has no entries: there is no unique solution",
                column + 1
            );
            return refuse(what, "remove the column, or complete the matrix");
        }
        Ok(Self { matrix, rhs })
    }

    /// Generates a problem with `columns` unknowns, and its solution, to use instead of a file.
    ///
    /// The matrix consists of two equal bands, one below the other. The right-hand side fits the
    /// solution except for a deviation. That is opposite in the two halves, and so orthogonal to
    /// all columns.
    #[must_use]
    pub fn generate(columns: u32) -> (Self, Vec<f64>) {
        let wave = |index: u32, speed: f64| (f64::from(index) * speed).sin();
        let solution: Vec<f64> = (0..columns).map(|i| 1.0 + wave(i, 0.37)).collect();
        let mut entries = Vec::new();
        let mut rhs = vec![0.0; 2 * columns as usize];
        for row in 0..columns {
            let mut product = 0.0;
            for column in row.saturating_sub(2)..(row + 3).min(columns) {
                let value = if row == column {
                    4.0
                } else {
                    wave(row + 7 * column, 0.61)
                };
                product += value * solution[column as usize];
                let twin = Entry {
                    row: row + columns,
                    column,
                    value,
                };
                entries.extend([Entry { row, ..twin }, twin]);
            }
            let deviation = 0.1 * wave(row, 2.3);
            rhs[row as usize] = product + deviation;
            rhs[(row + columns) as usize] = product - deviation;
        }
        let matrix = Matrix {
            rows: 2 * columns,
            columns,
            entries,
        };
        (Self { matrix, rhs }, solution)
    }

    /// Sends every rank its block of rows. Collective; rank 0 gives the problem, the others `None`.
    ///
    /// # Errors
    /// [`PeerFailed`](ErrorKind::PeerFailed), [`Exhausted`](ErrorKind::Exhausted).
    ///
    /// # Panics
    /// If rank 0 gives `None`.
    pub fn distribute<L: Level, D: Device>(
        comm: &Comm<L, D>,
        problem: Option<Self>,
    ) -> Result<Block> {
        let mut shape = problem
            .as_ref()
            .map_or([0; 2], |p| [p.matrix.rows, p.matrix.columns]);
        comm.bcast(&mut shape, 0)?;
        let [rows, columns] = shape;
        let (entries, rhs) = if comm.rank() == 0 {
            problem.expect("rank 0 has the problem").deal(comm)?
        } else {
            let (entries, _) = comm.recv::<Entry>(0, MATRIX)?;
            (entries, comm.recv(0, RIGHT_HAND_SIDE)?.0)
        };
        let first = block_of(comm.rank(), comm.size(), rows).start;
        Ok(Block::new(first, columns, &entries, rhs))
    }

    /// Sends the other ranks their blocks, and returns rank 0's.
    fn deal<L: Level, D: Device>(self, comm: &Comm<L, D>) -> Result<(Vec<Entry>, Vec<f64>)> {
        let Self { mut matrix, rhs } = self;
        matrix
            .entries
            .sort_unstable_by_key(|entry| (entry.row, entry.column));
        let part = |rank| {
            let rows = block_of(rank, comm.size(), matrix.rows);
            let at = |row| matrix.entries.partition_point(|entry| entry.row < row);
            let values = rows.start as usize..rows.end as usize;
            (&matrix.entries[at(rows.start)..at(rows.end)], &rhs[values])
        };
        for rank in 1..comm.size() {
            let (entries, values) = part(rank);
            comm.send(entries, rank, MATRIX)?;
            comm.send(values, rank, RIGHT_HAND_SIDE)?;
        }
        let (entries, values) = part(0);
        Ok((entries.to_vec(), values.to_vec()))
    }
}

/// The rows of a rank, distributed as evenly as possible.
fn block_of(rank: u32, size: u32, rows: u32) -> Range<u32> {
    let cut = |rank: u32| (u64::from(rows) * u64::from(rank) / u64::from(size)) as u32;
    cut(rank)..cut(rank + 1)
}

/// Some rows of the matrix, each with its entries together, and the same rows of the right-hand
/// side.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where the entries of each row begin, and where the last one's end.
    starts: Vec<usize>,
    entries: Vec<(u32, f64)>,
    columns: usize,
    pub(super) rhs: Vec<f64>,
}

impl Block {
    /// `entries` are in the order of rows, the first of which is `first`.
    fn new(first: u32, columns: u32, entries: &[Entry], rhs: Vec<f64>) -> Self {
        let begin = |row: usize| entries.partition_point(|e| ((e.row - first) as usize) < row);
        Self {
            starts: (0..=rhs.len()).map(begin).collect(),
            entries: entries.iter().map(|e| (e.column, e.value)).collect(),
            columns: columns as usize,
            rhs,
        }
    }

    /// Number of unknowns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    fn rows(&self) -> impl Iterator<Item = &[(u32, f64)]> {
        self.starts
            .windows(2)
            .map(|ends| &self.entries[ends[0]..ends[1]])
    }

    /// This block's rows of `A·x`.
    pub(super) fn times(&self, x: &[f64]) -> Vec<f64> {
        let product = |row: &[(u32, f64)]| row.iter().map(|&(at, a)| a * x[at as usize]).sum();
        self.rows().map(product).collect()
    }

    /// This block's part of the sum `Aᵀ·y`.
    pub(super) fn transposed_times(&self, y: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; self.columns];
        for (row, y) in self.rows().zip(y) {
            row.iter().for_each(|&(at, a)| sum[at as usize] += a * y);
        }
        sum
    }
}
