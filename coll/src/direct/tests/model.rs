//! A model of the rule for reusing cells and chunks, without memory or devices: ranks take turns in
//! an order drawn from a seed. No cell may be written that a rank has yet to read, and no rank may
//! wait for ever.
//!
//! The model covers `Steps::room`, `room_wide`, `my_place`, `look_at_done`, `post`, `header_of`,
//! `next` and `next_published`; the constants are theirs, and the choice of a long place is that of
//! ranks.

use crate::direct::boards::board::{CELLS, CHUNKS};
use crate::direct::boards::long::Places;
use crate::simulate::Random;

/// What happens in a step, the same for all ranks.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// The rank at which the others look; `None` if all look at all.
    root: Option<usize>,
    /// Whether the root looks at the others instead.
    upwards: bool,
    /// Whether data is in chunks.
    chunk: bool,
    /// Whether it is in a long place instead of a chunk.
    long: bool,
    /// Whether it is in two chunks, of this step and the next; all ranks then look at all others.
    wide: bool,
    /// Whether nothing is shown: the number skipped before a wide step, and the second number of
    /// one.
    skipped: bool,
}

const SKIPPED: Kind = Kind {
    root: None,
    upwards: false,
    chunk: false,
    long: false,
    wide: false,
    skipped: true,
};

#[derive(Clone, Debug, Default)]
struct Rank {
    step: u32,
    proved: u32,
    done: u32,
    posted: bool,
    /// The ranks at which it has yet to look in this step.
    left: Vec<usize>,
}

struct Model {
    ranks: Vec<Rank>,
    /// Indexed by rank and cell, and by rank and chunk: the step whose data is in it.
    cells: Vec<Vec<u32>>,
    chunks: Vec<Vec<u32>>,
    /// The same for the long places, and which of them a rank uses next.
    longs: Vec<(Vec<u32>, Places)>,
    kinds: Vec<Kind>,
}

impl Model {
    fn new(ranks: usize, kinds: Vec<Kind>) -> Self {
        let first = Rank {
            step: 1,
            proved: 1,
            ..Rank::default()
        };
        Self {
            ranks: vec![first; ranks],
            cells: vec![vec![0; CELLS as usize]; ranks],
            chunks: vec![vec![0; CHUNKS as usize]; ranks],
            longs: (0..ranks)
                .map(|_| (vec![0; CHUNKS as usize], Places::default()))
                .collect(),
            kinds,
        }
    }

    fn kind(&self, step: u32) -> Kind {
        self.kinds[step as usize - 1]
    }

    fn readers(&self, owner: usize, step: u32) -> Vec<usize> {
        let all = (0..self.ranks.len()).filter(|&rank| rank != owner);
        let kind = self.kind(step);
        let reads = |&rank: &usize| match kind.root {
            _ if kind.skipped => false,
            None => true,
            Some(root) if kind.upwards => rank == root,
            Some(root) => owner == root,
        };
        all.filter(reads).collect()
    }

    /// Lets a rank take one action, if it can.
    fn turn(&mut self, rank: usize) -> bool {
        let Rank { step, posted, .. } = self.ranks[rank];
        if step as usize > self.kinds.len() {
            return false;
        }
        match posted {
            false if self.kind(step).skipped => self.next(rank, false),
            false => self.post(rank, step),
            true => self.look(rank, step),
        }
    }

    /// `room` and `post`.
    fn post(&mut self, me: usize, step: u32) -> bool {
        let kind = self.kind(step);
        let writes_chunk = kind.chunk && !self.readers(me, step).is_empty();
        let steps = if writes_chunk { CHUNKS } else { CELLS };
        let last = if kind.wide { step + 1 } else { step };
        if last - self.ranks[me].proved >= steps {
            let others = self
                .ranks
                .iter()
                .enumerate()
                .filter(|(rank, _)| *rank != me);
            let least = others.fold(step, |least, (_, rank)| least.min(rank.done));
            if least < last - steps + 1 {
                return false;
            }
            self.ranks[me].proved = least;
        }
        self.overwrite(me, step, self.cells[me][(step % CELLS) as usize]);
        self.cells[me][(step % CELLS) as usize] = step;
        if writes_chunk && kind.long {
            let proved = self.look_at_done(me, step);
            let place = self.longs[me].1.take(step, proved);
            self.overwrite(me, step, self.longs[me].0[place]);
            self.longs[me].0[place] = step;
        } else if writes_chunk {
            for number in step..=last {
                let chunk = (number % CHUNKS) as usize;
                self.overwrite(me, step, self.chunks[me][chunk]);
                self.chunks[me][chunk] = step;
            }
        }
        let others = (0..self.ranks.len()).filter(|&rank| rank != me);
        let left = others.filter(|&rank| self.readers(rank, step).contains(&me));
        self.ranks[me].left = left.collect();
        self.ranks[me].posted = true;
        true
    }

    fn look_at_done(&mut self, me: usize, step: u32) -> u32 {
        let others = (0..self.ranks.len()).filter(|&rank| rank != me);
        let least = others.fold(step, |least, rank| least.min(self.ranks[rank].done));
        self.ranks[me].proved = self.ranks[me].proved.max(least);
        self.ranks[me].proved
    }

    /// Checks that no rank has yet to read what is overwritten.
    fn overwrite(&self, me: usize, step: u32, old: u32) {
        if old == 0 {
            return;
        }
        for reader in self.readers(me, old) {
            let at = &self.ranks[reader];
            let over = at.step > old || at.step == old && at.posted && !at.left.contains(&me);
            // A reader may still be copying from a cell at which it has looked, until it ends the
            // step.
            assert!(
                over && at.step > old,
                "rank {me} overwrites {old} in {step}, before {reader}"
            );
        }
    }

    /// `header_of`, and `next` after the last one.
    fn look(&mut self, me: usize, step: u32) -> bool {
        let kind = self.kind(step);
        if let Some(index) = (0..self.ranks[me].left.len()).find(|&index| {
            let other = self.ranks[me].left[index];
            self.cells[other][(step % CELLS) as usize] == step
        }) {
            self.ranks[me].left.swap_remove(index);
            return true;
        }
        let rank = &mut self.ranks[me];
        if !rank.left.is_empty() {
            return false;
        }
        if kind.root.is_none() {
            rank.proved = step;
        }
        self.next(me, kind.chunk && kind.root.is_some())
    }

    fn next(&mut self, me: usize, published: bool) -> bool {
        let rank = &mut self.ranks[me];
        rank.step += 1;
        rank.posted = false;
        if rank.step.is_multiple_of(CHUNKS) || published {
            rank.done = rank.step;
        }
        true
    }
}

#[test]
fn nothing_is_overwritten_and_nobody_waits_for_ever() {
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let ranks = 2 + random.below(4);
        // Some sequences are mostly of one kind, some of all kinds.
        let bias = random.below(4);
        let kind = |random: &mut Random| Kind {
            root: (random.below(8) >= 2 * bias).then(|| random.below(ranks)),
            upwards: random.below(3) == 0,
            chunk: random.below(3) == 0,
            long: random.below(2) == 0,
            wide: false,
            skipped: false,
        };
        let mut kinds = Vec::new();
        while kinds.len() < 118 {
            if random.below(4) > 0 {
                kinds.push(kind(&mut random));
                continue;
            }
            // The first step has number 1.
            if kinds.len().is_multiple_of(2) {
                kinds.push(SKIPPED);
            }
            let wide = Kind {
                chunk: true,
                wide: true,
                skipped: false,
                ..SKIPPED
            };
            kinds.extend([wide, SKIPPED]);
        }
        let end = kinds.len() as u32 + 1;
        let mut model = Model::new(ranks, kinds);
        // One rank is slow for a while, then another.
        loop {
            let slow = random.below(ranks);
            let mut moved = false;
            for _ in 0..200 {
                let rank = random.below(ranks);
                moved |= rank != slow && model.turn(rank);
            }
            moved |= (0..1 + random.below(9)).any(|_| model.turn(slow));
            if !moved && !(0..ranks).any(|rank| model.turn(rank)) {
                break;
            }
        }
        for (rank, state) in model.ranks.iter().enumerate() {
            assert_eq!(
                state.step, end,
                "seed {seed}: rank {rank} of {ranks} is stuck"
            );
        }
    }
}
