//! Model checking: loom runs every interleaving of a few steps.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p portolan-shm --lib --release`. The structures are
//! the real ones, over loom's atomics. Loom has no `membarrier`; a fence on both sides stands in
//! for it.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

use crate::bell::BellWords;
use crate::inbox::{Inbox, Kind};
use crate::ring::{Cell, Cells, Ends, Polled, Pushed, RingRx, RingTx};

/// Explores with at most three preemptions, or with `LOOM_MAX_PREEMPTIONS`. That turns minutes into
/// seconds, and the mistakes that loom has found here needed two.
fn check(steps: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(steps);
}

struct Ring {
    cells: Box<[Cell]>,
    ends: Ends,
}

impl Ring {
    fn new(cells: u32) -> Arc<Self> {
        let cells = (0..cells).map(|_| Cell::new()).collect();
        Arc::new(Self {
            cells,
            ends: Ends::new(),
        })
    }

    fn cells(&self, wide: bool) -> Cells {
        // SAFETY: each test makes one sender and one receiver, which do not outlive the ring.
        unsafe { Cells::new(self.cells.as_ptr(), self.cells.len() as u32, wide) }
    }

    fn tx(&self, restarts: bool, wide: bool) -> RingTx {
        // SAFETY: as above.
        unsafe { RingTx::new(self.cells(wide), &raw const self.ends, restarts) }
    }

    fn rx(&self, wide: bool) -> RingRx {
        // SAFETY: as above.
        unsafe { RingRx::new(self.cells(wide), &raw const self.ends) }
    }
}

/// Under loom, a cell holds one word of header and one of payload.
fn push(tx: &mut RingTx, number: u64) -> Pushed {
    let payload = !number;
    // SAFETY: one word is all that the model's cells read.
    unsafe { tx.push([number, 0, 0], (&raw const payload).cast(), 8) }
}

fn pop(rx: &mut RingRx) -> Option<u64> {
    match rx.poll() {
        Polled::Empty => None,
        Polled::Broken => panic!("a correct sender was taken for a broken one"),
        Polled::Message { index, len, .. } => {
            // SAFETY: `poll` has just found the message.
            let [number, payload, _] = unsafe { rx.cells().header(index) };
            assert_eq!((payload, len), (!number, 8));
            // SAFETY: as above.
            unsafe { rx.cells().take(index, len) };
            rx.consume();
            Some(number)
        }
    }
}

fn pop_blocking(rx: &mut RingRx) -> u64 {
    loop {
        match pop(rx) {
            Some(number) => return number,
            None => thread::yield_now(),
        }
    }
}

/// Checks that `messages` messages arrive in order through a ring of `cells` cells.
fn in_order(messages: u64, cells: u32, restarts: bool, wide: bool) {
    check(move || {
        let ring = Ring::new(cells);
        let sender = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let mut tx = ring.tx(restarts, wide);
                for number in 0..messages {
                    while push(&mut tx, number) != Pushed::Done {
                        thread::yield_now();
                    }
                }
            })
        };
        let mut rx = ring.rx(wide);
        for number in 0..messages {
            assert_eq!(pop_blocking(&mut rx), number);
        }
        assert_eq!(pop(&mut rx), None, "nothing else was sent");
        sender.join().unwrap();
        assert_eq!(pop(&mut rx), None);
    });
}

/// Two and a half laps through a ring of two cells.
#[test]
fn a_ring_hands_over_in_order() {
    in_order(5, 2, false, false);
}

/// In the model a beginning is one cell, so each message may go into the next cell or into the
/// first. (Of five messages, the last may go into a cell at which a receiver looks that is still at
/// the second.)
#[test]
fn a_ring_that_starts_over_hands_over_in_order() {
    in_order(5, 4, true, false);
}

/// As many messages as in the first test, each of which takes two cells.
#[test]
fn a_wide_ring_hands_over_in_order() {
    in_order(5, 4, false, true);
}

/// A rank that announces its sleep, looks once more and then sleeps is woken.
#[test]
fn no_wake_up_is_lost() {
    check(|| {
        let shared = Arc::new((BellWords::new(), AtomicU32::new(0)));
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.fetch_add(1, Release);
                    shared.0.wake_if_asleep(false);
                })
            })
            .collect();
        let (bell, mail) = &*shared;
        while mail.load(Acquire) < 2 {
            let seen = bell.seen();
            assert!(bell.arm(false));
            if mail.load(Acquire) < 2 {
                bell.sleep(seen);
            }
            bell.disarm();
        }
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// Two threads of one rank sleep on its bell, each waiting for its own news. A ring for one may use
/// up the announcement of the other, which therefore announces itself again after it has read the
/// word.
#[test]
fn two_sleepers_on_one_bell() {
    check(|| {
        let shared = Arc::new((
            BellWords::new(),
            [AtomicU32::new(0), AtomicU32::new(0)],
            // The engine's lock, which guards the number of sleepers.
            loom::sync::Mutex::new(0),
        ));
        let wait_for = |shared: &(BellWords, [AtomicU32; 2], loom::sync::Mutex<u32>),
                        mine: usize| {
            let (bell, flags, sleepers) = shared;
            while flags[mine].load(Acquire) == 0 {
                let seen = bell.seen();
                {
                    *sleepers.lock().unwrap() += 1;
                    assert!(bell.arm(false));
                }
                if flags[mine].load(Acquire) == 0 {
                    bell.sleep(seen);
                }
                let mut sleepers = sleepers.lock().unwrap();
                *sleepers -= 1;
                if *sleepers == 0 {
                    bell.disarm();
                }
            }
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || wait_for(&shared, 1))
        };
        let sender = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for flag in &shared.1 {
                    flag.store(1, Release);
                    shared.0.wake_if_asleep(false);
                }
            })
        };
        wait_for(&shared, 0);
        other.join().unwrap();
        sender.join().unwrap();
    });
}

/// A sender that finds no room and falls asleep is woken by the receiver when it makes some.
#[test]
fn a_starved_sender_is_woken() {
    check(|| {
        let shared = Arc::new((Ring::new(2), BellWords::new()));
        let mut tx = shared.0.tx(false, false);
        for number in 0..2 {
            assert_eq!(push(&mut tx, number), Pushed::Done);
        }
        let receiver = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (ring, bell) = &*shared;
                let mut rx = ring.rx(false);
                for number in 0..3 {
                    assert_eq!(pop_blocking(&mut rx), number);
                    let starved = &ring.ends.of_sender.starved;
                    bell.wake_if(false, || {
                        starved.load(Relaxed) != 0 && starved.swap(0, Relaxed) != 0
                    });
                }
            })
        };
        let (ring, bell) = &*shared;
        while push(&mut tx, 2) != Pushed::Done {
            let seen = bell.seen();
            ring.ends.of_sender.starved.store(1, Relaxed);
            assert!(bell.arm(false));
            let still_full = tx.room() != Pushed::Done;
            if still_full {
                bell.sleep(seen);
            }
            bell.disarm();
        }
        receiver.join().unwrap();
    });
}

/// A packet that grows: its first part is there when its cell is, the second when `filled` says so.
/// A receiver that has found it in part, and sleeps, is woken for the rest.
#[test]
fn a_packet_that_grows_is_read_behind_its_sender() {
    struct Shared {
        ring: Arc<Ring>,
        bell: BellWords,
        parts: [loom::cell::UnsafeCell<u64>; 2],
    }
    // SAFETY: `filled` and the cell hand the parts over, as loom checks.
    unsafe impl Sync for Shared {}
    check(|| {
        let shared = Arc::new(Shared {
            ring: Ring::new(2),
            bell: BellWords::new(),
            parts: [0, 0].map(loom::cell::UnsafeCell::new),
        });
        let sender = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let Shared { ring, bell, parts } = &*shared;
                let mut tx = ring.tx(false, false);
                // SAFETY: the receiver reads a part only after it has been handed over.
                parts[0].with_mut(|part| unsafe { *part = 1 });
                assert_eq!(push(&mut tx, 0), Pushed::Done);
                // SAFETY: as above.
                parts[1].with_mut(|part| unsafe { *part = 2 });
                ring.ends.of_sender.filled.store(2, Release);
                bell.wake_if_asleep(false);
            })
        };
        let Shared { ring, bell, parts } = &*shared;
        let mut rx = ring.rx(false);
        // SAFETY: what has been handed over is not written any more.
        let read = |part: usize| parts[part].with(|part| unsafe { *part });
        let is_whole = || ring.ends.of_sender.filled.load(Acquire) == 2;
        while pop(&mut rx).is_none() {
            thread::yield_now();
        }
        assert_eq!(read(0), 1);
        while !is_whole() {
            let seen = bell.seen();
            assert!(bell.arm(false));
            if !is_whole() {
                bell.sleep(seen);
            }
            bell.disarm();
        }
        assert_eq!(read(1), 2);
        sender.join().unwrap();
    });
}

fn post(inbox: &Inbox, from: u32, number: u32, kind: Kind) -> crate::inbox::Posted {
    loop {
        // SAFETY: the packet has no payload.
        let posted = unsafe {
            inbox.post(
                from,
                number,
                kind,
                [number.into(), 0, 0],
                std::ptr::dangling(),
                0,
            )
        };
        match posted {
            Some(posted) => return posted,
            None => thread::yield_now(),
        }
    }
}

/// A pair that moves from the inbox to its ring keeps its order, while another rank uses
/// the same inbox.
#[test]
fn the_switch_from_inbox_to_ring_keeps_the_order() {
    check(|| {
        let shared = Arc::new((Inbox::new(), Ring::new(2)));
        let sender = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (inbox, ring) = &*shared;
                let first = post(inbox, 0, 0, Kind::Packet);
                while !inbox.delivered(first) {
                    thread::yield_now();
                }
                let mut tx = ring.tx(false, false);
                let _ = post(inbox, 0, 1, Kind::Ring);
                assert_eq!(push(&mut tx, 1), Pushed::Done);
            })
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let _ = post(&shared.0, 1, 0, Kind::Packet);
            })
        };
        let (inbox, ring) = &*shared;
        let (mut expected, mut from_other) = (0, 0);
        let mut rx = None;
        while expected < 2 || from_other < 1 {
            let mut bits = inbox.pending();
            let mut moved = bits != 0;
            while bits != 0 {
                let slot = bits.trailing_zeros();
                bits &= bits - 1;
                let arrived = inbox.look(slot).expect("a slot whose bit is set");
                if arrived.from == 1 {
                    from_other += 1;
                } else if arrived.kind == Kind::Ring as u32 {
                    rx = Some(ring.rx(false));
                } else {
                    assert_eq!(arrived.header[0], expected);
                    expected += 1;
                }
                inbox.free(slot);
            }
            if let Some(number) = rx.as_mut().and_then(pop) {
                assert_eq!(number, expected);
                expected += 1;
                moved = true;
            }
            if !moved {
                thread::yield_now();
            }
        }
        sender.join().unwrap();
        other.join().unwrap();
    });
}
