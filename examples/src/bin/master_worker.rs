//! Rank 0 hands out work of uneven size to whichever rank is free; results have unknown lengths.
//!
//! Shows wildcards (any source, any tag), messages that are matched before their buffer is
//! allocated, and tags that tell kinds of messages apart. The work is the path of a number to 1 by
//! Collatz's rule.
//!
//! ```text
//! portolan run -n 4 -- target/release/master_worker
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use portolan::{Comm, Result, Source, Tags, World};

/// Paths from every number up to this one are computed.
const LAST: u64 = 2000;

const WORK: u32 = 1;
const PATH: u32 = 2;
const STOP: u32 = 3;

fn main() -> ExitCode {
    portolan::run(program)
}

pub(crate) fn program(world: World) -> Result<()> {
    let comm = world.comm();
    if comm.rank() != 0 {
        return work(&comm);
    }
    let (sum, longest) = direct(&comm)?;
    // The same computation without the other ranks.
    let lengths = (1..=LAST).map(|start| path(start).len());
    let expected = (1..=LAST).flat_map(path).sum::<u64>();
    assert_eq!(
        (sum, Some(longest)),
        (expected, lengths.max()),
        "a path got lost"
    );
    println!("{LAST} paths, the longest of {longest} numbers, sum of all {sum}");
    Ok(())
}

/// Rank 0: gives a number to each worker, then the next one to each that has sent its path. Returns
/// the sum of all numbers of all paths, and the length of the longest.
fn direct(comm: &Comm) -> Result<(u64, usize)> {
    let mut starts = 1..=LAST;
    let (mut sum, mut longest) = (0, 0);
    let mut count = |path: &[u64]| {
        sum += path.iter().sum::<u64>();
        longest = longest.max(path.len());
    };
    let mut busy = 0;
    for (worker, start) in (1..comm.size()).zip(&mut starts) {
        comm.send_one(&start, worker, WORK)?;
        busy += 1;
    }
    while busy > 0 {
        // From any worker, and of any length.
        let (path, status) = comm.recv::<u64>(Source::Any, PATH)?;
        count(&path);
        match starts.next() {
            Some(start) => comm.send_one(&start, status.source, WORK)?,
            None => busy -= 1,
        }
    }
    // A job of one has no workers.
    starts.for_each(|start| count(&path(start)));
    (1..comm.size()).try_for_each(|worker| comm.send::<u64>(&[], worker, STOP))?;
    Ok((sum, longest))
}

/// The other ranks: each sends the path of every number that it gets, until there are no more.
fn work(comm: &Comm) -> Result<()> {
    loop {
        let message = comm.match_recv(0, Tags::Any)?;
        if message.status().tag == STOP {
            return message.discard().map(drop);
        }
        let mut start = [0];
        message.recv_into(&mut start)?;
        comm.send(&path(start[0]), 0, PATH)?;
    }
}

/// The path of a number to 1: an even number is halved, an odd one becomes three times itself plus
/// one.
fn path(start: u64) -> Vec<u64> {
    let next = |&n: &u64| match n {
        1 => None,
        n if n % 2 == 0 => Some(n / 2),
        n => Some(3 * n + 1),
    };
    std::iter::successors(Some(start), next).collect()
}
