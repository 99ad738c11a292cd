//! Virtual time.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

use serde::{Deserialize, Serialize};

/// A moment or a length of virtual time, in whole picoseconds.
///
/// Moments count from the start of the machine. The unit is the picosecond, because a word of 8
/// bytes at 340 MB/s takes 23 529 of them; 64 bits of picoseconds are 213 days.
///
/// ```
/// use portolan_t3e_sim::Time;
///
/// let word = Time::of_bytes(8, 340.0);
/// assert_eq!(word, Time::from_ps(23_529));
/// assert_eq!((Time::from_ns(1500) + word).to_string(), "1.524 µs");
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(u64);

impl Time {
    /// The start of the machine, or a length of 0.
    pub const ZERO: Self = Self(0);
    /// A moment that is later than all others.
    pub const NEVER: Self = Self(u64::MAX);

    /// A time of so many picoseconds.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// A time of so many nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1000))
    }

    /// A time of so many microseconds, to the nearest picosecond; negative numbers and not-a-number
    /// count as 0.
    #[must_use]
    pub fn from_us(us: f64) -> Self {
        Self((us * 1e6).round() as u64)
    }

    /// A time of so many seconds, to the nearest picosecond; negative numbers and not-a-number
    /// count as 0.
    #[must_use]
    pub fn from_secs(secs: f64) -> Self {
        Self((secs * 1e12).round() as u64)
    }

    /// The time that `bytes` take at `rate` million bytes per second.
    #[must_use]
    pub fn of_bytes(bytes: usize, rate: f64) -> Self {
        Self((bytes as f64 * 1e6 / rate).round() as u64)
    }

    /// In picoseconds.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// In microseconds.
    #[must_use]
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In seconds.
    #[must_use]
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// The time from an earlier moment to this one; 0 if that moment is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// This time, stretched by a factor.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).round() as u64)
    }
}

impl Add for Time {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

impl Mul<u64> for Time {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            return f.write_str("never");
        }
        write!(f, "{:.3} µs", self.as_us())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::NEVER + Time::from_ns(1), Time::NEVER);
        assert_eq!(Time::from_ns(1) - Time::from_ns(2), Time::ZERO);
        assert_eq!(Time::from_us(-1.0), Time::ZERO);
        assert_eq!(Time::from_us(f64::NAN), Time::ZERO);
    }

    #[test]
    fn a_mebibyte_at_340_million_bytes_per_second() {
        assert_eq!(Time::of_bytes(1 << 20, 340.0).as_us().round(), 3084.0);
    }
}
