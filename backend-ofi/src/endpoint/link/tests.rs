//! An endpoint that does not close while something is registered for it, or does not close at all.

use std::ffi::c_int;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use libfabric_sys::{FI_EBUSY, fi_close, fi_ops, fid, fid_mr};

use portolan_core::transport::{Exposure, Transport};

use super::*;
use crate::ofi::Nobody;
use crate::start::provider;
use crate::testing::{opened_or_skipped, skipped};

/// A stand-in for a libfabric object, which may refuse to be closed.
#[repr(C)]
struct Stubborn<C> {
    object: C,
    /// How many calls of `close` are refused.
    refusals: usize,
    /// The object that it replaces.
    real: *mut fid,
    closed: usize,
}

unsafe extern "C" fn close<C>(this: *mut fid) -> c_int {
    // SAFETY: only objects made by `stubborn` have this table.
    let this = unsafe { &mut *this.cast::<Stubborn<C>>() };
    if this.refusals > 0 {
        this.refusals -= 1;
        return -(FI_EBUSY as c_int);
    }
    this.closed += 1;
    if this.real.is_null() {
        return 0;
    }
    // SAFETY: open until now.
    unsafe { fi_close(this.real) }
}

fn stubborn<C>(refusals: usize, real: *mut fid) -> Box<Stubborn<C>> {
    // SAFETY: numbers and pointers, for which zero is a value; nothing but `close` is called.
    let (object, mut ops) = unsafe { std::mem::zeroed::<(C, fi_ops)>() };
    ops.size = size_of::<fi_ops>();
    ops.close = Some(close::<C>);
    let mut this = Box::new(Stubborn {
        object,
        refusals,
        real,
        closed: 0,
    });
    // SAFETY: every object begins with its `fid`.
    unsafe { (*(&raw mut this.object).cast::<fid>()).ops = Box::leak(Box::new(ops)) };
    this
}

/// An object that closes as `stubborn` says, which outlives it.
fn object<C: crate::endpoint::objects::Class>(link: &Link, stubborn: &mut Stubborn<C>) -> Fid<C> {
    let this = (&raw mut *stubborn).cast();
    let opened = Fid::open(&link.domain.library, |object| {
        // SAFETY: room for the address.
        unsafe { *object = this };
        0
    });
    opened.expect("an object")
}

/// Closes a link whose endpoint refuses this many times. Returns how often it was closed in the
/// end, whether the registrations have been closed, and whether the memory that the provider had
/// still exists.
fn close_with(refusals: usize, reading: bool) -> Option<(usize, usize, bool)> {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let (library, info) = match provider::choose(&config) {
        Ok(chosen) => chosen,
        Err(why) => {
            skipped("an endpoint that does not close", &why.to_string());
            return None;
        }
    };
    let mut link = Link::new(library, info, &config, 2, false).expect("an endpoint");
    let mut ep = stubborn(refusals, link.ep.fid());
    let mut region = stubborn::<fid_mr>(0, std::ptr::null_mut());
    let replaced = object(&link, &mut ep);
    std::mem::forget(std::mem::replace(&mut *link.ep, replaced));
    let exposed = Arc::new(object(&link, &mut region));
    link.memory.exposed.insert(1, exposed);
    let lent = Arc::new(());
    *link.lent = Some(Box::new(Arc::clone(&lent)));
    if reading {
        link.memory.pretend_to_read();
    }
    drop(link);
    let there = Arc::strong_count(&lent) > 1;
    if refusals > 1 {
        // SAFETY: still open, and nothing uses it any more.
        unsafe { fi_close(ep.real) };
    }
    Some((ep.closed, region.closed, there))
}

#[test]
fn what_is_registered_goes_when_the_endpoint_refuses() {
    for refusals in [0, 1] {
        let Some(outcome) = close_with(refusals, true) else {
            return;
        };
        assert_eq!(outcome, (1, 1, false), "{refusals} refusals");
    }
}

#[test]
fn memory_of_an_endpoint_that_stays_open_stays() {
    if let Some(outcome) = close_with(usize::MAX, false) {
        assert_eq!(outcome, (0, 1, true));
    }
}

/// A registration that refuses to end for a while is not forgotten.
#[test]
fn what_does_not_end_at_once_is_tried_again() {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let Some(mut ranks) = opened_or_skipped("registrations that do not end", 1, &config) else {
        return; // The skip has been printed.
    };
    let rank = &mut ranks[0];
    let mut region = stubborn::<fid_mr>(2, std::ptr::null_mut());
    let exposed = Arc::new(object(&rank.link, &mut region));
    rank.link.memory.exposed.insert(77, exposed);
    let mut token = [0; 32];
    token[24..].copy_from_slice(&77_u64.to_le_bytes());
    rank.withdraw(&Exposure(token));
    let left = |region: &Stubborn<fid_mr>| (region.refusals, region.closed);
    assert_eq!(left(&region), (1, 0), "it has refused once");
    for expected in [(0, 0), (0, 1), (0, 1)] {
        rank.poll(&mut Nobody);
        assert_eq!(left(&region), expected);
    }
}

/// Set in the process that a test starts, which is to end.
const DOOMED: &str = "PORTOLAN_TEST_DOOMED";

#[test]
fn no_program_goes_on_with_memory_that_may_be_written() {
    if std::env::var_os(DOOMED).is_some() {
        let _ = close_with(usize::MAX, true);
        return;
    }
    if close_with(0, false).is_none() {
        return; // The skip has been printed.
    }
    let name = "endpoint::link::tests::no_program_goes_on_with_memory_that_may_be_written";
    let child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name])
        .env(DOOMED, "1")
        .output()
        .expect("it starts");
    assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{child:?}");
}
