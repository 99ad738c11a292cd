//! Checks whether there is enough memory for a measurement. Without the check a lack of memory
//! would show late, when the kernel kills a process.

use portolan_benches::{Axis, Collective, Form, Pattern};
use portolan_core::memory_left;

use super::args::{BenchArgs, BenchKind};
use super::tune;

/// The number of ranks in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranks {
    /// All ranks. An operation has as many blocks.
    job: u32,
    /// The ranks on this machine, which share its memory.
    here: u32,
}

impl Ranks {
    /// A job whose ranks are all on this machine.
    pub(super) fn all_here(ranks: u32) -> Self {
        Self {
            job: ranks,
            here: ranks,
        }
    }

    /// The job of this rank, according to its launcher. Some launchers (Slurm, for example) do not
    /// say how many ranks are on this machine; then all of them may be.
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

/// The number of blocks that a rank has for an operation, to send and to receive together. A
/// persistent operation owns copies, which count as well.
fn blocks(which: Collective, form: Form, ranks: u32) -> u128 {
    use Collective as C;
    let all = u128::from(if which.is_of_neighbours() { 2 } else { ranks });
    let blocks = match which {
        C::Alltoall
        | C::Alltoallv
        | C::Alltoallw
        | C::NeighbourAlltoall
        | C::NeighbourAlltoallv
        | C::NeighbourAlltoallw => 2 * all,
        // Every rank has the buffer that only the root of these needs.
        C::Gather
        | C::Gatherv
        | C::Scatter
        | C::Scatterv
        | C::Allgather
        | C::Allgatherv
        | C::NeighbourAllgather
        | C::NeighbourAllgatherv => 1 + all,
        _ => 2,
    };
    let copies = if form == Form::Persistent { 2 } else { 1 };
    blocks * copies
}

/// What a measurement needs at most.
struct Need {
    /// Bytes of a rank.
    each: u128,
    /// What that is for.
    what: &'static str,
    largest: usize,
    of: &'static str,
}

impl Need {
    /// What a pattern needs for the largest of its sizes, given or usual; `None` if it has no
    /// sizes.
    fn of(args: &BenchArgs, pattern: Pattern, ranks: u32) -> Option<Self> {
        /// Approximate size of a waiting entry, in any implementation.
        const ENTRY: u128 = 256;
        const PAGE: u128 = 4096;
        let plans = match args.kind {
            BenchKind::Tune => args.plans_of(pattern, &tune::SIZES),
            _ => args.plans(pattern),
        };
        let largest = plans.iter().map(|plan| plan.bytes).max()?;
        let bytes = largest as u128;
        // Every rank, or every thread of it, has a buffer to send from and one to receive into.
        let threads = if pattern == Pattern::Multithread {
            args.threads()
        } else {
            1
        };
        let (each, what) = match pattern.axis() {
            Axis::None => return None,
            Axis::Waiting => (ENTRY * bytes, "queues of"),
            Axis::Bytes => match pattern {
                Pattern::Collective(which, form) => (
                    blocks(which, form, ranks) * bytes,
                    "operations on blocks of",
                ),
                // Each buffer begins at a page boundary.
                _ if args.buffers() > 1 => (
                    2 * bytes.max(1).next_multiple_of(PAGE) * u128::from(args.buffers()),
                    "several --buffers for messages of",
                ),
                _ => (2 * bytes * u128::from(threads), "messages of"),
            },
        };
        Some(Self {
            each,
            what,
            largest,
            of: if pattern.axis() == Axis::Bytes {
                "bytes"
            } else {
                "entries"
            },
        })
    }
}

/// Memory that the process of a rank takes at least: its stack, heap and tables.
const PROCESS: u64 = 1 << 20;

/// Refuses more ranks than there is memory for, whatever they do.
pub(super) fn check_processes(ranks: u32) -> Result<(), String> {
    check_processes_against(ranks, memory_left::room().map(|room| room.bytes))
}

fn check_processes_against(ranks: u32, left: Option<u64>) -> Result<(), String> {
    let need = u64::from(ranks) * PROCESS;
    match left {
        Some(left) if need > left => Err(format!(
            "{ranks} ranks need {} MiB or more, and {} MiB are left here: start fewer",
            need >> 20,
            left >> 20
        )),
        _ => Ok(()),
    }
}

/// Refuses messages for which there is not enough memory.
pub(super) fn check(args: &BenchArgs, ranks: Ranks) -> Result<(), String> {
    check_against(args, ranks, memory_left::room().map(|room| room.bytes))
}

/// As [`check`], with `left` bytes of free memory; `None` if that is not known.
fn check_against(args: &BenchArgs, ranks: Ranks, left: Option<u64>) -> Result<(), String> {
    if args.cuda {
        // The ranks ask their GPUs. Over most devices long messages pass through the host in
        // pieces, if at all.
        return Ok(());
    }
    let patterns = match args.kind {
        BenchKind::Tune => tune::patterns(),
        kind => kind.patterns(),
    };
    let needs = patterns
        .into_iter()
        .filter_map(|pattern| Need::of(args, pattern, ranks.job));
    let Some(most) = needs.max_by_key(|need| need.each) else {
        return Ok(());
    };
    let Need {
        each,
        what,
        largest,
        of,
    } = most;
    let need = each * u128::from(ranks.here);
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
    fn more_ranks_than_there_is_memory_for_are_refused() {
        for (ranks, left, fits) in [
            (100, Some(100 << 20), true),
            (101, Some(100 << 20), false),
            (1 << 16, None, true),
        ] {
            let checked = check_processes_against(ranks, left);
            assert_eq!(checked.is_ok(), fits, "{checked:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (words, ranks, fits) in [
            ("latency --sizes 8,16M", 2, true),
            ("latency --sizes 8,32M", 2, false),
            ("latency --sizes 8,32M", 1, true),
            ("latency --sizes 8,32M --cuda", 2, true),
            ("multithread --sizes 16M --threads 2", 2, false),
            ("bandwidth --sizes 1M --buffers 32", 2, false),
            ("bandwidth --sizes 512k", 2, true),
            ("bandwidth --sizes 512k --scope", 2, false),
            ("depth --sizes 1000000", 2, false),
            ("allreduce --sizes 16M", 2, true),
            ("allreduce-init --sizes 16M", 2, false),
            ("alltoall --sizes 16M", 2, false),
            ("gather --sizes 16M", 2, true),
            ("gather --sizes 16M", 3, false),
            ("neighbor-alltoall --sizes 1M", 16, true),
            ("neighbor-alltoall --sizes 1M", 32, false),
            ("tune --sizes 8,4M", 2, true),
            ("tune --sizes 8,16M", 2, false),
            // The largest of the usual sizes is 4 MiB, of `tune` 2 MiB.
            ("alltoall", 3, true),
            ("alltoall", 4, false),
            ("allreduce", 12, true),
            ("coll", 4, false),
            ("icoll", 4, false),
            ("tune", 5, true),
            ("tune", 6, false),
            ("latency", 12, true),
            ("latency", 13, false),
            ("multithread", 1000, true),
            ("depth", 4, true),
            ("depth", 5, false),
            ("startup", 1000, true),
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
        // 16 blocks of 512 KiB in each direction: 16 MiB in each rank, however many ranks are here.
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
