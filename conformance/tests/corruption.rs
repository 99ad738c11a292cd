//! Packets with flipped bits: whatever a peer sends, the engine neither panics nor does anything
//! undefined (the address sanitizer runs this too), and no error blames Portolan.
//!
//! One thread steps all ranks, so a seed repeats a run exactly.

use portolan_conformance::{Pending, Rank, bytes::content};
use portolan_core::config::Settings;
use portolan_core::device::{HandlerId, RegionKey};
use portolan_core::level::Single;
use portolan_core::transport::TransportCaps;
use portolan_core::transport::decorate::{Corrupt, Decorated};
use portolan_core::transport::memory::{self, InMemory, Options};
use portolan_core::{Device, Engine, ErrorKind, ProcId, Request, SendMode};

type Damaged = Engine<Decorated<InMemory, Corrupt>, Single>;

const RANKS: u32 = 3;

/// A job whose ranks receive one packet in `one_in` damaged.
fn job(seed: u64, one_in: u32) -> Vec<Damaged> {
    let mut settings = Settings::default();
    settings.set("ON_FAILURE", "return").expect("a setting");
    // One-sided operations are sent as packets, and no queue is ever full, because no rank may wait
    // here.
    let caps = TransportCaps::PULL | TransportCaps::OFFER_WORD;
    let ranks = memory::network_with(
        RANKS,
        Options {
            packets: 10_000,
            caps,
            ..Options::default()
        },
    );
    let damaged = |(rank, n)| Decorated::new(rank, Corrupt::new(seed << 8 | n, one_in, 0));
    let engine = |transport| Engine::new(transport, &settings).expect("an engine");
    ranks
        .into_iter()
        .zip(0..)
        .map(damaged)
        .map(engine)
        .collect()
}

/// Starts every kind of message from every rank to every rank. Each kind of receive has its own
/// context, so that no wildcard takes a message that another receive waits for.
fn start(rank: &Rank<'_, Damaged>, round: usize, pending: &mut Vec<Pending>) {
    let tag = round as u32;
    for peer in 0..RANKS {
        for (n, len) in [0, 5, 100, 3000, 70_000].into_iter().enumerate() {
            let mode = if n % 2 == 0 {
                SendMode::Standard
            } else {
                SendMode::Synchronous
            };
            let mut from = rank.from((n > 2).then_some(peer), (n > 1).then_some(tag));
            let mut to = rank.to(peer, tag).mode(mode);
            (from.context, to.envelope.context) = (rank.context(n as u32), rank.context(n as u32));
            pending.push(rank.irecv(&from, len));
            pending.push(rank.isend(&to, content(n as u64, len)));
        }
        // Refused where the peer has been declared failed.
        let _ = rank
            .device
            .active_send(ProcId::new(peer), HandlerId(1), [1, 2], &[7; 99]);
    }
}

/// Starts a put and a get in a peer's region; their memory is leaked.
fn start_one_sided(rank: &Rank<'_, Damaged>, peer: u32, key: &RegionKey) -> Vec<Request> {
    let memory = Box::leak(vec![1_u8; 2000].into_boxed_slice()).as_mut_ptr();
    let (to, device) = (ProcId::new(peer), rank.device);
    // SAFETY: the memory is never freed.
    let (put, get) = unsafe {
        (
            device.put(to, key, 100, memory, 2000),
            device.get(to, key, 0, memory, 9),
        )
    };
    put.into_iter().chain(get).collect()
}

/// Whether a request has ended. Any outcome is accepted, except an error that is Portolan's own
/// fault.
fn ended(device: &Damaged, request: Request, seed: u64) -> bool {
    match device.test(request) {
        Ok(status) => status.is_some(),
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::Internal, "seed {seed}: {error}");
            true
        }
    }
}

/// A whole run; returns how many operations ended and how many ranks were declared failed.
fn run(seed: u64, one_in: u32) -> (usize, usize) {
    let engines = job(seed, one_in);
    let ranks: Vec<_> = engines.iter().map(|engine| Rank::new(engine, 0)).collect();
    let mut regions = Vec::new();
    for engine in &engines {
        engine
            .register_handler(HandlerId(1), Box::new(|_, _| ()))
            .expect("a handler");
        regions.push(engine.alloc_region(4096).expect("a region"));
    }
    let mut pending: Vec<Vec<Pending>> = ranks.iter().map(|_| Vec::new()).collect();
    let mut one_sided: Vec<Vec<Request>> = ranks.iter().map(|_| Vec::new()).collect();
    let mut over = 0;
    for step in 0..200 {
        for (n, rank) in ranks.iter().enumerate() {
            if step < 8 {
                start(rank, step, &mut pending[n]);
                let peer = rank.next();
                one_sided[n].extend(start_one_sided(rank, peer, &regions[peer as usize].key));
            }
            // Progress itself may report a failure.
            let _ = rank
                .device
                .device_check(portolan_core::device::Check::NonBlocking);
            let (done, active) = std::mem::take(&mut pending[n])
                .into_iter()
                .partition::<Vec<_>, _>(|pending| ended(rank.device, pending.request, seed));
            over += done.len();
            for pending in done {
                rank.reclaim(pending);
            }
            pending[n] = active;
            one_sided[n].retain(|&request| !ended(rank.device, request, seed));
        }
    }
    let failed = |peer: &u32| engines[0].failure_of(ProcId::new(*peer)).is_some();
    // The operations that have not ended wait for messages whose envelope was damaged; their memory
    // is leaked.
    (over, (0..RANKS).filter(failed).count())
}

#[test]
fn undamaged_runs_end() {
    for seed in 0..3 {
        let (over, failed) = run(seed, u32::MAX);
        assert_eq!((over, failed), (8 * 3 * 3 * 10, 0), "seed {seed}");
    }
}

#[test]
fn rare_damage_does_no_harm() {
    let runs: Vec<_> = (0..150).map(|seed| run(seed, 60)).collect();
    assert!(
        runs.iter().any(|(_, failed)| *failed > 0),
        "no damage was ever noticed"
    );
}

#[test]
fn damage_everywhere_does_no_harm() {
    let runs: Vec<_> = (1000..1150).map(|seed| run(seed, 2)).collect();
    assert!(
        runs.iter().all(|(_, failed)| *failed > 0),
        "a run full of damage was not noticed"
    );
}
