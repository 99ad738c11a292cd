//! Messages from and into memory that the device allocates, which some devices move in ways of
//! their own.

use portolan_core::device::Region;
use portolan_core::{Adi, Device, ErrorKind, SendArgs};

use crate::bytes::{check, content, seed};
use crate::case::Verdict;
use crate::rank::Rank;

/// Memory of [`Device::alloc_region`], freed when it is dropped.
struct Memory<'r, 'd, D: Device> {
    rank: &'r Rank<'d, D>,
    region: Region,
}

impl<'r, 'd, D: Device> Memory<'r, 'd, D> {
    fn new(rank: &'r Rank<'d, D>, len: usize) -> Self {
        let region = rank.device.alloc_region(len).expect("a region");
        Self { rank, region }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the region has so many bytes; only the device's messages use them besides, and
        // none is under way while the cases below call this.
        unsafe { std::slice::from_raw_parts_mut(self.region.ptr, self.region.len) }
    }

    /// Fills the memory with what `from` sends to `to` as message number `number`.
    fn fill(&mut self, from: u32, to: u32, number: usize) {
        let len = self.region.len;
        self.bytes()
            .copy_from_slice(&content(seed(from, to, number), len));
    }
}

impl<D: Device> Drop for Memory<'_, '_, D> {
    fn drop(&mut self) {
        // SAFETY: no message uses the memory any more, and nobody was given its key.
        unsafe { self.rank.device.free_region(self.region) }.expect("freeing a region");
    }
}

fn lengths<D: Device>(rank: &Rank<'_, D>) -> Vec<usize> {
    let mut lengths = vec![0, 100, 4096, 4097, 9000, 20_000, rank.long()];
    if !rank.is_cramped() {
        lengths.extend([300_000, (3 << 20) + 7]);
    }
    lengths
}

/// Around the ring, one rank after the other: a blocking send meets a blocking receive that waits,
/// or one that comes later.
pub fn blocking<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (me, next, previous) = (rank.me(), rank.next(), rank.previous());
    for (len, tag) in lengths(rank).into_iter().zip(0..) {
        let mut memory = Memory::new(rank, len);
        memory.fill(me, next, len);
        let mut target = vec![0; len];
        let mut send = || {
            rank.send(&rank.to(next, tag), memory.bytes())
                .expect("a blocking send");
        };
        if me == 0 {
            send();
        }
        let from = rank.from(previous, tag);
        let status = rank.recv(&from, &mut target).expect("a blocking receive");
        assert_eq!((status.bytes, status.sent), (len as u64, len as u64));
        if me != 0 {
            send();
        }
        check(&target, seed(previous, me, len), &format!("{len} bytes"));
    }
    Ok(())
}

/// Nonblocking sends in all directions at once, from memory that is filled anew for each, into
/// memory of the same kind.
pub fn nonblocking_both_ways<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (me, next, previous) = (rank.me(), rank.next(), rank.previous());
    for (len, tag) in lengths(rank).into_iter().zip(100..) {
        let mut source = Memory::new(rank, len);
        let mut target = Memory::new(rank, len);
        for number in 0..3 {
            source.fill(me, next, number);
            let from = rank.from(previous, tag);
            // SAFETY: both memories live until the requests are complete, and are left alone.
            let (receive, send) = unsafe {
                let receive = rank.device.irecv_contig(&from, target.region.ptr, len);
                let to = rank.to(next, tag);
                let send = rank.device.isend_contig(&to, source.region.ptr, len);
                (receive.expect("a receive"), send.expect("a send"))
            };
            let status = rank.device.wait(receive).expect("a message");
            rank.device.wait(send).expect("a send");
            assert_eq!(status.bytes, len as u64);
            let what = format!("{len} bytes, number {number}");
            check(target.bytes(), seed(previous, me, number), &what);
        }
    }
    Ok(())
}

/// Several of them wait for their receives, which are made in the reverse order; one is cut off,
/// and one goes into memory that is not the device's.
pub fn unexpected<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (me, next, previous) = (rank.me(), rank.next(), rank.previous());
    let len = rank.long();
    let mut memories: Vec<_> = (0..3).map(|_| Memory::new(rank, len)).collect();
    let mut requests = Vec::new();
    for (memory, number) in memories.iter_mut().zip(0..) {
        memory.fill(me, next, number);
        let to: SendArgs = rank.to(next, number as u32);
        // SAFETY: the memory lives until the request is complete, and is left alone.
        let send = unsafe { rank.device.isend_contig(&to, memory.region.ptr, len) };
        requests.push(send.expect("a send"));
    }
    rank.barrier();
    for number in (0..3).rev() {
        let room = if number == 1 { len / 2 } else { len };
        let mut target = vec![0; room];
        let received = rank.recv(&rank.from(previous, number), &mut target);
        match number {
            1 => {
                let error = received.expect_err("half of the message fits");
                assert_eq!(error.kind(), ErrorKind::Truncated);
            }
            _ => assert_eq!(received.expect("a message").bytes, len as u64),
        }
        let whole = content(seed(previous, me, number as usize), len);
        assert!(target == whole[..room], "message {number}");
    }
    for request in requests {
        rank.device.wait(request).expect("a send");
    }
    Ok(())
}
