//! The effects of freed regions and dead peers.

use portolan_core::transport::remote::{AtomicOp, AtomicWidth};
use portolan_core::transport::{Begun, Header, Payload, Pulled, Remote, Sent, Sink, Transport};

use libfabric_sys::{FI_EACCES, FI_EIO, FI_ENOMEM, FI_ENOTCONN, fi_msg_rma, fi_ops_rma, fid_ep};

use super::{LONG_OVER_SHM, PATIENCE, RESERVE, Slot, UNDER_WAY, Way, refuses, take};
use crate::config::Config;
use crate::ofi::Ofi;
use crate::testing::{opened_or_skipped, skipped};

/// More polls than any step here takes.
const POLLS: u32 = 5_000_000;

/// Counts packets.
struct Count(usize);

impl Sink for Count {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {
        self.0 += 1;
    }

    fn finished(&mut self, _id: u32, _outcome: Option<u64>) {}
}

/// Ranks over tcp, with remote operations; `None` where there is no such provider.
fn ranks<const N: usize>() -> Option<[Ofi; N]> {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let what = "remote operations";
    let ranks = opened_or_skipped(what, N as u32, &config)?;
    if !ranks[0].link.domain.remote {
        skipped(what, "the provider has none");
        return None;
    }
    ranks.try_into().ok()
}

/// Sends a packet from one rank to another.
fn meet(ranks: &mut [Ofi], from: usize, to: usize) {
    let mut count = Count(0);
    let mut sent = Sent::Full;
    let mut polls = 0;
    while count.0 == 0 {
        if sent == Sent::Full {
            // SAFETY: another rank, which exists; no bytes are read.
            sent = unsafe {
                ranks[from].send_short(to as u32, &Header::default(), std::ptr::null(), 0)
            };
        }
        ranks[from].poll(&mut Count(0));
        ranks[to].poll(&mut count);
        polls += 1;
        assert!(polls < POLLS, "the packet does not arrive");
    }
}

/// `verbs` has one error for everything that fails.
#[test]
fn a_peer_that_cannot_be_reached_has_refused_nothing() {
    const RETRIES_EXCEEDED: i32 = 12;
    const ACCESS: i32 = 10;
    for provider in ["verbs", "verbs;ofi_rxm"] {
        assert!(refuses(provider, FI_EIO, ACCESS));
        assert!(!refuses(provider, FI_EIO, RETRIES_EXCEEDED));
        assert!(refuses(provider, FI_EACCES, 0));
    }
    assert!(refuses("shm", FI_EIO, 0));
    assert!(!refuses("tcp", FI_EIO, ACCESS), "another one's code");
    assert!(!refuses("tcp", FI_ENOTCONN, 0));
}

unsafe extern "C" fn does_not_permit(_: *mut fid_ep, _: *const fi_msg_rma, _: u64) -> isize {
    -(FI_EACCES as isize)
}

unsafe extern "C" fn has_no_memory(_: *mut fid_ep, _: *const fi_msg_rma, _: u64) -> isize {
    -(FI_ENOMEM as isize)
}

unsafe extern "C" fn is_not_connected(_: *mut fid_ep, _: *const fi_msg_rma, _: u64) -> isize {
    -(FI_ENOTCONN as isize)
}

/// The provider does not take a put: nobody is dead unless the peer could not be reached.
#[test]
fn a_peer_that_cannot_be_reached_at_once_is_lost() {
    let (mut memory, bytes) = ([0_u8; 64], [7_u8; 64]);
    let Some(mut ranks) = ranks::<2>() else {
        return; // The skip has been printed.
    };
    meet(&mut ranks, 0, 1);
    let [zero, one] = &mut ranks;
    let start = memory.as_mut_ptr();
    // SAFETY: the memory outlives the ranks.
    let token = unsafe { one.register(start, 64, portolan_core::MemoryKind::Host) };
    let token = token.expect("a region");
    let put = Remote::Put {
        source: bytes.as_ptr(),
        len: 64,
    };
    let ep = zero.link.ep.get();
    type Write = unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize;
    let ways: [(Write, u32, Begun); 4] = [
        (does_not_permit, 1, Begun::Refused),
        (has_no_memory, 1, Begun::Refused),
        (is_not_connected, 0, Begun::Refused),
        (is_not_connected, 1, Begun::Gone),
    ];
    for (write, peer, expected) in ways {
        // SAFETY: an open endpoint, which only this thread uses, and whose table has at least the
        // checked size. The table is never freed. The put is not done.
        let begun = unsafe {
            assert!((*(*ep).rma).size >= size_of::<fi_ops_rma>());
            let mut table = Box::new((*ep).rma.read());
            table.size = size_of::<fi_ops_rma>();
            table.writemsg = Some(write);
            (*ep).rma = Box::leak(table);
            zero.begin_remote(peer, &token, 0, put, 7)
        };
        assert_eq!(begun, expected);
        let lost = zero.shared.deaths.is_dead(peer);
        assert_eq!(lost, expected == Begun::Gone, "rank {peer}");
    }
    let why = zero.shared.deaths.reason(1, u32::MAX).expect("it is dead");
    assert!(why.contains("cannot send to it"), "{why}");
    one.deregister(&token);
}

/// A rank copies each part within one call, during which nothing shows that it is alive.
#[test]
fn no_call_over_shared_memory_copies_much() {
    let config = Config {
        provider: Some("shm".to_owned()),
        ..Config::default()
    };
    let what = "long parts over shm";
    let Some(mut ranks) = opened_or_skipped(what, 2, &config) else {
        return; // The skip has been printed.
    };
    if !ranks[0].link.domain.remote {
        return skipped(what, "the provider has no remote operations");
    }
    meet(&mut ranks, 0, 1);
    let [zero, one] = &mut ranks[..] else {
        panic!("two ranks");
    };
    // The system makes only those pages that are used.
    let (mut own, mut theirs) = (vec![0_u8; 1 << 30], vec![0_u8; LONG_OVER_SHM]);
    own[LONG_OVER_SHM - 1] = 7;
    // SAFETY: the memory outlives the ranks' use of it.
    let token = unsafe {
        let start = theirs.as_mut_ptr();
        one.register(start, theirs.len(), portolan_core::MemoryKind::Host)
    };
    let token = token.expect("a region");
    let (len, start) = (own.len(), own.as_mut_ptr());
    let (source, target) = (start.cast_const(), start);
    for what in [Remote::Put { source, len }, Remote::Get { target, len }] {
        let (mut outcome, mut polls) = (Outcome(None), 0);
        loop {
            // SAFETY: as above; the first part is inside the region.
            match unsafe { zero.begin_remote(1, &token, 0, what, 7) } {
                Begun::Full => {}
                begun => break assert_eq!(begun, Begun::Bytes(LONG_OVER_SHM)),
            }
            zero.poll(&mut outcome);
            one.poll(&mut Count(0));
        }
        while outcome.0.is_none() {
            zero.poll(&mut outcome);
            one.poll(&mut Count(0));
            polls += 1;
            assert!(polls < POLLS, "{what:?} never ends");
        }
        assert_eq!(outcome.0, Some(true));
    }
    one.deregister(&token);
    assert_eq!(theirs.last(), Some(&7));
}

#[test]
fn a_message_out_of_a_region_that_is_freed_is_read() {
    const LEN: usize = 1 << 20;
    let (mut source, mut target) = (vec![7_u8; LEN], vec![0_u8; LEN]);
    let Some(mut ranks) = ranks::<2>() else {
        return; // The skip has been printed.
    };
    meet(&mut ranks, 0, 1);
    let [zero, one] = &mut ranks;
    let start = source.as_mut_ptr();
    // SAFETY: the source outlives the ranks.
    let (token, exposure) = unsafe {
        let token = one.register(start, LEN, portolan_core::MemoryKind::Host);
        (token.expect("a region"), one.expose(start, LEN))
    };
    let exposure = exposure.expect("the provider has RMA");
    one.deregister(&token);
    let mut polls = 0;
    loop {
        // SAFETY: the target outlives the ranks.
        let pulled = unsafe { zero.pull(1, &exposure, 0, target.as_mut_ptr(), LEN) };
        match pulled {
            Pulled::Later => {}
            Pulled::Done => break,
            other => panic!("{other:?}"),
        }
        zero.poll(&mut Count(0));
        one.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the read never ends");
    }
    assert!(target == source);
    one.withdraw(&exposure);
    assert_eq!(zero.failures(), 0);
}

/// Rank 1 frees a region from which it has announced a message, or from which a put of its own is
/// under way. Rank 0, which does not know that yet, writes there.
fn late_write_into_a_freed_region(announced: bool) {
    const LEN: usize = 1 << 20;
    let (mut freed, mut other) = (vec![7_u8; LEN], vec![0_u8; LEN]);
    let late = [9_u8; 64];
    let Some(mut ranks) = ranks::<2>() else {
        return; // The skip has been printed.
    };
    meet(&mut ranks, 0, 1);
    meet(&mut ranks, 1, 0);
    let [zero, one] = &mut ranks;
    let kind = portolan_core::MemoryKind::Host;
    let start = freed.as_mut_ptr();
    // SAFETY: the memory outlives the ranks, and so do the bytes that are sent.
    let token = unsafe {
        let token = one.register(start, LEN, kind).expect("a region");
        let goal = zero.register(other.as_mut_ptr(), LEN, kind);
        if announced {
            let _ = one.expose(start, LEN).expect("the provider has RMA");
        } else {
            let put = Remote::Put {
                source: start,
                len: LEN,
            };
            let begun = one.begin_remote(0, &goal.expect("a region"), 0, put, 1);
            assert_eq!(begun, Begun::Bytes(LEN));
        }
        token
    };
    one.deregister(&token);
    let put = Remote::Put {
        source: late.as_ptr(),
        len: late.len(),
    };
    let mut outcome = Outcome(None);
    // SAFETY: readable bytes; the target is inside the former region.
    let begun = unsafe { zero.begin_remote(1, &token, 0, put, 7) };
    assert_eq!(begun, Begun::Bytes(late.len()));
    let mut polls = 0;
    // The provider refuses the write, or ends the connection.
    while outcome.0.is_none() && zero.failures() + one.failures() == 0 {
        zero.poll(&mut outcome);
        one.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the operation never ends");
    }
    assert_ne!(outcome.0, Some(true), "it has been done");
    assert!(freed.iter().all(|&byte| byte == 7), "it has arrived");
}

/// How operation 7 has ended.
struct Outcome(Option<bool>);

impl Sink for Outcome {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {}

    fn finished(&mut self, id: u32, outcome: Option<u64>) {
        if id == 7 {
            self.0 = Some(outcome.is_some());
        }
    }
}

#[test]
fn nobody_writes_into_a_freed_region_from_which_a_message_is_announced() {
    late_write_into_a_freed_region(true);
}

#[test]
fn nobody_writes_into_a_freed_region_from_which_a_put_goes_on() {
    late_write_into_a_freed_region(false);
}

#[test]
fn who_is_held_to_be_dead_writes_no_more() {
    const LEN: usize = 64 << 20;
    let (source, mut target) = (vec![7_u8; LEN], vec![0_u8; LEN]);
    let Some(mut ranks) = ranks::<2>() else {
        return; // The skip has been printed.
    };
    // The rank that is written to has opened the connection, so it knows whose connection it is.
    meet(&mut ranks, 1, 0);
    let [zero, one] = &mut ranks;
    let at = target.as_mut_ptr();
    // SAFETY: the memory outlives the ranks.
    let token = unsafe { one.register(at, LEN, portolan_core::MemoryKind::Host) };
    let put = Remote::Put {
        source: source.as_ptr(),
        len: LEN,
    };
    // SAFETY: readable bytes; the target is inside the region.
    let begun = unsafe { zero.begin_remote(1, &token.expect("a region"), 0, put, 7) };
    assert_eq!(begun, Begun::Bytes(LEN));
    // SAFETY: inside the target, which other ranks write only between polls.
    let byte = |index: usize| unsafe { at.add(index).read_volatile() };
    let mut polls = 0;
    while byte(0) == 0 {
        zero.poll(&mut Count(0));
        one.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "nothing arrives");
    }
    assert_eq!(byte(LEN - 1), 0, "more than any socket holds");
    one.declare_failed(0, "a test says so");
    while zero.failures() == 0 {
        zero.poll(&mut Count(0));
        one.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "rank 0 goes on writing");
    }
    assert_eq!(byte(LEN - 1), 0, "all of it has arrived");
}

#[test]
fn operations_on_the_dead_give_their_places_to_the_living() {
    let mut memory = [[0_u8; 64]; 2];
    let bytes = [7_u8; 64];
    let Some(mut ranks) = ranks::<3>() else {
        return; // The skip has been printed.
    };
    meet(&mut ranks, 0, 1);
    meet(&mut ranks, 0, 2);
    let [zero, one, two] = &mut ranks;
    let [first, second] = &mut memory;
    // SAFETY: the memory outlives the ranks.
    let tokens = unsafe {
        let kind = portolan_core::MemoryKind::Host;
        let first = one.register(first.as_mut_ptr(), 64, kind);
        let second = two.register(second.as_mut_ptr(), 64, kind);
        [first, second].map(|token| token.expect("a region"))
    };
    let put = Remote::Put {
        source: bytes.as_ptr(),
        len: 64,
    };
    let begin = |zero: &mut Ofi, peer: u32, id| {
        // SAFETY: readable bytes; the target is inside the region.
        unsafe { zero.begin_remote(peer, &tokens[peer as usize - 1], 0, put, id) }
    };
    let most = (UNDER_WAY - RESERVE) as u32;
    for id in 0..most {
        assert_eq!(begin(zero, 1, id), Begun::Bytes(64));
    }
    assert_eq!(begin(zero, 1, most), Begun::Full);
    assert_eq!(begin(zero, 2, 100), Begun::Bytes(64), "others have a place");
    zero.shared.deaths.declare(1, "its node is gone");
    let mut polls = 0;
    while !zero.link.memory.remotes.is_idle() {
        zero.poll(&mut Count(0));
        two.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the dead keep their places");
    }
    for id in 101..101 + most {
        assert_eq!(begin(zero, 2, id), Begun::Bytes(64));
    }
}

#[test]
fn slots_that_the_dead_never_give_back_are_not_waited_for() {
    let mut memory = [0_u8; 64];
    let bytes = [7_u8; 64];
    let Some(mut ranks) = ranks::<3>() else {
        return; // The skip has been printed.
    };
    meet(&mut ranks, 0, 2);
    let [zero, _, two] = &mut ranks;
    let start = memory.as_mut_ptr();
    // SAFETY: the memory outlives the ranks.
    let token = unsafe { two.register(start, 64, portolan_core::MemoryKind::Host) };
    let token = token.expect("a region");
    zero.shared.deaths.declare(1, "its node is gone");
    let mut polls = 0;
    while zero.failures() == 0 {
        zero.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the death is not believed");
    }
    // Pretend that the provider has operations that it never ends.
    let remotes = &mut zero.link.memory.remotes;
    remotes.free.clear();
    remotes.slots.fill_with(|| {
        Some(Slot {
            id: 0,
            peer: 1,
            kind: Way::Out,
            begun: 0,
            region: None,
        })
    });
    let put = Remote::Put {
        source: bytes.as_ptr(),
        len: 64,
    };
    // SAFETY: readable bytes; the target is inside the region.
    let mut begin = |id| unsafe { zero.begin_remote(2, &token, 0, put, id) };
    for id in 0..PATIENCE {
        assert_eq!(begin(id), Begun::Full);
    }
    assert_eq!(begin(PATIENCE), Begun::Refused);
    for index in 0..UNDER_WAY {
        assert!(take(zero, index).is_some());
    }
}

/// A rank that the others hold to be dead has its buffers back, although the ranks from which it
/// reads are alive.
#[test]
fn what_comes_after_its_own_death_is_not_copied() {
    const LEN: usize = 4 << 10;
    let (mut source, mut target) = (vec![7_u8; LEN], vec![0_u8; LEN]);
    let Some(mut ranks) = ranks::<2>() else {
        return; // The skip has been printed.
    };
    meet(&mut ranks, 0, 1);
    let [zero, one] = &mut ranks;
    // SAFETY: the source outlives the ranks.
    let token = unsafe { one.register(source.as_mut_ptr(), LEN, portolan_core::MemoryKind::Host) };
    let get = Remote::Get {
        target: target.as_mut_ptr(),
        len: LEN,
    };
    // SAFETY: writable bytes; the source is inside the region.
    let begun = unsafe { zero.begin_remote(1, &token.expect("a region"), 0, get, 7) };
    assert_eq!(begun, Begun::Bytes(LEN));
    zero.declare_failed(0, "the others say so");
    assert_eq!(
        zero.failures(),
        1,
        "what is short keeps no death from being told"
    );
    let slot = |zero: &Ofi| {
        zero.link
            .memory
            .remotes
            .slots
            .iter()
            .position(Option::is_some)
    };
    let index = slot(zero).expect("it is under way");
    let mut outcome = Outcome(None);
    let mut polls = 0;
    while slot(zero).is_some() {
        one.poll(&mut Count(0));
        zero.poll(&mut outcome);
        polls += 1;
        assert!(polls < POLLS, "the read never ends");
    }
    let part = zero.link.memory.remotes.slab.part(index);
    // SAFETY: a part has room for as many bytes, and no operation uses it.
    let came = unsafe { std::slice::from_raw_parts(part, LEN) };
    assert!(came == source, "it has been cut off");
    assert!(target.iter().all(|&byte| byte == 0), "it has been copied");
    assert_eq!(outcome.0, None, "the engine has been told twice");
}

/// Atomic operations of an owner on its own region also go by the provider, whatever the others
/// think of that rank.
#[test]
fn who_is_held_to_be_dead_reaches_its_own_memory() {
    let mut memory = [0_u64; 8];
    let Some([mut zero, _one]) = ranks::<2>() else {
        return; // The skip has been printed.
    };
    if !zero.link.domain.atomics {
        return skipped("atomic operations", "the provider has none");
    }
    // SAFETY: the memory outlives the ranks.
    let token = unsafe {
        zero.register(
            memory.as_mut_ptr().cast(),
            64,
            portolan_core::MemoryKind::Host,
        )
    };
    let token = token.expect("a region");
    let what = Remote::Atomic {
        width: AtomicWidth::W64,
        op: AtomicOp::Add(1),
    };
    // One is under way when this rank learns of its own death, and one begins after that.
    for dead in [false, true] {
        let mut polls = 0;
        loop {
            // SAFETY: inside the region.
            match unsafe { zero.begin_remote(0, &token, 0, what, 7) } {
                Begun::Bytes(_) => break,
                Begun::Full => {}
                other => panic!("{other:?}, dead: {dead}"),
            }
            zero.poll(&mut Count(0));
            polls += 1;
            assert!(polls < POLLS, "it never begins, dead: {dead}");
        }
        zero.declare_failed(0, "the others say so");
        assert_eq!(zero.failures(), 1);
        let mut outcome = Outcome(None);
        while outcome.0.is_none() {
            zero.poll(&mut outcome);
            polls += 1;
            assert!(polls < POLLS, "it never ends, dead: {dead}");
        }
        assert_eq!(outcome.0, Some(true), "dead: {dead}");
    }
    zero.deregister(&token);
    assert_eq!(memory[0], 2);
}
