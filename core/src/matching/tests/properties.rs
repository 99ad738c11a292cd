//! The queues compared with a model that is too simple to be wrong: vectors searched from the
//! front.

use crate::matching::{
    Arrived, Envelope, Matcher, Pattern, PostedId, PostedQueue, Received, UnexpectedId,
    UnexpectedQueue,
};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

/// MPI's rule for a pattern, field by field.
fn agrees(pattern: &Pattern, envelope: &Envelope) -> bool {
    pattern.context == envelope.context
        && pattern
            .source
            .is_none_or(|source| source == envelope.source)
        && pattern.tag.is_none_or(|tag| tag == envelope.tag)
}

/// Few different values, so that most things match something.
fn envelopes() -> impl Strategy<Value = Envelope> {
    (0..2u32, 0..3u32, 0..3u32).prop_map(|(context, source, tag)| Envelope {
        context,
        source,
        tag,
    })
}

fn patterns() -> impl Strategy<Value = Pattern> {
    (
        envelopes(),
        weighted(0.7, Just(())),
        weighted(0.7, Just(())),
    )
        .prop_map(|(envelope, source, tag)| Pattern {
            context: envelope.context,
            source: source.map(|()| envelope.source),
            tag: tag.map(|()| envelope.tag),
        })
}

#[derive(Clone, Debug)]
enum PostedCall {
    Post(Pattern),
    Arrive(Envelope),
    /// Any id ever handed out, so that most are stale.
    Cancel(prop::sample::Index),
    Drain(Pattern),
}

fn posted_calls() -> impl Strategy<Value = PostedCall> {
    prop_oneof![
        8 => patterns().prop_map(PostedCall::Post),
        4 => envelopes().prop_map(PostedCall::Arrive),
        3 => any::<prop::sample::Index>().prop_map(PostedCall::Cancel),
        1 => patterns().prop_map(PostedCall::Drain),
    ]
}

#[derive(Clone, Debug)]
enum UnexpectedCall {
    Push(Envelope),
    Find(Pattern),
    TakeMatch(Pattern),
    Take(prop::sample::Index),
    Drain(Pattern),
}

fn unexpected_calls() -> impl Strategy<Value = UnexpectedCall> {
    prop_oneof![
        8 => envelopes().prop_map(UnexpectedCall::Push),
        4 => patterns().prop_map(UnexpectedCall::Find),
        4 => patterns().prop_map(UnexpectedCall::TakeMatch),
        3 => any::<prop::sample::Index>().prop_map(UnexpectedCall::Take),
        1 => patterns().prop_map(UnexpectedCall::Drain),
    ]
}

#[derive(Clone, Debug)]
enum MatcherCall {
    Arrive(Envelope),
    Receive(Pattern),
    Cancel(prop::sample::Index),
}

fn matcher_calls() -> impl Strategy<Value = MatcherCall> {
    prop_oneof![
        5 => envelopes().prop_map(MatcherCall::Arrive),
        5 => patterns().prop_map(MatcherCall::Receive),
        1 => any::<prop::sample::Index>().prop_map(MatcherCall::Cancel),
    ]
}

/// Removes the first entry that satisfies a condition.
fn remove_first<E>(model: &mut Vec<E>, wanted: impl Fn(&E) -> bool) -> Option<E> {
    let at = model.iter().position(wanted)?;
    Some(model.remove(at))
}

proptest! {
    #[test]
    fn posted_queue_equals_the_model(seed: u64, calls in vec(posted_calls(), 0..400)) {
        let mut queue = PostedQueue::with_seed(seed);
        let mut model: Vec<(Pattern, usize)> = Vec::new();
        let mut ids: Vec<PostedId> = Vec::new();
        for call in calls {
            match call {
                PostedCall::Post(pattern) => {
                    model.push((pattern, ids.len()));
                    ids.push(queue.post(pattern, ids.len()));
                }
                PostedCall::Arrive(envelope) => {
                    let expected = remove_first(&mut model, |(p, _)| agrees(p, &envelope));
                    prop_assert_eq!(queue.peek_arrival(&envelope), expected.map(|(_, n)| ids[n]));
                    prop_assert_eq!(queue.match_arrival(&envelope), expected.map(|(_, n)| n));
                }
                PostedCall::Cancel(which) if !ids.is_empty() => {
                    let number = which.index(ids.len());
                    let expected = remove_first(&mut model, |&(_, n)| n == number);
                    let seen = queue.get(ids[number]).map(|(p, n)| (p, *n));
                    prop_assert_eq!(seen, expected);
                    prop_assert_eq!(queue.cancel(ids[number]), expected.map(|(_, n)| n));
                }
                PostedCall::Cancel(_) => {}
                PostedCall::Drain(like) => {
                    let gone = |p: &Pattern, n: &usize| *p == like && n & 3 != 0;
                    let expected: Vec<_> = model.extract_if(.., |(p, n)| gone(p, n)).collect();
                    prop_assert_eq!(queue.drain_if(gone), expected);
                }
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.is_empty(), model.is_empty());
        }
        let left: Vec<_> = queue.iter().map(|(id, p, n)| (id, p, *n)).collect();
        let expected: Vec<_> = model.iter().map(|&(p, n)| (ids[n], p, n)).collect();
        prop_assert_eq!(left, expected);
    }

    #[test]
    fn unexpected_queue_equals_the_model(seed: u64, calls in vec(unexpected_calls(), 0..400)) {
        let mut queue = UnexpectedQueue::with_seed(seed);
        let mut model: Vec<(Envelope, usize)> = Vec::new();
        let mut ids: Vec<UnexpectedId> = Vec::new();
        for call in calls {
            match call {
                UnexpectedCall::Push(envelope) => {
                    model.push((envelope, ids.len()));
                    ids.push(queue.push(envelope, ids.len()));
                }
                UnexpectedCall::Find(pattern) => {
                    let expected = model.iter().find(|(e, _)| agrees(&pattern, e));
                    let found = queue.find(&pattern);
                    prop_assert_eq!(found, expected.map(|&(_, n)| ids[n]));
                    let seen = found.and_then(|id| queue.get(id)).map(|(e, n)| (*e, *n));
                    prop_assert_eq!(seen, expected.copied());
                }
                UnexpectedCall::TakeMatch(pattern) => {
                    let expected = remove_first(&mut model, |(e, _)| agrees(&pattern, e));
                    prop_assert_eq!(queue.take_match(&pattern), expected);
                }
                UnexpectedCall::Take(which) if !ids.is_empty() => {
                    let number = which.index(ids.len());
                    let expected = remove_first(&mut model, |&(_, n)| n == number);
                    prop_assert_eq!(queue.take(ids[number]), expected);
                }
                UnexpectedCall::Take(_) => {}
                UnexpectedCall::Drain(like) => {
                    let gone = |e: &Envelope, n: &usize| agrees(&like, e) && n & 3 != 0;
                    let expected: Vec<_> = model.extract_if(.., |(e, n)| gone(e, n)).collect();
                    prop_assert_eq!(queue.drain_if(gone), expected);
                }
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.is_empty(), model.is_empty());
        }
        let left: Vec<_> = queue.iter().map(|(id, e, n)| (id, *e, *n)).collect();
        let expected: Vec<_> = model.iter().map(|&(e, n)| (ids[n], e, n)).collect();
        prop_assert_eq!(left, expected);
    }

    /// The pair rule end to end, and the fact that it rests on: however arrivals and receives
    /// interleave, the pairs are those of the rule applied once to everything that ever came.
    #[test]
    fn pairs_are_the_earliest_of_both(calls in vec(matcher_calls(), 0..300)) {
        let mut matcher: Matcher<usize, usize> = Matcher::new();
        let mut sends: Vec<Envelope> = Vec::new();
        let mut receives: Vec<(Pattern, Option<PostedId>, bool)> = Vec::new();
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for call in calls {
            match call {
                MatcherCall::Arrive(envelope) => {
                    if let Arrived::Matched(receive, message) = matcher.arrive(envelope, sends.len()) {
                        pairs.push((receive, message));
                    }
                    sends.push(envelope);
                }
                MatcherCall::Receive(pattern) => {
                    let number = receives.len();
                    let id = match matcher.receive(pattern, number) {
                        Received::Matched(receive, envelope, message) => {
                            prop_assert_eq!(envelope, sends[message]);
                            pairs.push((receive, message));
                            None
                        }
                        Received::Posted(id) => Some(id),
                    };
                    receives.push((pattern, id, false));
                }
                MatcherCall::Cancel(which) if !receives.is_empty() => {
                    let number = which.index(receives.len());
                    let cancelled = receives[number].1.and_then(|id| matcher.posted.cancel(id));
                    if let Some(value) = cancelled {
                        prop_assert_eq!(value, number);
                        receives[number].2 = true;
                    }
                }
                MatcherCall::Cancel(_) => {}
            }
        }
        let mut expected = Vec::new();
        let mut waiting: Vec<usize> = (0..sends.len()).collect();
        for (number, (pattern, _, cancelled)) in receives.iter().enumerate() {
            if *cancelled {
                continue;
            }
            if let Some(message) = remove_first(&mut waiting, |&m| agrees(pattern, &sends[m])) {
                expected.push((number, message));
            }
        }
        pairs.sort_unstable();
        prop_assert_eq!(pairs, expected);
        let left: Vec<usize> = matcher.unexpected.iter().map(|(_, _, m)| *m).collect();
        prop_assert_eq!(left, waiting);
    }
}
