//! The plate before and after, side by side, as a PNG.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Colours from the coldest to the warmest place, at equal distances.
const COLOURS: [[u8; 3]; 9] = [
    [10, 7, 46],
    [41, 17, 107],
    [96, 24, 128],
    [152, 40, 116],
    [203, 63, 87],
    [238, 102, 53],
    [251, 153, 28],
    [248, 208, 74],
    [253, 250, 206],
];

/// Lines of equal temperature between the coldest and the warmest place.
const ISOTHERMS: f64 = 12.0;

const PAPER: [u8; 3] = [255, 255, 255];

/// Values on the whole grid, row by row, at the beginning and at the end.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// Points in each direction.
    pub size: usize,
    /// Before the first step.
    pub start: Vec<f64>,
    /// After the last.
    pub end: Vec<f64>,
}

impl Field {
    /// Writes the picture: before and after, on the same scale of colours, with lines of equal
    /// temperature. Small grids are enlarged.
    ///
    /// # Errors
    /// If the file cannot be written, with its name.
    pub fn write_png(&self, path: &Path) -> Result<(), PictureError> {
        let file = File::create(path).map_err(|error| PictureError::new(path, error))?;
        self.encode(BufWriter::new(file))
            .map_err(|error| PictureError::new(path, error.into()))
    }

    fn encode(&self, to: impl Write) -> Result<(), png::EncodingError> {
        // Panels have at least 384 pixels a side; larger grids are not enlarged.
        let zoom = 384usize.div_ceil(self.size).max(1);
        let panel = self.size * zoom;
        let margin = panel / 32;
        let (width, height) = (2 * panel + 3 * margin, panel + 2 * margin);
        let mut image = PAPER.repeat(width * height);
        let scale = Scale::of(&self.start);
        for (number, values) in [&self.start, &self.end].into_iter().enumerate() {
            let left = margin + number * (panel + margin);
            let panel = Panel {
                size: self.size,
                zoom,
                values,
                scale: &scale,
            };
            for y in 0..panel.side() {
                let begin = 3 * ((margin + y) * width + left);
                let row = &mut image[begin..begin + 3 * panel.side()];
                for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
                    pixel.copy_from_slice(&panel.colour(x, y));
                }
            }
        }
        let side = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let mut encoder = png::Encoder::new(to, side(width), side(height));
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&image)?;
        writer.finish()
    }
}

/// One of the two squares of the picture.
struct Panel<'a> {
    size: usize,
    /// Pixels per point, in each direction.
    zoom: usize,
    values: &'a [f64],
    scale: &'a Scale,
}

impl Panel<'_> {
    /// Pixels in each direction.
    fn side(&self) -> usize {
        self.size * self.zoom
    }

    /// The colour of a pixel; darker where an isotherm lies between this pixel and the next.
    fn colour(&self, x: usize, y: usize) -> [u8; 3] {
        let here = self.place(x, y);
        let band = |place: f64| (place * ISOTHERMS).floor();
        let colour = ramp(here);
        if [self.place(x + 1, y), self.place(x, y + 1)].map(band) != [band(here); 2] {
            return colour.map(|channel| (f64::from(channel) * 0.72) as u8);
        }
        colour
    }

    /// The position of a pixel's temperature on the scale, interpolated between the points.
    fn place(&self, x: usize, y: usize) -> f64 {
        let ((left, right, across), (above, below, down)) = (self.between(x), self.between(y));
        let row = |y: usize| {
            let (left, right) = (
                self.values[y * self.size + left],
                self.values[y * self.size + right],
            );
            left + across * (right - left)
        };
        let (above, below) = (row(above), row(below));
        self.scale.place(above + down * (below - above))
    }

    /// The points on either side of a pixel, and how far it is from the first to the second.
    fn between(&self, pixel: usize) -> (usize, usize, f64) {
        let last = self.size - 1;
        let at = (pixel as f64 + 0.5) / self.zoom as f64 - 0.5;
        let at = at.clamp(0.0, last as f64);
        (at as usize, (at as usize + 1).min(last), at.fract())
    }
}

/// Temperatures from the coldest to the warmest.
struct Scale {
    low: f64,
    width: f64,
}

impl Scale {
    fn of(values: &[f64]) -> Self {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self {
            low,
            width: (high - low).max(f64::MIN_POSITIVE),
        }
    }

    /// The position of a value: 0 for the coldest, 1 for the warmest.
    fn place(&self, value: f64) -> f64 {
        ((value - self.low) / self.width).clamp(0.0, 1.0)
    }
}

/// The colour at a place between 0 and 1.
fn ramp(place: f64) -> [u8; 3] {
    let along = place * (COLOURS.len() - 1) as f64;
    let below = (along as usize).min(COLOURS.len() - 2);
    let part = along - below as f64;
    std::array::from_fn(|channel| {
        let (from, to) = (COLOURS[below][channel], COLOURS[below + 1][channel]);
        (f64::from(from) + part * (f64::from(to) - f64::from(from))).round() as u8
    })
}

/// The picture could not be written.
#[derive(Debug)]
pub struct PictureError {
    path: PathBuf,
    error: io::Error,
}

impl PictureError {
    fn new(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        Self { path, error }
    }
}

impl fmt::Display for PictureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, error } = self;
        let path = path.display();
        write!(
            f,
            "cannot write `{path}`: {error}; give a file that can be written with --output"
        )
    }
}

impl std::error::Error for PictureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_begins_and_ends_where_it_should() {
        assert_eq!(ramp(0.0), COLOURS[0]);
        assert_eq!(ramp(1.0), COLOURS[8]);
        assert_eq!(ramp(0.5), COLOURS[4]);
        assert_eq!(ramp(0.0625), [26, 12, 77]);
    }

    #[test]
    fn the_picture_has_both_fields_on_one_scale() {
        let field = Field {
            size: 2,
            start: vec![0.0, 1.0, 0.0, 1.0],
            end: vec![0.5; 4],
        };
        let mut file = Vec::new();
        field.encode(&mut file).unwrap();
        let mut reader = png::Decoder::new(io::Cursor::new(file))
            .read_info()
            .unwrap();
        let mut image = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut image).unwrap();
        // Panels of 2 · 192, margins of a 32nd of that.
        assert_eq!((info.width, info.height), (2 * 384 + 3 * 12, 384 + 2 * 12));
        let pixel = |x: usize, y: usize| &image[3 * (y * info.width as usize + x)..][..3];
        assert_eq!(pixel(0, 0), PAPER);
        assert_eq!(pixel(12 + 383, 20), COLOURS[8]);
        assert_eq!(pixel(12 + 384 + 12, 12), COLOURS[4]);
    }

    #[test]
    fn an_error_names_the_file_and_says_what_to_do() {
        let field = Field {
            size: 1,
            start: vec![0.0],
            end: vec![0.0],
        };
        let path = Path::new("/proc/no/such/folder/heat.png");
        let text = field.write_png(path).unwrap_err().to_string();
        assert!(text.contains("`/proc/no/such/folder/heat.png`"), "{text}");
        assert!(text.contains("--output"), "{text}");
    }
}
