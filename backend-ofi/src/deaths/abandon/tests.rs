//! Operations on ranks that have ended, over libfabric's shared memory. Threads end as processes
//! do: nothing polls for them any more.

use std::collections::BTreeMap;

use portolan_core::MemoryKind;
use portolan_core::transport::{
    Begun, Header, Payload, Pulled, Remote, Sink, Token, Transport, TransportCaps,
};

use super::WITHOUT_ORDER;
use crate::config::Config;
use crate::ofi::Ofi;
use crate::progress::SILENCE;
use crate::testing::{opened_or_skipped, skipped};

/// More polls than any step here takes.
const POLLS: u32 = 5_000_000;
/// More than any provider copies at once.
const LEN: usize = 1 << 20;

/// How operations have ended, by their ids.
#[derive(Default)]
struct Ends(BTreeMap<u32, bool>);

impl Sink for Ends {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {}

    fn finished(&mut self, id: u32, outcome: Option<u64>) {
        self.0.insert(id, outcome.is_some());
    }
}

/// Three ranks; `None` where there is no such provider, or it has no remote operations.
fn ranks() -> Option<[Ofi; 3]> {
    let config = Config {
        provider: Some("shm".to_owned()),
        ..Config::default()
    };
    let what = "operations on ranks that have ended";
    let ranks = opened_or_skipped(what, 3, &config)?;
    if !ranks[0].link.domain.remote {
        skipped(what, "the provider has no remote operations");
        return None;
    }
    ranks.try_into().ok()
}

/// Begins to write into a region of another rank, which polls meanwhile.
fn put(zero: &mut Ofi, other: &mut Ofi, token: &Token, bytes: &[u8], id: u32) {
    let what = Remote::Put {
        source: bytes.as_ptr(),
        len: bytes.len(),
    };
    let mut polls = 0;
    loop {
        // SAFETY: the bytes outlive the ranks, and the access is inside the region.
        match unsafe { zero.begin_remote(other.rank, token, 0, what, id) } {
            Begun::Full => {}
            begun => break assert_eq!(begun, Begun::Bytes(bytes.len())),
        }
        zero.poll(&mut Ends::default());
        other.poll(&mut Ends::default());
        polls += 1;
        assert!(polls < POLLS, "it never begins");
    }
}

/// A rank ends, and does not poll again.
fn end(rank: Ofi) {
    let end = std::thread::spawn(move || {
        let _ends = rank;
        std::panic::resume_unwind(Box::new("the rank panics"));
    });
    assert!(end.join().is_err());
}

/// Polls until the death of rank 1 has been reported, and some more.
fn told(zero: &mut Ofi, others: &mut [&mut Ofi], ends: &mut Ends) {
    let mut polls = 0;
    while zero.failures() == 0 {
        zero.poll(ends);
        others.iter_mut().for_each(|other| {
            other.poll(&mut Ends::default());
        });
        polls += 1;
        assert!(polls < POLLS, "the death is never told");
    }
    assert_eq!(zero.failure_of(1).as_deref(), Some("it panicked"));
    for _ in 0..4 * SILENCE {
        zero.poll(ends);
    }
}

#[test]
fn a_death_is_told_though_a_long_put_never_ends() {
    let (source, mut targets) = (vec![7_u8; LEN], vec![vec![0_u8; LEN]; 2]);
    let Some([mut zero, mut one, mut two]) = ranks() else {
        return; // The skip has been printed.
    };
    let [first, second] = &mut targets[..] else {
        unreachable!("there are two");
    };
    // SAFETY: the targets outlive the ranks.
    let tokens = unsafe {
        let first = one.register(first.as_mut_ptr(), LEN, MemoryKind::Host);
        let second = two.register(second.as_mut_ptr(), LEN, MemoryKind::Host);
        [first, second].map(|token| token.expect("a region"))
    };
    // The ranks connect to each other.
    let mut ends = Ends::default();
    for (id, other) in [&mut one, &mut two].into_iter().enumerate() {
        put(&mut zero, other, &tokens[id], &source[..8], id as u32);
        let mut polls = 0;
        while !ends.0.contains_key(&(id as u32)) {
            zero.poll(&mut ends);
            other.poll(&mut Ends::default());
            polls += 1;
            assert!(polls < POLLS, "a short put never ends");
        }
    }
    put(&mut zero, &mut one, &tokens[0], &source, 2);
    let in_order = zero.link.domain.library.version() < WITHOUT_ORDER;
    if in_order {
        // It stands behind the put that never ends.
        put(&mut zero, &mut two, &tokens[1], &source, 3);
    }
    assert!(zero.link.memory.is_reading());
    end(one);
    told(&mut zero, &mut [&mut two], &mut ends);
    assert!(!zero.link.memory.is_reading());
    assert_eq!(ends.0.get(&2), None, "the death ends it");
    let last = Remote::Put {
        source: source.as_ptr(),
        len: 8,
    };
    // SAFETY: the bytes outlive the ranks, and the access is inside the region.
    let begun = unsafe { zero.begin_remote(2, &tokens[1], 0, last, 4) };
    if in_order {
        assert_eq!(
            ends.0.get(&3),
            Some(&false),
            "it is not known to have ended"
        );
        assert!(
            !zero
                .caps()
                .intersects(TransportCaps::REMOTE | TransportCaps::ATOMICS)
        );
        assert_eq!(begun, Begun::Refused);
        return;
    }
    assert!(zero.caps().contains(TransportCaps::REMOTE));
    assert_eq!(begun, Begun::Bytes(8));
    let mut polls = 0;
    while !ends.0.contains_key(&4) {
        zero.poll(&mut ends);
        two.poll(&mut Ends::default());
        polls += 1;
        assert!(polls < POLLS, "a put to one that lives never ends");
    }
}

/// A rank may leave while others still write into its memory. Nothing ends such a write, and no
/// later death may wait for it.
#[test]
fn a_death_is_told_though_a_put_to_who_has_left_never_ends() {
    let (source, mut target) = (vec![7_u8; LEN], vec![0_u8; LEN]);
    let Some([mut zero, mut one, two]) = ranks() else {
        return; // The skip has been printed.
    };
    // SAFETY: the target outlives the ranks.
    let token = unsafe { one.register(target.as_mut_ptr(), LEN, MemoryKind::Host) };
    let token = token.expect("a region");
    let mut ends = Ends::default();
    put(&mut zero, &mut one, &token, &source[..8], 1);
    let mut polls = 0;
    while !ends.0.contains_key(&1) {
        zero.poll(&mut ends);
        one.poll(&mut Ends::default());
        polls += 1;
        assert!(polls < POLLS, "a short put never ends");
    }
    put(&mut zero, &mut one, &token, &source, 2);
    assert!(zero.link.memory.is_reading());
    // Rank 1 does not poll again, and its process ends.
    one.shared.roster.leave(1);
    one.shared.deaths.note_end(1);
    end(two);
    while zero.failures() == 0 {
        zero.poll(&mut ends);
        polls += 1;
        assert!(polls < POLLS, "the death is never told");
    }
    assert_eq!(zero.failure_of(2).as_deref(), Some("it panicked"));
    assert_eq!(zero.failure_of(1), None, "it has left");
    assert_eq!(ends.0.get(&2), Some(&false), "the put is not ended");
    assert!(!zero.link.memory.is_reading());
}

#[test]
fn the_end_of_who_leaves_is_noted() {
    let Some([zero, one, _two]) = ranks() else {
        return; // The skip has been printed.
    };
    drop(one);
    assert!(zero.shared.roster.has_left(1));
    assert_eq!(zero.shared.deaths.ended(), [1]);
    assert_eq!(zero.shared.deaths.count(), 0);
}

/// A short operation delays no report of a death, and yet in 1.x the operations behind it are never
/// answered.
#[test]
fn nobody_waits_behind_a_short_put_that_never_ends() {
    let (source, mut targets) = ([7_u8; 64], vec![vec![0_u8; 64]; 2]);
    let Some([mut zero, mut one, mut two]) = ranks() else {
        return; // The skip has been printed.
    };
    let [first, second] = &mut targets[..] else {
        unreachable!("there are two");
    };
    // SAFETY: the targets outlive the ranks.
    let tokens = unsafe {
        let first = one.register(first.as_mut_ptr(), 64, MemoryKind::Host);
        let second = two.register(second.as_mut_ptr(), 64, MemoryKind::Host);
        [first, second].map(|token| token.expect("a region"))
    };
    let mut ends = Ends::default();
    put(&mut zero, &mut two, &tokens[1], &source, 1);
    while !ends.0.contains_key(&1) {
        zero.poll(&mut ends);
        two.poll(&mut Ends::default());
    }
    put(&mut zero, &mut one, &tokens[0], &source, 2);
    put(&mut zero, &mut two, &tokens[1], &source, 3);
    end(one);
    told(&mut zero, &mut [&mut two], &mut ends);
    let well = zero.link.domain.library.version() >= WITHOUT_ORDER;
    assert_eq!(ends.0.get(&3), Some(&well));
    assert_eq!(zero.caps().contains(TransportCaps::REMOTE), well);
}

/// Memory that the system lets no other process read is sent in packets.
#[test]
fn a_read_that_fails_within_its_call_has_failed() {
    let Some([mut zero, mut one, _two]) = ranks() else {
        return; // The skip has been printed.
    };
    if zero.link.domain.library.version() >= WITHOUT_ORDER {
        return skipped(
            "reads that fail within their calls",
            "the provider reads later",
        );
    }
    // SAFETY: a new mapping, which depends on nothing.
    let source = unsafe {
        let (none, private) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), LEN, none, private, -1, 0)
    };
    assert_ne!(source, libc::MAP_FAILED);
    let mut target = vec![0_u8; LEN];
    // SAFETY: only the provider reads it, which is told that it cannot.
    let exposure = unsafe { one.expose(source.cast(), LEN) }.expect("the provider has RMA");
    // SAFETY: as above; peers get from it.
    let token = unsafe { one.register(source.cast(), LEN, MemoryKind::Host) };
    let token = token.expect("a region");
    let mut ends = Ends::default();
    for len in [8, 64 << 10, LEN] {
        let mut polls = 0;
        loop {
            // SAFETY: the target outlives the ranks.
            match unsafe { zero.pull(1, &exposure, 0, target.as_mut_ptr(), len) } {
                Pulled::Later => {}
                pulled => break assert_eq!(pulled, Pulled::Stream),
            }
            zero.poll(&mut ends);
            one.poll(&mut Ends::default());
            polls += 1;
            assert!(polls < POLLS, "a read of {len} bytes never fails");
        }
        let what = Remote::Get {
            target: target.as_mut_ptr(),
            len,
        };
        // SAFETY: the target outlives the ranks.
        let begun = unsafe { zero.begin_remote(1, &token, 0, what, len as u32) };
        assert_eq!(begun, Begun::Bytes(len));
        while !ends.0.contains_key(&(len as u32)) {
            zero.poll(&mut ends);
            polls += 1;
            assert!(polls < POLLS, "a get of {len} bytes never fails");
        }
        assert_eq!(ends.0.get(&(len as u32)), Some(&false));
    }
    assert!(zero.link.memory.is_idle());
    assert_eq!(zero.failures(), 0, "nobody has died");
    one.withdraw(&exposure);
    one.deregister(&token);
    drop((zero, one));
    // SAFETY: nothing uses it any more.
    unsafe { libc::munmap(source, LEN) };
}
