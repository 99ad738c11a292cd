//! One rank, in a sequence of any operations, does something else now and then. In the debug mode
//! all ranks get an error that names it, or the first rank that differs from rank 0. Without the
//! debug mode no rank waits for ever. In both cases the operations that follow work.

use portolan_core::ErrorKind;
use portolan_core::transport::memory;

use super::mixed::take;
use super::turn::{Form, Turn, WHATS};
use super::{World, on_all, on_network};
use crate::simulate::Random;
use crate::{Operation, Options, run};

/// Operations in which all ranks pass the same count, and operations with a root.
const OF_ONE_COUNT: [usize; 4] = [1, 8, 9, 11];
const ROOTED: [usize; 4] = [1, 2, 3, 8];
/// Operations with a count for each rank.
const OF_COUNTS: [usize; 4] = [2, 3, 5, 7];

/// What the odd rank does instead of the turn; `None` if it is no different after all.
fn another(turn: &Turn, random: &mut Random, ranks: u32) -> Option<Turn> {
    let mut odd = turn.clone();
    match random.below(5) {
        0 if ROOTED.contains(&turn.what) => odd.root = (turn.root + 1) % ranks,
        1 if OF_ONE_COUNT.contains(&turn.what) => odd.count += 1 + random.below(3),
        2 => {
            odd.form = match turn.form {
                Form::Blocking => Form::Nonblocking,
                _ => Form::Blocking,
            }
        }
        _ => odd.what = (turn.what + 1 + random.below(WHATS - 1)) % WHATS,
    }
    (name(&odd) != name(turn) || odd.what == turn.what).then_some(odd)
}

/// The operation of a turn: forms with counts match the others.
fn name(turn: &Turn) -> usize {
    match turn.what {
        5 => 4,
        7 => 6,
        what => what,
    }
}

/// The test in the debug mode.
fn compared(ranks: u32, turns: usize, longest: usize, seed: u64) {
    let options = Options {
        compare: true,
        ..Options::default()
    };
    on_network(memory::network(ranks), &options, |world| {
        let mut random = Random::new(seed);
        for number in 0..turns {
            let usual = Turn::draw(&mut random, ranks, longest).in_any_form(&mut random);
            let odd = another(&usual, &mut random, ranks).filter(|_| number % 2 == 1);
            let who = random.below(ranks as usize) as u32;
            let turn = odd.as_ref().filter(|_| who == world.rank());
            let outcome = take(world, turn.unwrap_or(&usual));
            let case = || format!("{who} of {ranks}: {odd:?} for {usual:?}, seed {seed}");
            match (&odd, outcome) {
                (None, outcome) => outcome.unwrap(),
                (Some(_), Ok(())) => panic!("rank {} was not told: {}", world.rank(), case()),
                (Some(_), Err(error)) => {
                    assert_eq!(
                        error.kind(),
                        ErrorKind::InvalidArgument,
                        "{error}, {}",
                        case()
                    );
                    let named = if who == 0 { 1 } else { who };
                    let text = error.to_string();
                    assert!(
                        text.contains(&format!("rank {named} calls")),
                        "{text}, {}",
                        case()
                    );
                }
            }
        }
        world.barrier().unwrap();
    });
}

#[test]
fn who_does_something_else_is_named_on_all_ranks() {
    for seed in 0..8 {
        for ranks in [2, 3, 5] {
            compared(ranks, 40, 1024, seed);
        }
    }
    compared(8, 40, 500, 100);
    compared(3, 40, 80_000, 101);
}

/// Whether ranks notice the difference over boards or on a track, and are left in step.
fn is_noticed(turn: &Turn, odd: &Turn) -> bool {
    // A root that shows many pieces looks at no other rank.
    let bcasts = [turn, odd].map(|turn| turn.what == 1);
    if bcasts[0] != bcasts[1] && turn.count.max(odd.count) > 1024 {
        return false;
    }
    turn.form == odd.form && !matches!(turn.form, Form::Persistent(_))
}

fn barrier(world: &World) {
    // SAFETY: there is no buffer.
    unsafe { run(world, &Operation::Barrier) }.unwrap();
}

/// Takes a turn in which ranks differ, whatever the outcome.
fn take_in_vain(world: &World, turn: &Turn) {
    // A rank that gets no error has meaningless data, about which `take` panics.
    let taking = std::panic::AssertUnwindSafe(|| take(world, turn));
    let _ = std::panic::catch_unwind(taking);
}

fn over_boards(ranks: u32, turns: usize, longest: usize, seed: u64, form: Form) {
    on_all(ranks, |world| {
        barrier(world);
        let mut random = Random::new(seed);
        for number in 0..turns {
            let mut usual = Turn::draw(&mut random, ranks, longest);
            usual.form = form;
            let mut odd = another(&usual, &mut random, ranks);
            if OF_COUNTS.contains(&usual.what) && random.below(2) == 0 {
                // Changes only one count, by one item or by so many that the block is a message.
                let mut counts = usual.clone();
                let count = &mut counts.counts[random.below(ranks as usize)];
                *count = if random.below(2) == 0 {
                    *count + 1
                } else {
                    longest - *count
                };
                odd = Some(counts);
            }
            let odd = odd.filter(|odd| number % 2 == 1 && is_noticed(&usual, odd));
            let who = random.below(ranks as usize) as u32;
            match &odd {
                None => take(world, &usual).unwrap(),
                Some(odd) if who == world.rank() => take_in_vain(world, odd),
                Some(_) => take_in_vain(world, &usual),
            }
            barrier(world);
        }
    });
}

#[test]
fn over_boards_nobody_waits_for_ever_and_what_follows_works() {
    for seed in 0..6 {
        for ranks in [2, 3, 5] {
            over_boards(ranks, 40, 1024, seed, Form::Blocking);
            over_boards(ranks, 20, 140_000, seed, Form::Blocking);
            over_boards(ranks, 40, 1024, seed, Form::Nonblocking);
            over_boards(ranks, 20, 30_000, seed, Form::Nonblocking);
        }
    }
    over_boards(8, 40, 8193, 100, Form::Blocking);
    over_boards(8, 40, 1024, 101, Form::Nonblocking);
}

#[test]
fn more_ranks_than_look_at_each_other_at_once_stay_in_step() {
    for seed in 0..3 {
        for ranks in [9, 10, 17] {
            over_boards(ranks, 30, 1024, seed, Form::Blocking);
        }
        over_boards(9, 20, 140_000, seed, Form::Blocking);
    }
    // In three rounds.
    over_boards(65, 8, 1024, 100, Form::Blocking);
}
