//! Curves over sizes, as a chart in a page.

use std::fmt::Write;

use super::scale::{Scale, short, spread};

/// One curve.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    /// The class in the page's style that draws the curve: `c0`, `c1` and so on, or `limit`.
    pub(super) class: String,
    /// In ascending order, as [`Curve::new`] brings them.
    pub(super) points: Vec<Point>,
}

impl Curve {
    /// A curve through points, which may be in any order: sizes are measured as they were named.
    pub(super) fn new(name: String, class: String, mut points: Vec<Point>) -> Self {
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        Self {
            name,
            class,
            points,
        }
    }
}

/// A value, and the quartiles around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The contents of a chart.
#[derive(Clone, Debug)]
pub(super) struct Chart<'a> {
    /// The text alternative for readers who cannot see the chart.
    pub(super) title: &'a str,
    pub(super) x_name: &'a str,
    pub(super) y_name: &'a str,
    /// Whether the sizes are lengths, whose axis has powers of two.
    pub(super) binary: bool,
    pub(super) curves: &'a [Curve],
    /// Width of the chart, and of the space for the curves' names on its right.
    pub(super) width: f64,
    pub(super) names: f64,
    /// A value at which a line is drawn, such as 1 for ratios, and values that must be within the
    /// axis.
    pub(super) line: Option<f64>,
}

/// The remaining measures of the chart, in the unit of the width.
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 58.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 48.0;
/// Distance between two labels.
const LABEL: f64 = 15.0;

impl Chart<'_> {
    /// The chart as SVG; empty if there is nothing to show.
    pub(super) fn svg(&self) -> String {
        let (right, bottom) = (self.width - self.names, HEIGHT - BOTTOM);
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let x = Scale::of(points().map(|point| point.x), LEFT + 8.0, right);
        let y = Scale::of(points().flat_map(|p| [p.low, p.y, p.high]), bottom, TOP);
        let (Some(x), Some(y)) = (x, y) else {
            return String::new();
        };
        let y = y.with(self.line).widened(1.15);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            self.width, self.title
        );
        self.axes(&mut svg, &x, &y);
        for curve in self.curves {
            self.draw(&mut svg, curve, &x, &y);
        }
        self.labels(&mut svg, &y);
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (right, bottom) = (self.width - self.names, HEIGHT - BOTTOM);
        for tick in y.decades() {
            let at = y.place(tick);
            let label = short(tick, false);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 7.0,
                at + 4.0
            );
        }
        let mut ticks = if self.binary {
            x.powers_of_two()
        } else {
            x.decades()
        };
        if !self.binary {
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
        }
        if x.has_zero() {
            ticks.push(0.0);
        }
        for tick in ticks {
            let at = x.place(tick);
            let label = short(tick, self.binary);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/>\
                 <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                bottom + 18.0
            );
        }
        if let Some(line) = self.line {
            let at = y.place(line);
            let _ = writeln!(svg, "<path class=\"one\" d=\"M{LEFT} {at:.1}H{right}\"/>");
        }
        let (middle_x, middle_y) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text class=\"name\" x=\"{middle_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"name\" transform=\"translate(14 {middle_y:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - 8.0,
            self.x_name,
            self.y_name
        );
    }

    /// The names of the curves, at the curves' right ends.
    fn labels(&self, svg: &mut String, y: &Scale) {
        let right = self.width - self.names;
        let shown = || {
            self.curves
                .iter()
                .filter_map(|curve| Some((curve, curve.points.last()?)))
        };
        let ends: Vec<f64> = shown().map(|(_, last)| y.place(last.y)).collect();
        let places = spread(&ends, LABEL, TOP + 4.0, HEIGHT - BOTTOM);
        for (((curve, _), end), place) in shown().zip(ends).zip(places) {
            let _ = writeln!(
                svg,
                "<path class=\"leader\" d=\"M{:.1} {end:.1}L{:.1} {place:.1}\"/>\
                 <text class=\"label {}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                right + 4.0,
                right + 14.0,
                curve.class,
                right + 17.0,
                place + 4.0,
                curve.name
            );
        }
    }

    /// A curve, its quartiles, and the tooltip of each point.
    fn draw(&self, svg: &mut String, curve: &Curve, x: &Scale, y: &Scale) {
        let place = |point: &Point| (x.place(point.x), y.place(point.y));
        let mut path = String::new();
        for (at, point) in curve.points.iter().enumerate() {
            let (left, top) = place(point);
            let _ = write!(
                path,
                "{}{left:.1} {top:.1}",
                if at == 0 { 'M' } else { 'L' }
            );
        }
        let class = &curve.class;
        let _ = writeln!(svg, "<path class=\"curve {class}\" d=\"{path}\"/>");
        if class == "limit" {
            return;
        }
        for point in &curve.points {
            let (left, top) = place(point);
            let (low, high) = (y.place(point.low), y.place(point.high));
            let size = short(point.x, self.binary);
            let _ = writeln!(
                svg,
                "<path class=\"spread {class}\" d=\"M{left:.1} {low:.1}V{high:.1}\"/>\
                 <circle class=\"{class}\" cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"2.6\">\
                 <title>{}, {size}: {:.4}</title></circle>",
                curve.name, point.y
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(ys: &[f64]) -> Curve {
        let point = |(at, &y): (usize, &f64)| Point {
            x: 8.0 * 8_f64.powi(at as i32),
            y,
            low: y,
            high: y,
        };
        Curve {
            name: "a".to_owned(),
            class: "c0".to_owned(),
            points: ys.iter().enumerate().map(point).collect(),
        }
    }

    #[test]
    fn a_picture_has_its_curves_within_it() {
        let curves = [curve(&[0.1, 1.0, 30.0]), curve(&[0.2, 2.0])];
        let chart = Chart {
            title: "t",
            x_name: "x",
            y_name: "y",
            binary: true,
            curves: &curves,
            width: 600.0,
            names: 150.0,
            line: Some(1.0),
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("class=\"curve c0\"").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let empty = Chart {
            curves: &[],
            ..chart
        };
        assert_eq!(empty.svg(), "");
    }

    #[test]
    fn a_curve_goes_from_left_to_right() {
        let straight = curve(&[0.1, 1.0, 30.0]);
        let (name, class) = (straight.name.clone(), straight.class.clone());
        let mut points = straight.points.clone();
        points.rotate_left(1);
        let turned = Curve::new(name, class, points);
        assert_eq!(turned.points, straight.points);
    }

    #[test]
    fn numbers_that_are_no_sizes_have_no_powers_of_two() {
        let mut waiting = curve(&[1.0]);
        waiting.points[0].x = 100_000.0;
        let told = |binary| {
            let chart = Chart {
                title: "t",
                x_name: "x",
                y_name: "y",
                binary,
                curves: std::slice::from_ref(&waiting),
                width: 600.0,
                names: 150.0,
                line: None,
            };
            chart.svg()
        };
        assert!(told(false).contains("<title>a, 100 k: 1.0000</title>"));
        assert!(told(true).contains("<title>a, 97.656 Ki: 1.0000</title>"));
    }
}
