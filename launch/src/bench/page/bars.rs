//! One figure of each contender, as bars.

use std::fmt::Write;

use super::scale::{Scale, short, space};

/// One bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// The value in its printed form.
    pub(super) text: String,
}

/// Width of the bars' area, and of the space for usual names on its left.
const WIDTH: f64 = 460.0;
const NAMES: f64 = 190.0;
const RIGHT: f64 = 110.0;
const HEIGHT: f64 = 26.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 44.0;

/// The chart as SVG. The scale is linear, unless some bars are a hundred times longer than others.
pub(super) fn svg(title: &str, axis: &str, bars: &[Bar]) -> String {
    let most = bars
        .iter()
        .map(|bar| bar.high.max(bar.value))
        .fold(0.0, f64::max);
    let least = bars
        .iter()
        .map(|bar| bar.value)
        .fold(f64::INFINITY, f64::min);
    if bars.is_empty() || !most.is_finite() {
        return String::new();
    }
    let left = space(bars.iter().map(|bar| bar.name.as_str()), NAMES);
    let right = left + WIDTH;
    let logarithmic = least > 0.0 && most / least > 100.0;
    let scale = Scale::of([least / 2.0, most].into_iter(), left, right).filter(|_| logarithmic);
    let place = |value: f64| match &scale {
        Some(scale) => scale.place(value.max(least / 2.0)),
        None if most > 0.0 => left + value / most * (right - left),
        None => left,
    };
    let bottom = TOP + HEIGHT * bars.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {} {:.0}\" role=\"img\" aria-label=\"{title}\">\n",
        right + RIGHT,
        bottom + BOTTOM
    );
    let ticks = match &scale {
        Some(scale) => {
            let mut ticks = scale.decades();
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
            ticks
        }
        None => linear(most),
    };
    for tick in ticks {
        let at = place(tick);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom:.1}\"/>\
             <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            short(tick, false)
        );
    }
    for (at, bar) in bars.iter().enumerate() {
        let top = TOP + HEIGHT * at as f64;
        let (low, high, middle) = (place(bar.low), place(bar.high), top + HEIGHT / 2.0);
        let Bar {
            name, class, text, ..
        } = bar;
        let _ = writeln!(
            svg,
            "<text class=\"label {class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"{class}\" x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
            left - 8.0,
            middle + 4.0,
            top + 4.0,
            (place(bar.value) - left).max(1.0),
            HEIGHT - 8.0,
            place(bar.value.max(bar.high)) + 6.0,
            middle + 4.0,
        );
    }
    let _ = writeln!(
        svg,
        "<path class=\"axis\" d=\"M{left} {TOP}V{bottom:.1}H{right}\"/>\
         <text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{axis}</text>\n</svg>",
        (left + right) / 2.0,
        bottom + 36.0
    );
    svg
}

/// Round numbers from 0 to `most`.
fn linear(most: f64) -> Vec<f64> {
    if most <= 0.0 {
        return vec![0.0];
    }
    let raw = most / 5.0;
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|&step| step >= raw * 0.999)
        .unwrap_or(raw);
    (0..=(most / step) as u32)
        .map(|at| f64::from(at) * step)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64) -> Bar {
        Bar {
            name: "a".to_owned(),
            class: "c0".to_owned(),
            value,
            low: value,
            high: value,
            text: value.to_string(),
        }
    }

    #[test]
    fn every_bar_is_seen() {
        for values in [&[1.0, 2.0][..], &[0.0, 3.0], &[0.0], &[1.0, 5000.0]] {
            let bars: Vec<_> = values.iter().copied().map(bar).collect();
            let svg = svg("t", "x", &bars);
            assert_eq!(svg.matches("<rect").count(), values.len());
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        assert_eq!(svg("t", "x", &[]), "");
    }

    #[test]
    fn a_long_name_begins_within_the_picture() {
        let named = |name: &str| {
            let name = name.to_owned();
            let bars = [Bar { name, ..bar(1.0) }];
            let svg = svg("t", "x", &bars);
            let (_, rest) = svg.split_once("<rect class=\"c0\" x=\"").unwrap();
            let (left, _) = rest.split_once('"').unwrap();
            (left.parse::<f64>().unwrap(), svg)
        };
        let (left, svg) = named("a");
        assert_eq!(left, 190.0);
        assert!(svg.starts_with("<svg viewBox=\"0 0 760 78\""), "{svg}");
        assert!(named(&"a".repeat(40)).0 > 6.0 * 40.0);
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(linear(9.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(linear(0.0), [0.0]);
    }
}
