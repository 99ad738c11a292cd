//! A card that breaks its promises is detected before its reports do harm.

use std::collections::VecDeque;

use super::super::{
    Breach, Event, Message, OffloadCaps, Outcome, Posting, ReceiveId, Refusal, ShadowList,
    TagOffload,
};
use super::envelope;
use crate::matching::{Envelope, Pattern};

/// A card that takes everything, and reports what the test tells it to.
struct Script(VecDeque<Event<u32, u32>>);

impl TagOffload for Script {
    type Buffer = ();
    type Eager = u32;
    type Offer = u32;

    fn caps(&self) -> OffloadCaps {
        OffloadCaps::ALL
    }

    fn post(
        &mut self,
        _receive: ReceiveId,
        _pattern: &Pattern,
        _buffer: &(),
        _len: usize,
        _seen: u64,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    fn cancel(&mut self, _receive: ReceiveId, _force: bool) {}

    fn poll(&mut self) -> Option<Event<u32, u32>> {
        self.0.pop_front()
    }
}

type Shadow = ShadowList<char, Script>;

/// A list with two receives from any source that match the same messages, and their ids.
fn two_receives() -> (Shadow, ReceiveId, ReceiveId) {
    let mut shadow = ShadowList::new(Script(VecDeque::new()), 0);
    let mut post = |value| match shadow.receive(Pattern::any(0), 8, (), value) {
        Posting::Posted(id) => id,
        Posting::Matched { .. } => panic!("nothing waits for {value}"),
    };
    let (first, second) = (post('a'), post('b'));
    (shadow, first, second)
}

type Ended = Option<Outcome<char, u32, u32>>;

/// Reports events one by one until there are no more, or until one is rejected.
fn report(
    shadow: &mut Shadow,
    events: impl IntoIterator<Item = Event<u32, u32>>,
) -> Result<Vec<Ended>, Breach> {
    shadow.device_mut().0.extend(events);
    std::iter::from_fn(|| shadow.progress().transpose()).collect()
}

const MESSAGE: Envelope = Envelope {
    context: 0,
    source: 1,
    tag: 2,
};

fn completed(receive: ReceiveId) -> Event<u32, u32> {
    Event::Completed {
        receive,
        envelope: MESSAGE,
        len: 8,
        inline: None,
    }
}

fn breach_of(events: impl FnOnce(ReceiveId, ReceiveId) -> Vec<Event<u32, u32>>) -> Breach {
    let (mut shadow, first, second) = two_receives();
    let events = events(first, second);
    report(&mut shadow, events).expect_err("a promise was broken")
}

#[test]
fn a_completion_without_a_consumed_event_is_as_good() {
    let (mut shadow, first, second) = two_receives();
    let events = [Event::Added(first), Event::Added(second), completed(first)];
    let ended = report(&mut shadow, events).expect("all promises kept");
    let delivered = Outcome::Delivered {
        value: 'a',
        envelope: MESSAGE,
        len: 8,
        inline: None,
    };
    assert_eq!(ended, [None, None, Some(delivered)]);
    assert_eq!(shadow.len(), 1);
}

#[test]
fn the_later_of_two_receives_may_not_be_served_first() {
    let breach = breach_of(|first, second| {
        vec![Event::Added(first), Event::Added(second), completed(second)]
    });
    assert!(matches!(breach, Breach::Overtaken { envelope, .. } if envelope == MESSAGE));
}

#[test]
fn a_message_may_not_be_given_to_a_receive_that_does_not_match() {
    let (mut shadow, first, _) = two_receives();
    let elsewhere = Event::Consumed {
        receive: first,
        envelope: Envelope {
            context: 9,
            ..MESSAGE
        },
    };
    let breach = report(&mut shadow, [Event::Added(first), elsewhere]);
    assert!(matches!(breach, Err(Breach::Overtaken { .. })));
}

#[test]
fn a_message_for_a_listed_receive_may_not_be_handed_up() {
    let handed_up = Event::Unexpected {
        envelope: envelope(1, 2),
        message: Message::Eager(3),
    };
    let breach = breach_of(|first, _| vec![Event::Added(first), handed_up]);
    let text = breach.to_string();
    assert!(matches!(breach, Breach::NotMatched { .. }));
    assert!(text.contains("tag 2 from rank 1"), "{text}");
}

#[test]
fn events_about_receives_that_are_not_with_the_device_are_refused() {
    type Story = fn(ReceiveId) -> Vec<Event<u32, u32>>;
    let stories: [(&str, Story); 5] = [
        ("completed", |id| vec![completed(id)]),
        ("completed", |id| {
            vec![Event::Added(id), completed(id), completed(id)]
        }),
        ("added", |id| vec![Event::Added(id), Event::Added(id)]),
        ("cancelled", |id| {
            vec![Event::Added(id), Event::Cancelled(id)]
        }),
        ("added", |id| {
            vec![Event::Added(id), completed(id), Event::Added(id)]
        }),
    ];
    for (expected, story) in stories {
        match breach_of(|first, _| story(first)) {
            Breach::NotWithDevice { event, .. } => assert_eq!(event, expected),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_refusal_of_a_listed_receive_is_refused() {
    let breach = breach_of(|first, _| vec![Event::Added(first), Event::Refused(first)]);
    assert!(matches!(
        breach,
        Breach::NotWithDevice {
            event: "refused",
            ..
        }
    ));
}
