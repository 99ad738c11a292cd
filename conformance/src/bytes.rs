//! Contents of messages, and sizes worth testing.

use portolan_core::transport::decorate::Random;

/// `len` bytes determined by `seed`; those of other seeds differ almost everywhere.
#[must_use]
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut words = words(seed);
    while bytes.len() < len {
        bytes.extend_from_slice(&words());
    }
    bytes.truncate(len);
    bytes
}

fn words(seed: u64) -> impl FnMut() -> [u8; 8] {
    let mut random = Random::new(seed);
    move || random.bits().to_le_bytes()
}

/// Asserts that `bytes` is what [`content`] gives, without printing megabytes.
///
/// # Panics
/// If it is not; the message says where.
#[track_caller]
pub fn check(bytes: &[u8], seed: u64, what: &str) {
    let mut words = words(seed);
    for (part, number) in bytes.chunks(8).zip(0..) {
        let expected = words();
        if *part == expected[..part.len()] {
            continue;
        }
        let at = part.iter().zip(&expected).position(|(a, b)| a != b);
        let at = at.unwrap_or(part.len());
        let (found, wanted, len) = (part[at], expected[at], bytes.len());
        let at = at + 8 * number;
        panic!("{what}: byte {at} of {len} is {found:#04x}, not {wanted:#04x} (seed {seed})");
    }
}

/// Seed of a message from one rank to another.
#[must_use]
pub fn seed(from: u32, to: u32, number: usize) -> u64 {
    u64::from(from) << 48 ^ u64::from(to) << 32 ^ number as u64
}

/// Sizes around every limit that a transport may have: powers of two and the device's own limits,
/// each with its neighbours.
#[must_use]
pub fn sizes(eager_max: usize) -> Vec<usize> {
    let mut sizes = vec![0, 1, 3, 7, 24, 40, 96, 192, 5000, 3 << 14];
    sizes.extend((3..=18).map(|bit| 1 << bit));
    sizes.extend([eager_max, eager_max * 2, (1 << 20) + 5]);
    let mut around: Vec<_> = sizes
        .iter()
        .flat_map(|&n| [n.saturating_sub(1), n, n + 1])
        .collect();
    around.sort_unstable();
    around.dedup();
    around
}
