//! The picture of `fft2`: a pattern on the left, and on the right the logarithm of its spectrum
//! with frequency 0 in the middle.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use libtest_mimic::Failed;

/// Points in each direction.
pub(crate) const SIZE: usize = 97;
/// Pixels of a point in each direction, around the two squares, and in a row.
const ZOOM: usize = 4;
const MARGIN: usize = 12;
const WIDTH: usize = 2 * ZOOM * SIZE + 3 * MARGIN;
const HEIGHT: usize = ZOOM * SIZE + 2 * MARGIN;

/// Checks the picture, as far as it is known what is in it.
pub(crate) fn check(path: &Path) -> Result<(), Failed> {
    let greys = &decoded(path)?;
    let square = |number: usize| {
        let left = MARGIN + number * (ZOOM * SIZE + MARGIN);
        move |x: usize, y: usize| i32::from(greys[(MARGIN + ZOOM * y) * WIDTH + left + ZOOM * x])
    };
    check_pattern(square(0));
    check_spectrum(square(1));
    Ok(())
}

/// The pixels, row by row.
fn decoded(path: &Path) -> Result<Vec<u8>, Failed> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
    let size = reader.info().size();
    assert_eq!(size, (WIDTH as u32, HEIGHT as u32));
    let mut greys = vec![0; WIDTH * HEIGHT];
    let frame = reader.next_frame(&mut greys)?;
    assert_eq!(frame.buffer_size(), greys.len(), "a byte for each pixel");
    Ok(greys)
}

/// The point at these parts of the width and of the height.
fn at(x: f64, y: f64) -> (usize, usize) {
    [x, y].map(|part| (part * SIZE as f64) as usize).into()
}

/// A disc of 0.6 and a bar of 0.8 on a grating of 0 to 0.2. The bar with the brightest lines of the
/// grating is white.
fn check_pattern(grey: impl Fn(usize, usize) -> i32) {
    for ((x, y), greys) in [
        (at(0.35, 0.4), 150..=206),
        (at(0.3, 0.5), 150..=206),
        (at(0.7, 0.5), 201..=255),
        (at(0.6, 0.7), 201..=255),
        (at(0.1, 0.1), 0..=53),
        (at(0.9, 0.9), 0..=53),
        (at(0.6, 0.4), 0..=53),
    ] {
        let found = grey(x, y);
        assert!(greys.contains(&found), "{found} at {x}, {y}");
    }
}

/// The spectrum of a pattern of real numbers, all of which are positive.
fn check_spectrum(grey: impl Fn(usize, usize) -> i32) {
    let middle = SIZE / 2;
    let points = (0..SIZE).flat_map(|y| (0..SIZE).map(move |x| (x, y)));
    let brightest: Vec<_> = points.clone().filter(|&(x, y)| grey(x, y) == 255).collect();
    assert_eq!(brightest, [(middle, middle)], "the mean is the largest");
    for (x, y) in points {
        let opposite = grey(SIZE - 1 - x, SIZE - 1 - y);
        let differ = grey(x, y) - opposite;
        assert!(differ.abs() <= 1, "{differ} at {x}, {y}");
    }
    // The grating has 12 lines across and 20 down: a peak among weaker frequencies.
    let (across, down) = (middle + 12, middle + 20);
    let peak = grey(across, down);
    for (x, y) in (0..81).map(|number| (across + number % 9 - 4, down + number / 9 - 4)) {
        let found = grey(x, y);
        assert!(
            (x, y) == (across, down) || found + 20 < peak,
            "{found} at {x}, {y}, near {peak}"
        );
    }
}
