//! Messages from memory that peers load themselves, over the reference transport.

use super::*;
use crate::buffer::ContigBuf;
use crate::engine::long::unasked::{CLASSES, STREAMED};
use crate::transport::memory::{self, InMemory};

type Rank = Engine<InMemory, Single>;

fn two_ranks() -> [Rank; 2] {
    let ranks = memory::network(2).into_iter();
    let ranks: Vec<_> = ranks
        .map(|transport| Engine::new(transport, &Settings::default()).expect("an engine"))
        .collect();
    ranks.try_into().expect("two ranks")
}

fn counter(rank: &Rank, name: &str) -> u64 {
    let counters = rank.counters();
    let found = counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

fn to(rank: u32) -> SendArgs {
    SendArgs::new(ProcId::new(rank), 3, 1 - rank, 5)
}

fn from(rank: u32) -> Pattern {
    Pattern {
        context: 3,
        source: Some(rank),
        tag: Some(5),
    }
}

/// A region of `len` bytes, each of them `fill`.
fn region(rank: &Rank, len: usize, fill: u8) -> crate::device::Region {
    let region = rank.alloc_region(len).expect("a region");
    // SAFETY: the region has so many bytes, and nobody else knows of it.
    unsafe { region.ptr.write_bytes(fill, len) };
    region
}

/// Makes progress on all ranks until each request is complete.
fn step_until(requests: [(&Rank, Request); 2]) {
    while !requests
        .iter()
        .all(|(rank, request)| rank.is_complete(*request))
    {
        for (rank, _) in requests {
            rank.device_check(Check::NonBlocking).unwrap();
            // The reference transport streams what it may read while its owner is in a call.
            rank.state.lock().transport.set_present(true);
        }
    }
}

#[test]
fn one_copy_from_memory_that_is_shared_and_two_from_other() {
    const LEN: usize = 20_000;
    for shared in [true, false] {
        let [sender, receiver] = two_ranks();
        let mut heap = vec![7_u8; LEN];
        let source = match shared {
            true => region(&sender, LEN, 7).ptr,
            false => heap.as_mut_ptr(),
        };
        let mut target = vec![0_u8; LEN];
        sender.state.lock().transport.set_present(true);
        // SAFETY: both buffers outlive the requests, which are complete before this ends.
        let [send, receive] = unsafe {
            let send = sender.isend_contig(&to(1), source, LEN).unwrap();
            let receive = receiver.irecv_contig(&from(0), target.as_mut_ptr(), LEN);
            [send, receive.unwrap()]
        };
        step_until([(&receiver, receive), (&sender, send)]);
        assert_eq!(target, [7; LEN]);
        let pulled = if shared { LEN as u64 } else { 0 };
        assert_eq!(counter(&receiver, "bytes_pulled"), pulled);
        assert_eq!(counter(&sender, "offers_sent"), 1);
    }
}

/// A blocking send of a length that is eager otherwise, to a receive that a thread has in hand.
#[test]
fn a_waiting_receive_copies_what_would_be_eager() {
    const LEN: usize = 4097;
    let [sender, receiver] = two_ranks();
    const { assert!(LEN > crate::engine::long::shared::AT_ONCE) };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let memory = region(&sender, LEN, 9);
            // SAFETY: the region has that length, and outlives the call.
            unsafe {
                let bytes = std::slice::from_raw_parts(memory.ptr, LEN);
                let buf = ContigBuf::from_bytes(bytes);
                sender.send_contig_unchecked(&to(1), buf).unwrap();
            }
            assert_eq!(counter(&sender, "eager_sent"), 0);
        });
        let mut target = vec![0_u8; LEN];
        let buf = ContigBuf::from_bytes_mut(&mut target);
        // SAFETY: the vector outlives the call.
        let status = unsafe { receiver.recv_contig_unchecked(&from(0), buf) }.unwrap();
        assert_eq!((status.bytes, status.sent), (LEN as u64, LEN as u64));
        assert_eq!(counter(&receiver, "bytes_pulled"), LEN as u64);
        assert_eq!(target, [9; LEN]);
    });
}

/// Memory that is shared says nothing about whether other messages are read in place.
#[test]
fn it_teaches_nothing_about_other_memory() {
    const LEN: usize = 20_000;
    let [sender, receiver] = two_ranks();
    let source = region(&sender, LEN, 1).ptr;
    let mut target = vec![0_u8; LEN];
    let goes_unasked = || {
        let state = sender.state.lock();
        (0..CLASSES).any(|class| state.proto.unasked.next(1, class, false))
    };
    let streams = |messages| {
        for _ in 0..messages {
            let mut state = sender.state.lock();
            state.proto.offer_was_taken(1, LEN, false, true);
        }
    };
    streams(STREAMED - 1);
    for _ in 0..100 {
        // SAFETY: as above.
        let [send, receive] = unsafe {
            let send = sender.isend_contig(&to(1), source, LEN).unwrap();
            let receive = receiver.irecv_contig(&from(0), target.as_mut_ptr(), LEN);
            [send, receive.unwrap()]
        };
        step_until([(&receiver, receive), (&sender, send)]);
        receiver.wait(receive).unwrap();
        sender.wait(send).unwrap();
    }
    assert!(!goes_unasked());
    streams(1);
    assert!(goes_unasked(), "the messages between do not count");
    assert!(!receiver.state.lock().proto.ways.streams(0, LEN, false));
}
