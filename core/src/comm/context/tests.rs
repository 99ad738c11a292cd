//! The ids of a rank, without other ranks.

use super::*;

fn intersect(offers: &[Offer]) -> Offer {
    let mut all = [u64::MAX; WORDS + 1];
    for offer in offers {
        all.iter_mut().zip(offer).for_each(|(a, b)| *a &= b);
    }
    all
}

/// Sweeps the ids for a creation by a blocking call. Returns their contexts.
fn sweep(pool: &Pool, all: bool) -> Vec<u32> {
    let mut ids = pool.to_sweep(Kind::InCalls, all);
    let next = || {
        let context = ids.next()?;
        ids.swept(true);
        Some(context)
    };
    std::iter::from_fn(next).collect()
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
        let all = intersect(&[claims[0].offer(false), claims[1].offer(false)]);
        claims.map(|claim| claim.take(&all).unwrap())[0]
    };
    let offer_all = |rank: usize| {
        sweep(&ranks[rank], true);
    };
    assert_eq!((agree(), agree()), (4, 8));
    ranks[0].release(4);
    offer_all(0);
    assert_eq!(agree(), 12, "rank 1 still uses context 4");
    ranks[0].release(12);
    ranks[1].release(12);
    ranks[1].release(4);
    offer_all(0);
    assert_eq!(agree(), 16, "rank 1 withholds contexts 12 and 4");
    offer_all(1);
    assert_eq!((agree(), agree()), (4, 12));
    assert_eq!(ranks[0].live(), 5);
}

/// The ids freed last are not offered; each is swept when it is freed, unless that has been
/// done, and before it is offered again.
#[test]
fn ids_freed_lately_are_withheld() {
    let pool = Arc::new(Pool::new(u32::MAX));
    let claim = pool.claim(all(0));
    let take = || {
        let context = claim.take(&claim.offer(false)).unwrap();
        claim.give_back();
        context
    };
    let sweep = |all| sweep(&pool, all);
    let some = Kind::InCalls.withheld() as u32;
    let contexts: Vec<u32> = (0..some + 2).map(|_| take()).collect();
    pool.release_unswept(contexts[0]);
    pool.release(contexts[1]);
    assert_eq!(sweep(false), [0], "the other one is swept");
    assert_eq!(sweep(false), []);
    contexts[2..]
        .iter()
        .for_each(|&context| pool.release(context));
    let next = 4 * (some + 2);
    assert_eq!(take(), next);
    // Two more than are withheld: the first two that were freed. (Context 4 came first.)
    assert_eq!(sweep(false), [4, 0]);
    assert_eq!((take(), take(), take()), (0, 4, next + 4));
    assert_eq!(sweep(true).len() as u32, some);
    assert_eq!(take(), 8);
    pool.release_unswept(8);
    assert_eq!(sweep(true), [8]);
}

#[test]
fn threads_that_compete_decide_nothing_until_one_has_every_mask() {
    let ranks = [(); 2].map(|()| Arc::new(Pool::new(u32::MAX)));
    // On rank 0 the first thread came earlier, on rank 1 the second thread did.
    let (a0, b1) = (ranks[0].claim(all(4)), ranks[1].claim(some(4)));
    let (offer_a0, offer_b1) = (a0.offer(false), b1.offer(false));
    let (b0, a1) = (ranks[0].claim(some(4)), ranks[1].claim(all(4)));
    let (offer_b0, offer_a1) = (b0.offer(false), a1.offer(false));
    assert_eq!(intersect(&[offer_a0, offer_a1])[WORDS], 0);
    assert_eq!(intersect(&[offer_b0, offer_b1])[WORDS], 0);
    for claim in [&a0, &a1, &b0, &b1] {
        claim.give_back();
    }
    // The next round belongs to the lower parent, whichever thread asks first.
    assert_eq!(b0.offer(false)[WORDS], 0);
    assert_ne!(intersect(&[a0.offer(false), a1.offer(false)])[WORDS], 0);
    drop((a0, a1));
    assert_ne!(intersect(&[b0.offer(false), b1.offer(false)])[WORDS], 0);
}

#[test]
fn the_devices_largest_context_is_respected() {
    let pool = Arc::new(Pool::new(11));
    assert_eq!(pool.reserve_first(), 0);
    let claim = pool.claim(all(0));
    assert_eq!(claim.take(&claim.offer(false)), Some(4));
    claim.give_back();
    assert_eq!(claim.take(&claim.offer(false)), Some(8));
    claim.give_back();
    assert_eq!(claim.take(&claim.offer(false)), None);
    assert_eq!((pool.take_of_one(), pool.reserve_alone()), (None, None));
}

#[test]
fn every_kind_has_ids_and_a_mask_of_its_own() {
    let pool = Arc::new(Pool::new(32767));
    let later = Key {
        context: 0,
        whom: Whom::AllLater,
    };
    let (later, now) = (pool.claim(later), pool.claim(all(4)));
    let (offers, alone) = ([later.offer(false), now.offer(false)], pool.reserve_alone());
    assert!(offers.iter().all(|offer| offer[WORDS] != 0));
    let taken = [
        later.take(&offers[0]),
        now.take(&offers[1]),
        pool.take_of_one(),
        alone,
    ];
    let expected = [Some(4 * 4096), Some(0), Some(4 * 6145), Some(4 * 6144)];
    assert_eq!(taken, expected);
    assert_eq!((pool.reserve_alone(), pool.live()), (None, 4));
    for context in taken.into_iter().flatten() {
        pool.release(context);
    }
    // The last context of the last kind is the least that a device may have as its largest.
    let last = Kind::OfOne.first() + Kind::OfOne.len();
    assert_eq!(last * STRIDE, 32768);
    assert_eq!((pool.reserve_alone(), pool.live()), (alone, 1));
}

/// A pool whose ids are all in use but those of these contexts.
fn nearly_used_up(contexts: &[u32]) -> Arc<Pool> {
    let pool = Arc::new(Pool::new(u32::MAX));
    let claim = pool.claim(all(0));
    while claim.take(&claim.offer(false)).is_some() {}
    contexts.iter().for_each(|&at| pool.release_unswept(at));
    pool
}

/// Ids that one thread is sweeping are no reason for another thread to say that there are none.
#[test]
fn ids_that_are_being_swept_are_waited_for() {
    let pool = nearly_used_up(&[8, 12]);
    let mut swept = pool.to_sweep(Kind::InCalls, true);
    let claim = pool.claim(all(4));
    assert_eq!(sweep(&pool, true), []);
    assert!(pool.has_unswept(Kind::InCalls) && pool.is_sweeping(Kind::InCalls));
    assert_eq!(
        claim.offer(true),
        [0; WORDS + 1],
        "a round that decides nothing"
    );
    swept.swept(true);
    assert_eq!(
        claim.offer(true)[WORDS],
        0,
        "the other one is still missing"
    );
    swept.swept(true);
    assert_eq!(claim.take(&claim.offer(true)), Some(8));
    // The same in the background.
    let later = || {
        pool.claim(Key {
            context: 4,
            whom: Whom::AllLater,
        })
    };
    let claim = later();
    let mut last = 0;
    while let Some(context) = claim.take(&claim.offer(true)) {
        last = context;
    }
    pool.release_unswept(last);
    let mut swept = pool.to_sweep(Kind::Later, false);
    assert_eq!(claim.offer(true)[WORDS], 0);
    swept.swept(true);
    assert_eq!(
        claim.take(&claim.offer(true)),
        Some(last),
        "it is withheld no longer"
    );
}

/// What a panic or a device has left unswept is swept by the next call.
#[test]
fn ids_that_were_not_swept_are_not_lost() {
    let pool = nearly_used_up(&[8, 12, 16]);
    let interrupted = std::panic::AssertUnwindSafe(|| {
        let mut ids = pool.to_sweep(Kind::InCalls, true);
        ids.swept(true);
        ids.swept(false);
        panic!("on purpose");
    });
    std::panic::catch_unwind(interrupted).unwrap_err();
    assert!(!pool.is_sweeping(Kind::InCalls));
    assert_eq!(sweep(&pool, true), [12, 16]);
    let claim = pool.claim(all(4));
    let take = || claim.take(&claim.offer(true));
    assert_eq!([take(), take(), take()], [8, 12, 16].map(Some));
}

/// If this rank does not learn how a round has ended, any id that it has offered may be in use on
/// other ranks. Before each further offer, those that are offered are swept.
#[test]
fn ids_in_doubt_are_swept_before_each_offer() {
    let pool = Arc::new(Pool::new(u32::MAX));
    let some = Kind::InCalls.doubted() as u32;
    let lowest: Vec<u32> = (0..some).map(|id| id * STRIDE).collect();
    assert_eq!(sweep(&pool, false), []);
    let lost = pool.claim(all(0));
    lost.offer(false);
    drop(lost);
    let claim = pool.claim(all(4));
    assert_eq!(
        claim.take(&claim.offer(false)),
        None,
        "nothing has been swept"
    );
    for _ in 0..2 {
        assert_eq!(sweep(&pool, false), lowest);
        let offer = claim.offer(false);
        assert_eq!((offer[0], offer[1]), (u64::MAX, 0));
        assert_eq!(sweep(&pool, true), [], "they are on offer");
        claim.give_back();
    }
    assert_eq!(claim.take(&claim.offer(false)), Some(0));
    assert_eq!(
        sweep(&pool, false)[0],
        4,
        "the one that was taken is in doubt no longer"
    );
    assert_eq!(sweep(&pool, true).len() as u32, Kind::InCalls.len() - 1);
    pool.release(0);
    assert_eq!(claim.offer(true)[WORDS], 0);
    sweep(&pool, true);
    assert_eq!(claim.offer(true)[..WORDS], [u64::MAX; WORDS]);
}

/// An agreement in the background cannot sweep. It still gets an id if another agreement has been
/// lost meanwhile.
#[test]
fn ids_in_doubt_are_the_last_resort_in_the_background() {
    let pool = Arc::new(Pool::new(u32::MAX));
    let claim = |context| {
        let whom = Whom::AllLater;
        pool.claim(Key { context, whom })
    };
    let (lost, other) = (claim(0), claim(4));
    lost.offer(false);
    drop(lost);
    assert_eq!(other.take(&other.offer(false)), None);
    assert_eq!(other.take(&other.offer(true)), Some(4 * 4096));
    let swept = pool.to_sweep(Kind::Later, false);
    assert_eq!(swept.next(), Some(4 * 4097), "the others stay in doubt");
}

/// A communicator in whose contexts the device could not discard everything is swept once more.
#[test]
fn what_a_freed_communicator_could_not_discard_is_discarded_later() {
    for swept in [true, false] {
        let pool = Arc::new(Pool::new(u32::MAX));
        let claim = pool.claim(all(0));
        let context = claim.take(&claim.offer(false)).unwrap();
        let mut lease = Lease::new(Arc::clone(&pool), context);
        lease.sweep_if_last(|| swept);
        drop(lease);
        assert_eq!(sweep(&pool, false).is_empty(), swept);
    }
}
