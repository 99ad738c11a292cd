//! Tests of the reference transport: one thread steps every rank.

use super::block::PAGE;
use super::*;

#[derive(Default)]
struct Inbox {
    packets: Vec<(u32, Header, Vec<u8>)>,
    deaf_to: Option<u32>,
}

impl Sink for Inbox {
    fn accepts(&mut self, peer: u32) -> bool {
        self.deaf_to != Some(peer)
    }

    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        self.packets.push((peer, *header, payload.to_vec()));
    }
}

fn send(rank: &mut InMemory, to: u32, bytes: &[u8]) -> Sent {
    let header = Header {
        cookie: bytes.len() as u32,
        ..Header::default()
    };
    // SAFETY: the tests name ranks that exist and are not the sender; a slice is readable.
    unsafe { rank.send_short(to, &header, bytes.as_ptr(), bytes.len()) }
}

fn small() -> Options {
    Options {
        packets: 2,
        offers: 1,
        ..Options::default()
    }
}

#[test]
fn packets_keep_their_order_and_a_full_queue_says_so() {
    let mut ranks = network_with(2, small());
    assert_eq!(send(&mut ranks[0], 1, b"a"), Sent::Done);
    assert_eq!(send(&mut ranks[0], 1, b"bc"), Sent::Done);
    assert_eq!(send(&mut ranks[0], 1, b"def"), Sent::Full);
    let mut inbox = Inbox::default();
    assert_eq!(ranks[1].poll(&mut inbox), 2);
    assert_eq!(send(&mut ranks[0], 1, b"def"), Sent::Done);
    assert_eq!(ranks[1].poll(&mut inbox), 1);
    let seen: Vec<_> = inbox
        .packets
        .iter()
        .map(|(_, _, bytes)| bytes.as_slice())
        .collect();
    assert_eq!(seen, [b"a".as_slice(), b"bc", b"def"]);
    assert!(
        inbox
            .packets
            .iter()
            .all(|(from, h, b)| *from == 0 && h.cookie == b.len() as u32)
    );
}

#[test]
fn bulk_packets_are_filled_in_place_and_only_when_there_is_room() {
    let mut ranks = network_with(2, small());
    for expected in [Sent::Done, Sent::Done, Sent::Full] {
        let mut filled = false;
        // SAFETY: rank 1 exists; the closure writes all 1000 bytes.
        let sent = unsafe {
            ranks[0].send_bulk(1, &Header::default(), 1000, |place| {
                place.write_bytes(7, 1000);
                filled = true;
            })
        };
        assert_eq!((sent, filled), (expected, expected == Sent::Done));
    }
    let mut inbox = Inbox::default();
    ranks[1].poll(&mut inbox);
    assert!(
        inbox
            .packets
            .iter()
            .all(|(_, _, bytes)| bytes == &[7; 1000])
    );
}

#[test]
fn packets_that_are_not_accepted_stay() {
    let mut ranks = network(3);
    let _ = send(&mut ranks[0], 2, b"zero");
    let _ = send(&mut ranks[1], 2, b"one");
    let mut inbox = Inbox {
        deaf_to: Some(0),
        ..Inbox::default()
    };
    assert_eq!(ranks[2].poll(&mut inbox), 1);
    inbox.deaf_to = None;
    assert_eq!(ranks[2].poll(&mut inbox), 1);
    assert_eq!(inbox.packets[1].2, b"zero");
}

#[test]
fn a_sleeper_is_woken_by_a_packet_and_by_room() {
    let mut ranks = network_with(2, small());
    let bell = ranks[1].bell();
    let seen = bell.seen();
    let _ = send(&mut ranks[0], 1, b"x");
    assert_eq!(bell.seen(), seen, "nobody asked to be woken");
    ranks[1].arm();
    let _ = send(&mut ranks[0], 1, b"y");
    assert_ne!(bell.seen(), seen);
    bell.sleep(seen, None);

    let (bell, seen) = (ranks[0].bell(), ranks[0].bell().seen());
    assert_eq!(send(&mut ranks[0], 1, b"z"), Sent::Full);
    ranks[0].arm();
    ranks[1].poll(&mut Inbox::default());
    bell.sleep(seen, None);
    ranks[0].disarm();
}

#[test]
fn an_offer_is_taken_or_cancelled_never_both() {
    let mut ranks = network_with(2, small());
    let word = ranks[0].offer_open().unwrap();
    assert_eq!(ranks[0].offer_open(), None, "there is one word");
    assert!(ranks[1].offer_take(0, word));
    assert!(!ranks[0].offer_cancel(word));
    ranks[0].offer_close(word);

    let word = ranks[0].offer_open().unwrap();
    assert!(ranks[0].offer_cancel(word));
    assert_eq!(
        ranks[0].offer_open(),
        None,
        "the receiver has not met the offer yet"
    );
    assert!(!ranks[1].offer_take(0, word));
    assert_eq!(ranks[0].offer_open(), Some(word));
    assert!(!ranks[1].offer_take(0, 99) && !ranks[1].offer_take(9, 0));
}

#[test]
fn a_pull_checks_everything_that_the_peer_said() {
    let mut ranks = network(2);
    let (bytes, mut target) = ([1_u8, 2, 3, 4], [0_u8; 4]);
    // SAFETY: `bytes` outlives the exposure.
    let exposure = unsafe { ranks[0].expose(bytes.as_ptr(), 4) }.unwrap();
    let mut pull = |rank: &mut InMemory, peer, exposure: &Exposure, offset, len: usize| {
        // SAFETY: every length below is at most 4.
        unsafe { rank.pull(peer, exposure, offset, target.as_mut_ptr(), len) }
    };
    assert_eq!(pull(&mut ranks[1], 0, &exposure, 1, 3), Pulled::Done);
    assert_eq!(pull(&mut ranks[1], 0, &exposure, 2, 3), Pulled::Stream);
    assert_eq!(
        pull(&mut ranks[1], 0, &exposure, u64::MAX, 1),
        Pulled::Stream
    );
    assert_eq!(pull(&mut ranks[1], 9, &exposure, 0, 1), Pulled::Stream);
    assert_eq!(
        pull(&mut ranks[1], 0, &Exposure([9; 32]), 0, 1),
        Pulled::Stream
    );
    ranks[0].set_present(true);
    assert_eq!(pull(&mut ranks[1], 0, &exposure, 0, 1), Pulled::Stream);
    ranks[0].set_present(false);
    ranks[0].withdraw(&exposure);
    assert_eq!(pull(&mut ranks[1], 0, &exposure, 0, 1), Pulled::Stream);
    assert_eq!(target, [2, 3, 4, 0]);
}

#[test]
fn direct_memory_is_zeroed_shared_and_gone_when_freed() {
    let mut ranks = network_with(
        2,
        Options {
            direct: 2 * PAGE,
            ..Options::default()
        },
    );
    let memory = ranks[0].alloc(10).unwrap();
    let (seen, len) = ranks[1].map(0, &memory.key).unwrap();
    assert_eq!((seen, len), (memory.ptr, 10));
    assert_eq!(memory.ptr.addr() % PAGE, 0);
    // SAFETY: ten bytes that were just allocated, and that nobody writes.
    let bytes = unsafe { std::slice::from_raw_parts(seen, 10) };
    assert!(bytes.iter().all(|&byte| byte == 0));
    assert_eq!(
        ranks[0].alloc(PAGE + 1).unwrap_err().kind(),
        ErrorKind::Exhausted
    );
    assert_eq!(ranks[0].memory_used(), PAGE as u64);
    assert_eq!(ranks[1].map(1, &memory.key), None, "the key is rank 0's");
    // SAFETY: nobody uses the memory any more.
    unsafe { ranks[0].free(memory) };
    assert_eq!(ranks[1].map(0, &memory.key), None);
}

#[test]
fn the_dead_are_known_to_all_and_those_who_left_are_not_dead() {
    let mut ranks = network(3);
    let (bell, seen) = (ranks[1].bell(), ranks[1].bell().seen());
    ranks[0].declare_failed(2, "it said nonsense");
    ranks[0].declare_failed(2, "a second opinion");
    assert_eq!(ranks[1].failures(), 1);
    assert_eq!(ranks[1].failure_of(2).as_deref(), Some("it said nonsense"));
    assert_ne!(bell.seen(), seen);
    assert_eq!(send(&mut ranks[1], 2, b"x"), Sent::Gone);
    assert_eq!(send(&mut ranks[2], 1, b"x"), Sent::Gone);
    assert!(!ranks[0].has_left(1) && !ranks[0].has_left(2));
    drop(ranks.remove(1));
    assert_eq!(send(&mut ranks[0], 1, b"x"), Sent::Gone);
    assert_eq!((ranks[0].failures(), ranks[0].failure_of(1)), (1, None));
    assert!(ranks[0].has_left(1) && !ranks[0].has_left(2));
}

#[test]
fn a_rank_whose_thread_panics_is_dead_to_the_others() {
    let mut ranks = network(2);
    let doomed = ranks.remove(1);
    let thread = std::thread::spawn(move || {
        let _held = doomed;
        panic!("it is what this test is about");
    });
    thread.join().unwrap_err();
    assert_eq!(ranks[0].failure_of(1).as_deref(), Some("it panicked"));
    assert_eq!(send(&mut ranks[0], 1, b"x"), Sent::Gone);
}

#[test]
fn capabilities_that_were_left_out_are_not_wired() {
    let options = Options {
        caps: TransportCaps::PROCESSES,
        ..Options::default()
    };
    let mut ranks = network_with(2, options);
    assert_eq!(ranks[0].caps(), TransportCaps::empty());
    assert_eq!(ranks[0].offer_open(), None);
    assert_eq!(
        ranks[0].alloc(1).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    // SAFETY: no bytes are exposed.
    assert_eq!(unsafe { ranks[0].expose(std::ptr::null(), 0) }, None);
}
