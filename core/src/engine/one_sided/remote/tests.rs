//! Two engines, stepped by one thread: operations by the network, and what becomes of freed memory.

use std::cell::Cell;
use std::sync::Arc;

use portolan_datatype::Datatype as _;

use crate::config::Settings;
use crate::device::{AtomicOp, AtomicWidth, Check, Device, Region, RegionKey};
use crate::engine::Engine;
use crate::engine::one_sided::regions::KeyParts;
use crate::engine::one_sided::{one_sided, prefix, step};
use crate::level::{Single, StateLock};
use crate::staging::{Driven, DrivenBuf, Fake};
use crate::transport::memory::{self, InMemory, Options};
use crate::transport::{Limits, Payload, Remote, TransportCaps};
use crate::{ErrorKind, ProcId, Request};

type Rank = Engine<InMemory, Single>;

fn two(caps: TransportCaps) -> [Rank; 2] {
    let options = Options {
        caps,
        limits: Limits {
            bulk: 1024,
            ..Options::default().limits
        },
        ..Options::default()
    };
    let mut ranks = memory::network_with(2, options).into_iter();
    std::array::from_fn(|_| {
        let rank = ranks.next().expect("two ranks");
        Engine::new(rank, &Settings::default()).expect("an engine")
    })
}

fn all() -> TransportCaps {
    TransportCaps::REMOTE | TransportCaps::ATOMICS
}

/// Steps both ranks until the first rank's request is over; returns how it ended.
fn over(ranks: &[Rank; 2], request: Request) -> Result<(), ErrorKind> {
    for _ in 0..10_000 {
        ranks[1].device_check(Check::NonBlocking).unwrap();
        if let Some(outcome) = ranks[0].test(request).transpose() {
            return outcome.map(drop).map_err(|error| error.kind());
        }
    }
    panic!("it never ends");
}

fn done_by_network(rank: &Rank) -> u64 {
    let counters = rank.counters();
    let found = counters
        .iter()
        .find(|(name, _)| *name == "remote_operations");
    found.expect("a counter").1
}

fn put(ranks: &[Rank; 2], key: &RegionKey, bytes: &[u8]) -> Result<(), ErrorKind> {
    let (to, len) = (ProcId::new(1), bytes.len());
    // SAFETY: the bytes are borrowed until the request is over.
    let request = unsafe { ranks[0].put(to, key, 0, bytes.as_ptr(), len) };
    over(ranks, request.map_err(|error| error.kind())?)
}

fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len];
    // SAFETY: a live region of this process; nobody writes to it while the one thread is here.
    unsafe { std::ptr::copy_nonoverlapping(region.ptr, bytes.as_mut_ptr(), region.len) };
    bytes
}

#[test]
fn the_network_moves_what_it_can_and_cuts_what_is_long() {
    let ranks = two(all());
    let region = ranks[1].alloc_region(1 << 20).unwrap();
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|n| (n / 3) as u8).collect();
    assert_eq!(put(&ranks, &region.key, &bytes), Ok(()));
    assert!(bytes_of(&region) == bytes);
    // The reference network accepts 64 KiB at once.
    assert_eq!(done_by_network(&ranks[0]), 16);

    let fetched = Cell::new(0_u64);
    let (width, op) = (AtomicWidth::W64, AtomicOp::Swap(7));
    for (rank, before) in [
        (0, u64::from_ne_bytes(bytes[8..16].try_into().unwrap())),
        (1, 7),
    ] {
        let to = ProcId::new(1);
        let request =
            // SAFETY: the cell lives until the request is over.
            unsafe { ranks[rank].atomic(to, &region.key, 8, width, op, fetched.as_ptr()) };
        let request = request.unwrap();
        while !ranks[rank].is_complete(request) {
            ranks
                .iter()
                .for_each(|rank| rank.device_check(Check::NonBlocking).unwrap());
        }
        ranks[rank].test(request).unwrap();
        assert_eq!(fetched.get(), before, "fetched by rank {rank}");
        assert_eq!(
            done_by_network(&ranks[rank]),
            [17, 1][rank],
            "the owner goes by it, too"
        );
    }
}

#[test]
fn without_registered_memory_everything_goes_by_packets() {
    let ranks = two(TransportCaps::empty());
    let region = ranks[1].alloc_region(5000).unwrap();
    assert_eq!(put(&ranks, &region.key, &[9; 5000]), Ok(()));
    ranks[1].device_check(Check::NonBlocking).unwrap();
    assert_eq!(
        (bytes_of(&region), done_by_network(&ranks[0])),
        (vec![9; 5000], 0)
    );
}

/// A put has no request that could fail later, so the flush says that it was refused, once.
#[test]
fn a_flush_says_that_a_put_was_refused() {
    let ranks = two(TransportCaps::empty());
    let flush = || {
        let request = ranks[0].state.lock().start_flush(1).unwrap();
        over(&ranks, request)
    };
    let regions = [(); 2].map(|()| ranks[1].alloc_region(5000).unwrap());
    let [freed, live] = regions.map(|region| (region.key, region));
    assert_eq!(put(&ranks, &freed.0, &[9; 5000]), Ok(()));
    assert_eq!(flush(), Ok(()));
    // SAFETY: nobody has a pointer into it.
    unsafe { ranks[1].free_region(freed.1) }.unwrap();
    assert_eq!(put(&ranks, &freed.0, &[9; 5000]), Ok(()));
    assert_eq!(put(&ranks, &live.0, &[9; 5000]), Ok(()));
    assert_eq!(flush(), Err(ErrorKind::RemoteAccess));
    assert_eq!(put(&ranks, &live.0, &[8; 5000]), Ok(()));
    assert_eq!(flush(), Ok(()));
    assert_eq!(bytes_of(&live.1), [8; 5000]);
}

/// Of two threads, one may find that the other has asked already: its flush asks, too, because the
/// answer to the other's has not come.
#[test]
fn a_flush_waits_for_what_another_one_waits_for() {
    let ranks = two(TransportCaps::empty());
    let region = ranks[1].alloc_region(5000).unwrap();
    assert_eq!(put(&ranks, &region.key, &[9; 5000]), Ok(()));
    let flush = || ranks[0].state.lock().start_flush(1).unwrap();
    let both = [flush(), flush()];
    for request in both {
        assert!(!request.is_null() && !ranks[0].is_complete(request));
    }
    assert_eq!(both.map(|request| over(&ranks, request)), [Ok(()); 2]);
    assert_eq!(flush(), Request::NULL, "nothing is under way");
}

/// A flush that finds no free slot leaves the report to the next one.
#[test]
fn a_flush_without_a_slot_is_not_lost() {
    let ranks = two(TransportCaps::empty());
    let freed = ranks[1].alloc_region(5000).unwrap();
    let key = freed.key;
    // SAFETY: nobody has a pointer into it.
    unsafe { ranks[1].free_region(freed) }.unwrap();
    assert_eq!(put(&ranks, &key, &[9; 5000]), Ok(()));
    let mut state = ranks[0].state.lock();
    let mut last = Request::NULL;
    while let Ok(request) = state.proto.table.claim(crate::request::State::Active) {
        last = request;
    }
    let refused = state.start_flush(1).unwrap_err();
    assert_eq!(refused.kind(), crate::ErrorKind::Exhausted);
    state.proto.table.release(last.index());
    let flush = state.start_flush(1).unwrap();
    drop(state);
    assert_eq!(over(&ranks, flush), Err(ErrorKind::RemoteAccess));
}

/// The next region takes the slot of the one that was freed, but a get never reads from both.
#[test]
fn a_get_by_packets_fails_if_the_region_is_freed_meanwhile() {
    const LEN: usize = 1 << 20;
    for another in [false, true] {
        let ranks = two(TransportCaps::empty());
        let region = ranks[1].alloc_region(LEN).unwrap();
        let mut bytes = vec![7_u8; LEN];
        let to = ProcId::new(1);
        // SAFETY: the bytes are borrowed until the request is over.
        let get = unsafe { ranks[0].get(to, &region.key, 0, bytes.as_mut_ptr(), LEN) }.unwrap();
        for _ in 0..4 {
            ranks
                .iter()
                .for_each(|rank| rank.device_check(Check::NonBlocking).unwrap());
        }
        assert!(!ranks[0].is_complete(get), "it is under way");
        // SAFETY: nobody has a pointer into it.
        unsafe { ranks[1].free_region(region) }.unwrap();
        if another {
            ranks[1].alloc_region(LEN).unwrap();
        }
        assert_eq!(over(&ranks, get), Err(ErrorKind::RemoteAccess));
    }
}

/// A transfer of 1 MiB. The network does half of it, which is as much as may be under way, before
/// the first rank loses it. No death is reported with that.
#[test]
fn what_the_network_does_no_more_goes_on_by_packets() {
    const LEN: usize = 1 << 20;
    let bytes: Vec<u8> = (0..LEN).map(|n| (n / 3) as u8).collect();
    for gets in [false, true] {
        let ranks = two(all());
        let region = ranks[1].alloc_region(LEN).unwrap();
        assert_eq!(put(&ranks, &region.key, &bytes[..8]), Ok(()));
        let mut fetched = vec![0_u8; LEN];
        let (to, key) = (ProcId::new(1), &region.key);
        // SAFETY: the bytes are borrowed until the request is over, and the region is of this
        // process, and nobody else's meanwhile.
        let request = unsafe {
            if gets {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), region.ptr, LEN);
                ranks[0].get(to, key, 0, fetched.as_mut_ptr(), LEN)
            } else {
                ranks[0].put(to, key, 0, bytes.as_ptr(), LEN)
            }
        };
        {
            let mut state = ranks[0].state.lock();
            state.transport.lose(all());
            // Before the ends of the parts that have begun are reported.
            state.advance_remotes();
        }
        assert_eq!(over(&ranks, request.unwrap()), Ok(()));
        for _ in 0..10 {
            ranks[1].device_check(Check::NonBlocking).unwrap();
        }
        assert!(if gets {
            fetched == bytes
        } else {
            bytes_of(&region) == bytes
        });
        assert_eq!(done_by_network(&ranks[0]), 9);
        // No more operations begin there.
        assert_eq!(put(&ranks, key, &[9; 8]), Ok(()));
        assert_eq!(done_by_network(&ranks[0]), 9);
        let other = ranks[0].alloc_region(64).unwrap();
        let index = KeyParts::of(&other.key).index;
        let token = ranks[0]
            .state
            .lock()
            .proto
            .regions
            .token((index, KeyParts::of(&other.key).generation));
        assert!(token.is_none(), "it is reached by packets");
    }
}

/// Atomic operations of the owner. Some of them wait until the network has room, and then find that
/// the owner has lost the network.
#[test]
fn an_owner_without_a_network_does_its_atomics_by_itself() {
    let ranks = two(all());
    let region = ranks[1].alloc_region(64).unwrap();
    let fetched = [const { Cell::new(0_u64) }; 11];
    let (width, op) = (AtomicWidth::W64, AtomicOp::Add(1));
    let add = |cell: &Cell<u64>| {
        // SAFETY: the cells live until the requests are over.
        unsafe { ranks[1].atomic(ProcId::new(1), &region.key, 8, width, op, cell.as_ptr()) }
            .unwrap()
    };
    let requests: Vec<_> = fetched[..10].iter().map(add).collect();
    assert_eq!(done_by_network(&ranks[1]), 8);
    ranks[1].state.lock().transport.lose(all());
    for request in requests {
        while !ranks[1].is_complete(request) {
            ranks[1].device_check(Check::NonBlocking).unwrap();
        }
        ranks[1].test(request).unwrap();
    }
    assert!(
        ranks[1].test(add(&fetched[10])).unwrap().is_some(),
        "at once"
    );
    let mut before = fetched.map(Cell::into_inner);
    before.sort_unstable();
    assert_eq!(before, std::array::from_fn(|n| n as u64));
    assert_eq!(done_by_network(&ranks[1]), 8);
}

/// A parked thread checks again when the epoch has moved, and only then.
#[test]
fn the_epoch_moves_when_a_peer_has_died() {
    let ranks = two(TransportCaps::empty());
    let before = ranks[1].completion_epoch();
    ranks[0].declare_self_failed("it is what this test is about");
    while ranks[1].failure_of(ProcId::new(0)).is_none() {
        // Progress itself may report the failure.
        let _ = ranks[1].device_check(Check::NonBlocking);
    }
    assert_ne!(before, ranks[1].completion_epoch());
}

#[test]
fn what_a_key_says_is_compared_with_what_the_owner_says() {
    let ranks = two(all());
    let region = ranks[1].alloc_region(64).unwrap();
    let (mut longer, mut other, mut older) = (region.key, region.key, region.key);
    longer.0[8] = 0;
    longer.0[9] = 1; // 256 bytes.
    other.0[0] ^= 4;
    older.0[4] ^= 1;
    assert_eq!(put(&ranks, &longer, &[1; 65]), Err(ErrorKind::RemoteAccess));
    assert_eq!(put(&ranks, &other, &[1; 8]), Err(ErrorKind::RemoteAccess));
    assert_eq!(put(&ranks, &older, &[1; 8]), Err(ErrorKind::RemoteAccess));
    assert_eq!(
        (bytes_of(&region), done_by_network(&ranks[0])),
        (vec![0; 64], 0)
    );
    assert_eq!(put(&ranks, &region.key, &[1; 8]), Ok(()));
}

#[test]
fn freed_memory_stays_until_everybody_knows() {
    let ranks = two(all());
    let region = ranks[1].alloc_region(64).unwrap();
    assert_eq!(put(&ranks, &region.key, &[1; 8]), Ok(()));
    // SAFETY: nobody has a pointer to it.
    unsafe { ranks[1].free_region(region) }.unwrap();
    let kept = || ranks[1].state.lock().proto.remotes.leaving.len();
    assert_eq!(kept(), 1, "rank 0 may still reach it");
    let registered = ranks[0].state.lock().proto.remotes.known.len();
    assert_eq!(registered, 1);
    for _ in 0..100 {
        ranks
            .iter()
            .for_each(|rank| rank.device_check(Check::NonBlocking).unwrap());
    }
    assert_eq!(kept(), 0);
    assert!(ranks[0].state.lock().proto.remotes.known.is_empty());
    let before = done_by_network(&ranks[0]);
    assert_eq!(
        put(&ranks, &region.key, &[2; 8]),
        Err(ErrorKind::RemoteAccess)
    );
    assert_eq!(
        done_by_network(&ranks[0]),
        before,
        "the network was not asked"
    );
}

#[test]
fn a_region_is_forgotten_after_what_is_under_way_there() {
    let ranks = two(all());
    let region = ranks[1].alloc_region(64).unwrap();
    assert_eq!(put(&ranks, &region.key, &[1; 8]), Ok(()));
    let bytes = [2; 8];
    // SAFETY: the bytes outlive the operation.
    let under_way = unsafe { ranks[0].put(ProcId::new(1), &region.key, 0, bytes.as_ptr(), 8) };
    let under_way = under_way.unwrap();
    // The owner's message is here before the end of the operation.
    let parts = KeyParts::of(&region.key);
    let head = prefix(&KeyParts::named((parts.index, parts.generation)), 0, 0, 0);
    let partings = || ranks[0].state.lock().proto.remotes.partings.len();
    {
        let mut state = ranks[0].state.lock();
        let withdrawn = one_sided(step::WITHDRAWN, 0, 0);
        state
            .proto
            .on_region(1, &withdrawn, Payload::from_slice(&head));
        assert!(state.proto.remotes.known.is_empty());
    }
    assert_eq!(partings(), 1, "the owner must not hear of it yet");
    // SAFETY: nobody has a pointer to it.
    unsafe { ranks[1].free_region(region) }.unwrap();
    let kept = || ranks[1].state.lock().proto.remotes.leaving.len();
    ranks[1].device_check(Check::NonBlocking).unwrap();
    assert_eq!(kept(), 1, "rank 0 still reaches it");
    assert_eq!(over(&ranks, under_way), Ok(()));
    for _ in 0..100 {
        ranks
            .iter()
            .for_each(|rank| rank.device_check(Check::NonBlocking).unwrap());
    }
    assert_eq!((partings(), kept()), (0, 0));
}

#[test]
fn nothing_is_kept_of_regions_that_are_gone() {
    // Memory that the transport does not register is reached by packets.
    let ranks = two(all());
    let known = || ranks[0].state.lock().proto.remotes.known.len();
    let region = ranks[1].alloc_region(64).unwrap();
    let parts = KeyParts::of(&region.key);
    {
        let mut state = ranks[1].state.lock();
        state.proto.regions.unregister(parts.index);
    }
    assert_eq!(put(&ranks, &region.key, &[1; 8]), Ok(()));
    assert_eq!((known(), done_by_network(&ranks[0])), (1, 0));
    let key = region.key;
    // SAFETY: nobody has a pointer to it.
    unsafe { ranks[1].free_region(region) }.unwrap();
    for _ in 0..100 {
        ranks
            .iter()
            .for_each(|rank| rank.device_check(Check::NonBlocking).unwrap());
    }
    assert_eq!(known(), 0, "a region that was reached by packets");
    assert_eq!(put(&ranks, &key, &[1; 8]), Err(ErrorKind::RemoteAccess));
    assert_eq!(known(), 0, "a region that was not there");
}

#[test]
fn atomics_of_a_region_that_begins_amid_an_integer_are_refused() {
    let [rank, _other] = two(TransportCaps::empty());
    let mut memory = [0_u64; 2];
    let amid = memory.as_mut_ptr().cast::<u8>().wrapping_add(4);
    // SAFETY: eight bytes of the array, which outlives the region.
    let region = unsafe { rank.register_region(amid, 8) }.unwrap();
    let add = |width| {
        let mut former = 0;
        let (me, op) = (ProcId::new(0), AtomicOp::Add(3));
        // SAFETY: `former` outlives the operation, which is over at once.
        unsafe { rank.atomic(me, &region.key, 0, width, op, &raw mut former) }
    };
    let error = add(AtomicWidth::W64).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RemoteAccess);
    assert!(error.to_string().contains("not aligned to 8"), "{error}");
    assert_eq!(add(AtomicWidth::W32).unwrap(), Request::NULL);
    // SAFETY: nobody uses the region any more.
    unsafe { rank.free_region(region) }.unwrap();
    assert_eq!(memory, [3 << 32, 0]);
}

#[test]
fn the_length_of_a_key_of_this_rank_itself_is_not_believed() {
    let [rank, _other] = two(TransportCaps::empty());
    let region = rank.alloc_region(64).unwrap();
    let mut longer = region.key;
    longer.0[9] = 1; // 320 bytes.
    let (me, mut bytes) = (ProcId::new(0), [7; 65]);
    // SAFETY: the bytes outlive the operations, which are over at once.
    let outcomes = unsafe {
        [
            rank.put(me, &longer, 0, bytes.as_ptr(), 65),
            rank.get(me, &longer, 0, bytes.as_mut_ptr(), 65),
            rank.put(me, &longer, 64, bytes.as_ptr(), 1),
        ]
    };
    for outcome in outcomes {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::RemoteAccess);
    }
    // SAFETY: as above.
    unsafe { rank.put(me, &longer, 0, bytes.as_ptr(), 64) }.unwrap();
    assert_eq!(bytes_of(&region), [7; 64]);
}

/// Starts a put from accelerator memory that the network serves.
fn start_put(ranks: &[Rank; 2], region: &Region, fake: &Arc<Fake>) -> Request {
    let data = Driven::new(DrivenBuf {
        driver: fake.clone(),
        ptr: fake.at(0),
        count: region.len,
        layout: u8::layout(),
    });
    let what = Remote::Put {
        source: fake.at(0),
        len: region.len,
    };
    let (data, null) = (Some(Box::new(data.unwrap())), std::ptr::null_mut());
    let mut state = ranks[0].state.lock();
    let put = state.start_remote_with(1, &region.key, 0, what, null, data);
    put.unwrap().expect("a region that is registered")
}

#[test]
fn an_operation_of_driven_memory_gives_its_driver_back() {
    let ranks = two(all());
    let region = ranks[1].alloc_region(64).unwrap();
    let fake = Fake::reachable(64);
    fake.write(0, &[3; 64]);
    let put = start_put(&ranks, &region, &fake);
    assert_eq!(over(&ranks, put), Ok(()));
    assert_eq!(bytes_of(&region), [3; 64]);
    assert_eq!(done_by_network(&ranks[0]), 1);
    assert_eq!(Arc::strong_count(&fake), 1, "nothing is kept of it");
}

#[test]
fn a_driver_that_fails_puts_nothing() {
    let ranks = two(all());
    let region = ranks[1].alloc_region(64).unwrap();
    let parts = KeyParts::of(&region.key);
    {
        // This goes by packets, from a copy.
        let mut state = ranks[1].state.lock();
        state.proto.regions.unregister(parts.index);
    }
    // SAFETY: a live region of this process; nobody uses it while the one thread is here.
    unsafe { region.ptr.write_bytes(7, 64) };
    let fake = Fake::reachable(64);
    fake.fail_after(0);
    let failed = start_put(&ranks, &region, &fake);
    assert_eq!(over(&ranks, failed), Err(ErrorKind::UnsupportedMemory));
    assert!(ranks[0].state.lock().proto.remotes.is_flushed(1));
    assert_eq!(put(&ranks, &region.key, &[8; 1]), Ok(()));
    let expected: Vec<u8> = std::iter::once(8).chain([7; 63]).collect();
    assert_eq!(bytes_of(&region), expected);
}
