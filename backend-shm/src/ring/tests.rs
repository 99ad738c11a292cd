use std::alloc::{Layout, alloc_zeroed, dealloc};

use proptest::prelude::*;

use super::*;

/// A ring in ordinary memory.
struct Ring {
    memory: *mut u8,
    layout: Layout,
    tx: RingTx,
    rx: RingRx,
}

impl Ring {
    fn new(cells: u32) -> Self {
        Self::with(cells, false, false)
    }

    /// A ring whose sender starts over if it may.
    fn restarting(cells: u32) -> Self {
        Self::with(cells, true, false)
    }

    fn with(cells: u32, restarts: bool, wide: bool) -> Self {
        let bytes = size_of::<Ends>() + cells as usize * CELL;
        let layout = Layout::from_size_align(bytes, 4096).unwrap();
        // SAFETY: the layout is not empty; zeroed memory is a fresh ring; both halves are used by
        // one thread and live as long as the memory.
        unsafe {
            let memory = alloc_zeroed(layout);
            let first = memory.add(size_of::<Ends>()).cast::<Cell>();
            let cells = Cells::new(first, cells, wide);
            let (tx, rx) = (
                RingTx::new(cells, memory.cast(), restarts),
                RingRx::new(cells, memory.cast()),
            );
            Self {
                memory,
                layout,
                tx,
                rx,
            }
        }
    }

    fn push(&mut self, tag: u64, bytes: &[u8]) -> Pushed {
        // SAFETY: a slice.
        unsafe { self.tx.push([tag, !tag, 7], bytes.as_ptr(), bytes.len()) }
    }

    fn pop(&mut self) -> Option<(u64, Vec<u8>)> {
        let Polled::Message { index, len, bulk } = self.rx.poll() else {
            return None;
        };
        assert!(!bulk);
        // SAFETY: `poll` has just found the message, whose payload stays when its lines are taken.
        let (header, bytes) = unsafe {
            let header = self.rx.cells().header(index);
            self.rx.cells().take(index, len);
            let payload = std::slice::from_raw_parts(self.rx.cells().payload(index), len);
            (header, payload.to_vec())
        };
        assert_eq!((header[1], header[2]), (!header[0], 7));
        self.rx.consume();
        Some((header[0], bytes))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory, self.layout) };
    }
}

/// Payload that looks like a control word of a later lap never lies where control words do.
#[test]
fn payload_is_not_taken_for_a_message() {
    let mut ring = Ring::new(32);
    for round in 0..200_u64 {
        let lie: Vec<u8> = (0..4)
            .flat_map(|n| forged(round + n, 8).to_le_bytes())
            .collect();
        assert_eq!(ring.push(round, &lie), Pushed::Done);
        assert_eq!(ring.pop(), Some((round, lie)));
        assert_eq!(ring.pop(), None, "round {round}");
    }
}

#[test]
fn an_impossible_position_of_the_receiver_is_noticed() {
    let mut ring = Ring::new(64);
    for n in 0..64 {
        assert_eq!(ring.push(n, b""), Pushed::Done);
    }
    assert_eq!(ring.push(64, b""), Pushed::Full);
    ring.tx
        .ends()
        .consumed
        .store(1000, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(ring.push(64, b""), Pushed::Broken);
}

#[test]
fn an_impossible_length_is_noticed() {
    for (wide, inline) in [(false, INLINE), (true, INLINE_WIDE)] {
        let mut ring = Ring::with(64, false, wide);
        ring.push(0, b"");
        let word = control(0, inline + 1, 0);
        ring.rx
            .cells()
            .control(0)
            .store(word, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(ring.rx.poll(), Polled::Broken);
    }
}

#[test]
fn a_drained_ring_has_room_for_three_quarters() {
    let mut ring = Ring::new(64);
    for n in 0..1000_u64 {
        for m in 0..48 {
            assert_eq!(ring.push(n + m, &[1; INLINE]), Pushed::Done, "round {n}");
        }
        for m in 0..48 {
            assert_eq!(ring.pop(), Some((n + m, vec![1; INLINE])));
        }
    }
}

/// Sends and takes `messages` messages one at a time, and returns how many different cells they
/// used.
fn one_at_a_time(ring: &mut Ring, messages: u64) -> usize {
    let mut cells = std::collections::BTreeSet::new();
    for number in 0..messages {
        assert_eq!(ring.push(number, b"x"), Pushed::Done);
        let Polled::Message { index, .. } = ring.rx.poll() else {
            panic!("message {number} is not there");
        };
        cells.insert(index);
        assert_eq!(ring.pop(), Some((number, b"x".to_vec())));
        assert_eq!(ring.rx.poll(), Polled::Empty);
    }
    cells.len()
}

#[test]
fn who_starts_over_uses_the_beginning_only() {
    assert_eq!(one_at_a_time(&mut Ring::new(256), 2000), 256);
    let mut ring = Ring::restarting(256);
    assert_eq!(one_at_a_time(&mut ring, 2000), BEGINNING as usize);
    // The sender does not start over in a ring so large that tags would repeat too soon.
    let mut ring = Ring::restarting(2 * RESTARTING);
    assert_eq!(one_at_a_time(&mut ring, 2000), 2000);
}

/// From each place of a beginning: sends a burst that fills the ring, then single messages, which
/// come back to the beginning of the ring.
#[test]
fn who_starts_over_has_all_of_the_ring() {
    for before in 0..2 * BEGINNING {
        let mut ring = Ring::restarting(256);
        one_at_a_time(&mut ring, before);
        let mut sent = 0;
        while ring.push(sent, b"y") == Pushed::Done {
            sent += 1;
        }
        assert!((192..=256).contains(&sent), "{sent} after {before}");
        for number in 0..sent {
            assert_eq!(ring.pop(), Some((number, b"y".to_vec())));
        }
        one_at_a_time(&mut ring, BEGINNING);
        let cells = one_at_a_time(&mut ring, 2000);
        assert_eq!(cells, BEGINNING as usize, "{sent} after {before}");
    }
}

/// At the end of a beginning the receiver looks at two cells, and takes neither for the other.
#[test]
fn who_goes_on_is_not_taken_for_one_who_starts_over() {
    let mut ring = Ring::restarting(256);
    for number in 0..BEGINNING + 10 {
        assert_eq!(ring.push(number, b""), Pushed::Done);
    }
    for number in 0..BEGINNING + 10 {
        assert_eq!(ring.pop(), Some((number, Vec::new())));
    }
    assert_eq!(ring.pop(), None);
}

#[test]
fn what_fits_is_what_can_be_pushed() {
    let mut ring = Ring::new(32);
    let mut seen = [0; 2];
    for round in 0..1000_usize {
        let messages = 1 + round * 7 % 40;
        let fits = ring.tx.fits(messages);
        let pushed = (0..messages as u64).take_while(|&n| ring.push(n, b"") == Pushed::Done);
        assert_eq!(fits, pushed.count() == messages, "round {round}");
        seen[usize::from(fits)] += 1;
        for _ in 0..round * 5 % 37 {
            ring.pop();
        }
    }
    assert!(seen.iter().all(|&times| times > 100), "{seen:?}");
}

#[test]
fn every_length_is_copied_whole() {
    for (wide, inline) in [(false, INLINE), (true, INLINE_WIDE)] {
        let mut ring = Ring::with(64, false, wide);
        assert_eq!(ring.tx.inline(), inline);
        let bytes: Vec<u8> = (1..=inline as u8).collect();
        for len in 0..=inline {
            assert_eq!(ring.push(len as u64, &bytes[..len]), Pushed::Done);
            assert_eq!(ring.pop(), Some((len as u64, bytes[..len].to_vec())));
        }
    }
}

/// A wide ring has room for half as many messages as it has cells, and starts over after half as
/// many as another ring.
#[test]
fn a_message_of_a_wide_ring_takes_two_cells() {
    let mut ring = Ring::with(64, false, true);
    for number in 0..32 {
        assert!(ring.tx.fits(32 - number));
        assert!(!ring.tx.fits(33 - number));
        assert_eq!(ring.push(number as u64, &[1; INLINE_WIDE]), Pushed::Done);
    }
    assert_eq!(ring.push(32, b""), Pushed::Full);
    let mut ring = Ring::with(256, true, true);
    let cells = one_at_a_time(&mut ring, 2000);
    assert_eq!(cells, BEGINNING as usize / 2);
}

/// What the payload leaves in the second cell of an earlier message is no control word.
#[test]
fn a_second_cell_is_not_taken_for_a_message() {
    let mut ring = Ring::with(32, false, true);
    for round in 0..200_u64 {
        let lie: Vec<u8> = (0..11)
            .flat_map(|n| forged(2 * round + n, 8).to_le_bytes())
            .collect();
        assert_eq!(ring.push(round, &lie), Pushed::Done);
        assert_eq!(ring.pop(), Some((round, lie)));
        assert_eq!(ring.pop(), None, "round {round}");
    }
}

proptest! {
    /// The ring is a queue under any interleaving of pushes and pops of any sizes, whether or not
    /// the sender starts over, and whether or not the ring is wide.
    #[test]
    fn it_is_a_queue(
        cells in prop::sample::select(vec![64_u32, 128, 256]),
        restarts in any::<bool>(),
        wide in any::<bool>(),
        steps in proptest::collection::vec((any::<bool>(), 0..=INLINE_WIDE), 1..1500),
    ) {
        let mut ring = Ring::with(cells, restarts, wide);
        let mut model = std::collections::VecDeque::new();
        let mut next = 0_u64;
        for (push, len) in steps {
            if push {
                let len = len.min(ring.tx.inline());
                let bytes: Vec<u8> = (0..len).map(|at| (at as u64 + next) as u8).collect();
                match ring.push(next, &bytes) {
                    Pushed::Done => { model.push_back((next, bytes)); next += 1; }
                    Pushed::Full => prop_assert!(!model.is_empty(), "full, but empty"),
                    Pushed::Broken => prop_assert!(false),
                }
            } else {
                prop_assert_eq!(ring.pop(), model.pop_front());
            }
        }
    }
}

#[test]
fn what_is_behind_the_next_message_is_seen_when_it_is_there() {
    for wide in [false, true] {
        is_seen_when_it_is_there(Ring::with(if wide { 32 } else { 16 }, false, wide));
    }
}

fn is_seen_when_it_is_there(mut ring: Ring) {
    for lap in 0..5 {
        assert_eq!(ring.rx.behind(0), None, "empty");
        for tag in 0..10 {
            assert_eq!(ring.push(lap * 10 + tag, &[]), Pushed::Done);
        }
        for tag in 0..10 {
            for places in 0..16 {
                let seen = ring.rx.behind(places as usize);
                // SAFETY: `behind` has seen the message.
                let header = seen.map(|index| unsafe { ring.rx.cells().header(index)[0] });
                let there = tag + places < 10;
                assert_eq!(header, there.then_some(lap * 10 + tag + places));
            }
            assert!(ring.pop().is_some());
        }
    }
}
