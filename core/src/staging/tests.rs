//! Messages from and to an accelerator whose memory faults when the host accesses it.

mod long;
mod one_sided;
mod stalled;

use std::sync::Arc;

use portolan_datatype::{Layout, Primitive};

use super::{Accelerator, Fake, Staging};
use crate::buffer::{ContigBuf, MemoryKind, TypedBuf};
use crate::config::Settings;
use crate::device::{AtomicOp, AtomicWidth, Check, Device, SendMode};
use crate::engine::Engine;
use crate::level::Single;
use crate::matching::Pattern;
use crate::transport::memory::{self, InMemory};
use crate::{Adi, ErrorKind, ProcId, Request, SendArgs, Status};

type Rank = Engine<InMemory, Single>;

struct Bench {
    ranks: [Rank; 2],
    fake: Arc<Fake>,
    staging: Staging,
}

const HALF: usize = 256 << 10;

impl Bench {
    fn new() -> Self {
        let mut ranks = memory::network(2).into_iter();
        let mut next = || ranks.next().expect("two ranks");
        let fake = Fake::new(2 * HALF);
        let driver = Arc::clone(&fake) as Arc<dyn Accelerator>;
        Self {
            ranks: std::array::from_fn(|_| {
                Engine::new(next(), &Settings::default()).expect("an engine")
            }),
            fake,
            staging: Staging::new(vec![driver]),
        }
    }

    fn over(&self, rank: usize, request: Request) -> Result<Status, ErrorKind> {
        for _ in 0..100_000 {
            self.ranks[1 - rank]
                .device_check(Check::NonBlocking)
                .unwrap();
            if let Some(outcome) = self.ranks[rank].test(request).transpose() {
                return outcome.map_err(|error| error.kind());
            }
        }
        panic!("it never ends");
    }
}

fn bytes(len: usize, step: usize) -> Vec<u8> {
    (0..len).map(|n| (n * step / 7) as u8).collect()
}

fn buf<'a>(ptr: *mut u8, count: usize, layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr,
        count,
        layout,
        memory: MemoryKind::Cuda,
    }
}

fn args() -> SendArgs {
    SendArgs::new(ProcId::new(1), 1, 0, 5)
}

fn from() -> Pattern {
    Pattern {
        context: 1,
        source: Some(0),
        tag: Some(5),
    }
}

#[test]
fn device_to_device_without_the_host_touching_it() {
    let bench = Bench::new();
    let byte = Layout::primitive(Primitive::U8);
    for (step, len) in [0, 1, 1000, 70_000, HALF].into_iter().enumerate() {
        let sent = bytes(len, step + 1);
        bench.fake.write(0, &sent);
        let (there, here) = (bench.fake.at(0), bench.fake.at(HALF));
        // SAFETY: both halves of the pages exist until the requests are over.
        let (receive, send) = unsafe {
            let receive = bench
                .staging
                .irecv(&bench.ranks[1], &from(), buf(here, HALF, &byte));
            let send = bench
                .staging
                .isend(&bench.ranks[0], &args(), buf(there, len, &byte));
            (receive.unwrap(), send.unwrap())
        };
        let status = bench.over(1, receive).unwrap();
        bench.over(0, send).unwrap();
        assert_eq!(status.bytes, len as u64);
        assert!(bench.fake.read(HALF, len) == sent, "{len} bytes");
    }
}

#[test]
fn put_and_get_between_a_device_and_a_region() {
    let bench = Bench::new();
    let region = bench.ranks[1].alloc_region(HALF).unwrap();
    let data = bytes(HALF, 3);
    bench.fake.write(0, &data);
    let device_memory = |at: usize| ContigBuf {
        ptr: bench.fake.at(at),
        len: HALF,
        memory: MemoryKind::Cuda,
        ..ContigBuf::from_bytes(&[])
    };
    let (staging, to) = (&bench.staging, ProcId::new(1));
    // SAFETY: the pages exist until the requests are over.
    unsafe {
        let put = staging.put(&bench.ranks[0], to, &region.key, 0, &device_memory(0));
        bench.over(0, put.unwrap()).unwrap();
        let get = staging.get(&bench.ranks[0], to, &region.key, 0, &device_memory(HALF));
        bench.over(0, get.unwrap()).unwrap();
    }
    assert!(bench.fake.read(HALF, HALF) == data);
    // SAFETY: the region is no longer used.
    unsafe { bench.ranks[1].free_region(region) }.unwrap();
}

#[test]
fn what_did_not_arrive_is_not_stored() {
    let bench = Bench::new();
    let byte = Layout::primitive(Primitive::U8);
    bench.fake.write(0, &[9; 64]);
    // SAFETY: the pages exist until the request is over.
    let receive = unsafe {
        bench
            .staging
            .irecv(&bench.ranks[1], &from(), buf(bench.fake.at(0), 64, &byte))
    };
    let receive = receive.unwrap();
    let before = bench.fake.copies();
    bench.ranks[1].cancel(receive).unwrap();
    assert!(bench.over(1, receive).unwrap().cancelled);
    assert_eq!(bench.fake.copies(), before);

    // Truncated: the part that fits is there.
    // SAFETY: as above.
    let receive = unsafe {
        bench
            .staging
            .irecv(&bench.ranks[1], &from(), buf(bench.fake.at(0), 4, &byte))
    };
    bench.ranks[0]
        .send_contig(&args(), &[1, 2, 3, 4, 5, 6])
        .unwrap();
    assert_eq!(bench.over(1, receive.unwrap()), Err(ErrorKind::Truncated));
    assert_eq!(bench.fake.read(0, 6), [1, 2, 3, 4, 9, 9]);
}

#[test]
fn memory_that_cannot_be_served_is_refused() {
    let bench = Bench::new();
    let byte = Layout::primitive(Primitive::U8);
    let gaps = Layout::vector(4, 1, 2, &byte).unwrap();
    let (rank, start) = (&bench.ranks[0], bench.fake.at(0));
    let none = Staging::default();
    let refused = |outcome: crate::Result<Request>| {
        let error = outcome.expect_err("it cannot be served");
        assert_eq!(error.kind(), ErrorKind::UnsupportedMemory, "{error}");
    };
    // SAFETY: none of these starts an operation; one that did would fault.
    unsafe {
        refused(rank.isend_datatype_unchecked(&args(), buf(start, 8, &byte)));
        refused(rank.irecv_datatype_unchecked(&from(), buf(start, 8, &byte)));
        refused(rank.send_init_unchecked(&args(), buf(start, 8, &byte)));
        let blocking = rank.send_datatype_unchecked(&args(), buf(start, 8, &byte));
        refused(blocking.map(|()| Request::NULL));
        refused(none.isend(rank, &args(), buf(start, 8, &byte)));
        refused(bench.staging.isend(rank, &args(), buf(start, 1, &gaps)));
        refused(bench.staging.irecv(rank, &from(), buf(start, 1, &gaps)));
        refused(
            bench
                .staging
                .isend(rank, &args().mode(SendMode::Buffered), buf(start, 8, &byte)),
        );
        // The driver fails: a host address, claimed to be the accelerator's.
        let mut host = [0_u8; 8];
        refused(
            bench
                .staging
                .isend(rank, &args(), buf(host.as_mut_ptr(), 8, &byte)),
        );
    }
}

#[test]
fn addresses_are_told_apart() {
    let bench = Bench::new();
    let host = 7_u8;
    assert_eq!(bench.staging.kind_of(&raw const host), MemoryKind::Host);
    assert_eq!(bench.staging.kind_of(bench.fake.at(0)), MemoryKind::Cuda);
    let detected = Staging::detected();
    assert_eq!(detected.kind_of(&raw const host), MemoryKind::Host);
}
