//! MP_Lite's figures: the sums of the protocol's steps and the machine's costs, against the
//! published figures.

use portolan_t3e_sim::Config;
use portolan_t3e_sim::mp_lite::{StepCosts, Way, time_of};

/// Sizes at which figures are compared.
const CHECKED: [usize; 5] = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20];

fn microseconds(bytes: usize, way: Way) -> f64 {
    let time = time_of(bytes, way, &Config::default(), StepCosts::FITTED);
    time.expect("a machine").as_us()
}

/// The paper: 12 µs up to 8 bytes, 19 µs just above, and 320 million bytes per second.
fn published(bytes: usize) -> f64 {
    let latency = if bytes <= 8 { 12.0 } else { 19.0 };
    latency + bytes as f64 / 320.0
}

#[test]
fn preposted_messages_take_what_was_published() {
    for bytes in CHECKED {
        let (here, there) = (microseconds(bytes, Way::Preposted), published(bytes));
        assert!(
            (here / there - 1.0).abs() < 0.05,
            "{bytes} bytes: {here} µs instead of {there}"
        );
    }
}

#[test]
fn more_than_eight_bytes_cost_more_handshakes() {
    let jump = microseconds(9, Way::Preposted) - microseconds(8, Way::Preposted);
    // The paper: from 12 to 19 µs.
    assert!((6.0..8.5).contains(&jump), "{jump} µs");
}

#[test]
fn what_is_left_out_is_missing_from_the_figure() {
    let config = Config::default();
    let with = |steps| {
        time_of(1024, Way::Preposted, &config, steps)
            .expect("a machine")
            .as_us()
    };
    let all = with(StepCosts::FITTED);
    let no_headers = with(StepCosts {
        post: 0.0,
        ..StepCosts::FITTED
    });
    // A prepost and a send_done each way: two headers are built per message.
    let headers = (all - no_headers) / (StepCosts::FITTED.post / 1e3);
    assert!(
        (headers - 2.0).abs() < 0.05,
        "{headers} headers on the way of a message"
    );
    let no_preposts = microseconds(1024, Way::ByDestination);
    assert!(
        (no_preposts - all).abs() > 1.0,
        "another protocol, the same figure: {all} µs"
    );
}

#[test]
fn other_ways_are_slower() {
    for bytes in CHECKED {
        let [preposted, buffered, by_destination] =
            [Way::Preposted, Way::Buffered, Way::ByDestination].map(|way| microseconds(bytes, way));
        assert!(
            preposted < buffered,
            "{bytes} bytes: {preposted} µs, buffered {buffered} µs"
        );
        assert!(
            preposted < by_destination,
            "{bytes} bytes: by destination {by_destination} µs"
        );
    }
}

#[test]
fn runs_are_the_same_to_the_picosecond() {
    let config = Config {
        seed: Some(3),
        ..Config::default()
    };
    let time = || time_of(5000, Way::Preposted, &config, StepCosts::FITTED).expect("a machine");
    assert_eq!(time(), time());
}
