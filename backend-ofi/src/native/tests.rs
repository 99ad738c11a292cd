//! Memory and requests when ranks die in the middle of a message.

mod farewells;
mod inquiries;
mod leavers;
mod lengths;
mod outcasts;
mod probes;
mod undelivered;

use std::sync::Arc;

use portolan_core::config::{MatchMode, Settings};
use portolan_core::device::Message as Handle;
use portolan_core::engine::Data;
use portolan_core::level::{Multiple, Single};
use portolan_core::matching::Pattern;
use portolan_core::transport::Transport;
use portolan_core::{Adi, ContigBuf, Device, ErrorKind, ProcId, Request, SendArgs};

use super::Native;
use super::bits::Bits;
use super::buffers::Buffer;
use super::looks::Seen;
use super::packets::Core;
use super::slots::{Look, Slot, What};
use super::tags::{End, Tags};
use crate::config::Config;
use crate::endpoint::bell::EventBell;
use crate::ofi::{Nobody, Ofi};
use crate::shared::Contacts;
use crate::testing::opened_or_skipped;

/// Longer than a connection on the loopback interface takes at once.
const LEN: usize = 48 << 20;
/// More steps than anything here takes.
const STEPS: u32 = 5_000_000;
const FROM: u32 = 1;
const TAG: u32 = 5;

/// Endpoints whose provider matches; `None` where there is none.
fn opened<const N: usize>() -> Option<[Ofi; N]> {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        matching: MatchMode::Native,
        at_once: std::env::var(Config::RXM_AT_ONCE).ok(),
        ..Config::default()
    };
    opened_or_skipped("matching by the provider", N as u32, &config)?
        .try_into()
        .ok()
}

/// The endpoint and the operations below a device, for each rank.
fn cores<const N: usize>() -> Option<[Core; N]> {
    let core = |ofi: Ofi| {
        let format = ofi.link.domain.info.ep_attr().mem_tag_format;
        let bits = Bits::new(format, ofi.size).expect("it was examined");
        let sink = vec![0; ofi.link.sink].into();
        let tags = Tags::new(bits, true, 64, sink);
        Core { ofi, tags }
    };
    Some(opened()?.map(core))
}

fn pair() -> Option<[Core; 2]> {
    cores()
}

fn request(number: u64) -> Request {
    // SAFETY: there is no device that could have given it out.
    unsafe { Request::from_bits(number << 32 | 1) }
}

fn args(to: u32, from: u32) -> SendArgs {
    SendArgs::new(ProcId::new(to), 0, from, TAG)
}

fn from(source: u32) -> Pattern {
    Pattern {
        context: 0,
        source: Some(source),
        tag: Some(TAG),
    }
}

impl Core {
    fn step(&mut self) {
        self.ofi.poll(&mut Nobody);
        self.collect();
        let Self { ofi, tags } = self;
        tags.advance(ofi);
    }

    /// Polls without noticing deaths.
    fn serve(&mut self) {
        self.ofi.poll(&mut Nobody);
        self.collect();
    }

    /// Starts request 1, a receive from rank [`FROM`].
    ///
    /// # Safety
    /// The buffer must outlive the rank.
    unsafe fn receive(&mut self, room: &mut [u8]) {
        let Self { ofi, tags } = self;
        let data = Data::Contig(ContigBuf::from_bytes_mut(room));
        // SAFETY: the caller's promise.
        let started = unsafe { tags.start_receive(ofi, request(1), &from(FROM), data) };
        started.unwrap();
    }

    fn end(&mut self) -> Option<End> {
        self.tags.next_end().map(|(_, end)| end)
    }

    /// Where the first byte of the message that is being received arrives.
    fn first(&mut self) -> *mut u8 {
        let slots = &mut self.tags.slots;
        let mut receives = slots
            .numbers()
            .filter_map(|number| match &slots.at(number).what {
                What::Receive(receive) => receive.bytes.as_ref().map(Buffer::start),
                _ => None,
            });
        receives.next().expect("a receive under way")
    }

    /// Marks that byte, to see when the message begins to arrive.
    fn mark(&mut self) {
        // SAFETY: the device's memory, which the provider writes only within polls.
        unsafe { self.first().write(0) };
    }

    fn has_begun(&mut self) -> bool {
        // SAFETY: as above; `mark` has written it.
        unsafe { self.first().read() != 0 }
    }
}

/// Rank 1 has begun to send to rank 0, which has begun to receive.
fn in_the_middle(source: Option<u32>, message: &[u8], room: &mut [u8]) -> Option<[Core; 2]> {
    let [mut zero, mut one] = pair()?;
    let data = Data::Contig(ContigBuf::from_bytes_mut(room));
    // SAFETY: the buffers outlive the ranks.
    unsafe {
        let Core { ofi, tags } = &mut zero;
        let pattern = Pattern {
            source,
            ..from(FROM)
        };
        tags.start_receive(ofi, request(1), &pattern, data).unwrap();
        zero.mark();
        let Core { ofi, tags } = &mut one;
        let data = Data::Contig(ContigBuf::from_bytes(message));
        tags.start_send(ofi, request(2), &args(0, FROM), data)
            .unwrap();
    }
    until("nothing arrives", || {
        one.step();
        zero.step();
        zero.has_begun()
    });
    assert!(zero.end().is_none(), "all of it has arrived at once");
    Some([zero, one])
}

/// Calls `step` until it returns that there is nothing more to do; `why` is the failure if it never
/// does.
fn until(why: &str, mut step: impl FnMut() -> bool) {
    let mut steps = 0;
    while !step() {
        steps += 1;
        assert!(steps < STEPS, "{why}");
    }
}

fn failed(end: Option<End>) -> bool {
    match end {
        None => false,
        Some(End::Failed(1)) => true,
        Some(end) => panic!("{end:?}"),
    }
}

fn a_receive_is_given_up(source: Option<u32>) {
    let message = vec![7; LEN];
    let mut room = vec![0; LEN];
    let Some([mut zero, mut one]) = in_the_middle(source, &message, &mut room) else {
        return; // The skip has been printed.
    };
    zero.ofi.shared.deaths.declare(1, "its node is gone");
    until("the receive never ends", || {
        zero.step();
        failed(zero.end())
    });
    // The program has its memory back; the rest of the message arrives.
    room.fill(3);
    until("the provider never ends it", || {
        one.serve();
        zero.step();
        !zero.tags.is_under_way()
    });
    assert!(room.iter().all(|&byte| byte == 3), "written after the end");
}

#[test]
fn a_receive_that_is_given_up_writes_nowhere() {
    a_receive_is_given_up(Some(FROM));
}

/// No other rank could have sent the message that has begun to arrive.
#[test]
fn nor_does_one_from_any_source() {
    a_receive_is_given_up(None);
}

/// A message of the rank to itself that the receive does not match tells nothing about the one that
/// has begun to arrive.
#[test]
fn nor_does_it_while_one_sends_something_else_to_oneself() {
    let message = vec![7; LEN];
    let mut room = vec![0; LEN];
    let Some([mut zero, _one]) = in_the_middle(None, &message, &mut room) else {
        return; // The skip has been printed.
    };
    let data = Data::Contig(ContigBuf::from_bytes(&message));
    let other = SendArgs::new(ProcId::new(0), 0, 0, TAG + 1);
    // SAFETY: the buffer outlives the ranks.
    unsafe {
        let Core { ofi, tags } = &mut zero;
        tags.start_send(ofi, request(3), &other, data).unwrap();
    }
    zero.ofi.shared.deaths.declare(1, "its node is gone");
    until("the receive never ends", || {
        zero.step();
        failed(zero.end())
    });
}

#[test]
fn a_send_that_is_given_up_reads_nowhere() {
    let mut message = vec![7; LEN];
    let Some([mut zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    // Rank 1 opens the connection: one that the dead rank had accepted would be shut down.
    let mut heard = [0];
    // SAFETY: the buffers outlive the ranks.
    unsafe {
        let Core { ofi, tags } = &mut zero;
        let data = Data::Contig(ContigBuf::from_bytes_mut(&mut heard));
        tags.start_receive(ofi, request(3), &from(FROM), data)
            .unwrap();
        let Core { ofi, tags } = &mut one;
        let data = Data::Contig(ContigBuf::from_bytes(&[1]));
        tags.start_send(ofi, request(4), &args(0, FROM), data)
            .unwrap();
    }
    let mut ends = 0;
    until("rank 1 is not heard", || {
        one.step();
        zero.step();
        ends += [&mut one, &mut zero]
            .into_iter()
            .filter_map(Core::end)
            .count();
        ends == 2
    });
    let data = Data::Contig(ContigBuf::from_bytes(&message));
    // SAFETY: the buffer outlives the ranks.
    unsafe {
        let Core { ofi, tags } = &mut zero;
        tags.start_send(ofi, request(1), &args(1, 0), data).unwrap();
    }
    // The provider has the send, and the other rank only the announcement.
    let mut steps = 0;
    while !zero.tags.is_under_way() || steps < 1000 {
        zero.step();
        one.serve();
        steps += 1;
        assert!(steps < STEPS, "the provider does not take it");
    }
    zero.ofi.shared.deaths.declare(1, "its node is gone");
    until("the send never ends", || {
        zero.step();
        failed(zero.end())
    });
    message.fill(3);
    // The other rank receives it nevertheless.
    let mut room = vec![0; LEN];
    let data = Data::Contig(ContigBuf::from_bytes_mut(&mut room));
    // SAFETY: the buffer outlives the ranks.
    unsafe {
        let Core { ofi, tags } = &mut one;
        tags.start_receive(ofi, request(2), &from(0), data).unwrap();
    }
    let mut steps = 0;
    let end = loop {
        zero.step();
        one.serve();
        if let Some(end) = one.end() {
            break end;
        }
        steps += 1;
        assert!(steps < STEPS, "it never arrives");
    };
    assert!(matches!(end, End::Over(status) if status.error.is_none()));
    assert!(room.iter().all(|&byte| byte == 7), "read after the end");
    drop((zero, one));
}

/// Makes rank 0 take a message of rank 1 out of matching.
///
/// # Safety
/// The message must outlive the ranks.
unsafe fn taken(zero: &mut Core, one: &mut Core, message: &[u8]) -> Handle {
    // SAFETY: the caller's promise.
    unsafe {
        let Core { ofi, tags } = &mut *one;
        let data = Data::Contig(ContigBuf::from_bytes(message));
        tags.start_send(ofi, request(2), &args(0, FROM), data)
            .unwrap();
    }
    let mut steps = 0;
    loop {
        one.step();
        let Core { ofi, tags } = &mut *zero;
        let Some(look) = tags.look(ofi, &from(FROM), true) else {
            continue;
        };
        let seen = loop {
            zero.step();
            match zero.tags.seen(look) {
                Seen::Later => {}
                seen => break seen,
            }
        };
        if matches!(seen, Seen::Message(_)) {
            return zero.tags.keep(look);
        }
        steps += 1;
        assert!(steps < STEPS, "nothing arrives");
    }
}

#[test]
fn a_message_that_was_taken_before_its_sender_died_ends() {
    let message = vec![7; LEN];
    let mut room = vec![0; LEN];
    let Some([mut zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    // SAFETY: the buffer outlives the ranks.
    let handle = unsafe { taken(&mut zero, &mut one, &message) };
    zero.ofi.shared.deaths.declare(1, "its node is gone");
    until("the death is never noticed", || {
        zero.step();
        zero.tags.contexts().is_dead(1)
    });
    let data = Data::Contig(ContigBuf::from_bytes_mut(&mut room));
    // SAFETY: the buffer outlives the ranks.
    let known = unsafe {
        let Core { ofi, tags } = &mut zero;
        tags.receive_taken(ofi, handle, request(1), data).unwrap()
    };
    assert!(known);
    until("the receive never ends", || {
        zero.step();
        failed(zero.end())
    });
}

#[test]
fn a_taken_message_that_breaks_off_ends() {
    let message = vec![7; LEN];
    let mut room = vec![0; LEN];
    let Some([mut zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    // SAFETY: the buffer outlives the ranks.
    let handle = unsafe { taken(&mut zero, &mut one, &message) };
    let data = Data::Contig(ContigBuf::from_bytes_mut(&mut room));
    // SAFETY: the buffer outlives the ranks.
    let known = unsafe {
        let Core { ofi, tags } = &mut zero;
        tags.receive_taken(ofi, handle, request(1), data).unwrap()
    };
    assert!(known);
    zero.mark();
    until("nothing arrives", || {
        zero.step();
        one.step();
        zero.has_begun()
    });
    let end = std::thread::spawn(move || {
        let _ends = one;
        std::panic::resume_unwind(Box::new("the rank panics"));
    });
    assert!(end.join().is_err());
    until("the receive never ends", || {
        zero.step();
        failed(zero.end())
    });
}

#[test]
fn a_synchronous_send_whose_number_cannot_be_told_is_refused() {
    let Some([mut zero, _one]) = pair() else {
        return; // The skip has been printed.
    };
    zero.tags.most_awaited = 0;
    let synchronous = SendArgs {
        mode: portolan_core::SendMode::Synchronous,
        ..args(1, 0)
    };
    let data = Data::Contig(ContigBuf::from_bytes(b"x"));
    let Core { ofi, tags } = &mut zero;
    // SAFETY: the bytes live as long as the program.
    unsafe {
        tags.start_send(ofi, request(1), &synchronous, data)
            .unwrap();
    };
    match zero.end() {
        Some(End::Over(status)) => assert_eq!(status.error, Some(ErrorKind::Exhausted)),
        end => panic!("{end:?}"),
    }
    assert!(!zero.tags.is_under_way() && !zero.tags.knows(request(1)));
}

#[test]
fn so_is_a_blocking_one_to_oneself() {
    let Some([zero]) = opened() else {
        return; // The skip has been printed.
    };
    let zero = Native::<Single>::new(zero, &Settings::default()).unwrap();
    let synchronous = SendArgs {
        mode: portolan_core::SendMode::Synchronous,
        ..args(0, 0)
    };
    let mut room = [0];
    // SAFETY: the buffer outlives the rank's operations: the message arrives below.
    let receive = unsafe { zero.irecv_contig(&from(0), room.as_mut_ptr(), 1) }.unwrap();
    let most = std::mem::take(&mut zero.shared.lock().tags.most_awaited);
    let error = zero.send_contig(&synchronous, b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(error.to_string().contains("complete some"), "{error}");
    zero.shared.lock().tags.most_awaited = most;
    zero.send_contig(&synchronous, b"y").unwrap();
    zero.wait(receive).unwrap();
    assert_eq!(room, *b"y");
}

#[test]
fn what_comes_later_in_a_slot_is_not_given_up() {
    let mut room = [0; 8];
    let Some([mut zero, _one]) = pair() else {
        return; // The skip has been printed.
    };
    // SAFETY: the buffer outlives the ranks.
    unsafe { zero.receive(&mut room) };
    let number = zero.tags.numbers[&request(1).to_bits()];
    let serial = zero.tags.slots.at(number).serial;
    zero.tags.contexts().died(1);
    zero.tags.doom(number, serial - 1);
    for _ in 0..10_000 {
        zero.step();
    }
    assert!(zero.end().is_none(), "another operation was given up");
    zero.tags.doom(number, serial);
    until("the receive is not given up", || {
        zero.step();
        failed(zero.end())
    });
}

/// A receive waits in the device for room. While a message is being taken for it, its sender dies,
/// or the program cancels it, or both. The message turns out to be taken.
#[test]
fn a_receive_without_a_message_ends_as_what_took_it_back_says() {
    let mut room = [0; 8];
    for (dies, cancels) in [(true, false), (false, true), (true, true)] {
        let Some([mut zero, mut one]) = pair() else {
            return; // The skip has been printed.
        };
        zero.tags.most_posted = 0;
        // SAFETY: buffer and bytes outlive the ranks.
        unsafe {
            zero.receive(&mut room);
            let Core { ofi, tags } = &mut one;
            let data = Data::Contig(ContigBuf::from_bytes(b"x"));
            tags.start_send(ofi, request(2), &args(0, FROM), data)
                .unwrap();
        }
        let taking = |zero: &mut Core| {
            let slots = &mut zero.tags.slots;
            let takes = |slot: &Slot| matches!(&slot.what, What::Look(look) if look.claim);
            slots.numbers().find(|&number| takes(slots.at(number)))
        };
        let mut look = None;
        until("the message is never taken", || {
            one.step();
            zero.step();
            look = taking(&mut zero);
            look.is_some()
        });
        let look = look.expect("found a moment ago");
        until("the look is never answered", || {
            zero.serve();
            !zero.tags.slots.at(look).under_way
        });
        let number = zero.tags.numbers[&request(1).to_bits()];
        let Core { ofi, tags } = &mut zero;
        if dies {
            tags.doom_receive(ofi, number, 1);
        }
        if cancels {
            tags.cancel(ofi, request(1));
        }
        assert!(zero.end().is_none(), "it may still get the message");
        // Pretend that another receive has got it.
        if let What::Look(look) = &mut zero.tags.slots.at(look).what {
            look.answer = Some(None);
        }
        zero.step();
        match zero.end() {
            Some(End::Failed(1)) => assert!(dies, "cancelled only"),
            Some(End::Over(status)) => assert!(!dies && status.cancelled, "{status:?}"),
            end => panic!("{end:?}"),
        }
        assert!(!zero.tags.overflows(), "it is over");
    }
}

/// A receive waits in the device for room, and a message is being taken for it when the endpoint
/// breaks, which no longer answers.
#[test]
fn a_receive_does_not_wait_for_a_broken_endpoint_to_take_its_message() {
    let mut room = [0; 8];
    let Some([mut zero, _one]) = pair() else {
        return; // The skip has been printed.
    };
    zero.tags.most_posted = 0;
    // SAFETY: the buffer outlives the ranks.
    unsafe { zero.receive(&mut room) };
    let number = zero.tags.numbers[&request(1).to_bits()];
    let look = zero.tags.slots.add(
        What::Look(Look {
            claim: true,
            answer: None,
        }),
        Request::NULL,
    );
    zero.tags.slots.at(look).under_way = true;
    zero.tags.scan.take_with(look, number);
    for _ in 0..10_000 {
        zero.step();
    }
    assert!(zero.end().is_none(), "the provider may take its time");
    zero.ofi.shared.deaths.declare(0, "its endpoint is broken");
    until("the receive waits for ever", || {
        zero.step();
        failed(zero.end())
    });
    assert!(!zero.tags.overflows(), "it is over");
}

#[test]
fn a_message_shows_both_ranks_that_the_other_is_there() {
    let Some([mut zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    let alarm = Arc::new(EventBell::new(None).unwrap());
    let shared = Arc::clone(&zero.ofi.shared);
    shared.contacts.tell(&alarm);
    let mut room = [0];
    // SAFETY: the buffers outlive the ranks.
    unsafe {
        let Core { ofi, tags } = &mut one;
        let data = Data::Contig(ContigBuf::from_bytes_mut(&mut room));
        tags.start_receive(ofi, request(1), &from(0), data).unwrap();
    }
    let mut sent = false;
    // Each rank notices the other's death.
    until("one of them does not hear the other", || {
        if !sent {
            let Core { ofi, tags } = &mut zero;
            let data = Data::Contig(ContigBuf::from_bytes(&[1]));
            // SAFETY: the byte lives as long as the program.
            sent = unsafe { tags.launch(ofi, &args(1, 0), &data) };
        }
        zero.step();
        one.step();
        (0..2).all(|rank| shared.contacts.with(rank) & Contacts::ARRIVED != 0)
    });
}

#[test]
fn a_probe_leaves_other_threads_asleep() {
    let Some([zero, one]) = opened() else {
        return; // The skip has been printed.
    };
    let settings = Settings::default();
    let zero = Native::<Multiple>::new(zero, &settings).unwrap();
    let one = Native::<Multiple>::new(one, &settings).unwrap();
    // Pretend that another thread sleeps.
    zero.shared.lock().ofi.armed = true;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while zero.shared.lock().ofi.lookers == 0 {
                std::thread::yield_now();
            }
            one.send_contig(&args(0, FROM), b"x").unwrap();
        });
        zero.probe(&from(FROM)).unwrap();
    });
    let core = zero.shared.lock();
    assert!(core.ofi.armed, "the other thread's sleep is over");
    assert_eq!(core.ofi.lookers, 0);
}
