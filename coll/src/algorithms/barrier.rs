//! Barriers.

use super::{Algorithm, after, before};
use crate::levels;
use crate::problem::Barrier;
use crate::schedule::Builder;

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Barrier>] = &[
    Algorithm {
        name: "dissemination",
        summary: "in round k each rank signals the one 2^k after it: log P rounds",
        fits: |_, _| true,
        build: |b, _| dissemination(b),
    },
    Algorithm {
        name: "linear",
        summary: "rank 0 hears from all and tells all: fewest messages, 2 P of them",
        fits: |_, _| true,
        build: |b, _| linear(b),
    },
    Algorithm {
        name: "two-level",
        summary: "ranks signal a leader on their node, leaders disseminate: few messages between nodes",
        fits: |_, _| true,
        build: |b, _| levels::barrier(b),
    },
];

pub(crate) fn dissemination(b: &mut Builder) {
    let (rank, size) = (b.rank(), b.size());
    let mut distance = 1;
    while distance < size {
        b.await_signal(before(rank, distance, size));
        b.signal(after(rank, distance, size));
        b.wait();
        distance = distance.saturating_mul(2);
    }
}

fn linear(b: &mut Builder) {
    arrive(b);
    release(b);
}

/// Rank 0 receives a signal from all ranks.
pub(crate) fn arrive(b: &mut Builder) {
    if b.rank() == 0 {
        (1..b.size()).for_each(|rank| b.await_signal(rank));
        b.wait();
    } else {
        b.signal(0);
    }
}

/// Rank 0 signals all ranks. Follows [`arrive`], whose signal is waited for together with the
/// answer.
pub(crate) fn release(b: &mut Builder) {
    if b.rank() == 0 {
        (1..b.size()).for_each(|rank| b.signal(rank));
    } else {
        b.await_signal(0);
    }
    b.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{SIZES, Simulation};

    #[test]
    fn nobody_leaves_before_everybody_has_come() {
        for algorithm in ALL {
            for size in SIZES {
                let mut run = Simulation::new(size, 7);
                run.schedule_all(|b| (algorithm.build)(b, &Barrier));
                run.assert_synchronises(algorithm.name);
            }
        }
    }
}
