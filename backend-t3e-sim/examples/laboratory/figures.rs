//! Time and rate against message size.

use std::error::Error;
use std::path::Path;

use portolan_t3e_sim::mp_lite::{StepCosts, Way, time_of};
use portolan_t3e_sim::{Config, run};

use crate::plot::{Axes, Curve, SeriesLabelPosition, draw};
use crate::raw;

/// Message sizes, in bytes: powers of two from a word to 4 MiB.
fn sizes() -> impl Iterator<Item = usize> {
    (3..=22).map(|bits| 1 << bits)
}

/// Microseconds by bytes.
type Times = Vec<(usize, f64)>;

fn shmem() -> Result<Times, Box<dyn Error>> {
    let config = Config {
        heap: 8 << 20,
        ..Config::default()
    };
    let times = run(2, &config, |pe| {
        sizes()
            .map(|len| Ok((len, raw::ping_pong(pe, len)?.as_us())))
            .collect::<portolan_core::Result<Times>>()
    })?;
    Ok(times.into_iter().next().ok_or("no PE")??)
}

fn mp_lite(way: Way) -> Result<Times, Box<dyn Error>> {
    let config = Config::default();
    let time = |len| Ok((len, time_of(len, way, &config, StepCosts::FITTED)?.as_us()));
    sizes().map(time).collect()
}

/// A published curve: a latency in microseconds and a rate in MB/s.
fn published(latency: f64, rate: f64) -> Times {
    sizes()
        .map(|len| (len, latency + len as f64 / rate))
        .collect()
}

pub(crate) fn measure(directory: &Path) -> Result<(), Box<dyn Error>> {
    let lines = [
        ("raw SHMEM", shmem()?, false),
        ("MP_Lite, preposted", mp_lite(Way::Preposted)?, false),
        (
            "MP_Lite, buffered at the source",
            mp_lite(Way::Buffered)?,
            false,
        ),
        (
            "simpler: the destination does all transfers",
            mp_lite(Way::ByDestination)?,
            false,
        ),
        (
            "old Cray MPI, as published (not modelled)",
            published(20.0, 160.0),
            true,
        ),
        (
            "new Cray MPI, as published (not modelled)",
            published(9.0, 300.0),
            true,
        ),
    ];
    println!(
        "| bytes | {} |",
        lines.each_ref().map(|line| line.0).join(" | ")
    );
    println!("| --- |{}", " --- |".repeat(lines.len()));
    for (place, len) in sizes().enumerate() {
        let times = lines
            .each_ref()
            .map(|line| format!("{:.2}", line.1[place].1));
        println!("| {len} | {} |", times.join(" | "));
    }
    let curves = |value: fn(usize, f64) -> f64| -> Vec<Curve> {
        let curve = |(name, times, published): &(&str, Times, bool)| Curve {
            name: (*name).to_owned(),
            points: times
                .iter()
                .map(|(len, us)| (*len as f64, value(*len, *us)))
                .collect(),
            published: *published,
        };
        lines.iter().map(curve).collect()
    };
    let axes = Axes {
        title: "Emulated T3E-900: rate between neighbours",
        x: "bytes",
        y: "MB/s",
        legend: SeriesLabelPosition::LowerRight,
    };
    draw(
        &directory.join("rate.svg"),
        &axes,
        &curves(|len, us| len as f64 / us),
    )?;
    let axes = Axes {
        title: "Emulated T3E-900: time of a message between neighbours",
        x: "bytes",
        y: "µs",
        legend: SeriesLabelPosition::UpperLeft,
    };
    draw(&directory.join("time.svg"), &axes, &curves(|_, us| us))
}
