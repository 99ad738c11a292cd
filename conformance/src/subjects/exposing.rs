//! Memory that ranks expose to each other by hand.

use std::sync::{Arc, Mutex};

use portolan_core::device::{ActiveMessage, Exposing, Exposure, HandlerId, Port, Turn};
use portolan_core::{Device, ProcId};

use crate::bytes::{check, content};
use crate::case::{Skip, Verdict};
use crate::rank::Rank;

/// What a device needs for these cases.
fn exposing<'a, D: Device>(rank: &Rank<'a, D>) -> Result<&'a dyn Exposing, Skip> {
    let none = || Skip("the device has no memory that is exposed by hand".to_owned());
    rank.device.exposing().ok_or_else(none)
}

/// Exposes a rank's data, and tells all others; returns what everybody has exposed.
fn exposed<D: Device>(rank: &Rank<'_, D>, device: &dyn Exposing, data: &[u8]) -> Vec<Exposure> {
    // SAFETY: the callers withdraw it after all ranks have copied, and leave it alone until then.
    let own = unsafe { device.expose(data.as_ptr(), data.len()) };
    let own = own.expect("the device exposes memory");
    let all = rank.all_gather(&own.0).into_iter();
    all.map(|bytes| Exposure(bytes.try_into().expect("an exposure")))
        .collect()
}

/// The bytes that a rank exposes.
fn of(rank: u32, len: usize) -> Vec<u8> {
    content(u64::from(rank), len)
}

/// Every rank copies from every other, in calls, whole and in part. A copy may be refused; one that
/// is not is right.
pub fn calls<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = exposing(rank)?;
    for len in [1, 8, 5000, 100_000, 3 << 20] {
        let data = of(rank.me(), len);
        let all = exposed(rank, device, &data);
        for peer in (0..rank.size()).filter(|&peer| peer != rank.me()) {
            let from = &all[peer as usize];
            for at in [0, len / 3] {
                let mut target = vec![0; len - at];
                // SAFETY: the target is as long.
                let done = unsafe {
                    let to = target.as_mut_ptr();
                    device.pull(ProcId::new(peer), from, at as u64, to, len - at)
                };
                if done {
                    assert_eq!(target, of(peer, len)[at..], "{len} bytes from {at} on");
                }
            }
        }
        rank.barrier();
        device.withdraw(&all[rank.me() as usize]);
    }
    Ok(())
}

/// A hook copies as a call does.
pub fn hooks<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    const LEN: usize = 70_000;
    let device = exposing(rank)?;
    let data = of(rank.me(), LEN);
    let all = exposed(rank, device, &data);
    let (own, from) = (all[rank.me() as usize], all[rank.next() as usize]);
    let (next, copied) = (ProcId::new(rank.next()), Arc::new(Mutex::new(None)));
    let place = Arc::clone(&copied);
    rank.device.register_hook(Box::new(move |port| {
        let mut target = vec![0; LEN];
        // SAFETY: the target is as long.
        let done = unsafe { port.pull(next, &from, 0, target.as_mut_ptr(), LEN) };
        *place.lock().expect("nobody panics") = Some((done, target));
        Turn::Sleep
    }));
    let taken = || copied.lock().expect("nobody panics").take();
    let mut found = None;
    rank.until(|| {
        found = taken();
        found.is_some()
    });
    let (done, target) = found.expect("it has run");
    if done {
        check(&target, u64::from(rank.next()), "what the hook has copied");
    }
    rank.barrier();
    device.withdraw(&own);
    Ok(())
}

/// A handler does not copy, but may end an exposure. Where the ranks are threads of one process,
/// nothing is copied from there any more.
pub fn handlers<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    const LEN: usize = 1000;
    let device = exposing(rank)?;
    let data = of(rank.me(), LEN);
    let all = exposed(rank, device, &data);
    let (own, from) = (all[rank.me() as usize], all[rank.next() as usize]);
    let (next, id) = (
        ProcId::new(rank.next()),
        HandlerId(HandlerId::OTHER + rank.unique(0)),
    );
    let copied = Arc::new(Mutex::new(None));
    let place = Arc::clone(&copied);
    let handler = move |port: &mut dyn Port, _: ActiveMessage<'_>| {
        let mut target = vec![0; LEN];
        // SAFETY: the target is as long.
        let done = unsafe { port.pull(next, &from, 0, target.as_mut_ptr(), LEN) };
        port.withdraw(&own);
        *place.lock().expect("nobody panics") = Some(done);
    };
    rank.device
        .register_handler(id, Box::new(handler))
        .expect("registering a handler");
    // Everybody has a handler, and nobody needs what is exposed.
    rank.barrier();
    rank.device
        .active_send(ProcId::new(rank.previous()), id, [0; 2], &[])
        .expect("a message");
    rank.until(|| copied.lock().expect("nobody panics").is_some());
    assert_eq!(*copied.lock().expect("nobody panics"), Some(false));
    rank.barrier();
    let processes = rank.all_gather(&std::process::id().to_le_bytes());
    if rank.size() > 1 && processes.iter().all(|process| *process == processes[0]) {
        let mut target = vec![0; LEN];
        // SAFETY: the target is as long.
        let done = unsafe { device.pull(next, &from, 0, target.as_mut_ptr(), LEN) };
        assert!(!done, "copied from what has been withdrawn");
    }
    rank.barrier();
    Ok(())
}
