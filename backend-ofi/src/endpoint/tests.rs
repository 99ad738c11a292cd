//! Memory is registered in each way that a provider may require, whether a provider here requires
//! it or not.

mod floods;
mod poor;
mod sleepers;

use std::ffi::c_int;
use std::sync::Arc;

use libfabric_sys::{
    FI_EINVAL, FI_ENABLE, FI_MR_ALLOCATED, FI_MR_BASIC, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_READ,
    FI_REMOTE_READ, fi_mr_key, fi_ops,
};
use portolan_core::config::Settings;
use portolan_core::device::{AtomicOp, AtomicWidth, Check};
use portolan_core::level::Single;
use portolan_core::transport::{Header, Payload, Pulled, Sent, Sink, Transport as _, WIRE_VERSION};
use portolan_core::{Device as _, Engine, ProcId, Request};

use super::*;
use crate::config::Config;
use crate::endpoint::link::Link;
use crate::memory::registrations::{Registrations, Whose, published};
use crate::ofi::{Nobody, Ofi};
use crate::one_sided::{self, Place};
use crate::progress;
use crate::start::open::{in_process_as, in_process_with};
use crate::start::provider::choose;
use crate::testing::{opened_or_skipped, skipped};

/// Providers that Debian's libfabric always has, and that read peers' memory.
const PROVIDERS: [&str; 3] = ["tcp", "shm", "sockets"];

/// How memory is registered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As the provider asks for it.
    Asked,
    /// By virtual addresses, under the provider's keys.
    Basic,
    /// As the provider asks for it, and this rank's own buffers as well.
    Local,
}

/// Ranks compare the descriptions of their providers before they connect, and `ofi_rxm` connects
/// only to ranks with the same setting.
#[test]
fn what_a_layer_was_told_is_said_to_peers() {
    let said = |provider: &str, told: Option<&str>| {
        let config = Config {
            provider: Some(provider.to_owned()),
            interface: (provider != "shm").then(|| "lo".to_owned()),
            at_once: told.map(str::to_owned),
            ..Config::default()
        };
        let ranks = opened_or_skipped(&format!("what {provider} was told"), 1, &config)?;
        Some(ranks[0].link.protocol())
    };
    if let Some(said) = said("shm", None) {
        let (major, minor) = Library::open(None).expect("it was opened").version();
        let version = format!(" of libfabric {major}.{minor},");
        assert!(said.contains(&version), "{said}");
        // Builds with different packet formats refuse each other.
        let packets = format!(", packets {WIRE_VERSION} of ");
        assert!(said.contains(&packets), "{said}");
    }
    let differ = |provider| Some(said(provider, None)? != said(provider, Some("8192"))?);
    assert_ne!(differ("tcp;ofi_rxm"), Some(false));
    assert_ne!(differ("shm"), Some(true), "it does not heed it");
}

#[test]
fn more_ranks_than_shared_memory_joins_are_named() {
    let config = Config {
        provider: Some("shm".to_owned()),
        ..Config::default()
    };
    if opened_or_skipped("257 ranks over shm", 1, &config).is_none() {
        return; // The skip has been printed.
    }
    let open = |ranks| {
        let (library, info) = choose(&config).expect("it opened a moment ago");
        Link::new(library, info, &config, ranks, true)
    };
    assert!(open(MOST_OVER_SHM).is_ok());
    let why = open(MOST_OVER_SHM + 1).expect_err("it refuses more");
    let wanted = "for 257 ranks; provider shm joins 256 at most";
    assert!(why.contains(wanted), "{why}");
}

/// If a provider cannot match, Portolan's matching remains available, and the error names it.
#[test]
fn who_cannot_match_is_used_by_other_means() {
    let software = Config {
        provider: Some("shm".to_owned()),
        ..Config::default()
    };
    if opened_or_skipped("what shm cannot match", 1, &software).is_none() {
        return;
    }
    let native = Config {
        matching: portolan_core::config::MatchMode::Native,
        ..software
    };
    let why = in_process_with(1, &native).err();
    let why = why.expect("it has no look that ends").to_string();
    assert!(why.contains("PORTOLAN_MATCH=software"), "{why}");
}

/// `sm2` of libfabric 2.x crashes if it is told too early how much room a buffer has to have left,
/// and its calls never return if it is tried whether it can match.
#[test]
fn sm2_opens_and_is_not_tried() {
    let software = Config {
        provider: Some("sm2".to_owned()),
        ..Config::default()
    };
    if opened_or_skipped("sm2", 1, &software).is_none() {
        return; // The skip has been printed.
    }
    let said = crate::native::matching(&software);
    assert!(said.contains("sm2 never returns from a call"), "{said}");
}

/// Over `sockets` the suite finds messages in the wrong order if it matches.
#[test]
fn sockets_does_not_match() {
    let software = Config {
        provider: Some("sockets".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    if opened_or_skipped("what sockets matches", 1, &software).is_none() {
        return; // The skip has been printed.
    }
    let said = crate::native::matching(&software);
    assert!(said.contains("sockets gives receives later"), "{said}");
}

/// Two ranks over a provider with memory registered in this way.
fn pair(provider: &str, way: Way) -> Option<[Ofi; 2]> {
    let what = format!("registering over {provider}");
    let config = Config {
        provider: Some(provider.to_owned()),
        interface: (provider != "shm").then(|| "lo".to_owned()),
        ..Config::default()
    };
    // As the provider asks for it, it opens; or there is no such provider.
    let mut ranks = opened_or_skipped(&what, 2, &config)?;
    if !ranks[0].link.domain.rma {
        skipped(&what, "the provider does not read peers' memory");
        return None;
    }
    if way != Way::Asked {
        let (library, info) = choose(&config).expect("chosen a moment ago");
        let info = described(library, info, way);
        ranks = in_process_as(2, &config, (library, info)).expect("every way is known");
    }
    if way == Way::Basic {
        // The old mode's name, which all providers know, stands for these modes.
        for ofi in &mut ranks {
            let info = &mut ofi.link.domain.info;
            info.set_mr_modes(FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
        }
    }
    Some(ranks.try_into().expect("two ranks"))
}

/// The same provider, asked for memory to be registered in another way.
fn described(library: Library, mut info: Info, way: Way) -> Info {
    let modes = info.domain_attr().mr_mode as u64;
    match way {
        Way::Asked => info,
        Way::Local => {
            // A provider that does not need it does not mind.
            info.set_mr_modes(modes | FI_MR_LOCAL);
            info
        }
        Way::Basic => {
            let delivers = info.delivers;
            info.set_mr_modes(FI_MR_BASIC.into());
            let list = Info::list(library, Some(&info)).expect("a list");
            let (provider, domain) = (info.provider(), info.domain());
            let mut list = list.into_iter();
            let found = list.find(|it| it.provider() == provider && it.domain() == domain);
            let mut found = found.expect("every provider knows it");
            assert_eq!(found.domain_attr().mr_mode, FI_MR_BASIC as i32);
            found.delivers = delivers;
            found
        }
    }
}

/// How memory is registered, as an endpoint describes it.
fn told(ofi: &Ofi) -> String {
    let facts = ofi.describe();
    let fact = facts.into_iter().find(|(name, _)| name == "registration");
    fact.expect("a fact").1
}

/// Reads all but the first bytes of a buffer that rank 0 exposes, by the provider. This tests how
/// the buffer is named to others.
fn read(ranks: &mut [Ofi; 2]) -> Place {
    const LEN: usize = 40_000;
    const SKIP: usize = 1000;
    let [owner, reader] = ranks;
    let source: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let mut target = vec![0_u8; LEN - SKIP];
    let exposure = one_sided::expose(owner, source.as_ptr(), LEN).expect("exposed");
    let at = target.as_mut_ptr();
    let mut polls = 0;
    loop {
        // SAFETY: as many bytes are there until the read is over.
        match unsafe { reader.pull(0, &exposure, SKIP as u64, at, LEN - SKIP) } {
            Pulled::Later => {}
            Pulled::Done => break,
            other => panic!("the provider does not read: {other:?}"),
        }
        progress::poll(owner, &mut Nobody);
        progress::poll(reader, &mut Nobody);
        polls += 1;
        assert!(polls < 50_000_000, "the read does not end");
    }
    assert!(target == source[SKIP..], "other bytes");
    let place = Place::of_token(&exposure.0);
    let virtually = owner.link.domain.info.mr_mode(FI_MR_VIRT_ADDR);
    let base = if virtually { source.as_ptr() as u64 } else { 0 };
    assert_eq!(place.base, base);
    one_sided::withdraw(owner, &exposure);
    place
}

/// Puts to, changes and gets from a region of rank 1, by the provider.
fn put_add_get(ranks: [Ofi; 2]) {
    assert!(remotely(ranks) >= 2, "not by the provider");
}

/// The same by any means. Returns how many of the operations were the provider's.
fn remotely(ranks: [Ofi; 2]) -> u64 {
    const LEN: usize = 100_000;
    let ranks: [Engine<Ofi, Single>; 2] =
        ranks.map(|rank| Engine::new(rank, &Settings::default()).expect("an engine"));
    let over = |request: Request| {
        for _ in 0..10_000_000 {
            let owner = ranks[1].device_check(Check::NonBlocking);
            owner.expect("progress");
            if ranks[0].test(request).expect("an operation").is_some() {
                return;
            }
        }
        panic!("it never ends");
    };
    let region = ranks[1].alloc_region(LEN).expect("a region");
    let (key, to) = (region.key, ProcId::new(1));
    let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let (mut back, mut former) = (vec![0; LEN], 0_u64);
    // SAFETY: the buffers live until the requests are over, and so does the region.
    unsafe {
        let put = ranks[0].put(to, &key, 0, bytes.as_ptr(), LEN);
        over(put.expect("put"));
        let add = AtomicOp::Add(1);
        let add = ranks[0].atomic(to, &key, 8, AtomicWidth::W64, add, &raw mut former);
        over(add.expect("add"));
        let get = ranks[0].get(to, &key, 0, back.as_mut_ptr(), LEN);
        over(get.expect("get"));
    }
    let mut expected = bytes;
    let word = u64::from_ne_bytes(expected[8..16].try_into().expect("eight bytes"));
    assert_eq!(former, word);
    expected[8..16].copy_from_slice(&(word + 1).to_ne_bytes());
    assert!(back == expected, "other bytes");
    let counters = ranks[0].counters();
    let done = counters
        .iter()
        .find(|(name, _)| *name == "remote_operations");
    let done = done.expect("a counter").1;
    // SAFETY: nothing uses it any more.
    unsafe { ranks[1].free_region(region) }.expect("freeing");
    done
}

#[test]
fn memory_is_named_as_the_provider_asks() {
    for provider in PROVIDERS {
        let Some(mut ranks) = pair(provider, Way::Asked) else {
            continue;
        };
        let place = read(&mut ranks);
        let expected = match provider {
            "shm" => "virtual addresses, own keys",
            _ => "offsets, own keys",
        };
        assert_eq!(told(&ranks[0]), expected, "{provider}");
        assert_eq!(place.key, place.number, "{provider}");
    }
}

#[test]
fn memory_is_named_by_virtual_addresses_under_the_providers_keys() {
    for provider in PROVIDERS {
        let Some(mut ranks) = pair(provider, Way::Basic) else {
            continue;
        };
        let expected = "virtual addresses, the provider's keys";
        assert_eq!(told(&ranks[0]), expected, "{provider}");
        read(&mut ranks);
        put_add_get(ranks);
    }
}

#[test]
fn the_provider_chooses_keys_where_it_is_to() {
    let Some(ranks) = pair("tcp", Way::Basic) else {
        return;
    };
    let (domain, mut memory) = (&ranks[0].link.domain, [0_u8; 64]);
    let asked = 77;
    let region = domain.register(memory.as_mut_ptr(), 64, FI_REMOTE_READ, asked);
    let region = region.expect("registered");
    let place = published(domain, &region, memory.as_ptr(), 64, asked);
    // SAFETY: an open region.
    let given = unsafe { fi_mr_key(region.get()) };
    assert_eq!(place.key, given);
    assert_ne!(given, asked, "it takes our keys: this shows nothing");
}

#[test]
fn local_buffers_are_registered_where_that_is_wanted() {
    for provider in PROVIDERS {
        for (way, wanted) in [(Way::Asked, false), (Way::Local, true)] {
            let Some(mut ranks) = pair(provider, way) else {
                continue;
            };
            read(&mut ranks);
            let said = told(&ranks[0]).ends_with(", local buffers, too");
            let link = &mut *ranks[0].link;
            let (short, bulk) = (&link.small.slab, &link.large.slab);
            let slabs = (short.is_registered(), bulk.is_registered());
            let mut target = [0_u8; 64];
            let registrations = &mut link.memory.registrations;
            let (at, whose) = (target.as_mut_ptr(), Whose::Remote(0));
            let region = registrations.local(&link.domain, at, 64, FI_READ, whose);
            let region = region.expect("registered, or not").is_some();
            let all = (said, slabs, region);
            assert_eq!(all, (wanted, (wanted, wanted), wanted), "{provider}");
            put_add_get(ranks);
        }
    }
}

/// Memory for an operation that the provider has no room for is registered once, however often the
/// operation is tried.
#[test]
fn what_waits_for_room_keeps_its_registration() {
    for provider in PROVIDERS {
        let Some([mut zero, _one]) = pair(provider, Way::Local) else {
            continue;
        };
        let mut bytes = [vec![0_u8; 40_000], vec![0_u8; 40_000]];
        let [first, second] = bytes.each_mut().map(|bytes| bytes.as_mut_ptr());
        let link = &mut *zero.link;
        let registrations = &mut link.memory.registrations;
        let local = |registrations: &mut Registrations, at, whose| {
            let region = registrations.local(&link.domain, at, 40_000, FI_READ, whose);
            region.expect("registered").expect("it is wanted")
        };
        let whose = Whose::Message(1, 5);
        let region = local(registrations, first, whose);
        let seen = Arc::downgrade(&region);
        registrations.keep(whose, (first, 40_000), Some(region));
        // Neither other memory nor another message gets it.
        drop(local(registrations, second, whose));
        drop(local(registrations, first, Whose::Message(1, 6)));
        assert!(registrations.has_kept());
        let again = local(registrations, first, whose);
        assert!(seen.upgrade().is_some(), "{provider}: another one");
        assert!(!registrations.has_kept());
        // The registration is ended when the operation is not tried any more.
        registrations.keep(whose, (first, 40_000), Some(again));
        let mut polls = 0;
        while seen.upgrade().is_some() {
            progress::poll(&mut zero, &mut Nobody);
            polls += 1;
            assert!(polls < 5_000_000, "{provider}: it is kept for ever");
        }
    }
}

/// The bytes that arrive.
struct Heard(usize);

impl Sink for Heard {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, _header: &Header, payload: Payload<'_>) {
        self.0 += payload.to_vec().len();
    }
}

/// The first message of a pair goes one way, and the next the other way, in every length that
/// providers treat differently: shm of libfabric 2.5 crashes there unless endpoints of a process
/// have been made to connect first.
#[test]
fn who_was_asked_may_answer() {
    for provider in PROVIDERS {
        let Some(mut ranks) = pair(provider, Way::Asked) else {
            continue;
        };
        let largest = ranks[0].limits().short;
        let mut heard = [Heard(0), Heard(0)];
        for (from, to, len) in [(1, 0, 8), (0, 1, 1000), (1, 0, largest), (0, 1, largest)] {
            let (bytes, mut sent) = (vec![1_u8; len], Sent::Full);
            let wanted = heard[to].0 + len;
            for _ in 0..10_000_000 {
                if sent == Sent::Full {
                    let (to, bytes) = (to as u32, bytes.as_ptr());
                    // SAFETY: the rank exists and is another; as many bytes are readable.
                    sent = unsafe { ranks[from].send_short(to, &Header::default(), bytes, len) };
                }
                for (rank, heard) in ranks.iter_mut().zip(&mut heard) {
                    progress::poll(rank, heard);
                }
                if heard[to].0 == wanted {
                    break;
                }
            }
            assert_eq!((sent, heard[to].0), (Sent::Done, wanted), "{provider}");
        }
    }
}

/// A stand-in for a region, which records the calls on it.
#[repr(C)]
struct Witness {
    object: fid_mr,
    result: c_int,
    bound: *mut fid,
    enabled: bool,
}

unsafe extern "C" fn bind(this: *mut fid, to: *mut fid, _flags: u64) -> c_int {
    // SAFETY: only the witness has this table.
    let this = unsafe { &mut *this.cast::<Witness>() };
    this.bound = to;
    this.result
}

unsafe extern "C" fn control(this: *mut fid, command: c_int, _arg: *mut c_void) -> c_int {
    // SAFETY: as above.
    let this = unsafe { &mut *this.cast::<Witness>() };
    this.enabled = command == FI_ENABLE as c_int && !this.bound.is_null();
    0
}

unsafe extern "C" fn close(_this: *mut fid) -> c_int {
    0
}

#[test]
fn regions_of_endpoints_are_bound_and_then_enabled() {
    let Some(mut ranks) = pair("tcp", Way::Asked) else {
        return;
    };
    let ep = ranks[0].link.ep.fid();
    let domain = &ranks[0].link.domain;
    // SAFETY: numbers and pointers, for which zero is a value.
    let (object, mut ops) = unsafe { std::mem::zeroed::<(fid_mr, fi_ops)>() };
    ops.size = size_of::<fi_ops>();
    ops.bind = Some(bind);
    ops.control = Some(control);
    ops.close = Some(close);
    for (result, enabled) in [(0, true), (-(FI_EINVAL as c_int), false)] {
        let mut witness = Box::new(Witness {
            object,
            result,
            bound: ptr::null_mut(),
            enabled: false,
        });
        witness.object.fid.ops = &raw mut ops;
        let this = &raw mut *witness;
        let region = Fid::<fid_mr>::open(&domain.library, |object| {
            // SAFETY: room for the address.
            unsafe { *object = this.cast() };
            0
        });
        let region = region.expect("a region");
        let joined = domain.join(&region).map_err(|(code, _)| code);
        assert_eq!(joined.err().unwrap_or(0), result);
        drop(region);
        // SAFETY: nothing else uses it any more.
        let (bound, is) = unsafe { ((*this).bound, (*this).enabled) };
        assert_eq!((bound, is), (ep, enabled));
    }
    // A provider without regions for endpoints refuses to bind one; this shows that the mode is
    // respected.
    let domain = &mut ranks[0].link.domain;
    let mut memory = [0_u8; 64];
    let taken = domain.register(memory.as_mut_ptr(), 64, FI_REMOTE_READ, 78);
    taken.expect("registered");
    domain.info.set_mr_modes(FI_MR_ENDPOINT);
    assert!(told(&ranks[0]).ends_with(", for an endpoint"));
    let domain = &ranks[0].link.domain;
    let refused = domain.register(memory.as_mut_ptr(), 64, FI_REMOTE_READ, 79);
    assert!(refused.is_err(), "it was not bound");
}
