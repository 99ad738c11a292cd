//! The pattern and its spectrum as a PNG.

use std::fmt;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// A picture that could not be written.
#[derive(Debug)]
pub struct PictureError {
    path: PathBuf,
    why: String,
}

impl fmt::Display for PictureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(
            f,
            "cannot write `{path}`: {}; give another --output",
            self.why
        )
    }
}

impl std::error::Error for PictureError {}

/// Points between the two squares and around them.
const MARGIN: usize = 12;
const PAPER: u8 = 255;

/// Writes two squares side by side. Small ones are enlarged.
pub(super) fn write(
    path: &Path,
    size: usize,
    fields: Option<&[Vec<f64>; 2]>,
) -> Result<(), PictureError> {
    let failed = |why: String| PictureError {
        path: path.to_owned(),
        why,
    };
    let fields = fields.ok_or_else(|| failed("only rank 0 has the whole picture".to_owned()))?;
    let zoom = 384usize.div_ceil(size).max(1);
    let side = size * zoom;
    let (width, height) = (2 * side + 3 * MARGIN, side + 2 * MARGIN);
    let mut image = vec![PAPER; width * height];
    for (number, field) in fields.iter().enumerate() {
        let left = MARGIN + number * (side + MARGIN);
        let low = field.iter().copied().fold(f64::INFINITY, f64::min);
        let high = field.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let width_of_scale = (high - low).max(f64::MIN_POSITIVE);
        for y in 0..side {
            let row = &mut image[(MARGIN + y) * width + left..][..side];
            for (x, grey) in row.iter_mut().enumerate() {
                let value = field[y / zoom * size + x / zoom];
                *grey = (255.0 * (value - low) / width_of_scale) as u8;
            }
        }
    }
    let file = File::create(path).map_err(|error| failed(error.to_string()))?;
    let pixels = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let mut encoder = png::Encoder::new(BufWriter::new(file), pixels(width), pixels(height));
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&image)?;
        writer.finish()
    });
    written.map_err(|error| failed(error.to_string()))
}
