//! Trees of any radix. On each level a rank has up to radix - 1 children. So there are fewer rounds
//! than in a binomial tree, which has radix 2, and more messages in each.

/// Name of the algorithms whose radix a rule may set.
pub(crate) const NAME: &str = "knomial";

/// The radix, unless a rule sets another.
pub(crate) const RADIX: u32 = 4;

/// Largest radix that a rule may set.
pub(crate) const MOST: u32 = 1 << 16;

/// A rank's place in a tree: for broadcasts downwards, for reductions upwards.
///
/// Places count from the root, wrapping around. With places written in base radix, a place's parent
/// is the place with its lowest nonzero digit set to 0. So the places below a place are those that
/// follow it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Knomial {
    place: u64,
    size: u64,
    root: u64,
    radix: u64,
}

impl Knomial {
    /// The place of `rank` among `size` in the tree of `root`.
    pub(super) fn new(rank: u32, size: u32, root: u32, radix: u32) -> Self {
        let (rank, size, root) = (u64::from(rank), u64::from(size), u64::from(root));
        Self {
            place: (rank + size - root) % size,
            size,
            root,
            radix: u64::from(radix.max(2)),
        }
    }

    /// The rank above; `None` for the root.
    pub(super) fn parent(&self) -> Option<u32> {
        let weight = self.weight();
        (self.place != 0).then(|| self.rank_at(self.place - self.place % (weight * self.radix)))
    }

    /// The ranks directly below, level by level; those with the most ranks below them come first.
    pub(super) fn children(&self) -> impl Iterator<Item = u32> + use<> {
        let tree = *self;
        let levels: Vec<u64> = self.levels().collect();
        let children = move |weight: u64| tree.children_at(weight);
        levels.into_iter().rev().flat_map(children)
    }

    /// Distance between two children on a level, from the lowest level up.
    pub(super) fn levels(&self) -> impl Iterator<Item = u64> + use<> {
        let (end, radix) = (self.weight().min(self.size), self.radix);
        std::iter::successors(Some(1), move |weight| Some(weight * radix))
            .take_while(move |&weight| weight < end)
    }

    /// The children on a level: each covers the ranks that follow those covered by the one before.
    pub(super) fn children_at(&self, weight: u64) -> impl Iterator<Item = u32> + use<> {
        let tree = *self;
        (1..self.radix)
            .map(move |digit| tree.place + digit * weight)
            .take_while(move |&place| place < tree.size)
            .map(move |place| tree.rank_at(place))
    }

    /// The number of ranks in the subtree, including this one. They follow this rank, wrapping
    /// around.
    pub(super) fn below(&self) -> u32 {
        self.weight().min(self.size - self.place) as u32
    }

    /// The weight of the lowest nonzero digit; for the root, a weight above those of all places.
    fn weight(&self) -> u64 {
        let reaches = |weight: u64| match self.place {
            0 => weight >= self.size,
            place => place % (weight * self.radix) != 0,
        };
        let mut weight = 1;
        while !reaches(weight) {
            weight *= self.radix;
        }
        weight
    }

    fn rank_at(&self, place: u64) -> u32 {
        ((place + self.root) % self.size) as u32
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::comm::Binomial;

    use super::*;

    #[test]
    fn every_rank_has_one_parent_that_knows_it() {
        for radix in [2, 3, 4, 8, 100] {
            for size in 1..40 {
                for root in [0, size / 2, size - 1] {
                    let mut reached = 0;
                    for rank in 0..size {
                        let tree = Knomial::new(rank, size, root, radix);
                        assert_eq!(tree.parent().is_none(), rank == root);
                        for child in tree.children() {
                            let child = Knomial::new(child, size, root, radix);
                            assert_eq!(child.parent(), Some(rank));
                            reached += 1;
                        }
                    }
                    assert_eq!(reached, size - 1, "{size} ranks, radix {radix}");
                }
            }
        }
    }

    #[test]
    fn what_is_below_a_rank_follows_it_level_by_level() {
        for radix in [2, 3, 5, 64] {
            for size in 1..70 {
                for rank in 0..size {
                    let tree = Knomial::new(rank, size, 0, radix);
                    let mut next = rank + 1;
                    for child in tree.levels().flat_map(|weight| tree.children_at(weight)) {
                        assert_eq!(child, next);
                        next += Knomial::new(child, size, 0, radix).below();
                    }
                    assert_eq!(next - rank, tree.below(), "{rank} of {size}, radix {radix}");
                }
            }
        }
    }

    #[test]
    fn with_radix_2_it_is_the_binomial_tree() {
        for size in 1..40 {
            for rank in 0..size {
                let (tree, binomial) = (
                    Knomial::new(rank, size, 3 % size, 2),
                    Binomial::new(rank, size, 3 % size),
                );
                assert_eq!(tree.parent(), binomial.parent());
                assert!(tree.children().eq(binomial.children()));
            }
        }
    }

    #[test]
    fn a_larger_radix_has_fewer_levels() {
        let levels = |size, radix| Knomial::new(0, size, 0, radix).levels().count();
        assert_eq!(
            [2, 3, 4, 8, 64].map(|radix| levels(64, radix)),
            [6, 4, 3, 2, 1]
        );
        assert_eq!(levels(65, 8), 3);
        assert_eq!(levels(u32::MAX, MOST), 2);
    }
}
