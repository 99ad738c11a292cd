//! The analytic solution: a sum of sine waves, each of which decays at its own rate.

use std::f64::consts::PI;

/// Waves `(across, down, amplitude)`: `amplitude · sin(across·π·x) · sin(down·π·y)`.
const MODES: [(f64, f64, f64); 4] = [
    (1.0, 1.0, 1.0),
    (3.0, 2.0, 0.6),
    (4.0, 7.0, 0.5),
    (15.0, 11.0, 0.35),
];

/// The solution on a grid of `size` × `size` inner points of the unit square, whose rim is kept at 0.
///
/// The waves are eigenvectors of the scheme as well: each time step multiplies a wave by a known
/// factor. So the error of the scheme is known beforehand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Analytic {
    size: usize,
    /// The fraction that is left of each wave's amplitude.
    left: [f64; MODES.len()],
    /// The largest error that the scheme itself can make.
    pub(super) bound: f64,
}

impl Analytic {
    /// The solution after `steps` steps. A step is `ratio · h²` long, where `h` is the distance of
    /// two points and the conductivity is 1.
    pub(super) fn new(size: usize, steps: u32, ratio: f64) -> Self {
        let h = 1.0 / (size as f64 + 1.0);
        let time = f64::from(steps) * ratio * h * h;
        let mut left = [0.0; MODES.len()];
        let mut bound = 0.0;
        for (left, (across, down, amplitude)) in left.iter_mut().zip(MODES) {
            let decay = (-PI * PI * (across * across + down * down) * time).exp();
            let sine = |waves: f64| (waves * PI * h / 2.0).sin().powi(2);
            let factor = 1.0 - 4.0 * ratio * (sine(across) + sine(down));
            *left = amplitude * decay;
            bound += amplitude * (decay - factor.powf(f64::from(steps))).abs();
        }
        Self { size, left, bound }
    }

    /// The values of one row of inner points, from column `columns.start` on.
    pub(super) fn row(
        &self,
        row: usize,
        columns: std::ops::Range<usize>,
    ) -> impl Iterator<Item = f64> {
        let place = |index: usize| PI * (index as f64 + 1.0) / (self.size as f64 + 1.0);
        let y = place(row);
        let mut heights = self.left;
        for (height, (_, down, _)) in heights.iter_mut().zip(MODES) {
            *height *= (down * y).sin();
        }
        columns.map(move |column| {
            let x = place(column);
            let wave =
                |((across, ..), height): (&(f64, f64, f64), f64)| height * (across * x).sin();
            MODES.iter().zip(heights).map(wave).sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_vanish_at_the_rim_and_decay() {
        // On a grid of 2^k − 1 points, one point is in the middle.
        let (start, later) = (Analytic::new(255, 0, 0.2), Analytic::new(255, 20_000, 0.2));
        let at = |field: &Analytic, row, column| field.row(row, column..column + 1).next();
        assert!(at(&start, 0, 0).unwrap().abs() < 0.1);
        // In the middle every even wave is 0: sin(π/2)² − 0 − 0 + 0.35·sin(15π/2)·sin(11π/2).
        assert!((at(&start, 127, 127).unwrap() - 1.35).abs() < 1e-12);
        let rest = (-2.0 * PI * PI * 20_000.0 * 0.2 / 65_536.0).exp();
        assert!((at(&later, 127, 127).unwrap() - rest).abs() < 1e-9);
    }

    #[test]
    fn the_schemes_error_is_small_and_shrinks_with_the_grid() {
        // Four times the steps on twice the grid: the same time.
        let coarse = Analytic::new(63, 100, 0.2).bound;
        let fine = Analytic::new(127, 400, 0.2).bound;
        assert!(coarse < 0.01 && fine < coarse / 3.0, "{coarse} {fine}");
        assert_eq!(Analytic::new(63, 0, 0.2).bound, 0.0);
    }
}
