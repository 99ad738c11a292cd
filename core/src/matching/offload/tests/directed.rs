//! Tests of one race or one rule each.

use super::super::{
    Breach, Cancel, Message, OffloadCaps, Outcome, Posting, ReceiveId, ShadowList, SimNic,
};
use super::{ENOUGH, envelope};
use crate::matching::Pattern;

type Shadow = ShadowList<char, SimNic<u32, u32>>;

fn shadow(caps: OffloadCaps) -> Shadow {
    ShadowList::new(SimNic::new(caps), 0)
}

fn exact(source: u32, tag: u32) -> Pattern {
    Pattern::exact(&envelope(source, tag))
}

fn any_source(tag: u32) -> Pattern {
    Pattern {
        source: None,
        ..exact(0, tag)
    }
}

fn post(shadow: &mut Shadow, pattern: Pattern, value: char) -> ReceiveId {
    match shadow.receive(pattern, 100, (), value) {
        Posting::Posted(id) => id,
        Posting::Matched { .. } => panic!("nothing waits for {value}"),
    }
}

fn send(shadow: &mut Shadow, source: u32, tag: u32, number: u32) {
    let nic = shadow.device_mut();
    nic.arrive_eager(envelope(source, tag), 4, number);
}

/// Lets card and software run until nothing changes. Returns which receive ended with which
/// message.
fn settle(shadow: &mut Shadow) -> Result<Vec<(char, Option<u32>)>, Breach> {
    let mut ended = Vec::new();
    for _ in 0..ENOUGH {
        let nic = shadow.device_mut();
        let busy = nic.execute_command() | nic.finish_transfer(0);
        match shadow.progress()? {
            Some(Some(outcome)) => ended.push(match outcome {
                Outcome::Delivered { value, inline, .. } => (value, inline),
                Outcome::Matched { value, message, .. } => match message {
                    Message::Eager(number) | Message::Rendezvous(number) => (value, Some(number)),
                },
                Outcome::Cancelled(value) => (value, None),
            }),
            Some(None) => {}
            None if busy => {}
            None => return Ok(ended),
        }
    }
    panic!("card and software go on for ever");
}

#[test]
fn a_message_passing_by_a_posting_is_given_to_it_by_the_software() {
    let mut shadow = shadow(OffloadCaps::ALL);
    post(&mut shadow, any_source(1), 'a');
    // The command is under way; the card does not know the receive yet.
    send(&mut shadow, 0, 1, 10);
    shadow.device_mut().execute_command();
    // Without the handshake this message would overtake the first.
    send(&mut shadow, 0, 1, 11);
    assert_eq!(settle(&mut shadow), Ok(vec![('a', Some(10))]));
    assert_eq!(shadow.counters().raced, 1);
    assert_eq!(shadow.counters().refused, 1);
    assert_eq!(shadow.unexpected().len(), 1);
    assert!(shadow.device().is_idle());
}

#[test]
fn a_device_without_the_handshake_is_found_out() {
    let nic = SimNic::new(OffloadCaps::ALL).without_handshake();
    let mut shadow: Shadow = ShadowList::new(nic, 0);
    let id = post(&mut shadow, any_source(1), 'a');
    send(&mut shadow, 0, 1, 10);
    shadow.device_mut().execute_command();
    send(&mut shadow, 0, 1, 11);
    let breach = settle(&mut shadow).expect_err("message 11 overtook message 10");
    assert_eq!(
        breach,
        Breach::NotWithDevice {
            event: "added",
            receive: id.to_bits()
        }
    );
    assert_eq!(ReceiveId::from_bits(id.to_bits()), id);
    assert!(
        breach
            .to_string()
            .contains("switch tag-matching offload off")
    );
}

#[test]
fn a_refused_receive_is_not_overtaken_by_a_later_one() {
    let mut shadow = shadow(OffloadCaps::ALL);
    post(&mut shadow, any_source(1), 'a');
    send(&mut shadow, 0, 2, 10); // Passes by and matches no receive, but increments the count.
    assert_eq!(shadow.progress(), Ok(Some(None)));
    // The first may or may not be in the card's list, so the second must wait for the answer.
    post(&mut shadow, any_source(1), 'b');
    assert_eq!(shadow.counters().held_by_epoch, 1);
    send(&mut shadow, 0, 1, 11);
    send(&mut shadow, 0, 1, 12);
    assert_eq!(
        settle(&mut shadow),
        Ok(vec![('a', Some(11)), ('b', Some(12))])
    );
}

#[test]
fn refused_receives_go_back_to_the_device_in_order() {
    let mut shadow = shadow(OffloadCaps {
        list_size: 3,
        ..OffloadCaps::ALL
    });
    for value in 'a'..='e' {
        post(&mut shadow, exact(0, 1), value);
    }
    send(&mut shadow, 0, 2, 10);
    assert_eq!(settle(&mut shadow), Ok(vec![]));
    assert_eq!(shadow.counters().refused, 3);
    assert_eq!((shadow.device().listed(), shadow.in_software()), (3, 2));
    for number in 0..5 {
        send(&mut shadow, 0, 1, number);
        let value = char::from(b'a' + number as u8);
        assert_eq!(settle(&mut shadow), Ok(vec![(value, Some(number))]));
    }
    assert_eq!(shadow.counters().matched, 5);
}

#[test]
fn a_wildcard_the_device_cannot_hold_blocks_exactly_what_it_overlaps() {
    let mut shadow = shadow(OffloadCaps {
        any_source: false,
        ..OffloadCaps::ALL
    });
    post(&mut shadow, any_source(1), 'w');
    post(&mut shadow, exact(0, 1), 'b');
    post(&mut shadow, exact(0, 2), 'f');
    assert_eq!(shadow.in_software(), 2);
    assert_eq!(shadow.counters().unsupported, 1);
    assert_eq!(shadow.counters().blocked, 1);
    assert_eq!(shadow.counters().posted, 1);
    assert_eq!(settle(&mut shadow), Ok(vec![]));
    // Once the wildcard is gone, the receives that it held up go to the card.
    send(&mut shadow, 5, 1, 10);
    assert_eq!(settle(&mut shadow), Ok(vec![('w', Some(10))]));
    assert_eq!(shadow.in_software(), 0);
    assert_eq!(shadow.device().listed(), 2);
}

#[test]
fn receives_without_room_follow_in_order_as_room_comes() {
    let mut shadow = shadow(OffloadCaps {
        list_size: 2,
        ..OffloadCaps::ALL
    });
    for value in 'a'..='e' {
        post(&mut shadow, exact(0, 1), value);
    }
    assert_eq!(settle(&mut shadow), Ok(vec![]));
    assert_eq!((shadow.device().listed(), shadow.in_software()), (2, 3));
    for number in 0..5 {
        send(&mut shadow, 0, 1, number);
        let value = char::from(b'a' + number as u8);
        assert_eq!(settle(&mut shadow), Ok(vec![(value, Some(number))]));
    }
    assert_eq!(shadow.counters().matched, 5, "each was taken in the device");
    assert!(shadow.device().is_idle());
}

#[test]
fn small_receives_stay_in_software_and_keep_their_order() {
    let nic = SimNic::new(OffloadCaps::ALL);
    let mut shadow: Shadow = ShadowList::new(nic, 101);
    post(&mut shadow, exact(0, 1), 'a');
    post(&mut shadow, exact(0, 1), 'b');
    send(&mut shadow, 0, 1, 1);
    send(&mut shadow, 0, 1, 2);
    assert_eq!(
        settle(&mut shadow),
        Ok(vec![('a', Some(1)), ('b', Some(2))])
    );
    assert_eq!(shadow.counters().posted, 0);
}

#[test]
fn a_cancel_that_is_first_succeeds_and_one_that_is_late_delivers() {
    let mut shadow = shadow(OffloadCaps::ALL);
    let early = post(&mut shadow, exact(0, 1), 'a');
    assert_eq!(settle(&mut shadow), Ok(vec![]));
    assert_eq!(shadow.cancel(early), Cancel::Started);
    assert_eq!(shadow.cancel(early), Cancel::Started, "asked once only");
    assert_eq!(settle(&mut shadow), Ok(vec![('a', None)]));
    assert_eq!(shadow.cancel(early), Cancel::TooLate);

    let late = post(&mut shadow, exact(0, 1), 'b');
    assert_eq!(settle(&mut shadow), Ok(vec![]));
    assert_eq!(shadow.cancel(late), Cancel::Started);
    send(&mut shadow, 0, 1, 7); // The command to remove it is still under way.
    assert_eq!(settle(&mut shadow), Ok(vec![('b', Some(7))]));
    assert!(shadow.is_empty() && shadow.device().is_idle());
}

#[test]
fn a_cancel_of_a_receive_that_is_refused_succeeds() {
    let mut shadow = shadow(OffloadCaps::ALL);
    let id = post(&mut shadow, exact(0, 1), 'a');
    send(&mut shadow, 0, 2, 1);
    assert_eq!(shadow.cancel(id), Cancel::Started);
    assert_eq!(settle(&mut shadow), Ok(vec![('a', None)]));
    assert!(shadow.is_empty() && shadow.device().is_idle());
}

#[test]
fn a_cancel_in_software_is_done_at_once_and_lets_the_next_one_go() {
    let mut shadow = shadow(OffloadCaps {
        any_source: false,
        ..OffloadCaps::ALL
    });
    let wildcard = post(&mut shadow, any_source(1), 'w');
    post(&mut shadow, exact(0, 1), 'b');
    assert_eq!(shadow.cancel(wildcard), Cancel::Done('w'));
    assert_eq!(shadow.in_software(), 0);
    assert_eq!(shadow.counters().posted, 1);
    let listed: Vec<char> = shadow.iter().map(|(_, _, value)| *value).collect();
    assert_eq!(listed, ['b']);
}

#[test]
fn a_rendezvous_that_the_device_matches_is_finished_by_the_software() {
    let mut shadow = shadow(OffloadCaps::ALL);
    post(&mut shadow, exact(0, 1), 'a');
    assert_eq!(settle(&mut shadow), Ok(vec![]));
    let nic = shadow.device_mut();
    nic.arrive_rendezvous(envelope(0, 1), 9);
    nic.finish_transfer(0);
    assert_eq!(shadow.progress(), Ok(Some(None)), "consumed");
    assert_eq!(
        shadow.progress(),
        Ok(Some(Some(Outcome::Matched {
            value: 'a',
            envelope: envelope(0, 1),
            message: Message::Rendezvous(9),
        })))
    );
}
