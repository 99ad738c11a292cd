//! `cargo xtask stalls`: finds loads that wait for earlier stores, in the steps of a message or of
//! a collective operation whose instructions are counted.
//!
//! A processor forwards a store that is still on its way to the cache to a load that lies inside
//! it. A load of which the latest store to any of its bytes wrote only a part waits until that
//! store is in the cache, and so are all stores before it: a dozen cycles, or as long as the cell
//! of the last message needs. Compilers write such loads when a structure is written field by field
//! and then copied as a whole. No count of instructions shows them; a trace of all loads and stores
//! (the tool `lackey` of valgrind) does.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use crate::instructions::{self, STEPS};
use crate::{Failure, Repo};

/// Messages or operations that are looked at.
const ROUNDS: u64 = 50;
/// A store is taken to be on its way for so many instructions, and as long as no more than so many
/// stores have followed. (Processors of today have store queues of 64 to 114 entries.)
const INSTRUCTIONS: u64 = 150;
const STORES: usize = 64;

/// `cargo xtask stalls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The steps to look at; unset means all
    steps: Vec<String>,
}

/// Prints the loads that wait, for each step.
pub(crate) fn main(repo: &Repo, args: &Args) -> Result<ExitCode, Failure> {
    if let Some(why) = instructions::missing() {
        return Err(why.into());
    }
    let all = STEPS
        .iter()
        .flat_map(|(program, steps)| steps.iter().map(move |step| (*program, *step)));
    let all: Vec<_> = all.collect();
    if let Some(other) = args
        .steps
        .iter()
        .find(|name| all.iter().all(|(_, step)| step != name))
    {
        let names: Vec<_> = all.iter().map(|(_, step)| *step).collect();
        return Err(format!(
            "there is no step {other}; the steps are {}",
            names.join(", ")
        )
        .into());
    }
    if !instructions::build(repo).status()?.success() {
        return Err("the program that is looked at does not build".into());
    }
    for (program, step) in all {
        if args.steps.is_empty() || args.steps.iter().any(|name| name == step) {
            let found = find(repo, program, step)?;
            println!("{step}: {} loads that wait", found.len());
            let mut alike = BTreeMap::new();
            for stall in found {
                *alike.entry(stall).or_insert(0) += 1;
            }
            for (stall, times) in alike {
                println!("  {times} × {stall}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The loads that wait in a step, each once, however often it is made.
pub(crate) fn find(repo: &Repo, program: &str, step: &str) -> Result<Vec<String>, Failure> {
    let symbols = Symbols::of(repo, program)?;
    let measured = symbols.place_of(&format!("measured_{step}"))?;
    // The program lies at the same place in both runs: valgrind does not move it.
    let mut seen = HashSet::new();
    trace(repo, program, step, 1, |event| {
        if let Event::Instruction { at, .. } = event {
            seen.insert(at);
        }
    })?;
    let base = symbols.base(measured, &seen);
    let base = base.ok_or_else(|| format!("the trace of {step} has no call of measured_{step}"))?;
    let mut watch = Watch::new(base + measured);
    let mut stalls = BTreeMap::new();
    trace(repo, program, step, ROUNDS, |event| {
        if let Some(stall) = watch.sees(event) {
            *stalls.entry(stall).or_insert(0_u64) += 1;
        }
    })?;
    // What happens in few rounds is the end of a lap, or the first contact.
    let often = stalls.into_iter().filter(|(_, count)| 2 * count > ROUNDS);
    let said = |(stall, _): (Stall, u64)| {
        let name = |at: u64| symbols.name(at.wrapping_sub(base));
        let Stall { load, store, bytes } = stall;
        let (loads, stores) = (name(load), name(store));
        format!("{bytes} bytes in {loads}, the last part of which {stores} has stored")
    };
    Ok(often.map(said).collect())
}

/// What keeps a step from being as it should be: that no load waits.
pub(crate) fn problems(repo: &Repo, steps: &[&'static str]) -> Result<Vec<String>, Failure> {
    let mut problems = Vec::new();
    for step in steps {
        let stalls = find(repo, STEPS[0].0, step)?;
        let told = |stall| format!("{step} of 8 bytes has a load that waits for stores: {stall}");
        problems.extend(stalls.into_iter().map(told));
    }
    Ok(problems)
}

/// A line of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Instruction { at: u64, bytes: u64 },
    Load { at: u64, bytes: u64 },
    Store { at: u64, bytes: u64 },
}

impl Event {
    /// The events of a line: two for a change in place, none for a line that is no part of the
    /// trace.
    fn of(line: &str) -> [Option<Self>; 2] {
        let Some((kind, place)) = line.split_at_checked(3) else {
            return [None; 2];
        };
        let place = place.split_once(',');
        let parsed = place.and_then(|(at, bytes)| {
            let at = u64::from_str_radix(at, 16).ok()?;
            Some((at, bytes.trim_end().parse().ok()?))
        });
        let Some((at, bytes)) = parsed else {
            return [None; 2];
        };
        let (load, store) = (Self::Load { at, bytes }, Self::Store { at, bytes });
        match kind {
            "I  " => [Some(Self::Instruction { at, bytes }), None],
            " L " => [Some(load), None],
            " S " => [Some(store), None],
            " M " => [Some(load), Some(store)],
            _ => [None; 2],
        }
    }
}

/// A load that waits: the instructions that load and that stored last, and the bytes that are
/// loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stall {
    load: u64,
    store: u64,
    bytes: u64,
}

/// A store that may be on its way.
struct Recent {
    at: u64,
    bytes: u64,
    by: u64,
    when: u64,
}

/// Follows a trace, and looks at the loads of one function and of what it calls.
struct Watch {
    measured: u64,
    /// Where the function returns to, while it runs.
    until: Option<u64>,
    /// The instruction that runs, the place behind it, and how many have run.
    now: u64,
    behind: u64,
    count: u64,
    recent: VecDeque<Recent>,
}

impl Watch {
    fn new(measured: u64) -> Self {
        Self {
            measured,
            until: None,
            now: 0,
            behind: 0,
            count: 0,
            recent: VecDeque::with_capacity(STORES),
        }
    }

    fn sees(&mut self, event: Event) -> Option<Stall> {
        match event {
            Event::Instruction { at, bytes } => {
                if self.until == Some(at) {
                    self.until = None;
                } else if at == self.measured {
                    self.until.get_or_insert(self.behind);
                }
                (self.now, self.behind) = (at, at + bytes);
                self.count += 1;
                None
            }
            Event::Store { at, bytes } => {
                if self.recent.len() == STORES {
                    self.recent.pop_front();
                }
                let (by, when) = (self.now, self.count);
                let recent = Recent {
                    at,
                    bytes,
                    by,
                    when,
                };
                self.recent.push_back(recent);
                None
            }
            Event::Load { at, bytes } => {
                self.until?;
                let overlaps =
                    |store: &&Recent| store.at < at + bytes && at < store.at + store.bytes;
                let store = self.recent.iter().rev().find(overlaps)?;
                let holds = store.at <= at && at + bytes <= store.at + store.bytes;
                // (An instruction that seems to wait for itself works on a register, which valgrind
                // keeps in memory.)
                let waits =
                    !holds && store.by != self.now && self.count - store.when <= INSTRUCTIONS;
                waits.then_some(Stall {
                    load: self.now,
                    store: store.by,
                    bytes,
                })
            }
        }
    }
}

/// Runs a step under valgrind, and hands on the events of its trace.
fn trace(
    repo: &Repo,
    program: &str,
    step: &str,
    rounds: u64,
    mut each: impl FnMut(Event),
) -> Result<(), Failure> {
    let mut child = repo
        .command("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .arg(repo.target().join("release/examples").join(program))
        .args([step, &rounds.to_string()])
        .stderr(Stdio::piped())
        .spawn()?;
    let output = child.stderr.take().ok_or("valgrind has no output")?;
    let mut rest = String::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        let events = Event::of(&line);
        if events[0].is_none() {
            rest.push_str(&line);
            rest.push('\n');
        }
        events.into_iter().flatten().for_each(&mut each);
    }
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(format!("step {step} failed under valgrind ({status}):\n{rest}").into()),
    }
}

/// The functions of a program: where each begins, and its name.
struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    fn of(repo: &Repo, program: &str) -> Result<Self, Failure> {
        let program = repo.target().join("release/examples").join(program);
        let output = Command::new("nm")
            .args(["--defined-only", "--demangle"])
            .arg(program)
            .output()
            .map_err(|error| format!("nm ({error}; Debian: apt-get install binutils)"))?;
        Ok(Self::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    fn parse(text: &str) -> Self {
        let symbol = |line: &str| {
            let (at, rest) = line.split_once(' ')?;
            let (kind, name) = rest.split_once(' ')?;
            let at = u64::from_str_radix(at, 16).ok()?;
            matches!(kind, "t" | "T").then(|| (at, name.to_owned()))
        };
        Self(text.lines().filter_map(symbol).collect())
    }

    /// Where the function is in whose path `part` is a word.
    fn place_of(&self, part: &str) -> Result<u64, Failure> {
        let is_it = |name: &&String| name.rsplit("::").any(|word| word == part);
        let found = self.0.iter().find(|(_, name)| is_it(name));
        let found = found.ok_or_else(|| format!("the program has no function {part}"))?;
        Ok(*found.0)
    }

    /// Where the program lies: of all places at which `measured` could have run, the one with the
    /// most beginnings of functions that have run.
    fn base(&self, measured: u64, seen: &HashSet<u64>) -> Option<u64> {
        let bases = seen.iter().filter_map(|at| at.checked_sub(measured));
        let run = |base: u64| {
            self.0
                .keys()
                .filter(|at| seen.contains(&(base + **at)))
                .count()
        };
        bases
            .filter(|base| base.is_multiple_of(4096))
            .max_by_key(|&base| (run(base), base))
    }

    /// The function that `at` lies in.
    fn name(&self, at: u64) -> &str {
        // Libraries lie behind the last function, which is short.
        let end = self.0.keys().next_back().map_or(0, |last| last + 4096);
        let before = self.0.range(..=at).next_back().filter(|_| at < end);
        before.map_or("a library", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a call of the function at 100 from 50 with these loads and stores.
    fn stalls(events: &[Event]) -> Vec<Stall> {
        let mut watch = Watch::new(100);
        let instruction = |at| Event::Instruction { at, bytes: 4 };
        for at in [50, 100] {
            assert_eq!(watch.sees(instruction(at)), None);
        }
        let mut found = Vec::new();
        for (number, &event) in (0..).zip(events) {
            watch.sees(instruction(104 + 4 * number));
            found.extend(watch.sees(event));
        }
        assert_eq!(watch.until, Some(54));
        watch.sees(instruction(54));
        assert_eq!(watch.sees(Event::Load { at: 0, bytes: 64 }), None);
        found
    }

    fn store(at: u64, bytes: u64) -> Event {
        Event::Store { at, bytes }
    }

    fn load(at: u64, bytes: u64) -> Event {
        Event::Load { at, bytes }
    }

    #[test]
    fn a_load_of_parts_waits_and_one_inside_a_store_does_not() {
        let found = stalls(&[store(0, 4), store(4, 4), load(0, 8), load(4, 4), load(5, 2)]);
        let waits = Stall {
            load: 112,
            store: 108,
            bytes: 8,
        };
        assert_eq!(found, [waits]);
    }

    #[test]
    fn only_the_latest_store_counts_and_only_for_a_while() {
        assert_eq!(stalls(&[store(0, 4), store(0, 8), load(0, 8)]), []);
        let mut events = vec![store(0, 4)];
        events.extend((0..STORES as u64).map(|at| store(100 + 8 * at, 8)));
        events.push(load(0, 8));
        assert_eq!(stalls(&events), []);
        let mut events = vec![store(0, 4)];
        events.extend((0..=INSTRUCTIONS).map(|_| load(1000, 8)));
        events.push(load(0, 8));
        assert_eq!(stalls(&events), []);
    }

    #[test]
    fn lines_of_the_trace_are_read_and_others_are_not() {
        let only = |line| Event::of(line)[0];
        assert_eq!(
            only("I  04001090,3"),
            Some(Event::Instruction {
                at: 0x0400_1090,
                bytes: 3
            })
        );
        assert_eq!(only(" L 1ffeff,8"), Some(load(0x1f_feff, 8)));
        assert_eq!(only(" S 10,16"), Some(store(16, 16)));
        assert_eq!(
            Event::of(" M 10,4"),
            [Some(load(16, 4)), Some(store(16, 4))]
        );
        for other in ["", "==12== Lackey", "I  x,3", " L 10"] {
            assert_eq!(only(other), None, "{other}");
        }
    }

    #[test]
    fn a_program_is_found_where_most_of_its_functions_ran() {
        let text = "0000000000001000 t a::one\n0000000000001100 T measured_send\n\
                    0000000000003000 d data\n0000000000001200 t b::two\n";
        let symbols = Symbols::parse(text);
        let measured = symbols.place_of("measured_send").unwrap();
        assert_eq!(measured, 0x1100);
        assert!(symbols.place_of("measured").is_err());
        let seen = HashSet::from([0x10_9100, 0x10_9000, 0x10_9200, 0x20_1100, 0x10_9104]);
        let base = symbols.base(measured, &seen);
        assert_eq!(base, Some(0x10_8000));
        assert_eq!(symbols.name(0x1204), "b::two");
        assert_eq!(symbols.name(0x10), "a library");
        assert_eq!(symbols.name(0x40_0000), "a library");
    }
}
