//! Driven memory, in the provider's hands (`FI_HMEM`) and through the host. An accelerator whose
//! memory is really the host's stands in for a GPU: libfabric's shm provider has `FI_HMEM` of the
//! kind `FI_HMEM_SYSTEM`.

use std::io::Write;
use std::sync::Arc;

use portolan_core::config::Settings;
use portolan_core::device::Check;
use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::staging::{Accelerator, DrivenBuf, Fake};
use portolan_core::{ContigBuf, Device, Engine, ErrorKind, ProcId, Request, SendArgs, Status};
use portolan_datatype::{Layout, Primitive};
use portolan_ofi::Ofi;

const LEN: usize = (2 << 20) + 5;

type Rank = Engine<Ofi, Single>;

/// Two ranks over libfabric's shared memory, each with an accelerator of its own; prints the reason
/// and returns `None` where that is not possible.
fn pair(hmem: &str) -> Option<([Rank; 2], [Arc<Fake>; 2])> {
    let mut settings = Settings::default();
    settings.set("OFI_PROVIDER", "shm").expect("a setting");
    settings.set("OFI_HMEM", hmem).expect("a setting");
    let opened = match portolan_ofi::in_process(2, &settings) {
        Ok(opened) => opened,
        Err(why) => {
            let _ = writeln!(std::io::stdout(), "skipped: FI_HMEM over shm: {why}");
            return None;
        }
    };
    let engine = |transport| Engine::new(transport, &settings).expect("an engine");
    let ranks = <[Ofi; 2]>::try_from(opened).expect("two ranks");
    Some((
        ranks.map(engine),
        [Fake::reachable(LEN), Fake::reachable(LEN)],
    ))
}

fn buf(fake: &Arc<Fake>, len: usize) -> DrivenBuf {
    DrivenBuf {
        driver: Arc::clone(fake) as Arc<dyn Accelerator>,
        ptr: fake.at(0),
        count: len,
        layout: Layout::primitive(Primitive::U8),
    }
}

fn args() -> SendArgs {
    SendArgs::new(ProcId::new(1), 1, 0, 5)
}

fn from() -> Pattern {
    Pattern {
        context: 1,
        source: None,
        tag: Some(5),
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 5 / 3) as u8).collect()
}

/// More polls than anything that has to happen takes.
const MANY: usize = 10_000_000;

fn over(ranks: &[Rank; 2], which: usize, request: Request) -> Result<Status, ErrorKind> {
    for _ in 0..MANY {
        ranks[1 - which]
            .device_check(Check::NonBlocking)
            .expect("progress");
        if let Some(outcome) = ranks[which].test(request).transpose() {
            return outcome.map_err(|error| error.kind());
        }
    }
    panic!("the operation of rank {which} never ends");
}

#[test]
fn long_messages_are_the_providers_where_it_takes_such_memory() {
    for (hmem, direct) in [("on", true), ("off", false)] {
        let Some((ranks, fakes)) = pair(hmem) else {
            return;
        };
        let data = bytes(LEN);
        fakes[0].write(0, &data);
        // SAFETY: the accelerators outlive the requests, and nothing else uses them.
        let (receive, send) = unsafe {
            (
                ranks[1]
                    .irecv_driven_unchecked(&from(), buf(&fakes[1], LEN))
                    .expect("a receive"),
                ranks[0]
                    .isend_driven_unchecked(&args(), buf(&fakes[0], LEN))
                    .expect("a send"),
            )
        };
        assert_eq!(
            over(&ranks, 1, receive).expect("a receive").bytes,
            LEN as u64
        );
        over(&ranks, 0, send).expect("a send");
        assert!(fakes[1].read(0, LEN) == data);
        for (rank, fake) in ranks.iter().zip(&fakes) {
            assert_eq!(
                fake.copies() == 0,
                direct,
                "FI_HMEM {hmem}: {} copies",
                fake.copies()
            );
            assert_eq!(rank.snapshot().chunks_staged == 0, direct);
        }
        let read = ranks[1].snapshot().bytes_pulled;
        assert_eq!(read, if direct { LEN as u64 } else { 0 });
    }
}

#[test]
fn the_other_side_may_be_the_host() {
    let Some((ranks, fakes)) = pair("on") else {
        return;
    };
    let data = bytes(LEN);
    fakes[0].write(0, &data);
    let mut host = vec![0_u8; LEN];
    // SAFETY: everything outlives the requests, and nothing else uses it meanwhile.
    unsafe {
        let room = ContigBuf::from_bytes_mut(&mut host);
        let receive = ranks[1]
            .irecv_contig_unchecked(&from(), room)
            .expect("a receive");
        let send = ranks[0].isend_driven_unchecked(&args(), buf(&fakes[0], LEN));
        over(&ranks, 1, receive).expect("a receive");
        over(&ranks, 0, send.expect("a send")).expect("a send");
        assert!(host == data);
        let values = ContigBuf::from_bytes(&host);
        let receive = ranks[1].irecv_driven_unchecked(&from(), buf(&fakes[1], LEN - 1000));
        let send = ranks[0]
            .isend_contig_unchecked(&args(), values)
            .expect("a send");
        let cut = over(&ranks, 1, receive.expect("a receive"));
        assert_eq!(cut, Err(ErrorKind::Truncated));
        over(&ranks, 0, send).expect("a send");
    }
    assert!(fakes[1].read(0, LEN - 1000) == data[..LEN - 1000]);
    assert_eq!(fakes[1].read(LEN - 1000, 1000), [0; 1000]);
    assert_eq!(fakes.map(|fake| fake.copies()), [0, 0]);
}

#[test]
fn puts_and_gets_are_the_providers_where_it_takes_such_memory() {
    let Some((ranks, fakes)) = pair("on") else {
        return;
    };
    let data = bytes(LEN);
    fakes[0].write(0, &data);
    let to = ProcId::new(1);
    // SAFETY: the accelerators outlive the requests and the region, and nothing else uses them.
    unsafe {
        let region = ranks[1]
            .register_driven(buf(&fakes[1], LEN))
            .expect("a region");
        let put = ranks[0]
            .put_driven(to, &region.key, 0, buf(&fakes[0], LEN))
            .expect("a put");
        over(&ranks, 0, put).expect("a put");
        assert!(fakes[1].read(0, LEN) == data);
        fakes[0].write(0, &vec![0; LEN]);
        let get = ranks[0]
            .get_driven(to, &region.key, 0, buf(&fakes[0], LEN))
            .expect("a get");
        over(&ranks, 0, get).expect("a get");
        assert!(fakes[0].read(0, LEN) == data);
        ranks[1].free_region(region).expect("an end");
    }
    assert!(ranks[0].snapshot().remote_operations > 0);
    assert_eq!(fakes.map(|fake| fake.copies()), [0, 0]);
}

#[test]
fn a_region_that_the_provider_does_not_take_is_reached_by_packets() {
    let Some((ranks, fakes)) = pair("on") else {
        return;
    };
    // Accelerators of a kind that the provider does not know, next to one of a kind that it knows.
    let strange = Fake::new(2 * LEN);
    let half = |at: usize| DrivenBuf {
        ptr: strange.at(at),
        ..buf(&strange, LEN)
    };
    let data = bytes(100_000);
    let mine = || buf(&fakes[0], data.len());
    fakes[0].write(0, &data);
    strange.write(LEN, &data);
    let to = ProcId::new(1);
    // SAFETY: the accelerators outlive the requests and the regions, and nothing else uses them.
    unsafe {
        let regions = [0, LEN].map(|at| ranks[1].register_driven(half(at)).expect("a region"));
        // The kind of each region is not known before the first access to it.
        let put = ranks[0].put_driven(to, &regions[0].key, 0, mine());
        over(&ranks, 0, put.expect("a put")).expect("a put");
        let mut looks = 0;
        while strange.read(0, data.len()) != data {
            looks += 1;
            assert!(looks < MANY, "the bytes never come");
            for rank in &ranks {
                rank.device_check(Check::NonBlocking).expect("progress");
            }
        }
        fakes[0].write(0, &vec![0; data.len()]);
        let get = ranks[0].get_driven(to, &regions[1].key, 0, mine());
        over(&ranks, 0, get.expect("a get")).expect("a get");
        assert!(fakes[0].read(0, data.len()) == data);
        // Now it is known, and the caller has to copy.
        let get = ranks[0].get_driven(to, &regions[1].key, 0, mine());
        assert_eq!(get.unwrap_err().kind(), ErrorKind::UnsupportedMemory);
        for region in regions {
            ranks[1].free_region(region).expect("an end");
        }
    }
}
