//! Building blocks of reductions: a partial result that grows, and ranks folded to a power of two.

use std::ops::Range;

use crate::schedule::{Builder, Span, part};

/// The operands that a rank has combined so far.
///
/// Combining overwrites the operand that comes later in the order of the ranks, so the partial
/// result moves between two places. If the operator commutes, it stays in the first place that may
/// be written. The caller's contribution is not overwritten, unless it is where the result goes.
///
/// Operations on a part of the items abandon the other items: parts only get smaller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partial {
    at: Span,
    /// Whether `at` may be written.
    own: bool,
    /// Memory into which the next operand may be received.
    free: Option<Span>,
    commutative: bool,
}

impl Partial {
    /// Begins with the caller's contribution alone. `output` may be written at any time.
    pub(super) fn new(input: Span, output: Option<Span>, commutative: bool) -> Self {
        Self {
            at: input,
            own: output == Some(input),
            free: output.filter(|&output| output != input),
            commutative,
        }
    }

    /// The span of the partial result.
    pub(super) fn at(&self) -> Span {
        self.at
    }

    /// The span of some of its items.
    pub(super) fn items(&self, range: &Range<usize>) -> Span {
        self.at.items(range.start, range.len())
    }

    /// The range of all of its items.
    pub(super) fn all(&self) -> Range<usize> {
        0..self.at.count
    }

    /// Memory into which an operand for some of the items may be received.
    pub(super) fn room(&mut self, b: &mut Builder, range: &Range<usize>) -> Span {
        let room = self.free.unwrap_or_else(|| fresh(b, self.at, range));
        self.free = Some(room);
        room.items(range.start, range.len())
    }

    /// Combines with the operand received into [`room`](Self::room). It comes directly after this
    /// one in the order of the ranks if `after` is set, otherwise directly before it.
    pub(super) fn add(&mut self, b: &mut Builder, after: bool, range: &Range<usize>) {
        let Some(room) = self.free else {
            debug_assert!(false, "nothing was received");
            return;
        };
        let new = room.items(range.start, range.len());
        let old = self.items(range);
        if self.own && (self.commutative || !after) {
            b.combine(new, old);
        } else if self.commutative || after {
            b.combine(old, new);
            self.free = self.own.then_some(self.at);
            self.at = room;
        } else {
            let copy = fresh(b, self.at, range);
            b.copy(old, copy.items(range.start, range.len()));
            b.combine(new, copy.items(range.start, range.len()));
            self.at = copy;
        }
        self.own = true;
    }

    /// Receives an operand from a rank and combines it. The operand stands for ranks that come
    /// directly after, or before, those combined so far.
    pub(super) fn receive(&mut self, b: &mut Builder, from: u32, after: bool) {
        let all = self.all();
        let room = self.room(b, &all);
        b.recv(from, room);
        b.wait();
        self.add(b, after, &all);
    }

    /// The same for several ranks at once, each of which stands for ranks that come directly after
    /// those of the one before. `rooms` keeps free memory for operands from one call to the next.
    pub(super) fn receive_all(&mut self, b: &mut Builder, from: &[u32], rooms: &mut Vec<Span>) {
        let all = self.all();
        rooms.extend(self.free.take());
        let mut receive = |&from: &u32| {
            let room = rooms.pop().unwrap_or_else(|| fresh(b, self.at, &all));
            b.recv(from, room);
            room
        };
        let operands: Vec<Span> = from.iter().map(&mut receive).collect();
        b.wait();
        for operand in operands {
            self.free = Some(operand);
            self.add(b, true, &all);
            rooms.extend(self.free.take());
        }
    }

    /// Exchanges with a rank: sends one part of the items, keeps another, and combines that with
    /// the part received.
    pub(super) fn exchange(
        &mut self,
        b: &mut Builder,
        peer: u32,
        give: &Range<usize>,
        keep: &Range<usize>,
    ) {
        let room = self.room(b, keep);
        b.recv(peer, room);
        b.send(peer, self.items(give));
        b.wait();
        self.add(b, peer > b.rank(), keep);
    }
}

/// Scratch memory for some of the items of a span, addressed as if it had room for all of them.
pub(super) fn fresh(b: &mut Builder, like: Span, range: &Range<usize>) -> Span {
    let some = b.scratch_like(like, range.len());
    Span {
        offset: some.offset - range.start as isize * some.extent,
        count: like.count,
        ..some
    }
}

/// Ranks folded to a power of two: at the beginning, as many pairs of neighbours as necessary
/// become one rank each.
///
/// The pairs are neighbours so that operands stay in the order of the ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    pairs: u32,
    /// Number of ranks that stay, a power of two. They are numbered by places.
    pub(super) size: u32,
    /// This rank stays whichever pair it is in. In other pairs the first rank stays.
    keep: u32,
}

/// The role of a rank in a [`Fold`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// It stays, in a place, and may also stand for another rank.
    Stays { place: u32, other: Option<u32> },
    /// Another rank stays and stands for it.
    Leaves { other: u32 },
}

impl Fold {
    pub(super) fn new(size: u32, keep: u32) -> Self {
        let power = 1 << size.ilog2();
        Self {
            pairs: size - power,
            size: power,
            keep,
        }
    }

    pub(super) fn role(&self, rank: u32) -> Role {
        if rank / 2 >= self.pairs {
            let place = rank - self.pairs;
            return Role::Stays { place, other: None };
        }
        let (place, other) = (rank / 2, rank ^ 1);
        if self.rank(place) == rank {
            let other = Some(other);
            Role::Stays { place, other }
        } else {
            Role::Leaves { other }
        }
    }

    /// The place of a rank that stays.
    pub(super) fn place(&self, rank: u32) -> u32 {
        if rank / 2 < self.pairs {
            rank / 2
        } else {
            rank - self.pairs
        }
    }

    /// The rank in a place.
    pub(super) fn rank(&self, place: u32) -> u32 {
        if place >= self.pairs {
            place + self.pairs
        } else if self.keep / 2 == place {
            self.keep
        } else {
            2 * place
        }
    }

    /// The ranks that the ranks in these places stand for.
    pub(super) fn ranks(&self, places: Range<u32>) -> Range<u32> {
        let first = |place: u32| place + place.min(self.pairs);
        first(places.start)..first(places.end)
    }

    /// Number of doubling rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.size.ilog2()
    }

    /// The items that the rank in a place keeps when a vector of `count` items is halved `rounds`
    /// times, first with the neighbour, then at twice the distance each time. Partners belong to
    /// neighbouring groups, so operands stay in order.
    pub(super) fn share(&self, place: u32, rounds: u32, count: usize) -> Range<usize> {
        let (mut low, mut width) = (0, self.size);
        for round in 0..rounds {
            width /= 2;
            low += (place >> round & 1) * width;
        }
        let parts = self.size as usize;
        let end = (low + width) as usize - 1;
        part(count, low as usize, parts).start..part(count, end, parts).end
    }

    /// Combines the operand of the rank that leaves into that of the rank that stays. Returns this
    /// rank's place, if it stays.
    pub(super) fn enter(&self, b: &mut Builder, partial: &mut Partial) -> Option<u32> {
        match self.role(b.rank()) {
            Role::Leaves { other } => {
                b.send(other, partial.at());
                b.wait();
                None
            }
            Role::Stays { place, other } => {
                if let Some(other) = other {
                    partial.receive(b, other, other > b.rank());
                }
                Some(place)
            }
        }
    }

    /// A rank that stays sends the result to the rank that left.
    pub(super) fn leave(&self, b: &mut Builder, result: Span) {
        match self.role(b.rank()) {
            Role::Leaves { other } => b.recv(other, result),
            Role::Stays { other, .. } => {
                if let Some(other) = other {
                    b.send(other, result);
                }
            }
        }
        b.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_stay_have_all_places() {
        for size in 1..70 {
            for keep in 0..size {
                let fold = Fold::new(size, keep);
                let mut next = 0;
                for place in 0..fold.size {
                    let rank = fold.rank(place);
                    let is_there =
                        matches!(fold.role(rank), Role::Stays { place: p, .. } if p == place);
                    assert!(is_there, "{fold:?} {rank}");
                    let ranks = fold.ranks(place..place + 1);
                    assert!(ranks.contains(&rank) && ranks.start == next, "{fold:?}");
                    next = ranks.end;
                }
                assert_eq!(next, size);
                assert!(matches!(fold.role(keep), Role::Stays { .. }));
            }
        }
    }

    #[test]
    fn shares_are_halves_of_shares() {
        for size in [1, 2, 4, 8, 16] {
            let fold = Fold::new(size, 0);
            for count in [0, 1, 7, 16, 33] {
                for place in 0..size {
                    for round in 0..fold.rounds() {
                        let whole = fold.share(place, round, count);
                        let mine = fold.share(place, round + 1, count);
                        let theirs = fold.share(place ^ 1 << round, round + 1, count);
                        let (first, second) = if place >> round & 1 == 0 {
                            (mine, theirs)
                        } else {
                            (theirs, mine)
                        };
                        assert_eq!((first.start, second.end), (whole.start, whole.end));
                        assert_eq!(first.end, second.start);
                    }
                }
            }
        }
    }
}
