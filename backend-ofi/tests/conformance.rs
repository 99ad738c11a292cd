//! The conformance suite over libfabric, with threads as ranks. For processes, more sizes and more
//! providers see `examples/conformance_rank.rs`.
//!
//! Without libfabric, every test is skipped and says so.

use std::io::Write;

use portolan_conformance::subjects::stress::how_many_unexpected;
use portolan_conformance::{Job, Over, Rank, Sut, Transports, on_threads, suite};
use portolan_core::config::{Settings, Switch};
use portolan_core::device::{AtomicOp, AtomicWidth, Check};
use portolan_core::level::{Multiple, Single};
use portolan_core::transport::TransportCaps;
use portolan_core::{Device, Engine, ProcId, Request, Transport};
use portolan_ofi::{Config, Native, Ofi, offers};

/// Why there is no such provider here.
fn missing(provider: &str) -> Option<String> {
    match offers(&Config::default()) {
        Err(why) => Some(why),
        Ok((version, offers)) => {
            let layered = |name: &str| name.split(';').any(|layer| layer == provider);
            let there = offers.iter().any(|offer| layered(&offer.provider));
            (!there).then(|| format!("libfabric {version} has no provider {provider} here"))
        }
    }
}

fn open(job: &Job, provider: &str) -> Vec<Ofi> {
    let job = job.clone().set("OFI_PROVIDER", provider);
    portolan_ofi::in_process(job.ranks, &job.settings).expect("an endpoint for each rank")
}

/// TCP over the loopback interface, with the provider that every libfabric has.
struct Tcp;

impl Transports for Tcp {
    type Transport = Ofi;

    const NAME: &'static str = "ofi, tcp";

    fn missing() -> Option<String> {
        missing("tcp")
    }

    fn open(job: &Job) -> Vec<Ofi> {
        open(&job.clone().set("OFI_INTERFACE", "lo"), "tcp")
    }
}

#[test]
fn a_rank_that_leaves_over_tcp() {
    portolan_conformance::leaving::<Tcp>();
}

mod tcp {
    use super::*;
    suite!(Over<Tcp>, few);
}

/// Datagrams over the loopback interface, which may get lost: the provider makes reliable messages
/// of them.
struct Udp;

impl Transports for Udp {
    type Transport = Ofi;

    const NAME: &'static str = "ofi, udp";

    fn missing() -> Option<String> {
        missing("ofi_rxd")
    }

    fn open(job: &Job) -> Vec<Ofi> {
        open(&job.clone().set("OFI_INTERFACE", "lo"), "ofi_rxd")
    }
}

#[test]
fn a_rank_that_leaves_over_udp() {
    portolan_conformance::leaving::<Udp>();
}

mod udp {
    use super::*;
    suite!(Over<Udp>, few);
}

/// Another, older provider over TCP, which works in a thread of its own unless it is asked not to.
struct Sockets;

impl Transports for Sockets {
    type Transport = Ofi;

    const NAME: &'static str = "ofi, sockets";

    fn missing() -> Option<String> {
        missing("sockets")
    }

    fn open(job: &Job) -> Vec<Ofi> {
        open(&job.clone().set("OFI_INTERFACE", "lo"), "sockets")
    }
}

mod sockets {
    use super::*;
    suite!(Over<Sockets>, few);
}

#[test]
fn one_sided_by_sockets() {
    one_sided_by_the_provider::<Sockets>();
}

/// libfabric's shared memory.
struct Shm;

impl Transports for Shm {
    type Transport = Ofi;

    const NAME: &'static str = "ofi, shm";

    fn missing() -> Option<String> {
        missing("shm")
    }

    fn open(job: &Job) -> Vec<Ofi> {
        open(job, "shm")
    }
}

mod shm {
    use super::*;
    suite!(Over<Shm>, few);
}

/// libfabric's shared memory with `FI_HMEM`: the host's memory is registered as an accelerator's
/// would be.
struct ShmRegisters;

impl Transports for ShmRegisters {
    type Transport = Ofi;

    const NAME: &'static str = "ofi, shm with FI_HMEM";

    fn missing() -> Option<String> {
        let config = Config {
            hmem: Switch::On,
            provider: Some("shm".to_owned()),
            ..Config::default()
        };
        let offers = offers(&config).map(|(_, offers)| offers);
        let usable = offers.map(|offers| offers.iter().any(|offer| offer.unusable.is_none()));
        match usable {
            Ok(true) => None,
            Ok(false) => Some("no provider shm with FI_HMEM is here".to_owned()),
            Err(why) => Some(why),
        }
    }

    fn open(job: &Job) -> Vec<Ofi> {
        let ranks = open(&job.clone().set("OFI_HMEM", "on"), "shm");
        let facts = ranks[0].describe();
        let memory = facts.iter().find(|(name, _)| name == "memory");
        let (_, memory) = memory.expect("a fact");
        assert!(memory.starts_with("FI_HMEM: system"), "{memory}");
        ranks
    }
}

mod shm_registers {
    use super::*;
    suite!(Over<ShmRegisters>, few);
}

#[test]
fn one_sided_by_registered_shm() {
    one_sided_by_the_provider::<ShmRegisters>();
}

/// Whether the provider has atomic operations for these ranks.
fn has_atomics(rank: &Ofi) -> bool {
    let facts = rank.describe();
    let fact = |name: &str| {
        let fact = facts.iter().find(|(known, _)| known == name);
        fact.expect("a fact").1.as_str()
    };
    let hmem = fact("memory").starts_with("FI_HMEM");
    match (fact("provider"), fact("libfabric")) {
        ("shm", "1.17") => !hmem,
        ("shm", "2.5") | ("tcp;ofi_rxm" | "sockets", _) => true,
        ("tcp", _) => false,
        // What the versions in between have with FI_HMEM is not known.
        ("shm", _) => !hmem || rank.caps().contains(TransportCaps::ATOMICS),
        (provider, _) => panic!("{provider} is not one of those tested here"),
    }
}

/// One-sided operations (put, atomics on both sides, get) go by the provider, where it has them.
fn one_sided_by_the_provider<T: Transports<Transport = Ofi>>() {
    if let Some(why) = T::missing() {
        let _ = writeln!(std::io::stdout(), "skipped: {}: {why}", T::NAME);
        return;
    }
    let ranks = T::open(&Job::new(2));
    let atomics = has_atomics(&ranks[0]);
    let caps = ranks[0].caps();
    assert_eq!(caps.contains(TransportCaps::ATOMICS), atomics, "{caps:?}");
    let mut ranks = ranks.into_iter();
    let ranks: [Engine<Ofi, Single>; 2] = std::array::from_fn(|_| {
        let rank = ranks.next().expect("two ranks");
        Engine::new(rank, &Settings::default()).expect("an engine")
    });
    let over = |rank: usize, request: Request| {
        for _ in 0..10_000_000 {
            ranks[1 - rank]
                .device_check(Check::NonBlocking)
                .expect("progress");
            if let Some(status) = ranks[rank].test(request).expect("an operation") {
                return status;
            }
        }
        panic!("{}: it never ends", T::NAME);
    };
    let done = |rank: usize| {
        let counters = ranks[rank].counters();
        counters
            .into_iter()
            .find(|(name, _)| *name == "remote_operations")
            .expect("a counter")
            .1
    };
    const LEN: usize = 100_000;
    let region = ranks[1].alloc_region(LEN).expect("a region");
    let (key, to) = (region.key, ProcId::new(1));
    let bytes: Vec<u8> = (0..LEN).map(|n| (n / 7) as u8).collect();
    let (mut back, mut former) = (vec![0; LEN], [0_u64; 2]);
    // SAFETY: the buffers live until the requests are over, and so does the region.
    unsafe {
        let put = ranks[0].put(to, &key, 0, bytes.as_ptr(), LEN);
        over(0, put.expect("put"));
        for (rank, former) in former.iter_mut().enumerate() {
            let (width, op) = (AtomicWidth::W64, AtomicOp::Add(1));
            let add = ranks[rank].atomic(to, &key, 8, width, op, former);
            over(rank, add.expect("add"));
        }
        let get = ranks[0].get(to, &key, 0, back.as_mut_ptr(), LEN);
        over(0, get.expect("get"));
    }
    let word = u64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes"));
    assert_eq!(former, [word, word + 1], "{}", T::NAME);
    assert!(
        back[..8] == bytes[..8] && back[16..] == bytes[16..],
        "{}",
        T::NAME
    );
    assert_eq!(back[8..16], (word + 2).to_ne_bytes(), "{}", T::NAME);
    assert_eq!(
        (done(0), done(1)),
        if atomics { (3, 1) } else { (2, 0) },
        "{}: done by the provider",
        T::NAME
    );
    // SAFETY: nothing uses it any more.
    unsafe { ranks[1].free_region(region) }.expect("freeing");
}

#[test]
fn one_sided_by_tcp() {
    one_sided_by_the_provider::<Tcp>();
}

#[test]
fn one_sided_by_shm() {
    one_sided_by_the_provider::<Shm>();
}

/// TCP over the loopback interface, with the provider matching.
struct TcpMatches;

impl TcpMatches {
    fn open(job: &Job) -> Vec<Ofi> {
        let job = job.clone().set("OFI_INTERFACE", "lo");
        open(&job.set("MATCH", "native"), "tcp")
    }
}

impl Sut for TcpMatches {
    type Device = Native<Single>;
    type Shared = Native<Multiple>;

    const NAME: &'static str = "ofi, tcp matches";

    fn missing() -> Option<String> {
        missing("tcp")
    }

    fn run<R: Send>(job: &Job, body: impl Fn(&Self::Device) -> R + Sync) -> Vec<R> {
        let device = |ofi| Native::new(ofi, &job.settings).expect("a device");
        on_threads(Self::open(job), device, body)
    }

    fn run_shared<R: Send>(job: &Job, body: impl Fn(&Self::Shared) -> R + Sync) -> Vec<R> {
        let device = |ofi| Native::new(ofi, &job.settings).expect("a device");
        on_threads(Self::open(job), device, body)
    }
}

mod tcp_matches {
    use super::*;
    suite!(TcpMatches, few);
}

/// The provider searches its early messages one by one. That it copies little at once is no reason
/// for the suite to give it fewer of them.
#[test]
fn the_provider_gets_as_many_early_messages_as_the_engine() {
    if let Some(why) = TcpMatches::missing() {
        let _ = writeln!(std::io::stdout(), "skipped: {}: {why}", TcpMatches::NAME);
        return;
    }
    let counts = TcpMatches::run(&Job::new(1), |device| {
        let rank = Rank::new(device, 0);
        (rank.eager_max(), how_many_unexpected(&rank))
    });
    let [(eager, many)] = counts[..] else {
        panic!("one rank");
    };
    assert!(eager < 1024, "{eager} is no small limit");
    assert_eq!(many, 100_000, "of {}", TcpMatches::NAME);
}
