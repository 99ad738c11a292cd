//! Answers whether any receive in a collection overlaps a given one, by counting instead of
//! searching.
//!
//! Two patterns overlap if they agree in every field that both fix. So each pattern is counted
//! under every set of fields that another pattern might fix as well, separately for each shape. A
//! query then looks up one count per shape that is present.
//!
//! Budget: adding and removing take up to four buckets, a query takes up to four. An empty
//! collection costs nothing.

use super::counts::Counts;
use crate::matching::envelope::{Pattern, SHAPES};

/// A collection of patterns that can tell whether any of them overlaps a given one.
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

    /// Number of patterns.
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

    /// Removes a pattern that was added before.
    pub(super) fn remove(&mut self, pattern: &Pattern) {
        let own = pattern.shape();
        self.by_shape[own] -= 1;
        for opened in opened_from(own) {
            self.counts
                .remove(&pattern.key_opened(opened).in_space(own));
        }
    }

    /// Whether any of the patterns overlaps this one.
    pub(super) fn any(&self, pattern: &Pattern) -> bool {
        (0..SHAPES).any(|theirs| {
            self.by_shape[theirs] != 0 && {
                let key = pattern.key_opened(theirs | pattern.shape());
                self.counts.has(&key.in_space(theirs))
            }
        })
    }
}

/// The shapes in which at least the fields of `shape` are open.
fn opened_from(shape: usize) -> impl Iterator<Item = usize> {
    (0..SHAPES).filter(move |opened| opened & shape == shape)
}
