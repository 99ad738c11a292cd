//! The choice of a way when the costs are known.

use super::class::*;
use super::sender::*;
use super::*;

/// How often each way is taken in `count` transfers, if a way costs what `cost` says.
fn run(class: &mut Class, count: usize, cost: impl Fn(Way) -> u64) -> [usize; 3] {
    let mut taken = [0; 3];
    for _ in 0..count {
        let (way, _) = class.choose(|_| true);
        taken[way as usize] += 1;
        class.learn(way, cost(way), 1);
    }
    taken
}

#[test]
fn the_best_way_is_taken_and_the_others_are_tried_rarely() {
    for best in ALL {
        let mut class = Class::NEW;
        let taken = run(&mut class, 10_000, |way| if way == best { 50 } else { 200 });
        assert!(taken[best as usize] > 9_900, "{taken:?}");
        assert!(taken.iter().all(|&n| n > 0), "{taken:?}");
    }
}

#[test]
fn what_is_far_worse_is_tried_with_few() {
    let mut sender = Sender::new();
    let class = sender.class;
    let mut tried = [0; 3];
    while let (way, room, true) = sender.choose(|_| true) {
        tried[way as usize] += room;
        let cost = [100, 150, 400][way as usize];
        sender.classes[class].tried(way, cost, room, sender.probe());
    }
    let each = PROBE * u32::from(TRIALS);
    assert_eq!(tried, [each, each, 2 * PROBE], "the last one only twice");
    for (way, probe) in [(Way::Pull, PROBE), (Way::Split, FEW)] {
        sender.way = way;
        assert_eq!(sender.probe(), probe);
    }
    // The way has become better: that is noticed, and it is then measured like the others.
    sender.classes[class].learn(Way::Split, 50, FEW);
    sender.classes[class].learn(Way::Split, 50, FEW);
    assert_eq!(sender.probe(), PROBE);
}

/// A process may have few messages that are so long.
#[test]
fn the_longer_the_messages_the_fewer_try_a_way() {
    for (len, probe) in [
        (1 << 12, PROBE),
        (1 << 18, PROBE),
        (1 << 19, 4),
        (1 << 20, FEW),
    ] {
        let mut sender = Sender::new();
        sender.class = class_of(len, false);
        assert_eq!(sender.choose(|_| true).1, probe, "{len} bytes");
    }
}

/// A split takes at least half of a pull.
#[test]
fn where_pulls_are_far_worse_splits_are_not_tried_at_first() {
    for (pull, splits) in [(199, true), (200, false)] {
        let mut class = Class::NEW;
        let cost = |way| [100, pull, 90][way as usize];
        let first = run(&mut class, 3 * usize::from(TRIALS), cost);
        assert_eq!(first[Way::Split as usize] > 0, splits, "{pull}: {first:?}");
        // Later on they are tried all the same, and then they count.
        run(&mut class, 2 * EARLY_RETRY as usize, cost);
        assert_eq!(class.best(), Some(Way::Split), "{pull}");
    }
    // A way that has been tried once is tried as often as the others.
    let far_worse = |sender: &mut Sender, way: Way| {
        (0..TRIALS).for_each(|_| sender.classes[4].learn(Way::Stream, 100, 1));
        sender.classes[4].learn(way, 300, 1);
        (0..TRIALS).for_each(|_| sender.classes[4].learn(Way::Pull, 205, 1));
        sender.class = 4;
    };
    let mut sender = Sender::new();
    far_worse(&mut sender, Way::Split);
    assert_eq!(sender.choose(|_| true).0, Way::Split);
    // One that has not is not the best, whatever becomes of the others; nor for other lengths.
    let mut sender = Sender::new();
    far_worse(&mut sender, Way::Pull);
    assert_eq!(sender.choose(|_| true), (Way::Stream, PERIOD, false));
    sender.class = 6;
    assert_eq!(sender.choose(|_| true), (Way::Stream, PROBE, true));
    for _ in 0..20 {
        sender.classes[4].learn(Way::Stream, 190, 1);
    }
    assert_eq!(sender.classes[4].best(), Some(Way::Stream));
}

#[test]
fn a_change_is_noticed() {
    let mut class = Class::NEW;
    run(&mut class, 100, |way| 100 + 100 * way as u64);
    // The best way becomes the worst: only a few transfers still take it.
    let worse = |way| if way == Way::Stream { 1000 } else { 200 };
    let taken = run(&mut class, 100, worse);
    assert!(taken[Way::Stream as usize] < 15, "{taken:?}");
    // Another way becomes better: the next trial finds out, after `LAST_RETRY` at the latest.
    let better = |way| if way == Way::Split { 10 } else { 200 };
    let taken = run(&mut class, 4 * LAST_RETRY as usize, better);
    assert!(taken[Way::Split as usize] > 1000, "{taken:?}");
}

#[test]
fn what_would_go_unasked_is_priced_as_that() {
    let cost = |way| [300, 200, 400][way as usize];
    for (unasked, best) in [(240, Way::Pull), (160, Way::Stream)] {
        let mut class = Class::NEW;
        // The first copy finds cold memory.
        class.would_cost(10_000);
        (0..10).for_each(|_| class.would_cost(unasked));
        let taken = run(&mut class, 1000, cost);
        assert!(taken[best as usize] > 900, "{unasked}: {taken:?}");
        class.would_cost(100_000);
        assert!(class.unasked < Some(2 * unasked), "one interruption");
    }
}

#[test]
fn the_first_transfers_of_a_length_do_not_decide() {
    let believed = Class {
        cost: [20, 40, 18],
        trials: [TRIALS; ALL.len()],
        believed: [true; ALL.len()],
        ..Class::NEW
    };
    let mut class = believed;
    // Transfers one after the other, of which the first finds cold memory.
    for cost in [900, 300, 19, 19, 19, 19, 19, 19] {
        assert_eq!(class.choose(|_| true), (Way::Split, true));
        class.tried(Way::Split, cost, 1, PROBE);
    }
    assert_eq!(class.cost[Way::Split as usize], 19);
    assert_eq!(class.choose(|_| true), (Way::Split, false));
    // The transfers of a window are measured together.
    let mut class = believed;
    class.tried(Way::Split, 300, PROBE, PROBE);
    assert_eq!(class.choose(|_| true), (Way::Stream, true));
}

#[test]
fn one_interruption_changes_nothing() {
    let mut class = Class::NEW;
    run(&mut class, 100, |way| 100 + 300 * way as u64);
    class.learn(Way::Stream, 1500, 1);
    assert_eq!(class.choose(|_| true).0, Way::Stream);
}

#[test]
fn what_is_not_allowed_is_not_taken() {
    let mut class = Class::NEW;
    for _ in 0..1000 {
        let (way, _) = class.choose(|way| way != Way::Split);
        assert_ne!(way, Way::Split);
        class.learn(way, 100, 1);
    }
}

#[test]
fn transfers_of_one_period_take_one_way_and_others_wait() {
    let mut ways = Ways::default();
    for _ in 0..100 {
        let mut begun = 0;
        let way = ways.begin(3, 100_000, false, 0, |_| true);
        while let Some(next) = ways.begin(3, 1 << 20, false, 7, |_| true) {
            assert_eq!(Some(next), way);
            begun += 1;
        }
        assert!([PERIOD, PROBE, FEW, RESTS * PERIOD].contains(&(begun + 1)));
        assert!((0..begun).all(|_| ways.end(3).is_empty()));
        assert_eq!(ways.end(3), [7]);
    }
    ways.forget(3);
    assert!(ways.end(3).is_empty());
}

#[test]
fn both_ways_and_one_way_are_known_apart() {
    let mut sender = Sender::new();
    for (both, best) in [(false, Way::Split), (true, Way::Pull)] {
        let class = &mut sender.classes[class_of(1 << 18, both)];
        run(class, 100, |way| if way == best { 10 } else { 200 });
    }
    for (both, best) in [(true, Way::Pull), (false, Way::Split)] {
        for len in [1 << 18, 1 << 20] {
            sender.begin_period(class_of(len, both), |_| true);
            assert_eq!(sender.way, best, "{len} bytes, both ways: {both}");
        }
    }
}

#[test]
fn most_periods_of_what_is_known_are_not_measured() {
    let (mut ways, mut measured) = (Ways::default(), 0);
    for _ in 0..20_000 {
        assert!(ways.begin(3, 1 << 16, false, 0, |_| true).is_some());
        measured += u32::from(ways.senders[&3].timed);
        assert!(ways.end(3).is_empty());
    }
    assert!((100..10_000).contains(&measured), "{measured}");
}

#[test]
fn only_what_is_streamed_already_is_sure_to_be() {
    let mut ways = Ways::default();
    assert!(!ways.go_on_streaming(3, 1 << 16, false), "nothing is known");
    for best in [Way::Pull, Way::Stream] {
        while ways.begin(3, 1 << 16, false, 0, |way| way == best) != Some(best) {}
        let streamed = best == Way::Stream;
        assert_eq!(ways.go_on_streaming(3, 1 << 16, false), streamed);
        assert!(!ways.go_on_streaming(4, 1 << 16, false));
        assert!(ways.end(3).is_empty());
        assert!(
            !ways.go_on_streaming(3, 1 << 20, false),
            "of another length"
        );
    }
}

#[test]
fn what_is_sure_to_be_a_pull_becomes_one() {
    let mut ways = Ways::default();
    assert!(!ways.go_on_pulling(3, 1 << 16, false), "nothing is known");
    let mut sender = Sender::new();
    let class = &mut sender.classes[class_of(1 << 16, false)];
    run(
        class,
        100_000,
        |way| if way == Way::Pull { 10 } else { 2_000 },
    );
    ways.senders.insert(3, Box::new(sender));
    let mut sure = 0;
    for _ in 0..4_000 {
        let is_sure = ways.go_on_pulling(3, 1 << 16, false);
        let way = ways.begin(3, 1 << 16, false, 0, |_| true);
        assert!(!is_sure || way == Some(Way::Pull), "{way:?}");
        let under_way = ways.go_on_pulling(3, 1 << 16, false);
        assert!(!under_way, "a second one would be measured with the first");
        assert!(ways.end(3).is_empty());
        sure += u32::from(is_sure);
    }
    assert!(sure > 2_000, "{sure}");
    assert!(!ways.go_on_pulling(3, 1 << 20, false), "of another length");
}

#[test]
fn what_is_known_of_other_lengths_is_believed_at_first() {
    let mut sender = Sender::new();
    let known = &mut sender.classes[4];
    run(known, 100, |way| if way == Way::Pull { 10 } else { 200 });
    sender.class = 7;
    assert_eq!(sender.choose(|_| true).0, Way::Pull);
}

#[test]
fn only_long_messages_are_split_where_they_go_both_ways() {
    for (len, both, split) in [
        (SPLIT_BOTH - 1, true, false),
        (SPLIT_BOTH, true, true),
        (1 << 14, false, true),
    ] {
        let mut ways = Ways::default();
        let all = taken_of(len, &mut ways, 10 * LAST_RETRY, both);
        assert_eq!(all.contains(&Way::Split), split, "{len}, {both}");
        assert!(all.contains(&Way::Pull) && all.contains(&Way::Stream));
    }
    // Now and then such a message comes before this rank offers its own.
    let mut ways = Ways::default();
    for transfer in 0..10_000 {
        let all = taken(&mut ways, 1, transfer % (EXCHANGES + 1) == 0);
        assert_ne!(all, [Way::Split]);
    }
    // Messages in turn are not exchanged: those of this rank have been taken before.
    ways.senders.get_mut(&3).expect("known").classes = [Class::NEW; CLASSES];
    let split = (0..200).any(|_| {
        ways.given(3, 1 << 16);
        taken(&mut ways, 1, false) == [Way::Split]
    });
    assert!(split);
}

#[test]
fn ways_that_were_not_possible_are_not_believed_but_tried() {
    let mut sender = Sender::new();
    for _ in 0..TRIALS {
        sender.classes[4].learn(Way::Stream, 200, 1);
        sender.classes[4].learn(Way::Pull, 100, 1);
    }
    sender.class = 5;
    let plain = sender.choose(|way| way != Way::Split);
    assert_eq!(plain, (Way::Pull, PROBE, true), "measured again");
    // One trial of a split does not tell.
    sender.classes[4].learn(Way::Split, 1, 1);
    for class in [6, 3] {
        sender.class = class;
        assert_eq!(sender.choose(|_| true), (Way::Split, PROBE, true));
        assert_eq!(sender.classes[class].trials[Way::Split as usize], 0);
    }
}

#[test]
fn lengths_have_classes() {
    assert_eq!(class_of(0, false), 0);
    assert_eq!(class_of(8191, false), 0);
    assert_eq!(class_of(8192, false), 1);
    assert_eq!(class_of(usize::MAX, true), CLASSES - 1);
}

/// The ways of `count` transfers of 64 KiB, one after the other.
fn taken(ways: &mut Ways, count: u32, both: bool) -> Vec<Way> {
    taken_of(1 << 16, ways, count, both)
}

/// The same of `len` bytes.
fn taken_of(len: usize, ways: &mut Ways, count: u32, both: bool) -> Vec<Way> {
    let mut one = || {
        let way = ways.begin(3, len, both, 0, |_| true);
        assert!(ways.end(3).is_empty());
        way.expect("nothing is under way")
    };
    (0..count).map(|_| one()).collect()
}

#[test]
fn where_messages_go_both_ways_one_leads() {
    let mut ways = Ways::default();
    ways.led(3, Way::Pull);
    let first = taken(&mut ways, PROBE, true);
    assert_eq!(first, [Way::Pull; PROBE as usize]);
    ways.led(3, Way::Split);
    let long = taken_of(SPLIT_BOTH, &mut ways, 1, true);
    assert_eq!(long, [Way::Split], "at once");
    let short = taken_of(SPLIT_BOTH - 1, &mut ways, 1, true);
    assert_eq!(short, [Way::Stream], "what is not split is not led there");
    // The way of a peer that takes no more messages is forgotten.
    ways.led(3, Way::Pull);
    let all = taken(&mut ways, LED + 1, true);
    assert_eq!(all[LED as usize - 1], Way::Pull);
    assert_eq!(all[LED as usize], Way::Stream, "the first that is tried");
    // Messages that go only one way are not led, nor are those that cannot go that way.
    let mut ways = Ways::default();
    ways.led(3, Way::Pull);
    assert_eq!(taken(&mut ways, 1, false), [Way::Stream]);
    ways.led(3, Way::Split);
    let plain = ways.begin(3, SPLIT_BOTH, true, 0, |way| way != Way::Split);
    assert_eq!(plain, Some(Way::Stream));
}

/// Transfers that are under way all the time, as in a window, take up a new way of the peer's only
/// where a period ends.
#[test]
fn who_is_led_follows_a_new_way_after_few_transfers() {
    let long = 1 << LONG_STREAMS;
    for (len, before, after, room) in [
        (1 << 15, Way::Stream, Way::Pull, PROBE),
        (long - 1, Way::Stream, Way::Pull, PROBE),
        (long, Way::Stream, Way::Pull, PERIOD),
        (long, Way::Pull, Way::Stream, PROBE),
    ] {
        let mut ways = Ways::default();
        ways.led(3, before);
        let mut begun = 0;
        while let Some(way) = ways.begin(3, len, true, 7, |_| true) {
            assert_eq!(way, before, "{len} bytes, transfer {begun}");
            begun += 1;
            ways.led(3, after);
        }
        assert_eq!(begun, room, "{len} bytes, {before:?}");
        assert!((1..begun).all(|_| ways.end(3).is_empty()));
        assert_eq!(ways.end(3), [7], "the first that had to wait");
        let next = ways.begin(3, len, true, 7, |_| true);
        assert_eq!(next, Some(after), "{len} bytes");
    }
}

#[test]
fn what_is_led_teaches_nothing() {
    let mut ways = Ways::default();
    ways.led(3, Way::Pull);
    taken(&mut ways, LED, true);
    let class = &ways.senders[&3].classes[class_of(1 << 16, true)];
    assert!(class.is_new() && class.left == EARLY_RETRY);
}

#[test]
fn both_directions_count_where_there_are_two() {
    for (both, cost) in [(false, 125), (true, 50)] {
        let mut sender = Sender::new();
        sender.class = class_of(1 << 20, both);
        (sender.begun, sender.bytes) = (PROBE, 8_000_000);
        (sender.trial, sender.counted) = (true, 12_000_000);
        sender.until = sender.since + Duration::from_millis(1);
        let class = sender.class;
        sender.end_period();
        assert_eq!(sender.classes[class].cost[Way::Stream as usize], cost);
    }
}

#[test]
fn what_the_peer_pulls_at_the_same_time_counts_though_it_says_so_later() {
    for (both, begun, cost) in [(true, 1, 4), (true, 2, 8), (false, 1, 8)] {
        let mut sender = Sender::new();
        sender.class = class_of(1 << 20, true);
        sender.exchanging = both;
        (sender.begun, sender.trial) = (begun, false);
        // More than this rank has pulled may have been taken after the period.
        (sender.bytes, sender.given) = (1_000_000, 3_000_000);
        sender.until = sender.since + Duration::from_micros(8);
        let class = sender.class;
        sender.end_period();
        let known = sender.classes[class].cost[Way::Stream as usize];
        assert_eq!(known, cost, "an exchange: {both}, of {begun}");
    }
}

#[test]
fn between_windows_messages_go_both_ways_still() {
    let mut ways = Ways::default();
    taken(&mut ways, 1, true);
    ways.given(3, 1 << 16);
    ways.led(3, Way::Pull);
    assert_eq!(taken(&mut ways, 1, false), [Way::Pull]);
    // Nothing has been taken since that period began.
    assert_eq!(taken(&mut ways, 1, false), [Way::Stream]);
}

/// Where both ranks copy all the time, the time that passes does not matter.
#[test]
fn copies_count_in_windows_both_ways() {
    let passed = [(Way::Pull, true, 1), (Way::Pull, false, PROBE)];
    let copied = [(Way::Pull, 100), (Way::Split, 200), (Way::Stream, 200)];
    let copied = copied.map(|(way, cost)| (way, true, PROBE, cost));
    let passed = passed.map(|(way, both, begun)| (way, both, begun, if both { 250 } else { 500 }));
    for (way, both, begun, cost) in copied.into_iter().chain(passed) {
        let mut ways = Ways::default();
        let mut sender = Sender::new();
        (sender.class, sender.way) = (class_of(1 << 20, both), way);
        (sender.begun, sender.bytes, sender.trial) = (begun, 1_000_000, true);
        (sender.given, sender.counted) = (1_000_000, 1_000_000);
        (sender.timed, sender.active) = (true, 1);
        sender.until = sender.since + Duration::from_micros(500);
        ways.senders.insert(3, Box::new(sender));
        assert_eq!(ways.times(3), both);
        (0..2).for_each(|_| ways.copied(3, Duration::from_micros(100)));
        let sender = ways.senders.get_mut(&3).unwrap();
        assert_eq!(sender.cost(), cost, "{way:?}, both ways: {both}, {begun}");
        sender.end_period();
        assert!(sender.copied.is_zero(), "the next period has its own");
    }
}

/// What this rank sends unasked is taken meanwhile, and is not said to be.
#[test]
fn windows_that_go_unasked_count_as_taken() {
    let mut ways = Ways::default();
    ways.went_unasked(3);
    assert_eq!(taken(&mut ways, 1, false), [Way::Stream]);
    assert!(
        ways.senders[&3].class < LENGTHS,
        "nothing was known of this sender"
    );
    ways.went_unasked(3);
    for _ in 0..SENDS {
        taken(&mut ways, 1, false);
        assert!(ways.senders[&3].class >= LENGTHS);
    }
    taken(&mut ways, 1, false);
    assert!(ways.senders[&3].class < LENGTHS, "it has ended");
}

#[test]
fn pulls_both_ways_are_known_once_they_have_been_tried() {
    for (way, pulls) in [(Way::Stream, false), (Way::Pull, true), (Way::Split, true)] {
        let mut ways = Ways::default();
        assert!(!ways.pulls_both_ways(3, 1 << 16));
        let mut sender = Sender::new();
        let class = &mut sender.classes[class_of(1 << 16, true)];
        class.learn(way, 10, 1);
        ways.senders.insert(3, Box::new(sender));
        assert!(!ways.pulls_both_ways(3, 1 << 16), "not tried often enough");
        let class = &mut ways.senders.get_mut(&3).unwrap().classes[class_of(1 << 16, true)];
        run(class, 100, |other| if other == way { 10 } else { 15 });
        assert_eq!(ways.pulls_both_ways(3, 1 << 16), pulls, "{way:?}");
        assert!(!ways.pulls_both_ways(3, 1 << 20), "of another length");
    }
}

/// The first trials of a way may all find memory that nobody has touched.
#[test]
fn a_way_is_tried_again_soon() {
    let mut class = Class::NEW;
    let mut transfers = 0;
    while class.best() != Some(Way::Split) {
        let (way, _) = class.choose(|_| true);
        let late = transfers > 3 * u32::from(TRIALS);
        let cost = [100, 150, if late { 50 } else { 190 }][way as usize];
        class.learn(way, cost, 1);
        transfers += 1;
    }
    assert!(transfers < 4 * EARLY_RETRY, "{transfers}");
}

#[test]
fn a_trial_that_gets_better_goes_on() {
    let periods = |costs: &[u64], enough, far_worse: bool| {
        let mut class = Class::NEW;
        run(&mut class, TRIALS.into(), |_| 100);
        let before = if far_worse { TRIALS } else { 0 };
        (0..before).for_each(|_| class.learn(Way::Pull, 300, 1));
        let mut tried = 0;
        for &cost in costs {
            class.tried(Way::Pull, cost, enough, enough);
            tried += 1;
            if class.trying.is_none() {
                break;
            }
        }
        (tried, class.cost[Way::Pull as usize])
    };
    for enough in [PROBE, FEW] {
        let better = periods(&[140, 120, 110, 80, 79, 50], enough, false);
        assert_eq!(better, (5, 79), "of {enough} transfers");
        let worse = periods(&[200, 100], enough, false);
        assert_eq!(worse, (1, 200), "a way that is much worse");
    }
    assert_eq!(periods(&[140, 120], FEW, true).0, 1, "a far worse way");
    let falling: Vec<u64> = (0..100)
        .map(|nth| 149 - nth)
        .map(|cost| cost * cost / 149)
        .collect();
    let (tried, _) = periods(&falling, PROBE, false);
    assert!(tried <= 2 * PERIOD / PROBE, "not for ever: {tried}");
}
