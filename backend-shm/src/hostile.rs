//! A peer that scribbles over everything it can write causes no panic and no access outside the
//! segment. Where its nonsense can be recognised, the peer is held to be dead.

use portolan_core::transport::{Destination, Header, Payload, Room, Sent, Sink, Transport};
use proptest::prelude::*;

use crate::caps::BULK;
use crate::config::Config;
use crate::inbox::Kind;
use crate::segment::layout::{Head, RankArea};
use crate::shm::Shm;
use crate::sync::Ordering::Relaxed;
use crate::{in_process_with, ring};

/// Reads every byte of every payload, and refuses packets now and then.
struct Reader {
    ranks: u32,
    asked: u32,
    sum: u64,
    /// For packets that grow.
    room: Vec<u8>,
}

impl Reader {
    fn new() -> Self {
        Self {
            ranks: 2,
            asked: 0,
            sum: 0,
            room: vec![0; BULK],
        }
    }
}

impl Sink for Reader {
    fn accepts(&mut self, peer: u32) -> bool {
        assert!(peer < self.ranks);
        self.asked += 1;
        !self.asked.is_multiple_of(7)
    }

    fn packet(&mut self, peer: u32, _header: &Header, payload: Payload<'_>) {
        assert!(peer < self.ranks);
        self.sum += payload
            .to_vec()
            .iter()
            .map(|&byte| u64::from(byte))
            .sum::<u64>();
    }

    fn grows(&mut self, _peer: u32, _header: &Header, len: usize) -> Destination {
        assert!(len <= self.room.len());
        match self.asked % 3 {
            // SAFETY: it is long enough, and used by nobody else.
            0 => Destination::Here(unsafe { Room::new(self.room.as_mut_ptr()) }),
            1 => Destination::Parts,
            _ => Destination::Whole,
        }
    }

    fn placed(&mut self, _peer: u32, _header: &Header, len: usize, here: usize) {
        assert!(here <= len);
    }

    fn part(&mut self, peer: u32, header: &Header, len: usize, at: usize, payload: Payload<'_>) {
        assert!(!payload.is_empty() && at + payload.len() <= len);
        self.packet(peer, header, payload);
    }
}

fn send(shm: &mut Shm, to: u32, len: usize) -> Sent {
    let bytes = vec![0xa5; len];
    // SAFETY: another rank that exists; the vector has `len` bytes, and all are copied.
    unsafe {
        if len <= shm.limits().short {
            shm.send_short(to, &Header::default(), bytes.as_ptr(), len)
        } else {
            shm.send_bulk(to, &Header::default(), len, |place| {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, len);
            })
        }
    }
}

/// Two ranks with rings and bulk areas in both directions.
fn strangers() -> Vec<Shm> {
    let config = Config {
        ring: 4096,
        bulk: 32 << 10,
        max: 64 << 20,
        ..Config::default()
    };
    in_process_with(2, &config).unwrap()
}

fn pair() -> Vec<Shm> {
    let mut ranks = strangers();
    let mut reader = Reader::new();
    for _ in 0..6 {
        for (from, to) in [(0, 1), (1, 0)] {
            let _ = send(&mut ranks[from], to as u32, 40);
            let _ = send(&mut ranks[from], to as u32, 5000);
            ranks[to].poll(&mut reader);
        }
    }
    assert!(
        ranks
            .iter()
            .all(|shm| shm.outgoing.iter().any(|out| !out.bulk.is_none()))
    );
    ranks
}

/// Where the scribbling goes.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// The head: how much is used, the epoch.
    Head,
    /// Rank 0's area: identity, bell, inbox, offers.
    Area,
    /// Rings, bulk areas, and everything else that was allocated.
    Extents,
    /// The shared words of the rings and their first cells.
    RingHeads,
}

/// Writes `word` into the segment at a place that `at` chooses.
fn scribble(shm: &Shm, target: Target, at: usize, word: u64) {
    let head = size_of::<Head>();
    let areas = head + 2 * size_of::<RankArea>();
    // The least that `pair` has allocated, whatever the head says by now.
    let used = areas + (2 * (4096 + 4096) + 2 * (32 << 10));
    let (start, len) = match target {
        Target::Head => (0, head),
        Target::Area => (head, size_of::<RankArea>()),
        Target::Extents => (areas, used - areas),
        Target::RingHeads => (areas + at % ((used - areas) / 4096) * 4096, 512),
    };
    let place = start + at % (len / 8) * 8;
    // SAFETY: the place is in the used part of the segment, which is mapped; it is a word that
    // peers may write at any time.
    unsafe {
        let base = std::ptr::from_ref(shm.segment.head())
            .cast_mut()
            .cast::<u8>();
        base.add(place).cast::<u64>().write_volatile(word);
    }
}

/// Words that are more likely to be believed than random ones.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        Just(u64::MAX),
        (0_u64..5000, 0_usize..(1 << 24)).prop_map(|(pos, len)| ring::forged(pos, len)),
        (0_u64..5000, 0_usize..100).prop_map(|(pos, len)| ring::forged(pos, len) | ring::BULK),
        (0_u64..3, any::<u64>()).prop_map(|(state, rest)| state << 62 | rest >> 2),
        (0_u64..(1 << 20)).prop_map(|n| n * 64),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        Just(Target::Head),
        Just(Target::Area),
        Just(Target::Extents),
        Just(Target::RingHeads)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn scribbling_does_no_harm(
        steps in proptest::collection::vec((target(), any::<usize>(), word(), 0_usize..5), 1..60),
    ) {
        let mut ranks = pair();
        let mut reader = Reader::new();
        let key = ranks[1].alloc(100).unwrap().key;
        for (target, at, word, action) in steps {
            scribble(&ranks[0], target, at, word);
            match action {
                0 => { let _ = send(&mut ranks[0], 1, at % 1000); }
                1 => { let _ = send(&mut ranks[0], 1, 1100 + at % 4000); }
                2 => { let _ = ranks[0].alloc(at % 100_000); ranks[0].map(1, &key); ranks[0].failure_of(1); ranks[0].offer_take(1, word as u32); }
                3 => { ranks[0].arm(); ranks[0].disarm(); }
                _ => {}
            }
            for shm in &mut ranks {
                shm.poll(&mut reader);
            }
        }
        let _ = ranks[0].describe();
    }
}

/// Random words, everywhere at once.
#[test]
fn noise_does_no_harm() {
    for seed in 1..40_u64 {
        let mut ranks = pair();
        let mut reader = Reader::new();
        let mut noise = seed;
        for round in 0..20 {
            for at in 0..2000 {
                noise = noise
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(at as u64 | 1);
                scribble(&ranks[0], Target::Extents, noise as usize >> 8, noise);
            }
            let _ = send(&mut ranks[0], 1, 200 * round);
            let _ = send(&mut ranks[1], 0, 200 * round);
            for shm in &mut ranks {
                shm.poll(&mut reader);
            }
        }
    }
}

#[test]
fn nonsense_in_a_ring_is_the_end_of_the_peer() {
    let mut ranks = pair();
    let mut reader = Reader::new();
    let control = ranks[1].incoming[0].ring.cells();
    let lies: Vec<u64> = (0..64)
        .map(|n| ring::forged(n, control.inline() + 1))
        .collect();
    // Whatever the receiver's position, the cell there claims a message that is too long.
    for (index, lie) in lies.iter().enumerate() {
        control.control(index as u32).store(*lie, Relaxed);
    }
    ranks[1].poll(&mut reader);
    let why = ranks[0].failure_of(0).expect("rank 0 is dead");
    assert!(
        why.contains("rank 0 misbehaved, noticed by rank 1"),
        "{why}"
    );
    assert_eq!(send(&mut ranks[1], 0, 8), Sent::Gone);
}

#[test]
fn a_ring_that_cannot_be_one_is_the_end_of_the_peer() {
    for (moved, more, wide, is_one) in [
        (0, 0, 0, true),
        (0, 0, 1, true),
        (0, 0, 2, false),
        (0, 1, 0, false),
        (64, 0, 0, false),
        (1 << 40, 0, 0, false),
    ] {
        let mut ranks = strangers();
        let mut reader = Reader::new();
        let cells = ranks[0].geometry.ring_cells;
        let bytes = crate::link::ring_bytes(cells);
        let (offset, _) = ranks[0].segment.extend(bytes, "a ring").unwrap();
        let header = [offset + moved, u64::from(cells) + more, wide];
        let inbox = &ranks[0].segment.rank(1).inbox;
        // SAFETY: no bytes are read.
        let posted = unsafe { inbox.post(0, 0, Kind::Ring, header, std::ptr::null(), 0) };
        assert!(posted.is_some());
        ranks[1].poll(&mut reader);
        assert_eq!(ranks[1].incoming.len(), usize::from(is_one), "{header:?}");
        let why = ranks[1].failure_of(0);
        assert_eq!(why.is_none(), is_one, "{header:?}");
        if let Some(why) = why {
            assert!(why.contains("a ring that cannot be one"), "{why}");
        }
    }
}

#[test]
fn a_descriptor_of_foreign_memory_is_the_end_of_the_peer() {
    for area in [0, 4096, u64::MAX - 63, 64 << 20] {
        let mut ranks = pair();
        let mut reader = Reader::new();
        let words: [u64; 3] = [area, 0, 100 | 15 << 32];
        let ring = ranks[0].outgoing[1].ring.as_mut().unwrap();
        // SAFETY: 24 bytes.
        let pushed = unsafe { ring.push_bulk([0; 3], words.as_ptr().cast(), 24) };
        assert_eq!(pushed, ring::Pushed::Done);
        while ranks[1].poll(&mut reader) > 0 {}
        let why = ranks[1].failure_of(0).expect("rank 0 is dead");
        assert!(why.contains("outside of its bulk area"), "{why}");
    }
}
