//! Sample sort of numbers that are distributed over ranks.
//!
//! Every rank sorts its share and contributes some of it as samples. All samples, sorted, determine
//! the range of numbers that each rank gets. One alltoall exchanges how many numbers go to which
//! rank, and a second one, with counts, moves them.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use portolan::Level;
use portolan::coll::Scatter;
use portolan::{Comm, Device, Op, Result};

use crate::share;

/// Samples that each rank contributes, per rank.
const SAMPLES: usize = 16;

/// A checksum of the numbers that does not depend on their order: how many, their sum and their
/// exclusive or.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Sum, wrapping around.
    pub sum: i64,
    /// Bitwise exclusive or.
    pub xor: i64,
}

/// The checksum over all ranks. Collective.
///
/// # Errors
/// [`PeerFailed`](portolan::ErrorKind::PeerFailed).
pub fn sum<L: Level, D: Device>(comm: &Comm<L, D>, numbers: &[i64]) -> Result<Sum> {
    let sum = numbers.iter().fold(0_i64, |sum, &n| sum.wrapping_add(n));
    let xor = numbers.iter().fold(0, |xor, n| xor ^ n);
    let mut added = [numbers.len() as i64, sum];
    comm.allreduce_in_place(&mut added, &Op::SUM)?;
    Ok(Sum {
        count: added[0] as u64,
        sum: added[1],
        xor: comm.allreduce_one(xor, &Op::BXOR)?,
    })
}

/// Sorts numbers that are distributed over ranks. Each rank gets a range of them, in order, and all
/// numbers of rank `i` are at most those of rank `i + 1`. Collective.
///
/// # Errors
/// [`PeerFailed`](portolan::ErrorKind::PeerFailed).
pub fn sort<L: Level, D: Device>(comm: &Comm<L, D>, mut numbers: Vec<i64>) -> Result<Vec<i64>> {
    numbers.sort_unstable();
    let ranks = comm.size() as usize;
    let splitters = splitters(comm, &numbers)?;
    // Equal numbers go to one rank, even if that unbalances the ranks.
    let mut rest = &numbers[..];
    let mut parts: Vec<Vec<i64>> = Vec::with_capacity(ranks);
    for splitter in &splitters {
        let (part, behind) = rest.split_at(rest.partition_point(|n| n <= splitter));
        parts.push(part.to_vec());
        rest = behind;
    }
    parts.push(rest.to_vec());
    let mut mine = comm.alltoall_vecs(&parts)?.concat();
    // The numbers are sorted runs, one from each rank, which suits a merge sort.
    mine.sort();
    Ok(mine)
}

/// The largest number of each rank but the last, as determined by the samples of all.
fn splitters<L: Level, D: Device>(comm: &Comm<L, D>, sorted: &[i64]) -> Result<Vec<i64>> {
    let ranks = comm.size() as usize;
    let most = (SAMPLES * ranks).min(sorted.len());
    let samples: Vec<i64> = (0..most)
        .map(|index| sorted[(2 * index + 1) * sorted.len() / (2 * most)])
        .collect();
    let mut all: Vec<i64> = comm
        .allgather_vecs(&samples)?
        .into_iter()
        .flatten()
        .collect();
    all.sort_unstable();
    let place = |rank: usize| rank * all.len() / ranks;
    Ok((1..ranks)
        .map(|rank| all.get(place(rank)).copied().unwrap_or(i64::MAX))
        .collect())
}

/// Whether the numbers are in order on this rank and not below those of the ranks before it; the
/// answer is for all ranks together. Collective.
///
/// # Errors
/// [`PeerFailed`](portolan::ErrorKind::PeerFailed).
pub fn is_sorted<L: Level, D: Device>(comm: &Comm<L, D>, numbers: &[i64]) -> Result<bool> {
    let last = numbers.last().copied().unwrap_or(i64::MIN);
    // A rank may have no numbers.
    let before = comm.exscan_one(last, &Op::MAX)?.unwrap_or(i64::MIN);
    let first = numbers.first().copied().unwrap_or(i64::MAX);
    let right = numbers.is_sorted() && before <= first;
    Ok(comm.allreduce_one(u8::from(right), &Op::LAND)? == 1)
}

/// This rank's share of `count` pseudo-random numbers, which are the same on any number of ranks.
#[must_use]
pub fn generate(count: usize, rank: u32, ranks: u32) -> Vec<i64> {
    let number = |index: usize| {
        // SplitMix64: scrambles the index.
        let mut z = (index as u64)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 20) as i64 - (1 << 43)
    };
    share(count, rank, ranks).map(number).collect()
}

/// Reads a file with one whole number per line; empty lines are skipped.
///
/// # Errors
/// The name of the file, the line and what is wrong with it.
pub fn read(path: &Path) -> std::result::Result<Vec<i64>, String> {
    let name = path.display();
    let failed = |error: io::Error| format!("cannot read `{name}`: {error}");
    let file = File::open(path).map_err(failed)?;
    let mut numbers = Vec::new();
    for (line, text) in (1..).zip(BufReader::new(file).lines()) {
        let text = text.map_err(failed)?;
        let text = text.trim();
        if !text.is_empty() {
            let number = text.parse().map_err(|_| {
                format!("`{name}`, line {line}: `{text}` is not a whole number of 64 bits")
            })?;
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Distributes the numbers of rank 0. Collective.
///
/// # Errors
/// [`PeerFailed`](portolan::ErrorKind::PeerFailed).
pub fn share_out<L: Level, D: Device>(
    comm: &Comm<L, D>,
    numbers: Option<Vec<i64>>,
) -> Result<Vec<i64>> {
    let count = numbers.as_ref().map_or(0, Vec::len) as u64;
    let count = comm.bcast_one(count, 0)? as usize;
    let mut mine = vec![0; share(count, comm.rank(), comm.size()).len()];
    match numbers {
        Some(numbers) => {
            let counts: Vec<_> = (0..comm.size())
                .map(|rank| share(count, rank, comm.size()).len())
                .collect();
            comm.run(Scatter::new(&numbers[..], &mut mine[..], 0).counts(&counts))?;
        }
        None => {
            comm.run(Scatter::receive(&mut mine[..], 0).uneven())?;
        }
    }
    Ok(mine)
}
