//! The parts that this crate's tests share: a sink that checks order and content, and generated
//! traffic.
#![allow(dead_code, unreachable_pub)] // each test file uses a part of it

pub mod files;

use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};
use portolan_shm::Shm;

/// A small generator of numbers (SplitMix64): the same seed gives the same traffic.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Sizes around every limit that matters, and any size between.
    pub fn size(&mut self, bulk: usize) -> usize {
        const EDGES: [usize; 14] = [0, 1, 8, 31, 32, 33, 95, 96, 97, 216, 217, 1055, 1056, 1057];
        match self.below(10) {
            0..=4 => EDGES[self.below(EDGES.len() as u64) as usize],
            5..=7 => self.below(300) as usize,
            8 => self.below(bulk as u64 + 1) as usize,
            _ => bulk,
        }
    }
}

/// Byte `at` of message `number` from `from` to `to`.
pub fn byte(from: u32, to: u32, number: u32, at: usize) -> u8 {
    (from as usize * 131 + to as usize * 31 + number as usize * 7 + at) as u8
}

/// Checks that each sender's messages arrive in order and whole.
pub struct Checker {
    pub own: u32,
    pub expected: Vec<u32>,
    pub arrived: u64,
    /// Peers whose packets are refused at the moment.
    pub closed: Vec<bool>,
}

impl Checker {
    pub fn new(own: u32, ranks: u32) -> Self {
        let n = ranks as usize;
        Self {
            own,
            expected: vec![0; n],
            arrived: 0,
            closed: vec![false; n],
        }
    }
}

impl Sink for Checker {
    fn accepts(&mut self, peer: u32) -> bool {
        !self.closed[peer as usize]
    }

    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let number = &mut self.expected[peer as usize];
        assert!(!self.closed[peer as usize], "a packet that was refused");
        assert_eq!(header.tag, *number, "order of {peer} → {}", self.own);
        assert_eq!(header.source, peer);
        assert_eq!(
            header.cookie as usize,
            payload.len(),
            "{peer} → {}: message {number}",
            self.own
        );
        let bytes = payload.to_vec();
        for (at, &got) in bytes.iter().enumerate() {
            assert_eq!(
                got,
                byte(peer, self.own, *number, at),
                "{peer} → {}: byte {at} of message {number}, {} bytes",
                self.own,
                bytes.len()
            );
        }
        *number += 1;
        self.arrived += 1;
    }
}

/// Tries to send message `number` of `len` bytes to `to`.
pub fn send(shm: &mut Shm, to: u32, number: u32, len: usize) -> Sent {
    let from = shm.rank();
    let header = Header {
        kind: 1,
        source: from,
        tag: number,
        cookie: len as u32,
        ..Header::default()
    };
    let bytes: Vec<u8> = (0..len).map(|at| byte(from, to, number, at)).collect();
    // SAFETY: `to` exists and is another rank; the vector has `len` bytes, and all are copied.
    unsafe {
        if len <= shm.limits().short {
            shm.send_short(to, &header, bytes.as_ptr(), len)
        } else {
            shm.send_bulk(to, &header, len, |place| {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, len);
            })
        }
    }
}

/// All-to-all traffic of `count` messages from each rank to each; a rank sleeps while it has
/// nothing to do.
pub fn exchange(shm: &mut Shm, count: u32) {
    let (own, ranks) = (shm.rank(), shm.size());
    let mut sink = Checker::new(own, ranks);
    let mut numbers = Numbers(u64::from(own));
    let mut next = vec![(0, 0); ranks as usize];
    let (all, bulk, bell) = (
        u64::from(count * (ranks - 1)),
        shm.limits().bulk,
        shm.bell(),
    );
    loop {
        let mut moved = shm.poll(&mut sink) > 0;
        for to in (0..ranks).filter(|&to| to != own) {
            let (number, len) = &mut next[to as usize];
            if *number < count && send(shm, to, *number, *len) == Sent::Done {
                (*number, *len, moved) = (*number + 1, numbers.size(bulk), true);
            }
        }
        let sent: u32 = next.iter().map(|(number, _)| number).sum();
        if sink.arrived == all && sent == count * (ranks - 1) {
            return;
        }
        if !moved {
            let seen = bell.seen();
            shm.arm();
            if shm.poll(&mut sink) == 0 {
                bell.sleep(seen, Some(files::GUARD));
                assert_eq!(shm.failures(), 0, "a rank has failed");
            }
            shm.disarm();
        }
    }
}
