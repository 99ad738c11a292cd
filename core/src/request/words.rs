//! State and generation of every request slot, readable without a lock.
//!
//! There is one word per slot, with the generation in the high half and the state in the low half.
//! Only a thread that holds the channel's lock writes it; any thread may read it. If the word's
//! generation differs from the handle's, the handle is stale. Since both are in one word, no reader
//! ever takes the state of another use of the slot for that of its own. One more bit says that a
//! complete operation has left nothing but a good status, so that collecting it requires no look at
//! anything else.
//!
//! SYNC POINT 1: the Release store in [`StateWords::change`] that makes a request complete pairs
//! with the Acquire loads in [`StateWords::get`] and [`StateWords::is_quiet`]. A thread that sees
//! `Complete` without the lock also sees what the operation wrote to the buffer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::handle::Request;

/// The state of a request slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// Not in use.
    Free = 0,
    /// The operation is under way.
    Active = 1,
    /// The operation is over, but the request has not been collected yet.
    Complete = 2,
    /// A persistent request that has not been started.
    Inactive = 3,
}

impl State {
    #[inline]
    fn from_low(word: u64) -> Self {
        match word & 3 {
            0 => Self::Free,
            1 => Self::Active,
            2 => Self::Complete,
            _ => Self::Inactive,
        }
    }
}

/// Set along with `Complete` if the slot holds a status without an error, and nothing else.
const QUIET: u64 = 4;

/// Slots in the first chunk; each further chunk doubles the table.
const FIRST: usize = 1024;
const CHUNKS: usize = 10;
const _: () = assert!(FIRST << CHUNKS == Request::MAX_ACTIVE);

/// The words of all slots of a channel, in chunks that never move.
#[derive(Debug)]
pub(crate) struct StateWords {
    /// The first chunk, accessible without a look-up. Almost every program's slots fit into it.
    first: Box<[AtomicU64; FIRST]>,
    /// The other chunks, each twice as large as the one before.
    more: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
}

impl StateWords {
    pub(crate) fn new() -> Self {
        let words = Self {
            first: Box::new([const { AtomicU64::new(0) }; FIRST]),
            more: [const { OnceLock::new() }; CHUNKS],
        };
        let done = Request::DONE;
        words.set(done.index(), done.generation(), State::Complete);
        words
    }

    /// Makes sure that the new slot `index` has a word, with the first generation.
    pub(crate) fn reserve(&self, index: u32) {
        if index as usize >= FIRST {
            let (chunk, _) = place(index);
            self.more[chunk]
                .get_or_init(|| (0..FIRST << chunk).map(|_| AtomicU64::new(0)).collect());
        }
        self.set(index, 1, State::Free);
    }

    #[inline]
    fn word(&self, index: u32) -> Option<&AtomicU64> {
        match self.first.get(index as usize) {
            Some(word) => Some(word),
            None => self.word_beyond(index),
        }
    }

    #[cold]
    #[inline(never)]
    fn word_beyond(&self, index: u32) -> Option<&AtomicU64> {
        let (chunk, offset) = place(index);
        self.more.get(chunk)?.get()?.get(offset)
    }

    /// The address of a slot's word, for prefetching; null if there is none.
    pub(crate) fn address(&self, index: u32) -> *const AtomicU64 {
        self.word(index)
            .map_or(std::ptr::null(), std::ptr::from_ref)
    }

    /// Generation and state of a slot; generation 0 if there is no such slot.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> (u32, State) {
        // SYNC POINT 1: Acquire, pairs with the Release store in `change`.
        let word = self
            .word(index)
            .map_or(0, |word| word.load(Ordering::Acquire));
        ((word >> 32) as u32, State::from_low(word))
    }

    /// The state of a request; `None` if the handle is stale.
    #[inline]
    pub(crate) fn state_of(&self, request: Request) -> Option<State> {
        let (generation, state) = self.get(request.index());
        // Compares the whole handle, because different channel bits make a different handle.
        let whole = u64::from(generation) << 32 | u64::from(request.index());
        (request.to_bits() == whole && state != State::Free && generation != 0).then_some(state)
    }

    /// Whether a request is complete and its slot holds nothing but a good status, in one
    /// comparison. `false` for stale handles and for null.
    #[inline]
    pub(crate) fn is_quiet(&self, request: Request) -> bool {
        let bits = request.to_bits();
        // If there are channel bits, the lower half is not the index of an existing slot.
        let quiet = bits >> 32 << 32 | QUIET | State::Complete as u64;
        self.word(bits as u32)
            // SYNC POINT 1: Acquire, pairs with the Release store in `change`.
            .is_some_and(|word| word.load(Ordering::Acquire) == quiet)
    }

    /// Changes a slot's state and returns its generation, or 0 if there is no such slot. Needs the
    /// channel's lock, as all writes do.
    #[inline]
    pub(crate) fn set_state(&self, index: u32, state: State) -> u32 {
        self.change(index, |generation| (generation, state as u64))
    }

    /// Marks a slot as complete, with nothing but a good status, and returns its generation.
    #[inline]
    pub(crate) fn set_quiet(&self, index: u32) -> u32 {
        self.change(index, |generation| {
            (generation, State::Complete as u64 | QUIET)
        })
    }

    /// Frees a slot. Its handles are stale from now on.
    #[inline]
    pub(crate) fn free(&self, index: u32) {
        self.change(index, |generation| {
            (Request::next_generation(generation), State::Free as u64)
        });
    }

    fn set(&self, index: u32, generation: u32, state: State) {
        self.change(index, |_| (generation, state as u64));
    }

    #[inline]
    fn change(&self, index: u32, how: impl FnOnce(u32) -> (u32, u64)) -> u32 {
        let Some(word) = self.word(index) else {
            return 0;
        };
        // Relaxed: all writers hold the lock.
        let (generation, low) = how((word.load(Ordering::Relaxed) >> 32) as u32);
        // SYNC POINT 1: Release, pairs with the Acquire loads in `get` and `is_quiet`.
        word.store(u64::from(generation) << 32 | low, Ordering::Release);
        generation
    }
}

/// Chunk and offset of a slot beyond the first chunk.
fn place(index: u32) -> (usize, usize) {
    let index = index as usize;
    let chunk = (index / FIRST).ilog2() as usize;
    (chunk, index - (FIRST << chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_dense() {
        assert_eq!(place(1024), (0, 0));
        assert_eq!(place(2047), (0, 1023));
        assert_eq!(place(2048), (1, 0));
        assert_eq!(place(Request::MAX_ACTIVE as u32 - 1), (9, 512 * 1024 - 1));
    }

    #[test]
    fn what_is_done_is_complete_from_the_beginning() {
        let state = StateWords::new().state_of(Request::DONE);
        assert_eq!(state, Some(State::Complete));
        assert!(
            !StateWords::new().is_quiet(Request::DONE),
            "no slot is freed"
        );
    }

    #[test]
    fn quiet_is_what_is_complete_without_anything_else() {
        let words = StateWords::new();
        for index in [5, FIRST as u32, 3000] {
            words.reserve(index);
            let request = Request::new(0, index, 7);
            for (state, generation) in [(State::Active, 7), (State::Complete, 7)] {
                words.set(index, generation, state);
                assert!(!words.is_quiet(request));
            }
            assert_eq!(words.set_quiet(index), 7);
            assert!(words.is_quiet(request));
            assert_eq!(words.state_of(request), Some(State::Complete));
            assert!(!words.is_quiet(Request::new(0, index, 8)));
            assert!(!words.is_quiet(Request::new(1, index, 7)));
            words.free(index);
            assert!(!words.is_quiet(request));
            assert_eq!(words.get(index), (8, State::Free));
        }
        assert!(!words.is_quiet(Request::NULL));
    }

    #[test]
    fn stale_handles_are_seen() {
        let words = StateWords::new();
        words.reserve(3000);
        assert_eq!(words.get(3000), (1, State::Free));
        words.set(3000, 7, State::Active);
        assert_eq!(
            words.state_of(Request::new(0, 3000, 7)),
            Some(State::Active)
        );
        assert_eq!(words.state_of(Request::new(0, 3000, 6)), None);
        words.set(3000, 8, State::Free);
        assert_eq!(words.state_of(Request::new(0, 3000, 7)), None);
        assert_eq!(words.state_of(Request::new(0, 3000, 8)), None);
        assert_eq!(words.state_of(Request::new(0, 500_000, 1)), None);
    }
}
