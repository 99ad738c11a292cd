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
    fn new(cells: u32, spare: u32) -> Self {
        let bytes = size_of::<Ends>() + (cells + spare) as usize * CELL;
        let layout = Layout::from_size_align(bytes, 4096).unwrap();
        // SAFETY: the layout is not empty; zeroed memory is a fresh ring; both halves are used by
        // one thread and live as long as the memory.
        unsafe {
            let memory = alloc_zeroed(layout);
            let first = memory.add(size_of::<Ends>()).cast::<Cell>();
            let cells = Cells::new(first, cells, spare);
            let (tx, rx) = (
                RingTx::new(cells, memory.cast()),
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
        // SAFETY: `poll` has just found the message.
        let (header, bytes) = unsafe {
            let payload = std::slice::from_raw_parts(self.rx.cells().payload(index), len);
            (self.rx.cells().header(index), payload.to_vec())
        };
        assert_eq!((header[1], header[2]), (!header[0], 7));
        self.rx.consume(len);
        Some((header[0], bytes))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory, self.layout) };
    }
}

#[test]
fn a_small_message_takes_one_cell() {
    assert_eq!(cells_for(0), 1);
    assert_eq!(cells_for(INLINE), 1);
    assert_eq!(cells_for(INLINE + 1), 2);
    assert_eq!(cells_for(INLINE + CELL), 2);
    assert_eq!(cells_for(INLINE + CELL + 1), 3);
}

/// Payload that looks like a control word in each of its cells, for the position at which the
/// receiver will look next.
#[test]
fn a_payload_that_mimics_a_control_word_is_not_a_message() {
    let cells = 64;
    let mut ring = Ring::new(cells, 4);
    let mut pos = 0_u64;
    for round in 0..1000_u64 {
        let len = INLINE + 3 * CELL;
        let mut bytes = vec![0; len];
        for cell in 0..3 {
            // What would begin a message there one lap later.
            let later = pos + cell + 1 + u64::from(cells);
            let word = forged(later, 8).to_le_bytes();
            let at = INLINE + cell as usize * CELL;
            bytes[at..at + 8].copy_from_slice(&word);
        }
        assert_eq!(ring.push(round, &bytes), Pushed::Done);
        assert_eq!(ring.pop(), Some((round, bytes)));
        assert_eq!(ring.pop(), None, "round {round}");
        // Small messages move the laps against each other.
        for small in 0..round % 5 {
            assert_eq!(ring.push(small, b"x"), Pushed::Done);
            assert_eq!(ring.pop(), Some((small, b"x".to_vec())));
            assert_eq!(ring.pop(), None);
        }
        pos = ring.rx_position();
    }
}

#[test]
fn an_impossible_position_of_the_receiver_is_noticed() {
    let mut ring = Ring::new(64, 4);
    for n in 0..63 {
        assert_eq!(ring.push(n, b""), Pushed::Done);
    }
    assert_eq!(ring.push(63, b""), Pushed::Full);
    ring.tx
        .ends()
        .consumed
        .store(1000, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(ring.push(63, b""), Pushed::Broken);
}

#[test]
fn an_impossible_length_is_noticed() {
    let mut ring = Ring::new(64, 4);
    ring.push(0, b"");
    let word = control(0, INLINE + 4 * CELL + 1, 0);
    ring.rx
        .cells()
        .control(0)
        .store(word, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(ring.rx.poll(), Polled::Broken);
}

#[test]
fn a_drained_ring_has_room_for_any_message() {
    let mut ring = Ring::new(64, 16);
    let longest = vec![1; INLINE + 16 * CELL];
    for n in 0..10_000 {
        let bytes = &longest[..n % (longest.len() + 1)];
        assert_eq!(ring.push(n as u64, bytes), Pushed::Done, "message {n}");
        assert_eq!(ring.pop().unwrap().1, bytes);
    }
}

impl Ring {
    fn rx_position(&self) -> u64 {
        // The receiver's position is that of the sender once the ring is drained.
        self.tx.position()
    }
}

proptest! {
    /// Any interleaving of pushes and pops of any sizes is a queue.
    #[test]
    fn it_is_a_queue(steps in proptest::collection::vec((any::<bool>(), 0_usize..300), 1..600)) {
        let mut ring = Ring::new(64, 5);
        let mut model = std::collections::VecDeque::new();
        let mut next = 0_u64;
        for (push, len) in steps {
            if push {
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
