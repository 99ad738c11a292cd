//! Puts and gets from, to and on accelerator memory, over networks that can load and store, that
//! have operations of their own, and that have packets only.

use super::*;
use crate::Device;
use crate::transport::TransportCaps;
use crate::transport::memory::Options;

const LEN: usize = (3 << 20) + 17;

fn pair(caps: TransportCaps) -> [Rank; 2] {
    let options = Options {
        caps,
        ..Options::default()
    };
    let mut ranks = memory::network_with(2, options).into_iter();
    std::array::from_fn(|_| {
        let transport = ranks.next().expect("two ranks");
        Engine::new(transport, &Settings::default()).expect("an engine")
    })
}

fn everywhere(test: impl Fn([Rank; 2])) {
    let word = TransportCaps::OFFER_WORD;
    for caps in [
        word,
        word | TransportCaps::DIRECT,
        word | TransportCaps::REMOTE,
    ] {
        test(pair(caps));
    }
}

fn piece(fake: &Fake, at: usize, len: usize) -> ContigBuf {
    ContigBuf {
        ptr: fake.at(at),
        len,
        memory: MemoryKind::Cuda,
        ..ContigBuf::from_bytes(&[])
    }
}

fn over(ranks: &[Rank; 2], which: usize, request: Request) -> Result<Status, ErrorKind> {
    loop {
        ranks[1 - which].device_check(Check::NonBlocking).unwrap();
        if let Some(outcome) = ranks[which].test(request).transpose() {
            return outcome.map_err(|error| error.kind());
        }
    }
}

/// Makes progress on both ranks until `seen` returns true.
fn settled(ranks: &[Rank; 2], seen: impl Fn() -> bool) {
    while !seen() {
        for rank in ranks {
            rank.device_check(Check::NonBlocking).unwrap();
        }
    }
}

#[test]
fn from_and_to_a_device_and_a_region_of_the_host() {
    everywhere(|ranks| {
        let fake = Fake::new(2 * LEN);
        let staging = Staging::new(vec![fake.clone()]);
        let region = ranks[1].alloc_region(LEN).unwrap();
        let data = bytes(LEN, 3);
        fake.write(0, &data);
        let to = ProcId::new(1);
        for (at, len) in [(0, 0), (1, 1), (7, 10_000), (10_007, 500_000)] {
            // SAFETY: the accelerator outlives the requests.
            unsafe {
                let mine = piece(&fake, at, len);
                let put = staging.put(&ranks[0], to, &region.key, at as u64, &mine);
                over(&ranks, 0, put.unwrap()).unwrap();
                let theirs = piece(&fake, LEN + at, len);
                let get = staging.get(&ranks[0], to, &region.key, at as u64, &theirs);
                over(&ranks, 0, get.unwrap()).unwrap();
            }
            assert!(
                fake.read(LEN + at, len) == data[at..at + len],
                "{len} bytes"
            );
        }
        // SAFETY: none of these starts an operation, and the region is no longer used.
        unsafe {
            let out = staging.put(&ranks[0], to, &region.key, 1, &piece(&fake, 0, LEN));
            assert_eq!(out.unwrap_err().kind(), ErrorKind::RemoteAccess);
            ranks[1].free_region(region).unwrap();
        }
    });
}

#[test]
fn on_a_region_in_a_device() {
    everywhere(|ranks| {
        let (mine, theirs) = (Fake::new(LEN), Fake::new(LEN));
        let [here, there] = [&mine, &theirs].map(|fake| Staging::new(vec![fake.clone()]));
        theirs.delay_copies(2);
        let data = bytes(LEN, 5);
        let to = ProcId::new(1);
        // SAFETY: accelerators and buffers outlive the requests.
        unsafe {
            let region = there.register(&ranks[1], &piece(&theirs, 0, LEN)).unwrap();
            assert!(
                ranks[1].direct(to, &region.key).is_none(),
                "no processor reaches it"
            );
            assert!(ranks[0].direct(to, &region.key).is_none());
            // From the host.
            let put = ranks[0]
                .put(to, &region.key, 0, data.as_ptr(), 20_000)
                .unwrap();
            over(&ranks, 0, put).unwrap();
            settled(&ranks, || theirs.read(0, 20_000) == data[..20_000]);
            // From the other accelerator, and back to it.
            mine.write(0, &data);
            let rest = piece(&mine, 20_000, 30_000);
            let put = here.put(&ranks[0], to, &region.key, 20_000, &rest).unwrap();
            over(&ranks, 0, put).unwrap();
            settled(&ranks, || theirs.read(0, 50_000) == data[..50_000]);
            theirs.write(0, &data);
            mine.write(0, &vec![0; LEN]);
            let get = here.get(&ranks[0], to, &region.key, 0, &piece(&mine, 0, LEN));
            over(&ranks, 0, get.unwrap()).unwrap();
            assert!(mine.read(0, LEN) == data);
            // By its owner.
            let mut host = vec![0_u8; 1000];
            let own = ranks[1]
                .get(to, &region.key, 5, host.as_mut_ptr(), 1000)
                .unwrap();
            over(&ranks, 1, own).unwrap();
            assert!(host == data[5..1005]);
            let own = ranks[1]
                .put(to, &region.key, 0, host.as_ptr(), 1000)
                .unwrap();
            over(&ranks, 1, own).unwrap();
            assert!(theirs.read(0, 1000) == host);
            // No atomic operations, because there is no processor to carry them out.
            let (add, wide) = (AtomicOp::Add(1), AtomicWidth::W64);
            let null = std::ptr::null_mut();
            for rank in &ranks[..2] {
                let refused = rank.atomic(to, &region.key, 0, wide, add, null);
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::UnsupportedMemory);
            }
            // The owner's driver fails, and so does the get.
            theirs.fail_after(1);
            let get = here.get(&ranks[0], to, &region.key, 0, &piece(&mine, 0, LEN));
            assert_eq!(over(&ranks, 0, get.unwrap()), Err(ErrorKind::RemoteAccess));
            theirs.fail_after(usize::MAX);
            // The region is freed during a get: nothing is copied out of it afterwards.
            theirs.delay_copies(1 << 30);
            let get = here
                .get(&ranks[0], to, &region.key, 0, &piece(&mine, 0, LEN))
                .unwrap();
            settled(&ranks, || theirs.moving() > 0);
            ranks[1].free_region(region).unwrap();
            assert_eq!(theirs.moving(), 0);
            assert_eq!(over(&ranks, 0, get), Err(ErrorKind::RemoteAccess));
        }
    });
}

#[test]
fn what_has_no_driver_is_refused() {
    let ranks = pair(TransportCaps::REMOTE);
    let fake = Fake::new(100);
    let none = Staging::default();
    let region = ranks[1].alloc_region(100).unwrap();
    let (to, memory) = (ProcId::new(1), piece(&fake, 0, 100));
    let refused = |kind: ErrorKind| assert_eq!(kind, ErrorKind::UnsupportedMemory);
    // SAFETY: none of these starts an operation; one that did would fault.
    unsafe {
        refused(
            none.put(&ranks[0], to, &region.key, 0, &memory)
                .unwrap_err()
                .kind(),
        );
        refused(
            none.get(&ranks[0], to, &region.key, 0, &memory)
                .unwrap_err()
                .kind(),
        );
        refused(none.register(&ranks[0], &memory).unwrap_err().kind());
        // The driver does not know the address.
        let staging = Staging::new(vec![fake.clone()]);
        let beyond = piece(&fake, 50, 100);
        refused(staging.register(&ranks[0], &beyond).unwrap_err().kind());
        refused(
            staging
                .put(&ranks[0], to, &region.key, 0, &beyond)
                .unwrap_err()
                .kind(),
        );
        ranks[1].free_region(region).unwrap();
    }
}

#[test]
fn a_driver_that_fails_changes_no_region() {
    everywhere(|ranks| {
        let fake = Fake::new(1000);
        let staging = Staging::new(vec![fake.clone()]);
        let region = ranks[1].alloc_region(1000).unwrap();
        let (to, data) = (ProcId::new(1), bytes(1000, 7));
        let get = |room: &mut [u8]| {
            // SAFETY: the buffer outlives the request.
            let get = unsafe { ranks[0].get(to, &region.key, 0, room.as_mut_ptr(), room.len()) };
            over(&ranks, 0, get.unwrap()).unwrap();
        };
        let mut there = vec![0; 1000];
        // SAFETY: accelerators and buffers outlive the requests.
        unsafe {
            let put = ranks[0].put(to, &region.key, 0, data.as_ptr(), 1000);
            over(&ranks, 0, put.unwrap()).unwrap();
            fake.fail_after(0);
            let put = staging.put(&ranks[0], to, &region.key, 0, &piece(&fake, 0, 1000));
            assert_eq!(put.unwrap_err().kind(), ErrorKind::UnsupportedMemory);
        }
        get(&mut there);
        assert!(there == data);
    });
}
