//! The distribution of the grid: the ranks' blocks, in rows and columns.

use std::ops::Range;

/// The ranks as a rectangle of blocks, numbered row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) down: u32,
    pub(super) across: u32,
}

/// The part of the grid that one rank has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

/// The four sides of a block, and the directions of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    North,
    South,
    West,
    East,
}

impl Side {
    pub(super) const ALL: [Self; 4] = [Self::North, Self::South, Self::West, Self::East];

    pub(super) fn opposite(self) -> Self {
        match self {
            Self::North => Self::South,
            Self::South => Self::North,
            Self::West => Self::East,
            Self::East => Self::West,
        }
    }
}

impl Blocks {
    /// The arrangement of `ranks` blocks that is nearest to a square.
    pub(super) fn new(ranks: u32) -> Self {
        let down = (1..=ranks.isqrt())
            .rev()
            .find(|down| ranks.is_multiple_of(*down))
            .unwrap_or(1);
        Self {
            down,
            across: ranks / down,
        }
    }

    /// The block of a rank in a grid of `size` × `size` points. Blocks differ by at most one row
    /// and one column.
    pub(super) fn block(self, rank: u32, size: usize) -> Block {
        let part = |index: u32, of: u32| {
            let cut = |index: u32| (size as u128 * u128::from(index) / u128::from(of)) as usize;
            cut(index)..cut(index + 1)
        };
        Block {
            rows: part(rank / self.across, self.down),
            columns: part(rank % self.across, self.across),
        }
    }

    /// The rank that has the block on this side of a rank's.
    pub(super) fn neighbour(self, rank: u32, side: Side) -> Option<u32> {
        let (row, column) = (rank / self.across, rank % self.across);
        match side {
            Side::North => (row > 0).then(|| rank - self.across),
            Side::South => (row + 1 < self.down).then(|| rank + self.across),
            Side::West => (column > 0).then(|| rank - 1),
            Side::East => (column + 1 < self.across).then(|| rank + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_are_as_square_as_can_be() {
        let shapes = [1, 2, 3, 4, 5, 6, 8, 12].map(|ranks| {
            let blocks = Blocks::new(ranks);
            (blocks.down, blocks.across)
        });
        let expected = [
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 2),
            (1, 5),
            (2, 3),
            (2, 4),
            (3, 4),
        ];
        assert_eq!(shapes, expected);
    }

    #[test]
    fn every_point_has_one_rank() {
        for (ranks, size) in [(1, 1), (4, 7), (6, 10), (5, 5), (12, 31)] {
            let blocks = Blocks::new(ranks);
            let mut owners = vec![0; size * size];
            for block in (0..ranks).map(|rank| blocks.block(rank, size)) {
                assert!(!block.rows.is_empty() && !block.columns.is_empty());
                for row in block.rows {
                    let columns = block.columns.clone();
                    owners[row * size..][columns]
                        .iter_mut()
                        .for_each(|n| *n += 1);
                }
            }
            assert!(owners.iter().all(|&n| n == 1), "{ranks} ranks, size {size}");
        }
    }

    #[test]
    fn neighbours_know_each_other() {
        for ranks in 1..=12 {
            let blocks = Blocks::new(ranks);
            let pairs = (0..ranks).flat_map(|rank| Side::ALL.map(|side| (rank, side)));
            for (rank, side) in pairs {
                if let Some(other) = blocks.neighbour(rank, side) {
                    assert_eq!(blocks.neighbour(other, side.opposite()), Some(rank));
                }
            }
        }
    }
}
