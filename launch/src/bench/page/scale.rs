//! Mapping from values to positions in a chart.

/// A logarithmic axis. Values that are not above 0 have a place of their own before the first
/// value.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    /// The positions of the axis in the chart.
    from: f64,
    to: f64,
    /// Whether there is a value of 0, for which the axis reserves room.
    zero: bool,
}

/// The fraction of the axis that the place for 0 takes.
const ZERO: f64 = 0.07;

impl Scale {
    /// An axis for these values; `None` if none of them is above 0.
    pub(super) fn of(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let (mut low, mut high, mut zero) = (f64::INFINITY, 0.0_f64, false);
        for value in values.filter(|value| value.is_finite()) {
            if value > 0.0 {
                low = low.min(value);
                high = high.max(value);
            } else {
                zero = true;
            }
        }
        (high > 0.0).then_some(Self {
            low,
            high,
            from,
            to,
            zero,
        })
    }

    /// This axis with some room at both ends.
    pub(super) fn widened(self, factor: f64) -> Self {
        Self {
            low: self.low / factor,
            high: self.high * factor,
            ..self
        }
    }

    /// This axis, extended to include `values`.
    pub(super) fn with(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        for value in values {
            self.low = self.low.min(value);
            self.high = self.high.max(value);
        }
        self
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let span = self.to - self.from;
        let before = if self.zero { ZERO * span } else { 0.0 };
        if value <= 0.0 {
            return self.from;
        }
        let share = if self.high > self.low {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            0.5
        };
        self.from + before + share * (span - before)
    }

    /// Round numbers on the axis: powers of 10, with values between them if there are few.
    pub(super) fn decades(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = match decades {
            d if d < 1.2 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            d if d < 3.2 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all =
            (first..=last).flat_map(|power| steps.iter().map(move |s| s * 10_f64.powi(power)));
        let within = |tick: &f64| *tick >= self.low * 0.999 && *tick <= self.high * 1.001;
        all.filter(within).collect()
    }

    /// Powers of two on the axis, at most about eight.
    pub(super) fn powers_of_two(&self) -> Vec<f64> {
        let (first, last) = (
            self.low.log2().ceil() as i32,
            self.high.log2().floor() as i32,
        );
        let step = [1, 2, 3, 4, 5, 6, 10]
            .into_iter()
            .find(|step| (last - first) / step <= 8)
            .unwrap_or(20);
        let first = first.div_euclid(step) * step;
        let all = (first..=last)
            .step_by(step as usize)
            .map(|power| 2_f64.powi(power));
        all.filter(|tick| *tick >= self.low * 0.999).collect()
    }

    pub(super) fn has_zero(&self) -> bool {
        self.zero
    }
}

/// `1500` as `1.5k`; with powers of 1024 if `binary`.
pub(super) fn short(value: f64, binary: bool) -> String {
    let (base, units) = if binary {
        (1024.0, ["", " Ki", " Mi", " Gi"])
    } else {
        (1000.0, ["", " k", " M", " G"])
    };
    let mut value = value;
    let mut at = 0;
    while value >= base && at + 1 < units.len() {
        value /= base;
        at += 1;
    }
    let digits = format!("{value:.3}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{}", units[at])
}

/// The space that names beside a chart need: `usual`, or more if the longest name is longer.
pub(super) fn space<'a>(names: impl Iterator<Item = &'a str>, usual: f64) -> f64 {
    /// Width of a letter, on average, and of what is between a chart and its names.
    const LETTER: f64 = 6.4;
    const GAP: f64 = 17.0;
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    usual.max(GAP + LETTER * longest as f64)
}

/// Moves labels apart that would overlap; the order stays.
pub(super) fn spread(wanted: &[f64], height: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = wanted.to_vec();
    let mut least = low;
    for &at in &order {
        places[at] = places[at].max(least);
        least = places[at] + height;
    }
    // Labels that have been pushed below the lower edge move up again.
    let mut most = high;
    for &at in order.iter().rev() {
        places[at] = places[at].min(most);
        most = places[at] - height;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_places() {
        let scale = Scale::of([1.0, 100.0].into_iter(), 0.0, 10.0).unwrap();
        let places = [1.0, 10.0, 100.0].map(|value| scale.place(value).round());
        assert_eq!(places, [0.0, 5.0, 10.0]);
        assert_eq!(scale.decades(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let scale = Scale::of([0.0, 8.0, 4096.0].into_iter(), 0.0, 100.0).unwrap();
        assert!(scale.has_zero() && scale.place(0.0) < scale.place(8.0));
        assert_eq!(scale.powers_of_two()[..2], [16.0, 64.0]);
        assert!(Scale::of([0.0, f64::NAN].into_iter(), 0.0, 1.0).is_none());
    }

    #[test]
    fn numbers_are_short() {
        let sizes = [8.0, 1024.0, 65536.0, 4194304.0].map(|value| short(value, true));
        assert_eq!(sizes, ["8", "1 Ki", "64 Ki", "4 Mi"]);
        let counts = [0.05, 1000.0, 1.5e6].map(|value| short(value, false));
        assert_eq!(counts, ["0.05", "1 k", "1.5 M"]);
    }

    #[test]
    fn the_longest_name_has_its_space() {
        assert_eq!(space(["a", "b"].into_iter(), 190.0), 190.0);
        assert_eq!(space(std::iter::empty(), 60.0), 60.0);
        let long = "mpich-5.0.1@of-another-folder+nodevcoll";
        assert!(space(["a", long].into_iter(), 190.0) > 6.0 * long.len() as f64 + 17.0);
    }

    #[test]
    fn labels_do_not_stand_on_each_other() {
        let places = spread(&[5.0, 5.0, 90.0, 99.0], 10.0, 0.0, 100.0);
        assert_eq!(places, [5.0, 15.0, 90.0, 100.0]);
        let low = spread(&[99.0, 98.0, 97.0], 10.0, 0.0, 100.0);
        assert_eq!(low, [100.0, 90.0, 80.0]);
    }
}
