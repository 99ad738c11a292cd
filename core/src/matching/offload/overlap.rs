//! Does any of these receives overlap with that one? Answered by counting, without a search.
//!
//! Two patterns overlap if they agree in the fields that both fix. So each pattern is counted
//! under every set of fields that another might have in common with it, separately for each shape;
//! a question then looks up one count per shape that is present.
//!
//! Budget: adding and removing, up to four buckets; asking, up to four; nothing when empty.

use super::counts::Counts;
use crate::matching::envelope::{Pattern, SHAPES};

/// A collection of patterns that can tell whether one of them overlaps a given one.
#[derive(Debug)]
pub(super) struct Overlaps {
    counts: Counts,
    by_shape: [usize; SHAPES],
}

impl Overlaps {
    pub(super) fn new() -> Self {
        Self {
            counts: Counts::new(),
            by_shape: [0; SHAPES],
        }
    }

    /// How many patterns there are.
    pub(super) fn len(&self) -> usize {
        self.by_shape.iter().sum()
    }

    pub(super) fn add(&mut self, pattern: &Pattern) {
        let own = pattern.shape();
        self.by_shape[own] += 1;
        for opened in opened_from(own) {
            self.counts.add(&pattern.key_opened(opened).in_space(own));
        }
    }

    /// Removes a pattern that was added.
    pub(super) fn remove(&mut self, pattern: &Pattern) {
        let own = pattern.shape();
        self.by_shape[own] -= 1;
        for opened in opened_from(own) {
            self.counts
                .remove(&pattern.key_opened(opened).in_space(own));
        }
    }

    /// Whether one of the patterns overlaps with this one.
    pub(super) fn any(&self, pattern: &Pattern) -> bool {
        (0..SHAPES).any(|theirs| {
            self.by_shape[theirs] != 0 && {
                let key = pattern.key_opened(theirs | pattern.shape());
                self.counts.has(&key.in_space(theirs))
            }
        })
    }
}

/// The shapes that have at least the open fields of `shape`.
fn opened_from(shape: usize) -> impl Iterator<Item = usize> {
    (0..SHAPES).filter(move |opened| opened & shape == shape)
}
