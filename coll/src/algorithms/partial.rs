//! What reductions are made of: a partial result that grows, and ranks folded to a power of two.

use std::ops::Range;

use crate::schedule::{Builder, Span, part};

/// The operands that a rank has combined so far.
///
/// Combining writes over the operand that comes after in the order of the ranks, so the partial
/// result moves between two places; where the operator commutes it stays in the first that may be
/// written. The caller's contribution is not written, unless it is where the result goes.
///
/// Operations on a part of the items leave the others behind: parts only get smaller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partial {
    at: Span,
    /// Whether `at` may be written.
    own: bool,
    /// Memory that the next operand may be received into.
    free: Option<Span>,
    commutative: bool,
}

impl Partial {
    /// The caller's contribution alone. `output` may be written at any time.
    pub(super) fn new(input: Span, output: Option<Span>, commutative: bool) -> Self {
        Self {
            at: input,
            own: output == Some(input),
            free: output.filter(|&output| output != input),
            commutative,
        }
    }

    /// Where it lies.
    pub(super) fn at(&self) -> Span {
        self.at
    }

    /// Some of its items.
    pub(super) fn items(&self, range: &Range<usize>) -> Span {
        self.at.items(range.start, range.len())
    }

    /// All of its items.
    pub(super) fn all(&self) -> Range<usize> {
        0..self.at.count
    }

    /// Where an operand for some of the items may be received.
    pub(super) fn room(&mut self, b: &mut Builder, range: &Range<usize>) -> Span {
        let room = self.free.unwrap_or_else(|| fresh(b, self.at, range));
        self.free = Some(room);
        room.items(range.start, range.len())
    }

    /// Combines with the operand that has come into [`room`](Self::room), which comes `after` this
    /// one in the order of the ranks, or before.
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

    /// Receives an operand from a rank, which stands for ranks that come directly after or before
    /// those combined so far, and combines.
    pub(super) fn receive(&mut self, b: &mut Builder, from: u32, after: bool) {
        let all = self.all();
        let room = self.room(b, &all);
        b.recv(from, room);
        b.wait();
        self.add(b, after, &all);
    }

    /// The same for several ranks at once, each of which stands for those that come directly after
    /// those of the one before. `rooms` is memory for operands that is free, from one call to the
    /// next.
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

    /// Exchanges with a rank: gives one part of the items away, keeps another and combines it.
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

/// Scratch memory for some of the items of a span, addressed as if it had room for all.
pub(super) fn fresh(b: &mut Builder, like: Span, range: &Range<usize>) -> Span {
    let some = b.scratch_like(like, range.len());
    Span {
        offset: some.offset - range.start as isize * some.extent,
        count: like.count,
        ..some
    }
}

/// Ranks folded to a power of two: as many pairs of neighbours at the beginning as it takes become
/// one each.
///
/// Neighbours, so that operands stay in the order of the ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    pairs: u32,
    /// Ranks that stay: a power of two. They are numbered by places.
    pub(super) size: u32,
    /// Stays whichever pair it is in. Of other pairs the first stays.
    keep: u32,
}

/// What a rank of a [`Fold`] is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// It stays, in a place, perhaps for another rank too.
    Stays { place: u32, other: Option<u32> },
    /// Another stays for it.
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

    /// The ranks for which those in some places stand.
    pub(super) fn ranks(&self, places: Range<u32>) -> Range<u32> {
        let first = |place: u32| place + place.min(self.pairs);
        first(places.start)..first(places.end)
    }

    /// Rounds of doubling.
    pub(super) fn rounds(&self) -> u32 {
        self.size.ilog2()
    }

    /// The items that the rank in a place has left when a vector of `count` items was halved
    /// `rounds` times, first with the neighbour, then at twice the distance each time: partners are
    /// neighbours of groups, so that operands stay in order.
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

    /// The operand of the rank that leaves is combined into that of the one that stays. Returns the
    /// place of who stays.
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

    /// Who stays sends the result to the one that left.
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
