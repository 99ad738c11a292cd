//! Costs do not grow with the queues. These tests count work rather than time it.

use crate::matching::{Envelope, Pattern, PostedQueue, UnexpectedQueue};

/// Most steps that an operation may take: a search of the whole ring of recent entries, and filing
/// eight of them, under four keys each, with the bucket splits that this causes.
const BOUND: u64 = 256;

const MANY: u32 = 100_000;

fn envelope(source: u32, tag: u32) -> Envelope {
    Envelope {
        context: 0,
        source,
        tag,
    }
}

fn pattern(source: Option<u32>, tag: Option<u32>) -> Pattern {
    Pattern {
        context: 0,
        source,
        tag,
    }
}

/// Runs one operation and fails if it did more work than any operation may.
fn bounded_post<R>(
    queue: &mut PostedQueue<u32>,
    call: impl FnOnce(&mut PostedQueue<u32>) -> R,
) -> R {
    let before = queue.steps();
    let result = call(queue);
    let taken = queue.steps() - before;
    assert!(
        taken <= BOUND,
        "{taken} steps with {} receives",
        queue.len()
    );
    result
}

fn bounded_unexpected<R>(
    queue: &mut UnexpectedQueue<u32>,
    call: impl FnOnce(&mut UnexpectedQueue<u32>) -> R,
) -> R {
    let before = queue.steps();
    let result = call(queue);
    let taken = queue.steps() - before;
    assert!(
        taken <= BOUND,
        "{taken} steps with {} messages",
        queue.len()
    );
    result
}

/// The steps of a ping-pong's receive, message, receive, message, while `waiting` receives are
/// posted.
fn steps_past_posted(waiting: u32) -> u64 {
    let mut queue = PostedQueue::new();
    for n in 0..waiting {
        let shape = match n % 4 {
            0 => pattern(Some(n), Some(n)),
            1 => pattern(None, Some(n)),
            2 => pattern(Some(n), None),
            _ => pattern(Some(n / 8), Some(MANY + n)),
        };
        bounded_post(&mut queue, |queue| queue.post(shape, n));
    }
    let before = queue.steps();
    // Many different keys, so that the chance fill of one key's bucket does not matter.
    for ping in MANY * 10..MANY * 10 + 1000 {
        bounded_post(&mut queue, |queue| {
            queue.post(pattern(Some(ping), Some(ping)), ping)
        });
        let got = bounded_post(&mut queue, |queue| {
            queue.match_arrival(&envelope(ping, ping))
        });
        assert_eq!(got, Some(ping));
        let none = bounded_post(&mut queue, |queue| {
            queue.match_arrival(&envelope(ping, ping))
        });
        assert_eq!(none, None);
    }
    queue.steps() - before
}

#[test]
fn a_match_past_a_hundred_thousand_receives_costs_what_it_costs_past_ten() {
    let few = steps_past_posted(10);
    let many = steps_past_posted(MANY);
    assert!(
        many <= few * 3 / 2,
        "{many} steps past {MANY}, {few} past 10"
    );
}

/// The pattern of a ping-pong: its own source, its own tag, or both.
type Ask = fn(Option<u32>) -> Pattern;

/// The steps of a message, a probe, a receive and a probe in vain, while `waiting` messages are
/// queued.
fn steps_past_unexpected(waiting: u32, ask: Ask) -> u64 {
    let mut queue = UnexpectedQueue::new();
    for n in 0..waiting {
        bounded_unexpected(&mut queue, |queue| queue.push(envelope(n, n), n));
    }
    let before = queue.steps();
    // Many different keys, so that the chance fill of one key's bucket does not matter.
    for ping in MANY * 10..MANY * 10 + 1000 {
        let asked = ask(Some(ping));
        bounded_unexpected(&mut queue, |queue| queue.push(envelope(ping, ping), ping));
        let found = bounded_unexpected(&mut queue, |queue| queue.find(&asked));
        assert!(found.is_some());
        let taken = bounded_unexpected(&mut queue, |queue| queue.take_match(&asked));
        assert_eq!(taken, Some((envelope(ping, ping), ping)));
        let none = bounded_unexpected(&mut queue, |queue| queue.find(&asked));
        assert_eq!(none, None);
    }
    queue.steps() - before
}

#[test]
fn a_find_past_a_hundred_thousand_messages_costs_what_it_costs_past_ten() {
    let asks: [Ask; 3] = [
        |ping| pattern(ping, ping),
        |ping| pattern(None, ping),
        |ping| pattern(ping, None),
    ];
    for ask in asks {
        let few = steps_past_unexpected(10, ask);
        let many = steps_past_unexpected(MANY, ask);
        let asked = ask(Some(0));
        assert!(
            many <= few * 3 / 2,
            "{many} steps past {MANY}, {few} past 10, {asked:?}"
        );
    }
}

#[test]
fn one_key_with_a_hundred_thousand_entries_drains_from_either_end_and_by_wildcard() {
    let mut posted = PostedQueue::new();
    let mut unexpected = UnexpectedQueue::new();
    let one = envelope(1, 1);
    let receives: Vec<_> = (0..MANY)
        .map(|n| bounded_post(&mut posted, |queue| queue.post(Pattern::exact(&one), n)))
        .collect();
    let messages: Vec<_> = (0..MANY)
        .map(|n| bounded_unexpected(&mut unexpected, |queue| queue.push(one, n)))
        .collect();
    for n in (MANY / 2..MANY).rev() {
        let receive = receives[n as usize];
        let message = messages[n as usize];
        let cancelled = bounded_post(&mut posted, |queue| queue.cancel(receive));
        assert_eq!(cancelled, Some(n));
        let taken = bounded_unexpected(&mut unexpected, |queue| queue.take(message));
        assert_eq!(taken, Some((one, n)));
    }
    for n in 0..MANY / 2 {
        let matched = bounded_post(&mut posted, |queue| queue.match_arrival(&one));
        assert_eq!(matched, Some(n));
        let any = Pattern::any(0);
        let taken = bounded_unexpected(&mut unexpected, |queue| queue.take_match(&any));
        assert_eq!(taken, Some((one, n)));
    }
    assert!(posted.is_empty() && unexpected.is_empty());
    assert_eq!(posted.footprint().2, 0, "no key outlives its entries");
    assert_eq!(unexpected.footprint().2, 0, "no key outlives its entries");
}

#[test]
fn a_phase_that_repeats_allocates_in_its_first_round_only() {
    let mut queue = UnexpectedQueue::new();
    let mut phase = |size: u32| {
        for n in 0..size {
            queue.push(envelope(n % 7, n), n);
        }
        for n in 0..size {
            assert!(queue.take_match(&pattern(None, Some(n))).is_some());
        }
        queue.footprint()
    };
    let first = phase(3000);
    for _ in 0..200 {
        assert_eq!(phase(3000), first);
    }
    // A program that continues with fewer entries gets its memory back, a chunk at a time.
    for _ in 0..200 {
        phase(80);
    }
    let last = phase(80);
    assert_eq!(
        last,
        (1, 2, 0),
        "one of slots, one of buckets, one of those behind"
    );
}

/// Keys as programs use them, and as a peer would that tries regular series of tags.
#[test]
fn regular_series_of_envelopes_spread_over_the_buckets() {
    type Series = fn(u32) -> Envelope;
    let series: [(&str, Series); 6] = [
        ("tags", |n| envelope(0, n)),
        ("sources", |n| envelope(n, 0)),
        ("both", |n| envelope(n, n)),
        ("high bits", |n| envelope(0, n << 15)),
        ("multiples", |n| {
            envelope(n % 16, n.wrapping_mul(0x9e37_79b9))
        }),
        ("grid", |n| envelope(n / 256, n % 256)),
    ];
    for (name, make) in series {
        let mut queue = PostedQueue::new();
        let count = 1 << 15;
        for n in 0..count {
            bounded_post(&mut queue, |queue| queue.post(Pattern::exact(&make(n)), n));
        }
        let before = queue.steps();
        for n in 0..count {
            let got = bounded_post(&mut queue, |queue| queue.match_arrival(&make(n)));
            assert_eq!(got, Some(n), "{name}");
        }
        let mean = (queue.steps() - before) as f64 / f64::from(count);
        // A search of a bucket and a removal from it. If buckets fill uniformly, there is seldom an
        // overflow bucket. There are few recent entries.
        assert!(mean < 2.5, "{name}: {mean} steps for each match");
    }
}
