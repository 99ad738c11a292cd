//! Blocking sends to a receiver that cannot read the sender's memory: announced at first, then
//! unasked.

use std::thread;

use portolan_core::config::Settings;
use portolan_core::level::{Level, Multiple, Single};
use portolan_core::matching::Pattern;
use portolan_core::transport::decorate::{Decorated, Unreach};
use portolan_core::transport::memory::{self, InMemory, Options};
use portolan_core::{Adi, Device, Engine, ErrorKind, ProcId, SendArgs};

/// Above half of the reference transport's eager limit, and below it: in one packet.
const SHORT: usize = 3 << 10;
/// In pieces, the last of which is shorter.
const LONG: usize = (13 << 10) + 5;
const MESSAGES: u32 = 200;
/// Fewer of them than this are announced: 64, and some at the beginning.
const ANNOUNCED: u64 = 75;
/// Of the longest that go unasked where windows go both ways, too, and longer.
const LONGER: usize = 20 << 10;
/// Windows of such messages, and the tag of what is between them.
const ROUNDS: u32 = 100;
const ANSWER: u32 = 1000;

fn counter(device: &impl Device, name: &str) -> u64 {
    let counters = device.counters();
    let found = counters.iter().find(|(known, _)| *known == name);
    found.expect("a counter of that name").1
}

type Rank<L> = Engine<Decorated<InMemory, Unreach>, L>;

/// The two ranks of a job whose second one cannot read the memory of the first.
fn ranks<L: Level>(options: Options) -> (Rank<L>, Rank<L>) {
    let settings = Settings::default();
    let mut ranks = memory::network_with(2, options)
        .into_iter()
        .map(|transport| {
            let transport = Decorated::new(transport, Unreach::new(1, 1, usize::MAX));
            Engine::<_, L>::new(transport, &settings).expect("an engine")
        });
    (ranks.next().unwrap(), ranks.next().unwrap())
}

fn from_zero(tag: u32) -> Pattern {
    Pattern {
        context: 0,
        source: Some(0),
        tag: Some(tag),
    }
}

/// The bytes of a message.
fn message(tag: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32 * 7 + tag) as u8).collect()
}

/// Sends messages of `len` bytes from rank 0 to rank 1, which receives each in turn.
fn one_way(len: usize, options: Options) {
    let (sender, receiver) = ranks::<Single>(options);
    thread::scope(|scope| {
        scope.spawn(move || {
            for tag in 0..MESSAGES {
                let args = SendArgs::new(ProcId::new(1), 0, 0, tag);
                sender.send_contig(&args, &message(tag, len)).expect("sent");
            }
            let (offers, eager) = (
                counter(&sender, "offers_sent"),
                counter(&sender, "eager_sent"),
            );
            assert_eq!(offers + eager, u64::from(MESSAGES));
            sender.end().expect("ended");
            assert!((1..ANNOUNCED).contains(&offers), "{offers} were announced");
        });
        scope.spawn(move || {
            let mut buf = vec![0; len];
            for tag in 0..MESSAGES {
                let status = receiver
                    .recv_contig(&from_zero(tag), &mut buf)
                    .expect("received");
                assert_eq!(status.bytes, len as u64);
                assert!(buf == message(tag, len), "message {tag}");
            }
            receiver.end().expect("ended");
        });
    });
}

#[test]
fn a_receiver_that_streams_is_not_asked_for_ever() {
    one_way(SHORT, Options::default());
    one_way(LONG, Options::default());
}

#[test]
fn pieces_wait_for_room_and_keep_their_order() {
    let cramped = Options {
        packets: 2,
        ..Options::default()
    };
    one_way(LONG, cramped);
}

/// Whoever has learnt that pieces are the way sends them whether their receive is there or not, and
/// whatever that is.
#[test]
fn pieces_find_their_receive_late_and_in_any_order() {
    let (sender, receiver) = ranks::<Single>(Options::default());
    let late = MESSAGES;
    thread::scope(|scope| {
        scope.spawn(move || {
            for tag in 0..late + 4 {
                let args = SendArgs::new(ProcId::new(1), 0, 0, tag);
                sender
                    .send_contig(&args, &message(tag, LONG))
                    .expect("sent");
            }
            sender.end().expect("ended");
            assert!(counter(&sender, "offers_sent") < ANNOUNCED);
        });
        scope.spawn(move || {
            let mut buf = vec![0; LONG];
            let mut receive = |tag: u32, room: usize| {
                buf.fill(0);
                receiver
                    .recv_contig(&from_zero(tag), &mut buf[..room])
                    .map(|status| (status.bytes as usize, buf.clone()))
            };
            for tag in 0..late {
                receive(tag, LONG).expect("received");
            }
            // The last one first: the others come unexpected.
            let (len, bytes) = receive(late + 3, LONG).expect("received");
            assert!(len == LONG && bytes == message(late + 3, LONG));
            let error = receive(late + 2, 5000).expect_err("cut");
            assert_eq!(error.kind(), ErrorKind::Truncated);
            let (len, bytes) = receive(late, LONG).expect("received");
            assert!(len == LONG && bytes == message(late, LONG));
            let status = receiver.probe(&from_zero(late + 1)).expect("probed");
            assert_eq!(status.bytes, LONG as u64);
            let (len, bytes) = receive(late + 1, LONG).expect("received");
            assert!(len == LONG && bytes == message(late + 1, LONG));
            receiver.end().expect("ended");
        });
    });
}

/// Messages of one length that a rank sends at a time, and the directions in which it moves as
/// many.
#[derive(Clone, Copy)]
struct Window {
    count: u32,
    len: usize,
    sends: bool,
    receives: bool,
}

/// Sends rounds of a window, each round behind an answer: how many messages were announced, and how
/// many not.
fn rounds(me: u32, rank: &Rank<Single>, window: Window) -> (u64, u64) {
    let Window {
        count,
        len,
        sends,
        receives,
    } = window;
    let peer = 1 - me;
    let data: Vec<Vec<u8>> = (0..count).map(|tag| message(tag, len)).collect();
    let mut room: Vec<Vec<u8>> = vec![vec![0; len]; count as usize];
    let from = |tag| Pattern {
        context: 0,
        source: Some(peer),
        tag: Some(tag),
    };
    for _ in 0..ROUNDS {
        let mut requests = Vec::new();
        for tag in (0..count).filter(|_| receives) {
            let into = room[tag as usize].as_mut_ptr();
            // SAFETY: what is received into is not touched before the wait below.
            requests.push(unsafe { rank.irecv_contig(&from(tag), into, len) }.expect("posted"));
        }
        for tag in (0..count).filter(|_| sends) {
            let args = SendArgs::new(ProcId::new(peer), 0, me, tag);
            let bytes = data[tag as usize].as_ptr();
            // SAFETY: nobody writes what is sent.
            requests.push(unsafe { rank.isend_contig(&args, bytes, len) }.expect("started"));
        }
        for request in requests {
            rank.wait(request).expect("over");
        }
        let answer = SendArgs::new(ProcId::new(peer), 0, me, ANSWER);
        rank.send_contig(&answer, &[1]).expect("answered");
        rank.recv_contig(&from(ANSWER), &mut [0])
            .expect("an answer");
        for (tag, bytes) in room.iter_mut().enumerate().filter(|_| receives) {
            assert!(*bytes == data[tag], "message {tag}");
            bytes.fill(0);
        }
    }
    let (offers, eager) = (counter(rank, "offers_sent"), counter(rank, "eager_sent"));
    rank.end().expect("ended");
    (offers, eager - u64::from(ROUNDS))
}

/// The same by both ranks: what the first one has announced, and what not.
fn both_ranks(count: u32, len: usize, both: bool) -> (u64, u64) {
    let (first, second) = ranks::<Single>(Options::default());
    let window = |sends, receives| Window {
        count,
        len,
        sends,
        receives,
    };
    thread::scope(|scope| {
        let sent = scope.spawn(move || rounds(0, &first, window(true, both)));
        scope.spawn(move || rounds(1, &second, window(both, true)));
        sent.join().expect("no panic")
    })
}

#[test]
fn windows_one_way_are_not_announced_for_ever() {
    let window = 8;
    let (offers, eager) = both_ranks(window, LONG, false);
    assert_eq!(offers + eager, u64::from(ROUNDS * window));
    // At least the first message of a window finds room.
    assert!(eager >= u64::from(ROUNDS / 2), "{eager} went unasked");
    assert!(offers >= 64, "{offers} were announced");
}

#[test]
fn what_is_started_alone_is_announced() {
    assert_eq!(both_ranks(1, LONG, false), (ROUNDS.into(), 0));
}

#[test]
fn windows_both_ways_are_announced_if_they_are_long() {
    assert_eq!(both_ranks(8, LONGER, true), (u64::from(8 * ROUNDS), 0));
    let (offers, eager) = both_ranks(8, LONG, true);
    assert_eq!(offers + eager, u64::from(8 * ROUNDS));
    assert!(eager >= u64::from(ROUNDS / 2), "{eager} went unasked");
}

/// While one thread's message waits for room in the middle another thread sends: nothing comes in
/// between, and each thread's messages keep their order.
#[test]
fn threads_do_not_send_into_each_others_messages() {
    let cramped = Options {
        packets: 2,
        ..Options::default()
    };
    let (sender, receiver) = ranks::<Multiple>(cramped);
    let sender = &sender;
    thread::scope(|scope| {
        let lens = [LONG, 100];
        let threads = lens.into_iter().zip(0..).map(|(len, thread)| {
            scope.spawn(move || {
                for n in 0..MESSAGES {
                    let args = SendArgs::new(ProcId::new(1), 0, thread, n);
                    sender.send_contig(&args, &message(n, len)).expect("sent");
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        scope.spawn(move || {
            let mut next = [0_u32; 2];
            let mut buf = vec![0; LONG];
            for _ in 0..2 * MESSAGES {
                let any = Pattern {
                    context: 0,
                    source: None,
                    tag: None,
                };
                let status = receiver.recv_contig(&any, &mut buf).expect("received");
                let thread = status.source as usize;
                assert_eq!(status.tag, next[thread], "of thread {thread}");
                let len = status.bytes as usize;
                assert!(len == lens[thread] && buf[..len] == message(status.tag, len));
                next[thread] += 1;
            }
            receiver.end().expect("ended");
        });
        for thread in threads {
            thread.join().expect("a thread that sent");
        }
        sender.end().expect("ended");
        assert!(counter(sender, "offers_sent") < ANNOUNCED);
    });
}
