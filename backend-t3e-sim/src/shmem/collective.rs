//! Broadcast, collect and reductions over active sets, by puts and flags.

use portolan_core::{Error, ErrorKind, Result};

use super::team::{FOLD, Place, UNFOLD};
use super::{ActiveSet, Shmem};
use crate::machine::Addr;

/// How a reduction combines two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The bits that both have, for signed words only.
    And,
    /// The greater word.
    Max,
    /// The smaller word.
    Min,
    /// The bits that at least one of them has, for signed words only.
    Or,
    /// Their product, wrapping for signed words.
    Prod,
    /// Their sum, wrapping for signed words.
    Sum,
    /// The bits that exactly one of them has, for signed words only.
    Xor,
}

impl Reduction {
    fn of_i64(self, a: u64, b: u64) -> u64 {
        let (x, y) = (a.cast_signed(), b.cast_signed());
        match self {
            Self::And => a & b,
            Self::Max => x.max(y).cast_unsigned(),
            Self::Min => x.min(y).cast_unsigned(),
            Self::Or => a | b,
            Self::Prod => a.wrapping_mul(b),
            Self::Sum => a.wrapping_add(b),
            Self::Xor => a ^ b,
        }
    }

    fn of_f64(self, a: u64, b: u64) -> Option<u64> {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        let result = match self {
            Self::Max => x.max(y),
            Self::Min => x.min(y),
            Self::Prod => x * y,
            Self::Sum => x + y,
            Self::And | Self::Or | Self::Xor => return None,
        };
        Some(result.to_bits())
    }
}

/// Words of working memory that a reduction of `words` words needs. It holds the parts of two
/// calls, because a PE may be one call ahead of another.
#[must_use]
pub const fn work_words(words: usize) -> usize {
    2 * (UNFOLD + 1) * words
}

impl Shmem {
    /// Copies `words` words from `source` on the PE at place `root` to `target` on all others
    /// (`shmem_broadcast64`), along a tree.
    ///
    /// `sync` as in [`barrier_set`](Self::barrier_set).
    ///
    /// # Errors
    /// As [`barrier_set`](Self::barrier_set), and
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if there is no place `root`.
    pub fn broadcast64(
        &mut self,
        target: Addr,
        source: Addr,
        words: usize,
        root: u32,
        set: ActiveSet,
        sync: Addr,
    ) -> Result<()> {
        if root >= set.size {
            let what = format!("there is no place {root} in {set:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .remedy("count places from 0, in the order of PEs")
                .on_device("t3e-sim"));
        }
        let place = self.enter(set, sync)?;
        // Places are counted from the root: the PE at place 6 (110) hears from place 4 (100) and
        // tells place 7 (111).
        let mine = (place.me + set.size - root) % set.size;
        let from = if mine == 0 {
            source
        } else {
            self.await_flag(&place, 0)?;
            target
        };
        let mut bytes = vec![0; words * 8];
        self.peek(from, &mut bytes)?;
        let below = if mine == 0 {
            set.size.next_power_of_two()
        } else {
            1 << mine.trailing_zeros()
        };
        let mut step = below / 2;
        while step > 0 {
            if mine + step < set.size {
                let to = (mine + step + root) % set.size;
                self.put(set.pe(to), target, &bytes)?;
                self.raise(&place, to, 0)?;
            }
            step /= 2;
        }
        Ok(())
    }

    /// Puts the `words` words at `source` of every PE, one PE's after the other's, into `target` on
    /// all PEs (`shmem_fcollect64`).
    ///
    /// # Errors
    /// As [`barrier_set`](Self::barrier_set).
    pub fn fcollect64(
        &mut self,
        target: Addr,
        source: Addr,
        words: usize,
        set: ActiveSet,
        sync: Addr,
    ) -> Result<()> {
        let place = self.enter(set, sync)?;
        let mut bytes = vec![0; words * 8];
        self.peek(source, &mut bytes)?;
        self.spread(&place, target + place.me as usize * words * 8, &bytes)
    }

    /// The same, but each PE may contribute a different number of words (`shmem_collect64`).
    ///
    /// `work` is symmetric and has a word for every PE of the set.
    ///
    /// # Errors
    /// As [`barrier_set`](Self::barrier_set).
    pub fn collect64(
        &mut self,
        target: Addr,
        source: Addr,
        words: usize,
        set: ActiveSet,
        work: Addr,
        sync: Addr,
    ) -> Result<()> {
        let place = self.enter(set, sync)?;
        let count = (words as u64).to_le_bytes();
        self.spread(&place, work + place.me as usize * 8, &count)?;
        let mut counts = vec![0; place.me as usize * 8];
        self.load(work, &mut counts)?;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        let before: u64 = counts.chunks_exact(8).map(word).sum();

        let place = self.enter(set, sync)?;
        let mut bytes = vec![0; words * 8];
        self.peek(source, &mut bytes)?;
        self.spread(&place, target + before as usize * 8, &bytes)
    }

    /// Puts bytes to the same address on all PEs, the nearest place first, and waits until all PEs
    /// have done so.
    fn spread(&mut self, place: &Place, target: Addr, bytes: &[u8]) -> Result<()> {
        for step in 0..place.set.size {
            let to = (place.me + step) % place.set.size;
            self.put(place.set.pe(to), target, bytes)?;
        }
        self.quiet()?;
        self.disseminate(place)
    }

    /// Combines signed words of all PEs, word by word; all PEs get the result
    /// (`shmem_long_sum_to_all` and its kin).
    ///
    /// `work` has [`work_words`] words of symmetric memory for as many `words`, `sync` as in
    /// [`barrier_set`](Self::barrier_set).
    ///
    /// # Errors
    /// As [`barrier_set`](Self::barrier_set).
    pub fn reduce_i64(
        &mut self,
        how: Reduction,
        target: Addr,
        source: Addr,
        words: usize,
        set: ActiveSet,
        work: Addr,
        sync: Addr,
    ) -> Result<()> {
        let combine = |a, b| how.of_i64(a, b);
        self.reduce(&combine, target, source, words, set, work, sync)
    }

    /// Combines floating-point words of all PEs, word by word; all PEs get the same result
    /// (`shmem_double_sum_to_all` and its kin).
    ///
    /// # Errors
    /// As [`reduce_i64`](Self::reduce_i64), and [`InvalidArgument`](ErrorKind::InvalidArgument) for
    /// the reductions of bits.
    pub fn reduce_f64(
        &mut self,
        how: Reduction,
        target: Addr,
        source: Addr,
        words: usize,
        set: ActiveSet,
        work: Addr,
        sync: Addr,
    ) -> Result<()> {
        if how.of_f64(0, 0).is_none() {
            let what = format!("floating-point words have no {how:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .remedy("use Sum, Prod, Min or Max")
                .on_device("t3e-sim"));
        }
        let combine = |a, b| how.of_f64(a, b).expect("checked above");
        self.reduce(&combine, target, source, words, set, work, sync)
    }

    /// Recursive doubling among the first places, as many as the largest power of two. The other
    /// places hand their words over first and get the result at the end.
    fn reduce(
        &mut self,
        combine: &dyn Fn(u64, u64) -> u64,
        target: Addr,
        source: Addr,
        words: usize,
        set: ActiveSet,
        work: Addr,
        sync: Addr,
    ) -> Result<()> {
        let place = self.enter(set, sync)?;
        let work = Work {
            base: work,
            words,
            combine,
            odd: place.epoch % 2 == 1,
        };
        let mut mine = vec![0; words];
        self.read_words(source, &mut mine)?;
        let core = 1 << set.size.ilog2();
        if place.me >= core {
            self.hand(&place, place.me - core, &work, FOLD, &mine)?;
            self.await_flag(&place, UNFOLD)?;
            self.read_words(work.part(UNFOLD), &mut mine)?;
            return self.write_words(target, &mine);
        }
        let extra = Some(place.me + core).filter(|extra| *extra < set.size);
        if extra.is_some() {
            self.combine_part(&place, &work, FOLD, &mut mine)?;
        }
        for round in 0..core.trailing_zeros() {
            self.hand(&place, place.me ^ 1 << round, &work, round as usize, &mine)?;
            self.combine_part(&place, &work, round as usize, &mut mine)?;
        }
        if let Some(extra) = extra {
            self.hand(&place, extra, &work, UNFOLD, &mine)?;
        }
        self.write_words(target, &mine)
    }

    fn hand(
        &mut self,
        place: &Place,
        to: u32,
        work: &Work<'_>,
        part: usize,
        words: &[u64],
    ) -> Result<()> {
        self.put64(place.set.pe(to), work.part(part), words)?;
        self.raise(place, to, part)
    }

    fn combine_part(
        &mut self,
        place: &Place,
        work: &Work<'_>,
        part: usize,
        mine: &mut [u64],
    ) -> Result<()> {
        self.await_flag(place, part)?;
        let mut theirs = vec![0; work.words];
        self.read_words(work.part(part), &mut theirs)?;
        for (mine, theirs) in mine.iter_mut().zip(theirs) {
            *mine = (work.combine)(*mine, theirs);
        }
        Ok(())
    }

    fn read_words(&mut self, addr: Addr, words: &mut [u64]) -> Result<()> {
        let mut bytes = vec![0; words.len() * 8];
        self.load(addr, &mut bytes)?;
        super::access::scatter(&bytes, words, 1);
        Ok(())
    }

    fn write_words(&mut self, addr: Addr, words: &[u64]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.store(addr, &bytes)
    }
}

/// The memory in which the parts of a reduction arrive.
struct Work<'a> {
    base: Addr,
    words: usize,
    combine: &'a dyn Fn(u64, u64) -> u64,
    /// Whether this call uses the second of two sets of parts. Calls alternate between the sets,
    /// because a PE that has its result may begin the next call before another has read its last
    /// part.
    odd: bool,
}

impl Work<'_> {
    fn part(&self, number: usize) -> Addr {
        let turn = if self.odd { UNFOLD + 1 } else { 0 };
        self.base + (turn + number) * self.words * 8
    }
}
