//! The same patterns on raw SHMEM, where it has them.

use portolan_core::Result;
use portolan_t3e_sim::shmem::{ActiveSet, Reduction, SYNC_WORDS, work_words};
use portolan_t3e_sim::{Addr, Condition, Shmem, Time};

/// Static data of each PE: flags of a collective call, its work space, and two words for messages.
pub(crate) const STATICS: usize = 8 * (SYNC_WORDS + work_words(1) + 4);

const SYNC: Addr = Addr(0);
const WORK: usize = 8 * SYNC_WORDS;
const WORDS: usize = WORK + 8 * work_words(1);

/// The hardware's barrier network.
pub(crate) fn hardware_barrier(pe: &mut Shmem) -> Result<()> {
    pe.barrier()
}

/// A dissemination barrier of puts and flags.
pub(crate) fn dissemination_barrier(pe: &mut Shmem) -> Result<()> {
    pe.barrier_set(ActiveSet::all(pe.n_pes()), SYNC)
}

/// A sum over all PEs by recursive doubling.
pub(crate) fn allreduce(pe: &mut Shmem) -> Result<()> {
    let (source, target) = (SYNC + WORDS, SYNC + WORDS + 8);
    pe.store_u64(source, 1)?;
    let all = ActiveSet::all(pe.n_pes());
    pe.reduce_i64(Reduction::Sum, target, source, 1, all, SYNC + WORK, SYNC)?;
    assert_eq!(pe.load_u64(target)?, u64::from(pe.n_pes()));
    Ok(())
}

/// Half a round trip of `len` bytes between neighbours, as NetPIPE measures it: the receiver polls
/// the last word.
pub(crate) fn ping_pong(pe: &mut Shmem, len: usize) -> Result<Time> {
    const ROUNDS: i64 = 4;
    let place = pe.malloc(len)?;
    let last = place + (len - 8);
    let (me, other) = (pe.my_pe(), 1 - pe.my_pe());
    pe.barrier_all()?;
    let begin = pe.clock();
    for round in 1..=ROUNDS {
        let words = vec![round.cast_unsigned(); len / 8];
        if me == 0 {
            pe.put64(other, place, &words)?;
        }
        pe.wait_until(last, Condition::Equal(round))?;
        if me == 1 {
            pe.put64(other, place, &words)?;
        }
    }
    let took = pe.clock() - begin;
    pe.free(place)?;
    Ok(Time::from_ps(took.as_ps() / (2 * ROUNDS.cast_unsigned())))
}
