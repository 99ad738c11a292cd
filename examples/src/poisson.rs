//! Poisson's equation on the unit square, `−Δu = f` with `u = 0` on the edge, by conjugate
//! gradients.
//!
//! The rows of the grid are divided into blocks, one per rank, on a Cartesian communicator of one
//! dimension. Each iteration exchanges rows with the neighbours above and below, and needs two sums
//! over all ranks. The exchange is a neighbour alltoall: ranks at the edge have one neighbour and
//! keep zeros for the other.

use std::fmt;

use portolan::Level;
use portolan::coll::NeighbourAlltoall;
use portolan::topology::Dimension;
use portolan::{Comm, Device, Error, ErrorKind, Op, Result};

use crate::share;

/// The result, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Inner points in each direction.
    pub size: usize,
    /// Iterations taken.
    pub iterations: u32,
    /// `‖f + Δu‖ / ‖f‖`, computed afresh.
    pub residual: f64,
    /// Largest difference from the known solution.
    pub error: f64,
    /// The difference that is allowed: the scheme's own error is below `h²`.
    pub allowed: f64,
}

impl Report {
    /// Whether the result is as good as the method promises.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.error <= self.allowed
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            size,
            iterations,
            residual,
            error,
            allowed,
        } = self;
        writeln!(f, "{size} x {size} points, iterations {iterations}")?;
        writeln!(f, "residual {residual:.3e}")?;
        write!(
            f,
            "largest error {error:.3e}, of the scheme at most {allowed:.3e}"
        )
    }
}

/// This rank's rows of the grid.
struct Rows<L: Level, D: Device> {
    line: Comm<L, D>,
    /// Points in a row.
    size: usize,
    /// Number of its first row.
    first: usize,
    /// The number of rows.
    rows: usize,
    /// The row above the block and the one below it.
    halo: Vec<f64>,
    /// The rows that the neighbours receive: the first and the last.
    edge: Vec<f64>,
}

/// Solves the problem on `size` × `size` inner points until the residual has shrunk by the factor
/// `tolerance`. Collective.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if there are more ranks than rows;
/// [`PeerFailed`](ErrorKind::PeerFailed).
pub fn solve<L: Level, D: Device>(
    comm: &Comm<L, D>,
    size: usize,
    tolerance: f64,
) -> Result<Report> {
    let mut grid = Rows::new(comm, size)?;
    let known = grid.values(|x, y| shape(x) * parabola(y));
    // The right-hand side: −Δ of the known solution.
    let force = grid.values(|x, y| -bend(x) * parabola(y) + 2.0 * shape(x));
    let mut u = vec![0.0; known.len()];
    let scale = grid.dot(&force, &force)?;
    let mut residual = force.clone();
    let mut direction = residual.clone();
    let mut square = scale;
    let mut iterations = 0;
    let most = 10 * u32::try_from(size).unwrap_or(u32::MAX / 10) + 100;
    while square > tolerance * tolerance * scale && iterations < most {
        let image = grid.negative_laplacian(&direction)?;
        let step = square / grid.dot(&direction, &image)?;
        add(&mut u, step, &direction);
        add(&mut residual, -step, &image);
        let before = std::mem::replace(&mut square, grid.dot(&residual, &residual)?);
        let turn = square / before;
        for (d, r) in direction.iter_mut().zip(&residual) {
            *d = r + turn * *d;
        }
        iterations += 1;
    }
    let image = grid.negative_laplacian(&u)?;
    let left: Vec<f64> = force.iter().zip(image).map(|(f, i)| f - i).collect();
    let residual = (grid.dot(&left, &left)? / scale).sqrt();
    let differences = u.iter().zip(&known).map(|(u, k)| (u - k).abs());
    let error = differences.fold(0.0, f64::max);
    Ok(Report {
        size,
        iterations,
        residual,
        error: comm.allreduce_one(error, &Op::MAX)?,
        allowed: (1.0 / (size as f64 + 1.0)).powi(2),
    })
}

/// `x·(1 − x)·eˣ`.
fn shape(x: f64) -> f64 {
    x * (1.0 - x) * x.exp()
}

/// The second derivative of [`shape`].
fn bend(x: f64) -> f64 {
    -x * (x + 3.0) * x.exp()
}

fn parabola(y: f64) -> f64 {
    y * (1.0 - y)
}

/// `y += a·x`.
fn add(y: &mut [f64], a: f64, x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
}

impl<L: Level, D: Device> Rows<L, D> {
    fn new(comm: &Comm<L, D>, size: usize) -> Result<Self> {
        let ranks = comm.size();
        if size < ranks as usize {
            let what = format!("{size} rows cannot be shared by {ranks} ranks");
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .remedy("take a larger --size, or fewer ranks"));
        }
        let line = comm.cart_create(&[Dimension::open(ranks)], false)?;
        let line: Comm<L, D> = match line {
            Some(line) => (*line).clone(),
            None => {
                let what = "a grid of all ranks has no place for this one";
                return Err(Error::new(ErrorKind::Internal, what));
            }
        };
        let mine = share(size, line.rank(), ranks);
        Ok(Self {
            line,
            size,
            first: mine.start,
            rows: mine.len(),
            // At the edge of the square no rank writes to the halo, and the solution is 0.
            halo: vec![0.0; 2 * size],
            edge: vec![0.0; 2 * size],
        })
    }

    /// A function's values at this rank's points.
    fn values(&self, value: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let h = 1.0 / (self.size as f64 + 1.0);
        let at = |index: usize| (index as f64 + 1.0) * h;
        let rows = self.first..self.first + self.rows;
        rows.flat_map(|row| (0..self.size).map(move |column| (column, row)))
            .map(|(column, row)| value(at(column), at(row)))
            .collect()
    }

    /// `−Δv` by the five-point formula.
    fn negative_laplacian(&mut self, v: &[f64]) -> Result<Vec<f64>> {
        let (size, rows) = (self.size, self.rows);
        self.edge[..size].copy_from_slice(&v[..size]);
        self.edge[size..].copy_from_slice(&v[(rows - 1) * size..]);
        let exchange = NeighbourAlltoall::new(&self.edge[..], &mut self.halo[..]);
        self.line.run(exchange)?;
        let (above, below) = self.halo.split_at(size);
        let scale = (size as f64 + 1.0).powi(2);
        let row = |index: usize| &v[index * size..(index + 1) * size];
        let mut image = Vec::with_capacity(v.len());
        for index in 0..rows {
            let up = if index == 0 { above } else { row(index - 1) };
            let down = if index + 1 == rows {
                below
            } else {
                row(index + 1)
            };
            let here = row(index);
            image.extend((0..size).map(|at| {
                let left = if at == 0 { 0.0 } else { here[at - 1] };
                let right = here.get(at + 1).copied().unwrap_or(0.0);
                scale * (4.0 * here[at] - left - right - up[at] - down[at])
            }));
        }
        Ok(image)
    }

    /// The scalar product of two distributed vectors.
    fn dot(&self, a: &[f64], b: &[f64]) -> Result<f64> {
        let part: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
        self.line.allreduce_one(part, &Op::SUM)
    }
}
