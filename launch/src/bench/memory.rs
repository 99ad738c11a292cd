//! Whether there is memory for what is to be measured: what is not there would be noticed late, and by the kernel.

use portolan_benches::{Axis, Form, Pattern};

use super::args::{BenchArgs, BenchKind};
use super::{machine, tune};

/// The ranks of the job of this rank that are on this machine, if its launcher says so; else this one alone.
pub(super) fn ranks_here() -> u32 {
    let said = std::env::var("MPI_LOCALNRANKS");
    said.ok().and_then(|ranks| ranks.parse().ok()).unwrap_or(1)
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

/// Refuses messages for which there is no memory; otherwise the number of ranks again.
pub(super) fn check(args: &BenchArgs, ranks: u32) -> Result<u32, String> {
    check_against(args, ranks, machine::memory_left())
}

/// The same where so many bytes are left, if that is known.
fn check_against(args: &BenchArgs, ranks: u32, left: Option<u64>) -> Result<u32, String> {
    /// What an entry that waits costs about, in whichever implementation.
    const ENTRY: u128 = 256;
    const PAGE: u128 = 4096;
    let patterns = match args.kind {
        BenchKind::Tune => tune::patterns(),
        kind => kind.patterns(),
    };
    let Some(&pattern) = patterns.last() else {
        return Ok(ranks);
    };
    // The usual sizes are modest, but not so many times.
    let usual = (args.buffers > 1).then(|| args.plans(pattern));
    let usual = usual.iter().flatten().map(|plan| plan.bytes).max();
    let Some(largest) = args.sizes.iter().max().copied().or(usual) else {
        return Ok(ranks);
    };
    // Every rank has a buffer to send from and one to receive into, and so has each of its threads.
    let threads = if pattern == Pattern::Multithread {
        args.threads
    } else {
        1
    };
    let (each, what) = match pattern.axis() {
        Axis::Bytes if matches!(pattern, Pattern::Collective(..)) => {
            let most = patterns.iter().map(|pattern| blocks(*pattern, ranks)).max();
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
        Axis::None => return Ok(ranks),
    };
    let need = each * u128::from(ranks);
    let of = if pattern.axis() == Axis::Bytes {
        "bytes"
    } else {
        "entries"
    };
    match left {
        Some(left) if need > u128::from(left) => Err(format!(
            "{what} {largest} {of} need {} MiB in {ranks} ranks, and {} MiB are left here: use \
             smaller --sizes",
            need >> 20,
            left >> 20
        )),
        _ => Ok(ranks),
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

    fn checked(words: &str, ranks: u32) -> Result<u32, String> {
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
            assert_eq!(checked(words, ranks).is_ok(), fits, "{words}");
        }
        let error = checked("tune --sizes 16M", 2).unwrap_err();
        let said = "operations on blocks of 16777216 bytes need 128 MiB in 2 ranks, and 100 MiB are left here: use smaller";
        assert!(error.starts_with(said), "{error}");
    }
}
