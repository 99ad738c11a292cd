//! Context ids: how the ranks of a communicator agree on one that is free on all of them.
//!
//! Every rank keeps a bit mask of the ids that are free here. The ranks of the parent intersect
//! their masks by an all-reduce and take the lowest bit that is left: the same on all of them.
//! Freeing sets the bit in the local mask only, so an id is used again when, and only when, every
//! rank that takes part in a creation has freed it.
//!
//! **Several creations** may go on at once on a rank: in several threads, from different parents, and in the background
//! (`later.rs`). Only one of them
//! can have a rank's mask; the others contribute an empty one, and one more bit that says so. If
//! that bit did not survive the intersection, the round decided nothing and everybody tries
//! again. None waits for the mask, so no two ranks can wait for each other's creations. And none
//! has it while it waits for a rank that may be busy with another creation: a first round
//! without masks makes sure that everybody has come (`meet.rs`).
//! Preference goes to the parent with the lowest context: from some round on it has the mask on
//! every rank, so somebody always gets done.

use std::sync::{Arc, Mutex};

use super::meet::Call;
use super::{Communicator, Tag, lock};
use crate::device::{Check, Device};
use crate::error::{Error, ErrorKind, Result};

/// Communicators that may be alive at once on one rank.
const LIMIT: u32 = 4096;
/// The id of the communicator that a process has of itself alone: the same on all of them, and never in a mask.
const ALONE: u32 = LIMIT;
/// 64-bit words of a mask.
pub(super) const WORDS: usize = LIMIT as usize / 64;

/// What is being agreed on: different for any two agreements that a rank takes part in at once, the
/// same on all of its ranks. The least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The parent's context.
    pub(super) context: u32,
    pub(super) whom: Whom,
}

/// Who agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whom {
    /// All ranks of the parent.
    All,
    /// The same in the background; one at a time.
    AllLater,
    /// Some of them, with this tag.
    Some(Tag),
    /// The ranks of two parents: the other's context, and the process of the lower leader.
    Both { other: u32, leader: u32 },
}

/// The ids of one rank. Communicator `i` has the contexts from `4i` on.
#[derive(Debug)]
pub(super) struct Pool(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Bit set: the id is free.
    free: [u64; WORDS],
    /// What is being agreed on in some thread here, in ascending order.
    agreeing: Vec<Key>,
    /// Which of them has the mask.
    holder: Option<Key>,
    /// Whether [`ALONE`] is in use.
    alone: bool,
    live: u32,
}

/// A mask, and in the last word whether it is one.
pub(super) type Offer = [u64; WORDS + 1];

impl Pool {
    /// All ids free whose contexts the device allows.
    pub(super) fn new(max_context_id: u32) -> Self {
        let ids = (max_context_id.saturating_add(1) / super::STRIDE).min(LIMIT);
        let mut free = [0; WORDS];
        for id in 0..ids {
            free[id as usize / 64] |= 1 << (id % 64);
        }
        Self(Mutex::new(State {
            free,
            agreeing: Vec::new(),
            holder: None,
            alone: false,
            live: 0,
        }))
    }

    /// Takes id 0, the world's, and returns its context.
    pub(super) fn reserve_first(&self) -> u32 {
        lock(&self.0).take(0)
    }

    /// Takes the id of the communicator of this process alone, and returns its context; `None` if it is in use.
    pub(super) fn reserve_alone(&self) -> Option<u32> {
        let mut state = lock(&self.0);
        let taken = std::mem::replace(&mut state.alone, true);
        state.live += u32::from(!taken);
        (!taken).then_some(ALONE * super::STRIDE)
    }

    /// The id of `context` is free here.
    pub(super) fn release(&self, context: u32) {
        let id = context / super::STRIDE;
        let mut state = lock(&self.0);
        if id == ALONE {
            state.alone = false;
            state.live -= 1;
            return;
        }
        let bit = 1 << (id % 64);
        debug_assert_eq!(
            state.free[id as usize / 64] & bit,
            0,
            "context {context} freed twice"
        );
        state.free[id as usize / 64] |= bit;
        state.live -= 1;
    }

    pub(super) fn live(&self) -> u32 {
        lock(&self.0).live
    }

    pub(super) fn claim(self: &Arc<Self>, key: Key) -> Claim {
        let mut state = lock(&self.0);
        let place = state.agreeing.partition_point(|&other| other < key);
        state.agreeing.insert(place, key);
        Claim {
            pool: Arc::clone(self),
            key,
        }
    }
}

impl State {
    fn take(&mut self, id: u32) -> u32 {
        self.free[id as usize / 64] &= !(1 << (id % 64));
        self.live += 1;
        id * super::STRIDE
    }
}

/// The context ids of a communicator: they are not used again before the last clone goes.
///
/// A communicator has one; whoever has started something on it that may outlive its handles (a collective
/// operation inside progress) keeps [another](Communicator::lease). Dropping one does not call the
/// device, so a hook may do it.
#[derive(Clone)]
pub struct Lease(Arc<Leased>);

struct Leased {
    pool: Arc<Pool>,
    context: u32,
}

impl Lease {
    pub(super) fn new(pool: Arc<Pool>, context: u32) -> Self {
        Self(Arc::new(Leased { pool, context }))
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.pool.release(self.context);
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lease").field(&self.0.context).finish()
    }
}

/// One creation's part in an agreement; gives up the mask and its place when it goes.
pub(super) struct Claim {
    pool: Arc<Pool>,
    key: Key,
}

impl Claim {
    /// What this rank contributes to a round: its mask, if this creation can have it.
    pub(super) fn offer(&self) -> Offer {
        let mut state = lock(&self.pool.0);
        let first = state.agreeing.first() == Some(&self.key);
        if state.holder.is_some() || !first {
            return [0; WORDS + 1];
        }
        state.holder = Some(self.key);
        let mut offer = [u64::MAX; WORDS + 1];
        offer[..WORDS].copy_from_slice(&state.free);
        offer
    }

    /// The round decided nothing: another creation may have the mask.
    pub(super) fn give_back(&self) {
        let mut state = lock(&self.pool.0);
        if state.holder == Some(self.key) {
            state.holder = None;
        }
    }

    pub(super) fn take(&self, id: u32) -> u32 {
        lock(&self.pool.0).take(id)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_back();
        let mut state = lock(&self.pool.0);
        if let Some(place) = state.agreeing.iter().position(|&key| key == self.key) {
            state.agreeing.remove(place);
        }
    }
}

/// The lowest id that is set.
pub(super) fn lowest(mask: &[u64]) -> Option<u32> {
    let word = mask.iter().position(|&word| word != 0)?;
    Some(word as u32 * 64 + mask[word].trailing_zeros())
}

impl<D: Device> Communicator<D> {
    /// Agrees with the other ranks, which call the same, on a context that is free on all of them, and takes it.
    pub(super) fn agree(&self, call: Call<'_>) -> Result<u32> {
        self.meet(call)?;
        self.decide()
    }

    /// The same where everybody is known to have come ([`meet`](Self::meet)).
    pub(super) fn decide(&self) -> Result<u32> {
        let key = Key {
            context: self.0.context,
            whom: Whom::All,
        };
        self.decide_by(key, self.size(), |offer| self.and_words(offer))
    }

    /// The same with whomever `and` intersects offers.
    pub(super) fn decide_by(
        &self,
        key: Key,
        ranks: u32,
        mut and: impl FnMut(&mut Offer) -> Result<()>,
    ) -> Result<u32> {
        let pool = &self.0.job.pool;
        let claim = pool.claim(key);
        loop {
            let mut offer = claim.offer();
            and(&mut offer)?;
            if offer[WORDS] != 0 {
                return match lowest(&offer[..WORDS]) {
                    Some(id) => Ok(claim.take(id)),
                    None => {
                        let attributes = self.device().attributes();
                        let error = no_id_left(ranks, self.live());
                        Err(error
                            .on_rank(attributes.world_rank)
                            .on_device(attributes.name))
                    }
                };
            }
            claim.give_back();
            self.device().device_check(Check::NonBlocking)?;
            std::thread::yield_now();
        }
    }
}

/// No id is free on all of so many ranks; so many are in use on this one.
#[cold]
pub(super) fn no_id_left(ranks: u32, live: u32) -> Error {
    let what = format!(
        "no context id is free on all {ranks} ranks; {live} of {LIMIT} communicators are alive here"
    );
    Error::new(ErrorKind::Exhausted, what)
        .remedy("drop communicators that are no longer used, on every rank")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intersect(offers: &[Offer]) -> Offer {
        let mut all = [u64::MAX; WORDS + 1];
        for offer in offers {
            all.iter_mut().zip(offer).for_each(|(a, b)| *a &= b);
        }
        all
    }

    fn all(context: u32) -> Key {
        let whom = Whom::All;
        Key { context, whom }
    }

    fn some(context: u32) -> Key {
        let whom = Whom::Some(Tag(3));
        Key { context, whom }
    }

    #[test]
    fn an_id_comes_back_when_every_rank_has_freed_it() {
        let ranks = [(); 2].map(|()| Arc::new(Pool::new(u32::MAX)));
        assert!(ranks.iter().all(|pool| pool.reserve_first() == 0));
        let agree = || {
            let claims = [ranks[0].claim(all(0)), ranks[1].claim(all(0))];
            let all = intersect(&[claims[0].offer(), claims[1].offer()]);
            let id = lowest(&all[..WORDS]).unwrap();
            claims.map(|claim| claim.take(id))[0]
        };
        assert_eq!((agree(), agree()), (4, 8));
        ranks[0].release(4);
        assert_eq!(agree(), 12, "rank 1 still uses context 4");
        ranks[0].release(12);
        ranks[1].release(12);
        ranks[1].release(4);
        assert_eq!((agree(), agree()), (4, 12));
        assert_eq!(ranks[0].live(), 4);
    }

    #[test]
    fn threads_that_compete_decide_nothing_until_one_has_every_mask() {
        let ranks = [(); 2].map(|()| Arc::new(Pool::new(u32::MAX)));
        // Rank 0's first thread came earlier, rank 1's second did.
        let (a0, b1) = (ranks[0].claim(all(4)), ranks[1].claim(some(4)));
        let (offer_a0, offer_b1) = (a0.offer(), b1.offer());
        let (b0, a1) = (ranks[0].claim(some(4)), ranks[1].claim(all(4)));
        let (offer_b0, offer_a1) = (b0.offer(), a1.offer());
        assert_eq!(intersect(&[offer_a0, offer_a1])[WORDS], 0);
        assert_eq!(intersect(&[offer_b0, offer_b1])[WORDS], 0);
        for claim in [&a0, &a1, &b0, &b1] {
            claim.give_back();
        }
        // The next round is the lower parent's, whoever asks first.
        assert_eq!(b0.offer()[WORDS], 0);
        assert_ne!(intersect(&[a0.offer(), a1.offer()])[WORDS], 0);
        drop((a0, a1));
        assert_ne!(intersect(&[b0.offer(), b1.offer()])[WORDS], 0);
    }

    #[test]
    fn the_devices_largest_context_is_respected() {
        let pool = Arc::new(Pool::new(11));
        assert_eq!(pool.reserve_first(), 0);
        let claim = pool.claim(all(0));
        assert_eq!(claim.take(lowest(&claim.offer()[..WORDS]).unwrap()), 4);
        claim.give_back();
        assert_eq!(claim.take(lowest(&claim.offer()[..WORDS]).unwrap()), 8);
        claim.give_back();
        assert_eq!(lowest(&claim.offer()[..WORDS]), None);
    }
}
