//! The proof that the gap is closed: all interleavings of one send and one receive, and many
//! interleavings of several.
//!
//! In every interleaving each message is delivered once, unharmed, to the receive that MPI's order
//! gives it, and nothing is left in any queue, log or buffer. Tests that break one rule at a time
//! show that the exploration can fail.
//!
//! `PORTOLAN_TEST_INTERLEAVINGS` says how many random interleavings to run; the default takes
//! seconds.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use portolan_core::transport::decorate::Random;

use super::lite::Mode;
use super::model::{Oracle, Rule};
use super::stats::Stats;
use super::world::{Act, World};

/// Follows a path of choices. Beyond the end of the path it takes the first option.
#[derive(Default)]
struct Path {
    /// The choices: the option taken, and the number of options.
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Oracle for Path {
    fn choose(&mut self, options: usize) -> usize {
        if self.at == self.taken.len() {
            self.taken.push((0, options));
        }
        let (choice, of) = self.taken[self.at];
        assert_eq!(of, options, "the same choices lead to the same state");
        self.at += 1;
        choice
    }
}

impl Path {
    /// Moves to the next path; `false` if there is none.
    fn turn(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, of)) = self.taken.pop() {
            if choice + 1 < of {
                self.taken.push((choice + 1, of));
                return true;
            }
        }
        false
    }
}

/// A hash of a state. The probability that two different states have the same hash is negligible.
fn digest(world: &World) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        world.digest(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// Explores every interleaving of the programs and of every word of every put, including words that
/// arrive within a call. Returns how many different states there are, and in how many of them the
/// programs are over. From each of the latter, everything is let come to its end, and checked.
fn explore(programs: &[Vec<Act>], broken: Option<Rule>) -> Result<(usize, usize), String> {
    let path = Rc::new(RefCell::new(Path::default()));
    let start = World::new(programs, path.clone(), broken);
    let mut seen = HashSet::from([digest(&start)]);
    let mut ends = 0;
    let mut open = vec![start];
    while let Some(world) = open.pop() {
        if world.is_over() {
            ends += 1;
            check_end(&world, &path)?;
        }
        for option in 0..world.options() {
            *path.borrow_mut() = Path::default();
            loop {
                let mut next = world.clone();
                // A failed debug assertion of the protocol is a finding, too.
                catch_unwind(AssertUnwindSafe(|| next.step(option))).map_err(message)?;
                if seen.insert(digest(&next)) {
                    open.push(next);
                }
                if !path.borrow_mut().turn() {
                    break;
                }
            }
        }
    }
    Ok((seen.len(), ends))
}

fn check_end(world: &World, path: &Rc<RefCell<Path>>) -> Result<(), String> {
    *path.borrow_mut() = Path::default();
    let mut end = world.clone();
    catch_unwind(AssertUnwindSafe(|| end.finish())).map_err(message)?;
    end.check_rest()?;
    end.check_order()
}

fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| "a panic".to_owned())
}

fn send(tag: u32, len: usize, mode: Mode) -> Act {
    Act::Send {
        to: 1,
        tag,
        len,
        mode,
    }
}

fn recv(from: Option<u32>, tag: Option<u32>, room: usize) -> Act {
    Act::Recv { from, tag, room }
}

/// Lengths: no bytes, a message in its header, and one through a buffer or straight into the
/// receive.
const LENGTHS: [usize; 4] = [0, 5, 8, 20];

#[test]
fn every_interleaving_of_one_send_and_one_receive() {
    let (mut states, mut ends) = (0, 0);
    for len in LENGTHS {
        for mode in [Mode::Standard, Mode::Synchronous] {
            // Receives that are too short, of the same class as the message, and longer than it.
            for room in [4, 8, 20, 40] {
                for (from, tag) in [(Some(0), Some(7)), (Some(0), None), (None, Some(7))] {
                    let programs = [vec![send(7, len, mode)], vec![recv(from, tag, room)]];
                    let found = explore(&programs, None).expect("one send and one receive");
                    states += found.0;
                    ends += found.1;
                }
            }
        }
    }
    assert!(ends > 1000 && states > 2000, "{states} states, {ends} ends");
}

#[test]
fn every_interleaving_with_a_receive_that_is_taken_back() {
    for len in LENGTHS {
        for (from, room) in [(Some(0), 4), (Some(0), 20), (None, 20)] {
            let receives = vec![recv(from, Some(7), room), Act::Cancel(0)];
            let programs = [vec![send(7, len, Mode::Standard)], receives];
            explore(&programs, None).expect("one send and one receive that is taken back");
        }
    }
}

#[test]
fn every_interleaving_of_two_sends_and_a_receive() {
    for (first, second) in [(5, 5), (5, 20), (20, 5), (20, 20)] {
        let sends = vec![
            send(7, first, Mode::Standard),
            send(7, second, Mode::Standard),
        ];
        let programs = [sends, vec![recv(Some(0), Some(7), 20)]];
        explore(&programs, None).expect("two sends and one receive");
    }
}

#[test]
fn every_interleaving_of_two_sends_and_two_receives() {
    for (first, second) in [(5, 20), (20, 5), (20, 20)] {
        for tags in [[Some(7), Some(7)], [None, Some(7)], [Some(8), None]] {
            let sends = vec![
                send(7, first, Mode::Standard),
                send(8, second, Mode::Standard),
            ];
            let receives = tags.map(|tag| recv(Some(0), tag, 20));
            explore(&[sends, receives.to_vec()], None).expect("two sends and two receives");
        }
    }
}

#[test]
fn every_interleaving_of_messages_to_and_fro() {
    for (len, back) in [(5, 5), (5, 20), (20, 20)] {
        let to = |to, len| Act::Send {
            to,
            tag: 7,
            len,
            mode: Mode::Standard,
        };
        let programs = [
            vec![recv(Some(1), Some(7), 20), to(1, len)],
            vec![recv(Some(0), Some(7), 20), to(0, back)],
        ];
        explore(&programs, None).expect("a message each way");
    }
}

/// Numbers from a seed.
struct Dice(Random);

impl Oracle for Dice {
    fn choose(&mut self, options: usize) -> usize {
        self.0.below(options as u64) as usize
    }
}

/// Programs of several PEs that send to each other at random.
fn programs(random: &mut Random) -> Vec<Vec<Act>> {
    let pes = 2 + random.below(2) as u32;
    (0..pes)
        .map(|_| {
            // Now and then so many operations that queues and pool are full.
            let acts = match random.below(4) {
                0 => 10 + random.below(16),
                _ => 2 + random.below(7),
            };
            let mut receives = 0;
            let act = |_| match random.below(8) {
                0..=2 => Act::Send {
                    to: random.below(u64::from(pes)) as u32,
                    tag: random.below(2) as u32,
                    len: [0, 5, 8, 9, 20, 40][random.below(6) as usize],
                    mode: match random.below(4) {
                        0 => Mode::Synchronous,
                        _ => Mode::Standard,
                    },
                },
                3..=5 => {
                    receives += 1;
                    Act::Recv {
                        from: (random.below(4) > 0).then(|| random.below(u64::from(pes)) as u32),
                        tag: (random.below(3) > 0).then(|| random.below(2) as u32),
                        room: [0, 8, 20, 40][random.below(4) as usize],
                    }
                }
                6 if receives > 0 => Act::Cancel(random.below(receives) as usize),
                _ => Act::Wait,
            };
            (0..acts).map(act).collect()
        })
        .collect()
}

/// Runs one interleaving of random programs.
fn sample(seed: u64, broken: Option<Rule>) -> Result<Stats, String> {
    let mut random = Random::new(seed);
    let programs = programs(&mut random);
    let dice = Rc::new(RefCell::new(Dice(random)));
    let mut world = World::new(&programs, dice.clone(), broken);
    let run = || {
        while !world.is_over() {
            let choice = dice.borrow_mut().choose(world.options());
            world.step(choice);
        }
        world.finish();
        world.check_rest()?;
        world.check_order()?;
        Ok(world.stats())
    };
    catch_unwind(AssertUnwindSafe(run))
        .map_err(message)
        .flatten()
        .map_err(|what| format!("seed {seed}: {what}\n{programs:?}"))
}

#[test]
fn random_interleavings_of_several() {
    let wanted = std::env::var("PORTOLAN_TEST_INTERLEAVINGS").ok();
    let wanted = wanted.map(|count| count.parse().expect("a number of interleavings"));
    let mut all = BTreeSet::new();
    for seed in 0..wanted.unwrap_or(50_000) {
        match sample(seed, None) {
            Ok(stats) => all.extend(
                stats
                    .by_name()
                    .iter()
                    .filter(|(_, n)| *n > 0)
                    .map(|(name, _)| *name),
            ),
            Err(what) => panic!("{what}"),
        }
    }
    // Messages have taken every way there is.
    let names = Stats::default().by_name().into_iter().map(|(name, _)| name);
    let never: Vec<_> = names.filter(|name| !all.contains(name)).collect();
    assert_eq!(never, ["lite_ready_unposted"], "never happened");
}

/// Whether random interleavings find the violation when a rule is broken.
fn is_found(rule: Rule) -> bool {
    (0..20_000).any(|seed| sample(seed, Some(rule)).is_err())
}

#[test]
fn trust_in_suspicious_preposts_is_found() {
    let sends = vec![send(7, 20, Mode::Standard), send(7, 20, Mode::Standard)];
    let programs = [sends, vec![recv(Some(0), Some(7), 20)]];
    explore(&programs, Some(Rule::Suspicion)).expect_err("a prepost of the gap is used twice");
    assert!(is_found(Rule::Suspicion));
}

#[test]
fn puts_without_fences_are_found() {
    let programs = [
        vec![send(7, 20, Mode::Standard)],
        vec![recv(Some(0), Some(7), 20)],
    ];
    explore(&programs, Some(Rule::Fence)).expect_err("a header is seen before its data");
    assert!(is_found(Rule::Fence));
}

#[test]
fn forgetting_small_messages_is_found() {
    let sends = vec![send(7, 5, Mode::Standard), send(7, 20, Mode::Standard)];
    let programs = [sends, vec![recv(Some(0), Some(7), 20)]];
    explore(&programs, Some(Rule::SmallLog)).expect_err("a prepost of the gap is used twice");
    assert!(is_found(Rule::SmallLog));
}
