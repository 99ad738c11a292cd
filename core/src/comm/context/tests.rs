//! The ids of a rank, without other ranks.

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
        claims.map(|claim| claim.take(&all).unwrap())[0]
    };
    let offer_all = |rank: usize| {
        let ids = ranks[rank].to_sweep(Kind::InCalls, true);
        ranks[rank].swept(ids);
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
        let context = claim.take(&claim.offer()).unwrap();
        claim.give_back();
        context
    };
    let sweep = |all| {
        let ids = pool.to_sweep(Kind::InCalls, all);
        let contexts: Vec<u32> = ids.contexts().collect();
        pool.swept(ids);
        contexts
    };
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
    let (offer_a0, offer_b1) = (a0.offer(), b1.offer());
    let (b0, a1) = (ranks[0].claim(some(4)), ranks[1].claim(all(4)));
    let (offer_b0, offer_a1) = (b0.offer(), a1.offer());
    assert_eq!(intersect(&[offer_a0, offer_a1])[WORDS], 0);
    assert_eq!(intersect(&[offer_b0, offer_b1])[WORDS], 0);
    for claim in [&a0, &a1, &b0, &b1] {
        claim.give_back();
    }
    // The next round belongs to the lower parent, whichever thread asks first.
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
    assert_eq!(claim.take(&claim.offer()), Some(4));
    claim.give_back();
    assert_eq!(claim.take(&claim.offer()), Some(8));
    claim.give_back();
    assert_eq!(claim.take(&claim.offer()), None);
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
    let (offers, alone) = ([later.offer(), now.offer()], pool.reserve_alone());
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
