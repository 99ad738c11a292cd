//! Memory that only its driver reaches, through the layer that finds the driver. Where the device
//! has [`Caps::DRIVEN`], it handles long messages itself; elsewhere they are copied above it.

use std::sync::Arc;

use portolan_core::device::{AtomicOp, AtomicWidth, Caps, RegionKey};
use portolan_core::staging::{Accelerator, DrivenBuf, Fake, Staging};
use portolan_core::{ContigBuf, Device, ErrorKind, MemoryKind, ProcId, Request, TypedBuf};
use portolan_datatype::{Layout, Primitive};

use crate::bytes::{check, content, seed};
use crate::case::Verdict;
use crate::rank::Rank;

/// Shorter than a packet, eager, announced, and of several chunks.
fn sizes<D: Device>(rank: &Rank<'_, D>) -> Vec<usize> {
    let mut sizes = vec![0, 1, 1000, rank.eager_max(), rank.long()];
    if !rank.is_cramped() {
        sizes.push((1 << 20) + 13);
    }
    sizes
}

/// The accelerator of a rank, whose memory has two halves.
struct Own {
    fake: Arc<Fake>,
    staging: Staging,
    half: usize,
}

impl Own {
    fn new(half: usize) -> Self {
        let fake = Fake::new(2 * half);
        Self {
            staging: Staging::new(vec![Arc::clone(&fake) as Arc<dyn Accelerator>]),
            fake,
            half,
        }
    }

    fn buf<'a>(&self, at: usize, len: usize, byte: &'a Layout) -> TypedBuf<'a> {
        TypedBuf {
            ptr: self.fake.at(at),
            count: len,
            layout: byte,
            memory: MemoryKind::Cuda,
        }
    }

    fn piece(&self, at: usize, len: usize) -> ContigBuf {
        ContigBuf {
            ptr: self.fake.at(at),
            len,
            memory: MemoryKind::Cuda,
            ..ContigBuf::from_bytes(&[])
        }
    }

    fn send<D: Device>(&self, rank: &Rank<'_, D>, to: u32, tag: u32, len: usize) -> Request {
        let byte = Layout::primitive(Primitive::U8);
        let data = self.buf(0, len, &byte);
        // SAFETY: the memory is there until the case is over, and the first half is only read.
        let sent = unsafe { self.staging.isend(rank.device, &rank.to(to, tag), data) };
        sent.expect("a request for a send")
    }

    fn receive<D: Device>(&self, rank: &Rank<'_, D>, from: Option<u32>, tag: u32) -> Request {
        let byte = Layout::primitive(Primitive::U8);
        let room = self.buf(self.half, self.half, &byte);
        // SAFETY: the memory is there until the case is over, and one receive at a time uses the
        // second half.
        let received = unsafe { self.staging.irecv(rank.device, &rank.from(from, tag), room) };
        received.expect("a request for a receive")
    }
}

/// From accelerator to accelerator around a ring, with slow and with immediate copies.
pub fn around_a_ring<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let sizes = sizes(rank);
    let own = Own::new(*sizes.iter().max().unwrap_or(&1));
    let (me, next, previous) = (rank.me(), rank.next(), rank.previous());
    for delay in [0, 3] {
        own.fake.delay_copies(delay);
        for (n, &len) in sizes.iter().enumerate() {
            own.fake.write(0, &content(seed(me, next, n), len));
            let receive = own.receive(rank, None, 1);
            let send = own.send(rank, next, 1, len);
            let status = rank.device.wait(receive).expect("a receive");
            assert_eq!((status.source, status.bytes), (previous, len as u64));
            rank.device.wait(send).expect("a send");
            let arrived = own.fake.read(own.half, len);
            check(&arrived, seed(previous, me, n), "from device to device");
        }
    }
    assert_eq!(own.fake.moving(), 0);
    Ok(())
}

/// From accelerator to host and from host to accelerator.
pub fn with_the_host<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let sizes = sizes(rank);
    let own = Own::new(*sizes.iter().max().unwrap_or(&1));
    let (me, next, previous) = (rank.me(), rank.next(), rank.previous());
    for (n, &len) in sizes.iter().enumerate() {
        let mine = content(seed(me, next, n), len);
        own.fake.write(0, &mine);
        let receive = rank.irecv(&rank.from(previous, 2), len);
        let send = own.send(rank, next, 2, len);
        check(&rank.done(receive).1, seed(previous, me, n), "to the host");
        rank.device.wait(send).expect("a send");
        let receive = own.receive(rank, Some(previous), 3);
        let send = rank.isend(&rank.to(next, 3), mine);
        rank.device.wait(receive).expect("a receive");
        rank.done(send);
        let arrived = own.fake.read(own.half, len);
        check(&arrived, seed(previous, me, n), "from the host");
    }
    Ok(())
}

/// A message that is too long is cut, and a refusal of the driver is an error; the next message
/// arrives.
pub fn errors<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let len = rank.long();
    let own = Own::new(len - 1000);
    let longer = Own::new(len);
    let (me, next, previous) = (rank.me(), rank.next(), rank.previous());
    longer.fake.write(0, &content(seed(me, next, 0), len));
    let receive = own.receive(rank, Some(previous), 4);
    let send = longer.send(rank, next, 4, len);
    let error = rank.device.wait(receive).expect_err("it is too long");
    assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
    rank.device.wait(send).expect("a send");
    let arrived = own.fake.read(own.half, len - 1000);
    check(&arrived, seed(previous, me, 0), "what fits");
    // The receiver's driver fails, of which the sender learns nothing.
    own.fake.fail_after(0);
    let receive = own.receive(rank, Some(previous), 5);
    let send = rank.isend(&rank.to(next, 5), content(seed(me, next, 1), len - 1000));
    let error = rank.device.wait(receive).expect_err("the driver fails");
    assert_eq!(error.kind(), ErrorKind::UnsupportedMemory, "{error}");
    rank.done(send);
    own.fake.fail_after(usize::MAX);
    let receive = own.receive(rank, Some(previous), 6);
    let send = longer.send(rank, next, 6, len - 1000);
    rank.device.wait(receive).expect("a receive");
    rank.device.wait(send).expect("a send");
    Ok(())
}

/// Puts and gets between an accelerator and a region of the next rank, in host memory.
pub fn one_sided<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    let sizes = sizes(rank);
    let own = Own::new(*sizes.iter().max().unwrap_or(&1));
    let region = device.alloc_region(own.half).expect("a region");
    let keys = rank.all_gather(&region.key.0);
    let (me, next) = (rank.me(), rank.next());
    let key = RegionKey(keys[next as usize].as_slice().try_into().expect("a key"));
    let to = ProcId::new(next);
    for (n, &len) in sizes.iter().enumerate() {
        own.fake.write(0, &content(seed(me, next, n), len));
        // SAFETY: the memory is there until the case is over, and nothing is under way after each
        // call.
        unsafe {
            let put = own.staging.put_all(device, to, &key, 0, &own.piece(0, len));
            put.expect("a put");
            let got = own
                .staging
                .get_all(device, to, &key, 0, &own.piece(own.half, len));
            got.expect("a get");
        }
        check(
            &own.fake.read(own.half, len),
            seed(me, next, n),
            "there and back",
        );
    }
    rank.barrier();
    // SAFETY: no rank uses it after the barrier.
    unsafe { device.free_region(region) }.expect("freeing a region");
    Ok(())
}

/// Puts and gets between the host, or an accelerator, and a region in an accelerator of the next
/// rank, where the device supports such regions.
pub fn regions<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    let (me, next) = (rank.me(), rank.next());
    let own = Own::new(rank.long());
    let shared = Own::new(rank.long());
    // SAFETY: the region ends before its memory.
    let region = unsafe {
        shared
            .staging
            .register(device, &shared.piece(0, shared.half))
    };
    let region = match region {
        Ok(region) => region,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::UnsupportedMemory, "{error}");
            let has = device.attributes().caps.contains(Caps::DRIVEN);
            assert!(!has, "{error}");
            return Ok(());
        }
    };
    let keys = rank.all_gather(&region.key.0);
    let key = RegionKey(keys[next as usize].as_slice().try_into().expect("a key"));
    let to = ProcId::new(next);
    let mine = content(seed(me, next, 1), own.half);
    own.fake.write(0, &mine);
    let (first, rest) = (own.half / 3, own.half - own.half / 3);
    // SAFETY: buffers and accelerators are there until the case is over; nothing is under way after
    // each call.
    unsafe {
        let put = device
            .put(to, &key, 0, mine.as_ptr(), first)
            .expect("a put");
        device.wait(put).expect("a put");
        let put = own
            .staging
            .put_all(device, to, &key, first as u64, &own.piece(first, rest));
        put.expect("a put from a device");
        device.flush(to).expect("a flush");
        let got = own
            .staging
            .get_all(device, to, &key, 0, &own.piece(own.half, own.half));
        got.expect("a get");
        let outside = own
            .staging
            .get_all(device, to, &key, 1, &own.piece(own.half, own.half));
        let outside = outside.expect_err("it is longer than the region");
        assert_eq!(outside.kind(), ErrorKind::RemoteAccess, "{outside}");
        refused(device, to, &key);
        let own = RegionKey(region.key.0);
        refused(device, ProcId::new(me), &own);
    }
    check(
        &own.fake.read(own.half, own.half),
        seed(me, next, 1),
        "there and back",
    );
    rank.barrier();
    let arrived = shared.fake.read(0, shared.half);
    check(
        &arrived,
        seed(rank.previous(), me, 1),
        "in the device's region",
    );
    // SAFETY: no rank uses it after the barrier.
    unsafe { device.free_region(region) }.expect("freeing a region");
    Ok(())
}

/// Atomic operations on accelerator memory are refused, to its owner and to others alike.
///
/// # Safety
/// The region must be there.
unsafe fn refused<D: Device>(device: &D, to: ProcId, key: &RegionKey) {
    for (width, op) in [
        (AtomicWidth::W64, AtomicOp::Add(1)),
        (AtomicWidth::W32, AtomicOp::Load),
    ] {
        let mut former = 0;
        // SAFETY: from the caller; the request is over when this returns.
        let begun = unsafe { device.atomic(to, key, 0, width, op, &raw mut former) };
        let ended = begun.and_then(|request| device.wait(request));
        let error = ended.expect_err("nobody does that there");
        assert_eq!(error.kind(), ErrorKind::UnsupportedMemory, "{error}");
    }
}

/// `DRIVEN`: the device accepts such memory exactly where the bit is set.
pub fn capability<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let own = Own::new(rank.long());
    let buf = DrivenBuf {
        driver: Arc::clone(&own.fake) as Arc<dyn Accelerator>,
        ptr: own.fake.at(0),
        count: rank.long(),
        layout: Layout::primitive(Primitive::U8),
    };
    let from = rank.from(rank.me(), 7);
    // SAFETY: no other code uses the accelerator's memory, and the receive ends here.
    let started = unsafe { rank.device.irecv_driven_unchecked(&from, buf) };
    let has = rank.device.attributes().caps.contains(Caps::DRIVEN);
    match started {
        Ok(request) => {
            assert!(has, "a receive was started");
            rank.device.cancel(request).expect("cancelling");
            assert!(rank.device.wait(request).expect("a cancel").cancelled);
        }
        Err(error) => {
            assert!(!has, "{error}");
            assert_eq!(error.kind(), ErrorKind::UnsupportedMemory, "{error}");
        }
    }
    Ok(())
}
