//! One-sided primitives: regions, put, get, atomics, flush, direct access.

use portolan_core::device::{AtomicOp, AtomicWidth, Caps, Region, RegionKey};
use portolan_core::transport::decorate::Random;
use portolan_core::{Device, ErrorKind, ProcId, Request, Result, Status};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::{Rank, fails};

/// A region of this rank, and the keys of all ranks' regions.
struct Window<'r, 'd, D: Device> {
    rank: &'r Rank<'d, D>,
    mine: Region,
    keys: Vec<RegionKey>,
}

impl<'r, 'd, D: Device> Window<'r, 'd, D> {
    /// Regions of `len` zeroed bytes that the device allocates.
    fn new(rank: &'r Rank<'d, D>, len: usize) -> Self {
        let mine = rank.device.alloc_region(len).expect("a region");
        assert!(mine.len >= len && !mine.ptr.is_null());
        Self::of(rank, mine)
    }

    /// Uses the regions that all ranks have already.
    fn of(rank: &'r Rank<'d, D>, mine: Region) -> Self {
        let keys = rank.all_gather(&mine.key.0).into_iter();
        let keys = keys
            .map(|bytes| RegionKey(bytes.try_into().expect("a key")))
            .collect();
        Self { rank, mine, keys }
    }

    fn key(&self, peer: u32) -> &RegionKey {
        &self.keys[peer as usize]
    }

    fn complete(&self, request: Result<Request>) -> Result<Status> {
        self.rank.device.wait(request?)
    }

    /// Puts and waits until `bytes` may be used again.
    fn put(&self, peer: u32, offset: u64, bytes: &[u8]) -> Result<Status> {
        let (key, to) = (self.key(peer), ProcId::new(peer));
        // SAFETY: the slice is borrowed until the request has completed.
        let request = unsafe {
            self.rank
                .device
                .put(to, key, offset, bytes.as_ptr(), bytes.len())
        };
        self.complete(request)
    }

    /// Gets and waits.
    fn get(&self, peer: u32, offset: u64, bytes: &mut [u8]) -> Result<Status> {
        let (key, to) = (self.key(peer), ProcId::new(peer));
        // SAFETY: the slice is borrowed until the request has completed.
        let request = unsafe {
            self.rank
                .device
                .get(to, key, offset, bytes.as_mut_ptr(), bytes.len())
        };
        self.complete(request)
    }

    /// An atomic operation; returns the former value.
    fn atomic(&self, peer: u32, offset: u64, width: AtomicWidth, op: AtomicOp) -> Result<u64> {
        let mut fetched = u64::MAX;
        let (key, to) = (self.key(peer), ProcId::new(peer));
        // SAFETY: `fetched` lives until the request has completed.
        let request = unsafe {
            self.rank
                .device
                .atomic(to, key, offset, width, op, &raw mut fetched)
        };
        self.complete(request).map(|_| fetched)
    }

    fn flush(&self, peer: u32) {
        self.rank.device.flush(ProcId::new(peer)).expect("flush");
    }

    /// Reads this rank's own region. No rank may write to it meanwhile.
    fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.mine.len);
        let mut bytes = vec![0; len];
        let target = bytes.as_mut_ptr();
        // SAFETY: the range is inside the region, which lives; barriers keep writers away.
        unsafe { std::ptr::copy_nonoverlapping(self.mine.ptr.add(offset), target, len) };
        bytes
    }

    /// Writes to this rank's own region. No rank may access it meanwhile.
    fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.mine.len);
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.mine.ptr, bytes.len()) };
    }

    /// Frees the regions, when all ranks are done with them.
    fn free(self) {
        self.rank.barrier();
        // SAFETY: no rank uses the region after the barrier, and no pointer to it is left.
        unsafe { self.rank.device.free_region(self.mine) }.expect("freeing a region");
    }
}

/// Writes to a window and reads it back, from the other side and from the owner's.
fn exchange<D: Device>(window: &Window<'_, '_, D>, len: usize, offset: usize) {
    let rank = window.rank;
    let (me, next, previous) = (rank.me(), rank.next(), rank.previous());
    let bytes = content(u64::from(me) + 1, len);
    window.put(next, offset as u64, &bytes).expect("put");
    window.flush(next);
    let mut back = vec![0; len];
    window.get(next, offset as u64, &mut back).expect("get");
    assert!(
        back == bytes,
        "rank {next} does not have what was put there ({len} bytes)"
    );
    rank.barrier();
    check(
        &window.read(offset, len),
        u64::from(previous) + 1,
        "what was put here",
    );
    rank.barrier();
}

/// Data that was put is there after a flush, and a get returns the data that is there.
pub fn put_and_get<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let window = Window::new(rank, 1 << 16);
    assert!(
        window.read(0, 1 << 16).iter().all(|&byte| byte == 0),
        "a new region is not zeroed"
    );
    window.fill(&content(u64::from(rank.me()) + 50, 1 << 16));
    rank.barrier();
    for peer in 0..rank.size() {
        let mut bytes = vec![0; 1 << 16];
        window.get(peer, 0, &mut bytes).expect("get");
        check(&bytes, u64::from(peer) + 50, &format!("from rank {peer}"));
    }
    rank.barrier();
    exchange(&window, 1 << 16, 0);
    window.free();
    Ok(())
}

/// The program's own memory, once registered, is a region like any other.
pub fn registered<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    // Words, so that the memory is aligned for atomics.
    let memory: *mut [u64] = Box::into_raw(vec![0_u64; 1 << 13].into_boxed_slice());
    let (ptr, len) = (memory.cast::<u8>(), 8 << 13);
    // SAFETY: the memory is freed after the region, and only accessed through raw pointers.
    let region = unsafe { rank.device.register_region(ptr, len) }.expect("a registered region");
    assert_eq!((region.ptr, region.len), (ptr, len));
    let window = Window::of(rank, region);
    exchange(&window, len, 0);
    exchange(&window, 999, 1001);
    let before = window
        .atomic(rank.next(), 0, AtomicWidth::W64, AtomicOp::Swap(5))
        .expect("swap");
    assert_ne!(before, u64::MAX, "nothing was fetched");
    window.free();
    // SAFETY: the box made this pointer, and the region is gone.
    drop(unsafe { Box::from_raw(memory) });
    Ok(())
}

/// Every size, at any alignment.
pub fn sizes<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let window = Window::new(rank, (2 << 20) + 64);
    for len in [
        0,
        1,
        7,
        8,
        9,
        191,
        192,
        193,
        1000,
        4096,
        16384,
        65_537,
        (1 << 20) + 3,
        2 << 20,
    ] {
        for offset in [0, 1, 33] {
            exchange(&window, len, offset);
        }
    }
    window.free();
    Ok(())
}

/// All ranks add to one counter: every sum is fetched exactly once.
pub fn fetch_and_add<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    const TIMES: u64 = 500;
    let window = Window::new(rank, 64);
    for width in [AtomicWidth::W64, AtomicWidth::W32] {
        let offset = 8 * (width.bytes() as u64 / 4);
        let mut last = None;
        let mut sum = 0_u64;
        for _ in 0..TIMES {
            let former = window
                .atomic(0, offset, width, AtomicOp::Add(1))
                .expect("fetch and add");
            assert!(
                last.is_none_or(|last| former > last),
                "{former} after {last:?}"
            );
            last = Some(former);
            sum += former;
        }
        let sums = rank.all_gather(&sum.to_le_bytes());
        let total: u64 = sums
            .into_iter()
            .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
            .sum();
        let count = TIMES * u64::from(rank.size());
        assert_eq!(
            total,
            count * (count - 1) / 2,
            "a value was fetched twice or never"
        );
        let counter = window
            .atomic(0, offset, width, AtomicOp::Load)
            .expect("load");
        assert_eq!(counter, count);
        rank.barrier();
    }
    window.free();
    Ok(())
}

/// The value that an operation leaves behind.
fn model(op: AtomicOp, value: u64) -> u64 {
    match op {
        AtomicOp::Swap(new) => new,
        AtomicOp::CompareSwap { expected, new } if value == expected => new,
        AtomicOp::MaskedSwap { mask, value: new } => value & !mask | new & mask,
        AtomicOp::Add(n) => value.wrapping_add(n),
        AtomicOp::And(n) => value & n,
        AtomicOp::Or(n) => value | n,
        AtomicOp::Xor(n) => value ^ n,
        _ => value,
    }
}

fn any_op(random: &mut Random, value: u64) -> AtomicOp {
    let n = random.bits();
    match random.below(9) {
        0 => AtomicOp::Load,
        1 => AtomicOp::Swap(n),
        2 => AtomicOp::CompareSwap {
            expected: value,
            new: n,
        },
        3 => AtomicOp::CompareSwap {
            expected: value ^ 1,
            new: n,
        },
        4 => AtomicOp::MaskedSwap {
            mask: random.bits(),
            value: n,
        },
        5 => AtomicOp::Add(n),
        6 => AtomicOp::And(n),
        7 => AtomicOp::Or(n),
        _ => AtomicOp::Xor(n),
    }
}

/// The operation with its operands cut to 32 bits.
fn halved(op: AtomicOp) -> AtomicOp {
    let low = |n: u64| n & 0xffff_ffff;
    match op {
        AtomicOp::Swap(n) => AtomicOp::Swap(low(n)),
        AtomicOp::CompareSwap { expected, new } => AtomicOp::CompareSwap {
            expected: low(expected),
            new: low(new),
        },
        AtomicOp::MaskedSwap { mask, value } => AtomicOp::MaskedSwap {
            mask: low(mask),
            value: low(value),
        },
        AtomicOp::Add(n) => AtomicOp::Add(low(n)),
        AtomicOp::And(n) => AtomicOp::And(low(n)),
        AtomicOp::Or(n) => AtomicOp::Or(low(n)),
        AtomicOp::Xor(n) => AtomicOp::Xor(low(n)),
        other => other,
    }
}

/// Every atomic operation in both widths, against a model; neighbours are not touched.
pub fn atomics<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let window = Window::new(rank, 64);
    let mut random = Random::new(17);
    let (mut wide, mut narrow) = (0_u64, 0_u64);
    for step in 0..400 {
        let op = any_op(&mut random, wide);
        let former = window
            .atomic(rank.next(), 16, AtomicWidth::W64, op)
            .expect("an atomic");
        assert_eq!(former, wide, "step {step}: {op:?}");
        wide = model(op, wide);

        let op = halved(any_op(&mut random, narrow));
        let former = window
            .atomic(rank.next(), 36, AtomicWidth::W32, op)
            .expect("an atomic");
        assert_eq!(former, narrow, "step {step}: {op:?} on 32 bits");
        narrow = model(op, narrow) & 0xffff_ffff;
    }
    // A null pointer: the former value is not needed.
    let (key, to) = (window.key(rank.next()), ProcId::new(rank.next()));
    let (width, op) = (AtomicWidth::W64, AtomicOp::Add(1));
    // SAFETY: nothing is fetched.
    let request = unsafe {
        rank.device
            .atomic(to, key, 16, width, op, std::ptr::null_mut())
    };
    window.complete(request).expect("an atomic without a fetch");
    window.flush(rank.next());
    rank.barrier();
    let mut expected = vec![0; 64];
    expected[16..24].copy_from_slice(&wide.wrapping_add(1).to_ne_bytes());
    expected[36..40].copy_from_slice(&(narrow as u32).to_ne_bytes());
    assert_eq!(window.read(0, 64), expected);
    window.free();
    Ok(())
}

/// Accesses outside of a region are errors, and touch nothing.
pub fn bounds<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let window = Window::new(rank, 4096);
    let (peer, end) = (rank.next(), window.mine.len as u64);
    let mut bytes = [1; 16];
    for offset in [end, end - 15, end + 1, u64::MAX, u64::MAX - 15, 1 << 63] {
        fails(
            window.put(peer, offset, &bytes),
            ErrorKind::RemoteAccess,
            "a put outside",
        );
        fails(
            window.get(peer, offset, &mut bytes),
            ErrorKind::RemoteAccess,
            "a get outside",
        );
    }
    for (width, offsets) in [
        (AtomicWidth::W64, [end, end - 7, 4, 1]),
        (AtomicWidth::W32, [end, end - 3, 2, 1]),
    ] {
        for offset in offsets {
            let outcome = window.atomic(peer, offset, width, AtomicOp::Add(1));
            fails(
                outcome,
                ErrorKind::RemoteAccess,
                &format!("{width:?} at {offset}"),
            );
        }
    }
    window
        .put(peer, end - 16, &bytes)
        .expect("a put up to the end");
    window.put(peer, end, &[]).expect("nothing, at the end");
    window.flush(peer);
    rank.barrier();
    let all = window.read(0, window.mine.len);
    assert!(
        all[..all.len() - 16].iter().all(|&byte| byte == 0),
        "a refused access wrote"
    );
    window.free();
    Ok(())
}

/// Keys with flipped bits are refused or do no damage.
pub fn forged_keys<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let mut window = Window::new(rank, 4096);
    let mut random = Random::new(u64::from(rank.me()));
    let real = *window.key(rank.next());
    let mut refused = 0;
    for _ in 0..300 {
        let mut forged = real;
        for _ in 0..=random.below(3) {
            let bit = random.below(56 * 8) as usize;
            forged.0[bit / 8] ^= 1 << (bit % 8);
        }
        window.keys[rank.next() as usize] = forged;
        let mut bytes = [0; 64];
        // A key may have bits without meaning; if a bit matters, flipping it must cause an error.
        refused += u32::from(window.get(rank.next(), 0, &mut bytes).is_err());
    }
    assert!(refused > 0, "300 forged keys were accepted");
    window.keys[rank.next() as usize] = real;
    exchange(&window, 100, 0);
    window.free();
    Ok(())
}

/// A region that was freed cannot be reached, nor freed again.
pub fn freed<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let window = Window::new(rank, 4096);
    exchange(&window, 100, 0);
    // SAFETY: all ranks have left `exchange`, whose last step is a barrier.
    unsafe { rank.device.free_region(window.mine) }.expect("freeing a region");
    // The notice that the region is free arrives before this message. (A barrier may complete
    // earlier: with 4 ranks, none of its messages comes from the next rank. A rank that has not yet
    // received the notice reads memory that is kept until then.)
    let told = rank.isend(&rank.to(rank.previous(), 7), Vec::new());
    rank.take(&rank.from(rank.next(), 7), 0);
    rank.done(told);
    rank.barrier();
    let mut bytes = [0; 8];
    let outcome = window.get(rank.next(), 0, &mut bytes);
    fails(
        outcome,
        ErrorKind::RemoteAccess,
        "a get from a region that was freed",
    );
    // SAFETY: the region is not live, which is what is tested.
    let again = unsafe { rank.device.free_region(window.mine) };
    fails(again, ErrorKind::RemoteAccess, "freeing a region twice");
    rank.barrier();
    Ok(())
}

/// Where memory can be reached directly, the pointer leads to the same memory; elsewhere there is
/// no pointer.
pub fn direct<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let window = Window::new(rank, 4096);
    let pointer = rank
        .device
        .direct(ProcId::new(rank.next()), window.key(rank.next()));
    if rank.device.attributes().caps.contains(Caps::DIRECT) {
        let pointer = pointer
            .expect("the device says that it has direct memory")
            .cast::<u64>();
        // SAFETY: the region has 4096 bytes, page aligned, and no other rank writes these eight.
        unsafe { pointer.add(3).write_volatile(u64::from(rank.me()) + 9) };
        rank.barrier();
        let found = window.read(24, 8);
        assert_eq!(found, (u64::from(rank.previous()) + 9).to_ne_bytes());
    } else if rank.next() != rank.me() {
        assert_eq!(
            pointer, None,
            "the device says that it has no direct memory"
        );
    }
    let nonsense = RegionKey([0x5a; 56]);
    assert_eq!(
        rank.device.direct(ProcId::new(rank.next()), &nonsense),
        None
    );
    assert_eq!(
        rank.device.direct(ProcId::new(rank.size() + 3), &nonsense),
        None
    );
    window.free();
    Ok(())
}
