//! MP_Lite's figures: what the protocol's steps and the machine's costs add up to, against what was
//! published.

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
        println!(
            "{bytes} bytes: {here:.2} µs, published {there:.2} µs, {:+.1} %",
            100.0 * (here / there - 1.0)
        );
        assert!(
            (here / there - 1.0).abs() < 0.05,
            "{bytes} bytes: {here} µs instead of {there}"
        );
    }
}

#[test]
fn other_ways_are_slower() {
    for bytes in CHECKED {
        let [preposted, buffered, by_destination] =
            [Way::Preposted, Way::Buffered, Way::ByDestination].map(|way| microseconds(bytes, way));
        println!(
            "{bytes} bytes: {preposted:.2} preposted, {buffered:.2} buffered, {by_destination:.2} by destination"
        );
    }
}
