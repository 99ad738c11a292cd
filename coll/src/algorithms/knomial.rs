//! Trees of any radix: each level of a rank's children has up to radix - 1 of them, so there are
//! fewer rounds than in a binomial tree, which is the one of radix 2, and more messages in each.

/// Name of the algorithms whose radix a rule may say.
pub(crate) const NAME: &str = "knomial";

/// The radix, unless a rule says another.
pub(crate) const RADIX: u32 = 4;

/// Largest radix that a rule may say.
pub(crate) const MOST: u32 = 1 << 16;

/// A rank's place in a tree: for broadcasts downwards, for reductions upwards.
///
/// Places count from the root, around. Written with the radix as base, the parent's place is a
/// place without its lowest digit that is not 0; so what is below a place are places that follow
/// it.
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

    /// The ranks below, level by level, those with the most ranks below them first.
    pub(super) fn children(&self) -> impl Iterator<Item = u32> + use<> {
        let tree = *self;
        let levels: Vec<u64> = self.levels().collect();
        let children = move |weight: u64| tree.children_at(weight);
        levels.into_iter().rev().flat_map(children)
    }

    /// Places between two children of a level, the lowest level first.
    pub(super) fn levels(&self) -> impl Iterator<Item = u64> + use<> {
        let (end, radix) = (self.weight().min(self.size), self.radix);
        std::iter::successors(Some(1), move |weight| Some(weight * radix))
            .take_while(move |&weight| weight < end)
    }

    /// The children of a level: each covers the ranks that follow those of the one before.
    pub(super) fn children_at(&self, weight: u64) -> impl Iterator<Item = u32> + use<> {
        let tree = *self;
        (1..self.radix)
            .map(move |digit| tree.place + digit * weight)
            .take_while(move |&place| place < tree.size)
            .map(move |place| tree.rank_at(place))
    }

    /// How many ranks are below, this one included. They follow it, around.
    pub(super) fn below(&self) -> u32 {
        self.weight().min(self.size - self.place) as u32
    }

    /// The weight of the lowest digit that is not 0; of the root one that nobody has.
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
