//! Context ids: how the ranks of a communicator agree on an id that is free on all of them.
//!
//! **The contexts of an id.** Id `i` has the contexts `4i` to `4i + 3`:
//!
//! | context | its messages | ranks there | tags |
//! | --- | --- | --- | --- |
//! | `4i` | point to point | the communicator's | the program's |
//! | `4i + 1` | collective operations | the communicator's | `tags.rs`, and `coll` |
//! | `4i + 2` | agreements of some ranks (`among.rs`) | processes | of `create_group` |
//! | `4i + 3` | between two leaders (`inter/link.rs`) | processes | of the remote leader |
//!
//! In `4i + 1`, tags from [`FIRST_FREE_TAG`](super::FIRST_FREE_TAG) on belong to `coll`. The device
//! is told of the first two contexts ([`CommView`](crate::device::CommView)), or of the first alone
//! if the ranks perform no collective operations with each other. It knows nothing about the last
//! two, so it takes ranks there for process numbers.
//!
//! **Agreement.** Every rank keeps a bit mask of its free ids. The ranks of the parent intersect
//! their masks by an all-reduce and take the lowest bit that remains, which is the same on all of
//! them. Freeing is local, so an id is used again only once every rank that takes part in a
//! creation has freed it.
//!
//! **Leftovers.** A rank may free a communicator while messages for it wait here, or are still on
//! their way: messages that were never received, or those of a collective operation that a death
//! has ended. The next communicator with that id must not receive them. So each rank discards what
//! waits in the contexts of a freed communicator (`sweep.rs`), and then withholds the id from its
//! next offers, while late messages still arrive. Just before it offers the id again, it discards
//! those as well. If no id is offered by all ranks, they offer the withheld ones, too. A rank whose
//! other threads are still discarding then lets rounds decide nothing until that is done, so that
//! no creation fails for want of an id that is free.
//!
//! **Doubt.** A death may end an agreement on this rank although other ranks have completed it and
//! taken an id. This rank cannot tell which one: it may be any id that it had offered, and those
//! ranks may send here on their new communicator at any time. So from then on all of these ids are
//! in doubt. They are offered only after another sweep, each time anew. To keep that short, an
//! agreement sweeps and offers only a few of them, unless the ranks have no other id in common.
//!
//! **Several creations** may be in progress on a rank at once: in several threads, from different
//! parents, and in the background (`later.rs`). Only one creation by a blocking call can hold a
//! rank's mask at a time. The others contribute an empty mask, and clear one more bit to say so. If
//! that bit does not survive the intersection, the round has decided nothing and all ranks try
//! again. No creation waits for the mask, so no two ranks can wait for each other's creations. Nor
//! does any creation hold the mask while it waits for a rank that may be busy with another
//! creation: a first round without masks makes sure that every rank has arrived (`meet.rs`). The
//! creation with the lowest key, which starts with the parent's context, goes first: from some
//! round on it holds the mask on every rank, so one creation always gets done.
//!
//! **In the background** a rank that has arrived may leave the library again, and then does nothing
//! until its next call. So creations in the background have ids and a mask of their own, and no
//! blocking call ever waits for them. A communicator of one rank needs no agreement: its id comes
//! from a third set, which is never offered to other ranks. The same id may be in use on several
//! ranks; the messages do not clash, because they never leave their rank.

mod mask;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use mask::Mask;
pub(super) use mask::lowest;

use super::meet::Call;
use super::{Communicator, Tag, lock};
use crate::device::{Check, Device};
use crate::error::{Error, ErrorKind, Result};

/// Distance from the contexts of one id to those of the next.
pub(super) const STRIDE: u32 = 4;
/// Contexts of a communicator that the device knows of, if its ranks perform collective operations
/// with each other; otherwise it is the first one only.
pub(super) const KNOWN: u32 = 2;
/// Offset of the context of collective operations.
pub(super) const COLLECTIVE: u32 = 1;
/// Offset of the context in which some ranks agree.
pub(super) const AMONG: u32 = 2;
/// Offset of the context in which leaders of two groups talk.
pub(super) const LEADERS: u32 = 3;

/// 64-bit words of a mask.
pub(super) const WORDS: usize = 64;

/// A range of ids with one mask: its first id and length. The three ranges together fill the
/// smallest number of contexts that a device may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Agreed on by blocking calls.
    InCalls,
    /// Agreed on in the background.
    Later,
    /// For communicators of one rank. The first id is that of [`Communicator::alone`].
    OfOne,
}

impl Kind {
    const ALL: [Self; 3] = [Self::InCalls, Self::Later, Self::OfOne];

    const fn first(self) -> u32 {
        match self {
            Self::InCalls => 0,
            Self::Later => 4096,
            Self::OfOne => 6144,
        }
    }

    const fn len(self) -> u32 {
        match self {
            Self::InCalls => 4096,
            Self::Later | Self::OfOne => 2048,
        }
    }

    /// How many of the ids freed last are withheld. A rank's messages to itself are never on their
    /// way: they wait in its own queue as soon as they are sent.
    const fn withheld(self) -> usize {
        match self {
            Self::InCalls | Self::Later => 64,
            Self::OfOne => 0,
        }
    }

    /// How many ids in doubt an agreement sweeps and offers at first.
    const fn doubted(self) -> usize {
        match self {
            Self::InCalls | Self::Later => 64,
            Self::OfOne => 0,
        }
    }

    fn of(id: u32) -> Self {
        match id {
            0..4096 => Self::InCalls,
            4096..6144 => Self::Later,
            _ => Self::OfOne,
        }
    }
}

/// Identifies an agreement. Any two agreements that a rank takes part in at once have different
/// keys, and all ranks of one agreement have the same key. The lowest key goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The parent's context id.
    pub(super) context: u32,
    pub(super) whom: Whom,
}

/// The ranks that agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whom {
    /// All ranks of the parent.
    All,
    /// All ranks of the parent, in the background; one agreement at a time.
    AllLater,
    /// Some ranks of the parent, which use this tag.
    Some(Tag),
    /// The ranks of two parents, the one with the lower leader first: the other parent's context,
    /// and the leaders' processes. Parents of one rank each may have equal contexts, so the key
    /// needs both leaders.
    Both { other: u32, leaders: (u32, u32) },
}

impl Key {
    pub(super) fn kind(&self) -> Kind {
        match self.whom {
            Whom::AllLater => Kind::Later,
            _ => Kind::InCalls,
        }
    }
}

/// The ids of one rank. The contexts of id `i` start at `4i`.
#[derive(Debug)]
pub(super) struct Pool(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Indexed by [`Kind`].
    ids: [Ids; 3],
    live: u32,
}

/// The ids of one kind. An id that is not in use is in exactly one of the first five fields. Masks
/// have bits by the distance from the first id of the kind.
#[derive(Debug, Default)]
struct Ids {
    /// Ids that may be offered.
    free: Mask,
    /// Ids that are free but withheld, in the order in which they were freed. What waited in their
    /// contexts has been discarded.
    withheld: VecDeque<u32>,
    /// Ids that are free, but in whose contexts messages may wait.
    unswept: Vec<u32>,
    /// Ids that a call is sweeping.
    sweeping: Mask,
    /// Ids in doubt, which have to be swept before they may be offered.
    doubtful: Mask,
    /// Those of `free` that are in doubt, and were swept for the agreements in progress.
    doubted: Mask,
    /// The agreements in progress on this rank, in ascending order.
    agreeing: Vec<Key>,
    /// The agreement that holds the mask.
    holder: Option<Key>,
}

/// Ids in whose contexts messages may wait that have to be discarded. They belong to the call that
/// has taken them until it has [`swept`](Self::swept) them. Those that it has not swept when it
/// ends, because of a panic, have to be swept by another call.
#[derive(Debug)]
pub(super) struct ToSweep<'a> {
    pool: &'a Pool,
    ids: VecDeque<(u32, Then)>,
}

/// What becomes of an id that has been swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It may be offered.
    Free,
    /// It may be offered, and stays in doubt.
    Doubted,
    Withheld,
}

impl ToSweep<'_> {
    /// The first context of the next id.
    pub(super) fn next(&self) -> Option<u32> {
        let (id, _) = self.ids.front()?;
        Some(id * STRIDE)
    }

    /// Gives back the next id, which has been swept; not `wholly` if a message may still wait.
    pub(super) fn swept(&mut self, wholly: bool) {
        if let Some((id, then)) = self.ids.pop_front() {
            lock(&self.pool.0).put_back(id, then, wholly);
        }
    }
}

impl Drop for ToSweep<'_> {
    fn drop(&mut self) {
        while !self.ids.is_empty() {
            self.swept(false);
        }
    }
}

/// A mask; the last word is 0 if it is empty because another agreement holds the mask.
pub(super) type Offer = [u64; WORDS + 1];

impl Pool {
    /// All ids whose contexts the device allows are free.
    pub(super) fn new(max_context_id: u32) -> Self {
        let there_are = max_context_id.saturating_add(1) / STRIDE;
        let ids = Kind::ALL.map(|kind| {
            let mut ids = Ids::default();
            for at in 0..kind.len().min(there_are.saturating_sub(kind.first())) {
                ids.free.set(at);
            }
            ids
        });
        Self(Mutex::new(State { ids, live: 0 }))
    }

    /// Takes id 0, the world's, and returns its context.
    pub(super) fn reserve_first(&self) -> u32 {
        lock(&self.0).take(0)
    }

    /// Takes the id of [`Communicator::alone`] and returns its context; `None` if it is in use.
    pub(super) fn reserve_alone(&self) -> Option<u32> {
        let mut state = lock(&self.0);
        let free = state.ids[Kind::OfOne as usize].free.has(0);
        free.then(|| state.take(Kind::OfOne.first()))
    }

    /// Takes an id for a communicator of this process only, without involving any other rank;
    /// `None` if all are in use.
    pub(super) fn take_of_one(&self) -> Option<u32> {
        let mut state = lock(&self.0);
        let mut free = state.ids[Kind::OfOne as usize].free;
        // The first id belongs to `reserve_alone`.
        free.clear(0);
        let at = lowest(&free.0)?;
        Some(state.take(Kind::OfOne.first() + at))
    }

    /// Frees the id of `context` on this rank. No message may wait in its contexts.
    pub(super) fn release(&self, context: u32) {
        let id = context / STRIDE;
        let mut state = lock(&self.0);
        state.check_taken(id);
        state.live -= 1;
        let kind = Kind::of(id);
        if kind.withheld() == 0 {
            state.free(id);
        } else {
            state.ids[kind as usize].withheld.push_back(id);
        }
    }

    /// Like [`release`](Self::release), where messages may wait.
    pub(super) fn release_unswept(&self, context: u32) {
        let id = context / STRIDE;
        let mut state = lock(&self.0);
        state.check_taken(id);
        state.live -= 1;
        state.ids[Kind::of(id) as usize].unswept.push(id);
    }

    /// Takes the ids whose contexts have to be swept before an agreement: those that were freed
    /// unswept, those that are withheld no longer, and some in doubt; if `all`, all that are
    /// withheld or in doubt.
    pub(super) fn to_sweep(&self, kind: Kind, all: bool) -> ToSweep<'_> {
        let mut state = lock(&self.0);
        let ids = &mut state.ids[kind as usize];
        let fresh = std::mem::take(&mut ids.unswept);
        let keep = if all { 0 } else { kind.withheld() };
        let over = (ids.withheld.len() + fresh.len()).saturating_sub(keep);
        let ripe = ids.withheld.drain(..over.min(ids.withheld.len()));
        let mut taken: VecDeque<_> = ripe.map(|id| (id, Then::Free)).collect();
        for id in fresh {
            let then = if taken.len() < over {
                Then::Free
            } else {
                Then::Withheld
            };
            taken.push_back((id, then));
        }
        // While they are on offer, other ranks may agree on one of them, and send at once.
        if ids.holder.is_none() {
            let doubted = std::mem::take(&mut ids.doubted);
            ids.free.remove(doubted);
            ids.doubtful.add(doubted);
            let some = if all { usize::MAX } else { kind.doubted() };
            let some = ids.doubtful.bits().take(some);
            taken.extend(some.map(|at| (kind.first() + at, Then::Doubted)));
        }
        for (id, _) in &taken {
            let at = id - kind.first();
            ids.doubtful.clear(at);
            ids.sweeping.set(at);
        }
        ToSweep {
            pool: self,
            ids: taken,
        }
    }

    /// Whether ids may be free that could not be taken, because they had to be swept.
    pub(super) fn has_unswept(&self, kind: Kind) -> bool {
        lock(&self.0).ids[kind as usize].has_unswept()
    }

    /// Whether a call is sweeping ids, which it then gives back.
    pub(super) fn is_sweeping(&self, kind: Kind) -> bool {
        !lock(&self.0).ids[kind as usize].sweeping.is_empty()
    }

    pub(super) fn live(&self) -> u32 {
        lock(&self.0).live
    }

    pub(super) fn claim(self: &Arc<Self>, key: Key) -> Claim {
        let mut state = lock(&self.0);
        let agreeing = &mut state.ids[key.kind() as usize].agreeing;
        let place = agreeing.partition_point(|&other| other < key);
        agreeing.insert(place, key);
        Claim {
            pool: Arc::clone(self),
            key,
        }
    }
}

impl Ids {
    /// Whether ids may be free that are not offered, because they have to be swept.
    fn has_unswept(&self) -> bool {
        !(self.withheld.is_empty()
            && self.unswept.is_empty()
            && self.sweeping.is_empty()
            && self.doubtful.is_empty())
    }

    fn is_free(&self, id: u32, at: u32) -> bool {
        [&self.free, &self.sweeping, &self.doubtful]
            .iter()
            .any(|ids| ids.has(at))
            || self.withheld.contains(&id)
            || self.unswept.contains(&id)
    }
}

impl State {
    /// The ids among which `id` is, and its bit there.
    fn of(&mut self, id: u32) -> (&mut Ids, u32) {
        let kind = Kind::of(id);
        (&mut self.ids[kind as usize], id - kind.first())
    }

    fn free(&mut self, id: u32) {
        let (ids, at) = self.of(id);
        ids.free.set(at);
    }

    /// Gives back an id that was taken to be swept.
    fn put_back(&mut self, id: u32, then: Then, wholly: bool) {
        let (ids, at) = self.of(id);
        ids.sweeping.clear(at);
        match then {
            Then::Doubted if !wholly => ids.doubtful.set(at),
            _ if !wholly => ids.unswept.push(id),
            Then::Withheld => ids.withheld.push_back(id),
            Then::Free => ids.free.set(at),
            Then::Doubted => {
                ids.free.set(at);
                ids.doubted.set(at);
            }
        }
    }

    fn check_taken(&mut self, id: u32) {
        if cfg!(debug_assertions) {
            let (ids, at) = self.of(id);
            assert!(!ids.is_free(id, at), "context id {id} freed twice");
        }
    }

    fn take(&mut self, id: u32) -> u32 {
        let (ids, at) = self.of(id);
        ids.free.clear(at);
        ids.doubted.clear(at);
        self.live += 1;
        id * STRIDE
    }
}

/// Keeps the context ids of a communicator from being used again until its last clone is dropped.
///
/// A communicator holds one. An operation that may outlive the communicator's handles (a collective
/// operation inside progress) holds [another](Communicator::lease). Dropping a lease does not call
/// the device, so a hook may do it.
#[derive(Clone)]
pub struct Lease(Arc<Leased>);

struct Leased {
    pool: Arc<Pool>,
    context: u32,
    /// No message waits in the contexts.
    swept: bool,
}

impl Lease {
    pub(super) fn new(pool: Arc<Pool>, context: u32) -> Self {
        Self(Arc::new(Leased {
            pool,
            context,
            swept: false,
        }))
    }

    /// Runs `sweep`, which discards what waits in the contexts, unless another lease lives: its
    /// operation may still need these messages. `sweep` returns whether no message is left.
    pub(super) fn sweep_if_last(&mut self, sweep: impl FnOnce() -> bool) {
        if let Some(leased) = Arc::get_mut(&mut self.0) {
            leased.swept = sweep();
        }
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if self.swept {
            self.pool.release(self.context);
        } else {
            self.pool.release_unswept(self.context);
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lease").field(&self.0.context).finish()
    }
}

/// One creation's part in an agreement. Dropping it gives up the mask and the place among the
/// agreements. If it then still holds the mask, the outcome of the round is unknown, and the ids
/// that it has offered are in doubt.
pub(super) struct Claim {
    pool: Arc<Pool>,
    key: Key,
}

impl Claim {
    /// This rank's contribution to a round: its mask, if this creation can hold it.
    ///
    /// `all`: after this round there may be none, because the ranks had no id in common. Then every
    /// id that is free has to be offered. As long as some have to be swept first, this rank offers
    /// nothing, as if another creation held the mask.
    pub(super) fn offer(&self, all: bool) -> Offer {
        let mut state = lock(&self.pool.0);
        let kind = self.key.kind();
        let ids = &mut state.ids[kind as usize];
        let first = ids.agreeing.first() == Some(&self.key);
        if ids.holder.is_some() || !first {
            return [0; WORDS + 1];
        }
        let must_wait = match kind {
            // Inside progress no context can be swept. So ids are offered that were swept only when
            // they were freed, or that are in doubt; those that were never swept are not.
            Kind::Later if all => {
                for id in std::mem::take(&mut ids.withheld) {
                    ids.free.set(id - kind.first());
                }
                let doubtful = std::mem::take(&mut ids.doubtful);
                ids.free.add(doubtful);
                ids.doubted.add(doubtful);
                !ids.sweeping.is_empty()
            }
            _ => all && ids.has_unswept(),
        };
        if must_wait {
            return [0; WORDS + 1];
        }
        ids.holder = Some(self.key);
        let mut offer = [u64::MAX; WORDS + 1];
        offer[..WORDS].copy_from_slice(&ids.free.0);
        offer
    }

    /// Gives up the mask after a round that decided nothing, so that another creation may take it.
    pub(super) fn give_back(&self) {
        let mut state = lock(&self.pool.0);
        let holder = &mut state.ids[self.key.kind() as usize].holder;
        holder.take_if(|holder| *holder == self.key);
    }

    /// Gives up the mask after a round that has decided. Takes the lowest id of `agreed`, the
    /// intersection of all offers, and returns its context; `None` if no id was offered by all.
    pub(super) fn take(&self, agreed: &Offer) -> Option<u32> {
        let mut state = lock(&self.pool.0);
        let kind = self.key.kind();
        let holder = &mut state.ids[kind as usize].holder;
        holder.take_if(|holder| *holder == self.key);
        let at = lowest(&agreed[..WORDS])?;
        Some(state.take(kind.first() + at))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = lock(&self.pool.0);
        let ids = &mut state.ids[self.key.kind() as usize];
        if ids.holder.take_if(|holder| *holder == self.key).is_some() {
            ids.doubted = Mask::default();
            let offered = std::mem::take(&mut ids.free);
            ids.doubtful.add(offered);
        }
        if let Some(place) = ids.agreeing.iter().position(|&key| key == self.key) {
            ids.agreeing.remove(place);
        }
    }
}

impl<D: Device> Communicator<D> {
    /// Agrees with the other ranks, which make the same call, on a context that is free on all of
    /// them, and takes it.
    pub(super) fn agree(&self, call: Call<'_>) -> Result<u32> {
        self.meet(call)?;
        self.decide()
    }

    /// The second part of [`agree`](Self::agree), for when every rank is known to have arrived
    /// ([`meet`](Self::meet)).
    pub(super) fn decide(&self) -> Result<u32> {
        let key = Key {
            context: self.0.context,
            whom: Whom::All,
        };
        self.decide_by(key, self.size(), |offer| self.and_words(offer))
    }

    /// Like [`decide`](Self::decide), among the ranks whose offers `and` intersects.
    pub(super) fn decide_by(
        &self,
        key: Key,
        ranks: u32,
        mut and: impl FnMut(&mut Offer) -> Result<()>,
    ) -> Result<u32> {
        let pool = &self.0.job.pool;
        let none_left = || {
            let attributes = self.device().attributes();
            no_id_left(ranks, pool.live())
                .on_rank(attributes.world_rank)
                .on_device(attributes.name)
        };
        if ranks == 1 {
            return self.take_local(Pool::take_of_one).ok_or_else(none_left);
        }
        self.sweep(key.kind(), false);
        let claim = pool.claim(key);
        let mut offers_all = false;
        loop {
            // What cannot be swept is left out.
            let swept = !offers_all || self.sweep(key.kind(), true);
            let mut offer = claim.offer(offers_all && swept);
            and(&mut offer)?;
            if offer[WORDS] != 0 {
                if let Some(context) = claim.take(&offer) {
                    return Ok(context);
                }
                // The intersection is the same on every rank, so all of them come here together.
                if offers_all {
                    return Err(none_left());
                }
                offers_all = true;
            }
            claim.give_back();
            self.device().device_check(Check::NonBlocking)?;
            std::thread::yield_now();
        }
    }
}

/// The error that no id is free on all `ranks` ranks. `live` communicators are alive on this one.
#[cold]
pub(super) fn no_id_left(ranks: u32, live: u32) -> Error {
    let what = match ranks {
        1 => format!("no context id is left; {live} communicators are alive here"),
        _ => format!(
            "no context id is free on all {ranks} ranks; {live} communicators are alive here"
        ),
    };
    Error::new(ErrorKind::Exhausted, what)
        .remedy("drop communicators that are no longer used, on every rank")
}

#[cfg(test)]
mod tests;
