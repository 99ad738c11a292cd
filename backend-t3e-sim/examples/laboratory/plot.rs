//! Pictures.

use std::error::Error;
use std::path::Path;

pub(crate) use plotters::prelude::SeriesLabelPosition;
use plotters::prelude::*;

/// One line of a picture.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether the line is dashed: published by others or fitted, and not measured here.
    pub(crate) published: bool,
}

/// The labels of the axes.
pub(crate) struct Axes {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// The corner for the legend, which the curves leave free.
    pub(crate) legend: SeriesLabelPosition,
}

/// Draws curves over two logarithmic axes into an SVG file.
pub(crate) fn draw(path: &Path, axes: &Axes, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    let all = || curves.iter().flat_map(|curve| curve.points.iter().copied());
    let range = |value: fn(&(f64, f64)) -> f64| {
        let least = all().map(|p| value(&p)).fold(f64::MAX, f64::min);
        let most = all().map(|p| value(&p)).fold(f64::MIN, f64::max);
        (least * 0.8, most * 1.4)
    };
    let ((left, right), (bottom, top)) = (range(|p| p.0), range(|p| p.1));
    let root = SVGBackend::new(path, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(axes.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((left..right).log_scale(), (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&short)
        .y_label_formatter(&short)
        .light_line_style(WHITE)
        .draw()?;
    for (number, curve) in curves.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let style = colour.stroke_width(2);
        let points = curve.points.iter().copied();
        let series = if curve.published {
            chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?
        } else {
            chart.draw_series(LineSeries::new(points, style).point_size(2))?
        };
        series
            .label(&*curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
    }
    chart
        .configure_series_labels()
        .position(axes.legend.clone())
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

/// 1024 as `1k`, 0.5 as `0.5`.
fn short(value: &f64) -> String {
    match *value {
        v if v >= 1e6 => format!("{:.0}M", v / 1e6),
        v if v >= 1e3 => format!("{:.0}k", v / 1e3),
        v if v >= 1.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}
