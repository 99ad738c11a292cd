//! Facts about the queues, each shown by one case.

use crate::matching::UnexpectedQueue;
use crate::matching::recent::RECENT;
use crate::matching::{Arrived, Envelope, Matcher, Pattern, PostedQueue, Received};

fn envelope(source: u32, tag: u32) -> Envelope {
    Envelope {
        context: 1,
        source,
        tag,
    }
}

fn pattern(source: Option<u32>, tag: Option<u32>) -> Pattern {
    Pattern {
        context: 1,
        source,
        tag,
    }
}

#[test]
fn wildcards_and_exact_receives_are_served_in_posting_order() {
    let mut posted = PostedQueue::new();
    let shapes = [
        pattern(Some(3), Some(4)),
        pattern(None, Some(4)),
        pattern(Some(3), None),
        pattern(None, None),
    ];
    // Every receive matches the message, so they are served in the order in which they came. There
    // are more of them than the array of recent entries holds, so some are found by the index.
    let rounds = 2 * RECENT / shapes.len();
    for round in 0..rounds {
        for (shape, pattern) in shapes.iter().enumerate() {
            posted.post(*pattern, round * shapes.len() + shape);
        }
    }
    for expected in 0..rounds * shapes.len() {
        assert_eq!(posted.match_arrival(&envelope(3, 4)), Some(expected));
    }
    assert!(posted.is_empty());
}

#[test]
fn a_message_only_meets_receives_of_its_context() {
    let mut posted = PostedQueue::new();
    posted.post(Pattern::any(2), ());
    assert_eq!(posted.match_arrival(&envelope(0, 0)), None);
    assert_eq!(posted.len(), 1);
}

#[test]
fn extreme_values_are_values_and_not_wildcards() {
    let mut posted = PostedQueue::new();
    for number in [0, u32::MAX] {
        for _ in 0..10 {
            posted.post(pattern(Some(number), Some(number)), number);
        }
    }
    assert_eq!(posted.match_arrival(&envelope(0, u32::MAX)), None);
    assert_eq!(posted.match_arrival(&envelope(u32::MAX, 0)), None);
    assert_eq!(posted.match_arrival(&envelope(0, 0)), Some(0));
    let top = envelope(u32::MAX, u32::MAX);
    assert_eq!(posted.match_arrival(&top), Some(u32::MAX));
}

#[test]
fn a_posted_id_is_stale_once_its_slot_is_reused() {
    let mut posted = PostedQueue::new();
    let first = posted.post(pattern(Some(0), Some(0)), 'a');
    assert_eq!(posted.get(first), Some((pattern(Some(0), Some(0)), &'a')));
    assert_eq!(posted.match_arrival(&envelope(0, 0)), Some('a'));
    let second = posted.post(pattern(Some(0), Some(0)), 'b');
    assert_ne!(first, second);
    assert_eq!(posted.get(first), None);
    assert_eq!(posted.cancel(first), None);
    assert_eq!(posted.cancel(second), Some('b'));
    assert_eq!(posted.cancel(second), None);
}

#[test]
fn an_unexpected_id_is_stale_once_taken_and_after_the_memory_is_gone() {
    let mut unexpected = UnexpectedQueue::new();
    let ids: Vec<_> = (0..1000)
        .map(|n| unexpected.push(envelope(0, n), n))
        .collect();
    assert_eq!(unexpected.drain_if(|_, _| true).len(), 1000);
    // Fills and empties a little, often enough that all chunks but one are freed.
    for n in 0..1000 {
        unexpected.push(envelope(0, n), n);
        assert!(unexpected.take_match(&Pattern::any(1)).is_some());
    }
    assert_eq!(unexpected.footprint().0, 1);
    for id in ids {
        assert_eq!(unexpected.get(id), None);
        assert!(unexpected.get_mut(id).is_none());
        assert_eq!(unexpected.take(id), None);
    }
}

#[test]
fn a_probe_leaves_the_message_and_its_id_takes_that_very_message() {
    let mut unexpected = UnexpectedQueue::new();
    for n in 0..20 {
        unexpected.push(envelope(n % 2, n), n);
    }
    let found = unexpected.find(&pattern(Some(1), None)).expect("source 1");
    assert_eq!(unexpected.find(&pattern(Some(1), None)), Some(found));
    assert_eq!(unexpected.len(), 20);
    *unexpected.get_mut(found).expect("it waits").1 += 100;
    assert_eq!(unexpected.take(found), Some((envelope(1, 1), 101)));
    let next = unexpected.take_match(&pattern(Some(1), None));
    assert_eq!(next, Some((envelope(1, 3), 3)));
}

#[test]
fn draining_takes_what_it_is_told_in_order_and_leaves_the_rest_in_order() {
    let mut posted = PostedQueue::new();
    let mut unexpected = UnexpectedQueue::new();
    for n in 0..50 {
        posted.post(pattern(Some(n % 5), None), n);
        unexpected.push(envelope(n % 5, n), n);
    }
    let failed = posted.drain_if(|pattern, _| pattern.source == Some(2));
    let expected: Vec<u32> = (0..50).filter(|n| n % 5 == 2).collect();
    assert_eq!(failed.iter().map(|(_, n)| *n).collect::<Vec<_>>(), expected);
    let lost = unexpected.drain_if(|envelope, _| envelope.source == 2);
    assert_eq!(lost.iter().map(|(_, n)| *n).collect::<Vec<_>>(), expected);

    let rest: Vec<u32> = (0..50).filter(|n| n % 5 != 2).collect();
    assert_eq!(posted.iter().map(|(_, _, n)| *n).collect::<Vec<_>>(), rest);
    let left = unexpected.iter().map(|(_, _, n)| *n);
    assert_eq!(left.collect::<Vec<_>>(), rest);
}

#[test]
fn nothing_can_be_both_posted_and_unexpected() {
    let mut matcher = Matcher::new();
    assert!(matches!(
        matcher.arrive(envelope(0, 1), 'm'),
        Arrived::Stored(_)
    ));
    let other = matcher.receive(pattern(None, Some(2)), 1);
    assert!(matches!(other, Received::Posted(_)));
    let got = matcher.receive(pattern(None, Some(1)), 2);
    assert_eq!(got, Received::Matched(2, envelope(0, 1), 'm'));
    assert_eq!(
        matcher.arrive(envelope(9, 2), 'n'),
        Arrived::Matched(1, 'n')
    );
    assert!(matcher.posted.is_empty() && matcher.unexpected.is_empty());
}

#[test]
fn overlap_is_what_some_envelope_matches_both_of() {
    let values = [None, Some(0), Some(1)];
    let patterns: Vec<Pattern> = values
        .iter()
        .flat_map(|&source| values.iter().map(move |&tag| pattern(source, tag)))
        .collect();
    for a in &patterns {
        for b in &patterns {
            let shared = (0..2)
                .flat_map(|source| (0..2).map(move |tag| envelope(source, tag)))
                .any(|e| a.matches(&e) && b.matches(&e));
            assert_eq!(a.overlaps(b), shared, "{a:?} {b:?}");
        }
    }
}

#[test]
fn debug_output_lists_the_entries_in_order() {
    let mut posted = PostedQueue::with_capacity(10);
    posted.post(Pattern::any(0), 'a');
    posted.post(Pattern::any(1), 'b');
    let text = format!("{posted:?}");
    assert!(text.find("'a'").expect("first") < text.find("'b'").expect("second"));
}

#[test]
fn what_is_asked_for_ahead_is_what_matches() {
    let mut posted = PostedQueue::new();
    let steps = |posted: &PostedQueue<u32>, tag| -> Vec<Option<u32>> {
        let all = (0..=PostedQueue::<u32>::AHEAD + 1).rev();
        all.map(|places| posted.prefetch(&envelope(2, tag), places).copied())
            .collect()
    };
    assert!(
        steps(&posted, 5).iter().all(Option::is_none),
        "an empty one"
    );
    for tag in 0..1000 {
        posted.post(Pattern::exact(&envelope(2, tag)), tag);
    }
    for tag in (0..900).rev() {
        let found: Vec<u32> = steps(&posted, tag).into_iter().flatten().collect();
        assert_eq!(found, [tag], "in one step");
        assert_eq!(posted.match_arrival(&envelope(2, tag)), Some(tag));
        assert!(steps(&posted, tag).iter().all(Option::is_none));
    }
}
