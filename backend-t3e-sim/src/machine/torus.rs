//! The shape of the machine: a bidirectional torus of three dimensions.

use std::fmt;

use portolan_core::{Error, ErrorKind, Result};

/// Longest side that is supported; the largest machine built had 2,176 nodes.
const LONGEST: u32 = 32;

/// Nodes along each of the three dimensions.
///
/// ```
/// use portolan_t3e_sim::Torus;
///
/// let torus = Torus::fitting(512)?;
/// assert_eq!(torus.to_string(), "8x8x8");
/// assert_eq!(torus.hops(0, 511), 3); // one step back in every dimension
/// # Ok::<(), portolan_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torus {
    sides: [u32; 3],
}

/// One of the six directions in which a node has a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Direction {
    /// The dimension, 0 to 2.
    pub dimension: u8,
    /// Whether the direction is towards smaller coordinates.
    pub negative: bool,
}

impl Direction {
    /// All directions, in the order in which packets take them: all positive ones first.
    pub const ORDER: [Self; 6] = [
        Self::new(0, false),
        Self::new(1, false),
        Self::new(2, false),
        Self::new(0, true),
        Self::new(1, true),
        Self::new(2, true),
    ];

    const fn new(dimension: u8, negative: bool) -> Self {
        Self {
            dimension,
            negative,
        }
    }

    /// The place of this direction in [`ORDER`](Self::ORDER).
    #[must_use]
    pub const fn index(self) -> usize {
        self.dimension as usize + if self.negative { 3 } else { 0 }
    }

    /// Reads `+x` to `-z`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ORDER.into_iter().find(|d| d.to_string() == text)
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { '-' } else { '+' };
        write!(f, "{sign}{}", ['x', 'y', 'z'][self.dimension as usize])
    }
}

impl Torus {
    /// The torus of exactly `pes` nodes whose sides differ the least.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if no such torus has sides of at most 32.
    pub fn fitting(pes: u32) -> Result<Self> {
        let best = shapes(pes).min_by_key(|sides| (sides.iter().sum::<u32>(), *sides));
        best.map(|sides| Self { sides }).ok_or_else(|| {
            let fits = |n: &u32| shapes(*n).next().is_some();
            let below = (1..pes).rev().find(fits);
            let above = (pes + 1..=LONGEST.pow(3)).find(fits);
            let near: Vec<_> = [below, above]
                .iter()
                .flatten()
                .map(u32::to_string)
                .collect();
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{pes} PEs fit no torus with sides of at most {LONGEST} nodes"),
            )
            .remedy(format!(
                "start {} PEs, or leave nodes empty with PORTOLAN_T3E_TORUS=XxYxZ",
                near.join(" or ")
            ))
            .on_device("t3e-sim")
        })
    }

    /// Reads a text such as `8x8x4`, and checks that `pes` PEs fit; nodes may stay empty.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if the text is not three sides, a side is
    /// longer than 32, or there are fewer nodes than PEs.
    pub fn parse(text: &str, pes: u32) -> Result<Self> {
        let bad = |what: String| {
            Error::new(ErrorKind::InvalidSetting, what)
                .remedy("set PORTOLAN_T3E_TORUS to three sides such as 8x8x4, or unset it")
                .on_device("t3e-sim")
        };
        let sides: Option<Vec<u32>> = text.split('x').map(|side| side.parse().ok()).collect();
        let sides: [u32; 3] = sides
            .and_then(|sides| sides.try_into().ok())
            .filter(|sides: &[u32; 3]| sides.iter().all(|side| (1..=LONGEST).contains(side)))
            .ok_or_else(|| {
                bad(format!(
                    "`{text}` is not a torus with sides of 1 to {LONGEST}"
                ))
            })?;
        let torus = Self { sides };
        if torus.nodes() < pes {
            let nodes = torus.nodes();
            return Err(bad(format!(
                "a torus of {text} has {nodes} nodes, too few for {pes} PEs"
            )));
        }
        Ok(torus)
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.sides.iter().product()
    }

    /// Hops between two nodes, by the shortest way.
    #[must_use]
    pub fn hops(&self, from: u32, to: u32) -> u32 {
        (0..3).map(|d| self.steps(from, to, d).1).sum()
    }

    /// Hops between the two nodes that are farthest from each other.
    #[must_use]
    pub fn diameter(&self) -> u32 {
        self.sides.iter().map(|side| side / 2).sum()
    }

    /// The neighbour of a node.
    #[must_use]
    pub fn neighbour(&self, node: u32, direction: Direction) -> u32 {
        let d = direction.dimension as usize;
        let side = self.sides[d];
        let place = self.place(node)[d];
        let step = if direction.negative { side - 1 } else { 1 };
        let weight: u32 = self.sides[..d].iter().product();
        node - place * weight + (place + step) % side * weight
    }

    /// The directions that bring a packet nearer to its target, in the order of
    /// [`Direction::ORDER`]. Where both ways around are equally long, only the positive one counts.
    pub fn productive(&self, from: u32, to: u32) -> impl Iterator<Item = Direction> + use<> {
        let steps = [0, 1, 2].map(|d| self.steps(from, to, d));
        Direction::ORDER.into_iter().filter(move |direction| {
            let (negative, steps) = steps[direction.dimension as usize];
            steps > 0 && negative == direction.negative
        })
    }

    /// Whether the way along one dimension is negative, and how many hops it has.
    fn steps(&self, from: u32, to: u32, dimension: usize) -> (bool, u32) {
        let side = self.sides[dimension];
        let forth = (self.place(to)[dimension] + side - self.place(from)[dimension]) % side;
        let back = side - forth;
        if forth <= back {
            (false, forth)
        } else {
            (true, back)
        }
    }

    /// Coordinates of a node.
    fn place(&self, node: u32) -> [u32; 3] {
        let [x, y, _] = self.sides;
        [node % x, node / x % y, node / (x * y)]
    }
}

/// All ways of writing `n` as a product of three sides, the longest first.
fn shapes(n: u32) -> impl Iterator<Item = [u32; 3]> {
    let divisors = move |n: u32| (1..=LONGEST.min(n)).filter(move |d| n.is_multiple_of(*d));
    divisors(n).flat_map(move |z| {
        divisors(n / z).filter_map(move |y| {
            let x = n / z / y;
            (x >= y && y >= z && x <= LONGEST).then_some([x, y, z])
        })
    })
}

impl fmt::Display for Torus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.sides;
        write!(f, "{x}x{y}x{z}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_alike() {
        for (pes, shape) in [
            (1, "1x1x1"),
            (2, "2x1x1"),
            (5, "5x1x1"),
            (8, "2x2x2"),
            (1024, "16x8x8"),
            (2048, "16x16x8"),
            (2176, "17x16x8"),
        ] {
            assert_eq!(Torus::fitting(pes).unwrap().to_string(), shape);
        }
    }

    #[test]
    fn a_count_that_fits_no_torus_is_refused_with_the_nearest_that_do() {
        let error = Torus::fitting(2053).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains("2053 PEs fit no torus"), "{text}");
        assert!(text.contains("start 2052 or 2057 PEs"), "{text}");
    }

    #[test]
    fn a_shape_that_is_given_is_checked() {
        assert_eq!(Torus::parse("3x2x1", 5).unwrap().nodes(), 6);
        for wrong in ["3x2", "0x1x1", "33x1x1", "axbxc", "2x2x1"] {
            let error = Torus::parse(wrong, 5).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{wrong}");
        }
    }

    #[test]
    fn every_way_ends_where_it_should_and_has_as_many_hops_as_it_says() {
        let torus = Torus::parse("4x3x2", 24).unwrap();
        for from in 0..24 {
            for to in 0..24 {
                let (mut at, mut hops) = (from, 0);
                while let Some(direction) = torus.productive(at, to).next() {
                    at = torus.neighbour(at, direction);
                    hops += 1;
                }
                assert_eq!((at, hops), (to, torus.hops(from, to)));
            }
        }
    }

    #[test]
    fn positive_directions_come_first() {
        let torus = Torus::parse("8x8x8", 512).unwrap();
        // From (0, 0, 0) to (7, 1, 0): one step back in x, one forward in y.
        let way: Vec<_> = torus.productive(0, 15).map(|d| d.to_string()).collect();
        assert_eq!(way, ["+y", "-x"]);
        assert_eq!(Direction::parse("-z"), Some(Direction::ORDER[5]));
        assert_eq!(Direction::parse("z"), None);
    }
}
