//! Delays ranks now and then after they have posted. By then others have read the data, and have
//! taken its lines.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The delay: long enough for others to read a chunk.
const LATE: Duration = Duration::from_micros(400);

thread_local! {
    /// After how many posts this rank is delayed each time (0 for never), and how many it has made
    /// since.
    static TURNS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// From now on this rank is delayed after every `each` posts.
pub(super) fn begin(each: u32) {
    TURNS.set((each, 0));
}

/// To be called after each post.
pub(in crate::direct) fn linger() {
    let (each, made) = TURNS.get();
    if each == 0 {
        return;
    }
    let late = made + 1 == each;
    TURNS.set((each, if late { 0 } else { made + 1 }));
    let begin = Instant::now();
    while late && begin.elapsed() < LATE {
        std::hint::spin_loop();
    }
}
