//! The Fourier transform of a square picture whose rows are distributed over ranks.
//!
//! A transform in two dimensions is one along all rows, then one along all columns. A row is on one
//! rank, a column is not. So the square is transposed between the two, by an alltoall of blocks.

mod picture;
mod transpose;

use portolan::Level;
use portolan::datatype::Complex;
use portolan::{Comm, Device, Error, ErrorKind, Op, Result};
use rustfft::{FftDirection, FftPlanner};

pub use picture::PictureError;

use crate::share;
use transpose::Transpose;

/// The result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Points in each direction.
    pub size: usize,
    /// The relative difference of the sums of squares before and after (Parseval's identity).
    pub parseval: f64,
    /// The largest difference between the picture and the result of the inverse transform, relative
    /// to the picture's largest value.
    pub back: f64,
    /// The picture and the logarithm of its spectrum, on rank 0.
    pub fields: Option<[Vec<f64>; 2]>,
}

impl Report {
    /// Whether the result is as exact as it should be.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.parseval < 1e-12 && self.back < 1e-12
    }
}

/// Transforms the pattern of `size` × `size` points, and back. Collective.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if there are more ranks than rows;
/// [`PeerFailed`](ErrorKind::PeerFailed).
pub fn run<L: Level, D: Device>(comm: &Comm<L, D>, size: usize) -> Result<Report> {
    if size < comm.size() as usize {
        let what = format!("{size} rows cannot be shared by {} ranks", comm.size());
        return Err(Error::new(ErrorKind::InvalidArgument, what)
            .remedy("take a larger --size, or fewer ranks"));
    }
    let rows = share(size, comm.rank(), comm.size());
    let points = rows.flat_map(|y| (0..size).map(move |x| (x, y)));
    let picture: Vec<f64> = points.map(|(x, y)| pattern(x, y, size)).collect();
    let transpose = Transpose::new(comm, size);

    let start: Vec<_> = picture.iter().map(|&re| Complex { re, im: 0.0 }).collect();
    let spectrum = transform(comm, &transpose, start, FftDirection::Forward)?;
    let back = transform(comm, &transpose, spectrum.clone(), FftDirection::Inverse)?;

    let points = (size * size) as f64;
    let squares =
        |values: &[Complex<f64>]| -> f64 { values.iter().map(|v| v.re * v.re + v.im * v.im).sum() };
    let mut sums = [
        picture.iter().map(|v| v * v).sum(),
        squares(&spectrum) / points,
    ];
    comm.allreduce_in_place(&mut sums, &Op::SUM)?;
    let differs = |(p, b): (&f64, &Complex<f64>)| (b.re / points - p).hypot(b.im / points);
    let worst = picture.iter().zip(&back).map(differs).fold(0.0, f64::max);
    let largest = picture.iter().copied().fold(0.0, f64::max);
    let mut most = [worst, largest];
    comm.allreduce_in_place(&mut most, &Op::MAX)?;
    Ok(Report {
        size,
        parseval: (sums[1] / sums[0] - 1.0).abs(),
        back: most[0] / most[1],
        fields: fields(comm, &picture, &spectrum)?,
    })
}

/// One transform, of rows that begin and end as rows.
fn transform<L: Level, D: Device>(
    comm: &Comm<L, D>,
    transpose: &Transpose,
    mut rows: Vec<Complex<f64>>,
    direction: FftDirection,
) -> Result<Vec<Complex<f64>>> {
    for _ in 0..2 {
        along_rows(&mut rows, transpose.size(), direction);
        rows = transpose.run(comm, &rows)?;
    }
    Ok(rows)
}

fn along_rows(rows: &mut [Complex<f64>], size: usize, direction: FftDirection) {
    // Row after row: `process` transforms a longer buffer in pieces of `size`.
    FftPlanner::new().plan_fft(size, direction).process(rows);
}

/// A disc, a bar and a fine grating: edges and a frequency that the spectrum shows.
fn pattern(x: usize, y: usize, size: usize) -> f64 {
    let at = |index: usize| (index as f64 + 0.5) / size as f64;
    let (x, y) = (at(x), at(y));
    let disc = f64::from((x - 0.35).hypot(y - 0.4) < 0.18);
    let bar = f64::from((x + 0.5 * y - 0.95).abs() < 0.04 && (0.15..0.85).contains(&y));
    let wave = 0.5 + 0.5 * (std::f64::consts::TAU * (12.0 * x + 20.0 * y)).cos();
    0.6 * disc + 0.8 * bar + 0.2 * wave
}

/// The whole picture and spectrum, on rank 0: the logarithm of the spectrum, with frequency 0 in
/// the middle.
fn fields<L: Level, D: Device>(
    comm: &Comm<L, D>,
    picture: &[f64],
    spectrum: &[Complex<f64>],
) -> Result<Option<[Vec<f64>; 2]>> {
    let power: Vec<f64> = spectrum.iter().map(|v| v.re.hypot(v.im).ln_1p()).collect();
    let picture = comm.gather_vecs(picture, 0)?;
    let power = comm.gather_vecs(&power, 0)?;
    let whole = |parts: Vec<Vec<f64>>| parts.concat();
    Ok(match (picture, power) {
        (Some(picture), Some(power)) => {
            let (picture, power) = (whole(picture), whole(power));
            let size = power.len().isqrt();
            let middle = |index: usize| (index + size.div_ceil(2)) % size;
            let points = (0..size).flat_map(|y| (0..size).map(move |x| (x, y)));
            let centred = points.map(|(x, y)| power[middle(y) * size + middle(x)]);
            Some([picture, centred.collect()])
        }
        _ => None,
    })
}

impl Report {
    /// Writes the picture and its spectrum side by side, each on its own scale of greys.
    ///
    /// # Errors
    /// If the file cannot be written, with its name; or on a rank that does not have the whole
    /// picture.
    pub fn write_png(&self, path: &std::path::Path) -> std::result::Result<(), PictureError> {
        picture::write(path, self.size, self.fields.as_ref())
    }
}
