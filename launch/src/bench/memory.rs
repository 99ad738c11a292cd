//! Whether there is memory for what is to be measured: what is not there would be noticed late, and
//! by the kernel.

use portolan_benches::{Axis, Form, Pattern};
use portolan_core::memory_left;

use super::args::{BenchArgs, BenchKind};
use super::tune;

/// How many ranks a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranks {
    /// All of them: so many blocks does an operation have.
    job: u32,
    /// Those on this machine, who share its memory.
    here: u32,
}

impl Ranks {
    /// Those of a job that is all here.
    pub(super) fn all_here(ranks: u32) -> Self {
        Self {
            job: ranks,
            here: ranks,
        }
    }

    /// Those of the job of this rank, as far as its launcher says. Where it does not say how many
    /// are here (Slurm's does not), all may be.
    pub(super) fn of_this_job() -> Self {
        Self::said_by(|name| std::env::var(name).ok())
    }

    fn said_by(set: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| set(name)?.trim().parse::<u32>().ok().filter(|&n| n > 0);
        let (job, here) = (number("PMI_SIZE"), number("MPI_LOCALNRANKS"));
        let job = job.or(here).unwrap_or(1);
        Self {
            job,
            here: here.unwrap_or(job),
        }
    }
}

/// How many blocks an operation has each way at most; the persistent one owns copies.
fn blocks(pattern: Pattern, ranks: u32) -> u128 {
    match pattern {
        Pattern::Collective(which, form) => {
            let blocks = if which.is_of_neighbours() { 2 } else { ranks };
            let copies = if form == Form::Persistent { 2 } else { 1 };
            u128::from(blocks) * copies
        }
        _ => 1,
    }
}

/// Refuses messages for which there is no memory.
pub(super) fn check(args: &BenchArgs, ranks: Ranks) -> Result<(), String> {
    check_against(args, ranks, memory_left::room().map(|room| room.bytes))
}

/// The same where so many bytes are left, if that is known.
fn check_against(args: &BenchArgs, ranks: Ranks, left: Option<u64>) -> Result<(), String> {
    /// What an entry that waits costs about, in whichever implementation.
    const ENTRY: u128 = 256;
    const PAGE: u128 = 4096;
    let patterns = match args.kind {
        BenchKind::Tune => tune::patterns(),
        kind => kind.patterns(),
    };
    let Some(&pattern) = patterns.last() else {
        return Ok(());
    };
    // The usual sizes are modest, but not so many times.
    let usual = (args.buffers > 1).then(|| args.plans(pattern));
    let usual = usual.iter().flatten().map(|plan| plan.bytes).max();
    let Some(largest) = args.sizes.iter().max().copied().or(usual) else {
        return Ok(());
    };
    // Every rank has a buffer to send from and one to receive into, and so has each of its threads.
    let threads = if pattern == Pattern::Multithread {
        args.threads
    } else {
        1
    };
    let (each, what) = match pattern.axis() {
        Axis::Bytes if matches!(pattern, Pattern::Collective(..)) => {
            let blocks = patterns.iter().map(|pattern| blocks(*pattern, ranks.job));
            let most = blocks.max();
            (
                2 * largest as u128 * most.unwrap_or(1),
                "operations on blocks of",
            )
        }
        // Each begins at a page.
        Axis::Bytes if args.buffers > 1 => (
            2 * (largest.max(1) as u128).next_multiple_of(PAGE) * u128::from(args.buffers),
            "several --buffers for messages of",
        ),
        Axis::Bytes => (2 * largest as u128 * u128::from(threads), "messages of"),
        Axis::Waiting => (ENTRY * largest as u128, "queues of"),
        Axis::None => return Ok(()),
    };
    let need = each * u128::from(ranks.here);
    let of = if pattern.axis() == Axis::Bytes {
        "bytes"
    } else {
        "entries"
    };
    match left {
        Some(left) if need > u128::from(left) => Err(format!(
            "{what} {largest} {of} need {} MiB in {} ranks, and {} MiB are left here: use \
             smaller --sizes",
            need >> 20,
            ranks.here,
            left >> 20
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn checked(words: &str, ranks: Ranks) -> Result<(), String> {
        let words = std::iter::once("bench").chain(words.split(' '));
        check_against(&Line::parse_from(words).bench, ranks, Some(100 << 20))
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (words, ranks, fits) in [
            ("latency --sizes 8,16M", 2, true),
            ("latency --sizes 8,32M", 2, false),
            ("latency --sizes 8,32M", 1, true),
            ("multithread --sizes 16M --threads 2", 2, false),
            ("bandwidth --sizes 1M --buffers 32", 2, false),
            ("depth --sizes 1000000", 2, false),
            ("allreduce --sizes 16M", 2, false),
            ("tune --sizes 8,4M", 2, true),
            ("tune --sizes 8,16M", 2, false),
            ("failure", 2, true),
        ] {
            assert_eq!(
                checked(words, Ranks::all_here(ranks)).is_ok(),
                fits,
                "{words}"
            );
        }
        let error = checked("tune --sizes 16M", Ranks::all_here(2)).unwrap_err();
        let said = "operations on blocks of 16777216 bytes need 128 MiB in 2 ranks, and 100 MiB are left here: use smaller";
        assert!(error.starts_with(said), "{error}");
    }

    #[test]
    fn blocks_are_of_all_ranks_and_memory_is_shared_with_those_that_are_here() {
        // 16 blocks each way of 512 KiB: 16 MiB in each rank, whoever else is here.
        let over_nodes = |here| Ranks { job: 16, here };
        for (here, fits) in [(1, true), (6, true), (7, false), (16, false)] {
            let checked = checked("alltoall --sizes 512k", over_nodes(here));
            assert_eq!(checked.is_ok(), fits, "{here}: {checked:?}");
        }
        assert!(checked("alltoall --sizes 512k", Ranks::all_here(1)).is_ok());
    }

    #[test]
    fn where_nobody_says_how_many_ranks_are_here_all_may_be() {
        let said = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|set| set.0 == name);
            let ranks = Ranks::said_by(|name| Some(value(name)?.1.to_owned()));
            (ranks.job, ranks.here)
        };
        let (size, here) = (("PMI_SIZE", "64"), ("MPI_LOCALNRANKS", "8"));
        assert_eq!(said(&[size, here]), (64, 8));
        assert_eq!(said(&[size]), (64, 64));
        assert_eq!(said(&[here]), (8, 8));
        assert_eq!(said(&[]), (1, 1));
    }
}
