//! The statistics of several samples.

use serde::{Deserialize, Serialize};

/// The median, and how far the samples are from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Summary {
    /// The middle one, or the mean of the middle two.
    pub(super) median: f64,
    /// A quarter of the samples are not above this.
    pub(super) low: f64,
    /// A quarter of the samples are not below this.
    pub(super) high: f64,
    /// The smallest.
    pub(super) least: f64,
    /// The greatest.
    pub(super) most: f64,
}

impl Summary {
    /// The summary of the values, which may be in any order; `None` if there are none.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let at = |share: f64| {
            // Linear interpolation between neighbouring values, as most programs do it.
            let place = share * (values.len() - 1) as f64;
            let (below, above) = (place.floor() as usize, place.ceil() as usize);
            let weight = place - place.floor();
            values[below] * (1.0 - weight) + values[above] * weight
        };
        Some(Self {
            median: at(0.5),
            low: at(0.25),
            high: at(0.75),
            least,
            most,
        })
    }

    /// Half the distance between the quartiles.
    pub(super) fn half(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The same as a fraction of the median; `None` if that is 0 and not every sample is.
    pub(super) fn spread(&self) -> Option<f64> {
        let half = self.half();
        if half == 0.0 {
            return Some(0.0);
        }
        (self.median != 0.0).then_some(half / self.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let summary = Summary::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        let expected = Summary {
            median: 3.0,
            low: 2.0,
            high: 4.0,
            least: 1.0,
            most: 5.0,
        };
        assert_eq!(summary, expected);
        assert!((summary.spread().unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(Summary::of(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Summary::of(vec![7.0]).unwrap().low, 7.0);
        assert_eq!(Summary::of(Vec::new()), None);
    }

    #[test]
    fn nothing_is_a_fraction_of_a_median_of_0() {
        let summary = Summary::of(vec![0.0, 0.0, 0.0, 1.0, 1.0]).unwrap();
        assert_eq!((summary.spread(), summary.half()), (None, 0.5));
        assert_eq!(Summary::of(vec![0.0; 3]).unwrap().spread(), Some(0.0));
    }
}
