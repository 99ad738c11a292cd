//! Which ranks talk to each other.

/// A rank's part in a pattern of pairs.
///
/// ```
/// use portolan_benches::Role;
///
/// assert_eq!(Role::of(0, 4), Role::Starts { peer: 2 });
/// assert_eq!(Role::of(3, 4), Role::Answers { peer: 1 });
/// assert_eq!(Role::of(4, 5), Role::Rests);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The rank starts, and measures the time.
    Starts {
        /// The rank that answers.
        peer: u32,
    },
    /// The rank answers.
    Answers {
        /// The rank that starts.
        peer: u32,
    },
    /// The rank without a partner, if the number of ranks is odd.
    Rests,
}

impl Role {
    /// Each rank of the first half starts and has its own partner in the second half, in the order
    /// of OSU's `osu_mbw_mr`.
    #[must_use]
    pub fn of(rank: u32, size: u32) -> Self {
        let half = size / 2;
        match rank {
            r if r < half => Self::Starts { peer: r + half },
            r if r < 2 * half => Self::Answers { peer: r - half },
            _ => Self::Rests,
        }
    }

    /// The partner.
    #[must_use]
    pub fn peer(self) -> Option<u32> {
        match self {
            Self::Starts { peer } | Self::Answers { peer } => Some(peer),
            Self::Rests => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_one_partner_and_an_odd_one_rests() {
        for size in 2..9 {
            let mut resting = 0;
            for rank in 0..size {
                match Role::of(rank, size) {
                    Role::Starts { peer } => {
                        assert_eq!(Role::of(peer, size), Role::Answers { peer: rank });
                    }
                    Role::Answers { peer } => {
                        assert_eq!(Role::of(peer, size), Role::Starts { peer: rank });
                    }
                    Role::Rests => resting += 1,
                }
            }
            assert_eq!(resting, size % 2);
        }
    }
}
