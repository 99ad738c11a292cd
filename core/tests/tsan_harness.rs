//! Request slots between threads, with nothing else around: for the thread sanitizer, which watches
//! this crate's own accesses.
//!
//! ```text
//! RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!     cargo +nightly test -p portolan-core --test tsan_harness --target x86_64-unknown-linux-gnu
//! ```
//!
//! The standard library is not instrumented in such a build, so this test has no harness and starts
//! its threads with `pthread_create`, which the sanitizer knows. It runs as an ordinary test as
//! well.
//!
//! One thread plays the engine: it claims slots, writes the buffer of the operation, completes and
//! frees them, over and over, beyond the first chunk of words too. The others look at the states
//! without a lock: who sees `Complete` reads the buffer, which is a race unless the Release store
//! of the state pairs with their Acquire load.

// The module under test is private to the crate: it is compiled here once more, by itself.
#[path = "../src/request/handle.rs"]
#[allow(dead_code, unreachable_pub, unused_imports)]
mod handle;
#[path = "../src/request/words.rs"]
#[allow(dead_code, unreachable_pub, unused_imports)]
mod words;

use std::cell::UnsafeCell;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use handle::Request;
use words::{State, StateWords};

const ROUNDS: u32 = 3000;
const READERS: u64 = 3;
/// A slot of the first chunk, and two beyond.
const SLOTS: [u32; 3] = [5, 1024, 5000];

struct Shared {
    words: StateWords,
    /// The request that readers are to look at, as bits; and its number.
    current: AtomicU64,
    /// Readers that have seen the current request complete.
    seen: AtomicU64,
    /// What the operation writes: plain memory.
    buffer: UnsafeCell<u64>,
}

fn engine(shared: &Shared) {
    for index in SLOTS {
        shared.words.reserve(index);
    }
    for round in 0..ROUNDS {
        let index = SLOTS[round as usize % SLOTS.len()];
        let generation = shared.words.set_state(index, State::Active);
        // SYNC A: pairs with the Acquire load in `reader`; the new request is active by then.
        shared.current.store(
            Request::new(0, index, generation).to_bits(),
            Ordering::Release,
        );
        // SAFETY: the readers touch the buffer only after they have seen this round's request
        // complete, and this thread writes only after all of them have done so with the last one's.
        unsafe { *shared.buffer.get() = u64::from(round) };
        shared.words.set_state(index, State::Complete);
        // SYNC B: pairs with the Release additions in `reader`, which follow their reads.
        while shared.seen.load(Ordering::Acquire) < READERS * u64::from(round + 1) {
            std::thread::yield_now();
        }
        shared.words.free(index);
    }
}

fn reader(shared: &Shared) {
    let mut last = Request::NULL;
    for round in 0..ROUNDS {
        let request = loop {
            // SYNC A: pairs with the Release store in `engine`.
            // SAFETY: the other thread has lent this one its request.
            let request = unsafe { Request::from_bits(shared.current.load(Ordering::Acquire)) };
            if request != last {
                break request;
            }
            std::thread::yield_now();
        };
        while shared.words.state_of(request) != Some(State::Complete) {
            std::thread::yield_now();
        }
        // SAFETY: complete, so the engine has written and does not write before all have read.
        assert_eq!(unsafe { *shared.buffer.get() }, u64::from(round));
        assert!(
            last == Request::NULL || shared.words.state_of(last).is_none(),
            "stale is seen"
        );
        last = request;
        // SYNC B: pairs with the Acquire load in `engine`.
        shared.seen.fetch_add(1, Ordering::Release);
    }
}

extern "C" fn start_engine(shared: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `main` passes a leaked `Shared`.
    engine(unsafe { &*shared.cast::<Shared>() });
    std::ptr::null_mut()
}

extern "C" fn start_reader(shared: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `main` passes a leaked `Shared`.
    reader(unsafe { &*shared.cast::<Shared>() });
    std::ptr::null_mut()
}

type Body = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;

fn main() {
    let shared = Box::leak(Box::new(Shared {
        words: StateWords::new(),
        current: AtomicU64::new(0),
        seen: AtomicU64::new(0),
        buffer: UnsafeCell::new(0),
    }));
    let argument: *mut libc::c_void = std::ptr::from_mut(shared).cast();
    let bodies: [Body; 4] = [start_engine, start_reader, start_reader, start_reader];
    let threads = bodies.map(|body| {
        let mut thread = 0;
        let ordinary = std::ptr::null();
        // SAFETY: a function with the right signature, and an argument that lives for ever.
        let started = unsafe { libc::pthread_create(&raw mut thread, ordinary, body, argument) };
        assert_eq!(started, 0);
        thread
    });
    for thread in threads {
        // SAFETY: a thread that was started and not joined yet.
        let joined = unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        assert_eq!(joined, 0);
    }
    // Nothing can be done about a standard output that is closed.
    let _ = writeln!(
        std::io::stdout(),
        "passed: request slots read without a lock"
    );
}
