//! A model of the rule for reusing the places of a track, without memory or devices: ranks start
//! operations, which end in any order, in an order drawn from a seed. No cell or chunk may be
//! written that a rank has yet to read, and no rank may wait for ever.

use crate::direct::boards::board::{CHUNK, Map, Place, TrackMap};
use crate::direct::tracks::turns::Turns;
use crate::simulate::Random;

/// The kind of an operation, the same for all ranks.
#[derive(Clone, Copy)]
struct Kind {
    /// The rank at which all others look; `None` if all look at all.
    root: Option<usize>,
    place: Place,
}

/// A rank's part in an operation.
#[derive(Clone, Copy)]
struct Part {
    step: u32,
    shown: bool,
    over: bool,
}

struct Rank {
    turns: Turns,
    parts: Vec<Part>,
    /// The value of its `done` word.
    done: u32,
}

struct Model {
    track: usize,
    map: TrackMap,
    kinds: Vec<Kind>,
    ranks: Vec<Rank>,
    /// Indexed by rank: the step in each cell, and in each chunk.
    cells: Vec<Vec<u32>>,
    chunks: Vec<Vec<u32>>,
}

impl Model {
    fn new(track: usize, ranks: usize, kinds: Vec<Kind>) -> Self {
        let map = Map::new(ranks as u32, CHUNK).track(track);
        let rank = |_| Rank {
            turns: Turns::new(track, map, false),
            parts: Vec::new(),
            done: 0,
        };
        Self {
            track,
            map,
            kinds,
            ranks: (0..ranks).map(rank).collect(),
            cells: vec![vec![0; map.cells as usize]; ranks],
            chunks: vec![vec![0; map.chunks as usize]; ranks],
        }
    }

    fn looks(&self, me: usize, step: u32) -> Vec<usize> {
        let kind = self.kinds[step as usize - 1];
        let all = (0..self.ranks.len()).filter(|&rank| rank != me);
        all.filter(|&rank| kind.root.is_none_or(|root| rank == root))
            .collect()
    }

    /// Starts the next operation, if there is one and the track permits it.
    fn start(&mut self, me: usize) -> bool {
        let rank = &mut self.ranks[me];
        let busy = self.track > 0 && rank.parts.iter().any(|part| !part.over);
        if busy || rank.parts.len() == self.kinds.len() {
            return false;
        }
        let step = rank.turns.take();
        rank.parts.push(Part {
            step,
            shown: false,
            over: false,
        });
        true
    }

    /// Advances one operation.
    fn advance(&mut self, me: usize, index: usize) -> bool {
        let Part { step, shown, over } = self.ranks[me].parts[index];
        match (shown, over) {
            (false, _) => self.show(me, index, step),
            (true, false) => self.end(me, index, step),
            _ => false,
        }
    }

    fn show(&mut self, me: usize, index: usize, step: u32) -> bool {
        let place = self.kinds[step as usize - 1].place;
        let others = self.ranks.iter().enumerate();
        let done = others
            .filter(|(rank, _)| *rank != me)
            .map(|(_, rank)| rank.done);
        let least = done.min();
        if !self.ranks[me].turns.has_room(step, place, || least) {
            return false;
        }
        let cell = (step % self.map.cells) as usize;
        self.overwrite(me, self.cells[me][cell]);
        self.cells[me][cell] = step;
        if place == Place::Chunk {
            let chunk = (step % self.map.chunks) as usize;
            self.overwrite(me, self.chunks[me][chunk]);
            self.chunks[me][chunk] = step;
        }
        self.ranks[me].parts[index].shown = true;
        true
    }

    /// Checks that no rank has yet to read what `me` has shown in a step.
    fn overwrite(&self, me: usize, old: u32) {
        if old == 0 {
            return;
        }
        for reader in (0..self.ranks.len()).filter(|&reader| reader != me) {
            let part = self.ranks[reader].parts.get(old as usize - 1);
            let over = part.is_some_and(|part| part.over);
            let reads = self.looks(reader, old).contains(&me);
            assert!(over || !reads, "rank {me} overwrites {old} before {reader}");
        }
    }

    fn end(&mut self, me: usize, index: usize, step: u32) -> bool {
        let looks = self.looks(me, step);
        let cell = (step % self.map.cells) as usize;
        if looks.iter().any(|&rank| self.cells[rank][cell] != step) {
            return false;
        }
        let all = looks.len() + 1 == self.ranks.len();
        let rank = &mut self.ranks[me];
        if rank.turns.in_turn() && all {
            rank.turns.proves(step);
        }
        rank.done = rank.turns.end(step).0;
        rank.parts[index].over = true;
        true
    }
}

fn run(track: usize, seed: u64) {
    let mut random = Random::new(seed);
    let ranks = 2 + random.below(4);
    let bias = random.below(4);
    let kind = |random: &mut Random| Kind {
        root: (random.below(8) >= 2 * bias).then(|| random.below(ranks)),
        place: match random.below(3) {
            0 => Place::Chunk,
            _ => Place::Cell,
        },
    };
    let kinds: Vec<_> = (0..150).map(|_| kind(&mut random)).collect();
    let mut model = Model::new(track, ranks, kinds);
    let mut idle = 0;
    // Some ranks start many operations at once, some end each before the next.
    while idle < 20_000 {
        let me = random.below(ranks);
        let moved = if random.below(3) == 0 {
            (0..random.below(60)).any(|_| model.start(me))
        } else {
            let parts = &model.ranks[me].parts;
            let open: Vec<_> = (0..parts.len()).filter(|&at| !parts[at].over).collect();
            !open.is_empty() && model.advance(me, open[random.below(open.len())])
        };
        idle = if moved { 0 } else { idle + 1 };
    }
    for (rank, state) in model.ranks.iter().enumerate() {
        let over = state.parts.iter().filter(|part| part.over).count();
        assert_eq!(
            over, 150,
            "track {track}, seed {seed}: rank {rank} is stuck"
        );
    }
}

#[test]
fn nothing_on_a_track_is_overwritten_and_nobody_waits_for_ever() {
    for seed in 0..150 {
        run(0, seed);
        run(1, seed);
    }
}
